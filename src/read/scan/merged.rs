//! Scans of several trees, merged in key order: for a keyspace whose partitions are not in key order. A key
//! is in one tree only.
//!
//! It moves no scan itself: [`Merged::due`] returns the scan to be moved, and [`Merged::moved`] takes the
//! result. So blocking and asynchronous callers drive it alike.
//!
//! Invariant: once `due` returns `None`, every kept scan stands at an item, and the winner's item is the
//! first of them.

use crate::base::id::TreeId;
use crate::base::step::Direction;
use crate::merge::LoserTree;

use super::ScanMachine;

/// See the module.
pub(crate) struct Merged {
    /// Trees without a scan yet.
    trees: std::vec::IntoIter<TreeId>,
    /// The scan of the current tree, before its first item.
    first: Option<Box<ScanMachine>>,
    /// Scans that have an item; `None` at their end.
    scans: Vec<Option<Box<ScanMachine>>>,
    /// Made after the first items of all trees were found.
    order: Option<LoserTree>,
    direction: Direction,
    /// A step is under way: the winner has to be moved.
    is_moving: bool,
}

impl Merged {
    /// Approximate memory of one tree, in bytes, besides the grant of its scan.
    pub(crate) const TREE_BYTES: u64 = size_of::<ScanMachine>() as u64 + 256;

    /// A merge of these trees; no tree is read yet.
    pub(crate) fn new(trees: Vec<TreeId>, direction: Direction) -> Merged {
        let (trees, scans) = (trees.into_iter(), Vec::new());
        Merged { trees, first: None, scans, order: None, direction, is_moving: false }
    }

    /// Begins a step to the next item, if none is under way.
    pub(crate) fn step(&mut self) {
        self.is_moving = self.order.as_ref().is_some_and(|order| order.winner().is_some());
    }

    /// The scan to be moved before the step is done; `scan_of` makes the scan of a tree.
    pub(crate) fn due(&mut self, scan_of: impl FnOnce(TreeId) -> ScanMachine) -> Option<&mut ScanMachine> {
        if self.order.is_some() {
            return if self.is_moving { self.scan() } else { None };
        }
        if self.first.is_none() {
            self.first = self.trees.next().map(|tree| Box::new(scan_of(tree)));
        }
        if self.first.is_none() {
            let mut order = LoserTree::new(self.scans.len(), self.direction);
            order.rebuild(|number| self.scans[number].as_deref().map(ScanMachine::key));
            self.order = Some(order);
        }
        self.first.as_deref_mut()
    }

    /// Notes that the due scan was moved, to an item or to its end.
    pub(crate) fn moved(&mut self, has_item: bool) {
        let Merged { first, scans, order, is_moving, .. } = self;
        let Some(order) = order else {
            let first = first.take().expect("it was due");
            scans.extend(has_item.then_some(Some(first)));
            return;
        };
        let winner = order.winner().expect("it was due");
        if !has_item {
            scans[winner] = None;
        }
        order.update(|number| scans[number].as_deref().map(ScanMachine::key));
        *is_moving = false;
    }

    /// The scan of the current item; `None` past the last one.
    pub(crate) fn scan(&mut self) -> Option<&mut ScanMachine> {
        let winner = self.order.as_ref()?.winner()?;
        self.scans[winner].as_deref_mut()
    }

    /// Key and value of the current item.
    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        let scan = self.scans[self.order.as_ref()?.winner()?].as_deref()?;
        Some((scan.key(), scan.value()))
    }
}
