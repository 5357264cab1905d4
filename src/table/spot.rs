//! Steps from block to block of a slice by number, for readers that look at blocks under a pin.
//!
//! This is no cursor: it stands at no item and reads no block. The caller supplies a fence page that is not
//! resident, if it has the page in the cache. `read` uses this for short ranges. Immutable, for any thread.

use crate::base::step::{BlockAddress, Direction};
use crate::format::table::index::IndexPage;

use super::search::{DataBlock, FenceLine, TableReader};

/// A data block, by its fence page and its index there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockSpot {
    page: u32,
    index: u32,
}

/// The caller cannot supply the fence page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MissingPage;

impl BlockSpot {
    fn new(page: usize, index: usize) -> BlockSpot {
        BlockSpot { page: page as u32, index: index as u32 }
    }
}

impl TableReader {
    /// The block that holds `key` if one does; `line` is the answer of [`TableReader::prefetch_fence`].
    #[inline]
    pub(crate) fn spot_in(&self, key: &[u8], line: FenceLine) -> BlockSpot {
        let (page, index) = self.index_in(key, line);
        BlockSpot::new(page, index)
    }

    /// As [`TableReader::spot_in`], also if the fences are not resident.
    pub(crate) fn spot_of<'t>(
        &'t self,
        key: &[u8],
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]>,
    ) -> Result<BlockSpot, MissingPage> {
        let page = self.fence_page_of(key);
        let index = match self.page_at(page, pages)? {
            Some(fences) => fences.find(key, self.first_separator(page)),
            None => 0,
        };
        Ok(BlockSpot::new(page, index))
    }

    /// The first block in that direction.
    pub(crate) fn first_spot<'t>(
        &'t self,
        direction: Direction,
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]>,
    ) -> Result<BlockSpot, MissingPage> {
        match direction {
            Direction::Forward => Ok(BlockSpot::new(0, 0)),
            Direction::Backward => self.last_of(self.fence_pages() - 1, pages),
        }
    }

    /// The block after `spot` in that direction; `None` behind the last one.
    pub(crate) fn spot_after<'t>(
        &'t self,
        spot: BlockSpot,
        direction: Direction,
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]>,
    ) -> Result<Option<BlockSpot>, MissingPage> {
        let (page, index) = (spot.page as usize, spot.index as usize);
        match direction {
            Direction::Forward => {
                if let Some(index) = self.page_at(page, pages)?.and_then(|fences| fences.after(index)) {
                    return Ok(Some(BlockSpot::new(page, index)));
                }
                Ok((page + 1 < self.fence_pages()).then(|| BlockSpot::new(page + 1, 0)))
            }
            Direction::Backward => match (self.before(spot, &pages)?, page.checked_sub(1)) {
                (Some(index), _) => Ok(Some(BlockSpot::new(page, index))),
                (None, Some(page)) => self.last_of(page, pages).map(Some),
                (None, None) => Ok(None),
            },
        }
    }

    /// The address of the block, and its frame hint, if it has one.
    #[inline]
    pub(crate) fn block_at<'t>(
        &'t self,
        spot: BlockSpot,
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]>,
    ) -> Result<DataBlock, MissingPage> {
        let (page, index) = (spot.page as usize, spot.index as usize);
        let fences = self.page_at(page, pages)?;
        Ok(self.data_block(fences.as_ref(), page, index))
    }

    /// The share of the slice's data before the block that must hold `key`, and the share up to the end of
    /// that block. If the fence page is not at hand, both are estimated as if all fence pages had equal
    /// shares.
    pub(crate) fn share_up_to<'t>(
        &'t self,
        key: &[u8],
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]> + Copy,
    ) -> (f64, f64) {
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let data = self.entry().data();
        match self.spot_of(key, pages).and_then(|spot| self.block_at(spot, pages)) {
            Ok(block) => {
                let before = block.extent.offset.saturating_sub(data.offset);
                (share(before, data.bytes), share(before + u64::from(block.extent.bytes), data.bytes))
            }
            Err(MissingPage) => {
                let (page, count) = (self.fence_page_of(key) as u64, self.fence_pages() as u64);
                (share(page, count), share(page + 1, count))
            }
        }
    }

    fn last_of<'t>(
        &'t self,
        page: usize,
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]>,
    ) -> Result<BlockSpot, MissingPage> {
        let last = self.page_at(page, pages)?.map_or(0, |fences| fences.last());
        Ok(BlockSpot::new(page, last))
    }

    /// The index of the block before another one in its page. Only learned pages have to be at hand.
    fn before<'t>(
        &'t self,
        spot: BlockSpot,
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]>,
    ) -> Result<Option<usize>, MissingPage> {
        match spot.index {
            0 => Ok(None),
            index => {
                Ok(self.page_at(spot.page as usize, pages)?.and_then(|fences| fences.before(index as usize)))
            }
        }
    }

    /// A fence page, resident or not; `None` if the slice has one block.
    #[inline]
    fn page_at<'t>(
        &'t self,
        page: usize,
        pages: impl Fn(&BlockAddress) -> Option<&'t [u8]>,
    ) -> Result<Option<IndexPage<'t>>, MissingPage> {
        match self.fence_page(page, None) {
            Ok(fences) => Ok(fences),
            Err(address) => {
                let bytes = pages(&address).ok_or(MissingPage)?;
                // The fences may have become resident meanwhile.
                self.fence_page(page, Some(bytes)).map_err(|_| MissingPage)
            }
        }
    }
}
