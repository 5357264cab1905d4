//! Ranges over a keyspace whose partitions are not in key order: a merge of one scan per partition.

use std::ops::Bound;
use std::task::{Context, Poll};

use crate::base::error::Result;
use crate::base::id::TreeId;
use crate::base::reserve::Grant;
use crate::base::step::Direction;
use crate::engine::reads::later::Asks;
use crate::read::scan::{Merged, ScanMachine};

use super::walk::RangeArgs;

/// A merge of scans; see the module.
pub(super) struct Merging {
    merged: Merged,
    start: Bound<Vec<u8>>,
    direction: Direction,
    /// Memory of the scans.
    _grant: Grant,
    /// Reads of the scan that a future moves, and whether that scan is being moved.
    asks: Asks,
    is_moving: bool,
    /// A step of a future has begun and not ended.
    is_stepping: bool,
}

impl Merging {
    /// A merge positioned before the first item from `start` on.
    ///
    /// # Errors
    /// `Memory` if the budget has no room for the scans.
    pub(super) fn begin(of: &RangeArgs<'_>, start: Bound<Vec<u8>>, direction: Direction) -> Result<Merging> {
        let trees = of.keyspace.trees_in(&of.handle.view_of(of.point).version, (&[], &[]));
        let grant = of.handle.grant_scans(trees.len() as u64 * Merged::TREE_BYTES)?;
        let merged = Merged::new(trees, direction);
        let asks = Asks::default();
        Ok(Merging { merged, start, direction, _grant: grant, asks, is_moving: false, is_stepping: false })
    }

    /// Moves to the next item; `false` at the end.
    pub(super) fn advance(&mut self, of: &RangeArgs<'_>) -> Result<bool> {
        let Merging { merged, start, direction, .. } = self;
        merged.step();
        while let Some(scan) = merged.due(|tree| scan_of(of, tree, start, *direction)) {
            let has_item = of.handle.advance(of.point, scan)?;
            merged.moved(has_item);
        }
        Ok(merged.scan().is_some())
    }

    /// As `advance`, without blocking.
    pub(super) fn poll_advance(
        &mut self,
        of: &RangeArgs<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool>> {
        let Merging { merged, start, direction, asks, is_moving, is_stepping, .. } = self;
        if !std::mem::replace(is_stepping, true) {
            merged.step();
        }
        while let Some(scan) = merged.due(|tree| scan_of(of, tree, start, *direction)) {
            let has_item =
                std::task::ready!(of.handle.poll_advance(of.point, (scan, asks, is_moving), context))?;
            merged.moved(has_item);
        }
        *is_stepping = false;
        Poll::Ready(Ok(merged.scan().is_some()))
    }

    /// Key and value of the current item.
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.merged.item()
    }

    /// Releases the value: the item was copied.
    pub(super) fn forget_value(&mut self) {
        self.merged.scan().into_iter().for_each(ScanMachine::forget_value);
    }

    /// Gives up the place in the read queue until the next poll.
    pub(super) fn step_aside(&mut self) {
        self.asks.step_aside();
    }
}

fn scan_of(of: &RangeArgs<'_>, tree: TreeId, start: &Bound<Vec<u8>>, direction: Direction) -> ScanMachine {
    let mut scan = ScanMachine::new(of.point.sight(tree), of.range.clone(), direction);
    scan.seek(start.as_ref().map(Vec::as_slice), direction);
    scan
}
