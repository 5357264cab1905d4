//! Admission of a merge's output to the cache: as many bytes of output are cached as bytes of input were.
//!
//! A merge that offered no block would empty the cache of the data that it rewrites; a merge that offered
//! every block would fill the cache with data that no reader asks for. So items from cached blocks earn
//! credit, and output blocks spend it: if all of the input was cached, all of the output is; if a ninth was,
//! every ninth block is. Builders and streams call this. One thread.

use crate::base::step::BlockAddress;
use crate::cache::Cache;
use crate::format::table::compressed;

use super::verify::decompress;

/// Unspent credit beyond this is lost.
const CREDIT_BYTES_MAX: u64 = 256 << 10;
/// Approximate overhead of an item in a block, beside key and value.
const ITEM_BYTES: u64 = 8;

/// The cache as a merge sees it.
#[derive(Clone, Debug)]
pub(crate) struct CacheAdmission {
    cache: Cache,
    credit_bytes: u64,
}

impl CacheAdmission {
    pub(crate) fn new(cache: &Cache) -> CacheAdmission {
        CacheAdmission { cache: cache.clone(), credit_bytes: 0 }
    }

    /// Whether a block of the input is cached.
    pub(super) fn holds(&self, address: &BlockAddress) -> bool {
        self.cache.holds(address)
    }

    /// Adds the credit of an item of so many bytes that comes from a cached block.
    pub(super) fn earn(&mut self, key_value_bytes: usize) {
        let earned = self.credit_bytes + key_value_bytes as u64 + ITEM_BYTES;
        self.credit_bytes = earned.min(CREDIT_BYTES_MAX);
    }

    /// Offers a data block of the output, in its stored form, to the cache if the credit suffices.
    pub(super) fn offer(&mut self, address: &BlockAddress, stored: &[u8]) {
        let plain_bytes = compressed::plain_bytes(stored).ok().flatten();
        let bytes = plain_bytes.unwrap_or(stored.len());
        let Some(left) = self.credit_bytes.checked_sub(bytes as u64) else { return };
        self.credit_bytes = left;
        if plain_bytes.is_none() {
            return self.cache.insert(address, stored);
        }
        let mut plain = vec![0; bytes];
        if decompress(address, stored, &mut plain).is_ok() {
            self.cache.insert(address, &plain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::epoch::Epoch;
    use crate::base::id::{FileKind, FileName};
    use crate::base::region::Region;
    use crate::base::step::BlockKind;

    /// As many bytes are offered as were earned, and unspent credit is bounded.
    #[test]
    fn credit_is_earned_and_spent() {
        let mut admission = CacheAdmission::new(&Cache::new(1 << 20, Epoch::new(), Region::heap));
        let mut offered = |earned: u64, blocks: u64| {
            let file = FileName::new(FileKind::Table, earned);
            (0..earned).for_each(|_| admission.earn(1016));
            let address =
                |offset| BlockAddress { file, file_uid: 1, offset, bytes: 4096, kind: BlockKind::Data };
            (0..blocks).for_each(|block| admission.offer(&address(block * 4096), &[0; 4096]));
            (0..blocks).filter(|block| admission.holds(&address(block * 4096))).count()
        };
        assert_eq!([offered(0, 9), offered(4, 9), offered(22, 2), offered(1, 9)], [0, 1, 2, 3]);
        assert_eq!(offered(10_000, 100), 64);
    }
}
