//! The crash oracle. After a stop at any call, and after any loss of unsynced data by a power cut, the store
//! opens. Its state is that after one prefix of the commit order.
//!
//! A disk that is byte for byte equal to an earlier one is not opened again: the earlier result is checked
//! against the present bounds.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, ItemKind, TreeId};
use crate::base::place::stored_key;
use crate::base::settings::StoreSettings;
use crate::base::step::Direction;
use crate::base::sync::{Arc, Ordering};
use crate::io::sim::{Crash, FaultPlan, PowerCut, SimDisk, SimRng, SimThreads, Stop, sim_env};
use crate::io::storage::{DirectoryEntry, Storage};
use crate::read::get::GetMode;
use crate::read::scan::ScanMachine;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;
use crate::write::writer::Until;

use super::super::{OpenMode, OpenOptions, Store};
use super::model::{Copied, FoundKeyspace, Known, Model, Names, fingerprint, settings_fingerprint};
use super::recorder::Moment;
use super::replay::is_quiet;
use super::run::open;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;

/// Approximate calls of an opening; crashes of an opening fall within them.
pub(super) const OPEN_CALLS: u64 = 60;
/// A keyspace outside the workload, made to check that a store goes on.
pub(super) const OUTSIDE: &str = "outside";
/// Most turns of background work after an opening that a crash ends.
const TURNS_MAX: u64 = 40;

/// Prints the origin of a state if checking it panics.
pub(super) struct Told {
    pub(super) what: String,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() && !is_quiet() {
            eprintln!("it failed at: {}; TRINE_SEED=.. runs one seed alone", self.what);
        }
    }
}

/// The ends of a process and of those that recover after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ends {
    pub(super) crash: Crash,
    pub(super) cut: PowerCut,
    pub(super) seed: u64,
    /// Crashes of the processes that open the store next.
    pub(super) again: Vec<Again>,
}

/// The end of a recovering process, at a call counted from its first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Again {
    pub(super) call: u64,
    pub(super) stop: Stop,
    pub(super) crash: Crash,
    pub(super) seed: u64,
}

impl Ends {
    pub(super) fn once(crash: Crash, seed: u64) -> Ends {
        Ends { crash, cut: PowerCut::Any, seed, again: Vec::new() }
    }
}

impl Again {
    /// A random end within the first `calls` calls.
    pub(super) fn random(rng: &mut SimRng, calls: u64) -> Again {
        let stop = [Stop::Before, Stop::Amid, Stop::After][rng.index(3)];
        let crash = if rng.one_in(2) { Crash::Power } else { Crash::Process };
        Again { call: rng.below(calls), stop, crash, seed: rng.u64() }
    }
}

/// The least and most writes that may be found after a crash at one moment.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl Bounds {
    pub(super) fn of(known: &Known, worst: Crash) -> Bounds {
        let least = if worst == Crash::Power { known.synced } else { known.acked };
        Bounds { least, most: known.submitted }
    }

    /// Exactly the acknowledged writes.
    pub(super) fn now(known: &Known) -> Bounds {
        Bounds { least: known.acked, most: known.acked }
    }
}

/// How thoroughly a store is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// One scan of everything.
    Sums,
    /// Scans in both directions, and gets of every key.
    All,
}

/// The keyspaces of a disk and their contents.
pub(super) type Found = Vec<FoundKeyspace>;

/// Checks states and counts them.
pub(super) struct Examiner<'r> {
    pub(super) model: &'r Model,
    pub(super) memory_bytes: u64,
    pub(super) open_calls: u64,
    pub(super) rng: SimRng,
    pub(super) states_count: u64,
    /// The states among them whose disk was new and was opened.
    pub(super) opened_count: u64,
    /// The contents found on disks, by disk fingerprint, and by whether the machine stayed up since the
    /// writes.
    seen: BTreeMap<(u64, bool), Found>,
    /// The contents of checkpoints in the same way; `None` if there was no store.
    seen_copies: BTreeMap<(&'static str, u64), Option<Found>>,
}

impl<'r> Examiner<'r> {
    pub(super) fn new(model: &'r Model, memory_bytes: u64, seed: u64) -> Examiner<'r> {
        Examiner {
            model,
            memory_bytes,
            open_calls: OPEN_CALLS,
            rng: SimRng::new(seed),
            states_count: 0,
            opened_count: 0,
            seen: BTreeMap::new(),
            seen_copies: BTreeMap::new(),
        }
    }

    /// Crashes at a share of the moments; returns their number.
    pub(super) fn crash_some(&mut self, moments: &[Moment], share: u64) -> u64 {
        let mut rng = self.rng.clone();
        let mut moments_count = 0;
        for moment in moments {
            if !rng.one_in(share) {
                continue;
            }
            moments_count += 1;
            self.examine(moment, &Ends::once(Crash::Process, rng.u64()));
            for _ in 0..3 {
                self.examine(moment, &Ends::once(Crash::Power, rng.u64()));
            }
            let crash = if rng.one_in(2) { Crash::Power } else { Crash::Process };
            let again = (0..1 + rng.below(2)).map(|_| Again::random(&mut rng, self.open_calls)).collect();
            self.examine(moment, &Ends { again, ..Ends::once(crash, rng.u64()) });
        }
        self.rng = rng;
        moments_count
    }

    /// Checks one state: a moment, and the ends of the process and its successors. The seed determines every
    /// choice.
    pub(super) fn examine(&mut self, moment: &Moment, ends: &Ends) {
        let told = Told { what: format!("{}; {ends:?}", moment.what) };
        self.rng = SimRng::new(ends.seed ^ moment.call.rotate_left(32));
        let disk = moment.disk.fork();
        disk.crash_by(ends.crash, ends.cut, ends.seed);
        let mut worst = ends.crash;
        for again in &ends.again {
            self.recover_in_part(&disk, again);
            if again.crash == Crash::Power {
                worst = again.crash;
            }
        }
        for copied in &moment.known.copies {
            self.check_copy(&disk, copied);
        }
        self.check(&disk, Bounds::of(&moment.known, worst), worst);
        drop(told);
    }

    /// The number of calls of the next opening.
    pub(super) fn calls_of_opening(&mut self, moment: &Moment, ends: &Ends) -> u64 {
        let disk = moment.disk.fork();
        disk.crash_by(ends.crash, ends.cut, ends.seed);
        let before = disk.calls();
        let (store, _threads) = open(&disk, None, ends.seed, self.memory_bytes).expect("it opens");
        let calls = disk.calls() - before;
        store.close().expect("nothing fails");
        calls
    }

    fn recover_in_part(&mut self, disk: &Arc<SimDisk>, again: &Again) {
        disk.plan(FaultPlan::stop(again.stop, again.call));
        if let Ok((store, threads)) = open(disk, None, self.rng.u64(), self.memory_bytes) {
            for _ in 0..self.rng.below(TURNS_MAX) {
                threads.run_one();
            }
            // The process may have stopped meanwhile.
            let _ = store.close();
        }
        disk.crash(again.crash, again.seed);
    }

    /// Opens the store and checks its contents; `worst` is the worst end of any process that wrote to the
    /// disk.
    pub(super) fn check(&mut self, disk: &Arc<SimDisk>, bounds: Bounds, worst: Crash) {
        self.states_count += 1;
        let (seed, more) = (self.rng.u64(), self.rng.below(16));
        let key = (disk.fingerprint(), worst == Crash::Process);
        if more > 2
            && let Some(found) = self.seen.get(&key)
        {
            self.place_of(found, bounds);
            return;
        }
        self.opened_count += 1;
        // The next opening has enough space.
        disk.set_capacity_bytes(None);
        let (store, threads) = match open(disk, None, seed, self.memory_bytes) {
            Ok(opened) => opened,
            Err(error) => panic!("it does not open: {error}"),
        };
        let found = found(&store, if more > 3 { Care::Sums } else { Care::All });
        let place = self.place_of(&found, bounds);
        match more {
            0 => {
                // Contents seen once must persist: recovery made them durable.
                let after = disk.fork();
                after.crash(Crash::Power, seed);
                let (again, _) = open(&after, None, seed, self.memory_bytes).expect("it opens again");
                self.find(&again, place);
                again.close().expect("nothing fails");
                self.states_count += 1;
            }
            1 | 2 => self.live_on(disk, &store, &threads, place),
            _ => {}
        }
        self.seen.insert(key, found);
        store.close().expect("nothing fails");
    }

    /// Checks that completed checkpoints exist.
    pub(super) fn check_copies(&mut self, disk: &Arc<SimDisk>, known: &Known) {
        for copied in known.copies.iter().filter(|copied| copied.most.is_some()) {
            self.check_copy(disk, copied);
        }
    }

    /// Checks that a checkpoint is whole or no store, and that a completed one exists.
    fn check_copy(&mut self, disk: &Arc<SimDisk>, copied: &Copied) {
        let beside = disk.directory_beside(Path::new(copied.path)).fork();
        beside.crash(Crash::Process, 0);
        let key = (copied.path, beside.fingerprint());
        let found = self.seen_copies.get(&key).cloned().unwrap_or_else(|| copy_found(&beside));
        match &found {
            Some(found) => {
                let most = copied.most.unwrap_or(usize::MAX);
                self.place_of(found, Bounds { least: copied.least, most });
            }
            None => assert!(copied.most.is_none(), "the checkpoint in {} is gone", copied.path),
        }
        self.seen_copies.insert(key, found);
    }

    /// Settles the store, checks that it has no orphan, writes to it, and checks that it opens again with the
    /// write.
    fn live_on(&mut self, disk: &Arc<SimDisk>, store: &Arc<Store>, threads: &SimThreads, place: usize) {
        store.settle().expect("nothing fails");
        threads.run_until_idle();
        assert_no_orphans(disk, store);
        let keyspace = store.open_keyspace(OUTSIDE, &[]).expect("nothing fails");
        let mut items = BatchItems::default();
        items.push(keyspace.tree, ItemKind::Put, b"key", b"value").expect("within limits");
        store.write(&items, Some(Until::Written)).expect("it takes writes");
        if self.rng.one_in(2) {
            store.compact().expect("nothing fails");
        }
        store.close().expect("nothing fails");
        let left = logs_on(disk);
        let (store, threads) = open(disk, None, 1, self.memory_bytes).expect("it opens again");
        assert!(store.keyspace(OUTSIDE).is_ok(), "a keyspace is gone");
        let catalog = store.catalog.take(&*store.env.threads);
        for (log, _) in &left {
            assert!(catalog.state.logs.contains_key(&log.number), "{log} was left by a closed store");
        }
        let left_bytes: u64 = left.iter().map(|(_, bytes)| bytes).sum();
        assert!(left_bytes <= store.budget.closed_logs_bytes_max, "{left_bytes} bytes of logs were left");
        drop(catalog);
        self.find(&store, place);
        store.settle().expect("nothing fails");
        threads.run_until_idle();
        assert_no_orphans(disk, &store);
        store.close().expect("nothing fails");
    }

    /// Checks that the store holds exactly the first `place` writes.
    fn find(&self, store: &Store, place: usize) {
        self.place_of(&found(store, Care::All), Bounds { least: place, most: place });
    }

    fn place_of(&self, found: &Found, bounds: Bounds) -> usize {
        place_of(self.model, found, bounds).0
    }
}

/// The prefix of writes that was found, and its keyspaces.
pub(super) fn place_of(model: &Model, found: &Found, bounds: Bounds) -> (usize, Arc<Names>) {
    let Bounds { least, most } = bounds;
    model.prefix_of(found, least..=most).unwrap_or_else(|| {
        let all = model.prefix_of(found, 0..=model.writes_count());
        panic!("{found:?} is the state of {all:?}, not of {least} to {most}");
    })
}

/// The contents of a checkpoint; `None` if it is no store.
fn copy_found(beside: &Arc<SimDisk>) -> Option<Found> {
    let (env, _threads) = sim_env(beside, 1);
    let settings = StoreSettings { memory_bytes: 128 << 10, ..StoreSettings::default() };
    match Store::open(env, OpenOptions::new(settings, OpenMode::Existing)) {
        Ok(store) => {
            let found = found(&store, Care::Sums);
            store.close().expect("nothing fails");
            Some(found)
        }
        Err(Error::Missing { .. }) => None,
        Err(Error::Corrupt(at)) if at.file == "STORE" => None,
        Err(other) => panic!("{other}"),
    }
}

fn found(store: &Store, care: Care) -> Found {
    try_found(store, care).expect("everything can be read")
}

/// The keyspaces and their contents.
pub(super) fn try_found(store: &Store, care: Care) -> Result<Found> {
    let sum = |name: &str| match care {
        Care::Sums => sum_of(store, name),
        Care::All => contents(store, name),
    };
    let found = |name: String| {
        let settings = settings_fingerprint(&named(store, &name)?.settings());
        Ok(FoundKeyspace { sum: sum(&name)?, name, settings })
    };
    names(store).into_iter().filter(|name| name != OUTSIDE).map(found).collect()
}

/// The names of all readable keyspaces and partitions. A partition's name follows that of its keyspace and a
/// slash.
fn names(store: &Store) -> Vec<String> {
    let names_in = |one: Arc<KeyspaceState>| match one.partitions() {
        Some(partitions) => {
            check_routing(store, &one);
            partitions.all().iter().map(|partition| partition.full_name()).collect()
        }
        None => vec![one.name.clone()],
    };
    store.keyspaces().into_iter().flat_map(names_in).collect()
}

/// Checks that keys of a keyspace divided by keys are read from its existing partitions.
fn check_routing(store: &Store, keyspace: &KeyspaceState) {
    if !keyspace.is_divided_by_keys() {
        return;
    }
    let view = store.view_of(&store.point());
    let partitions = keyspace.partitions().expect("it is divided").all();
    for one in &partitions {
        let name = one.partition_name().expect("it is a partition");
        let key = stored_key(store.hash_secret(), keyspace.id, name);
        assert_eq!(
            keyspace.tree_of(&key, &view.version).expect("routed"),
            one.tree,
            "its name is one of its keys"
        );
    }
    let trees: Vec<TreeId> = partitions.iter().map(|one| one.tree).collect();
    assert_eq!(keyspace.trees_in(&view.version, (&[], &[])), trees);
}

/// The keyspace or partition of this name.
pub(super) fn named(store: &Store, name: &str) -> Result<Arc<KeyspaceState>> {
    let Some((keyspace, partition)) = name.split_once('/') else { return store.keyspace(name) };
    let divided = store.keyspace(keyspace)?;
    let found = divided.partitions().and_then(|partitions| partitions.get(partition.as_bytes()));
    found.ok_or_else(|| Error::NoKeyspace { name: name.to_owned() })
}

/// The fingerprint of a keyspace, by one scan.
fn sum_of(store: &Store, name: &str) -> Result<u64> {
    let (keyspace, point) = (named(store, name)?, store.point());
    let (mut sum, mut last) = (0, Vec::new());
    let mut scan = scan_of(&keyspace, &point, Direction::Forward);
    while store.advance(&point, &mut scan)? {
        assert!(sum == 0 || scan.key() > last.as_slice(), "keys come in order");
        sum ^= fingerprint(scan.key(), scan.value());
        last.clear();
        last.extend_from_slice(scan.key());
    }
    Ok(sum)
}

pub(super) fn scan_of(keyspace: &KeyspaceState, point: &Point, direction: Direction) -> ScanMachine {
    let range = (Bound::Unbounded, Bound::Unbounded);
    ScanMachine::new(point.sight(keyspace.tree), range, direction)
}

/// The fingerprint of a keyspace now.
pub(super) fn contents(store: &Store, name: &str) -> Result<u64> {
    contents_at(store, &*named(store, name)?, &store.point())
}

/// The fingerprint of a keyspace, read forward, backward, key by key, and by many keys at once.
pub(super) fn contents_at(store: &Store, keyspace: &KeyspaceState, point: &Point) -> Result<u64> {
    let mut sums = [0; 2];
    let mut keys = [Vec::new(), Vec::new()];
    // A hashed keyspace has only forward scans.
    let ways = if keyspace.id.is_hashed() { 1 } else { 2 };
    for (index, direction) in [Direction::Forward, Direction::Backward].into_iter().enumerate().take(ways) {
        let mut scan = scan_of(keyspace, point, direction);
        while store.advance(point, &mut scan)? {
            let (key, value) = (scan.key(), scan.value());
            sums[index] ^= fingerprint(key, value);
            keys[index].push(key.to_vec());
            if direction == Direction::Forward {
                let got = store.get(keyspace, (key, GetMode::Value), Some(point), &mut NoTrace, |got| {
                    got.map(<[u8]>::to_vec)
                })?;
                assert_eq!(got.as_deref(), Some(value), "a get is what the scan has");
            }
        }
    }
    let [forward, backward] = keys;
    assert!(forward.is_sorted_by(|one, next| one < next), "keys come in order");
    let is_same = sums[0] == sums[1] && forward.iter().eq(backward.iter().rev());
    assert!(is_same || ways == 1, "forward is backward");
    // Present keys, and some absent ones.
    let mut asked = forward.clone();
    let some = (0..80).map(|number| format!("{number:03}").into_bytes());
    asked.extend(some.map(|key| stored_key(store.hash_secret(), keyspace.id, &key).to_vec()));
    let mut sum = 0;
    store.multi_get(keyspace, &asked, Some(point), |number, value| {
        let is_there = forward.binary_search(&asked[number]).is_ok();
        assert_eq!(value.is_some(), is_there, "gets find what the scan has, and no more");
        if number < forward.len() {
            sum ^= value.map_or(0, |value| fingerprint(&asked[number], value));
        }
    })?;
    assert_eq!(sum, sums[0], "many gets at once are what the scan has");
    Ok(sums[0])
}

/// The manifest or STORE names every file, except a log that is kept to be used again.
pub(in crate::engine) fn assert_no_orphans(disk: &SimDisk, store: &Store) {
    let catalog = store.catalog.take(&*store.env.threads);
    let mut recycled_count = 0;
    for entry in disk.fork().list().expect("nothing fails") {
        let DirectoryEntry::Ours(file) = entry else { continue };
        let is_named = match file.kind {
            FileKind::Manifest => file == catalog.manifest.file(),
            FileKind::Log if !catalog.state.logs.contains_key(&file.number) => {
                recycled_count += 1;
                recycled_count == 1 && store.work.recycled_log.load(Ordering::Relaxed) == file.number
            }
            FileKind::Log => true,
            FileKind::Table => catalog.state.tables.contains_key(&file.number),
            _ => file == FileName::LOCK || file == FileName::STORE,
        };
        assert!(is_named, "{file} is an orphan");
    }
}

/// The logs of a disk, with their lengths.
fn logs_on(disk: &SimDisk) -> Vec<(FileName, u64)> {
    let length = |log| disk.length(log).expect("nothing fails").unwrap_or(0);
    let logs = disk.list().expect("nothing fails").into_iter().filter_map(|entry| match entry {
        DirectoryEntry::Ours(file @ FileName { kind: FileKind::Log, .. }) => Some((file, length(file))),
        _ => None,
    });
    logs.collect()
}

/// The seeds of a test, or those of the environment. TRINE_SEED=7 is one seed. TRINE_SEEDS=5 is the first
/// five seeds of the test, and TRINE_SEEDS=100..200 is a range.
pub(super) fn seeds(all: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let number = |text: &str| text.parse().expect("a number");
    if let Ok(seed) = std::env::var("TRINE_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    match std::env::var("TRINE_SEEDS") {
        Ok(text) => match text.split_once("..") {
            Some((start, end)) => number(start)..number(end),
            None => all.start..all.start + number(&text),
        },
        Err(_) => all,
    }
}
