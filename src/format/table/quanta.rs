//! Quanta of places: equal parts of the space of places, at whose bounds the data blocks of a slice of a
//! hashed keyspace begin, so that its fences are small numbers (`fence`). Pure.
//!
//! Places are spread evenly, so the number of quanta in a block of n items is about m, with a deviation of
//! m/√n. With m = 20 √n nearly all blocks lie within 127 of the mean, so a byte each says where they end. Of
//! few items too many blocks would share a quantum then: they have more of them, and two bytes a block.

/// Of a block of one item. See above.
const QUANTA_A_ROOT: f64 = 20.0;
/// Blocks of fewer items have so many quanta.
const FEW_ITEMS: usize = 4;
const QUANTA_OF_FEW: f64 = 600.0;

/// A number of quanta that all places are divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quanta {
    count: u64,
}

impl Quanta {
    pub(super) fn new(count: u64) -> Quanta {
        Quanta { count }
    }

    /// As few as one of so many items should have, a block which begins at the first of these heads of
    /// stored keys and ends before the second.
    pub(super) fn of_block(items: usize, [start, behind]: [u64; 2]) -> Quanta {
        let wanted = if items < FEW_ITEMS { QUANTA_OF_FEW } else { QUANTA_A_ROOT * (items as f64).sqrt() };
        let share = behind.saturating_sub(start).max(1) as f64 / 2f64.powi(64);
        // What is more than a number holds is the greatest number.
        Quanta { count: (wanted / share) as u64 }
    }

    pub(super) fn count(self) -> u64 {
        self.count
    }

    /// The quantum of a stored key with this head. Greater heads are of the same quantum or of later ones.
    #[inline]
    pub(super) fn of(self, head: u64) -> u64 {
        ((u128::from(head) * u128::from(self.count)) >> 64) as u64
    }
}
