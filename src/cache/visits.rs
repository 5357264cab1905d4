//! CLOCK counters that a hit sets, by kind of block.

use crate::base::step::BlockKind;

/// The CLOCK counter of a data block at a hit. Filter and fence pages, which are searched before data, get
/// four times as much.
///
/// The counters are large, because the hand goes round often where the working set exceeds the cache and most
/// blocks are read once. A block hit a few times a second must survive some tenths of a second without a hit.
pub(super) const DATA_VISITS: u8 = 7;
const PAGE_VISITS: u8 = 4 * DATA_VISITS;

/// See [`DATA_VISITS`].
#[inline]
pub(super) fn visits(kind: BlockKind) -> u8 {
    match kind {
        BlockKind::Data => DATA_VISITS,
        BlockKind::Filter | BlockKind::Fence => PAGE_VISITS,
    }
}
