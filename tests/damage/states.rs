//! The stores that the census damages: small, in the simulator, one for each state that a store can be at
//! rest in.
//!
//! The states are made through the public interface alone and are the same in every run. Each keeps earlier
//! versions of its files, for stale blocks and files, and the contents of every keyspace at that time.

mod by_key;
mod tries;

use std::collections::{BTreeMap, BTreeSet};

use trine::sim::{Crash, World};
use trine::{Db, Keyspace, Ordered};

use crate::support::{Files, Model, contents_of, divided, find, names};

pub(crate) use by_key::files_by_keys;
pub(crate) use tries::tries;

/// The contents of the keyspaces, by name.
pub(crate) type Contents = BTreeMap<String, Model>;

/// The other states a store may show if its last writes are not covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doubt {
    /// None: it was closed, or synced before the power cut.
    None,
    /// The process was killed with writes that were never synced: only the last batch is not covered.
    LastBatch,
    /// The power was cut with writes that nothing covers: any suffix of them may be lost.
    Unsynced,
}

/// The name of a key's partition.
pub(crate) type PartitionOf = fn(&[u8]) -> &[u8];

/// A point in the life of a store.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) files: Files,
    pub(crate) contents: Contents,
}

/// A store at rest.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) name: &'static str,
    pub(crate) world: World,
    pub(crate) memory_bytes: u64,
    pub(crate) files: Files,
    pub(crate) contents: Contents,
    /// Every key that ever existed, and some that never did.
    pub(crate) keys: BTreeMap<String, BTreeSet<Vec<u8>>>,
    /// Oldest first.
    pub(crate) earlier: Vec<Moment>,
    pub(crate) doubt: Doubt,
    /// The contents before each of its writes, in order, as far as they are in doubt.
    pub(crate) prefixes: Vec<Contents>,
    /// The number of these writes that a slot of the log covers.
    pub(crate) synced: usize,
    /// The partition name of a key, in the keyspace partitioned by key.
    pub(crate) partition_of: Option<PartitionOf>,
    /// The position of each present key in walks of a hashed keyspace.
    pub(crate) positions: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A store being built.
struct Maker {
    world: World,
    memory_bytes: u64,
    db: Db,
    keys: BTreeMap<String, BTreeSet<Vec<u8>>>,
    earlier: Vec<Moment>,
    /// `Some` while the contents before each write are recorded.
    prefixes: Option<Vec<Contents>>,
    synced: usize,
}

fn open(world: &World, memory_bytes: u64) -> Db {
    let builder = world.builder().memory_bytes(memory_bytes).set("manifest_bytes", 16 << 10);
    builder.open().expect("a sound store opens")
}

fn value(name: &str, index: u32, version: u32, length: usize) -> Vec<u8> {
    format!("{name} {index} {version} ").into_bytes().into_iter().cycle().take(length).collect()
}

fn held(db: &Db) -> Contents {
    names(db).into_iter().map(|name| (name.clone(), contents_of(db, &name))).collect()
}

fn ordered(db: &Db, name: &str) -> Keyspace<Ordered> {
    find(db, name).expect("it is there")
}

pub(crate) fn files_of(world: &World) -> Files {
    let names = world.files().expect("there is a directory");
    let files = names.into_iter().filter(|name| name != "LOCK");
    files.map(|name| (name.clone(), world.contents(&name).expect("it was listed"))).collect()
}

/// The length of the manifest that its slots cover, and its name.
pub(crate) fn vouched_bytes(files: &Files) -> (usize, &str) {
    let (name, bytes) = files.iter().find(|(name, _)| name.starts_with("manifest")).expect("there is one");
    let slot = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("it has slots"));
    (slot(4096).max(slot(8192)) as usize, name)
}

/// The slot pages of the logs.
fn log_slots(files: &Files) -> Vec<&[u8]> {
    let logs = files.iter().filter(|(name, _)| name.starts_with("log"));
    logs.map(|(_, bytes)| &bytes[4096..3 * 4096]).collect()
}

/// Whether STORE has a witness, the last-synced position of a log.
pub(crate) fn has_witness(files: &Files) -> bool {
    files["STORE"][3 * 4096..].iter().any(|byte| *byte != 0)
}

/// The end of the manifest's edits.
fn manifest_bytes(world: &World) -> usize {
    let files = files_of(world);
    let bytes = &files[vouched_bytes(&files).1];
    bytes.iter().rposition(|byte| *byte != 0).expect("it has edits") + 1
}

impl Maker {
    fn new(memory_bytes: u64) -> Maker {
        let world = World::new(0x5eed);
        let db = open(&world, memory_bytes);
        Maker {
            world,
            memory_bytes,
            db,
            keys: BTreeMap::new(),
            earlier: Vec::new(),
            prefixes: None,
            synced: 0,
        }
    }

    fn keyspace(&self, name: &str, settings: &[(&str, u64)]) -> Keyspace<Ordered> {
        let builder = self.db.ordered(name);
        let builder = settings.iter().fold(builder, |builder, (name, value)| builder.set(name, *value));
        builder.open().expect("a new keyspace")
    }

    /// Puts every `step`-th of `count` keys, and deletes every eleventh of these.
    fn write(&mut self, name: &str, (count, step): (u32, usize), version: u32, length: usize) {
        let keyspace = ordered(&self.db, name);
        for index in (0..count).step_by(step) {
            let key = self.key(name, index);
            self.note();
            match (index + version) % 11 {
                0 => keyspace.delete(key).expect("a write"),
                _ => {
                    let length = length + (index % 13) as usize;
                    keyspace.put(key, value(name, index, version, length)).expect("a write");
                }
            }
        }
    }

    /// The key of a number; its form differs between keyspaces.
    fn key(&mut self, name: &str, index: u32) -> Vec<u8> {
        let key = match name.len() % 3 {
            0 => index.to_be_bytes().to_vec(),
            1 => format!("{index:05}").into_bytes(),
            _ => format!("{name}/{}/{index}", "k".repeat(index as usize % 20)).into_bytes(),
        };
        let keys = self.keys.entry(name.to_owned()).or_default();
        keys.insert(key.clone());
        keys.insert([&key[..], b"~"].concat());
        key
    }

    /// Records the present moment.
    fn mark(&mut self) {
        self.earlier.push(Moment { files: files_of(&self.world), contents: held(&self.db) });
    }

    /// Records the contents before a write that may be in doubt.
    fn note(&mut self) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.push(held(&self.db));
        }
    }

    fn reopen(&mut self) {
        self.close();
        self.db = open(&self.world, self.memory_bytes);
    }

    fn close(&mut self) {
        self.world.run_until_idle();
        let elsewhere = World::new(1);
        std::mem::replace(&mut self.db, open(&elsewhere, self.memory_bytes)).close().expect("closes");
    }

    fn closed(mut self, name: &'static str) -> State {
        let contents = held(&self.db);
        self.close();
        let world = self.world.fork();
        self.state(name, world, contents, Doubt::None)
    }

    /// The process or the machine stops here, with background work unfinished.
    fn crashed(self, name: &'static str, crash: Crash, doubt: Doubt) -> State {
        let contents = held(&self.db);
        // Chooses a seed whose crash loses no data. After a power cut it loses only the manifest slot's end
        // and the witness; the synced positions in the log's slots stay.
        let before = files_of(&self.world);
        let world = (0..).map(|seed| self.world.crash(crash, seed)).find(|world| {
            let db = world.fork().builder().memory_bytes(self.memory_bytes).open();
            let files = files_of(world);
            db.is_ok_and(|db| held(&db) == contents)
                && log_slots(&files) == log_slots(&before)
                && (crash == Crash::Process
                    || (vouched_bytes(&files).0 < manifest_bytes(world) && !has_witness(&files)))
        });
        self.state(name, world.expect("some crash loses nothing"), contents, doubt)
    }

    fn state(self, name: &'static str, world: World, contents: Contents, doubt: Doubt) -> State {
        let files = files_of(&world);
        let Maker { memory_bytes, keys, mut earlier, prefixes, synced, .. } = self;
        earlier.retain(|moment| moment.files != files);
        let prefixes = prefixes.unwrap_or_default();
        let (partition_of, positions) = (None, BTreeMap::new());
        State {
            name,
            world,
            memory_bytes,
            files,
            contents,
            keys,
            earlier,
            doubt,
            prefixes,
            synced,
            partition_of,
            positions,
        }
    }
}

const SMALL: u64 = 128 << 10;

/// All items in the log; nothing else was ever written.
pub(crate) fn log_only() -> State {
    let mut maker = in_log(60, None);
    maker.mark();
    let left = ordered(&maker.db, "left");
    left.put("00001", "the last one").expect("a write");
    maker.closed("all in the log")
}

fn in_log(count: u32, prefixes: Option<Vec<Contents>>) -> Maker {
    let mut maker = Maker::new(SMALL);
    maker.keyspace("left", &[]);
    maker.mark();
    maker.keyspace("right!", &[]);
    maker.prefixes = prefixes;
    maker.write("left", (count, 1), 0, 25);
    maker.mark();
    maker.write("right!", (count, 1), 0, 25);
    let left = ordered(&maker.db, "left");
    maker.note();
    left.delete_range("00020".."00025").expect("a write");
    maker
}

/// The process was killed; nothing was ever synced.
fn log_after_kill() -> State {
    let mut maker = in_log(60, Some(Vec::new()));
    maker.mark();
    maker.note();
    let mut batch = maker.db.batch();
    batch.put(&ordered(&maker.db, "left"), "00001", "the last batch").expect("small");
    batch.put(&ordered(&maker.db, "right!"), "\0\0\0\x01", "is of both").expect("small");
    batch.commit().expect("a write");
    maker.crashed("all in the log, killed", Crash::Process, Doubt::LastBatch)
}

/// The power was cut; half of the writes were synced.
fn log_after_power() -> State {
    let mut maker = in_log(40, Some(Vec::new()));
    maker.db.sync().expect("syncs");
    maker.synced = maker.prefixes.as_ref().map_or(0, Vec::len);
    maker.mark();
    maker.write("left", (40, 3), 1, 30);
    maker.crashed("half synced, power cut", Crash::Power, Doubt::Unsynced)
}

/// Writes synced one by one; a slot of the log covers the first.
fn synced_one_by_one(prefixes: Option<Vec<Contents>>) -> Maker {
    let mut maker = in_log(30, prefixes);
    maker.db.sync().expect("syncs");
    maker.synced = maker.prefixes.as_ref().map_or(0, Vec::len);
    maker.mark();
    for version in 1..7 {
        maker.write("left", (1, 1), version, 20);
        maker.db.sync().expect("syncs");
    }
    assert!(has_witness(&files_of(&maker.world)), "the slot was no longer enough");
    maker
}

/// The process was killed with every write synced: the witness covers the last.
fn synced_before_kill() -> State {
    synced_one_by_one(None).crashed("all synced, killed", Crash::Process, Doubt::None)
}

/// The power was cut with every write synced, and the witness was lost. A slot covers the first write of the
/// last page, and each record covers those before it.
fn synced_before_power() -> State {
    let maker = synced_one_by_one(Some(Vec::new()));
    maker.crashed("all synced, power cut", Crash::Power, Doubt::Unsynced)
}

/// The power was cut just after a keyspace was dropped.
fn dropped_before_power() -> State {
    let mut maker = in_log(30, Some(Vec::new()));
    maker.db.sync().expect("syncs");
    maker.mark();
    maker.db.drop_keyspace("right!").expect("is there");
    maker.keys.remove("right!");
    maker.crashed("dropped, power cut", Crash::Power, Doubt::Unsynced)
}

fn flushed() -> State {
    let mut maker = Maker::new(SMALL);
    for name in ["left", "right!"] {
        maker.keyspace(name, &[]);
        maker.write(name, (130, 1), 0, 30);
    }
    maker.mark();
    maker.db.flush().expect("flushes");
    maker.closed("flushed")
}

/// Two keyspaces with items on a deeper level, in a run of level 0 that they share, and in the log.
pub(crate) fn merged() -> State {
    let mut maker = Maker::new(SMALL);
    ["left", "right!"].iter().for_each(|name| drop(maker.keyspace(name, &[])));
    for (version, step) in [(0, 1), (1, 3), (2, 7)] {
        for name in ["left", "right!"] {
            maker.write(name, (240, step), version, 20);
        }
        maker.mark();
        match version {
            0 => maker.db.compact().expect("merges"),
            1 => maker.db.flush().expect("flushes"),
            _ => maker.db.sync().expect("syncs"),
        }
        maker.mark();
    }
    maker.closed("merged")
}

fn with_ranges() -> State {
    let mut maker = Maker::new(SMALL);
    maker.keyspace("left", &[]);
    maker.keyspace("users", &[]);
    for name in ["left", "users"] {
        maker.write(name, (200, 1), 0, 20);
    }
    maker.db.compact().expect("merges");
    maker.mark();
    let left = ordered(&maker.db, "left");
    left.delete_range("00030".."00060").expect("a write");
    left.delete_range("00150"..).expect("a write");
    ordered(&maker.db, "users").delete_range("users/k".."users/kkkkk").expect("a write");
    maker.write("left", (60, 4), 1, 20);
    maker.db.flush().expect("flushes");
    maker.mark();
    left.delete_range("00005".."00009").expect("a write");
    maker.closed("range tombstones")
}

/// Keyspaces of every kind of filter in one file.
fn of_many_kinds() -> State {
    let mut maker = Maker::new(SMALL);
    for (name, kind) in [("none", 1), ("bloom!", 2), ("lines", 3), ("fuse", 4)] {
        maker.keyspace(name, &[("filter_kind", kind), ("filter_bits_per_key", 12)]);
        maker.write(name, (70, 1), 0, 12);
    }
    maker.mark();
    maker.db.flush().expect("flushes");
    maker.closed("four keyspaces in a file")
}

fn compressed() -> State {
    let mut maker = Maker::new(SMALL);
    for name in ["left", "right!"] {
        maker.keyspace(name, &[("compression", 1), ("block_bytes", 16 << 10)]);
        maker.write(name, (110, 1), 0, 60);
    }
    maker.db.compact().expect("merges");
    maker.mark();
    maker.write("left", (60, 3), 1, 60);
    maker.closed("compressed")
}

/// Tables with learned block indexes.
fn with_models() -> State {
    let mut maker = Maker::new(8 << 20);
    let left = maker.keyspace("left", &[("index_kind", 1), ("table_bytes", 1 << 20)]);
    maker.write("left", (250, 1), 0, 400);
    maker.mark();
    maker.db.compact().expect("merges");
    let levels = left.stats().expect("it is there").levels;
    assert!(levels.iter().any(|level| level.models_bytes > 0), "{levels:?}");
    maker.closed("models")
}

/// Values longer than a page, and longer than the cache keeps of a value.
fn with_large_values() -> State {
    let mut maker = Maker::new(2 << 20);
    maker.keyspace("left", &[]);
    maker.keyspace("right!", &[]);
    maker.write("left", (40, 1), 0, 30);
    for (index, length) in [(3, 4090), (4, 9000), (5, 70_000)] {
        for name in ["left", "right!"] {
            let key = maker.key(name, index);
            ordered(&maker.db, name).put(key, value(name, index, 7, length)).expect("a write");
        }
    }
    maker.mark();
    maker.db.flush().expect("flushes");
    maker.closed("large values")
}

/// The process was killed while a snapshot was held that has history tables.
fn held_by_a_snapshot() -> State {
    let mut maker = Maker::new(256 << 10);
    maker.keyspace("left", &[]);
    maker.write("left", (150, 1), 0, 40);
    let snapshot = maker.db.snapshot();
    for version in 1..=3 {
        maker.write("left", (150, 1), version, 40);
        maker.db.flush().expect("flushes");
        maker.world.run_until_idle();
        maker.mark();
    }
    maker.db.sync().expect("syncs");
    let state = maker.crashed("held by a snapshot, killed", Crash::Process, Doubt::None);
    assert!(state.files.keys().any(|name| name.starts_with("history")), "{:?}", state.files.keys());
    drop(snapshot);
    state
}

fn ingested() -> State {
    let mut maker = Maker::new(SMALL);
    maker.keyspace("left", &[]);
    let right = maker.keyspace("right!", &[]);
    maker.write("left", (80, 1), 0, 20);
    maker.write("right!", (80, 3), 0, 20);
    maker.mark();
    let mut ingest = right.ingest().expect("begins");
    for index in 0..140 {
        let key = maker.key("right!", index);
        ingest.put(key, value("right!", index, 1, 30)).expect("ascending");
    }
    ingest.finish().expect("is published");
    maker.closed("ingested")
}

/// A copy made by a checkpoint.
fn checkpointed() -> State {
    let mut maker = Maker::new(SMALL);
    maker.keyspace("left", &[]);
    maker.write("left", (150, 1), 0, 25);
    maker.db.flush().expect("flushes");
    maker.write("left", (150, 10), 1, 25);
    maker.mark();
    maker.db.checkpoint("copy").expect("is made");
    let (world, contents) = (maker.world.beside("copy"), held(&maker.db));
    maker.state("a checkpoint", world, contents, Doubt::None)
}

fn cleared() -> State {
    let mut maker = Maker::new(SMALL);
    for name in ["gone", "left", "right!"] {
        maker.keyspace(name, &[]);
        maker.write(name, (90, 1), 0, 25);
    }
    maker.db.flush().expect("flushes");
    maker.mark();
    ordered(&maker.db, "left").clear().expect("clears");
    maker.db.drop_keyspace("gone").expect("is there");
    maker.keys.remove("gone");
    maker.mark();
    maker.write("left", (40, 2), 1, 25);
    maker.closed("cleared and dropped")
}

/// Opened three times: manifests and logs of several processes.
fn reopened() -> State {
    let mut maker = Maker::new(SMALL);
    maker.keyspace("left", &[]);
    for version in 0..3 {
        maker.write("left", (120, 1 + version as usize), version, 25);
        maker.mark();
        if version == 1 {
            maker.db.flush().expect("flushes");
            maker.mark();
        }
        maker.reopen();
        maker.mark();
    }
    maker.write("left", (20, 1), 3, 25);
    maker.closed("opened again and again")
}

/// Partitions in tables and in the log, one of them dropped and made again.
fn partitioned() -> State {
    let mut maker = Maker::new(SMALL);
    let events = divided(&maker.db, "events");
    maker.keyspace("left", &[]);
    for name in ["a", "gone", "b"] {
        events.partition(name).expect("a new partition");
        maker.write(&format!("events/{name}"), (60, 1), 0, 25);
    }
    maker.db.flush().expect("a flush");
    maker.mark();
    assert!(events.drop_partition("gone").expect("a drop"));
    events.partition("gone").expect("a new partition");
    for name in ["events/b", "events/gone", "left"] {
        maker.write(name, (30, 2), 1, 40);
    }
    drop(events);
    maker.closed("partitions")
}

/// Every state.
pub(crate) fn all() -> Vec<State> {
    let makers: [fn() -> State; 21] = [
        log_only,
        log_after_kill,
        log_after_power,
        synced_before_kill,
        synced_before_power,
        dropped_before_power,
        flushed,
        merged,
        with_ranges,
        of_many_kinds,
        compressed,
        with_models,
        with_large_values,
        held_by_a_snapshot,
        ingested,
        checkpointed,
        cleared,
        reopened,
        partitioned,
        by_key::divided_by_prefix,
        by_key::divided_by_ranges,
    ];
    makers.iter().map(|make| make()).collect()
}

/// A store of some 400 KiB: three keyspaces, several levels, items in the log; the seed chooses keys and
/// values.
pub(crate) fn larger(seed: u64) -> State {
    let mut maker = Maker::new(256 << 10);
    let mut rng = crate::rng::Rng::new(seed);
    for (name, compression) in [("left", 0), ("right!", 1), ("users", 0)] {
        maker.keyspace(name, &[("compression", compression), ("level0_runs", 2)]);
    }
    for version in 0..4 {
        for name in ["left", "right!", "users"] {
            let step = 1 + rng.below(3);
            maker.write(name, (800, step), version, 10 + rng.below(120));
        }
        match version {
            0 => maker.db.compact().expect("merges"),
            3 => maker.db.sync().expect("syncs"),
            _ => maker.db.flush().expect("flushes"),
        }
    }
    ordered(&maker.db, "left").delete_range("00300".."00350").expect("a write");
    maker.closed("larger")
}
