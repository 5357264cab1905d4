//! Recovery counters, for the statistics.

/// The counters of one recovery: items and bytes replayed, bytes discarded, and the time of the opening.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) replayed_items: u64,
    pub(crate) replayed_bytes: u64,
    pub(crate) discarded_bytes: u64,
    pub(crate) open_ns: u64,
}
