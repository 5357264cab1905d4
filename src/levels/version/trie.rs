//! The trie of a hashed tree: nodes by route, each with a pile of runs.
//!
//! A node of height h holds items whose routes begin with its path, 3 h bits; the root holds any item. A
//! flush adds runs to the root's pile. A push moves the oldest runs of a node to its children, one run for
//! each child. So on the path of a key, the items of a node are newer than all items of its children. The
//! structure is that of LSM-trie (Wu et al., ATC 2015).
//!
//! A change copies the groups of siblings on its path and shares all others. The trie has no policy:
//! `compact::push` chooses the node that is due by [`TrieNode::most_bytes`] and [`TrieNode::most_runs`].
//!
//! Invariants:
//! 1. The tables of a node hold only keys of the node; its runs are ordered newest first.
//! 2. A group of siblings is left out if neither they nor nodes below them have runs.
//! 3. The sums of a node are over its pile and all piles below it.

use std::collections::BTreeMap;

use crate::base::place::{FANOUT, HEIGHT_MAX, NodeId};
use crate::base::sync::Arc;

use super::placed::Placed;
use super::run::{Run, runs_of};

/// The bytes of a node that make it due, in thousandths of a table's. The threshold varies by node: nodes of
/// a height fill at the same time, and with one threshold they would all be due at the same time.
const DUE_PERMILLE: u64 = 7200;
const DUE_SPREAD_PERMILLE: u64 = 5600;
/// The golden ratio less one, in 1/2^32: its multiples are evenly spread.
const GOLDEN: u64 = 0x9e37_79b9;

/// A node and the nodes below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrieNode {
    runs: Option<Arc<[Run]>>,
    children: Option<Arc<[TrieNode; FANOUT]>>,
    bytes: u64,
    /// The maximum, over the node and all nodes below it, of [`TrieNode::due_bytes`].
    most_bytes: u64,
    most_runs: u32,
    /// Staleness of the most stale leaf here and below.
    most_stale: u16,
    has_ranges: bool,
    /// Sums over all piles here and below; `inner` counts only nodes with children.
    total: Amount,
    inner: Amount,
    /// Bytes of the largest pile that `inner` counts.
    most_inner_bytes: u64,
}

/// The amount of data in some runs. Tombstones are items of few bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) items: u64,
}

impl Amount {
    fn of<'r>(runs: impl Iterator<Item = &'r Run>) -> Amount {
        let items = |run: &Run| run.tables().iter().map(|one| one.table.items()).sum();
        runs.map(|run| Amount { bytes: run.bytes(), items: items(run) }).fold(Amount::default(), Amount::and)
    }

    fn and(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes + other.bytes, items: self.items + other.items }
    }

    /// This amount in thousandths of the other, by bytes or by items; the larger of both.
    pub(crate) fn permille_of(self, other: Amount) -> u64 {
        let of = |part: u64, whole: u64| part.saturating_mul(1000) / whole.max(1);
        of(self.bytes, other.bytes).max(of(self.items, other.items))
    }
}

/// Sums over all nodes of a height.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Height {
    pub(crate) items: u64,
    pub(crate) tables: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Trie {
    root: TrieNode,
    /// Down to the deepest height with a table.
    heights: Vec<Height>,
}

/// A change of one node's pile.
#[derive(Debug)]
pub(super) enum PileChange {
    Add(u64, Placed),
    Remove((u64, u32)),
}

impl TrieNode {
    /// The node's runs, newest first.
    #[inline]
    pub(crate) fn runs(&self) -> &[Run] {
        self.runs.as_deref().unwrap_or_default()
    }

    /// Bytes of the node's own pile.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub(crate) fn child(&self, number: usize) -> Option<&TrieNode> {
        self.children.as_ref()?.get(number)
    }

    pub(crate) fn has_children(&self) -> bool {
        self.children.is_some()
    }

    /// Whether neither the node nor any node below it has a run.
    pub(crate) fn is_bare(&self) -> bool {
        self.runs.is_none() && self.children.is_none()
    }

    /// The largest `table_bytes` for which this node, or a node below it, is due by its bytes.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// The number of runs of the longest pile here and below.
    pub(crate) fn most_runs(&self) -> usize {
        self.most_runs as usize
    }

    /// For a node without children, the amount of the newer runs of its pile in thousandths of its oldest
    /// run: at most so much of the oldest run is overwritten or deleted. At least 1 if the pile has
    /// tombstones, because a leaf's tombstones hide items of its own pile only.
    pub(crate) fn stale_permille(&self) -> u16 {
        let Some((oldest, newer)) = self.runs().split_last().filter(|_| !self.has_children()) else {
            return 0;
        };
        let permille = Amount::of(newer.iter()).permille_of(Amount::of(std::iter::once(oldest)));
        let tombstones = || self.runs().iter().flat_map(Run::tables).any(|one| one.table.tombstones() > 0);
        let least = u16::from(!newer.is_empty() || tombstones());
        u16::try_from(permille).unwrap_or(u16::MAX).max(least)
    }

    /// The staleness of the most stale leaf here and below.
    pub(crate) fn most_stale(&self) -> u16 {
        self.most_stale
    }

    /// The amount here and below in nodes with children.
    pub(crate) fn inner(&self) -> Amount {
        self.inner
    }

    /// Bytes of the largest pile here and below of a node with children.
    pub(crate) fn most_inner_bytes(&self) -> u64 {
        self.most_inner_bytes
    }

    /// The amount here and below in nodes without children.
    pub(crate) fn leaves(&self) -> Amount {
        let Amount { bytes, items } = self.inner;
        Amount { bytes: self.total.bytes - bytes, items: self.total.items - items }
    }

    /// Whether any run here or below has range tombstones.
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// The largest `table_bytes` for which this node's own pile is due for a push.
    pub(crate) fn due_bytes(&self, id: NodeId) -> u64 {
        if id.height >= HEIGHT_MAX {
            return 0;
        }
        let spread = ((id.path.wrapping_mul(GOLDEN) & 0xffff_ffff) * DUE_SPREAD_PERMILLE) >> 32;
        self.bytes.saturating_mul(1000) / (DUE_PERMILLE + spread)
    }

    fn sum(&mut self, id: NodeId) {
        self.bytes = self.runs().iter().map(Run::bytes).sum();
        let children = || self.children.iter().flat_map(|children| children.iter());
        let most_bytes = children().map(TrieNode::most_bytes).fold(self.due_bytes(id), u64::max);
        let own_runs = u32::try_from(self.runs().len()).expect("a pile is short");
        let most_runs = children().map(|child| child.most_runs).fold(own_runs, u32::max);
        let has_ranges = self.runs().iter().any(Run::has_ranges) || children().any(|child| child.has_ranges);
        let most_stale = children().map(TrieNode::most_stale).fold(self.stale_permille(), u16::max);
        let own = Amount::of(self.runs().iter());
        let own_inner = if self.has_children() { own } else { Amount::default() };
        let total = children().map(|child| child.total).fold(own, Amount::and);
        let inner = children().map(TrieNode::inner).fold(own_inner, Amount::and);
        let most_inner_bytes = children().map(TrieNode::most_inner_bytes).fold(own_inner.bytes, u64::max);
        (self.most_bytes, self.most_runs, self.has_ranges) = (most_bytes, most_runs, has_ranges);
        (self.most_stale, self.most_inner_bytes) = (most_stale, most_inner_bytes);
        (self.total, self.inner) = (total, inner);
    }

    /// Sets the pile of the node at the end of `route`.
    fn set(&mut self, id: NodeId, mut route: impl Iterator<Item = usize>, runs: Option<Arc<[Run]>>) {
        #[cfg(test)]
        crate::base::visits::count();
        match route.next() {
            None => self.runs = runs,
            Some(number) => {
                let children = Arc::make_mut(self.children.get_or_insert_default());
                children[number].set(id.child(number), route, runs);
                if children.iter().all(TrieNode::is_bare) {
                    self.children = None;
                }
            }
        }
        self.sum(id);
    }
}

/// The nodes that have a run, each before those below it; nodes are visited lazily.
pub(crate) struct Nodes<'t> {
    /// Nodes still to visit, the next one last.
    stack: Vec<(NodeId, &'t TrieNode)>,
}

impl<'t> Iterator for Nodes<'t> {
    type Item = (NodeId, &'t TrieNode);

    fn next(&mut self) -> Option<(NodeId, &'t TrieNode)> {
        loop {
            let (id, node) = self.stack.pop()?;
            #[cfg(test)]
            crate::base::visits::count();
            let children = node.children.iter().flat_map(|children| children.iter().enumerate().rev());
            let with_runs = children.filter(|(_, child)| !child.is_bare());
            self.stack.extend(with_runs.map(|(number, child)| (id.child(number), child)));
            if node.runs.is_some() {
                return Some((id, node));
            }
        }
    }
}

impl Trie {
    pub(crate) fn root(&self) -> &TrieNode {
        &self.root
    }

    pub(crate) fn heights(&self) -> &[Height] {
        &self.heights
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&TrieNode> {
        id.route().try_fold(&self.root, |node, number| node.child(number))
    }

    /// Every node that has a run, each before those below it.
    pub(crate) fn nodes(&self) -> Nodes<'_> {
        Nodes { stack: vec![(NodeId::ROOT, &self.root)] }
    }

    /// The table of that name in a node.
    pub(super) fn find(&self, name: (u64, u32), node: NodeId) -> Option<&Placed> {
        let mut tables = self.node(node)?.runs().iter().flat_map(Run::tables);
        tables.find(|placed| placed.name() == name)
    }

    /// The trie after changes of piles.
    pub(super) fn after(&self, changes: BTreeMap<NodeId, Vec<PileChange>>) -> Trie {
        let mut next = self.clone();
        for (id, changes) in changes {
            let node = self.node(id);
            let mut tables: Vec<(u64, Placed)> = Vec::new();
            for run in node.into_iter().flat_map(|node| node.runs()) {
                tables.extend(run.tables().iter().map(|placed| (run.number(), placed.clone())));
            }
            next.count(id, &tables, false);
            for change in changes {
                match change {
                    PileChange::Add(run, placed) => tables.push((run, placed)),
                    PileChange::Remove(name) => {
                        let at = tables.iter().position(|(_, placed)| placed.name() == name);
                        tables.swap_remove(at.expect("tables are removed once, and only if present"));
                    }
                }
            }
            next.count(id, &tables, true);
            let runs = (!tables.is_empty()).then(|| runs_of(id.height, tables).into());
            next.root.set(NodeId::ROOT, id.route(), runs);
        }
        let deepest = next.heights.iter().rposition(|height| height.tables > 0);
        next.heights.truncate(deepest.map_or(0, |deepest| deepest + 1));
        next
    }

    fn count(&mut self, id: NodeId, tables: &[(u64, Placed)], is_more: bool) {
        if self.heights.len() <= id.height {
            self.heights.resize(id.height + 1, Height::default());
        }
        let items: u64 = tables.iter().map(|(_, placed)| placed.table.items()).sum();
        let (height, count) = (&mut self.heights[id.height], tables.len() as u64);
        if is_more {
            (height.items, height.tables) = (height.items + items, height.tables + count);
        } else {
            (height.items, height.tables) = (height.items - items, height.tables - count);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
