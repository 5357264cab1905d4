//! One end of a range, or a cursor: first the items of a batch that is read in one step, then the items of a
//! scan. A [`Side`] holds no point and no range; iterators and cursors pass both at each step. One thread at
//! a time.

use std::ops::Bound;

use crate::base::error::Result;
use crate::base::reserve::Grant;
use crate::base::step::Direction;
use crate::read::scan::{self, BatchExtent, BatchRequest, ITEMS_MAX, ItemBatch, ScanMachine};

use super::handle::Handle;
use super::merging::Merging;
use super::walk::{RangeArgs, Walk};

/// Items of a range in one direction.
pub(super) struct Side {
    pub(super) direction: Direction,
    /// The bound where the side begins.
    pub(super) start: Bound<Vec<u8>>,
    walk: Walk,
    pub(super) batch: ItemBatch,
    /// How far the batch reaches, and its number of items; `None` if no batch was read.
    filled: Option<(BatchExtent, usize)>,
    /// The index of the current item in the batch.
    at: Option<usize>,
    /// Memory of the batch.
    grant: Option<Grant>,
    /// A scan, made when the batch does not suffice.
    scan: Option<Box<ScanMachine>>,
    /// The scan has taken over where the batch ended.
    is_scanning: bool,
    /// Replaces the scan where partitions are not in key order.
    merged: Option<Box<Merging>>,
    /// The caller is expected to read more items than a batch has, so no batch is read.
    is_long: bool,
    /// Items returned since the side began.
    taken: usize,
}

impl Side {
    /// A new side. `is_long`: the caller is expected to read more items than a batch has, so a scan reads
    /// them from the first item on.
    pub(super) fn new(direction: Direction, is_long: bool) -> Side {
        Side {
            direction,
            start: Bound::Unbounded,
            walk: Walk::default(),
            batch: ItemBatch::default(),
            filled: None,
            at: None,
            grant: None,
            scan: None,
            is_scanning: false,
            merged: None,
            is_long,
            taken: 0,
        }
    }

    /// Restarts before the first item from `start` on.
    pub(super) fn restart(&mut self, start: Bound<&[u8]>, direction: Direction) {
        let mut own = match std::mem::replace(&mut self.start, Bound::Unbounded) {
            Bound::Included(own) | Bound::Excluded(own) => own,
            Bound::Unbounded => Vec::new(),
        };
        self.start = start.map(|start| {
            own.clear();
            own.extend_from_slice(start);
            own
        });
        self.begin(direction);
    }

    /// Restarts in the given direction from the start bound, excluding its key.
    pub(super) fn turn_at_start(&mut self, direction: Direction) {
        let start = std::mem::replace(&mut self.start, Bound::Unbounded);
        self.start = match start {
            Bound::Included(start) | Bound::Excluded(start) => Bound::Excluded(start),
            Bound::Unbounded => Bound::Unbounded,
        };
        self.begin(direction);
    }

    /// Positions a new side behind a key of the named partition or, if there is no such partition, at the
    /// beginning of the next one.
    pub(super) fn begin_behind(&mut self, of: &RangeArgs<'_>, (name, key): (&[u8], &[u8])) {
        let is_there = !of.keyspace.is_divided_by_keys() || self.walk.begin_in(of, name);
        self.start = if is_there { Bound::Excluded(key.to_vec()) } else { Bound::Unbounded };
    }

    /// The name of the current partition; empty if keys do not divide the keyspace.
    pub(super) fn partition_name(&self) -> &[u8] {
        self.walk.partition_name()
    }

    fn begin(&mut self, direction: Direction) {
        if self.taken > 0 {
            self.is_long = self.was_long();
        }
        self.direction = direction;
        if self.walk.restart() {
            self.scan = None;
        }
        self.merged = None;
        self.batch.clear();
        (self.filled, self.at, self.is_scanning, self.taken) = (None, None, false, 0);
    }

    /// Whether a batch was useless: more items were taken than a batch has, or there were items and the batch
    /// has none.
    pub(super) fn was_long(&self) -> bool {
        self.taken > ITEMS_MAX || self.filled == Some((BatchExtent::Left, 0))
    }

    pub(super) fn has_begun(&self) -> bool {
        self.taken > 0
    }

    /// Reserves memory for a batch. `false` if no batch is to be read or memory is short.
    pub(super) fn prepare_batch(&mut self, handle: &Handle) -> bool {
        if self.is_long {
            return false;
        }
        if self.grant.is_none() {
            self.grant = handle.grant_batch();
        }
        if self.grant.is_some() {
            self.batch.begin();
        }
        self.grant.is_some()
    }

    /// Records that the first items were read into the batch.
    pub(super) fn set_filled(&mut self, filled: BatchExtent) {
        self.filled = Some((filled, self.batch.count()));
    }

    /// Moves to the next item; `false` at the end.
    #[inline]
    pub(super) fn advance(&mut self, of: &RangeArgs<'_>) -> Result<bool> {
        Ok(self.advance_in_tree(of)? || self.advance_to_tree(of)?)
    }

    /// As `advance`, in the following trees.
    #[inline(never)]
    fn advance_to_tree(&mut self, of: &RangeArgs<'_>) -> Result<bool> {
        while self.walk.go_on(of, self.direction) {
            // The whole tree lies beyond the start bound.
            (self.start, self.scan) = (Bound::Unbounded, None);
            self.batch.clear();
            (self.filled, self.at, self.is_scanning) = (None, None, false);
            if self.advance_in_tree(of)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline]
    fn advance_in_tree(&mut self, of: &RangeArgs<'_>) -> Result<bool> {
        let moved = match &mut self.scan {
            Some(scan) if self.is_scanning => of.handle.advance(of.point, scan)?,
            _ => {
                self.at = self.batch.take_first();
                self.at.is_some() || self.advance_beyond(of)?
            }
        };
        self.taken += usize::from(moved);
        Ok(moved)
    }

    /// As `advance`, when the batch was not read yet or is used up.
    #[inline(never)]
    fn advance_beyond(&mut self, of: &RangeArgs<'_>) -> Result<bool> {
        let is_scattered = of.keyspace.is_scattered();
        if self.filled.is_none() && !is_scattered && self.prepare_batch(of.handle) {
            self.fill(of);
            self.at = self.batch.take_first();
            if self.at.is_some() {
                return Ok(true);
            }
        }
        if matches!(self.filled, Some((BatchExtent::ToEnd, _))) {
            return Ok(false);
        }
        if is_scattered {
            return self.advance_merged(of);
        }
        self.begin_scan(of);
        of.handle.advance(of.point, self.scan.as_mut().expect("it was begun"))
    }

    /// Reads the first items into the batch, in one step.
    fn fill(&mut self, of: &RangeArgs<'_>) {
        let Side { batch, start, direction, walk, .. } = self;
        let (range, direction) = (of.range, *direction);
        let start = start.as_ref().map(Vec::as_slice);
        let from = scan::tighter(start, range, direction);
        let sight = of.point.sight(walk.tree(of, (start, direction)));
        let wanted = BatchRequest { sight, range, direction, from, items_max: ITEMS_MAX };
        let filled = of.handle.fill(of.point, &wanted, batch);
        self.set_filled(filled);
    }

    fn begin_scan(&mut self, of: &RangeArgs<'_>) {
        let start = self.start.as_ref().map(Vec::as_slice);
        let sight = of.point.sight(self.walk.tree(of, (start, self.direction)));
        let scan = self
            .scan
            .get_or_insert_with(|| Box::new(ScanMachine::new(sight, of.range.clone(), self.direction)));
        let from = match self.batch.last_key() {
            Some(key) => Bound::Excluded(key),
            None => self.start.as_ref().map(Vec::as_slice),
        };
        scan.seek(from, self.direction);
        (self.is_scanning, self.at) = (true, None);
        (self.batch, self.grant) = (ItemBatch::default(), None);
    }

    /// As `advance`, when the next item may be in any partition.
    fn advance_merged(&mut self, of: &RangeArgs<'_>) -> Result<bool> {
        if self.merged.is_none() {
            let from = match self.batch.last_key() {
                Some(key) => Bound::Excluded(key.to_vec()),
                None => self.start.clone(),
            };
            self.merged = Some(Box::new(Merging::begin(of, from, self.direction)?));
            (self.at, self.batch, self.grant) = (None, ItemBatch::default(), None);
        }
        self.merged.as_mut().expect("made above").advance(of)
    }

    /// Key and value of the current item.
    #[inline]
    pub(super) fn item(&self) -> (&[u8], &[u8]) {
        match (self.at, &self.scan) {
            (Some(number), _) => self.batch.item(number),
            (None, Some(scan)) => (scan.key(), scan.value()),
            (None, None) => {
                let merged = self.merged.as_ref().and_then(|merged| merged.item());
                merged.expect("it stands at an item")
            }
        }
    }

    /// The next item from either end of a batch that has all items.
    pub(super) fn take_read(&mut self, direction: Direction) -> Option<(&[u8], &[u8])> {
        let is_own = direction == self.direction;
        let number = if is_own { self.batch.take_first() } else { self.batch.take_last() }?;
        self.taken += usize::from(is_own);
        Some(self.batch.item(number))
    }

    /// Releases the value: the item was copied.
    pub(super) fn forget_value(&mut self) {
        if let Some(scan) = self.scan.as_mut().filter(|_| self.is_scanning) {
            scan.forget_value();
        } else if let Some(merged) = &mut self.merged {
            merged.forget_value();
        }
    }

    /// The key of the last item; `None` before the first.
    pub(super) fn last(&self) -> Option<&[u8]> {
        match (self.at, &self.scan) {
            (Some(number), _) => Some(self.batch.item(number).0),
            (None, Some(scan)) if self.is_scanning => Some(scan.key()),
            _ => self.merged.as_ref()?.item().map(|(key, _)| key),
        }
    }

    /// In a forked process, leaks the references to the store.
    pub(super) fn leave(&mut self) {
        std::mem::forget((self.scan.take(), self.merged.take(), self.grant.take()));
    }
}
