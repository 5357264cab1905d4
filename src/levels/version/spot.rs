//! The position of a table in its tree. Plain values.

/// A run of a level, by its number; the number is 0 in level 0, where each table is a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub(crate) level: usize,
    pub(crate) run: u64,
}

impl Spot {
    /// The spot of flushed tables.
    pub(crate) const LEVEL_0: Spot = Spot { level: 0, run: 0 };
}
