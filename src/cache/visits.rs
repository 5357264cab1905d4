//! How many visits of the CLOCK hand a block outlives.

use crate::base::step::BlockKind;

/// Visits of the hand that a block outlives once it was hit: data, and what is searched before it.
///
/// Many, for the hand goes round often where much more is asked for than fits, most of it once: what is hit a
/// few times in a second has to outlive some tenths of one without a hit.
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
