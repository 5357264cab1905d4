//! Cleared keyspaces: a crash at any call around a clear, merges that are under way, and damage that is
//! cleared too.

use crate::base::error::Error;
use crate::base::id::{FileKind, ItemKind};
use crate::base::sync::{Arc, Mutex, Ordering};
use crate::io::sim::{SimDisk, SimThreads};
use crate::io::storage::Storage;
use crate::write::batch::BatchItems;

use super::super::Store;
use super::crash::{Examiner, Told, contents, seeds};
use super::model::{Known, Model, Names, Write, fingerprint};
use super::play::Recorded;
use super::recorder::Recorder;
use super::run::open;
use crate::engine::publish::keyspace::KeyspaceState;

const MEMORY_BYTES: u64 = 128 << 10;
const NAMES: [&str; 2] = ["cleared", "kept"];

/// A store of two keyspaces that is written one batch after another.
struct Script {
    store: Arc<Store>,
    threads: Arc<SimThreads>,
    keyspaces: [Arc<KeyspaceState>; 2],
    model: Model,
    shared: Arc<Mutex<Known>>,
    writes: u64,
}

/// One of the two keyspaces, a key, and the value's length; `None` clears the keyspace.
type Op = (usize, Option<u64>, usize);

impl Script {
    fn new(
        disk: &Arc<SimDisk>,
        over: Option<Arc<dyn Storage>>,
        known: Arc<Mutex<Known>>,
        seed: u64,
    ) -> Script {
        let (store, threads) = open(disk, over, seed, MEMORY_BYTES).expect("nothing fails");
        let given = [("level0_runs".to_owned(), 2), ("size_ratio".to_owned(), 3)];
        let keyspaces = NAMES.map(|name| store.open_keyspace(name, &given).expect("nothing fails"));
        let mut model = Model::new();
        let mut names = Names::new();
        for (name, keyspace) in NAMES.iter().zip(&keyspaces) {
            let space = model.add_space();
            names.insert((*name).to_owned(), space);
            let place = model.submit_names(&names, Some((space, &keyspace.settings())));
            (model.known.acked, model.known.synced) = (place, place);
        }
        Script { store, threads, keyspaces, model, shared: known, writes: 0 }
    }

    fn tell(&self) {
        *self.shared.lock() = self.model.known.clone();
    }

    fn write(&mut self, ops: &[Op]) {
        let (mut items, mut writes) = (BatchItems::default(), Vec::new());
        for (space, key, bytes) in ops {
            self.writes += 1;
            let tree = self.keyspaces[*space].tree;
            let mut write = Write { space: *space, key: Vec::new(), fingerprint: 0, range_end: None };
            match key {
                Some(key) => {
                    let mut value = self.writes.to_le_bytes().to_vec();
                    value.resize(8 + bytes, *key as u8);
                    write.key = format!("{key:05}").into_bytes();
                    items.push(tree, ItemKind::Put, &write.key, &value).expect("within limits");
                    write.fingerprint = fingerprint(&write.key, &value);
                }
                None => {
                    items.push(tree, ItemKind::DeleteRange, &[], &[]).expect("within limits");
                    write.range_end = Some(Vec::new());
                }
            }
            writes.push(write);
        }
        let place = self.model.submit(&writes);
        self.tell();
        self.store.write(&items, None).expect("nothing fails");
        self.model.known.acked = place;
        self.tell();
    }

    fn fill(&mut self, space: usize, keys: std::ops::Range<u64>) {
        for first in keys.clone().step_by(10) {
            let ops: Vec<Op> = (first..keys.end.min(first + 10)).map(|key| (space, Some(key), 150)).collect();
            self.write(&ops);
        }
    }

    fn settle(&self) {
        self.store.settle().expect("nothing fails");
        self.threads.run_until_idle();
    }

    fn check(&self) {
        let state = self.model.state(self.model.known.acked);
        for (space, name) in NAMES.iter().enumerate() {
            assert!(contents(&self.store, name).expect("readable") == state[space], "{name}");
        }
    }

    /// Checks that no cancelled merge has left a file.
    fn assert_tables_are_named(&self, disk: &SimDisk) {
        let catalog = self.store.catalog.take(&*self.store.env.threads);
        let named: Vec<String> =
            catalog.state.tables.iter().map(|(number, table)| table.file(*number).to_string()).collect();
        let names = disk.names().expect("nothing fails").into_iter();
        assert_eq!(names.filter(|name| name.starts_with("table")).collect::<Vec<_>>(), named);
    }

    fn tables(&self, space: usize) -> u64 {
        self.store.keyspace_stats(&self.keyspaces[space]).tables
    }
}

/// One keyspace is cleared, filled again and cleared again in a batch with other writes, beside another
/// keyspace. Wherever the process or the power stops, the store holds one prefix of the writes over both. No
/// table drop is lost or comes early.
#[test]
fn a_crash_around_a_clear_leaves_a_prefix() {
    let (mut states_count, mut moments_count) = (0, 0);
    for seed in seeds(0..3) {
        let told = Told { what: format!("run of seed {seed}") };
        let disk = SimDisk::new(seed);
        let known = Arc::new(Mutex::new(Known::default()));
        let recorder = Recorder::new(&disk, &known);
        let mut script = Script::new(&disk, Some(recorder.clone()), known, seed);
        script.fill(0, 0..400);
        script.fill(1, 0..60);
        script.settle();
        script.fill(0, 300..360);
        // The moments so far are tested elsewhere.
        recorder.take();
        script.write(&[(1, Some(7), 9), (0, None, 0), (0, Some(3), 9)]);
        script.fill(1, 60..70);
        script.store.flush().expect("nothing fails");
        script.settle();
        script.check();
        script.fill(0, 0..100);
        script.write(&[(0, None, 0)]);
        script.write(&[(1, Some(8), 9)]);
        script.store.flush().expect("nothing fails");
        script.settle();
        script.check();
        assert_eq!(script.tables(0), 0);
        script.store.close().expect("nothing fails");
        let (model, memory_bytes) = (std::mem::take(&mut script.model), MEMORY_BYTES);
        let recorded = Recorded { model, moments: recorder.take(), memory_bytes };
        let mut examiner = Examiner::new(&recorded.model, recorded.memory_bytes, seed);
        moments_count += examiner.crash_some(&recorded.moments, 1);
        states_count += examiner.states_count;
        drop(told);
    }
    println!("{states_count} states after crashes at {moments_count} moments");
}

fn script(seed: u64) -> (Arc<SimDisk>, Script) {
    let disk = SimDisk::new(seed);
    let script = Script::new(&disk, None, Arc::default(), seed);
    (disk, script)
}

/// A clear during a merge, at any stage of it, cancels the merge: its tables are not read to their end, and
/// none is left.
#[test]
fn a_clear_ends_a_merge() {
    let mut given_up = 0;
    for seed in seeds(0..40) {
        let _told = Told { what: format!("seed {seed}") };
        let (disk, mut script) = script(seed);
        let tree = script.keyspaces[0].tree;
        script.fill(1, 0..30);
        let mut key = 0;
        while !(key > 400 + 20 * seed && script.store.work.is_merging(tree)) {
            script.write(&[(0, Some(key % 700), 150)]);
            // Enough time passes for slow merges.
            script.threads.clock().advance(10_000_000_000);
            script.threads.run_one();
            key += 1;
        }
        let merges = script.store.work.merges.load(Ordering::Relaxed);
        script.write(&[(0, None, 0)]);
        script.store.flush().expect("nothing fails");
        script.settle();
        script.check();
        assert_eq!(script.tables(0), 0);
        given_up += u64::from(script.store.work.merges.load(Ordering::Relaxed) == merges);
        script.fill(0, 0..50);
        script.store.compact().expect("nothing fails");
        script.settle();
        script.check();
        script.assert_tables_are_named(&disk);
        script.store.close().expect("nothing fails");
    }
    assert!(given_up > 0, "no merge was given up");
    println!("{given_up} merges were given up");
}

/// A damaged block that keeps a keyspace from being merged is dropped by a clear: no code reads it.
#[test]
fn damage_is_cleared_away() {
    let (disk, mut script) = script(1);
    script.fill(0, 0..500);
    script.settle();
    let names: Vec<_> = {
        let catalog = script.store.catalog.take(&*script.store.env.threads);
        let of_it = catalog.state.slices(script.keyspaces[0].tree.partition);
        of_it.map(|(number, ..)| catalog.state.tables[&number].file(number)).collect()
    };
    for file in names {
        assert_eq!(file.kind, FileKind::Table);
        let mut bytes = disk.contents(file).expect("it is there");
        bytes[4096 + 100] ^= 1;
        disk.set_contents(file, Some(&bytes));
    }
    assert!(matches!(contents(&script.store, NAMES[0]), Err(Error::Corrupt(_))));
    script.fill(0, 0..500);
    assert!(matches!(script.store.compact(), Err(Error::Corrupt(_))));
    script.write(&[(0, None, 0)]);
    script.store.flush().expect("no table is read");
    script.threads.run_until_idle();
    assert_eq!(script.tables(0), 0, "no pace is kept for what costs nothing");
    script.settle();
    script.fill(0, 0..20);
    script.store.compact().expect("what is damaged is gone");
    script.check();
    script.store.close().expect("nothing fails");
}
