//! Bytes by which a process detects that it was forked from the process that opened a store.
//!
//! A fork copies memory, locks and descriptors, but only the calling thread. An open store is therefore
//! useless in the child process, and a write to it there would damage the parent's store. So the state that
//! every call of a store loads lies in memory that the kernel clears in a child (`MADV_WIPEONFORK`, Linux
//! 4.14): there each byte reads [`FORKED`]. Where the system has no such memory, the bytes lie on the heap
//! and keep their values; `Storage::is_forked` then compares process ids. Any thread may call.
//!
//! 1. A byte changes only from one value other than [`FORKED`] to another. A cleared byte stays cleared.

#![expect(unsafe_code, reason = "makes an atomic of a byte in memory from the system")]

use std::ptr::NonNull;

use crate::base::error::{Error, Result};
use crate::base::region::Region;
use crate::base::sync::{Arc, Mutex, Ordering, ProcessU8};

use super::env::Memory;

/// Value of each byte in a process that was forked from the byte's maker. No byte is made with this value.
pub(crate) const FORKED: u8 = 0;

/// Bytes mapped at once; only written pages take memory.
const WIPED_BYTES: usize = 64 << 10;
/// Bytes taken from the heap at once, where the system has no memory that is cleared on fork.
const HEAP_BYTES: usize = 4 << 10;

/// Allocates bytes. A caller keeps each byte for as long as it needs it.
pub(crate) struct ForkBytes {
    memory: Arc<dyn Memory>,
    page: Mutex<Page>,
}

/// The region from which the next bytes come.
struct Page {
    region: Arc<Region>,
    used: usize,
}

/// One byte. Clones share it.
#[derive(Clone)]
pub(crate) struct ForkByte {
    byte: NonNull<ProcessU8>,
    /// Keeps the byte's memory alive.
    _region: Arc<Region>,
}

// SAFETY: the byte is an atomic in memory that lives as long as `_region`, which any thread may use and drop.
unsafe impl Send for ForkByte {}
// SAFETY: as above.
unsafe impl Sync for ForkByte {}

impl ForkBytes {
    /// # Errors
    /// `Io` if there is no memory.
    pub(crate) fn new(memory: &Arc<dyn Memory>) -> Result<ForkBytes> {
        let page = Page::new(&**memory)?;
        Ok(ForkBytes { memory: Arc::clone(memory), page: Mutex::new(page) })
    }

    /// A byte with the value `value`, which is not [`FORKED`].
    ///
    /// # Errors
    /// `Io` if there is no memory.
    pub(crate) fn byte(&self, value: u8) -> Result<ForkByte> {
        assert!(value != FORKED, "a forked process reads it");
        let mut page = self.page.lock();
        if page.used == page.region.bytes() {
            *page = Page::new(&*self.memory)?;
        }
        let byte = ForkByte::of(&page.region, page.used);
        page.used += 1;
        drop(page);
        byte.atomic().store(value, Ordering::Release);
        Ok(byte)
    }
}

impl Page {
    fn new(memory: &dyn Memory) -> Result<Page> {
        let region = memory.region_wiped_on_fork(WIPED_BYTES).or_else(|| Region::heap(HEAP_BYTES));
        let region = region.ok_or_else(|| Error::Io {
            operation: "get memory for",
            file: "the marks of the process".to_owned(),
            offset: 0,
            source: Arc::new(std::io::ErrorKind::OutOfMemory.into()),
        })?;
        Ok(Page { region: Arc::new(region), used: 0 })
    }
}

impl ForkByte {
    /// A byte in memory that is cleared on fork; `None` if the system has no such memory.
    pub(crate) fn wiped(memory: &dyn Memory, value: u8) -> Option<ForkByte> {
        let region = Arc::new(memory.region_wiped_on_fork(1)?);
        let byte = ForkByte::of(&region, 0);
        byte.atomic().store(value, Ordering::Release);
        Some(byte)
    }

    fn of(region: &Arc<Region>, at: usize) -> ForkByte {
        assert!(at < region.bytes(), "inside the region");
        // SAFETY: inside the region, as asserted.
        let byte = unsafe { region.start().add(at) }.cast();
        ForkByte { byte, _region: Arc::clone(region) }
    }

    fn atomic(&self) -> &ProcessU8 {
        // SAFETY: an initialised byte of a region that lives as long as `self`. Each byte is given out once,
        // so it is used through this reference only. An atomic byte needs no alignment.
        unsafe { self.byte.as_ref() }
    }

    /// The byte's value; [`FORKED`] in a forked process.
    #[inline]
    pub(crate) fn load(&self) -> u8 {
        self.atomic().load(Ordering::Acquire)
    }

    /// Changes the byte to `to` if it is `from`.
    pub(crate) fn change(&self, from: u8, to: u8) {
        assert!(from != FORKED && to != FORKED, "one that was cleared stays so");
        // A byte with any other value keeps that value.
        let _ = self.atomic().compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl std::fmt::Debug for ForkByte {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ForkByte({})", self.load())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::SimMemory;

    /// Bytes are independent, across many pages, and change only from one value to another.
    #[test]
    fn bytes_are_apart() {
        let memory: Arc<dyn Memory> = Arc::new(SimMemory);
        let bytes = ForkBytes::new(&memory).expect("a little memory");
        let made: Vec<ForkByte> =
            (0..3 * HEAP_BYTES).map(|number| bytes.byte(number as u8 | 1).expect("a byte")).collect();
        made[7].change(7, 9);
        made[8].change(7, 100);
        for (number, byte) in made.iter().enumerate() {
            assert_eq!(byte.load(), if number == 7 { 9 } else { number as u8 | 1 });
        }
        assert!(ForkByte::wiped(&SimMemory, 1).is_none());
    }
}
