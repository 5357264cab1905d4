//! Memory handed in: a zeroed, page-aligned run of bytes from whoever owns the budget.

#![expect(unsafe_code, reason = "owns raw memory from the operating system or the simulator")]

use std::ptr::NonNull;

/// A run of zeroed memory, aligned to at least 4 KiB, given back when dropped.
///
/// It hands out raw pointers only; who shares the bytes, and how, is the business of arena and cache.
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
    source: &'static Source,
}

/// How whoever hands memory out takes it back.
pub(crate) struct Source {
    /// All of a region, from its start.
    pub(crate) release: unsafe fn(NonNull<u8>, usize),
    /// What whole pages of a region hold is given up, and the memory behind them as far as it goes; they stay
    /// valid and initialised, with anything in them.
    pub(crate) discard: unsafe fn(NonNull<u8>, usize),
}

const HEAP: Source = Source { release: heap_release, discard: heap_discard };

// SAFETY: a region is plain memory with one owner; access to its bytes goes through raw pointers whose users
// state their own rules.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out nothing but an address and a length.
unsafe impl Sync for Region {}

impl Region {
    /// Takes ownership of `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The memory is zeroed, aligned to 4 KiB, valid for reads and writes until the source's
    /// `release(start, bytes)` is called, and used by nobody else. Its `discard` keeps any part of it so.
    pub(crate) unsafe fn from_raw(start: NonNull<u8>, bytes: usize, source: &'static Source) -> Region {
        Region { start, bytes, source }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives up what `bytes` bytes from `at` hold, and the memory behind them if the system has a use for it.
    ///
    /// # Safety
    /// Nobody looks at these bytes or writes them meanwhile, nor minds what is in them afterwards.
    ///
    /// # Panics
    /// If they are not whole pages of 4 KiB inside the region.
    pub(crate) unsafe fn discard(&self, at: usize, bytes: usize) {
        assert!(at.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES), "whole pages");
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "inside the region");
        // SAFETY: inside the region, as asserted; the source was promised to take any part of it, which by
        // the caller's promise nobody uses.
        unsafe { (self.source.discard)(self.start.add(at), bytes) }
    }

    /// A region from the global allocator: for tests and for platforms without mappings.
    pub(crate) fn heap(bytes: usize) -> Option<Region> {
        let layout = heap_layout(bytes)?;
        // SAFETY: the layout has a size over 0.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        // SAFETY: freshly allocated, zeroed, aligned by the layout; `heap_release` frees with the same
        // layout, and `heap_discard` only writes.
        Some(unsafe { Region::from_raw(start, bytes, &HEAP) })
    }
}

const PAGE_BYTES: usize = 4096;

fn heap_layout(bytes: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(bytes.max(1), PAGE_BYTES).ok()
}

/// # Safety
/// `start` came from `heap(bytes)` and is not used again.
unsafe fn heap_release(start: NonNull<u8>, bytes: usize) {
    let layout = heap_layout(bytes).expect("the layout was valid at allocation");
    // SAFETY: by the caller's promise, allocated with this layout.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) }
}

/// An allocator takes no part back. Whoever reads what was given up is to find it gone, in tests as
/// elsewhere.
///
/// # Safety
/// The bytes are of a region from `heap`, and nobody else uses them.
unsafe fn heap_discard(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's promise.
    unsafe { start.write_bytes(0, bytes) }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `from_raw` was promised that `release` takes exactly this; nothing uses the region after
        // its drop.
        unsafe { (self.source.release)(self.start, self.bytes) }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heap regions are zeroed and aligned.
    #[test]
    fn heap_regions_are_zeroed_and_aligned() {
        let region = Region::heap(10_000).expect("small allocation");
        assert_eq!(region.start().as_ptr() as usize % 4096, 0);
        // SAFETY: the region owns 10,000 initialised bytes and nothing writes them here.
        let bytes = unsafe { std::slice::from_raw_parts(region.start().as_ptr(), region.bytes()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    /// What is discarded is gone, and its neighbours are not.
    #[test]
    fn discarded_bytes_are_gone() {
        let region = Region::heap(4 * PAGE_BYTES).expect("small allocation");
        // SAFETY: the region owns these initialised bytes, and only this test uses them, one slice at a time.
        let bytes = || unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), region.bytes()) };
        bytes().fill(7);
        // SAFETY: no slice of them is used meanwhile.
        unsafe { region.discard(PAGE_BYTES, 2 * PAGE_BYTES) };
        assert!(bytes()[PAGE_BYTES..3 * PAGE_BYTES].iter().all(|byte| *byte == 0));
        assert_eq!(bytes().iter().filter(|byte| **byte == 7).count(), 2 * PAGE_BYTES);
    }
}
