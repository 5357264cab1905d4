//! Counts of a recovery, for the statistics.

/// What opening the store found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) replayed_items: u64,
    pub(crate) replayed_bytes: u64,
    pub(crate) discarded_bytes: u64,
    pub(crate) open_ns: u64,
}
