//! Progress of the close of a store, shared by all callers of `close` (`open::close`).

use crate::base::error::Result;
use crate::base::sync::{Event, Mutex};

/// Progress of `close`.
#[derive(Debug, Default)]
pub(super) enum CloseProgress {
    #[default]
    Open,
    UnderWay,
    Closed(Result<()>),
}

/// The one close of a store.
#[derive(Debug, Default)]
pub(super) struct Close {
    pub(super) state: Mutex<CloseProgress>,
    /// Moves when there is a result.
    pub(super) ended: Event,
}
