//! How much writers are slowed: smoothly, by how far background work is behind, and never stopped dead.
//!
//! Memory that waits for its flush is everybody's: it slows all writers. Merges that are behind slow those
//! who write to the tree they are of, and nobody else: each item pays for its own tree, so that a batch
//! beside a slow tree goes as fast as ever. `engine` measures, a commit pays before it queues up, where it
//! keeps nobody waiting. Any thread may call.
//!
//! Invariants:
//! 1. What an item owes for its tree is paid by a writer to that tree.
//! 2. The lock is held for the copy of one counted pointer; without a slow tree it is not taken.

use crate::base::id::TreeId;
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::format::log::Items;

/// Pressure 1.0 in thousandths: background work is as far behind as it may get.
pub(crate) const PRESSURE_MAX: u64 = 1000;

/// Nanoseconds a written byte costs at half pressure: 100 MB/s.
const HALF_PRESSURE_NS_PER_BYTE: u64 = 10;

/// Shortest delay worth a sleep; less is saved up.
pub(crate) const DELAY_NS_MIN: u64 = 200_000;

/// Longest single delay; what is over it is forgiven, so that no write waits long for one big batch.
pub(crate) const DELAY_NS_MAX: u64 = 20_000_000;

/// Delay for `bytes` at a pressure in thousandths: p / (1 - p) times the cost at half pressure.
fn delay_ns(pressure: u64, bytes: u64) -> u64 {
    let pressure = pressure.min(PRESSURE_MAX - 1);
    bytes.saturating_mul(HALF_PRESSURE_NS_PER_BYTE).saturating_mul(pressure) / (PRESSURE_MAX - pressure)
}

/// Pressure of a backlog that begins to count at `low` and is at its worst at `high`.
pub(crate) fn pressure(backlog: u64, low: u64, high: u64) -> u64 {
    let span = high.saturating_sub(low).max(1);
    (backlog.saturating_sub(low).saturating_mul(PRESSURE_MAX) / span).min(PRESSURE_MAX)
}

/// What writers are slowed by.
#[derive(Default, Debug)]
pub(crate) struct Pressures {
    /// Of memory that waits for its flush.
    shared: Slowed,
    /// The largest of any tree; 0 while none is slowed.
    worst: AtomicU64,
    /// Trees that are slowed, ascending.
    trees: Mutex<Arc<Vec<(TreeId, Slowed)>>>,
}

/// A pressure, and what those under it owe.
#[derive(Default, Debug)]
struct Slowed {
    pressure: AtomicU64,
    owed_ns: AtomicU64,
}

impl Slowed {
    /// Adds a delay; what is to be paid now, which is all or nothing.
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
    /// Sets what is behind: for all, and of each tree, ascending and each once.
    pub(crate) fn set(&self, shared: u64, trees: impl Iterator<Item = (TreeId, u64)>) {
        self.shared.pressure.store(shared, Ordering::Relaxed);
        let mut slowed: Vec<(TreeId, Slowed)> = Vec::new();
        let mut now = self.trees.lock();
        for (tree, pressure) in trees.filter(|(_, pressure)| *pressure > 0) {
            let owed_ns = find(&now, tree).map_or(0, |old| old.owed_ns.load(Ordering::Relaxed));
            slowed.push((tree, Slowed { pressure: pressure.into(), owed_ns: owed_ns.into() }));
        }
        let worst = slowed.iter().map(|(_, slowed)| slowed.pressure.load(Ordering::Relaxed)).max();
        *now = Arc::new(slowed);
        self.worst.store(worst.unwrap_or(0), Ordering::Relaxed);
    }

    /// The worst that any writer is slowed by, in thousandths.
    pub(crate) fn worst(&self) -> u64 {
        self.shared.pressure.load(Ordering::Relaxed).max(self.worst.load(Ordering::Relaxed))
    }

    /// What a tree's own merges slow its writers by, in thousandths.
    pub(crate) fn of(&self, tree: TreeId) -> u64 {
        let trees = Arc::clone(&self.trees.lock());
        find(&trees, tree).map_or(0, |slowed| slowed.pressure.load(Ordering::Relaxed))
    }

    /// How long a batch of `key_value_bytes` waits now.
    pub(crate) fn delay_ns(&self, payload: &[u8], items: usize, key_value_bytes: usize) -> u64 {
        if self.worst() == 0 {
            return 0;
        }
        let shared = self.shared.pressure.load(Ordering::Relaxed);
        let mut paid_ns = self.shared.owe(delay_ns(shared, key_value_bytes as u64));
        if self.worst.load(Ordering::Relaxed) > shared {
            let trees = Arc::clone(&self.trees.lock());
            for item in Items::encoded(payload, items as u64) {
                let Some(slowed) = find(&trees, item.tree) else { continue };
                let bytes = (item.key.len() + item.value.len()) as u64;
                let own = slowed.pressure.load(Ordering::Relaxed);
                // The worse of the two counts, not their sum.
                paid_ns += slowed.owe(delay_ns(own, bytes).saturating_sub(delay_ns(shared, bytes)));
            }
        }
        paid_ns.min(DELAY_NS_MAX)
    }
}

fn find(trees: &[(TreeId, Slowed)], tree: TreeId) -> Option<&Slowed> {
    let index = trees.binary_search_by_key(&tree, |(one, _)| *one).ok()?;
    trees.get(index).map(|(_, slowed)| slowed)
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

    /// No backlog costs nothing, more costs more, and even the worst is finite.
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

    /// Only items of the slow tree are paid for; small delays are saved up for its own writers, also over a
    /// new measure.
    #[test]
    fn a_slow_tree_slows_its_own_writers() {
        let [slow, other] = TREES;
        let pressures = Pressures::default();
        let delay = |trees: &[TreeId]| pressures.delay_ns(&payload(trees), trees.len(), 100 * trees.len());
        assert_eq!(delay(&[slow]), 0);
        let once = delay_ns(PRESSURE_MAX, 100);
        pressures.set(0, [(slow, PRESSURE_MAX)].into_iter());
        assert_eq!([delay(&[other]), delay(&[other, slow, other])], [0, once]);
        assert_eq!([pressures.worst(), pressures.of(slow), pressures.of(other)], [1000, 1000, 0]);
        assert_eq!(delay(&[slow; 2]), 2 * once);
        assert_eq!(delay(&[slow; 1000]), DELAY_NS_MAX);

        // A microsecond an item.
        pressures.set(0, [(slow, 500)].into_iter());
        assert_eq!(delay(&[slow; 199]), 0);
        pressures.set(0, [(slow, 500), (other, 1)].into_iter());
        assert_eq!([delay(&[other]), delay(&[slow]), delay(&[slow])], [0, 200_000, 0]);
        pressures.set(0, std::iter::empty());
        assert_eq!([delay(&[slow; 1000]), pressures.worst()], [0, 0]);
    }

    /// What is everybody's slows everybody, and a slow tree's writers only by what is worse for them.
    #[test]
    fn shared_pressure_slows_all() {
        let [slow, other] = TREES;
        let pressures = Pressures::default();
        let delay = |tree| pressures.delay_ns(&payload(&[tree; 1000]), 1000, 100_000);
        pressures.set(500, [(slow, 600)].into_iter());
        // Half a microsecond an item more, and the last tenth of a millisecond is still owed.
        assert_eq!([delay(other), delay(slow)], [1_000_000, 1_400_000]);
        pressures.set(500, [(slow, 400)].into_iter());
        assert_eq!([delay(other), delay(slow)], [1_000_000, 1_000_000]);
        assert_eq!([pressures.worst(), pressures.of(slow)], [500, 400]);
    }
}
