//! A prefetch hint to the processor. It reads nothing and may be called from anywhere.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "the processor's hint is an unsafe call")
)]

/// Prefetches the cache line at `at` bytes behind the start of `memory`. The line may lie behind its end.
#[inline]
pub(crate) fn prefetch<T>(memory: &[T], at: usize) {
    prefetch_address(memory.as_ptr().cast(), at);
}

/// As [`prefetch`], for memory shared with writers.
#[inline]
pub(crate) fn prefetch_address(start: *const u8, at: usize) {
    let _line = start.wrapping_add(at);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect that the program can observe, so any address is valid. SSE is part of
    // x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(_line.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hint for any address, inside the memory or not, changes and breaks nothing.
    #[test]
    fn hints_are_harmless() {
        let memory = [1u64, 2, 3];
        for at in [0, 8, 4096, usize::MAX] {
            prefetch(&memory, at);
        }
        prefetch::<u8>(&[], 0);
        assert_eq!(memory, [1, 2, 3]);
    }
}
