//! Deleted keys that a scan passes in a row: what it tells the gaps of them, and where gaps let it go on. The
//! scan's alone.

use std::ops::Bound;

use crate::base::step::Direction;
use crate::levels::gaps::{End, Gaps, Span, after, end_of, first_from};
use crate::merge::{Covers, LoserTree};

use super::Scan;
use super::range::Range;
use super::source::key_of;

/// So many deleted keys in a row are worth a gap.
const GAP_KEYS: u32 = 64;
/// After so many of them, gaps are looked into.
const LOOK_KEYS: u32 = 32;

/// What was passed since the last item.
#[derive(Default)]
pub(super) struct Passed {
    /// Keys since then, or since a gap was skipped.
    keys: u32,
    has_skipped: bool,
    /// They are the first or the last of the tree: who takes items from there comes again.
    is_at_end: bool,
    /// Of all looks for an item.
    #[cfg(test)]
    pub(super) keys_in_all: u64,
    /// Where the first of it was looked for: the first key that may be there, or backward the first that may
    /// not.
    edge: Option<End>,
}

impl Passed {
    /// An item is looked for.
    #[inline]
    pub(super) fn begin(&mut self) {
        (self.keys, self.has_skipped, self.is_at_end) = (0, false, false);
    }

    fn is_fresh(&self) -> bool {
        self.keys == 0 && !self.has_skipped
    }

    /// Whether gaps should know of it.
    fn is_news(&self) -> bool {
        self.keys >= GAP_KEYS || (self.has_skipped || self.is_at_end) && self.keys > 0
    }

    fn set_edge(&mut self, from: Bound<&[u8]>, direction: Direction) {
        self.edge = Some(match direction {
            Direction::Forward => End::Before(first_from(from)),
            Direction::Backward => end_of(from),
        });
    }

    /// What lies between the edge and the item that was found, or the end of the range.
    fn span(&mut self, found: Option<&[u8]>, range: &Range, direction: Direction) -> Option<Span> {
        let edge = self.edge.take()?;
        match (direction, edge) {
            (Direction::Forward, End::Before(from)) => {
                let end = || end_of(range.1.as_ref().map(Vec::as_slice));
                Some(Span { from, to: found.map_or_else(end, |key| End::Before(key.to_vec())) })
            }
            (Direction::Forward, End::OfTree) => None,
            (Direction::Backward, to) => {
                let begin = || first_from(range.0.as_ref().map(Vec::as_slice));
                Some(Span { from: found.map_or_else(begin, after), to })
            }
        }
    }
}

impl Scan {
    /// Goes past a gap that it is to begin in.
    #[cold]
    pub(super) fn skip_at_start(&mut self, gaps: &Gaps) {
        let from = self.from.as_ref().map(Vec::as_slice);
        if let Some(beyond) = gaps.beyond(self.sight, from, self.direction) {
            self.passed.set_edge(from, self.direction);
            self.skip(beyond);
        }
    }

    /// It stands at a deleted key: counts it, and goes past a gap if it is in one; `false` if it is to leave
    /// the key by itself.
    pub(super) fn pass_deleted(&mut self, gaps: &Gaps) -> bool {
        let winner = self.winner.expect("it stands at a key");
        let key = key_of(&self.sources[winner]).expect("the winner stands at an item");
        if self.passed.is_fresh() {
            // From where it began to look, if that is where it is.
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

    /// Deleted keys that it has passed one by one.
    #[cfg(test)]
    pub(crate) fn keys_passed(&self) -> u64 {
        self.passed.keys_in_all
    }

    /// An item was found, or the end: what was passed before it is a gap.
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
                // What was left last stays: it may have to go on from there in another view.
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
