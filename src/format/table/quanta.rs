//! Quanta of places: equal parts of the space of places (`base::place`). The data blocks of a slice of a
//! hashed keyspace begin at bounds of quanta, so that fences are small numbers (`fence`). Pure.
//!
//! Places are evenly distributed, so a block of n items has about m quanta, with a deviation of m/√n. If m is
//! 20 √n, nearly all blocks are within 127 of the mean, so one byte a block gives its end. With few items a
//! block, too many blocks would share a quantum; such blocks have more quanta, and two bytes each.

/// Quanta of a block of n items, divided by √n (see the module's head).
const QUANTA_A_ROOT: f64 = 20.0;
/// Blocks of fewer items have [`QUANTA_OF_FEW`] quanta.
const FEW_ITEMS: usize = 4;
const QUANTA_OF_FEW: f64 = 600.0;

/// The number of quanta that the space of places is divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quanta {
    count: u64,
}

impl Quanta {
    pub(super) fn new(count: u64) -> Quanta {
        Quanta { count }
    }

    /// The quanta with which a block of this many items has the wanted number of them. The block begins at
    /// the first of these heads of stored keys and ends before the second.
    pub(super) fn of_block(items: usize, [start, behind]: [u64; 2]) -> Quanta {
        let wanted = if items < FEW_ITEMS { QUANTA_OF_FEW } else { QUANTA_A_ROOT * (items as f64).sqrt() };
        let share = behind.saturating_sub(start).max(1) as f64 / 2f64.powi(64);
        // The cast saturates.
        Quanta { count: (wanted / share) as u64 }
    }

    pub(super) fn count(self) -> u64 {
        self.count
    }

    /// The quantum of a stored key with this head. Greater heads are in the same quantum or in later ones.
    #[inline]
    pub(super) fn of(self, head: u64) -> u64 {
        ((u128::from(head) * u128::from(self.count)) >> 64) as u64
    }
}
