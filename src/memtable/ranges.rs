//! The range tombstones of a generation. Each deletes all older versions of the keys in a range.
//!
//! It is not the ordered index: points and range tombstones meet only when they are read, by their sequences.
//! The inserter adds tombstones, any thread queries, without a lock; published data is never changed or
//! moved.
//!
//! The tombstones stand in a list in the order of their sequences, numbered from 1. Let 4^level be the
//! largest power of four that divides a number `p`. If level > 0, tombstone `p` has a run: an index over the
//! last 4^level tombstones up to `p`. It paints them over each other, oldest first, so that it gives for
//! every key the newest of them that covers the key. So the first `m` tombstones, for any `m`, are at most
//! three runs of each level and three single ones: the digits of `m` in base four. A reader with an older
//! bound has the same cost as one with the newest. Building a run merges the runs that it consists of. Every
//! tombstone is painted over about three times a level (the binary counter of J. Bentley and J. Saxe,
//! "Decomposable Searching Problems", 1980, in base four).
//!
//! ```text
//! offset size type name: meaning                     (in the arena)
//! record, of the list:
//!      0    8 u64  entry << 32 | run: offsets of the tombstone and of the run that ends with it, or 0
//! run, with room for two boundaries a tombstone:
//!      0    8 u64  skip << 32 | count of boundaries
//!      8 8 * n     boundaries, ascending; u64 each: place << 32 | cover: from this key on the newest
//!                  tombstone is `cover`, or none if it is 0
//!        4 * n     heads; u32 of each boundary: the bytes of its tree's id and key behind the first `skip`,
//!                  which all have in common
//! ```
//! A search goes through the heads, which are contiguous, and reads only the keys of boundaries with equal
//! heads.
//!
//! A place is the offset of a tombstone's entry for its start, plus 1 for its end. The entry's key is the
//! start; its value is the tree's id (8 bytes, big-endian) and the end, empty if unbounded.
//!
//! Invariants:
//! 1. Record, run and entry are written before the count that includes them is stored, with release.
//! 2. Sequences ascend in the list, so the tombstones within a bound are a prefix of it.
//! 3. Runs and list take at most [`RANGE_BYTES`] a tombstone, counted from the first on. The part not taken
//!    yet is reserved for later runs ([`RangeList::owed_bytes`]).

use std::cmp::Ordering as Order;

use crate::base::id::{ItemKind, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::key::common_prefix;
use crate::base::sync::{AtomicU32, AtomicU64, Ordering};

use super::arena::{Arena, ArenaEntry, Bump, LINE_BYTES, Offset};

/// Records of the first chunk of the list; each later chunk has as many as all before it.
const FIRST_RECORDS: u32 = 8;
const FIRST_CHUNK_BYTES: usize = FIRST_RECORDS as usize * 8;
/// Enough for all tombstones that fit the largest region: each takes over a hundred bytes.
const CHUNKS_COUNT: usize = 20;
/// Bytes of the tree's id in an entry.
const TREE_BYTES: usize = 8;
/// Most levels of runs: beyond 4^8 tombstones there are more runs of the last level.
const LEVELS_COUNT_MAX: u32 = 8;
/// Most bytes that a tombstone takes besides its entry. Two records, since chunks double. 18 bytes a level: a
/// run over 4^n tombstones has 2 * 4^n boundaries of 12 bytes, and three of four multiples of 4^n have such a
/// run. 6 more for the last level, where all have one. 16 for headers and for rounding runs up to lines of 64
/// bytes.
pub(super) const RANGE_BYTES: usize = 2 * 8 + LEVELS_COUNT_MAX as usize * 18 + 6 + 16;
/// Further bytes of a tombstone's entry, besides start, end and those of every entry.
pub(super) const RANGE_ENTRY_BYTES: usize = TREE_BYTES;

/// A range of keys with the same newest range tombstone in a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemStretch<'a> {
    /// The newest range tombstone that covers these keys.
    pub(crate) cover: Option<Sequence>,
    /// The first of the keys.
    pub(crate) from: &'a [u8],
    /// The exclusive upper bound of the keys; empty means none.
    pub(crate) to: &'a [u8],
}

/// The list and its runs.
#[derive(Debug)]
pub(super) struct RangeList {
    count: AtomicU32,
    chunks: [AtomicU32; CHUNKS_COUNT],
}

/// A key of a tree, or (`None`) the end behind all its keys.
type KeyOrEnd<'a> = (u64, Option<&'a [u8]>);

/// One tombstone, or a run.
#[derive(Clone, Copy)]
enum TombstoneOrRun {
    One(Offset),
    Run { at: Offset, level: u32 },
}

impl RangeList {
    /// Takes the first chunk from the arena.
    pub(super) fn new(bump: &mut Bump) -> RangeList {
        let chunks = std::array::from_fn(|_| AtomicU32::new(0));
        let ranges = RangeList { count: AtomicU32::new(0), chunks };
        ranges.chunks[0].store(bump.words(FIRST_CHUNK_BYTES), Ordering::Relaxed);
        ranges
    }

    /// Bytes that an empty list takes.
    pub(super) const fn new_bytes() -> usize {
        FIRST_CHUNK_BYTES
    }

    /// The number of tombstones. One load.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The number of tombstones with a sequence of at most `bound`.
    pub(super) fn count_within(&self, arena: &Arena, bound: Sequence) -> u32 {
        let count = self.count();
        if count == 0 || self.entry(arena, count - 1).sequence <= bound {
            return count;
        }
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(arena, middle).sequence <= bound {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The newest of the first `count` tombstones that covers the key.
    pub(super) fn newest<'a>(
        &self,
        arena: &'a Arena,
        count: u32,
        tree: TreeId,
        key: &[u8],
    ) -> Option<ArenaEntry<'a>> {
        let place = (id_word(tree), Some(key));
        let mut parts = self.parts(arena, count);
        parts.find_map(|part| {
            let cover = match part {
                TombstoneOrRun::One(_) => part.around(arena, place).0,
                TombstoneOrRun::Run { at, level } => Run::at(arena, at, level).cover(arena, place),
            };
            (cover != 0).then(|| arena.entry(cover))
        })
    }

    /// The stretch around `key` among the first `count` tombstones.
    pub(super) fn stretch<'a>(
        &self,
        arena: &'a Arena,
        count: u32,
        tree: TreeId,
        key: &[u8],
    ) -> MemStretch<'a> {
        let id = id_word(tree);
        let mut stretch = MemStretch { cover: None, from: &[], to: &[] };
        for part in self.parts(arena, count) {
            let (cover, from, to) = part.around(arena, (id, Some(key)));
            if cover != 0 && stretch.cover.is_none() {
                stretch.cover = Some(arena.entry(cover).sequence);
            }
            if let Some((of, Some(from))) = from
                && of == id
            {
                stretch.from = stretch.from.max(from);
            }
            if let Some((of, Some(to))) = to
                && of == id
                && (stretch.to.is_empty() || to < stretch.to)
            {
                stretch.to = to;
            }
        }
        stretch
    }

    /// The trees of the tombstones, in no order, with repetitions.
    pub(super) fn trees(&self, arena: &Arena) -> Vec<TreeId> {
        let words = (0..self.count()).map(|index| tree_word(&self.entry(arena, index)));
        let mut words: Vec<u64> = words.collect();
        words.dedup();
        words.into_iter().map(tree_of).collect()
    }

    /// Every tombstone, with its tree, in the order of their sequences.
    pub(super) fn all<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = (TreeId, Offset)> + 'a {
        (0..self.count()).map(|index| {
            let entry = (self.record(arena, index).load(Ordering::Relaxed) >> 32) as Offset;
            (tree_of(tree_word(&arena.entry(entry))), entry)
        })
    }

    /// Adds a tombstone for the keys from `start` up to, not including, `end`; an empty `end` means no bound.
    /// Only the inserter calls this. Cost: amortised, about three key comparisons for each level.
    ///
    /// # Panics
    /// If there is no room, if the range is empty, or if its sequence is not the greatest.
    pub(super) fn add(
        &self,
        arena: &Arena,
        bump: &mut Bump,
        tree: TreeId,
        (start, end): (&[u8], &[u8]),
        sequence: Sequence,
    ) {
        assert!(end.is_empty() || start < end, "an empty range is not written");
        let count = self.count.load(Ordering::Relaxed);
        if let Some(last) = count.checked_sub(1) {
            assert!(self.entry(arena, last).sequence < sequence, "tombstones come in order");
        }
        let value = [&id_word(tree).to_be_bytes(), end].concat();
        let entry = ArenaEntry { sequence, kind: ItemKind::DeleteRange, older: 0, key: start, value: &value };
        let entry = bump.entry(arena, &entry);
        let (chunk, first) = chunk_of(count);
        if first == count && count > 0 {
            self.chunks[chunk].store(bump.words(first as usize * 8), Ordering::Relaxed);
        }
        let run = match level(count + 1) {
            0 => 0,
            level => self.build(arena, bump, count, entry, level),
        };
        let record = u64::from(entry) << 32 | u64::from(run);
        self.record(arena, count).store(record, Ordering::Relaxed);
        // A reader that sees the count sees the tombstones that it counts.
        self.count.store(count + 1, Ordering::Release);
    }

    /// Bytes of the arena reserved for later runs of the present tombstones.
    pub(super) fn owed_bytes(&self) -> usize {
        let count = self.count.load(Ordering::Relaxed) as usize;
        if count == 0 {
            return 0;
        }
        let chunks = match chunk_of(count as u32 - 1) {
            (0, _) => 0,
            (_, first) => first as usize * 2 * 8 - FIRST_CHUNK_BYTES,
        };
        let of_level = |level: u32| {
            let places = |level: u32| if level > LEVELS_COUNT_MAX { 0 } else { count >> (2 * level) };
            (places(level) - places(level + 1)) * run_bytes(level).next_multiple_of(LINE_BYTES)
        };
        let runs: usize = (1..=LEVELS_COUNT_MAX).map(of_level).sum();
        (count * RANGE_BYTES).checked_sub(chunks + runs).expect("tombstones account for the memory they take")
    }

    /// Builds the run over the last 4^level tombstones, of which `newest`, the one to be added, is the last.
    fn build(&self, arena: &Arena, bump: &mut Bump, count: u32, newest: Offset, level: u32) -> Offset {
        let wanted = 1 << (2 * level);
        let (mut painted, mut tombstones) = (TombstoneOrRun::One(newest).words(arena), 1);
        let mut parts = self.parts(arena, count);
        while tombstones < wanted {
            let part = parts.next().expect("the parts of a run come before it");
            tombstones += part.tombstones();
            painted = paint(arena, &painted, &part.words(arena));
        }
        let at = bump.words(run_bytes(level));
        let place = |boundary: &u64| place_of(arena, (boundary >> 32) as Offset);
        let skip = match painted.as_slice() {
            [first, .., last] => common_bytes(place(first), place(last)),
            _ => 0,
        };
        let run = Run::at(arena, at, level);
        for (boundary, (word, head)) in painted.iter().zip(run.words.iter().zip(run.heads)) {
            word.store(*boundary, Ordering::Relaxed);
            head.store(head_of(place(boundary), skip), Ordering::Relaxed);
        }
        run.header.store((skip as u64) << 32 | painted.len() as u64, Ordering::Relaxed);
        at
    }

    /// The runs and single tombstones that make up the first `count`, newest first.
    fn parts<'a>(&'a self, arena: &'a Arena, mut count: u32) -> impl Iterator<Item = TombstoneOrRun> + 'a {
        std::iter::from_fn(move || {
            let record = self.record(arena, count.checked_sub(1)?).load(Ordering::Relaxed);
            let level = level(count);
            count -= 1 << (2 * level);
            Some(match level {
                0 => TombstoneOrRun::One((record >> 32) as Offset),
                _ => TombstoneOrRun::Run { at: record as Offset, level },
            })
        })
    }

    fn entry<'a>(&self, arena: &'a Arena, index: u32) -> ArenaEntry<'a> {
        let record = self.record(arena, index).load(Ordering::Relaxed);
        arena.entry((record >> 32) as Offset)
    }

    fn record<'a>(&self, arena: &'a Arena, index: u32) -> &'a AtomicU64 {
        let (chunk, first) = chunk_of(index);
        let chunk = self.chunks[chunk].load(Ordering::Relaxed);
        &arena.words(chunk + (index - first) * 8, 1)[0]
    }
}

impl TombstoneOrRun {
    /// The newest tombstone that covers a place, and the boundaries before (or at) and after it.
    fn around<'a>(
        self,
        arena: &'a Arena,
        place: KeyOrEnd<'_>,
    ) -> (Offset, Option<KeyOrEnd<'a>>, Option<KeyOrEnd<'a>>) {
        match self {
            TombstoneOrRun::One(entry) => {
                let (start, end) = (place_of(arena, entry), place_of(arena, entry + 1));
                if compare(place, start).is_lt() {
                    (0, None, Some(start))
                } else if compare(place, end).is_lt() {
                    (entry, Some(start), Some(end))
                } else {
                    (0, Some(end), None)
                }
            }
            TombstoneOrRun::Run { at, level } => Run::at(arena, at, level).around(arena, place),
        }
    }

    /// Its boundaries.
    fn words(self, arena: &Arena) -> Vec<u64> {
        match self {
            TombstoneOrRun::One(entry) => {
                let entry = u64::from(entry);
                vec![entry << 32 | entry, (entry + 1) << 32]
            }
            TombstoneOrRun::Run { at, level } => {
                let run = Run::at(arena, at, level);
                let (_, count) = run.skip_and_count();
                run.words[..count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
            }
        }
    }

    fn tombstones(self) -> usize {
        match self {
            TombstoneOrRun::One(_) => 1,
            TombstoneOrRun::Run { level, .. } => 1 << (2 * level),
        }
    }
}

/// A run in the arena.
struct Run<'a> {
    header: &'a AtomicU64,
    words: &'a [AtomicU64],
    heads: &'a [AtomicU32],
}

impl<'a> Run<'a> {
    fn at(arena: &'a Arena, at: Offset, level: u32) -> Run<'a> {
        let count = boundaries_max(level);
        let heads_at = at + 8 + count as Offset * 8;
        let (words, heads) = (arena.words(at, 1 + count), arena.halves(heads_at, count));
        Run { header: &words[0], words: &words[1..], heads }
    }

    fn skip_and_count(&self) -> (usize, usize) {
        let header = self.header.load(Ordering::Relaxed);
        ((header >> 32) as usize, header as u32 as usize)
    }

    fn around(
        &self,
        arena: &'a Arena,
        place: KeyOrEnd<'_>,
    ) -> (Offset, Option<KeyOrEnd<'a>>, Option<KeyOrEnd<'a>>) {
        let (_, count) = self.skip_and_count();
        let boundary = |index: usize| self.words[index].load(Ordering::Relaxed);
        let place_at = |index: usize| place_of(arena, (boundary(index) >> 32) as Offset);
        let not_after = self.not_after(arena, place);
        let to = (not_after < count).then(|| place_at(not_after));
        match not_after.checked_sub(1) {
            None => (0, None, to),
            Some(before) => (boundary(before) as Offset, Some(place_at(before)), to),
        }
    }

    /// The newest tombstone that covers a place, or 0.
    fn cover(&self, arena: &Arena, place: KeyOrEnd<'_>) -> Offset {
        let before = self.not_after(arena, place).checked_sub(1);
        before.map_or(0, |before| self.words[before].load(Ordering::Relaxed) as Offset)
    }

    /// The number of boundaries at or before a place.
    fn not_after(&self, arena: &Arena, place: KeyOrEnd<'_>) -> usize {
        let (skip, count) = self.skip_and_count();
        let place_at =
            |index: usize| place_of(arena, (self.words[index].load(Ordering::Relaxed) >> 32) as Offset);
        if count == 0 {
            return 0;
        }
        let first = place_at(0);
        if common_bytes(place, first) < skip {
            // Before or behind all of them.
            return if compare(place, first).is_lt() { 0 } else { count };
        }
        let head = head_of(place, skip);
        let heads = &self.heads[..count];
        let low = heads.partition_point(|one| one.load(Ordering::Relaxed) < head);
        let equal = |one: &AtomicU32| one.load(Ordering::Relaxed) == head;
        if !heads.get(low).is_some_and(equal) {
            return low;
        }
        let (mut low, mut high) = (low, low + heads[low..].partition_point(equal));
        while low < high {
            let middle = low + (high - low) / 2;
            if compare(place_at(middle), place).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Paints the boundaries of a newer part over those of an older one.
fn paint(arena: &Arena, newer: &[u64], older: &[u64]) -> Vec<u64> {
    let mut painted = Vec::with_capacity(newer.len() + older.len());
    let (mut above, mut below) = (newer.iter().copied().peekable(), older.iter().copied().peekable());
    let (mut cover_above, mut cover_below, mut cover) = (0, 0, 0);
    loop {
        let order = match (above.peek(), below.peek()) {
            (Some(one), Some(other)) => {
                compare(place_of(arena, (one >> 32) as Offset), place_of(arena, (other >> 32) as Offset))
            }
            (Some(_), None) => Order::Less,
            (None, Some(_)) => Order::Greater,
            (None, None) => return painted,
        };
        let mut place = 0;
        if order.is_ge() {
            let word = below.next().expect("peeked");
            (place, cover_below) = (word >> 32, word as Offset);
        }
        if order.is_le() {
            let word = above.next().expect("peeked");
            (place, cover_above) = (word >> 32, word as Offset);
        }
        let next = if cover_above != 0 { cover_above } else { cover_below };
        if next != cover {
            cover = next;
            painted.push(place << 32 | u64::from(cover));
        }
    }
}

/// The first key that a tombstone deletes, and its exclusive upper bound; empty means none.
pub(super) fn keys(tombstone: ArenaEntry<'_>) -> (&[u8], &[u8]) {
    (tombstone.key, &tombstone.value[TREE_BYTES..])
}

/// The level of the run of a tombstone: the largest `n` for which 4^n divides its number, which is not 0; at
/// most the last level.
#[inline]
fn level(number: u32) -> u32 {
    (number.trailing_zeros() / 2).min(LEVELS_COUNT_MAX)
}

/// Most boundaries of a run of a level.
fn boundaries_max(level: u32) -> usize {
    2 << (2 * level)
}

fn run_bytes(level: u32) -> usize {
    8 + boundaries_max(level) * 12
}

/// The chunk of a record, and the index of the chunk's first record.
#[inline]
fn chunk_of(index: u32) -> (usize, u32) {
    match index / FIRST_RECORDS {
        0 => (0, 0),
        times => (1 + times.ilog2() as usize, FIRST_RECORDS << times.ilog2()),
    }
}

#[cfg(test)]
thread_local! {
    /// Reads of a boundary's key.
    static KEY_LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The start of the tombstone at an entry's offset, or its end if the offset has 1 added.
fn place_of(arena: &Arena, place: Offset) -> KeyOrEnd<'_> {
    #[cfg(test)]
    KEY_LOOKS.set(KEY_LOOKS.get() + 1);
    let entry = arena.entry(place & !1);
    if place & 1 == 0 {
        return (tree_word(&entry), Some(entry.key));
    }
    let end = &entry.value[TREE_BYTES..];
    (tree_word(&entry), (!end.is_empty()).then_some(end))
}

fn tree_word(entry: &ArenaEntry<'_>) -> u64 {
    u64::from_be_bytes(*entry.value.first_chunk().expect("`add` wrote the tree's id"))
}

/// Length of the common prefix of two places, over id and key.
fn common_bytes(one: KeyOrEnd<'_>, other: KeyOrEnd<'_>) -> usize {
    if one.0 != other.0 {
        return (one.0 ^ other.0).leading_zeros() as usize / 8;
    }
    match (one.1, other.1) {
        (Some(one), Some(other)) => TREE_BYTES + common_prefix(one, other),
        _ => TREE_BYTES,
    }
}

/// Four bytes of id and key behind the first `skip`: a later place has no smaller head. The end behind all
/// keys has the greatest bytes.
fn head_of((id, key): KeyOrEnd<'_>, skip: usize) -> u32 {
    let mut bytes = [if key.is_none() { 0xff } else { 0 }; TREE_BYTES + 4];
    bytes[..TREE_BYTES].copy_from_slice(&id.to_be_bytes());
    if skip < TREE_BYTES {
        let key = key.unwrap_or_default();
        let shown = key.len().min(4);
        bytes[TREE_BYTES..TREE_BYTES + shown].copy_from_slice(&key[..shown]);
        let head = bytes[skip..].first_chunk().expect("four bytes are behind any of the id");
        return u32::from_be_bytes(*head);
    }
    let Some(key) = key else { return u32::MAX };
    let rest = key.get(skip - TREE_BYTES..).unwrap_or_default();
    match rest.first_chunk() {
        Some(head) => u32::from_be_bytes(*head),
        None => {
            let mut head = [0; 4];
            head[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(head)
        }
    }
}

fn compare(one: KeyOrEnd<'_>, other: KeyOrEnd<'_>) -> Order {
    one.0.cmp(&other.0).then_with(|| match (one.1, other.1) {
        (Some(one), Some(other)) => one.cmp(other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    })
}

fn tree_of(id: u64) -> TreeId {
    TreeId { keyspace: KeyspaceId((id >> 32) as u32), partition: PartitionId(id as u32) }
}

fn id_word(tree: TreeId) -> u64 {
    u64::from(tree.keyspace.0) << 32 | u64::from(tree.partition.0)
}

#[cfg(all(test, not(loom)))]
mod tests;
