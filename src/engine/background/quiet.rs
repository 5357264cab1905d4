//! Idle memory of write buffers, flushes and merges, lent to the block cache: its annex.
//!
//! A user of such memory first takes a [`MemoryUse`], which closes the user's part of the annex for as long
//! as it lives. A part opens again when it has had no use for a while. Any thread.
//!
//! 1. No work uses the open part of the annex, except memory that readers held when it was to be closed.
//! 2. Taking a use never waits: a late close is retried at each look.

use crate::base::sync::{Arc, Event, Mutex};
use crate::cache::{AnnexClosing, Cache};

use crate::engine::budget::Budget;

/// Time without a use, per byte, before the cache gets the memory. It is about the time to fill the memory
/// from the device: that work is lost if the memory is needed again right then.
const REST_NS_PER_BYTE: u64 = 10;
const REST_NS_MAX: u64 = 10_000_000_000;

/// The owner of a part of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Whose {
    /// Memory of sealed generations, and of the flushes that make tables of them.
    Flushes,
    Merges,
}

const ALL: [Whose; 2] = [Whose::Flushes, Whose::Merges];

/// See the module.
pub(in crate::engine) struct Quiet {
    cache: Cache,
    /// Bytes of the annex that are closed for each part.
    bytes: [u64; 2],
    /// Work memory in each part.
    work_bytes: u64,
    rest_ns: u64,
    parts: Mutex<[LoanState; 2]>,
    /// Moves when a use ends: a worker has to look.
    moved: Arc<Event>,
}

#[derive(Clone, Copy, Default, Debug)]
struct LoanState {
    uses: u32,
    /// When a look first saw the part without uses.
    rests_from_ns: Option<u64>,
    is_lent: bool,
}

/// A use of a part of the memory, for as long as this lives.
pub(in crate::engine) struct MemoryUse {
    quiet: Arc<Quiet>,
    whose: Whose,
}

/// Memory of other roles that the cache has now, in bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Lent {
    pub(in crate::engine) generations_bytes: u64,
    pub(in crate::engine) work_bytes: u64,
}

impl Quiet {
    pub(in crate::engine) fn new(cache: &Cache, budget: &Budget, moved: &Arc<Event>) -> Arc<Quiet> {
        Arc::new(Quiet {
            cache: cache.clone(),
            bytes: [budget.flush_annex_bytes(), budget.merges_annex_bytes()],
            work_bytes: budget.merges_bytes(),
            rest_ns: budget.annex_bytes.saturating_mul(REST_NS_PER_BYTE).min(REST_NS_MAX),
            parts: Mutex::default(),
            moved: Arc::clone(moved),
        })
    }

    /// Takes a part back from the cache, if it is lent.
    pub(in crate::engine) fn use_memory(self: &Arc<Quiet>, whose: Whose) -> MemoryUse {
        let mut parts = self.parts.lock();
        let state = &mut parts[whose as usize];
        state.uses += 1;
        state.rests_from_ns = None;
        if std::mem::take(&mut state.is_lent) {
            self.shut(&parts);
        }
        drop(parts);
        let memory_use = MemoryUse { quiet: Arc::clone(self), whose };
        self.close();
        memory_use
    }

    /// Lends the parts that have not been needed for a while, and retries late closes. Returns the time until
    /// the next look is due, if no event comes before.
    pub(in crate::engine) fn look(&self, now_ns: u64) -> Option<u64> {
        let mut parts = self.parts.lock();
        let mut opens_in_ns = None;
        for whose in ALL {
            let state = &mut parts[whose as usize];
            if state.uses > 0 || state.is_lent || self.bytes[whose as usize] == 0 {
                continue;
            }
            let rested_ns = now_ns.saturating_sub(*state.rests_from_ns.get_or_insert(now_ns));
            match self.rest_ns.saturating_sub(rested_ns) {
                0 => self.lend(&mut parts, whose),
                left_ns => opens_in_ns = opens_in_ns.into_iter().chain([left_ns]).min(),
            }
        }
        drop(parts);
        self.close();
        opens_in_ns
    }

    /// Lends a part at once that no work will need, in a store that takes no writes.
    pub(in crate::engine) fn lend_for_good(&self, whose: Whose) {
        self.lend(&mut self.parts.lock(), whose);
    }

    /// Divides the annex bytes that the cache has now by their owners.
    pub(in crate::engine) fn lent(&self, annex_bytes: u64) -> Lent {
        let lent_count = self.parts.lock().iter().filter(|state| state.is_lent).count() as u64;
        let work_bytes = annex_bytes.min(self.work_bytes * lent_count);
        Lent { generations_bytes: annex_bytes - work_bytes, work_bytes }
    }

    fn lend(&self, parts: &mut [LoanState; 2], whose: Whose) {
        parts[whose as usize].is_lent = true;
        self.shut(parts);
    }

    /// Makes the cache close the parts that are not lent; under the lock, so that the last call has the right
    /// sum.
    fn shut(&self, parts: &[LoanState; 2]) {
        let closed = parts.iter().zip(self.bytes).filter(|(state, _)| !state.is_lent);
        self.cache.shut_annex(closed.map(|(_, bytes)| bytes as usize).sum());
    }

    fn close(&self) {
        if !self.cache.is_annex_settled() && self.cache.close_annex() == AnnexClosing::Late {
            log::debug!("readers hold on to memory that is to be used otherwise");
        }
    }
}

impl Drop for MemoryUse {
    fn drop(&mut self) {
        self.quiet.parts.lock()[self.whose as usize].uses -= 1;
        self.quiet.moved.notify();
    }
}

#[cfg(test)]
mod tests;
