//! Which work of a trie is due next: a pure function of the sizes of its piles.
//!
//! A node whose pile is large enough gives its oldest runs to its children, in one merge whose output goes
//! from child to child; no run of a child is rewritten (LSM-trie, Wu et al., ATC 2015). So an item is written
//! once a height. A pile that is long but not large has its newest runs merged into one. It does nothing
//! itself; called by the engine like `pick`, whose part it has for hashed trees.
//!
//! Invariants:
//! 1. Inputs are neighbours in their pile. What goes to children is the oldest of it.
//! 2. [`Push::older`] bounds every key that may have an older version outside the inputs.

use std::ops::Range;

use crate::base::place::{FANOUT, NodeId};
use crate::levels::version::{Node, Placed, Run, Spot, Trie, next_number};

use super::pick::Work;

/// Runs of a pile; one more is merged away before anything else is done.
const PILE_RUNS_MAX: usize = 16;
/// The same of the root, on the way of every key. One more slows writers too.
pub(crate) const ROOT_RUNS_MAX: usize = 12;
/// Tables that a push takes, by their bytes: as many as there are children, so that what comes out is as
/// large as what goes in.
const PUSH_TABLES: u64 = FANOUT as u64;
/// Tables that a fold in the root takes, by their bytes, if it takes more than two.
const ROOT_FOLD_TABLES: u64 = 2;

/// One piece of work on a trie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Push {
    pub(crate) work: Work,
    pub(crate) node: NodeId,
    /// Of the node's pile.
    pub(crate) runs: Range<usize>,
    /// To the node's children; else they become one run of the node.
    pub(crate) is_down: bool,
}

/// See the module. `table_bytes`: what a table of the trie is taken to have.
pub(crate) fn due(trie: &Trie, table_bytes: u64) -> Option<Push> {
    let root = trie.root();
    let long = if root.most_runs() > PILE_RUNS_MAX {
        Some(find(root, |node, _| node.runs().len(), Node::most_runs))
    } else {
        Some((NodeId::ROOT, root)).filter(|(id, node)| is_long(*id, node))
    };
    if let Some((id, node)) = long {
        let is_due = node.due_bytes(id) >= table_bytes;
        return Some(if is_due { down(id, node, table_bytes) } else { fold(id, node, table_bytes) });
    }
    if root.most_bytes() >= table_bytes {
        let (id, node) = find(root, Node::due_bytes, Node::most_bytes);
        return Some(down(id, node, table_bytes));
    }
    None
}

fn is_long(id: NodeId, node: &Node) -> bool {
    node.runs().len() > if id == NodeId::ROOT { ROOT_RUNS_MAX } else { PILE_RUNS_MAX }
}

/// Bytes of all piles that are due.
pub(crate) fn debt_bytes(trie: &Trie, table_bytes: u64) -> u64 {
    fn of(node: &Node, id: NodeId, table_bytes: u64) -> u64 {
        if node.most_bytes() < table_bytes && node.most_runs() <= PILE_RUNS_MAX && !is_long(id, node) {
            return 0;
        }
        let is_due = node.due_bytes(id) >= table_bytes || is_long(id, node);
        let own = if is_due { node.bytes() } else { 0 };
        let children = (0..FANOUT).filter_map(|number| Some((id.child(number), node.child(number)?)));
        children.map(|(id, child)| of(child, id, table_bytes)).fold(own, u64::saturating_add)
    }
    of(trie.root(), NodeId::ROOT, table_bytes)
}

/// The node that has the most by itself; `most` has it of a node and all below it.
fn find<T: Ord>(root: &Node, own: impl Fn(&Node, NodeId) -> T, most: impl Fn(&Node) -> T) -> (NodeId, &Node) {
    let (mut id, mut node) = (NodeId::ROOT, root);
    while own(node, id) < most(node) {
        let children = (0..FANOUT).filter_map(|number| Some((number, node.child(number)?)));
        let (number, child) = children.max_by_key(|(_, child)| most(child)).expect("one has the most");
        (id, node) = (id.child(number), child);
    }
    (id, node)
}

/// Takes the oldest runs of a pile to the children: by a move if one child gets all of them.
fn down(id: NodeId, node: &Node, table_bytes: u64) -> Push {
    let runs = node.runs();
    let mut from = runs.len() - 1;
    let mut bytes = runs[from].bytes();
    while from > 0 && bytes + runs[from - 1].bytes() <= PUSH_TABLES * table_bytes {
        from -= 1;
        bytes += runs[from].bytes();
    }
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
    let work = if can_move { Work::Move } else { Work::Merge };
    Push { work, node: id, runs: from..runs.len(), is_down: true }
}

/// Merges the newest runs of a pile into one: as long as the next is not far larger than all before it, so
/// that a run is not written over and over again for small ones. In the root, where a run is one slice, they
/// come to few tables' bytes: the slice is built in one piece.
fn fold(id: NodeId, node: &Node, table_bytes: u64) -> Push {
    let runs = node.runs();
    let (mut end, mut bytes) = (2, runs[0].bytes() + runs[1].bytes());
    let most_bytes = if id == NodeId::ROOT { ROOT_FOLD_TABLES * table_bytes } else { u64::MAX };
    let fits = |next: &Run, bytes: u64| next.bytes() <= 2 * bytes && next.bytes() + bytes <= most_bytes;
    while end < runs.len() && fits(&runs[end], bytes) {
        bytes += runs[end].bytes();
        end += 1;
    }
    Push { work: Work::Merge, node: id, runs: 0..end, is_down: false }
}

impl Push {
    /// Its inputs, newest first.
    pub(crate) fn inputs<'t>(&self, trie: &'t Trie) -> &'t [Run] {
        &self.node(trie).runs()[self.runs.clone()]
    }

    fn node<'t>(&self, trie: &'t Trie) -> &'t Node {
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

    /// Where a table goes that begins with this key: the runs that outputs become are newer than all others
    /// of their piles. `moved`: inputs that went there before it.
    pub(crate) fn output(&self, trie: &Trie, min: &[u8], moved: u64) -> Spot {
        let node = self.node(trie);
        if self.is_down {
            let child = NodeId::of(self.node.height + 1, min);
            let runs = node.child((child.path & 7) as usize).map_or(&[][..], Node::runs);
            return Spot { level: child.height, run: next_number(runs) + moved };
        }
        Spot { level: self.node.height, run: node.runs()[self.runs.start].number() }
    }

    /// The height of what comes out.
    pub(crate) fn output_height(&self) -> usize {
        self.node.height + usize::from(self.is_down)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
