//! Memory of write buffers, flushes and merges that the cache has while they do not use it: its annex.
//!
//! Whoever is about to use such memory says so by a [`Need`], which closes as much of the annex, and holds it
//! for as long. When nobody has needed a part for a while it is opened. Any thread.
//!
//! 1. What is open of the annex is needed by nobody, but for what readers held on to when it was to be
//!    closed.
//! 2. Needs never wait: what is late is tried again with each look.

use crate::base::sync::{Arc, Event, Mutex};
use crate::cache::{Cache, Closing};

use crate::engine::budget::Budget;

/// How long a byte is not needed before the cache has it: about as long as it takes to fill it from the
/// device, which is lost if it is needed again right then.
const REST_NS_PER_BYTE: u64 = 10;
const REST_NS_MAX: u64 = 10_000_000_000;

/// Whose memory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Whose {
    /// Of sealed generations, and of what makes tables of them.
    Flushes,
    Merges,
}

const ALL: [Whose; 2] = [Whose::Flushes, Whose::Merges];

/// See the module.
pub(in crate::engine) struct Quiet {
    cache: Cache,
    /// Of the annex, what is closed for each part.
    bytes: [u64; 2],
    /// Of that, work memory.
    work_bytes: u64,
    rest_ns: u64,
    parts: Mutex<[State; 2]>,
    /// Moves when a part is not needed any more: someone has to look.
    moved: Arc<Event>,
}

#[derive(Clone, Copy, Default, Debug)]
struct State {
    needs: u32,
    /// When it was first seen that nobody needs it any more.
    rests_from_ns: Option<u64>,
    is_lent: bool,
}

/// Someone uses a part of the memory as long as this lives.
pub(in crate::engine) struct Need {
    quiet: Arc<Quiet>,
    whose: Whose,
}

/// Memory of others that the cache has now, in bytes.
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

    /// Takes a part back from the cache, if it has it.
    pub(in crate::engine) fn need(self: &Arc<Quiet>, whose: Whose) -> Need {
        let mut parts = self.parts.lock();
        let state = &mut parts[whose as usize];
        state.needs += 1;
        state.rests_from_ns = None;
        if std::mem::take(&mut state.is_lent) {
            self.shut(&parts);
        }
        drop(parts);
        let need = Need { quiet: Arc::clone(self), whose };
        self.close();
        need
    }

    /// Lends what has not been needed for a while, and goes on with what is late; in how long there is to be
    /// another look, if nothing happens before.
    pub(in crate::engine) fn look(&self, now_ns: u64) -> Option<u64> {
        let mut parts = self.parts.lock();
        let mut opens_in_ns = None;
        for whose in ALL {
            let state = &mut parts[whose as usize];
            if state.needs > 0 || state.is_lent || self.bytes[whose as usize] == 0 {
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

    /// Lends at once what nobody will need: in a store in which nothing is written.
    pub(in crate::engine) fn lend_for_good(&self, whose: Whose) {
        self.lend(&mut self.parts.lock(), whose);
    }

    /// Of so much of the annex that the cache has now, whose it is.
    pub(in crate::engine) fn lent(&self, annex_bytes: u64) -> Lent {
        let lent_count = self.parts.lock().iter().filter(|state| state.is_lent).count() as u64;
        let work_bytes = annex_bytes.min(self.work_bytes * lent_count);
        Lent { generations_bytes: annex_bytes - work_bytes, work_bytes }
    }

    fn lend(&self, parts: &mut [State; 2], whose: Whose) {
        parts[whose as usize].is_lent = true;
        self.shut(parts);
    }

    /// Has the cache close what is not lent; under the lock, so that the last to say so is right.
    fn shut(&self, parts: &[State; 2]) {
        let closed = parts.iter().zip(self.bytes).filter(|(state, _)| !state.is_lent);
        self.cache.shut_annex(closed.map(|(_, bytes)| bytes as usize).sum());
    }

    fn close(&self) {
        if !self.cache.is_annex_settled() && self.cache.close_annex() == Closing::Late {
            log::debug!("readers hold on to memory that is to be used otherwise");
        }
    }
}

impl Drop for Need {
    fn drop(&mut self) {
        self.quiet.parts.lock()[self.whose as usize].needs -= 1;
        self.quiet.moved.notify();
    }
}

#[cfg(test)]
mod tests;
