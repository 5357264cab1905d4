//! Where an item lies.

use super::arena::Offset;

/// An item's place in the generation it was found in: plain numbers, to be used with that one only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(super) leaf: Offset,
    pub(super) entry: Offset,
    pub(super) slot: u8,
}
