//! Pacing in simulated time. Merges keep to the cap and end, and no other work waits for them. A tree that
//! cannot be merged slows only its own writers.

use crate::base::error::Error;
use crate::base::id::{FileKind, ItemKind};
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, Event, Ordering};
use crate::io::env::{Clock, Threads};
use crate::io::pace::Urgency;
use crate::io::sim::{SimDisk, SimThreads, sim_env};
use crate::io::storage::{DirectoryEntry, Storage};
use crate::write::batch::BatchItems;

use super::super::{OpenMode, OpenOptions, Store};
use crate::engine::publish::keyspace::KeyspaceState;

const SECOND_NS: u64 = 1_000_000_000;
const VALUE_BYTES: usize = 100;

/// A store under a cap, and its environment.
struct Capped {
    disk: Arc<SimDisk>,
    store: Arc<Store>,
    threads: Arc<SimThreads>,
}

impl Capped {
    fn new(seed: u64, cap: u64) -> Capped {
        let disk = SimDisk::new(seed);
        let (env, threads) = sim_env(&disk, seed);
        let settings = StoreSettings {
            memory_bytes: 1 << 20,
            manifest_bytes: 16 << 10,
            background_bytes_per_second: cap,
            ..StoreSettings::default()
        };
        let store = Store::open(env, OpenOptions::new(settings, OpenMode::CreateIfMissing)).expect("opens");
        Capped { disk, store, threads }
    }

    fn keyspace(&self, name: &str) -> Arc<KeyspaceState> {
        self.store.open_keyspace(name, &[("level0_runs".to_owned(), 2)]).expect("nothing fails")
    }

    fn put(&self, keyspaces: &[&KeyspaceState], number: u64) {
        let mut items = BatchItems::default();
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        for keyspace in keyspaces {
            items.push(keyspace.tree, ItemKind::Put, &key, &[7; VALUE_BYTES]).expect("within limits");
        }
        self.store.write(&items, None).expect("nothing fails");
    }

    /// Flushes `runs` runs, each over all keys.
    fn put_runs(&self, keyspace: &KeyspaceState, runs: u64, items: u64) {
        for run in 0..runs {
            (0..items).for_each(|number| self.put(&[keyspace], run * items + number));
            self.store.flush().expect("flushes wait for nothing");
        }
    }

    fn now_ns(&self) -> u64 {
        self.threads.clock().now_ns()
    }

    fn delayed_ns(&self) -> u64 {
        self.store.writer.counts.delayed_ns.load(Ordering::Relaxed)
    }

    fn moved_bytes(&self) -> u64 {
        let work = &self.store.work;
        work.merge_read_bytes.load(Ordering::Relaxed) + work.merge_write_bytes.load(Ordering::Relaxed)
    }

    /// Lets time pass and workers run.
    fn pass(&self, ns: u64) {
        let (never, end_ns) = (Event::new(), self.now_ns() + ns);
        while self.now_ns() < end_ns {
            self.threads.wait(&never, never.seen(), Some(end_ns - self.now_ns()));
        }
    }
}

/// Merges that a caller waits for take the time that the cap gives them, and end.
#[test]
fn asked_for_merges_keep_to_the_cap() {
    const CAP: u64 = 200_000;
    for seed in 0..3 {
        let capped = Capped::new(seed, CAP);
        let items = capped.keyspace("items");
        capped.put_runs(&items, 3, 3000);
        let (began_ns, before) = (capped.now_ns(), capped.moved_bytes());
        capped.store.compact().expect("nothing fails");
        capped.store.settle().expect("nothing fails");
        let bytes = capped.moved_bytes() - before;
        assert!(bytes > 1_000_000, "{bytes}");
        // Up to a fifth is headers, padding and saved-up rate.
        let least_ns = bytes * 4 / 5 * SECOND_NS / CAP;
        let took_ns = capped.now_ns() - began_ns;
        assert!((least_ns..3 * least_ns).contains(&took_ns), "{bytes} bytes in {took_ns} ns");
        assert!(capped.store.stats().background.paced_bytes > 0);
        assert_eq!(capped.store.stats().background.bytes_per_second, CAP);
        capped.store.close().expect("nothing fails");
    }
}

/// Under a cap that lets no byte through, writes and flushes go on, and closing waits for no merge.
#[test]
fn nothing_waits_for_a_merge_that_waits() {
    for seed in 0..3 {
        let capped = Capped::new(seed, 1);
        let items = capped.keyspace("items");
        capped.put_runs(&items, 6, 3000);
        capped.pass(SECOND_NS);
        assert!(capped.store.is_merge_due());
        let began_ns = capped.now_ns();
        capped.store.flush().expect("nothing fails");
        capped.store.close().expect("nothing fails");
        let took_ns = capped.now_ns() - began_ns;
        assert!(took_ns < SECOND_NS / 10, "{took_ns} ns");
        // The next opening does the remaining merges.
        let (env, _threads) = sim_env(&capped.disk, seed);
        let settings = StoreSettings { memory_bytes: 1 << 20, ..StoreSettings::default() };
        let store = Store::open(env, OpenOptions::new(settings, OpenMode::Existing)).expect("opens");
        store.settle().expect("nothing fails");
        store.close().expect("nothing fails");
    }
}

/// A merge of a dropped keyspace ends at once, however long its pause.
#[test]
fn a_merge_of_a_dropped_keyspace_is_given_up() {
    for seed in 0..3 {
        let capped = Capped::new(seed, 1);
        let items = capped.keyspace("items");
        capped.put_runs(&items, 3, 3000);
        capped.pass(2 * SECOND_NS);
        assert!(capped.store.work.is_busy());
        capped.store.drop_keyspace("items").expect("nothing fails");
        capped.threads.run_until_idle();
        assert!(!capped.store.work.is_busy());
        capped.store.settle().expect("nothing fails");
        capped.store.close().expect("nothing fails");
    }
}

/// Without a cap, a store at rest completes its merges by itself, at the least rate. Merges that a caller
/// waits for do not pause.
#[test]
fn a_store_at_rest_ends_its_merges() {
    for seed in 0..3 {
        let free = Capped::new(seed, 0);
        let items = free.keyspace("items");
        free.put_runs(&items, 1, 9000);
        free.pass(SECOND_NS);
        assert!(free.store.pacer.rate(free.now_ns(), Urgency::No) > 0);
        free.put_runs(&items, 1, 9000);
        free.pass(2 * SECOND_NS);
        assert!(!free.store.is_merge_due() && !free.store.work.is_busy());
        assert!(free.moved_bytes() > 0 && free.store.stats().background.paced_bytes > 0);
        assert_eq!(free.store.pacer.rate(free.now_ns(), Urgency::Awaited), 0);
        free.store.close().expect("nothing fails");
    }
}

/// Merges are slower while readers keep the device busy, and only then.
#[test]
fn merges_yield_to_busy_readers() {
    let free = Capped::new(0, 0);
    let items = free.keyspace("items");
    free.put_runs(&items, 1, 100);
    let rate = || free.store.stats().background.bytes_per_second;
    let _readings: Vec<_> = (0..48).map(|_| free.store.blocks.load.reading()).collect();
    let (before, one_more) = (rate(), free.store.blocks.load.reading());
    let yielding = rate();
    let merging = free.store.blocks.load.merging();
    let io = free.store.stats().io;
    assert_eq!((io.requests_now, io.merge_requests_now), (49, 1));
    drop(merging);
    assert!(yielding > 0 && yielding < before, "{yielding} of {before}");
    drop(one_more);
    assert_eq!(rate(), before);
    free.store.close().expect("nothing fails");
}

/// A damaged table stops the merges of one keyspace. Its writers are slowed more and more, and no other
/// writer is slowed. A batch pays for its items in that keyspace.
#[test]
fn a_tree_that_cannot_merge_slows_its_own_writers() {
    const PUTS: u64 = 20;
    for seed in 0..3 {
        let world = Capped::new(seed, 0);
        let [ill, well] = ["ill", "well"].map(|name| world.keyspace(name));
        world.put_runs(&ill, 1, 100);
        let list = world.disk.list().expect("nothing fails");
        let tables = list.into_iter().filter_map(|entry| match entry {
            DirectoryEntry::Ours(file) if file.kind == FileKind::Table => Some(file),
            _ => None,
        });
        for table in tables {
            let mut bytes = world.disk.contents(table).expect("it was listed");
            bytes[4096 + 100] ^= 1;
            world.disk.set_contents(table, Some(&bytes));
        }
        world.put_runs(&ill, 20, 100);
        assert!(matches!(world.store.settle(), Err(Error::Corrupt(_))));
        world.threads.run_until_idle();

        let (delayed_ns, now_ns) = (world.delayed_ns(), world.now_ns());
        (0..PUTS).for_each(|number| world.put(&[&well], number));
        assert_eq!([world.delayed_ns(), world.now_ns()], [delayed_ns, now_ns], "nobody waited");
        let pressures: Vec<u64> = world.store.stats().keyspaces.iter().map(|one| one.pressure).collect();
        assert_eq!(pressures, [1000, 0]);

        // A byte costs ten microseconds at most.
        let own_ns = PUTS * (VALUE_BYTES as u64 + 8) * 9_990;
        (0..PUTS).for_each(|number| world.put(&[&ill], number));
        let alone_ns = world.delayed_ns() - delayed_ns;
        (0..PUTS).for_each(|number| world.put(&[&well, &ill, &well], number));
        let batches_ns = world.delayed_ns() - delayed_ns - alone_ns;
        assert_eq!([alone_ns, batches_ns], [own_ns, own_ns]);
        assert!(world.now_ns() >= now_ns + alone_ns + batches_ns);
        // The store reports the damage.
        assert!(matches!(world.store.close(), Err(Error::Corrupt(_))));
    }
}
