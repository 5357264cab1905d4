//! Ranges of a keyspace whose partitions do not lie in the order of their keys: the merge of a scan of each.

use std::ops::Bound;
use std::task::{Context, Poll};

use crate::base::error::Result;
use crate::base::id::TreeId;
use crate::base::reserve::Grant;
use crate::base::step::Direction;
use crate::engine::reads::later::Asks;
use crate::read::scan::{Merged, Scan};

use super::walk::Reading;

/// See the module.
pub(super) struct Merging {
    merged: Merged,
    start: Bound<Vec<u8>>,
    direction: Direction,
    /// For the scans.
    _grant: Grant,
    /// Of the scan that is moved by a future, and whether it is under way.
    asks: Asks,
    is_moving: bool,
    /// A step of a future is under way.
    is_stepping: bool,
}

impl Merging {
    /// Before the first item from `start` on.
    ///
    /// # Errors
    /// `Memory` if there is no room for so many scans.
    pub(super) fn begin(of: &Reading<'_>, start: Bound<Vec<u8>>, direction: Direction) -> Result<Merging> {
        let trees = of.keyspace.trees_in(&of.handle.view_of(of.point).version, (&[], &[]));
        let grant = of.handle.grant_scans(trees.len() as u64 * Merged::TREE_BYTES)?;
        let merged = Merged::new(trees, direction);
        let asks = Asks::default();
        Ok(Merging { merged, start, direction, _grant: grant, asks, is_moving: false, is_stepping: false })
    }

    /// Goes to the next item; `false` at the end.
    pub(super) fn advance(&mut self, of: &Reading<'_>) -> Result<bool> {
        let Merging { merged, start, direction, .. } = self;
        merged.step();
        while let Some(scan) = merged.due(|tree| scan_of(of, tree, start, *direction)) {
            let has_item = of.handle.advance(of.point, scan)?;
            merged.moved(has_item);
        }
        Ok(merged.scan().is_some())
    }

    /// The same without a wait.
    pub(super) fn poll_advance(&mut self, of: &Reading<'_>, context: &mut Context<'_>) -> Poll<Result<bool>> {
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

    /// Key and value of the item it stands at.
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.merged.item()
    }

    /// The item was copied.
    pub(super) fn forget_value(&mut self) {
        self.merged.scan().into_iter().for_each(Scan::forget_value);
    }

    /// A turn of the device that is not taken is another's.
    pub(super) fn step_aside(&mut self) {
        self.asks.step_aside();
    }
}

fn scan_of(of: &Reading<'_>, tree: TreeId, start: &Bound<Vec<u8>>, direction: Direction) -> Scan {
    let mut scan = Scan::new(of.point.sight(tree), of.range.clone(), direction);
    scan.seek(start.as_ref().map(Vec::as_slice), direction);
    scan
}
