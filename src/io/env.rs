//! Clock, randomness, threads and memory as arguments, and [`Env`], which carries all of them.
//!
//! Background work is a [`Worker`]: a value that does one bounded piece of work per turn and returns when its
//! next turn is due. In production a thread drives each worker. In the simulator a scheduler picks the next
//! worker, so one thread runs the whole store.

use crate::base::error::{Error, Result};
use crate::base::region::Region;
use crate::base::sync::{Arc, Event};

use super::storage::Storage;

/// A worker's answer after a turn: when its next turn is due.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Another turn, soon.
    Again,
    /// A turn once the event's count differs from `seen`, or after `timeout_ns`.
    Idle { event: Arc<Event>, seen: u64, timeout_ns: Option<u64> },
    /// No more turns.
    Done,
}

/// Background work. A turn blocks on nothing but the device.
pub(crate) trait Worker: Send {
    fn turn(&mut self) -> Turn;
}

/// Threads, real or simulated.
pub(crate) trait Threads: Send + Sync {
    /// Starts a worker. Fails with `Io` if the system cannot start a thread.
    fn spawn(&self, name: &'static str, worker: Box<dyn Worker>) -> Result<()>;

    /// Waits until the event's count differs from `seen`, or for `timeout_ns`. May return early.
    fn wait(&self, event: &Event, seen: u64, timeout_ns: Option<u64>);

    /// Whether the calling thread drives a worker. If so, [`Threads::join`] on another thread waits for it.
    fn is_worker(&self) -> bool;

    /// Waits until every worker has returned [`Turn::Done`] and is dropped.
    fn join(&self);
}

/// Time.
pub(crate) trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment; never goes back.
    fn now_ns(&self) -> u64;

    /// Seconds since 1970 by the wall clock. Only the age of deletes uses this clock, because that age must
    /// outlive the process. Setting the clock makes merges early or late, never wrong.
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
    /// As [`Memory::region`], but no memory is an error. `what` names the purpose in that error.
    fn region_for(&self, what: &str, bytes: usize) -> Result<Region> {
        self.region(bytes).ok_or_else(|| Error::Io {
            operation: "get memory for",
            file: what.to_owned(),
            offset: 0,
            source: Arc::new(std::io::ErrorKind::OutOfMemory.into()),
        })
    }

    /// Zeroed memory, in huge pages where the system has them; `None` if there is no memory.
    fn region(&self, bytes: usize) -> Option<Region>;

    /// Zeroed memory that the kernel zeroes again in a forked process; `None` where the system has no such
    /// memory.
    fn region_wiped_on_fork(&self, _bytes: usize) -> Option<Region> {
        None
    }
}

/// All outside services that a store needs.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) threads: Arc<dyn Threads>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) memory: Arc<dyn Memory>,
}
