//! Tombstones that a scan passes in a row. Long rows are reported as gaps (cached empty key ranges), and
//! known gaps are skipped. The scan's alone.

use std::ops::Bound;

use crate::base::step::Direction;
use crate::levels::gaps::{GapEnd, Gaps, KeySpan, after, end_of, first_from};
use crate::merge::{Covers, LoserTree};

use super::ScanMachine;
use super::range::ScanRange;
use super::source::key_of;

/// Least number of deleted keys in a row for a gap.
const GAP_KEYS: u32 = 64;
/// Gaps are searched once in this many deleted keys.
const LOOK_KEYS: u32 = 32;

/// The deleted keys passed since the last item.
#[derive(Default)]
pub(super) struct Passed {
    /// Keys passed since the last item, or since a gap was skipped.
    keys: u32,
    has_skipped: bool,
    /// The keys are the first or the last of the tree: consumers that take items from that end will pass them
    /// again.
    is_at_end: bool,
    /// Keys of all searches for an item.
    #[cfg(test)]
    pub(super) keys_in_all: u64,
    /// The start of the search: forward the first key that the gap may contain, backward the first key behind
    /// it.
    edge: Option<GapEnd>,
}

impl Passed {
    /// A search for an item begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        (self.keys, self.has_skipped, self.is_at_end) = (0, false, false);
    }

    fn is_fresh(&self) -> bool {
        self.keys == 0 && !self.has_skipped
    }

    /// Whether the passed keys should be reported as a gap.
    fn is_news(&self) -> bool {
        self.keys >= GAP_KEYS || (self.has_skipped || self.is_at_end) && self.keys > 0
    }

    fn set_edge(&mut self, from: Bound<&[u8]>, direction: Direction) {
        self.edge = Some(match direction {
            Direction::Forward => GapEnd::Before(first_from(from)),
            Direction::Backward => end_of(from),
        });
    }

    /// The range between the start of the search and the item found, or the end of the range.
    fn span(&mut self, found: Option<&[u8]>, range: &ScanRange, direction: Direction) -> Option<KeySpan> {
        let edge = self.edge.take()?;
        match (direction, edge) {
            (Direction::Forward, GapEnd::Before(from)) => {
                let end = || end_of(range.1.as_ref().map(Vec::as_slice));
                Some(KeySpan { from, to: found.map_or_else(end, |key| GapEnd::Before(key.to_vec())) })
            }
            (Direction::Forward, GapEnd::OfTree) => None,
            (Direction::Backward, to) => {
                let begin = || first_from(range.0.as_ref().map(Vec::as_slice));
                Some(KeySpan { from: found.map_or_else(begin, after), to })
            }
        }
    }
}

impl ScanMachine {
    /// If the scan starts in a gap, skips the gap.
    #[cold]
    pub(super) fn skip_at_start(&mut self, gaps: &Gaps) {
        let from = self.from.as_ref().map(Vec::as_slice);
        if let Some(beyond) = gaps.beyond(self.sight, from, self.direction) {
            self.passed.set_edge(from, self.direction);
            self.skip(beyond);
        }
    }

    /// Counts the deleted key at which the scan stands, and skips a gap around it. Returns `false` if the
    /// scan has to leave the key itself.
    pub(super) fn pass_deleted(&mut self, gaps: &Gaps) -> bool {
        let winner = self.winner.expect("it stands at a key");
        let key = key_of(&self.sources[winner]).expect("the winner stands at an item");
        if self.passed.is_fresh() {
            // The start of the search, if the scan is still there.
            let from =
                if self.has_key { Bound::Included(key) } else { self.from.as_ref().map(Vec::as_slice) };
            self.passed.set_edge(from, self.direction);
            self.passed.is_at_end = !self.has_key && self.from == Bound::Unbounded;
        }
        self.passed.keys += 1;
        #[cfg(test)]
        {
            self.passed.keys_in_all += 1;
        }
        if !self.passed.keys.is_multiple_of(LOOK_KEYS) || !gaps.is_any(self.sight.tree) {
            return false;
        }
        let beyond = gaps.beyond(self.sight, Bound::Included(key), self.direction);
        beyond.map(|beyond| self.skip(beyond)).is_some()
    }

    /// Number of deleted keys passed one by one.
    #[cfg(test)]
    pub(crate) fn keys_passed(&self) -> u64 {
        self.passed.keys_in_all
    }

    /// At an item or the end: reports the keys passed before it as a gap.
    #[inline]
    pub(super) fn learn_gap(&mut self, gaps: &Gaps) {
        if self.passed.is_news() {
            let found = self.winner.and_then(|winner| key_of(&self.sources[winner]));
            if let Some(span) = self.passed.span(found, &self.range, self.direction) {
                gaps.learn(self.sight, span);
            }
        }
    }

    fn skip(&mut self, beyond: Option<Bound<Vec<u8>>>) {
        (self.passed.keys, self.passed.has_skipped) = (0, true);
        match beyond {
            Some(from) => self.position_from(from.as_ref().map(Vec::as_slice)),
            None => {
                // `key` stays: in another view the scan may have to go on from there.
                self.winner = None;
                self.sources.clear();
                self.unready.clear();
                self.merge = LoserTree::new(0, self.direction);
                self.covers = Covers::default();
                (self.is_touched, self.is_merged) = (true, true);
            }
        }
    }
}
