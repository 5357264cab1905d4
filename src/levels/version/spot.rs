//! Where a table is in its tree. Plain values.

/// A run of a level, by its number: 0 in level 0, where each table is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub(crate) level: usize,
    pub(crate) run: u64,
}

impl Spot {
    /// Where flushes write.
    pub(crate) const LEVEL_0: Spot = Spot { level: 0, run: 0 };
}
