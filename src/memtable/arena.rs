//! The arena: one region, with words for the index from its front, and entries from its back.
//!
//! It is the only file of the memtable that touches raw memory. It is not an allocator: memory is freed with
//! the whole region only. Callers are the other files of this folder. Reads are lock-free from any thread.
//! Allocation and the writing of entries go through the one [`Bump`], which the inserter owns.
//!
//! An entry (8-byte aligned, written once, native byte order: it never leaves memory):
//! ```text
//! offset size type name: meaning
//!      0    8 u64  stamp: sequence << 8 | kind
//!      8    8 u64  shape: older / 8 << 37 | key bytes << 21 | value bytes
//!     16    n      key, then value; up to 7 bytes unused
//! ```
//! An entry with an older version has 8 more bytes before it, also written once; see `versions`:
//! ```text
//! offset size type name: meaning
//!     -8    4 u32  jump: offset of a version further back
//!     -4    4 u32  depth: how many versions are older
//! ```
//!
//! Invariants:
//! 1. An offset given to [`Arena::words`] or [`Arena::halves`] comes from [`Bump::words`], or is such an
//!    offset plus a field's. Each place is always accessed in one width.
//! 2. An offset given to [`Arena::entry`] comes from [`Bump::entry`]. The reader got it by an acquire load of
//!    a word into which it was stored with release after the entry was written. An entry is not written after
//!    `Bump::entry` returns.
//! 3. Words and entries never overlap: front ≤ back.
//!
//! These rules bind this folder, which gives out offsets only in an `ItemPosition` or a `VersionId`. Every
//! access is also checked to lie inside the region and to be aligned. So a broken rule reads wrong bytes, and
//! never beyond the region.

#![expect(unsafe_code, reason = "views of a raw region as atomics and as bytes")]

#[cfg(all(loom, test))]
mod model;

use crate::base::id::{ItemKind, KEY_BYTES_MAX, SEQUENCE_MAX, Sequence, VALUE_BYTES_MAX};
use crate::base::prefetch::prefetch_address;
use crate::base::region::Region;
use crate::base::sync::{AtomicU32, AtomicU64};

/// Byte offset in the arena; 0 means none.
pub(super) type Offset = u32;

/// Largest region: 25 bits of 8-byte units address it.
pub(crate) const REGION_BYTES_MAX: usize = 1 << 28;
/// Words are allocated in whole cache lines.
pub(super) const LINE_BYTES: usize = 64;
/// An entry's bytes besides key and value, with the longest padding.
pub(super) const ENTRY_BYTES_MAX: usize = HEADER_BYTES + 7;

/// Further bytes of an entry with an older version.
pub(super) const JUMP_BYTES: usize = 8;

const HEADER_BYTES: usize = 16;
const VALUE_BITS: u32 = 21;
const KEY_BITS: u32 = 16;
const _: () = assert!(VALUE_BYTES_MAX < 1 << VALUE_BITS && KEY_BYTES_MAX < 1 << KEY_BITS);

/// One version of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArenaEntry<'a> {
    pub(super) sequence: Sequence,
    pub(super) kind: ItemKind,
    /// The version before this one, or 0.
    pub(super) older: Offset,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// A pointer by which a search skips many versions of a key at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Jump {
    /// A version further back; for a first version its own offset.
    pub(super) to: Offset,
    /// Number of older versions.
    pub(super) depth: u32,
}

/// A region seen as words and entries.
#[derive(Debug)]
pub(super) struct Arena {
    region: Region,
    #[cfg(all(loom, test))]
    model: model::ArenaModel,
}

/// The free rest of an arena, and the only right to fill it: one for each arena.
#[derive(Debug)]
pub(super) struct Bump {
    /// Address of the region, to check that a bump is used with its own arena.
    start: usize,
    front: usize,
    back: usize,
}

impl Arena {
    /// # Panics
    /// If the region is larger than [`REGION_BYTES_MAX`]: the settings bound a generation.
    pub(super) fn new(region: Region) -> (Arena, Bump) {
        assert!(region.bytes() <= REGION_BYTES_MAX, "a generation is at most {REGION_BYTES_MAX} bytes");
        let bump = Bump { start: region.start().as_ptr() as usize, front: 0, back: region.bytes() & !7 };
        #[cfg(all(loom, test))]
        let model = model::ArenaModel::new(region.bytes());
        let arena = Arena {
            region,
            #[cfg(all(loom, test))]
            model,
        };
        (arena, bump)
    }

    pub(super) fn bytes(&self) -> usize {
        self.region.bytes()
    }

    #[cfg(test)]
    pub(super) fn into_region(self) -> Region {
        self.region
    }

    /// `count` 64-bit words from `at`.
    #[cfg(not(all(loom, test)))]
    #[inline]
    pub(super) fn words(&self, at: Offset, count: usize) -> &[AtomicU64] {
        let start = self.checked(at, count * 8, 8);
        // SAFETY: `checked`: in the region and aligned (the region is, to 4 KiB). The memory is initialised,
        // since the region was zeroed. Only atomics of this width access it (invariants 1 and 3).
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }

    /// `count` 32-bit words from `at`.
    #[cfg(not(all(loom, test)))]
    #[inline]
    pub(super) fn halves(&self, at: Offset, count: usize) -> &[AtomicU32] {
        let start = self.checked(at, count * 4, 4);
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }

    #[cfg(all(loom, test))]
    pub(super) fn words(&self, at: Offset, count: usize) -> &[AtomicU64] {
        self.checked(at, count * 8, 8);
        self.model.words(at, count)
    }

    #[cfg(all(loom, test))]
    pub(super) fn halves(&self, at: Offset, count: usize) -> &[AtomicU32] {
        self.checked(at, count * 4, 4);
        self.model.halves(at, count)
    }

    #[inline]
    pub(super) fn entry(&self, at: Offset) -> ArenaEntry<'_> {
        #[cfg(all(loom, test))]
        self.model.read_entry(at);
        let header = self.checked(at, HEADER_BYTES, 8).cast::<u64>();
        // SAFETY: `checked`: in the region and aligned; written before the caller's acquire load and not
        // changed afterwards (invariant 2).
        let (stamp, shape) = unsafe { (header.read(), header.add(1).read()) };
        let value_bytes = (shape & ((1 << VALUE_BITS) - 1)) as usize;
        let key_bytes = (shape >> VALUE_BITS & ((1 << KEY_BITS) - 1)) as usize;
        let start = self.checked(at + HEADER_BYTES as u32, key_bytes + value_bytes, 8);
        // SAFETY: as above; the borrow ends before the region does, and an entry is never moved or written
        // again.
        let bytes = unsafe { std::slice::from_raw_parts(start, key_bytes + value_bytes) };
        let (key, value) = bytes.split_at(key_bytes);
        let kind = ItemKind::from_u8(stamp as u8).expect("Bump::entry wrote a kind");
        let older = (shape >> (VALUE_BITS + KEY_BITS)) as Offset * 8;
        ArenaEntry { sequence: stamp >> 8, kind, older, key, value }
    }

    /// The jump of the entry at `at`.
    pub(super) fn jump(&self, at: Offset) -> Jump {
        if self.entry(at).older == 0 {
            return Jump { to: at, depth: 0 };
        }
        let before = at - JUMP_BYTES as Offset;
        #[cfg(all(loom, test))]
        self.model.read_entry(before);
        let word = self.checked(before, JUMP_BYTES, 8).cast::<u64>();
        // SAFETY: `checked`: in the region and aligned. An entry with an older version has these bytes before
        // it (`Bump::version`), written before its offset was published and not changed afterwards.
        let word = unsafe { word.read() };
        Jump { to: word as Offset, depth: (word >> 32) as u32 }
    }

    /// Hints that the cache line `bytes` bytes after `at` will be read soon. It may lie beyond the region.
    #[inline]
    pub(super) fn prefetch(&self, at: Offset, bytes: usize) {
        prefetch_address(self.region.start().as_ptr(), at as usize + bytes);
    }

    /// The address of `at`, at which at least `bytes` bytes lie in the region.
    #[inline]
    fn checked(&self, at: Offset, bytes: usize, alignment: usize) -> *const u8 {
        let at = at as usize;
        assert!(at.is_multiple_of(alignment) && at + bytes <= self.region.bytes(), "offset {at} is not ours");
        // SAFETY: `at` is at most the region's length.
        unsafe { self.region.start().as_ptr().add(at) }
    }
}

impl Bump {
    /// Bytes not allocated yet.
    pub(super) fn free_bytes(&self) -> usize {
        self.back - self.front
    }

    /// Zeroed words: at least `bytes` bytes, in whole cache lines.
    ///
    /// # Panics
    /// If there is no room: the caller checks before.
    pub(super) fn words(&mut self, bytes: usize) -> Offset {
        let bytes = bytes.next_multiple_of(LINE_BYTES);
        assert!(bytes <= self.free_bytes(), "room was asked for before");
        let at = self.front;
        self.front += bytes;
        at as Offset
    }

    /// Writes the entry of a first version. Readers reach it only after its offset is stored with release.
    ///
    /// # Panics
    /// If there is no room, or if key or value exceed their limits: the caller checks before.
    pub(super) fn entry(&mut self, arena: &Arena, entry: &ArenaEntry<'_>) -> Offset {
        assert_eq!(entry.older, 0, "a version with an older one has a jump");
        self.write(arena, entry)
    }

    /// Writes the entry of a version that has an older one.
    ///
    /// # Panics
    /// As [`Bump::entry`].
    pub(super) fn version(&mut self, arena: &Arena, entry: &ArenaEntry<'_>, jump: Jump) -> Offset {
        assert_ne!(entry.older, 0, "a first version has no jump");
        let at = self.write(arena, entry);
        assert!(JUMP_BYTES <= self.free_bytes(), "room was asked for before");
        self.back -= JUMP_BYTES;
        #[cfg(all(loom, test))]
        arena.model.write_entry(self.back as Offset);
        // SAFETY: `back .. back + JUMP_BYTES` is in this region (checked to be the bump's in `write`),
        // aligned to 8, and was free: no reference to it exists, and this bump, the only one, is borrowed
        // mutably.
        unsafe {
            let word = u64::from(jump.depth) << 32 | u64::from(jump.to);
            arena.region.start().as_ptr().add(self.back).cast::<u64>().write(word);
        }
        at
    }

    fn write(&mut self, arena: &Arena, entry: &ArenaEntry<'_>) -> Offset {
        let (key_bytes, value_bytes) = (entry.key.len(), entry.value.len());
        assert!(
            key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX,
            "checked when the batch was made"
        );
        assert!(entry.sequence <= SEQUENCE_MAX, "sequences have 56 bits");
        assert_eq!(self.start, arena.region.start().as_ptr() as usize, "a bump fills its own arena");
        let bytes = (HEADER_BYTES + key_bytes + value_bytes).next_multiple_of(8);
        assert!(bytes <= self.free_bytes(), "room was asked for before");
        self.back -= bytes;
        let stamp = entry.sequence << 8 | entry.kind as u64;
        let older = u64::from(entry.older / 8) << (VALUE_BITS + KEY_BITS);
        let shape = older | (key_bytes as u64) << VALUE_BITS | value_bytes as u64;
        #[cfg(all(loom, test))]
        arena.model.write_entry(self.back as Offset);
        // SAFETY: `back .. back + bytes` is in this region, aligned to 8, and was free: no reference to it
        // exists, and this bump, the only one, is borrowed mutably. The sources do not overlap it: the range
        // was never given out.
        unsafe {
            let start = arena.region.start().as_ptr().add(self.back);
            start.cast::<u64>().write(stamp);
            start.cast::<u64>().add(1).write(shape);
            let key = start.add(HEADER_BYTES);
            std::ptr::copy_nonoverlapping(entry.key.as_ptr(), key, key_bytes);
            std::ptr::copy_nonoverlapping(entry.value.as_ptr(), key.add(key_bytes), value_bytes);
        }
        self.back as Offset
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Entries are read as written at every extreme of their fields, beside words that stay zero.
    #[test]
    fn entries_round_trip() {
        let (arena, mut bump) = Arena::new(Region::heap(3 << 20).expect("small allocation"));
        let words = bump.words(1);
        let (long_key, long_value) = (vec![7; KEY_BYTES_MAX], vec![9; VALUE_BYTES_MAX]);
        let (mut older, mut depth) = (0, 0);
        for (key, value) in [(&[][..], &[][..]), (b"k", b""), (&long_key, &long_value), (b"", b"value")] {
            let entry = ArenaEntry { sequence: SEQUENCE_MAX, kind: ItemKind::Delete, older, key, value };
            let jump = Jump { to: older, depth };
            let at = if older == 0 { bump.entry(&arena, &entry) } else { bump.version(&arena, &entry, jump) };
            let read = arena.entry(at);
            assert_eq!((read.sequence, read.kind, read.older), (SEQUENCE_MAX, ItemKind::Delete, older));
            assert!(read.key == key && read.value == value);
            assert_eq!(arena.jump(at), if older == 0 { Jump { to: at, depth: 0 } } else { jump });
            (older, depth) = (at, depth + 1);
        }
        assert!(
            arena.words(words, 8).iter().all(|word| word.load(crate::base::sync::Ordering::Relaxed) == 0)
        );
    }

    /// Offsets beyond the region are refused, not read.
    #[test]
    #[should_panic(expected = "is not ours")]
    fn offsets_beyond_the_region_are_refused() {
        let (arena, _) = Arena::new(Region::heap(4096).expect("small allocation"));
        arena.words(4096 - 8, 2);
    }
}
