//! Fence pages that stay in memory, with what spares a search most of their cache lines.
//!
//! The pages are as in the file, in the cache's memory. Beside them lie the heads that begin their lines, one
//! in eight: few enough to be near for every lookup, so that a search looks at these, at the page's header
//! and at one line of it. Immutable, for any thread.

use crate::cache::{Cache, Loan, PinnedPages};
use crate::format::table::fence::FencePage;

/// All fence pages of a slice.
pub(super) struct ResidentFences {
    pages: PinnedPages,
    /// Bytes of each page.
    page_bytes: usize,
    /// Of all pages, one after the other.
    samples: Box<[u64]>,
    /// Where those of each page end.
    ends: Box<[u32]>,
    /// For the samples, on the cache's account.
    _loan: Loan,
}

impl ResidentFences {
    /// Over `count` checked pages.
    pub(super) fn new(pages: PinnedPages, count: usize, page_bytes: usize, cache: &Cache) -> ResidentFences {
        let mut samples = Vec::new();
        let ends = (0..count).map(|number| {
            samples.extend(FencePage::of(pages.page(number, page_bytes)).samples());
            u32::try_from(samples.len()).expect("a slice has fewer blocks")
        });
        let ends: Box<[u32]> = ends.collect();
        let samples = samples.into_boxed_slice();
        let loan = cache.lend(size_of_val(&*samples) + size_of_val(&*ends));
        ResidentFences { pages, page_bytes, samples, ends, _loan: loan }
    }

    #[inline]
    pub(super) fn page(&self, number: usize) -> FencePage<'_> {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let samples = &self.samples[start..self.ends[number] as usize];
        FencePage::of(self.bytes(number)).with_samples(samples)
    }

    #[inline]
    pub(super) fn bytes(&self, number: usize) -> &[u8] {
        self.pages.page(number, self.page_bytes)
    }
}
