//! Crash tests of hashed keyspaces. The machine stops at each of its calls while a load pushes runs from node
//! to node. The next process finds the state after a prefix of the steps: with all acknowledged ones, or,
//! after a power cut, with all durable ones. Every file has an owner, and every file is undamaged.
//!
//! The load begins with a store that already has a trie, so that few calls contain several pushes. The
//! machine also stops at the calls between the sync of a push's table and the edit that names the table.

use std::collections::BTreeMap;

use trine::sim::{Crash, Stop, World};
use trine::{Db, Hashed, Keyspace, Result, Snapshot, Unordered, Value};

use crate::rng::Rng;

use Step::{Clear, DropIt, Flush, LookAgain, LookOnce, Settle, Synced, Turns, Write};

/// Keys by number, each with the number of the batch that wrote it.
type Map = BTreeMap<u32, u32>;
/// The store's items after a step; `None` if the keyspace does not exist.
type State = Option<Map>;

/// The number of keys of a load.
const KEYS: u32 = 120;
const BATCH_ITEMS: usize = 10;
/// Value sizes: with `LARGE` a batch is most of a table; with `SMALL` it is a small part, so that a pile gets
/// long before its bytes make it due.
const LARGE: usize = 1200;
const SMALL: usize = 250;
/// `runs_in_last_level`: with `PILES` leaves are never merged; with `MERGED` they are merged at rest.
const PILES: u64 = 63;
/// `filter_kind`: filters of a node's runs in one page.
const BY_COLUMN: u64 = 5;
const MERGED: u64 = 0;
/// Batches written before the steps have smaller numbers.
const FIRST_BATCH: u32 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A batch of puts and deletes, `Buffered`.
    Write,
    /// As `Write`, durable.
    Synced,
    Flush,
    /// A number of turns of background work.
    Turns(usize),
    Settle,
    Clear,
    DropIt,
    /// Takes a snapshot and does half of a walk over it.
    LookOnce,
    /// Reads the snapshot, does the rest of the walk, and drops both.
    LookAgain,
}

fn open(world: &World) -> Result<Db> {
    world.builder().memory_bytes(128 << 10).set("manifest_bytes", 16 << 10).open()
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// A value repeats its batch's number.
fn value(batch: u32, value_bytes: usize) -> Vec<u8> {
    batch.to_le_bytes().into_iter().cycle().take(value_bytes).collect()
}

fn batch_of(value: &[u8]) -> u32 {
    let batch = u32::from_le_bytes(value[..4].try_into().unwrap());
    assert!(value == self::value(batch, value.len()) && [SMALL, LARGE].contains(&value.len()));
    batch
}

/// The items of a batch: each a key and whether it is deleted.
fn items(batch: u32) -> Vec<(u32, bool)> {
    let mut rng = Rng::new(u64::from(batch));
    (0..BATCH_ITEMS).map(|_| (rng.below(KEYS as usize) as u32, rng.one_in(6))).collect()
}

fn write(db: &Db, keyspace: &Keyspace<Hashed>, (batch, value_bytes): (u32, usize)) -> Result<()> {
    let mut all = db.batch();
    for (number, is_deleted) in items(batch) {
        match is_deleted {
            true => all.delete(keyspace, key(number))?,
            false => all.put(keyspace, key(number), value(batch, value_bytes))?,
        }
    }
    all.commit()
}

fn write_in(map: &mut Map, batch: u32) {
    for (number, is_deleted) in items(batch) {
        match is_deleted {
            true => drop(map.remove(&number)),
            false => drop(map.insert(number, batch)),
        }
    }
}

/// All states of a run, the one before the first step first.
fn states(first: &Map, steps: &[Step]) -> Vec<State> {
    let mut states = vec![Some(first.clone())];
    for (batch, step) in (FIRST_BATCH..).zip(steps) {
        let mut next = states[states.len() - 1].clone();
        match (step, &mut next) {
            (Write | Synced, Some(map)) => write_in(map, batch),
            (Clear, Some(map)) => map.clear(),
            (DropIt, next) => *next = None,
            _ => {}
        }
        states.push(next);
    }
    states
}

/// A closed store whose trie has two heights. The root has `root_runs` runs; each was one batch of values of
/// `value_bytes` bytes.
fn prepared(value_bytes: usize, root_runs: u64) -> (World, Map) {
    let (world, mut map) = (World::new(3), Map::new());
    let db = open(&world).unwrap();
    let keyspace =
        db.hashed("h").set("runs_in_last_level", PILES).set("filter_kind", BY_COLUMN).open().unwrap();
    let mut was_pushed = false;
    for batch in 0.. {
        write(&db, &keyspace, (batch, if was_pushed { value_bytes } else { LARGE })).unwrap();
        write_in(&mut map, batch);
        db.flush().unwrap();
        db.settle().unwrap();
        let levels = keyspace.stats().unwrap().levels;
        was_pushed = levels.len() == 2;
        if was_pushed && levels[0].runs == root_runs {
            break;
        }
        assert!(batch < FIRST_BATCH, "{levels:?}");
    }
    drop(keyspace);
    db.close().unwrap();
    (world, map)
}

/// A snapshot, its expected items, and half of a walk over it.
struct Look {
    snapshot: Snapshot,
    map: Map,
    walk: Unordered,
    walked: Map,
}

/// Adds an item of a walk to `map`.
fn add(map: &mut Map, (key, value): (Value, Value)) {
    let number = u32::from_le_bytes(key[..].try_into().unwrap());
    assert_eq!(map.insert(number, batch_of(&value)), None, "a key comes once: {number}");
}

impl Look {
    fn take(db: &Db, keyspace: &Keyspace<Hashed>, map: &Map) -> Result<Look> {
        let snapshot = db.snapshot();
        let (mut walk, mut walked) = (keyspace.at(&snapshot).iter_unordered(), Map::new());
        for item in walk.by_ref().take(map.len() / 2) {
            add(&mut walked, item?);
        }
        Ok(Look { snapshot, map: map.clone(), walk, walked })
    }

    fn check(mut self, keyspace: &Keyspace<Hashed>) -> Result<()> {
        for item in self.walk {
            add(&mut self.walked, item?);
        }
        assert_eq!(self.walked, self.map, "a walk shows what was there when it began");
        let at = keyspace.at(&self.snapshot);
        for number in 0..KEYS {
            assert_eq!(at.get_with(key(number), batch_of)?, self.map.get(&number).copied(), "{number}");
        }
        Ok(())
    }
}

/// Progress of a stopped run: the indexes of the last acknowledged, the last durable and the last begun
/// state.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    acked: usize,
    durable: usize,
    begun: usize,
}

/// A load: a prepared store and the steps on it.
struct Load {
    value_bytes: usize,
    root_runs: u64,
    /// `runs_in_last_level` of the keyspace.
    leaf_runs: u64,
    steps: Vec<Step>,
}

/// The process that runs the steps.
struct Process<'w> {
    world: &'w World,
    db: Db,
    keyspace: Keyspace<Hashed>,
    look: Option<Look>,
}

impl Process<'_> {
    fn open<'w>(world: &'w World, load: &Load) -> Process<'w> {
        let db = open(world).unwrap();
        let keyspace = db.hashed("h").set("runs_in_last_level", load.leaf_runs).set("filter_kind", BY_COLUMN);
        let keyspace = keyspace.open().unwrap();
        Process { world, db, keyspace, look: None }
    }

    fn take(&mut self, step: Step, batch: (u32, usize), state: &State) -> Result<()> {
        let Process { world, db, keyspace, look } = self;
        match step {
            Write => write(db, keyspace, batch),
            Synced => write(db, keyspace, batch).and_then(|()| db.sync()),
            Flush => db.flush(),
            Turns(count) => {
                for _ in 0..count {
                    world.run_one();
                }
                Ok(())
            }
            Settle => db.settle(),
            Clear => keyspace.clear(),
            DropIt => db.drop_keyspace("h"),
            LookOnce => {
                let map = state.as_ref().expect("the keyspace is there");
                Look::take(db, keyspace, map).map(|taken| *look = Some(taken))
            }
            LookAgain => look.take().map_or(Ok(()), |look| look.check(keyspace)),
        }
    }

    /// Runs the steps until one fails; calls `beside` with the store after each.
    fn run(&mut self, load: &Load, states: &[State], mut beside: impl FnMut(usize, &Db)) -> Known {
        let mut known = Known::default();
        for (number, step) in load.steps.iter().enumerate() {
            known.begun = number + 1;
            let batch = (FIRST_BATCH + number as u32, load.value_bytes);
            if self.take(*step, batch, &states[number]).is_err() {
                break;
            }
            known.acked = number + 1;
            if matches!(step, Synced | Flush | DropIt) {
                known.durable = known.acked;
            }
            beside(number, &self.db);
        }
        self.look = None;
        // The machine may have stopped, so the result does not matter.
        let _ = self.db.clone().close();
        known
    }
}

/// The items of a store, by a walk and by gets.
fn found(db: &Db) -> State {
    if !db.contains_keyspace("h") {
        return None;
    }
    let keyspace = db.keyspace("h").unwrap().hashed().unwrap();
    let mut map = Map::new();
    keyspace.iter_unordered().for_each(|item| add(&mut map, item.unwrap()));
    let keys: Vec<[u8; 4]> = (0..KEYS).map(key).collect();
    let together = keyspace.multi_get(&keys).unwrap();
    for (number, together) in (0..).zip(together) {
        let expected = map.get(&number).copied();
        assert_eq!(keyspace.get_with(key(number), batch_of).unwrap(), expected, "{number}");
        assert_eq!(together.as_deref().map(batch_of), expected, "{number}");
    }
    Some(map)
}

/// Checks the store after a crash: its state, its files, and further writes.
fn check(world: &World, states: &[State], least: usize, goes_on: bool) {
    let db = open(world).unwrap();
    let state = found(&db);
    assert!(states[least..].contains(&state), "{state:?} is none of {:?}", &states[least..]);
    assert_eq!(db.stats().space.unnamed_bytes, 0, "each file has an owner");
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    if !goes_on {
        return;
    }
    let keyspace = db.hashed("h").open().unwrap();
    let mut map = state.unwrap_or_default();
    for batch in 5000..5012 {
        write(&db, &keyspace, (batch, LARGE)).unwrap();
        write_in(&mut map, batch);
    }
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!(found(&db).as_ref(), Some(&map));
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    let again = world.crash(Crash::Power, 77);
    assert_eq!(found(&open(&again).unwrap()), Some(map));
}

/// Stops a run amid and after each of its calls, and checks the store after a process crash and after a power
/// cut. `beside` sees the run that is not stopped.
fn stop_at_each_call(load: &Load, beside: impl FnMut(usize, &Db)) {
    let (first, map) = prepared(load.value_bytes, load.root_runs);
    let states = states(&map, &load.steps);
    let whole = first.crash(Crash::Process, 5);
    let mut process = Process::open(&whole, load);
    let before = whole.calls();
    let known = process.run(load, &states, beside);
    assert_eq!(known.acked, load.steps.len(), "nothing fails by itself");
    let calls = whole.calls() - before;
    assert!(calls > 20, "{calls}");
    for call in 0..calls {
        for stop in [Stop::Amid, Stop::After] {
            let world = first.crash(Crash::Process, 5);
            let mut process = Process::open(&world, load);
            world.stop(stop, call);
            let known = process.run(load, &states, |_, _| {});
            for (crash, least) in [(Crash::Process, known.acked), (Crash::Power, known.durable)] {
                let told = Told { steps: &load.steps, call, stop, crash, known };
                let after = world.crash(crash, call);
                check(&after, &states[..=known.begun], least, call % 8 == stop as u64);
                drop(told);
            }
        }
    }
}

/// Prints the position of a failed check.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Told<'s> {
    steps: &'s [Step],
    call: u64,
    stop: Stop,
    crash: Crash,
    known: Known,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it failed at {self:?}");
        }
    }
}

/// The number of runs at a height.
fn runs(db: &Db, height: u64) -> u64 {
    let keyspaces = db.stats().keyspaces;
    let hashed = keyspaces.iter().find(|one| one.name == "h");
    let levels = hashed.into_iter().flat_map(|one| &one.levels);
    levels.filter(|level| level.level == height).map(|level| level.runs).sum()
}

/// A push moves runs from the root to its children. The machine stops before the push, while it writes its
/// table, between the sync of the table and the edit, and while the input tables are removed.
#[test]
fn crashes_amid_a_push() {
    let steps = [Write, Flush, Synced, Flush, Write, Turns(3), Write, Synced, Turns(1), Flush, Settle];
    let load = Load { value_bytes: LARGE, root_runs: 9, leaf_runs: PILES, steps: steps.to_vec() };
    let (mut saw_new_table, mut child_runs) = (false, Vec::new());
    stop_at_each_call(&load, |_, db| {
        saw_new_table |= db.stats().space.new_table_bytes > 0;
        child_runs.push(runs(db, 1));
    });
    assert!(saw_new_table, "steps are taken while a push writes");
    assert_eq!((child_runs.first(), child_runs.last()), (Some(&8), Some(&16)));
}

/// At rest the items of the root go to the leaves, and each leaf is merged into one run. The machine also
/// stops between the sync of a leaf's table and the edit.
#[test]
fn crashes_amid_merges_of_leaves() {
    let steps = [Write, Flush, Turns(2), Synced, Turns(3), Settle, Write, Flush, Turns(4), Write, Settle];
    let load = Load { value_bytes: LARGE, root_runs: 3, leaf_runs: MERGED, steps: steps.to_vec() };
    let (mut merges, mut all_runs) = (Vec::new(), Vec::new());
    stop_at_each_call(&load, |_, db| {
        merges.push(db.stats().background.merges);
        all_runs.push((runs(db, 0), runs(db, 1)));
    });
    assert!(merges[merges.len() - 1] > merges[0] + 8, "a merge for each leaf: {merges:?}");
    assert!(all_runs.contains(&(0, 8)), "the leaves have one run each: {all_runs:?}");
}

/// The newest runs of a long pile are merged into one.
#[test]
fn crashes_amid_a_fold() {
    let steps = [Write, Flush, Synced, Flush, Turns(1), Write, Flush, Write, Turns(2), Settle];
    let load = Load { value_bytes: SMALL, root_runs: 10, leaf_runs: PILES, steps: steps.to_vec() };
    let mut root_runs = Vec::new();
    stop_at_each_call(&load, |_, db| root_runs.push(runs(db, 0)));
    // Eleven of these runs have the bytes of two tables.
    assert!(root_runs.contains(&13) && root_runs.last() == Some(&3), "{root_runs:?}");
}

/// A keyspace is dropped while a push writes its children's table. After a crash all of the keyspace is gone,
/// or nothing.
#[test]
fn crashes_amid_a_drop_under_a_push() {
    let steps = [Write, Flush, Write, Flush, Turns(3), DropIt, Turns(4), Settle];
    let load = Load { value_bytes: LARGE, root_runs: 9, leaf_runs: PILES, steps: steps.to_vec() };
    let mut is_under_push = false;
    stop_at_each_call(&load, |step, db| {
        is_under_push |= steps.get(step + 1) == Some(&DropIt) && db.stats().space.new_table_bytes > 0;
        let space = db.stats().space;
        assert!(step < 7 || (space.table_bytes, space.new_table_bytes) == (0, 0), "{space:?}");
    });
    assert!(is_under_push);
}

/// A keyspace is cleared while a push writes. The cleared items do not come back with the push.
#[test]
fn crashes_amid_a_clear_under_a_push() {
    let steps =
        [Write, Flush, Write, Flush, Turns(3), Clear, Synced, Turns(2), Flush, Turns(4), Write, Settle];
    let load = Load { value_bytes: LARGE, root_runs: 9, leaf_runs: PILES, steps: steps.to_vec() };
    let (mut is_under_push, mut last_runs) = (false, (0, 0));
    stop_at_each_call(&load, |step, db| {
        is_under_push |= steps.get(step + 1) == Some(&Clear) && db.stats().space.new_table_bytes > 0;
        last_runs = (runs(db, 0), runs(db, 1));
    });
    assert!(is_under_push);
    assert_eq!(last_runs, (1, 0), "what was cleared is gone");
}

/// A snapshot and a walk over it continue over tables that a push has replaced. These tables are removed once
/// both are dropped.
#[test]
fn crashes_under_a_readers_view() {
    let steps = [LookOnce, Write, Flush, Write, Flush, Settle, Synced, LookAgain, Settle];
    let load = Load { value_bytes: LARGE, root_runs: 9, leaf_runs: PILES, steps: steps.to_vec() };
    let mut kept_bytes = Vec::new();
    stop_at_each_call(&load, |_, db| kept_bytes.push(db.stats().space.obsolete_table_bytes));
    assert!(kept_bytes.iter().any(|bytes| *bytes > 0), "the reader keeps what it reads");
    assert_eq!(kept_bytes.last(), Some(&0));
}
