//! Clock, randomness, threads and memory as arguments, and [`Env`], which carries all of them.
//!
//! Work that runs beside the callers is a [`Worker`]: a value that does one bounded piece at each turn and
//! says when it wants the next. A thread drives it in production; in the simulator a scheduler picks who goes
//! next, so one thread runs the whole store.

use crate::base::error::{Error, Result};
use crate::base::region::Region;
use crate::base::sync::{Arc, Event};

use super::storage::Storage;

/// What a worker wants after a turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Another turn, soon.
    Again,
    /// A turn once the event's count differs from `seen`, or after `timeout_ns`.
    Idle { event: Arc<Event>, seen: u64, timeout_ns: Option<u64> },
    /// No more turns.
    Done,
}

/// Work that runs beside the callers. It never waits inside a turn but for the device.
pub(crate) trait Worker: Send {
    fn turn(&mut self) -> Turn;
}

/// Threads, real or simulated.
pub(crate) trait Threads: Send + Sync {
    /// Starts a worker. Fails with `Io` if the system has no thread to give.
    fn spawn(&self, name: &'static str, worker: Box<dyn Worker>) -> Result<()>;

    /// Waits until the event's count differs from `seen`, or for `timeout_ns`. May return early.
    fn wait(&self, event: &Event, seen: u64, timeout_ns: Option<u64>);

    /// Whether the calling thread is one that drives a worker: then [`Threads::join`] on another thread waits
    /// for it.
    fn is_worker(&self) -> bool;

    /// Waits until every worker has returned [`Turn::Done`] and is dropped.
    fn join(&self);
}

/// Time.
pub(crate) trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment; never goes back.
    fn now_ns(&self) -> u64;

    /// Seconds since 1970 by the wall clock. Only how old deletes are is told by it, which has to outlive the
    /// process: a clock that is set makes merges early or late, and nothing wrong.
    fn unix_s(&self) -> u64;
}

/// Randomness for ids and secrets.
pub(crate) trait Random: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);

    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Memory for arenas and cache.
pub(crate) trait Memory: Send + Sync {
    /// As [`Memory::region`]; having none is an error that says what it was for.
    fn region_for(&self, what: &str, bytes: usize) -> Result<Region> {
        self.region(bytes).ok_or_else(|| Error::Io {
            operation: "get memory for",
            file: what.to_owned(),
            offset: 0,
            source: Arc::new(std::io::ErrorKind::OutOfMemory.into()),
        })
    }

    /// Zeroed memory, in huge pages where the system gives them; `None` if there is none.
    fn region(&self, bytes: usize) -> Option<Region>;

    /// Zeroed memory that a process forked off this one finds zeroed again; `None` where the system has no
    /// such memory.
    fn region_wiped_on_fork(&self, _bytes: usize) -> Option<Region> {
        None
    }
}

/// Everything a store needs from outside.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) threads: Arc<dyn Threads>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) memory: Arc<dyn Memory>,
}
