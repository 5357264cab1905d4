//! Delays of writers: they grow smoothly with the backlog of background work, and never stop a writer
//! completely.
//!
//! Memory that waits for its flush delays all writers. Merges that are behind delay only writers to their own
//! tree. Each item adds a delay for its own tree only; items of other trees in a batch add none. `engine`
//! measures the backlog. A commit pays its delay before it queues up, where it blocks no other commit. Any
//! thread may call.
//!
//! Invariants:
//! 1. The delay for a tree is paid by writers to that tree only.
//! 2. The lock is held to read or change one tree; without a slowed tree writers do not take it.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::TreeId;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::format::log::Items;

/// Pressure 1.0 in thousandths: the backlog is at its limit.
pub(crate) const PRESSURE_MAX: u64 = 1000;

/// Nanoseconds a written byte costs at half pressure: 100 MB/s.
const HALF_PRESSURE_NS_PER_BYTE: u64 = 10;

/// Shortest delay worth a sleep; shorter delays are accumulated.
pub(crate) const DELAY_NS_MIN: u64 = 200_000;

/// Longest single delay. The excess is dropped, so that no write waits long for one big batch.
pub(crate) const DELAY_NS_MAX: u64 = 20_000_000;

/// Delay in nanoseconds for `bytes` at a pressure p in thousandths: p / (1 - p) times the cost at half
/// pressure.
fn delay_ns(pressure: u64, bytes: u64) -> u64 {
    let pressure = pressure.min(PRESSURE_MAX - 1);
    bytes.saturating_mul(HALF_PRESSURE_NS_PER_BYTE).saturating_mul(pressure) / (PRESSURE_MAX - pressure)
}

/// Pressure of a backlog that counts from `low` on and reaches its maximum at `high`.
pub(crate) fn pressure(backlog: u64, low: u64, high: u64) -> u64 {
    let span = high.saturating_sub(low).max(1);
    (backlog.saturating_sub(low).saturating_mul(PRESSURE_MAX) / span).min(PRESSURE_MAX)
}

/// Pressures that delay writers.
#[derive(Default, Debug)]
pub(crate) struct Pressures {
    /// Pressure of the memory that waits for its flush.
    shared: Slowed,
    /// The largest pressure of any tree; 0 if no tree is slowed.
    worst: AtomicU64,
    slowed: Mutex<SlowedTrees>,
}

/// Trees with a pressure.
#[derive(Default, Debug)]
struct SlowedTrees {
    trees: BTreeMap<TreeId, Arc<Slowed>>,
    /// Sorted by pressure; the worst is last.
    by_pressure: BTreeSet<(u64, TreeId)>,
}

/// A pressure, and the accumulated delay of its writers.
#[derive(Default, Debug)]
struct Slowed {
    pressure: AtomicU64,
    owed_ns: AtomicU64,
}

impl Slowed {
    /// Adds a delay. Returns the accumulated delay if it is to be paid now, otherwise 0.
    fn owe(&self, delay_ns: u64) -> u64 {
        if delay_ns == 0 {
            return 0;
        }
        let owed_ns = self.owed_ns.fetch_add(delay_ns, Ordering::Relaxed) + delay_ns;
        if owed_ns < DELAY_NS_MIN {
            return 0;
        }
        self.owed_ns.store(0, Ordering::Relaxed);
        owed_ns
    }
}

impl Pressures {
    /// Sets the pressure on all writers.
    pub(crate) fn set_shared(&self, pressure: u64) {
        self.shared.pressure.store(pressure, Ordering::Relaxed);
    }

    /// Sets a tree's pressure. The accumulated delay of its writers stays while the tree is slowed.
    pub(crate) fn set_tree(&self, tree: TreeId, pressure: u64) {
        let mut slowed = self.slowed.lock();
        let old = slowed.trees.get(&tree).map_or(0, |old| old.pressure.load(Ordering::Relaxed));
        if old == pressure {
            return;
        }
        slowed.by_pressure.remove(&(old, tree));
        if pressure == 0 {
            slowed.trees.remove(&tree);
        } else {
            slowed.trees.entry(tree).or_default().pressure.store(pressure, Ordering::Relaxed);
            slowed.by_pressure.insert((pressure, tree));
        }
        let worst = slowed.by_pressure.last().map_or(0, |(worst, _)| *worst);
        self.worst.store(worst, Ordering::Relaxed);
    }

    fn slowed(&self, tree: TreeId) -> Option<Arc<Slowed>> {
        self.slowed.lock().trees.get(&tree).cloned()
    }

    /// The largest pressure on any writer, in thousandths.
    pub(crate) fn worst(&self) -> u64 {
        self.shared.pressure.load(Ordering::Relaxed).max(self.worst.load(Ordering::Relaxed))
    }

    /// Pressure of a tree's own merges on its writers, in thousandths.
    pub(crate) fn of(&self, tree: TreeId) -> u64 {
        self.slowed(tree).map_or(0, |slowed| slowed.pressure.load(Ordering::Relaxed))
    }

    /// Delay of a batch of `key_value_bytes` bytes, in nanoseconds, to be paid now.
    pub(crate) fn delay_ns(&self, payload: &[u8], items: usize, key_value_bytes: usize) -> u64 {
        if self.worst() == 0 {
            return 0;
        }
        let shared = self.shared.pressure.load(Ordering::Relaxed);
        let mut paid_ns = self.shared.owe(delay_ns(shared, key_value_bytes as u64));
        if self.worst.load(Ordering::Relaxed) > shared {
            // Items of one tree are usually adjacent.
            let mut last: Option<(TreeId, Option<Arc<Slowed>>)> = None;
            for item in Items::encoded(payload, items as u64) {
                if last.as_ref().is_none_or(|(tree, _)| *tree != item.tree) {
                    last = Some((item.tree, self.slowed(item.tree)));
                }
                let Some((_, Some(slowed))) = &last else { continue };
                let bytes = (item.key.len() + item.value.len()) as u64;
                let own = slowed.pressure.load(Ordering::Relaxed);
                // The larger of the two pressures counts, not their sum.
                paid_ns += slowed.owe(delay_ns(own, bytes).saturating_sub(delay_ns(shared, bytes)));
            }
        }
        paid_ns.min(DELAY_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{ItemKind, KeyspaceId, PartitionId};
    use crate::format::log::put_item;

    const TREES: [TreeId; 2] = [tree(1), tree(2)];

    const fn tree(keyspace: u32) -> TreeId {
        TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(1) }
    }

    fn payload(trees: &[TreeId]) -> Vec<u8> {
        let mut payload = Vec::new();
        trees.iter().for_each(|tree| put_item(&mut payload, *tree, ItemKind::Put, b"key", &[1; 97]));
        payload
    }

    /// No backlog costs nothing, more backlog costs more, and even the maximum is finite.
    #[test]
    fn delays_grow_smoothly_and_stay_finite() {
        assert_eq!(pressure(10, 10, 20), 0);
        assert_eq!(pressure(15, 10, 20), 500);
        assert_eq!(pressure(1000, 10, 20), PRESSURE_MAX);
        assert_eq!(pressure(5, 10, 10), 0);
        assert_eq!(delay_ns(0, 1 << 20), 0);
        assert_eq!(delay_ns(500, 1000), 10_000);
        let delays: Vec<u64> = (0..=PRESSURE_MAX).map(|p| delay_ns(p, 100)).collect();
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(delays[PRESSURE_MAX as usize] < 1_000_000);
    }

    /// Only items of the slowed tree are paid for. Small delays accumulate for its own writers, also across a
    /// new measurement.
    #[test]
    fn a_slow_tree_slows_its_own_writers() {
        let [slow, other] = TREES;
        let pressures = Pressures::default();
        let delay = |trees: &[TreeId]| pressures.delay_ns(&payload(trees), trees.len(), 100 * trees.len());
        assert_eq!(delay(&[slow]), 0);
        let once = delay_ns(PRESSURE_MAX, 100);
        pressures.set_tree(slow, PRESSURE_MAX);
        assert_eq!([delay(&[other]), delay(&[other, slow, other])], [0, once]);
        assert_eq!([pressures.worst(), pressures.of(slow), pressures.of(other)], [1000, 1000, 0]);
        assert_eq!(delay(&[slow; 2]), 2 * once);
        assert_eq!(delay(&[slow; 1000]), DELAY_NS_MAX);

        // A delay of a microsecond per item.
        pressures.set_tree(slow, 500);
        assert_eq!(delay(&[slow; 199]), 0);
        pressures.set_tree(other, 1);
        assert_eq!([delay(&[other]), delay(&[slow]), delay(&[slow])], [0, 200_000, 0]);
        TREES.iter().for_each(|tree| pressures.set_tree(*tree, 0));
        assert_eq!([delay(&[slow; 1000]), pressures.worst()], [0, 0]);
    }

    /// Shared pressure delays all writers. A tree's pressure delays its writers only by the excess over the
    /// shared one.
    #[test]
    fn shared_pressure_slows_all() {
        let [slow, other] = TREES;
        let pressures = Pressures::default();
        let delay = |tree| pressures.delay_ns(&payload(&[tree; 1000]), 1000, 100_000);
        pressures.set_shared(500);
        pressures.set_tree(slow, 600);
        // Half a microsecond more per item; the last tenth of a millisecond is still owed.
        assert_eq!([delay(other), delay(slow)], [1_000_000, 1_400_000]);
        pressures.set_tree(slow, 400);
        assert_eq!([delay(other), delay(slow)], [1_000_000, 1_000_000]);
        assert_eq!([pressures.worst(), pressures.of(slow)], [500, 400]);
    }
}
