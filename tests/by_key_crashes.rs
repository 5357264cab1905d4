//! Crash tests of keyspaces partitioned by key. The machine stops at each of its calls. The store then has
//! the state after a prefix of the steps: with all acknowledged ones, or, after a power cut, with all durable
//! ones.
//!
//! A write that makes a partition records it in the log, and the next manifest edit takes it over. A power
//! cut may leave the partition empty, if its first write is lost and the edit is not. A drop is one edit.

use std::collections::{BTreeMap, BTreeSet};

use trine::sim::{Crash, Stop, World};
use trine::{Access, Any, ByKey, Db, Durability, Error, Keyspace, Kind, Partitioning, Result, block_on};

type Map = BTreeMap<&'static str, u32>;

/// An operation on the store; writes are `Buffered` except `Synced`.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(&'static str),
    Synced(&'static str),
    /// As `Synced`, by a future.
    SyncedAsync(&'static str),
    /// A batch: a delete of each key with a `-` before it, a put of each other key; and whether it is synced.
    Batch(&'static [&'static str], bool),
    DeleteRange(&'static str, &'static str),
    Clear,
    Create(&'static [&'static str]),
    Drop(&'static [&'static str]),
    Flush,
    Compact,
}

/// A partitioning rule, and the partition name of a key under it.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// A prefix of one byte.
    Prefix,
    Ranges,
    /// A hashed keyspace, partitioned by a prefix of one byte.
    Hashed,
}

const BOUNDS: [&str; 3] = ["b", "c", "d"];

impl Rule {
    fn partitioning(self) -> Partitioning<ByKey> {
        match self {
            Rule::Prefix | Rule::Hashed => Partitioning::prefix(1),
            Rule::Ranges => Partitioning::ranges(BOUNDS),
        }
    }

    fn open(self, db: &Db) -> Result<Keyspace<Any>> {
        match self {
            Rule::Hashed => db.hashed("k").partition_by(self.partitioning()).open().map(drop)?,
            _ => db.ordered("k").partition_by(self.partitioning()).open().map(drop)?,
        }
        db.keyspace("k")
    }

    fn name_of(self, key: &str) -> &str {
        match self {
            Rule::Prefix | Rule::Hashed => &key[..1],
            Rule::Ranges => BOUNDS.into_iter().rev().find(|bound| *bound <= key).unwrap_or_default(),
        }
    }
}

/// The state of the store after a step.
#[derive(Clone, Default, Debug)]
struct State {
    map: Map,
    /// The partitions that exist.
    names: BTreeSet<&'static str>,
    /// Whether the keyspace exists.
    is_made: bool,
}

impl State {
    fn after(&self, rule: Rule, step: Step, number: u32) -> State {
        let mut after = self.clone();
        let mut put = |key: &'static str| {
            after.names.insert(rule.name_of(key));
            after.map.insert(key, number);
        };
        match step {
            Step::Put(key) | Step::Synced(key) | Step::SyncedAsync(key) => put(key),
            Step::Batch(items, _) => {
                for item in items {
                    match item.strip_prefix('-') {
                        Some(key) => drop(after.map.remove(key)),
                        None => {
                            after.names.insert(rule.name_of(item));
                            after.map.insert(item, number);
                        }
                    }
                }
            }
            Step::DeleteRange(from, to) => after.map.retain(|key, _| *key < from || *key >= to),
            Step::Clear => after.map.clear(),
            Step::Create(names) => after.names.extend(names),
            Step::Drop(names) => {
                after.names.retain(|name| !names.contains(name));
                after.map.retain(|key, _| !names.contains(&rule.name_of(key)));
            }
            Step::Flush | Step::Compact => {}
        }
        after
    }
}

fn take(db: &Db, keyspace: &Keyspace<Any>, step: Step, number: u32) -> Result<()> {
    let value = number.to_le_bytes();
    match step {
        Step::Put(key) => keyspace.put(key, value),
        Step::Synced(key) => keyspace.put_with(key, value, Durability::Sync),
        Step::SyncedAsync(key) => block_on(keyspace.put_async(key, value).durability(Durability::Sync)),
        Step::Batch(items, is_synced) => {
            let mut batch = db.batch();
            for item in items {
                match item.strip_prefix('-') {
                    Some(key) => batch.delete(keyspace, key)?,
                    None => batch.put(keyspace, item, value)?,
                }
            }
            batch.commit_with(if is_synced { Durability::Sync } else { Durability::Buffered })
        }
        Step::DeleteRange(from, to) => keyspace.ordered()?.delete_range(from..to),
        Step::Clear => keyspace.clear(),
        Step::Create(names) => keyspace.create_partitions(names),
        Step::Drop(names) => keyspace.drop_partitions(names).map(drop),
        Step::Flush => db.flush(),
        Step::Compact => db.compact(),
    }
}

/// Progress of a stopped run: the indexes of the last acknowledged, the last durable and the last begun
/// state, counted from the empty store.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    acked: usize,
    durable: usize,
    begun: usize,
}

fn open(world: &World) -> Result<Db> {
    world.builder().memory_bytes(128 << 10).set("manifest_bytes", 16 << 10).open()
}

/// Opens a store, makes the keyspace and runs the steps, with turns of background work between them.
fn run(world: &World, rule: Rule, steps: &[Step]) -> Known {
    let mut known = Known::default();
    let Ok(db) = open(world) else { return known };
    known.begun = 1;
    let Ok(keyspace) = rule.open(&db) else { return known };
    (known.acked, known.durable) = (1, 1);
    for (number, step) in (1..).zip(steps) {
        known.begun += 1;
        if take(&db, &keyspace, *step, number).is_err() {
            break;
        }
        known.acked += 1;
        match step {
            Step::Put(_) | Step::DeleteRange(..) | Step::Clear | Step::Batch(_, false) => {}
            _ => known.durable = known.acked,
        }
        for _ in 0..number % 3 {
            world.run_one();
        }
    }
    // The machine may have stopped, so the result does not matter.
    let _ = db.close();
    known
}

/// The items and partitions of a store, by a scan in each direction and by gets.
fn found(db: &Db, all: &BTreeSet<&'static str>) -> State {
    let Ok(keyspace) = db.keyspace("k") else { return State::default() };
    let number = |value: &[u8]| u32::from_le_bytes(value.try_into().unwrap());
    let get = |key: &&'static str| Some((*key, number(&keyspace.get(key).unwrap()?)));
    let map: Map = all.iter().filter_map(get).collect();
    let scanned = |item: Result<(trine::Value, trine::Value)>| {
        let (key, value) = item.unwrap();
        (String::from_utf8(key.to_vec()).unwrap(), number(&value))
    };
    let expected = map.iter().map(|(key, number)| ((*key).to_owned(), *number));
    if db.keyspaces()[0].kind == Kind::Hashed {
        let walk = keyspace.hashed().unwrap().iter_unordered();
        let mut walked: Vec<(String, u32)> = walk.map(scanned).collect();
        walked.sort();
        assert!(walked.into_iter().eq(expected), "a walk has what gets find");
    } else {
        let keyspace = keyspace.ordered().unwrap();
        assert!(keyspace.iter().map(scanned).eq(expected.clone()), "forward is what gets find");
        assert!(keyspace.iter().rev().map(scanned).eq(expected.rev()), "backward is what gets find");
    }
    let names = keyspace.partitions().unwrap();
    let candidates = ["", "a", "b", "c", "d", "e", "f", "g"];
    let names = names.iter().map(|name| *candidates.iter().find(|one| one.as_bytes() == name).unwrap());
    State { map, names: names.collect(), is_made: true }
}

/// All states of a run: the empty store, the store with the keyspace, and one state after each step.
fn states(rule: Rule, steps: &[Step]) -> Vec<State> {
    let mut states = vec![State::default(), State { is_made: true, ..State::default() }];
    for (number, step) in (1..).zip(steps) {
        let next = states.last().unwrap().after(rule, *step, number);
        states.push(next);
    }
    states
}

fn keys_of(states: &[State]) -> BTreeSet<&'static str> {
    states.iter().flat_map(|state| state.map.keys().copied()).collect()
}

/// Whether `found` is a valid state number `place`: its items and its partitions. Empty partitions of later
/// steps, up to number `begun`, may be there too.
fn is_state(states: &[State], (place, begun): (usize, usize), found: &State) -> bool {
    let state = &states[place];
    let is_known = |name: &&str| states[place..=begun].iter().any(|state| state.names.contains(name));
    found.is_made == state.is_made
        && found.map == state.map
        && found.names.is_superset(&state.names)
        && found.names.iter().all(is_known)
}

/// Checks the store after a crash, writes to it, and checks it again.
fn check(world: &World, (rule, known): (Rule, Known), (states, least): (&[State], usize), goes_on: bool) {
    let all = keys_of(states);
    let db = open(world).unwrap();
    let first = found(&db, &all);
    let place = (least..=known.begun).rev().find(|place| is_state(states, (*place, known.begun), &first));
    let Some(place) = place else { panic!("{first:?} is none of {:?}", &states[least..=known.begun]) };
    if !goes_on {
        return;
    }
    // Writes to some of the keys; items of a dropped partition do not come back in a new one of its name.
    let keyspace = rule.open(&db).unwrap();
    let mut map = states[place].map.clone();
    for key in all.iter().copied().filter(|key| key.ends_with(['1', '3'])) {
        keyspace.put(key, 1000u32.to_le_bytes()).unwrap();
        map.insert(key, 1000);
    }
    assert_eq!(found(&db, &all).map, map);
    db.settle().unwrap();
    assert!(db.verify(|_| {}).unwrap().findings.is_empty());
    db.sync().unwrap();
    let again = world.crash(Crash::Power, 77);
    assert_eq!(found(&open(&again).unwrap(), &all).map, map);
}

/// Stops a run before, amid and after each of its calls, and checks the store after a process crash and after
/// a power cut.
fn stop_at_each_call(rule: Rule, steps: &[Step]) {
    let states = states(rule, steps);
    let whole = World::new(9);
    let known = run(&whole, rule, steps);
    assert_eq!(known.acked, steps.len() + 1, "nothing fails by itself");
    let calls = whole.calls();
    assert!(calls > 20, "{calls}");
    for call in 0..calls {
        for stop in [Stop::Before, Stop::Amid, Stop::After] {
            let world = World::new(9);
            world.stop(stop, call);
            let known = run(&world, rule, steps);
            for (crash, least) in [(Crash::Process, known.acked), (Crash::Power, known.durable)] {
                for seed in 0..3 {
                    let told = Told { rule, steps, call, stop, crash, known };
                    let after = world.crash(crash, call * 3 + seed);
                    check(&after, (rule, known), (&states, least), seed == call % 3);
                    drop(told);
                }
            }
        }
    }
}

/// Prints the position of a failed check.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Told<'s> {
    rule: Rule,
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

/// Crashes between the making of a partition and its first item: the partition is empty or has the item. An
/// item acknowledged as durable survives a power cut.
#[test]
fn crashes_amid_first_writes() {
    let steps = [
        Step::Synced("a1"),
        Step::Put("a2"),
        Step::Synced("b1"),
        Step::Put("c1"),
        Step::SyncedAsync("d1"),
        Step::Create(&["a", "e", "g"]),
        Step::Put("e1"),
        Step::Flush,
        Step::Synced("f1"),
    ];
    stop_at_each_call(Rule::Prefix, &steps);
    let steps = [Step::Synced("b1"), Step::Put("a1"), Step::Synced("d1"), Step::Put("c1"), Step::Put("b2")];
    stop_at_each_call(Rule::Ranges, &steps);
}

/// Crashes amid edits of all kinds after first writes: each edit takes the partitions made in the log into
/// the manifest.
#[test]
fn crashes_amid_edits_behind_first_writes() {
    let steps = [
        Step::Put("a1"),
        Step::Put("b1"),
        Step::Flush,
        Step::Put("c1"),
        Step::Compact,
        Step::Put("d1"),
        Step::Create(&["d", "e"]),
        Step::Put("f1"),
        Step::Drop(&["c", "f"]),
        Step::Put("c2"),
        Step::Batch(&["f2", "-d1", "g1"], true),
        Step::Put("c3"),
    ];
    stop_at_each_call(Rule::Prefix, &steps);
}

/// Partitions made in the log exist after each reopen, though no edit was written. Verify and salvage know
/// them too. Once they are dropped, no log record makes them again, in an opening or in a salvage.
#[test]
fn partitions_in_logs_outlive_openings() {
    let mut world = World::new(21);
    let rule = Rule::Prefix;
    let mut map = Map::new();
    for (number, key) in (0..).zip(["a1", "b1", "c1", "a2"]) {
        let db = open(&world).unwrap();
        rule.open(&db).unwrap().put(key, u32::to_le_bytes(number)).unwrap();
        map.insert(key, number);
        drop(db);
        world = world.crash(Crash::Process, u64::from(number));
    }
    let all: BTreeSet<&'static str> = map.keys().copied().collect();
    let names: BTreeSet<&'static str> = ["a", "b", "c"].into();
    let read = world.builder().access(Access::ReadOnly).open().unwrap();
    let seen = found(&read, &all);
    assert_eq!((&seen.map, &seen.names), (&map, &names));
    let keyspace = read.keyspace("k").unwrap();
    keyspace.create_partition("a").expect("it is there");
    assert!(matches!(keyspace.create_partition("z"), Err(Error::ReadOnly)));
    drop(keyspace);
    read.close().unwrap();
    let report = world.verify().unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    let target = World::new(22);
    let salvaged = world.salvage(&target).unwrap();
    assert_eq!(salvaged.doubtful.len(), 0, "{salvaged:?}");
    let copy = found(&open(&target).unwrap(), &all);
    assert_eq!((&copy.map, &copy.names), (&map, &names));
    let db = open(&world).unwrap();
    rule.open(&db).unwrap().drop_partitions(["a", "b"]).unwrap();
    drop(db);
    world = world.crash(Crash::Power, 5);
    map.retain(|key, _| key.starts_with('c'));
    let target = World::new(23);
    let salvaged = world.salvage(&target).unwrap();
    assert_eq!(salvaged.doubtful.len(), 0, "{salvaged:?}");
    let copy = found(&open(&target).unwrap(), &all);
    assert_eq!((&copy.map, &copy.names), (&map, &["c"].into()));
    let left = found(&open(&world).unwrap(), &all);
    assert_eq!((left.map, left.names), (map, ["c"].into()));
}

/// Crashes in a hashed keyspace partitioned by key: first writes, batches, clears, and drops of items in logs
/// and in tables.
#[test]
fn crashes_of_hashed_keyspaces() {
    let steps = [
        Step::Synced("a1"),
        Step::Put("a2"),
        Step::SyncedAsync("b1"),
        Step::Batch(&["-a1", "b2", "c1"], false),
        Step::Flush,
        Step::Drop(&["a"]),
        Step::Put("a3"),
        Step::Batch(&["c2", "-b1", "-e1", "d1"], true),
        Step::Clear,
        Step::Put("b3"),
        Step::Drop(&["b", "d"]),
        Step::Synced("b4"),
    ];
    stop_at_each_call(Rule::Hashed, &steps);
}

/// Crashes amid drops: all named partitions exist or none, and durable items of other partitions stay. A
/// later partition of the same name has no item of an earlier one. All of them are in one log.
#[test]
fn crashes_amid_drops() {
    let steps = [
        Step::Put("a1"),
        Step::Synced("b1"),
        Step::Drop(&["a"]),
        Step::Put("a2"),
        Step::Drop(&["a", "b"]),
        Step::Put("b2"),
        Step::Synced("a3"),
        Step::Drop(&["b"]),
        Step::Put("a4"),
    ];
    stop_at_each_call(Rule::Prefix, &steps);
    stop_at_each_call(
        Rule::Ranges,
        &[Step::Put("c1"), Step::Put("b1"), Step::Drop(&["b", "c"]), Step::Synced("b2")],
    );
}

/// The same with items in tables.
#[test]
fn crashes_amid_drops_of_tables() {
    let steps = [
        Step::Put("a1"),
        Step::Put("b1"),
        Step::Flush,
        Step::Put("a2"),
        Step::Drop(&["a"]),
        Step::Put("a3"),
        Step::Compact,
        Step::Drop(&["b"]),
        Step::Put("b3"),
    ];
    stop_at_each_call(Rule::Prefix, &steps);
}

/// Batches and range deletes over several partitions, new ones among them, are there whole or not at all.
#[test]
fn crashes_amid_batches() {
    let steps = [
        Step::Batch(&["a1", "b1", "c1"], true),
        Step::Batch(&["-a1", "b2", "d1"], false),
        Step::DeleteRange("b1", "c2"),
        Step::Drop(&["a", "d"]),
        Step::Batch(&["a2", "-d1", "-c1", "e1"], true),
        Step::Clear,
        Step::Batch(&["b3", "e2"], false),
    ];
    stop_at_each_call(Rule::Prefix, &steps);
    stop_at_each_call(Rule::Ranges, &steps[..5]);
}
