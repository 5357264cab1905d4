//! Index pages: fences or a model, whichever says for less which data block must hold a key.
//!
//! Pages of both kinds stand side by side in a slice; the top block has the first separator of each. Readers
//! go through this and know no kind. A model's page may have empty blocks, which have no extent: they are
//! passed over here, so that a number of a block names one with items. Writing is `fence_build`'s and
//! `learned_build`'s. Pure.

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

/// What the header of a page says, for readers that keep it beside the page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexShape {
    Fences(FenceShape),
    Learned(LearnedShape),
}

/// The alphabets of a model, for readers that have memory for a search of fewer steps.
pub(crate) struct ModelTables(DigitTables);

impl ModelTables {
    /// `None` of a page without alphabets.
    pub(crate) fn of(page: &IndexPage<'_>) -> Option<ModelTables> {
        page.alphabets().map(|alphabets| ModelTables(DigitTables::of(alphabets)))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl<'a> IndexPage<'a> {
    /// A page that was checked.
    pub(crate) fn of(page: &'a [u8]) -> IndexPage<'a> {
        match LearnedPage::is_learned(page) {
            true => IndexPage::Learned(LearnedPage::of(page)),
            false => IndexPage::Fences(FencePage::of(page)),
        }
    }

    /// The used part of a page of fences that was checked.
    #[inline]
    pub(crate) fn of_used(bytes: &'a [u8]) -> IndexPage<'a> {
        IndexPage::Fences(FencePage::of_used(bytes))
    }

    /// The page that has this shape. `samples`: as [`IndexPage::samples`] gave them. `tables`: of a model, if
    /// they are at hand.
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

    /// Whether it is of a model with alphabets.
    pub(crate) fn has_alphabets(&self) -> bool {
        self.alphabets().is_some()
    }

    /// Whether they are those of another page.
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

    /// Checks everything the accessors rest on. The checksum is the caller's.
    pub(crate) fn check(page: &'a [u8]) -> Result<IndexPage<'a>, Malformed> {
        match LearnedPage::is_learned(page) {
            true => LearnedPage::check(page).map(IndexPage::Learned),
            false => FencePage::check(page).map(IndexPage::Fences),
        }
    }

    /// Some of what a search compares with, for a reader that keeps it beside the page.
    pub(crate) fn samples(&self) -> Vec<u64> {
        match self {
            IndexPage::Fences(page) => page.samples().collect(),
            IndexPage::Learned(page) => page.samples().collect(),
        }
    }

    /// Where [`IndexPage::find_in`] looks for a key: a line of fences, or the block that a model names.
    /// `first`: the page's separator in the top block.
    #[inline]
    pub(crate) fn line_of(&self, key: &[u8], first: &[u8]) -> usize {
        match self {
            IndexPage::Fences(page) => page.line_of(key, first),
            IndexPage::Learned(page) => page.find(key, first),
        }
    }

    /// The place in the page that will be looked at for a line.
    #[inline]
    pub(crate) fn line_at(&self, line: usize) -> usize {
        match self {
            IndexPage::Fences(page) => page.line_at(line),
            IndexPage::Learned(page) => page.extent_at(line),
        }
    }

    /// The blocks that a line may lead to.
    #[inline]
    pub(crate) fn blocks_of(&self, key: &[u8], line: usize) -> RangeInclusive<usize> {
        match self {
            IndexPage::Fences(page) => page.blocks_of(key, line),
            IndexPage::Learned(_) => line..=line,
        }
    }

    /// The block of this page that must hold `key` if the slice does. In a page with empty blocks a key that
    /// would be in one is led to the block before it.
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

    /// Numbers of blocks are below it.
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

    /// The block after another one, if the page has it.
    #[inline]
    pub(crate) fn after(&self, index: usize) -> Option<usize> {
        match self {
            IndexPage::Fences(page) => Some(index + 1).filter(|index| *index < page.blocks()),
            IndexPage::Learned(page) => page.from(index + 1),
        }
    }

    /// The block before another one, if the page has it.
    #[inline]
    pub(crate) fn before(&self, index: usize) -> Option<usize> {
        match self {
            IndexPage::Fences(_) => index.checked_sub(1),
            IndexPage::Learned(page) => index.checked_sub(1).map(|index| page.at_or_before(index)),
        }
    }

    /// All blocks in order.
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

    /// Whether a block has a put of the page's separator for it and nothing else.
    #[inline]
    pub(crate) fn is_alone(&self, index: usize) -> bool {
        match self {
            IndexPage::Fences(page) => page.is_alone(index),
            IndexPage::Learned(_) => false,
        }
    }

    /// Whether a block that is alone has that key.
    #[inline]
    pub(crate) fn is_separator(&self, index: usize, key: &[u8], first: &[u8]) -> bool {
        match self {
            IndexPage::Fences(page) => page.is_separator(index, key, first),
            IndexPage::Learned(_) => false,
        }
    }
}
