//! Memory by role: the bytes of the store's budget that each use of memory holds, and its limit.
//!
//! Write buffers and background work have fixed parts of the budget. All other memory is granted here. The
//! cache shrinks by the granted bytes, in steps, so that the sum stays within the budget. Roles whose memory
//! lies in the cache have a limit of their own, but count in no sum here.
//!
//! A role names a use of memory. Each role has a limit. Beyond the limit, a caller that can wait or do
//! without the memory is refused. Memory that already exists, such as the bounds of an existing table, is
//! granted all the same; the engine then slows writers until background work has given some of it back.
//!
//! Thread safety: any thread may call. A grant is a few atomic operations, and a lock once a step.
//!
//! Invariants:
//! 1. A grant that may be refused takes no role past its limit, nor the sum past the limit of all roles. The
//!    first grant of an empty role is the exception: the role has no other grant that could make room for it.
//! 2. The lender has lent the sum of all grants outside the cache, plus less than two steps.

use super::error::Error;
use super::sync::{Arc, AtomicBool, AtomicU64, Event, Mutex, Ordering};

/// A use of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Flushed write buffers that snapshots, iterators or reads under way keep in memory.
    Kept,
    /// Bounds and separators of tables, and the cache places of their blocks.
    Tables,
    /// Blocks outside the cache, because no frame was free for them.
    Blocks,
    /// Blocks that iterators hold between two steps. The blocks lie in the cache.
    Iterators,
    /// Blocks that were read for futures and not polled since. They lie in the cache if a frame was free. The
    /// oldest make room for newer ones.
    Untaken,
    /// Items that iterators and cursors read ahead of their callers.
    ReadAhead,
    /// Batches that wait for the commit of another batch.
    Batches,
    /// Write buffers made for one batch each, until they are flushed.
    LargeBatches,
    /// Tables that ingests build.
    Ingests,
    /// The catalog, and the manifest's state in memory.
    Manifest,
}

impl Role {
    pub(crate) const ALL: [Role; 10] = [
        Role::Kept,
        Role::Tables,
        Role::Blocks,
        Role::Iterators,
        Role::Untaken,
        Role::ReadAhead,
        Role::Batches,
        Role::LargeBatches,
        Role::Ingests,
        Role::Manifest,
    ];

    /// The name in `stats` and errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Kept => "kept write buffers",
            Role::Tables => "table bounds",
            Role::Blocks => "blocks without a frame",
            Role::Iterators => "iterators",
            Role::Untaken => "blocks for futures",
            Role::ReadAhead => "items read ahead",
            Role::Batches => "waiting batches",
            Role::LargeBatches => "large batches",
            Role::Ingests => "ingests",
            Role::Manifest => "manifest",
        }
    }

    /// Whether the memory is part of the cache, of which only a part may be held.
    fn is_in_cache(self) -> bool {
        matches!(self, Role::Iterators | Role::Untaken)
    }
}

/// Limits of the roles, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RoleLimits {
    /// In the order of [`Role::ALL`].
    pub(crate) roles: [u64; Role::ALL.len()],
    /// Limit of all roles outside the cache together; the cache has the rest.
    pub(crate) whole: u64,
    /// Bytes by which the loan changes at a time.
    pub(crate) step: u64,
}

impl RoleLimits {
    /// No limits.
    #[cfg(test)]
    pub(crate) fn unlimited() -> RoleLimits {
        RoleLimits { roles: [u64::MAX; Role::ALL.len()], whole: u64::MAX, step: 1 }
    }
}

/// The owner of the memory that grants come from, which uses the rest.
pub(crate) trait Lender: Send + Sync {
    /// Leaves `bytes` more of its memory unused.
    fn lend(&self, bytes: u64);

    /// May use `bytes` of its memory again.
    fn take_back(&self, bytes: u64);
}

/// Bytes of a role, and counts of its waits and refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RoleCounts {
    pub(crate) bytes: u64,
    pub(crate) limit_bytes: u64,
    /// Calls that had to wait.
    pub(crate) waits: u64,
    /// Calls that were refused.
    pub(crate) refusals: u64,
}

#[derive(Default)]
struct Counter {
    bytes: AtomicU64,
    waits: AtomicU64,
    refusals: AtomicU64,
}

/// See the module.
pub(crate) struct Reserve {
    counters: [Counter; Role::ALL.len()],
    limits: RoleLimits,
    /// Bytes granted to all roles outside the cache.
    granted: AtomicU64,
    /// Bytes that the lender has lent; changed under the lock.
    lent: AtomicU64,
    lending: Mutex<()>,
    lender: Box<dyn Lender>,
    /// A caller waits for memory to be given back.
    is_awaited: AtomicBool,
    freed: Arc<Event>,
}

/// Memory of a role, until this is dropped.
pub(crate) struct Grant {
    reserve: Arc<Reserve>,
    role: Role,
    bytes: u64,
}

impl Reserve {
    pub(crate) fn new(limits: RoleLimits, lender: impl Lender + 'static) -> Arc<Reserve> {
        Arc::new(Reserve {
            counters: std::array::from_fn(|_| Counter::default()),
            limits,
            granted: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            lending: Mutex::new(()),
            lender: Box::new(lender),
            is_awaited: AtomicBool::new(false),
            freed: Arc::new(Event::new()),
        })
    }

    /// A reserve without limits and without a lender's memory.
    #[cfg(test)]
    pub(crate) fn alone() -> Arc<Reserve> {
        struct Nobody;
        impl Lender for Nobody {
            fn lend(&self, _: u64) {}
            fn take_back(&self, _: u64) {}
        }
        Reserve::new(RoleLimits::unlimited(), Nobody)
    }

    /// A reserve in which batches have `bytes`.
    #[cfg(test)]
    pub(crate) fn of_batches(bytes: u64) -> Arc<Reserve> {
        let mut reserve = Reserve::alone();
        let limits = &mut Arc::get_mut(&mut reserve).expect("new").limits;
        limits.roles[Role::Batches as usize] = bytes;
        reserve
    }

    /// Grants memory that exists already or is indispensable, regardless of the limits.
    pub(crate) fn grant(self: &Arc<Reserve>, role: Role, bytes: u64) -> Grant {
        self.add(role, bytes);
        Grant { reserve: Arc::clone(self), role, bytes }
    }

    /// Grants memory within the limits. `None` counts as a refusal. To wait, use [`Reserve::grant_or_wait`].
    pub(crate) fn try_grant(self: &Arc<Reserve>, role: Role, bytes: u64) -> Option<Grant> {
        let has_room = self.try_add(role, bytes);
        if !has_room {
            self.counter(role).refusals.fetch_add(1, Ordering::Relaxed);
        }
        has_room.then(|| Grant { reserve: Arc::clone(self), role, bytes })
    }

    /// As [`Reserve::try_grant`], for a caller that waits. Without room it returns `Err` with the count of
    /// the event that moves when memory is given back.
    pub(crate) fn grant_or_wait(self: &Arc<Reserve>, role: Role, bytes: u64) -> Result<Grant, u64> {
        if !self.try_add(role, bytes) {
            let seen = self.freed.seen();
            self.is_awaited.store(true, Ordering::SeqCst);
            // Memory given back before the flag was set did not notify.
            if !self.try_add(role, bytes) {
                self.counter(role).waits.fetch_add(1, Ordering::Relaxed);
                return Err(seen);
            }
        }
        Ok(Grant { reserve: Arc::clone(self), role, bytes })
    }

    /// Moves when memory that a caller waits for is given back.
    pub(crate) fn freed(&self) -> &Arc<Event> {
        &self.freed
    }

    pub(crate) fn limit_bytes(&self, role: Role) -> u64 {
        self.limits.roles[role as usize]
    }

    pub(crate) fn bytes(&self, role: Role) -> u64 {
        self.counter(role).bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self, role: Role) -> RoleCounts {
        let counter = self.counter(role);
        RoleCounts {
            bytes: counter.bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes(role),
            waits: counter.waits.load(Ordering::Relaxed),
            refusals: counter.refusals.load(Ordering::Relaxed),
        }
    }

    /// Counts a refusal and returns its error, for a caller that finds no room in the role.
    pub(crate) fn refusal(&self, role: Role, wanted: u64) -> Error {
        self.counter(role).refusals.fetch_add(1, Ordering::Relaxed);
        Error::Memory { role: role.name(), limit: self.limit_bytes(role), wanted }
    }

    fn counter(&self, role: Role) -> &Counter {
        &self.counters[role as usize]
    }

    fn add(&self, role: Role, bytes: u64) {
        self.counter(role).bytes.fetch_add(bytes, Ordering::Relaxed);
        if !role.is_in_cache() {
            let granted = self.granted.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.see_lent(granted);
        }
    }

    fn try_add(&self, role: Role, bytes: u64) -> bool {
        let fits = |limit: u64| {
            move |now: u64| now.checked_add(bytes).filter(|next| now == 0 || bytes == 0 || *next <= limit)
        };
        let counter = &self.counter(role).bytes;
        // Ordered with `is_awaited`: either `give_back` sees the flag, or this update sees the bytes given
        // back.
        let order = Ordering::SeqCst;
        let Ok(before) = counter.fetch_update(order, order, fits(self.limit_bytes(role))) else {
            return false;
        };
        if role.is_in_cache() {
            return true;
        }
        let whole = if before == 0 { u64::MAX } else { self.limits.whole };
        match self.granted.fetch_update(order, order, fits(whole)) {
            Ok(granted) => {
                self.see_lent(granted + bytes);
                true
            }
            Err(_) => {
                counter.fetch_sub(bytes, order);
                false
            }
        }
    }

    fn give_back(&self, role: Role, bytes: u64) {
        if !role.is_in_cache() {
            let granted = self.granted.fetch_sub(bytes, Ordering::SeqCst) - bytes;
            self.see_lent(granted);
        }
        self.counter(role).bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst) {
            self.freed.notify();
        }
    }

    /// Adjusts the loan to the granted bytes if the loan is smaller than these, or larger by two steps or
    /// more.
    fn see_lent(&self, granted: u64) {
        let is_far = |lent: u64, granted: u64| lent < granted || lent - granted >= 2 * self.limits.step;
        if !is_far(self.lent.load(Ordering::Relaxed), granted) {
            return;
        }
        let _lending = self.lending.lock();
        // Other threads may have changed the grants by now.
        let (lent, granted) = (self.lent.load(Ordering::Relaxed), self.granted.load(Ordering::Relaxed));
        if !is_far(lent, granted) {
            return;
        }
        let goal = granted.next_multiple_of(self.limits.step);
        if goal > lent {
            self.lender.lend(goal - lent);
        } else {
            self.lender.take_back(lent - goal);
        }
        self.lent.store(goal, Ordering::Relaxed);
    }
}

impl Grant {
    /// Changes the grant to `bytes`, regardless of the limits.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.reserve.add(self.role, bytes - self.bytes);
        } else if bytes < self.bytes {
            self.reserve.give_back(self.role, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Changes the grant to `bytes` within the limits. Returns `false`, a refusal, if there is no room.
    pub(crate) fn try_set(&mut self, bytes: u64) -> bool {
        let has_room = bytes <= self.bytes || self.reserve.try_add(self.role, bytes - self.bytes);
        if !has_room {
            self.reserve.counter(self.role).refusals.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        if bytes < self.bytes {
            self.reserve.give_back(self.role, self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.reserve.give_back(self.role, self.bytes);
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grant({} bytes of {})", self.bytes, self.role.name())
    }
}

impl std::fmt::Debug for Reserve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reserve({} bytes granted)", self.granted.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Counting(Arc<AtomicU64>);

    impl Lender for Counting {
        fn lend(&self, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }

        fn take_back(&self, bytes: u64) {
            assert!(self.0.fetch_sub(bytes, Ordering::Relaxed) >= bytes);
        }
    }

    fn reserve(limits: RoleLimits) -> (Arc<Reserve>, Arc<AtomicU64>) {
        let lent = Arc::default();
        (Reserve::new(limits, Counting(Arc::clone(&lent))), lent)
    }

    fn limits() -> RoleLimits {
        RoleLimits { roles: [1000; Role::ALL.len()], whole: 2500, step: 64 }
    }

    /// Grants stay within the limit of their role and the limit of all roles. The first grant of a role, and
    /// memory that is indispensable, are never refused.
    #[test]
    fn roles_have_limits() {
        let (reserve, lent) = reserve(limits());
        let ask = |role, bytes| reserve.try_grant(role, bytes);
        let batches = ask(Role::Batches, 5000).expect("the first");
        assert!(ask(Role::Batches, 1).is_none());
        drop(batches);
        let held = (ask(Role::Batches, 1000).expect("room"), ask(Role::Blocks, 900).expect("room"));
        assert!(ask(Role::Batches, 1).is_none());
        assert!(ask(Role::Blocks, 101).is_none());
        let tables = reserve.grant(Role::Tables, 1500);
        assert!(ask(Role::Blocks, 50).is_none(), "all together have too much");
        assert!(ask(Role::Iterators, 900).is_some(), "cached blocks keep their memory");
        let lent_now = lent.load(Ordering::Relaxed);
        assert!((3400..3400 + 2 * 64).contains(&lent_now), "{lent_now}");
        let counts = reserve.counts(Role::Blocks);
        assert_eq!((counts.bytes, counts.limit_bytes, counts.refusals), (900, 1000, 2));
        drop((held, tables));
        assert_eq!((lent.load(Ordering::Relaxed), reserve.bytes(Role::Tables)), (0, 0));
    }

    /// A waiting caller is notified when memory is given back, also between its try and its wait.
    #[test]
    fn waits_end() {
        let (reserve, _) = reserve(limits());
        let held = reserve.grant_or_wait(Role::Batches, 1000).expect("room");
        let seen = reserve.grant_or_wait(Role::Batches, 10).expect_err("no room");
        assert_eq!(reserve.freed().seen(), seen);
        drop(held);
        assert_ne!(reserve.freed().seen(), seen);
        assert!(reserve.grant_or_wait(Role::Batches, 10).is_ok());
        assert_eq!(reserve.counts(Role::Batches).waits, 1);
    }

    proptest! {
        /// After any sequence of grants, changes and drops: counts are sums, the loan is within two steps of
        /// them, and refusable grants are within the limits.
        #[test]
        fn counts_are_sums(calls in prop::collection::vec((0..4u8, 0..Role::ALL.len(), 0..700u64), 1..80)) {
            let (reserve, lent) = reserve(limits());
            let mut held: Vec<(usize, Grant)> = Vec::new();
            for (call, role, bytes) in calls {
                let before = reserve.bytes(Role::ALL[role]);
                match call {
                    0 => held.push((role, reserve.grant(Role::ALL[role], bytes))),
                    1 => {
                        if let Some(grant) = reserve.try_grant(Role::ALL[role], bytes) {
                            prop_assert!(before == 0 || bytes == 0 || before + bytes <= 1000);
                            held.push((role, grant));
                        }
                    }
                    2 => {
                        if let Some((_, grant)) = held.last_mut() {
                            grant.set(bytes);
                            prop_assert_eq!(grant.bytes(), bytes);
                        }
                    }
                    _ => {
                        let at = bytes as usize % held.len().max(1);
                        if at < held.len() {
                            held.swap_remove(at);
                        }
                    }
                }
                let mut all = 0;
                for (index, one) in Role::ALL.iter().enumerate() {
                    let of_role = held.iter().filter(|(role, _)| *role == index);
                    let sum: u64 = of_role.map(|(_, grant)| grant.bytes()).sum();
                    prop_assert_eq!(reserve.bytes(*one), sum);
                    all += if one.is_in_cache() { 0 } else { sum };
                }
                let lent = lent.load(Ordering::Relaxed);
                prop_assert!(lent >= all && lent - all < 2 * 64);
            }
        }
    }
}
