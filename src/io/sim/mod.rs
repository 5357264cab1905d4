//! A simulated machine: disk, threads, clock and randomness from a seed.
//!
//! For tests of the store: a whole store runs on it in one thread. Seeds decide every step, so a failure can
//! be replayed from its seed. It is not a model of performance. A release build without the feature `sim` has
//! none of it. Everything here is deterministic: ordered maps, no addresses, no real time. One thread drives
//! one simulated machine; the locks exist only because the traits require them.
//!
//! - `disk`: a directory that keeps durable state apart from unsynced state, and crashes. `state`: the disk's
//!   data. `inode`: one file. `pages`: sparse bytes. `fault`: planned failures and stops, and the log of
//!   calls.
//! - `reader`: reads in flight that end in any order.
//! - `threads`: workers that take turns, and the clock they share. `random`: the generator of all choices.
//!
//! ```text
//! let disk = SimDisk::new(seed);                      run the store on sim_env(&disk, seed)
//! disk.plan(FaultPlan::stop(Stop::Before, 17));            ... its 18th call and every one after it fails
//! let after = disk.fork();                            a copy to crash, as often as needed
//! after.crash(Crash::Power, other_seed);              reopen the store on sim_env(&after, seed)
//! ```

mod disk;
mod fault;
mod inode;
mod pages;
mod random;
mod reader;
mod state;
mod threads;

use crate::base::region::Region;
use crate::base::sync::Arc;

use super::env::{Env, Memory};

pub(crate) use disk::SimDisk;
#[cfg(test)]
pub(crate) use fault::DiskCall;
pub use fault::{FailedSync, Failure, Operation, Repeat, Stop};
pub(crate) use fault::{FaultPlan, Select};
pub(crate) use random::{SimRandom, SimRng};
pub use state::Crash;
#[cfg(test)]
pub(crate) use state::PowerCut;
#[cfg(test)]
pub(crate) use threads::SimClock;
pub(crate) use threads::SimThreads;

/// Memory from the heap.
#[derive(Debug)]
pub(crate) struct SimMemory;

impl Memory for SimMemory {
    fn region(&self, bytes: usize) -> Option<Region> {
        Region::heap(bytes)
    }
}

/// A simulated process on `disk`, and its scheduler.
pub(crate) fn sim_env(disk: &Arc<SimDisk>, seed: u64) -> (Env, Arc<SimThreads>) {
    disk.demand_alignment();
    let mut rng = SimRng::new(seed);
    let threads = Arc::new(SimThreads::new(rng.u64()));
    let env = Env {
        storage: disk.clone(),
        threads: threads.clone(),
        clock: threads.clock(),
        random: Arc::new(SimRandom::new(rng.u64())),
        memory: Arc::new(SimMemory),
    };
    (env, threads)
}
