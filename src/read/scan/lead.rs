//! The lead of the winning source: items of its block that precede the current items of all other sources.
//! One check saves a match for each of them. Plain values; the scan's alone.

use crate::base::step::Direction;
use crate::merge::LoserTree;

use super::range::{ScanRange, is_past};
use super::source::RunSource;

/// Consecutive items of one source before its lead is checked.
const WINS_MIN: usize = 4;
/// Number of items that one check looks ahead.
const LOOK_ITEMS: usize = 8;

#[derive(Default)]
pub(super) struct Lead {
    /// Items behind the current one, in its block, that come next.
    items: usize,
    /// Consecutive matches that the same source has won.
    wins: usize,
    /// The key compared last: kept for its memory.
    key: Vec<u8>,
}

impl Lead {
    /// Whether the next item of the winner's block comes next.
    #[inline]
    pub(super) fn is_ahead(&self) -> bool {
        self.items > 0
    }

    /// As `is_ahead`; the item is counted as taken.
    #[inline]
    pub(super) fn take(&mut self) -> bool {
        let is_ahead = self.is_ahead();
        self.items -= usize::from(is_ahead);
        is_ahead
    }

    /// Ends the lead: the next item is found by a match of all sources.
    pub(super) fn end(&mut self) {
        self.items = 0;
    }

    /// After a match: whether the same source has won often enough in turn.
    #[inline]
    pub(super) fn note(&mut self, is_same: bool) -> bool {
        self.wins = if is_same { self.wins + 1 } else { 0 };
        self.wins >= WINS_MIN
    }

    /// Checks the lead of the winner, which stands at an item.
    pub(super) fn look(
        &mut self,
        run: &RunSource,
        merge: &LoserTree,
        range: &ScanRange,
        direction: Direction,
    ) {
        let cursor = run.cursor.as_ref().expect("the winner stands at an item");
        let items = cursor.items_left().min(LOOK_ITEMS);
        if items == 0 {
            return;
        }
        self.wins = 0;
        if !cursor.is_all_puts() {
            return;
        }
        cursor.look_ahead(items, &mut self.key);
        if merge.leads(&self.key) && !is_past(&self.key, range, direction) {
            (self.items, self.wins) = (items, WINS_MIN);
        }
    }
}
