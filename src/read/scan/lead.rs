//! How far the source that is ahead stays ahead: items of its block that come next whatever the others have.
//! One look saves as many matches. Plain values; the scan's alone.

use crate::base::step::Direction;
use crate::merge::LoserTree;

use super::range::{Range, is_past};
use super::source::RunSource;

/// So many items of one source came before it is looked how far it is ahead.
const WINS_MIN: usize = 4;
/// It is looked so many items on.
const LOOK_ITEMS: usize = 8;

#[derive(Default)]
pub(super) struct Lead {
    /// Items behind the current one, in its block, that come next.
    items: usize,
    /// Matches in turn after which the same source was ahead.
    wins: usize,
    /// The key that was looked at: kept for its memory.
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

    /// The next item is looked for among all sources.
    pub(super) fn end(&mut self) {
        self.items = 0;
    }

    /// After a match: whether the same source won again, and often enough.
    #[inline]
    pub(super) fn note(&mut self, is_same: bool) -> bool {
        self.wins = if is_same { self.wins + 1 } else { 0 };
        self.wins >= WINS_MIN
    }

    /// Looks how far the winner, which stands at an item, is ahead.
    pub(super) fn look(&mut self, run: &RunSource, merge: &LoserTree, range: &Range, direction: Direction) {
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
