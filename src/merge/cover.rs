//! The effect of range tombstones on a merge, in either direction.
//!
//! Sources are ordered newest first. A range tombstone of a source hides all items of older sources in its
//! keys. In its own source it hides items with a lower sequence; this happens only in memtables. A table
//! holds no item that its own ranges hide, and no sequences, so its ranges have sequence 0 and its items the
//! greatest sequence.
//!
//! For each source with range tombstones, [`Covers`] caches the stretch of keys around the merge's position
//! over which the source's answer is the same. It asks the source again only when the merge leaves the
//! stretch. So merges without range tombstones pay nothing, and others pay one comparison an item for each
//! such source. Items hidden by a newer source are skipped in one step: the caller seeks the hidden source to
//! the end of the stretch.
//!
//! Called by [`super::Merge`] and by scans. A plain value of one thread.
//!
//! Invariant: a stretch stays valid as long as the sources are those that it was computed for.

use crate::base::id::Sequence;
use crate::base::step::Direction;

/// The sequence numbers of items and of ranges in a source without sequences.
pub(crate) const ITEM_SEQUENCE: Sequence = Sequence::MAX;
pub(crate) const RANGE_SEQUENCE: Sequence = 0;

/// A stretch of keys with one answer of a source. The buffers are reused, so that no update allocates.
#[derive(Default, Debug)]
pub(crate) struct Stretch {
    cover: Option<Sequence>,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Stretch {
    /// Sets the keys from `from` to before `to`; an empty `to` means no end. They are covered by a range
    /// tombstone of sequence `cover`, or by none.
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

    /// The edge of the stretch in that direction: forward, the first key behind it; backward, the exclusive
    /// bound of the keys before it. `None` if no key is beyond.
    pub(crate) fn beyond(&self, direction: Direction) -> Option<&[u8]> {
        let edge = match direction {
            Direction::Forward => &self.to,
            Direction::Backward => &self.from,
        };
        (!edge.is_empty()).then_some(edge)
    }
}

/// The reason why an item is hidden.
#[derive(Debug)]
pub(crate) enum Hidden<'c> {
    /// A newer range tombstone of the item's own source covers it.
    ByOwn,
    /// A newer source covers the item and every key of the stretch.
    ByNewer(&'c Stretch),
}

/// Sources with range tombstones, and the stretches around a merge's position.
#[derive(Default, Debug)]
pub(crate) struct Covers {
    /// Newest first.
    sources: Vec<(usize, Stretch)>,
    /// The number of sources, from the first on, with a known stretch.
    known_count: usize,
}

impl Covers {
    /// Covers of the sources that have range tombstones, newest first.
    pub(crate) fn new(sources: impl Iterator<Item = usize>) -> Covers {
        Covers { sources: sources.map(|source| (source, Stretch::default())).collect(), known_count: 0 }
    }

    /// Whether no source has range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether the item of `key` with that sequence in `source` is hidden. `look` fills in the stretch of a
    /// source around a key.
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
