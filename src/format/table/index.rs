//! Index pages: fences, or a model if that takes less. Both give the data block that must hold a key.
//!
//! Pages of both kinds may be adjacent in a slice; the top block has the first separator of each. Readers use
//! this module and do not depend on the kind. A learned page may have empty blocks, which have no extent.
//! This module skips them, so a block's number always refers to a block with items. Writing is in
//! `fence_build` and `learned_build`. Pure.

use std::ops::RangeInclusive;

use crate::base::codec::Malformed;
use crate::learn::alphabet::{Alphabets, DigitTables};

use super::fence::{Extent, FencePage, FenceShape};
use super::learned::{LearnedBeside, LearnedPage, LearnedShape, PageCode};

/// A checked page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexPage<'a> {
    Fences(FencePage<'a>),
    Learned(LearnedPage<'a>),
}

/// The header's fields of a page, for readers that keep them beside the page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexShape {
    Fences(FenceShape),
    Learned(LearnedShape),
}

/// The alphabets of a model as tables, for readers that have memory for a search of fewer steps.
pub(crate) struct ModelTables(DigitTables);

impl ModelTables {
    /// `None` for a page without alphabets.
    pub(crate) fn of(page: &IndexPage<'_>) -> Option<ModelTables> {
        page.alphabets().map(|alphabets| ModelTables(DigitTables::of(alphabets)))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl<'a> IndexPage<'a> {
    /// Parses a page that was checked before.
    pub(crate) fn of(page: &'a [u8]) -> IndexPage<'a> {
        match LearnedPage::is_learned(page) {
            true => IndexPage::Learned(LearnedPage::of(page)),
            false => IndexPage::Fences(FencePage::of(page)),
        }
    }

    /// Parses the used bytes of a page of fences that was checked before.
    #[inline]
    pub(crate) fn of_used(bytes: &'a [u8]) -> IndexPage<'a> {
        IndexPage::Fences(FencePage::of_used(bytes))
    }

    /// The page with this shape. `samples`: the result of [`IndexPage::samples`]. `tables`: the model's
    /// tables, if they are in memory.
    #[inline]
    pub(crate) fn shaped(
        bytes: &'a [u8],
        shape: IndexShape,
        samples: &'a [u64],
        tables: Option<&'a ModelTables>,
    ) -> IndexPage<'a> {
        match shape {
            IndexShape::Fences(shape) => IndexPage::Fences(FencePage::shaped(bytes, shape, samples)),
            IndexShape::Learned(shape) => {
                let beside = LearnedBeside { samples, tables: tables.map(|tables| &tables.0) };
                IndexPage::Learned(LearnedPage::shaped(bytes, shape, beside))
            }
        }
    }

    /// Whether the page is learned and has alphabets.
    pub(crate) fn has_alphabets(&self) -> bool {
        self.alphabets().is_some()
    }

    /// Whether the page has the same alphabets as another page.
    pub(crate) fn has_alphabets_of(&self, other: &IndexPage<'_>) -> bool {
        let pair = self.alphabets().zip(other.alphabets());
        pair.is_some_and(|(own, others)| own.is_like(&others))
    }

    fn alphabets(&self) -> Option<Alphabets<'a>> {
        match self {
            IndexPage::Fences(_) => None,
            IndexPage::Learned(page) => (page.code() != PageCode::Head).then(|| page.alphabets()),
        }
    }

    pub(crate) fn shape(&self) -> IndexShape {
        match self {
            IndexPage::Fences(page) => IndexShape::Fences(page.shape()),
            IndexPage::Learned(page) => IndexShape::Learned(page.shape()),
        }
    }

    /// Checks all properties that the accessors rely on, but not the checksum, which the caller checks.
    pub(crate) fn check(page: &'a [u8]) -> Result<IndexPage<'a>, Malformed> {
        match LearnedPage::is_learned(page) {
            true => LearnedPage::check(page).map(IndexPage::Learned),
            false => FencePage::check(page).map(IndexPage::Fences),
        }
    }

    /// Some of the numbers that a search compares, for a reader that keeps them beside the page.
    pub(crate) fn samples(&self) -> Vec<u64> {
        match self {
            IndexPage::Fences(page) => page.samples().collect(),
            IndexPage::Learned(page) => page.samples().collect(),
        }
    }

    /// The position at which [`IndexPage::find_in`] searches for a key: a line of fences, or the block that a
    /// model predicts. `first`: the page's separator in the top block.
    #[inline]
    pub(crate) fn line_of(&self, key: &[u8], first: &[u8]) -> usize {
        match self {
            IndexPage::Fences(page) => page.line_of(key, first),
            IndexPage::Learned(page) => page.find(key, first),
        }
    }

    /// The offset in the page that a search in this line reads.
    #[inline]
    pub(crate) fn line_at(&self, line: usize) -> usize {
        match self {
            IndexPage::Fences(page) => page.line_at(line),
            IndexPage::Learned(page) => page.extent_at(line),
        }
    }

    /// The blocks that a search in this line may return.
    #[inline]
    pub(crate) fn blocks_of(&self, key: &[u8], line: usize) -> RangeInclusive<usize> {
        match self {
            IndexPage::Fences(page) => page.blocks_of(key, line),
            IndexPage::Learned(_) => line..=line,
        }
    }

    /// The block of this page that must hold `key` if the slice does. If that block is empty, the block
    /// before it.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], first: &[u8]) -> usize {
        self.find_in(key, first, self.line_of(key, first))
    }

    #[inline]
    pub(crate) fn find_in(&self, key: &[u8], first: &[u8], line: usize) -> usize {
        match self {
            IndexPage::Fences(page) => page.find_in(key, first, line),
            IndexPage::Learned(page) => page.at_or_before(line),
        }
    }

    /// Upper bound of the blocks' numbers, exclusive.
    #[inline]
    pub(crate) fn ends(&self) -> usize {
        match self {
            IndexPage::Fences(page) => page.blocks(),
            IndexPage::Learned(page) => page.blocks(),
        }
    }

    /// The last block.
    pub(crate) fn last(&self) -> usize {
        self.ends() - 1
    }

    /// The next block, if the page has one.
    #[inline]
    pub(crate) fn after(&self, index: usize) -> Option<usize> {
        match self {
            IndexPage::Fences(page) => Some(index + 1).filter(|index| *index < page.blocks()),
            IndexPage::Learned(page) => page.from(index + 1),
        }
    }

    /// The previous block, if the page has one.
    #[inline]
    pub(crate) fn before(&self, index: usize) -> Option<usize> {
        match self {
            IndexPage::Fences(_) => index.checked_sub(1),
            IndexPage::Learned(page) => index.checked_sub(1).map(|index| page.at_or_before(index)),
        }
    }

    /// All blocks, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = usize> + use<'a> {
        let page = *self;
        std::iter::successors(Some(0), move |index| page.after(*index))
    }

    #[inline]
    pub(crate) fn extent(&self, index: usize) -> Extent {
        match self {
            IndexPage::Fences(page) => page.extent(index),
            IndexPage::Learned(page) => page.extent(index),
        }
    }

    /// Whether a block holds one item, a put, whose key is the block's separator.
    #[inline]
    pub(crate) fn is_alone(&self, index: usize) -> bool {
        match self {
            IndexPage::Fences(page) => page.is_alone(index),
            IndexPage::Learned(_) => false,
        }
    }

    /// Whether `key` is the separator of a block for which `is_alone` is true.
    #[inline]
    pub(crate) fn is_separator(&self, index: usize, key: &[u8], first: &[u8]) -> bool {
        match self {
            IndexPage::Fences(page) => page.is_separator(index, key, first),
            IndexPage::Learned(_) => false,
        }
    }
}
