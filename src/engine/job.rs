//! Jobs of worker threads.

use crate::io::env::Turn;

/// One kind of background work, done in turns; `S` is the layer of the engine that it works on.
pub(in crate::engine) trait Job<S: ?Sized>: Send {
    /// Whether a turn may hold versions or tables that have no other holder any more.
    const HOLDS_TABLES: bool = true;

    fn turn(&mut self, of: &S) -> Turn;
    /// Abandons the work under way.
    fn stop(&mut self, of: &S);
}
