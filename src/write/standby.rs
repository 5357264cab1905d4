//! The next log and write buffer, made before they are needed.

use crate::base::reserve::Grant;
use crate::base::sync::Arc;
use crate::memtable::{Generation, Inserter};
use crate::wal::LogFramer;

/// A log and a generation.
pub(crate) struct MemtableAndLog {
    pub(crate) log: LogFramer,
    pub(crate) generation: Arc<Generation>,
    pub(crate) inserter: Inserter,
}

/// An empty generation made ready in the background.
pub(crate) struct StandbyMemtable {
    pub(crate) generation: Arc<Generation>,
    pub(crate) inserter: Inserter,
    /// Grant for the generation's memory, if that is outside the three write buffers of the budget.
    pub(crate) grant: Option<Grant>,
}
