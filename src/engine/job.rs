//! What a worker does, in turns.

use crate::io::env::Turn;

/// One kind of work of a thread of the store, on what it needs of the store.
pub(in crate::engine) trait Job<S: ?Sized>: Send {
    /// Whether a turn may hold versions or tables that nothing else holds any more.
    const HOLDS_TABLES: bool = true;

    fn turn(&mut self, of: &S) -> Turn;
    /// Gives up what is under way.
    fn stop(&mut self, of: &S);
}
