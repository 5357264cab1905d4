//! The position of an item.

use super::arena::Offset;

/// An item's position in its generation: plain numbers, valid for that generation only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ItemPosition {
    pub(super) leaf: Offset,
    pub(super) entry: Offset,
    pub(super) slot: u8,
}
