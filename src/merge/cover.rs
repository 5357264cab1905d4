//! What range tombstones hide from a merge, in either direction.
//!
//! Sources stand newest first. A range tombstone of a source hides what every older one has of its keys. In
//! its own source it hides what has a lower sequence: in a memtable, that is; tables hold no item that a
//! range of theirs hides, and no sequences, so a table's ranges have sequence 0 and its items the greatest.
//!
//! For each source with range tombstones it keeps the stretch of keys around the merge's place over which the
//! source says the same, and asks for another one only when the merge has left it: where nothing is deleted
//! in ranges that is nothing, and elsewhere a comparison an item for each such source. What is hidden by a
//! newer source is left in one step: whoever merges seeks the hidden source to the end of the stretch.
//!
//! Called by [`super::Merge`] and by scans. A plain value of one thread.
//!
//! Invariant: a stretch that was asked for holds as long as the sources are those it was made for.

use crate::base::id::Sequence;
use crate::base::step::Direction;

/// What a source without sequences says of its items and of its ranges.
pub(crate) const ITEM_SEQUENCE: Sequence = Sequence::MAX;
pub(crate) const RANGE_SEQUENCE: Sequence = 0;

/// Keys of which a source says the same. Filled anew and again, so that nothing is allocated each time.
#[derive(Default, Debug)]
pub(crate) struct Stretch {
    cover: Option<Sequence>,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Stretch {
    /// The keys from `from` to before `to`, which is empty for all from `from` on, are covered by a range
    /// tombstone of that sequence, or by none.
    pub(crate) fn set(&mut self, cover: Option<Sequence>, from: &[u8], to: &[u8]) {
        self.cover = cover;
        self.from.clear();
        self.from.extend_from_slice(from);
        self.to.clear();
        self.to.extend_from_slice(to);
    }

    fn has(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && (self.to.is_empty() || key < self.to.as_slice())
    }

    /// What is behind the stretch in that direction: the first key forward, what comes after the last
    /// backward; `None` if nothing is.
    pub(crate) fn beyond(&self, direction: Direction) -> Option<&[u8]> {
        let edge = match direction {
            Direction::Forward => &self.to,
            Direction::Backward => &self.from,
        };
        (!edge.is_empty()).then_some(edge)
    }
}

/// Why an item is not to be seen.
#[derive(Debug)]
pub(crate) enum Hidden<'c> {
    /// A newer range tombstone of its own source covers it.
    ByOwn,
    /// A newer source covers it and everything in the stretch.
    ByNewer(&'c Stretch),
}

/// Sources with range tombstones, and the stretches around a merge's place.
#[derive(Default, Debug)]
pub(crate) struct Covers {
    /// Newest first.
    sources: Vec<(usize, Stretch)>,
    /// Sources of which the stretch is known, from the first on.
    known_count: usize,
}

impl Covers {
    /// For the sources that have range tombstones, newest first.
    pub(crate) fn new(sources: impl Iterator<Item = usize>) -> Covers {
        Covers { sources: sources.map(|source| (source, Stretch::default())).collect(), known_count: 0 }
    }

    /// Whether nothing is hidden by a range tombstone.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether the item of `key` and that sequence in `source` is hidden. `look` fills in what a source says
    /// of the keys around one.
    pub(crate) fn hidden(
        &mut self,
        key: &[u8],
        source: usize,
        sequence: Sequence,
        mut look: impl FnMut(usize, &[u8], &mut Stretch),
    ) -> Option<Hidden<'_>> {
        for index in 0..self.sources.len() {
            let (of, stretch) = &mut self.sources[index];
            if *of > source {
                return None;
            }
            if index >= self.known_count || !stretch.has(key) {
                look(*of, key, stretch);
                debug_assert!(stretch.has(key), "a stretch is around its key");
                self.known_count = self.known_count.max(index + 1);
            }
            match stretch.cover {
                Some(_) if *of < source => return Some(Hidden::ByNewer(&self.sources[index].1)),
                Some(cover) if *of == source && cover > sequence => return Some(Hidden::ByOwn),
                _ => {}
            }
        }
        None
    }
}
