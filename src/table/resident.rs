//! Resident filter and fence pages of a slice, and the account of the memory beside them.
//!
//! Pages are read from the device, or copied by the builder that has just written them. Immutable once they
//! are set; any thread.

use crate::base::error::Result;
use crate::base::id::FileName;
use crate::base::reserve::{Grant, Role};
use crate::base::step::{BlockAddress, BlockKind};
use crate::base::sync::{Arc, OnceLock};
use crate::cache::PinnedPages;
use crate::format::table::PAGE_BYTES;
use crate::format::table::fence::Extent;
use crate::format::table::filter::FilterKind;
use crate::format::table::footer::Span;
use crate::format::table::index::IndexPage;
use crate::format::table::sketch::{SKETCH_BYTES, Sketch, Sketcher};
use crate::format::table::top::Top;
use crate::io::storage::Storage;

use super::fences::ResidentFences;
use super::identity::TableIdentity;
use super::memory::{AlignedBytes, CountedFences, PageBudget, PageRank};
use super::open::fill_exact;
use super::packed::PackedEntry;
use super::verify::verify_block;

/// The most bytes of one request when pages are loaded.
const LOAD_BYTES: usize = 256 << 10;

/// The fate of pages that were just written, if the budget has no room for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Otherwise {
    /// They are read on demand.
    Leave,
    /// They are offered to the cache.
    Offer,
}

/// See the module.
pub(super) struct Resident {
    pub(super) filters: OnceLock<PinnedPages>,
    /// Empty if the slice has no fence page, or a single one that begins with the first key.
    pub(super) top: Top,
    fences: OnceLock<ResidentFences>,
    /// Sketches of the fence pages, if the pages found no room; `None` if sketches are not worth their
    /// memory.
    sketches: OnceLock<Option<Box<Sketches>>>,
    /// The grant for the slice's memory beside its pages, from the cache's reserve, and the count of the
    /// fence pages that sketches can replace.
    accounted: OnceLock<(Grant, Option<CountedFences>)>,
}

impl Resident {
    /// Starts without resident pages. A slice without `top` has one data block. `min`: its first key.
    pub(super) fn of(top: Option<Top>, min: &[u8]) -> Resident {
        let top = top.filter(|top| top.pages() > 1 || top.separator(0) != min).unwrap_or_default();
        Resident {
            filters: OnceLock::new(),
            top,
            fences: OnceLock::new(),
            sketches: OnceLock::new(),
            accounted: OnceLock::new(),
        }
    }

    /// Its fences, if they are resident.
    #[inline]
    pub(super) fn fences(&self) -> Option<&ResidentFences> {
        self.fences.get()
    }

    /// The extent of a key's block by the sketch of a fence page, if the sketch decides. `first`: the page's
    /// first separator.
    pub(super) fn sketched(&self, page: usize, key: &[u8], first: &[u8]) -> Option<Extent> {
        let Sketches { parts, bytes } = self.sketches.get()?.as_deref()?;
        Sketch::of(parts.page(page, *bytes)).find(key, first)
    }

    /// Whether sketches of its fence pages are known not to be worth their memory.
    pub(super) fn has_no_sketches(&self) -> bool {
        self.sketches.get().is_some_and(Option::is_none)
    }

    /// Bytes of the sketches.
    pub(super) fn sketches_bytes(&self, entry: &PackedEntry) -> u64 {
        let sketches = self.sketches.get().and_then(Option::as_deref);
        sketches.map_or(0, |sketches| u64::from(entry.fence_pages) * sketches.bytes as u64)
    }

    /// Charges the `bytes` that the slice takes beside its pages to the cache's reserve.
    pub(super) fn account(&self, bytes: usize, entry: &PackedEntry, budget: &Arc<PageBudget>) {
        self.accounted.get_or_init(|| {
            let counted = has_sketches(entry).then(|| budget.count_fences(entry.fence_pages));
            (budget.cache().reserve().grant(Role::Tables, bytes as u64), counted)
        });
    }

    /// Whether the slice has pages of that rank that are not resident. Filters by column are never resident:
    /// those of the next run of the node replace them.
    pub(super) fn lacks(&self, entry: &PackedEntry, rank: PageRank) -> bool {
        match rank {
            PageRank::Fences | PageRank::NodeFences => entry.fence_pages > 0 && self.fences().is_none(),
            PageRank::UpperFilters | PageRank::LastFilters => {
                let is_by_column = entry.filter.kind == FilterKind::Column;
                entry.filter.pages > 0 && !is_by_column && self.filters.get().is_none()
            }
        }
    }

    /// Whether sketches of fence pages can be made and do not exist yet.
    pub(super) fn can_sketch(&self, entry: &PackedEntry, rank: PageRank) -> bool {
        rank == PageRank::Fences && has_sketches(entry) && self.sketches.get().is_none()
    }

    /// Pins memory for missing pages, or for sketches of them if `may_sketch`. `None` if no page is missing,
    /// or if the budget has no room.
    pub(super) fn begin(
        &self,
        (identity, entry): (TableIdentity, &PackedEntry),
        budget: &PageBudget,
        (rank, may_sketch): (PageRank, bool),
    ) -> Option<Load> {
        if !self.lacks(entry, rank) {
            return None;
        }
        let pages = PagesOf::new(identity, entry, rank);
        let count = (pages.span.bytes / u64::from(pages.page_bytes)) as usize;
        if let Some(pinned) = budget.take(count, pages.page_bytes, (rank, false)) {
            return Some(Load { pages, pinned, count, sketched: None });
        }
        if !may_sketch || !self.can_sketch(entry, rank) {
            return None;
        }
        let pinned = budget.take(count, SKETCH_BYTES[0] as u32, (rank, true))?;
        let first = |page| match self.top.pages() {
            0 => entry.min().into(),
            _ => self.top.separator(page).into(),
        };
        let sketched = Some(Sketcher::new((0..count).map(first).collect()));
        Some(Load { pages, pinned, count, sketched })
    }

    /// Makes filled pages resident.
    pub(super) fn end(&self, load: Load, budget: &Arc<PageBudget>) {
        let Load { pages, pinned, count, sketched } = load;
        // If another thread has set the pages meanwhile, these are released.
        let _is_first = match (pages.kind, sketched) {
            (BlockKind::Fence, Some(sketcher)) => {
                let larger = || budget.take(count, SKETCH_BYTES[1] as u32, (PageRank::Fences, true));
                let sketches = Sketches::of(sketcher, pinned, larger).map(Box::new);
                if sketches.is_none() {
                    self.accounted
                        .get()
                        .and_then(|(_, counted)| counted.as_ref())
                        .iter()
                        .for_each(|one| one.end());
                }
                self.sketches.set(sketches).is_ok()
            }
            (BlockKind::Fence, None) => {
                let fences = ResidentFences::new(pinned, count, pages.page_bytes as usize, budget);
                self.fences.set(fences).is_ok()
            }
            _ => self.filters.set(pinned).is_ok(),
        };
    }

    /// Makes pages of one kind resident that were just written, in the form that the file has.
    pub(super) fn keep(
        &self,
        (identity, entry): (TableIdentity, &PackedEntry),
        written: &[u8],
        budget: &Arc<PageBudget>,
        rank: PageRank,
        otherwise: Otherwise,
    ) {
        match (self.begin((identity, entry), budget, (rank, true)), otherwise) {
            (Some(mut load), _) => {
                let are_sketches = load.is_sketched();
                load.copy(written);
                self.end(load, budget);
                // If sketches are not worth it, the pages may take room that sketches of other pages left.
                if are_sketches && self.has_no_sketches() {
                    self.keep((identity, entry), written, budget, rank, otherwise);
                }
            }
            (None, Otherwise::Leave) => {}
            (None, Otherwise::Offer) => PagesOf::new(identity, entry, rank)
                .each(written, |address, page| budget.cache().insert(address, page)),
        }
    }
}

/// Whether the fence pages of a slice can have sketches: whole pages of trees that are not hashed.
fn has_sketches(entry: &PackedEntry) -> bool {
    entry.fence_page_bytes() as usize == PAGE_BYTES && !entry.tree.keyspace.is_hashed()
}

/// Pages of one kind of a slice that are being loaded.
pub(super) struct Load {
    pages: PagesOf,
    pinned: PinnedPages,
    count: usize,
    /// Builds the sketches, if these become resident in place of the pages.
    sketched: Option<Sketcher>,
}

/// Sketches of all fence pages.
struct Sketches {
    parts: PinnedPages,
    /// Bytes of each sketch.
    bytes: usize,
}

impl Sketches {
    /// `room` is memory for the smaller size; `larger` pins memory for the larger size, if that is better.
    /// `None` if neither size is worth its memory.
    fn of(
        sketcher: Sketcher,
        room: PinnedPages,
        larger: impl FnOnce() -> Option<PinnedPages>,
    ) -> Option<Sketches> {
        let mut parts = room;
        let size = sketcher.best_size(|| match larger() {
            Some(others) => {
                parts = others;
                true
            }
            None => false,
        })?;
        let bytes = SKETCH_BYTES[size];
        for (number, sketch) in sketcher.sketches(size).chunks(bytes).enumerate() {
            parts.page_mut(number, bytes).copy_from_slice(sketch);
        }
        Some(Sketches { parts, bytes })
    }
}

impl Load {
    pub(super) fn file(&self) -> FileName {
        self.pages.identity.file
    }

    /// Whether sketches become resident in place of the pages.
    pub(super) fn is_sketched(&self) -> bool {
        self.sketched.is_some()
    }

    /// The span of the pages in the file.
    pub(super) fn span(&self) -> Span {
        self.pages.span
    }

    fn copy(&mut self, bytes: &[u8]) {
        let (pages, mut index) = (self.pages, 0);
        pages.each(bytes, |_, page| {
            self.put(index, page);
            index += 1;
        });
    }

    /// Keeps a checked page, or its sketch.
    fn put(&mut self, index: usize, page: &[u8]) {
        match &mut self.sketched {
            None => self.pinned.page_mut(index, page.len()).copy_from_slice(page),
            Some(sketcher) => sketcher.add(index, &IndexPage::of(page)),
        }
    }

    /// Checks and keeps all pages, given as they were read.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let mut checked = Ok(());
        self.pages.each(bytes, |address, page| {
            if checked.is_ok() {
                checked = verify_block(address, page).map(|_| ());
            }
        });
        checked?;
        self.copy(bytes);
        Ok(())
    }

    /// Reads, checks and keeps all pages.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub(super) fn read(&mut self, storage: &dyn Storage) -> Result<()> {
        let PagesOf { identity, kind, span, page_bytes } = self.pages;
        let (mut at, mut index) = (span.offset, 0);
        let mut buffer = AlignedBytes::new(LOAD_BYTES.min(span.bytes as usize));
        while at < span.end() {
            let run_bytes = (span.end() - at).min(LOAD_BYTES as u64);
            let run = &mut buffer[..run_bytes as usize];
            fill_exact(storage, identity.file, at, run)?;
            let pages = PagesOf { identity, kind, span: Span { offset: at, bytes: run_bytes }, page_bytes };
            let mut checked = Ok(());
            pages.each(run, |address, page| {
                if checked.is_ok() {
                    checked = verify_block(address, page).map(|_| ());
                }
                if checked.is_ok() {
                    self.put(index, page);
                }
                index += 1;
            });
            checked?;
            at += run_bytes;
        }
        Ok(())
    }
}

/// The pages of one kind of a slice.
#[derive(Clone, Copy)]
struct PagesOf {
    identity: TableIdentity,
    kind: BlockKind,
    span: Span,
    page_bytes: u32,
}

impl PagesOf {
    fn new(identity: TableIdentity, entry: &PackedEntry, rank: PageRank) -> PagesOf {
        let (kind, span, page_bytes) = match rank {
            PageRank::Fences | PageRank::NodeFences => {
                (BlockKind::Fence, entry.fence_span(), entry.fence_page_bytes())
            }
            PageRank::UpperFilters | PageRank::LastFilters => {
                (BlockKind::Filter, entry.filter_span(), entry.filter.page_bytes)
            }
        };
        PagesOf { identity, kind, span, page_bytes }
    }

    /// Calls `take` with each page of these bytes and its address.
    fn each(&self, bytes: &[u8], mut take: impl FnMut(&BlockAddress, &[u8])) {
        if bytes.is_empty() {
            return;
        }
        let TableIdentity { file, uid: file_uid, .. } = self.identity;
        let offsets = (self.span.offset..).step_by(self.page_bytes as usize);
        for (offset, page) in offsets.zip(bytes.chunks(self.page_bytes as usize)) {
            take(&BlockAddress { file, file_uid, offset, bytes: self.page_bytes, kind: self.kind }, page);
        }
    }
}
