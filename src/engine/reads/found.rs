//! Results of lookups: values in memory that a pin protects, and copies or references that outlive the pin.
//!
//! While a thread is pinned the store frees no memory, so no code of a caller runs under a pin. A short value
//! is copied. A longer value in a cache frame holds a reference count on the frame. A longer value in a write
//! buffer is copied too, because a reference would keep the whole buffer.

use std::cell::Cell;
use std::ops::Range;

use crate::base::epoch::Pin;
use crate::base::step::BlockAddress;
use crate::cache::{BlockRef, Cache};
use crate::read::get::Lookup;

/// Up to this length, in bytes, a copy costs less than a reference count.
const COPY_BYTES_MAX: usize = 512;
/// Most bytes that a thread keeps for its next copies.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Memory for copies. It is taken out while in use: a lookup made inside a callback has memory of its
    /// own.
    static COPIES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The result of a lookup, under its pin.
pub(crate) struct LookupResult<'f> {
    pub(super) lookup: &'f Lookup<'f>,
    /// The block in which the lookup ended, if it ended in one.
    pub(super) block: &'f dyn Fn() -> Option<BlockAddress>,
    pub(super) pin: &'f Pin,
}

impl<'f> LookupResult<'f> {
    pub(crate) fn value(&self) -> Option<&'f [u8]> {
        self.lookup.value()
    }
}

/// Memory for copies, given back on drop.
pub(super) struct Copies {
    bytes: Vec<u8>,
}

/// A value that outlives the pin under which it was found.
pub(super) enum KeptValue {
    Absent,
    Copied(Range<usize>),
    Counted(BlockRef, Range<usize>),
}

impl Copies {
    /// Starts without memory: the first copy takes the thread's memory, and an absent key needs none.
    pub(super) const fn new() -> Copies {
        Copies { bytes: Vec::new() }
    }

    #[inline]
    pub(super) fn keep(&mut self, found: &LookupResult<'_>, cache: &Cache) -> KeptValue {
        match found.value() {
            Some(value) if value.len() > COPY_BYTES_MAX => self.keep_long(value, found, cache),
            value => self.copy(value),
        }
    }

    fn keep_long(&mut self, value: &[u8], found: &LookupResult<'_>, cache: &Cache) -> KeptValue {
        let counted = match found.lookup {
            Lookup::Counted(block, range) => Some((block.clone(), range.clone())),
            Lookup::Pinned(_) => (found.block)()
                .and_then(|address| cache.lookup_once(&address, found.pin))
                .and_then(|block| place_in(&block, value).map(|range| (block, range))),
            Lookup::Absent => None,
        };
        match counted {
            Some((block, range)) => KeptValue::Counted(block, range),
            None => self.copy(Some(value)),
        }
    }

    #[inline]
    pub(super) fn copy(&mut self, value: Option<&[u8]>) -> KeptValue {
        let Some(value) = value else { return KeptValue::Absent };
        if self.bytes.capacity() == 0 {
            // A thread that is ending has no such memory any more.
            self.bytes = COPIES.try_with(Cell::take).unwrap_or_default();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        KeptValue::Copied(start..self.bytes.len())
    }

    #[inline]
    pub(super) fn value<'v>(&'v self, kept: &'v KeptValue) -> Option<&'v [u8]> {
        match kept {
            KeptValue::Absent => None,
            KeptValue::Copied(range) => Some(&self.bytes[range.clone()]),
            KeptValue::Counted(block, range) => Some(&block[range.clone()]),
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if (1..=KEPT_BYTES_MAX).contains(&bytes.capacity()) {
            bytes.clear();
            // As in `copy`.
            let _ = COPIES.try_with(|copies| copies.set(bytes));
        }
    }
}

/// Values of several keys, by the keys' numbers.
pub(super) struct Kept {
    copies: Copies,
    values: Vec<(usize, KeptValue)>,
}

impl Kept {
    pub(super) fn new() -> Kept {
        Kept { copies: Copies::new(), values: Vec::new() }
    }

    #[inline]
    pub(super) fn keep(&mut self, number: usize, found: &LookupResult<'_>, cache: &Cache) {
        let kept = self.copies.keep(found, cache);
        self.values.push((number, kept));
    }

    /// Passes the kept values to `take`, under no pin, and clears them.
    pub(super) fn give(&mut self, take: &mut impl FnMut(usize, Option<&[u8]>)) {
        for (number, kept) in self.values.drain(..) {
            take(number, self.copies.value(&kept));
        }
        self.copies.bytes.clear();
    }
}

/// The range of the value within the block, if it lies there.
fn place_in(block: &[u8], value: &[u8]) -> Option<Range<usize>> {
    let start = value.as_ptr().addr().checked_sub(block.as_ptr().addr())?;
    let range = start..start.checked_add(value.len())?;
    (range.end <= block.len()).then_some(range)
}
