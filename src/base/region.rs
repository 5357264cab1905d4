//! Memory handed in: a zeroed, page-aligned run of bytes from whoever owns the budget.

#![expect(unsafe_code, reason = "owns raw memory from the operating system or the simulator")]

use std::ptr::NonNull;

/// A run of zeroed memory, aligned to at least 4 KiB, given back when dropped.
///
/// It hands out raw pointers only; who shares the bytes, and how, is the business of arena and cache.
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
    release: unsafe fn(NonNull<u8>, usize),
}

// SAFETY: a region is plain memory with one owner; access to its bytes goes through raw pointers whose users
// state their own rules.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out nothing but an address and a length.
unsafe impl Sync for Region {}

impl Region {
    /// Takes ownership of `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The memory is zeroed, aligned to 4 KiB, valid for reads and writes until `release(start, bytes)` is
    /// called, and used by nobody else.
    pub(crate) unsafe fn from_raw(
        start: NonNull<u8>,
        bytes: usize,
        release: unsafe fn(NonNull<u8>, usize),
    ) -> Region {
        Region { start, bytes, release }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A region from the global allocator: for tests and for platforms without mappings.
    pub(crate) fn heap(bytes: usize) -> Option<Region> {
        let layout = heap_layout(bytes)?;
        // SAFETY: the layout has a size over 0.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        // SAFETY: freshly allocated, zeroed, aligned by the layout; `heap_release` frees with the same
        // layout.
        Some(unsafe { Region::from_raw(start, bytes, heap_release) })
    }
}

fn heap_layout(bytes: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(bytes.max(1), 4096).ok()
}

/// # Safety
/// `start` came from `heap(bytes)` and is not used again.
unsafe fn heap_release(start: NonNull<u8>, bytes: usize) {
    let layout = heap_layout(bytes).expect("the layout was valid at allocation");
    // SAFETY: by the caller's promise, allocated with this layout.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `from_raw` was promised that `release` takes exactly this; nothing uses the region after
        // its drop.
        unsafe { (self.release)(self.start, self.bytes) }
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
}
