//! A region: a zeroed, page-aligned run of bytes from the owner of the memory budget.

#![expect(unsafe_code, reason = "owns raw memory from the operating system or the simulator")]

use std::ptr::NonNull;

/// A run of zeroed memory, aligned to at least 4 KiB, given back when dropped.
///
/// It hands out raw pointers only; arena and cache decide how the bytes are shared.
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
    source: &'static RegionSource,
}

/// The functions by which the source of a region takes its memory back.
pub(crate) struct RegionSource {
    /// Releases a whole region, from its start.
    pub(crate) release: unsafe fn(NonNull<u8>, usize),
    /// Gives up the contents of whole pages of a region, and their memory as far as possible. The pages stay
    /// valid and initialised, with arbitrary contents.
    pub(crate) discard: unsafe fn(NonNull<u8>, usize),
}

const HEAP: RegionSource = RegionSource { release: heap_release, discard: heap_discard };

// SAFETY: a region is plain memory with one owner; access to its bytes goes through raw pointers whose users
// state their own rules.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out nothing but an address and a length.
unsafe impl Sync for Region {}

impl Region {
    /// Takes ownership of `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The memory is zeroed, aligned to 4 KiB, and valid for reads and writes until the source's
    /// `release(start, bytes)` is called. It has no other user. Its `discard` keeps any part of it valid and
    /// initialised.
    pub(crate) unsafe fn from_raw(start: NonNull<u8>, bytes: usize, source: &'static RegionSource) -> Region {
        Region { start, bytes, source }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives up the contents of `bytes` bytes from `at`, and their memory if the system has a use for it.
    ///
    /// # Safety
    /// No thread reads or writes these bytes meanwhile, and no code relies on their contents afterwards.
    ///
    /// # Panics
    /// If they are not whole pages of 4 KiB inside the region.
    pub(crate) unsafe fn discard(&self, at: usize, bytes: usize) {
        assert!(at.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES), "whole pages");
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "inside the region");
        // SAFETY: inside the region, as asserted. `from_raw` was promised that the source takes any part of
        // the region; the caller promises that the part is not in use.
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

/// An allocator takes back no part of an allocation. The bytes are zeroed, so that tests notice a read of
/// discarded bytes.
///
/// # Safety
/// The bytes are of a region from `heap`, and have no other user.
unsafe fn heap_discard(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's promise.
    unsafe { start.write_bytes(0, bytes) }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `from_raw` was promised that `release` takes exactly this region; nothing uses the region
        // after its drop.
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

    /// Discarded bytes are gone, and their neighbours are not.
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
