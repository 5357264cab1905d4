//! The choice of a trie's next work: a pure function of the sizes of its piles.
//!
//! A node with a large enough pile gives its oldest runs to its children, in one merge that writes the
//! children's runs one after the other; no run of a child is rewritten (LSM-trie, Wu et al., ATC 2015). So
//! pushes alone write an item once for each height. If a pile is long but not large, its newest runs are
//! merged into one.
//!
//! A leaf, a node without children, has nothing below it with which overwritten items could be merged. So
//! while keys are overwritten, and at rest, a leaf is merged into one run once its newer runs reach a set
//! share of its oldest run. The result has each key once and no tombstones. At rest the data above leaves
//! goes down to them too, once it exceeds a share of the leaves, so that a get finds one run.
//!
//! The module moves no data. The engine calls it in place of `pick` for hashed trees.
//!
//! Invariants:
//! 1. Inputs are neighbours in their pile. Runs that go to children are the oldest of the pile.
//! 2. Work ends: each piece takes items down, or leaves fewer runs, or fewer tombstones.
//! 3. Every key that may have an older version outside the inputs lies in a range of [`Push::older`].

use std::ops::Range;

use crate::base::id::Sequence;
use crate::base::place::{FANOUT, NodeId};
use crate::levels::version::{Placed, Run, Spot, Trie, TrieNode, next_number};

use super::pick::MergeKind;

/// The most runs of a pile; a longer pile is merged before any other work.
const PILE_RUNS_MAX: usize = 16;
/// The most runs of the root, which is on the path of every key. One run more slows writers too.
pub(crate) const ROOT_RUNS_MAX: usize = 12;
/// The size of a push, in tables' bytes: as many tables as there are children, so that output tables are as
/// large as input tables.
const PUSH_TABLES: u64 = FANOUT as u64;
/// The size of a fold in the root, in tables' bytes, if it takes more than two runs.
const ROOT_FOLD_TABLES: u64 = 2;

/// Limits of the piles of a trie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushSettings {
    /// The assumed bytes of a table of the trie.
    pub(crate) table_bytes: u64,
    /// The [`TrieNode::stale_permille`] from which a leaf is merged into one run. `None` while no overwrites
    /// are expected: leaves are then piles like all others.
    pub(crate) stale_permille: Option<u16>,
    /// The most data above leaves, in thousandths of the leaves' data; `None` for no limit.
    pub(crate) upper_permille: Option<u64>,
    /// Which excess data above leaves goes down first: the highest node's, so that little is left on the path
    /// of a key; otherwise the largest pile's, so that little is written.
    pub(crate) is_highest_first: bool,
}

/// One piece of work on a trie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Push {
    pub(crate) work: MergeKind,
    pub(crate) node: NodeId,
    /// Indexes of the runs in the node's pile.
    pub(crate) runs: Range<usize>,
    /// Whether the runs go to the node's children; otherwise they become one run of the node.
    pub(crate) is_down: bool,
}

/// See the module.
pub(crate) fn due(trie: &Trie, settings: &PushSettings) -> Option<Push> {
    let (root, table_bytes) = (trie.root(), settings.table_bytes);
    let long = if is_long(NodeId::ROOT, root) {
        Some((NodeId::ROOT, root))
    } else {
        let most = || find(root, |node, _| node.runs().len(), TrieNode::most_runs);
        (root.most_runs() > PILE_RUNS_MAX).then(most)
    };
    let is_merged = |node: &TrieNode| settings.stale_permille.is_some() && !node.has_children();
    if let Some((id, node)) = long {
        return Some(match node.due_bytes(id) >= table_bytes {
            true => down(id, node, settings),
            false if is_merged(node) => merge_leaf(id, node, 0, table_bytes),
            false => fold(id, node, table_bytes),
        });
    }
    if root.most_bytes() >= table_bytes {
        let (id, node) = find(root, TrieNode::due_bytes, TrieNode::most_bytes);
        return Some(down(id, node, settings));
    }
    if settings.stale_permille.is_some_and(|permille| root.most_stale() >= permille) {
        let (id, node) = find(root, |node, _| node.stale_permille(), TrieNode::most_stale);
        return Some(merge_leaf(id, node, 0, table_bytes));
    }
    if root.inner().permille_of(root.leaves()) <= settings.upper_permille? {
        return None;
    }
    let (id, node) = match settings.is_highest_first {
        true => first(root, &|node| node.has_children() && !node.runs().is_empty())?,
        false => {
            let own = |node: &TrieNode, _| if node.has_children() { node.bytes() } else { 0 };
            find(root, own, TrieNode::most_inner_bytes)
        }
    };
    Some(push_runs(id, node, 0))
}

/// Whether the root has so many runs that it goes before all other work.
pub(crate) fn is_root_long(trie: &Trie) -> bool {
    is_long(NodeId::ROOT, trie.root())
}

/// The next step of a full merge: towards leaves of one run without tombstones and no data above them, for
/// items written up to `upto`. `None` if that state is reached. Runs with only newer items stay in place.
pub(crate) fn full(trie: &Trie, table_bytes: u64, upto: Sequence) -> Option<Push> {
    let wanted_from = |node: &TrieNode| {
        let is_wanted = |run: &Run| run.tables().iter().any(|one| one.first_sequence <= upto);
        node.runs().iter().position(is_wanted)
    };
    let (id, node) = first(trie.root(), &|node| {
        let Some(from) = wanted_from(node) else { return false };
        let has_tombstones = || node.runs()[from].tables().iter().any(|one| one.table.tombstones() > 0);
        node.has_children() || node.runs().len() - from > 1 || has_tombstones()
    })?;
    let from = wanted_from(node).expect("it was found by them");
    Some(if node.has_children() {
        push_runs(id, node, from)
    } else {
        merge_leaf(id, node, from, table_bytes)
    })
}

fn is_long(id: NodeId, node: &TrieNode) -> bool {
    node.runs().len() > if id == NodeId::ROOT { ROOT_RUNS_MAX } else { PILE_RUNS_MAX }
}

/// The first wanted node, each before those below it. Only a node with children and a run, or a stale leaf,
/// can be wanted.
fn first<'t>(root: &'t TrieNode, is_wanted: &dyn Fn(&TrieNode) -> bool) -> Option<(NodeId, &'t TrieNode)> {
    fn of<'t>(
        id: NodeId,
        node: &'t TrieNode,
        is_wanted: &dyn Fn(&TrieNode) -> bool,
    ) -> Option<(NodeId, &'t TrieNode)> {
        if node.inner().items == 0 && node.most_stale() == 0 {
            return None;
        }
        if is_wanted(node) {
            return Some((id, node));
        }
        (0..FANOUT).find_map(|number| of(id.child(number), node.child(number)?, is_wanted))
    }
    of(NodeId::ROOT, root, is_wanted)
}

/// Bytes of all due piles, and of the excess data above leaves.
pub(crate) fn debt_bytes(trie: &Trie, settings: &PushSettings) -> u64 {
    fn of(node: &TrieNode, id: NodeId, settings: &PushSettings) -> u64 {
        let table_bytes = settings.table_bytes;
        let is_stale = |permille: u16| settings.stale_permille.is_some_and(|from| permille >= from);
        let are_small = node.most_bytes() < table_bytes && node.most_runs() <= PILE_RUNS_MAX;
        if are_small && !is_long(id, node) && !is_stale(node.most_stale()) {
            return 0;
        }
        let is_large = node.due_bytes(id) >= table_bytes || is_long(id, node);
        let own = if is_large || is_stale(node.stale_permille()) { node.bytes() } else { 0 };
        let children = (0..FANOUT).filter_map(|number| Some((id.child(number), node.child(number)?)));
        children.map(|(id, child)| of(child, id, settings)).fold(own, u64::saturating_add)
    }
    let root = trie.root();
    let allowed = settings.upper_permille.map(|most| most.saturating_mul(root.leaves().bytes) / 1000);
    let above = root.inner().bytes.saturating_sub(allowed.unwrap_or(u64::MAX));
    of(root, NodeId::ROOT, settings).saturating_add(above)
}

/// The node with the largest `own` value; `most` returns the maximum over a node and all nodes below it.
fn find<T: Ord>(
    root: &TrieNode,
    own: impl Fn(&TrieNode, NodeId) -> T,
    most: impl Fn(&TrieNode) -> T,
) -> (NodeId, &TrieNode) {
    let (mut id, mut node) = (NodeId::ROOT, root);
    while own(node, id) < most(node) {
        let children = (0..FANOUT).filter_map(|number| Some((number, node.child(number)?)));
        let (number, child) = children.max_by_key(|(_, child)| most(child)).expect("one has the most");
        (id, node) = (id.child(number), child);
    }
    (id, node)
}

/// Takes the oldest runs of a pile to the children; takes all runs if leaves are to have one run.
fn down(id: NodeId, node: &TrieNode, settings: &PushSettings) -> Push {
    if settings.stale_permille.is_some() {
        return push_runs(id, node, 0);
    }
    let runs = node.runs();
    let mut from = runs.len() - 1;
    let mut bytes = runs[from].bytes();
    while from > 0 && bytes + runs[from - 1].bytes() <= PUSH_TABLES * settings.table_bytes {
        from -= 1;
        bytes += runs[from].bytes();
    }
    push_runs(id, node, from)
}

/// Pushes the runs of a pile from `from` on to the children: by a move if one child gets all of them.
fn push_runs(id: NodeId, node: &TrieNode, from: usize) -> Push {
    let runs = node.runs();
    let height = id.height + 1;
    let tables = || runs[from..].iter().flat_map(Run::tables);
    let child = NodeId::of(height, runs[from].tables()[0].table.min());
    let is_in = |placed: &Placed| {
        let table = &placed.table;
        table
            .bounded_max()
            .is_some_and(|max| NodeId::of(height, table.min()) == child && NodeId::of(height, max) == child)
    };
    let is_whole = tables().all(is_in) && tables().all(|placed| placed.table.ranges().is_empty());
    let can_move = is_whole
        && (node.child((child.path & 7) as usize).is_some_and(|child| !child.is_bare())
            || tables().all(|one| one.table.tombstones() == 0));
    let work = if can_move { MergeKind::Move } else { MergeKind::Merge };
    Push { work, node: id, runs: from..runs.len(), is_down: true }
}

/// Merges the runs of a leaf from `from` on into one. In the root, where a run is one slice, more than a few
/// tables' bytes go to children instead.
fn merge_leaf(id: NodeId, node: &TrieNode, from: usize, table_bytes: u64) -> Push {
    let runs = &node.runs()[from..];
    let bytes: u64 = runs.iter().map(Run::bytes).sum();
    if id == NodeId::ROOT && bytes > ROOT_FOLD_TABLES * table_bytes {
        return push_runs(id, node, from);
    }
    Push { work: MergeKind::Merge, node: id, runs: from..node.runs().len(), is_down: false }
}

/// Merges the newest runs of a pile into one. A run is included if it is not far larger than all newer ones
/// together, so that small runs do not cause its rewrite again and again. In the root, where a run is one
/// slice, the sum is limited to a few tables' bytes, because a slice is built in one piece.
fn fold(id: NodeId, node: &TrieNode, table_bytes: u64) -> Push {
    let runs = node.runs();
    let (mut end, mut bytes) = (2, runs[0].bytes() + runs[1].bytes());
    let most_bytes = if id == NodeId::ROOT { ROOT_FOLD_TABLES * table_bytes } else { u64::MAX };
    let fits = |next: &Run, bytes: u64| next.bytes() <= 2 * bytes && next.bytes() + bytes <= most_bytes;
    while end < runs.len() && fits(&runs[end], bytes) {
        bytes += runs[end].bytes();
        end += 1;
    }
    Push { work: MergeKind::Merge, node: id, runs: 0..end, is_down: false }
}

impl Push {
    /// Its inputs, newest first.
    pub(crate) fn inputs<'t>(&self, trie: &'t Trie) -> &'t [Run] {
        &self.node(trie).runs()[self.runs.clone()]
    }

    fn node<'t>(&self, trie: &'t Trie) -> &'t TrieNode {
        trie.node(self.node).expect("it was picked in this trie")
    }

    /// Bounds of all keys that may have older versions below the inputs.
    pub(crate) fn older(&self, trie: &Trie) -> Vec<(Vec<u8>, Vec<u8>)> {
        let node = self.node(trie);
        let beside = node.runs()[self.runs.end..].iter().flat_map(Run::tables);
        let bounds = |placed: &Placed| (placed.table.min().to_vec(), placed.table.max().to_vec());
        let children = (0..FANOUT).filter(|number| node.child(*number).is_some_and(|child| !child.is_bare()));
        let below = children.map(|number| self.node.child(number)).map(|child| (child.first(), child.last()));
        beside.map(bounds).chain(below).collect()
    }

    /// For each node that gets some of the output, the runs that stay, older than the output and newest
    /// first.
    pub(crate) fn staying<'t>(&self, trie: &'t Trie) -> impl Iterator<Item = (NodeId, &'t [Run])> {
        let (id, node) = (self.node, self.node(trie));
        let is_down = self.is_down;
        let children = (0..FANOUT)
            .filter(move |_| is_down)
            .filter_map(move |number| Some((id.child(number), node.child(number)?.runs())));
        let own = (!is_down).then(|| (id, &node.runs()[self.runs.end..]));
        children.chain(own).filter(|(_, runs)| !runs.is_empty())
    }

    /// The spot of an output table with this first key: output runs are newer than all others of their piles.
    /// `moved`: the number of inputs moved there before it.
    pub(crate) fn output(&self, trie: &Trie, min: &[u8], moved: u64) -> Spot {
        let node = self.node(trie);
        if self.is_down {
            let child = NodeId::of(self.node.height + 1, min);
            let runs = node.child((child.path & 7) as usize).map_or(&[][..], TrieNode::runs);
            return Spot { level: child.height, run: next_number(runs) + moved };
        }
        Spot { level: self.node.height, run: node.runs()[self.runs.start].number() }
    }

    /// The height of the output.
    pub(crate) fn output_height(&self) -> usize {
        self.node.height + usize::from(self.is_down)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
