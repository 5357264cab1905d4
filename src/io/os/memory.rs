//! Memory from the operating system: anonymous mappings, in huge pages where the system has them.
//!
//! It is not an allocator: a region is made for an arena or the cache and lives as long as they do. Any
//! thread may call.

#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::base::region::{Region, RegionSource};

use super::super::env::Memory;

/// Size of a huge page, in bytes, and alignment of regions at least as large.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// A multiple of every page size in use. Lengths of mappings are multiples of this.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct OsMemory;

impl Memory for OsMemory {
    fn region(&self, bytes: usize) -> Option<Region> {
        let start = if bytes >= HUGE_PAGE_BYTES { map_huge(bytes)? } else { map(mapped_bytes(bytes)?)? };
        // SAFETY: a fresh private mapping of at least `bytes` bytes: zeroed, page-aligned, with no other
        // user. `release` unmaps all of it that is still mapped, which is `mapped_bytes(bytes)` from `start`;
        // `discard` leaves it mapped.
        Some(unsafe { Region::from_raw(start, bytes, &MAPPED) })
    }

    fn region_wiped_on_fork(&self, bytes: usize) -> Option<Region> {
        let region = self.region(bytes)?;
        is_wiped_on_fork(&region).then_some(region)
    }
}

/// Makes a fork clear the region in the child process; `false` if the kernel cannot (before 4.14).
#[cfg(target_os = "linux")]
fn is_wiped_on_fork(region: &Region) -> bool {
    let (start, bytes) = (region.start().as_ptr(), mapped_bytes(region.bytes()));
    // SAFETY: the range is our own mapping, whole and private, and the advice changes no content here.
    let advise =
        |bytes| unsafe { rustix::mm::madvise(start.cast(), bytes, rustix::mm::Advice::LinuxWipeOnFork) };
    bytes.is_some_and(|bytes| advise(bytes).is_ok())
}

#[cfg(not(target_os = "linux"))]
fn is_wiped_on_fork(_region: &Region) -> bool {
    false
}

const MAPPED: RegionSource = RegionSource { release, discard };

/// Bytes that are mapped for a region of `bytes`.
fn mapped_bytes(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(PAGE_BYTES_MAX)
}

fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: no address is requested, so no other mapping is replaced.
    let start = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    NonNull::new(start.ok()?.cast())
}

/// Maps a huge page more than needed, and unmaps the bytes before the first boundary and behind the end.
fn map_huge(bytes: usize) -> Option<NonNull<u8>> {
    let kept = mapped_bytes(bytes)?;
    let mapped = kept.checked_add(HUGE_PAGE_BYTES)?;
    let start = map(mapped)?;
    let before = start.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let behind = mapped - before - kept;
    // SAFETY: the first huge-page boundary is less than a huge page away, so within the mapping.
    let aligned = unsafe { start.add(before) };
    // SAFETY: both ranges lie in the mapping just made, outside the `kept` bytes from `aligned`, and are
    // unused. Their ends are page boundaries: a huge-page boundary, and a multiple of every page size from
    // it. A failure would only leave address space mapped that is never touched.
    unsafe {
        if before > 0 {
            // Address space that stays mapped is never touched.
            let _ = munmap(start.as_ptr().cast(), before);
        }
        if behind > 0 {
            // As above.
            let _ = munmap(aligned.add(kept).as_ptr().cast(), behind);
        }
    }
    advise_huge(aligned, kept);
    Some(aligned)
}

#[cfg(target_os = "linux")]
fn advise_huge(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the range is our own mapping, and the advice changes no content. A kernel without huge pages
    // refuses it, and small pages work as well.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_start: NonNull<u8>, _bytes: usize) {}

/// # Safety
/// `start` is that of a region of `bytes` bytes made here, which is not used again.
unsafe fn release(start: NonNull<u8>, bytes: usize) {
    let mapped = mapped_bytes(bytes).expect("computed when the region was mapped");
    // SAFETY: by the caller's promise these bytes are mapped and unused. Unmapping a whole mapping fails only
    // at the kernel's limit on mappings; the memory then stays mapped and unused.
    let _ = unsafe { munmap(start.as_ptr().cast(), mapped) };
}

/// A failure leaves the memory in place. A discarded part of a huge page stays resident until the system is
/// short of memory.
///
/// # Safety
/// The bytes are whole pages of a region made here, and no other code uses them.
#[cfg(target_os = "linux")]
unsafe fn discard(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's promise. The range stays mapped, and reads as zeros.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxDontNeed) };
}

/// # Safety
/// As for Linux, where this advice is known to free memory.
#[cfg(not(target_os = "linux"))]
unsafe fn discard(_start: NonNull<u8>, _bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions of all sizes are zeroed, writable to the last byte and aligned, large ones to huge pages.
    #[test]
    fn regions_are_zeroed_writable_and_aligned() {
        for bytes in [1, 4096, 100_000, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 12_345] {
            let region = OsMemory.region(bytes).expect("a little memory");
            assert_eq!(region.bytes(), bytes);
            let alignment = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 4096 };
            assert_eq!(region.start().as_ptr() as usize % alignment, 0);
            // SAFETY: the region owns `bytes` initialised bytes and only this test uses them.
            let slice = unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), bytes) };
            assert!(slice.iter().all(|byte| *byte == 0));
            slice[0] = 1;
            slice[bytes - 1] = 1;
        }
    }

    /// More memory than any machine has is `None`, not an abort.
    #[test]
    fn too_much_is_none() {
        for bytes in [usize::MAX, usize::MAX - HUGE_PAGE_BYTES, usize::MAX / 2] {
            assert!(OsMemory.region(bytes).is_none());
        }
    }

    /// Discarded memory is no longer resident, by the system's own report. The memory around it is unchanged.
    #[cfg(target_os = "linux")]
    #[test]
    fn discarded_memory_is_given_back() {
        let (bytes, part) = (4 * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES..3 * HUGE_PAGE_BYTES);
        let region = OsMemory.region(bytes).expect("a little memory");
        // SAFETY: the region owns `bytes` initialised bytes and only this test uses them, a slice at a time.
        let slice = || unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), bytes) };
        slice().fill(1);
        let before = resident_bytes(&region);
        // SAFETY: no slice of the region is in use meanwhile.
        unsafe { region.discard(part.start, part.len()) };
        if let (Some(before), Some(after)) = (before, resident_bytes(&region)) {
            assert_eq!((before, after), (bytes, bytes - part.len()));
        }
        assert!(slice()[part.clone()].iter().all(|byte| *byte == 0));
        assert_eq!(slice().iter().filter(|byte| **byte == 1).count(), bytes - part.len());
    }

    /// Bytes of a region that lie in memory or swap, by the system's page map; `None` if the system does not
    /// show it.
    #[cfg(target_os = "linux")]
    #[expect(clippy::disallowed_methods, reason = "what it asks of is no file of a store")]
    fn resident_bytes(region: &Region) -> Option<usize> {
        use std::os::unix::fs::FileExt;
        const TAKEN: u64 = 3 << 62;
        let (page_bytes, entry_bytes) = (rustix::param::page_size(), size_of::<u64>());
        let mut entries = vec![0; region.bytes() / page_bytes * entry_bytes];
        let first = region.start().as_ptr() as usize / page_bytes;
        let pages = std::fs::File::open("/proc/self/pagemap").ok()?;
        pages.read_exact_at(&mut entries, (first * entry_bytes) as u64).ok()?;
        let (entries, _) = entries.as_chunks();
        let is_taken = |entry: &&[u8; 8]| u64::from_ne_bytes(**entry) & TAKEN != 0;
        Some(entries.iter().filter(is_taken).count() * page_bytes)
    }
}
