//! Long-lived snapshots and iterators: the memory they keep is moved to history tables, and their results do
//! not change.

use trine::sim::{Crash, Failure, Fault, Operation, Repeat, World};
use trine::{Db, Error, FileReaderKind, Keyspace, KeyspaceAt, Ordered, Snapshot, block_on};

use crate::rng::{Rng, with_seeds};
use crate::support::Model;

fn open(world: &World) -> (Db, Keyspace<Ordered>) {
    let db = world.builder().memory_bytes(256 << 10).set("manifest_bytes", 16 << 10).open().unwrap();
    let users = db.ordered("users").open().unwrap();
    (db, users)
}

/// Random puts and deletes by the seed, also applied to `model`.
fn write(users: &Keyspace<Ordered>, model: &mut Model, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let key = format!("{:04}", rng.below(600)).into_bytes();
        if rng.below(4) == 0 {
            users.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = rng.below(1 << 30).to_string().repeat(1 + rng.below(20)).into_bytes();
            users.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn held(at: &KeyspaceAt<Ordered>) -> Model {
    at.iter().map(|item| item.unwrap()).map(|(key, value)| (key.into(), value.into())).collect()
}

fn histories(world: &World) -> usize {
    world.files().unwrap().iter().filter(|name| name.starts_with("history")).count()
}

/// Snapshots taken at any time, some sharing a view, keep their contents while everything is overwritten many
/// times. Their memory is freed: history tables replace it, and are removed with the snapshots.
#[test]
fn long_snapshots_keep_tables_and_no_memory() {
    with_seeds("long_snapshots_keep_tables_and_no_memory", 12, |seed| {
        let world = World::new(seed);
        let (db, users) = open(&world);
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let mut taken: Vec<(Snapshot, Model)> = Vec::new();
        for _ in 0..6 {
            let count = rng.below(400);
            write(&users, &mut model, &mut rng, count);
            taken.push((db.snapshot(), model.clone()));
            if rng.below(2) == 0 {
                taken.push((db.snapshot(), model.clone()));
            }
        }
        for _ in 0..4 {
            write(&users, &mut model, &mut rng, 2000);
            world.run_until_idle();
            let stats = db.stats();
            assert!(stats.snapshots.generation_bytes * 16 <= stats.memory.budget_bytes, "{stats:?}");
            assert!(stats.memory.used_bytes <= stats.memory.budget_bytes, "{stats:?}");
            for (snapshot, model) in &taken {
                let at = users.at(snapshot);
                assert_eq!(held(&at), *model);
                for key in (0..600).map(|number| format!("{number:04}").into_bytes()) {
                    assert_eq!(at.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
                }
            }
        }
        let stats = db.stats().snapshots;
        assert_eq!(stats.alive, taken.len() as u64);
        assert!(stats.history_tables > 0 && histories(&world) > 0, "{stats:?}");
        assert!(stats.files > 0 && stats.file_bytes > 0 && stats.oldest_ns > 0, "{stats:?}");
        let space = db.stats().space;
        assert_eq!(space.total_bytes, world.used_bytes(), "{space:?}");
        let history_files = space.obsolete_files.iter().filter(|file| file.name.starts_with("history"));
        assert!(
            history_files.clone().all(|file| file.readers[0].kind == FileReaderKind::Snapshot),
            "{space:?}"
        );
        assert_eq!(history_files.map(|file| file.bytes).sum::<u64>(), space.history_bytes, "{space:?}");
        drop(taken);
        world.run_until_idle();
        assert_eq!(histories(&world), 0, "they go with their last reader");
        users.put("one more", "1").unwrap();
        db.compact().unwrap();
        world.run_until_idle();
        let stats = db.stats().snapshots;
        assert_eq!((stats.alive, stats.files, stats.generations, stats.oldest_ns), (0, 0, 0, 0));
        db.close().unwrap();
    });
}

/// Iterators and cursors in the middle of a range continue at their position, in both directions, though
/// their source was moved. The memory is freed even before they step.
#[test]
fn iterators_follow_their_view() {
    with_seeds("iterators_follow_their_view", 12, |seed| {
        let world = World::new(seed);
        let (db, users) = open(&world);
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let count = 200 + rng.below(400);
        write(&users, &mut model, &mut rng, count);
        let expected: Vec<(Vec<u8>, Vec<u8>)> = model.clone().into_iter().collect();
        let mut iterator = users.iter();
        let (mut cursor, mut sought) = (users.cursor(..), users.cursor(..));
        let untouched = users.iter();
        let (mut front, mut back) = (Vec::new(), Vec::new());
        sought.seek("0300").unwrap();
        for round in 0..5 {
            for _ in 0..rng.below(10) {
                front.extend(iterator.next().map(Result::unwrap));
                back.extend(iterator.next_back().map(Result::unwrap));
                cursor.next().unwrap();
            }
            write(&users, &mut model, &mut rng, 1500);
            world.run_until_idle();
            let stats = db.stats();
            assert!(stats.snapshots.generation_bytes * 16 <= stats.memory.budget_bytes, "{stats:?}");
            let at = cursor.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
            let prev = cursor.prev().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
            if let (Some(at), Some(prev)) = (at, prev) {
                let index = expected.iter().position(|one| *one == at).expect("an item of then");
                assert_eq!(expected[index - 1], prev, "round {round}");
            }
        }
        let first = expected.iter().find(|(key, _)| key.as_slice() >= &b"0300"[..]);
        let found = sought.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert_eq!(found.as_ref(), first);
        front.extend(iterator.map(Result::unwrap));
        front.extend(back.into_iter().rev());
        let got: Vec<(Vec<u8>, Vec<u8>)> = front.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        assert_eq!(got, expected);
        let got: Vec<(Vec<u8>, Vec<u8>)> =
            untouched.map(Result::unwrap).map(|(k, v)| (k.into(), v.into())).collect();
        assert_eq!(got, expected);
        assert!(db.stats().snapshots.history_tables > 0);
        drop((cursor, sought));
        db.compact().unwrap();
        world.run_until_idle();
        assert_eq!((db.stats().snapshots.generations, histories(&world)), (0, 0));
    });
}

/// A dropped keyspace stays in earlier snapshots, including items that were only in memory. A keyspace made
/// after the snapshot is not in it.
#[test]
fn snapshots_keep_dropped_keyspaces() {
    let world = World::new(7);
    let (db, users) = open(&world);
    let old = db.ordered("old").open().unwrap();
    old.put("ann", "1").unwrap();
    let snapshot = db.snapshot();
    db.drop_keyspace("old").unwrap();
    let new = db.ordered("new").open().unwrap();
    new.put("bob", "2").unwrap();
    write(&users, &mut Model::new(), &mut Rng::new(7), 4000);
    world.run_until_idle();
    assert!(db.stats().snapshots.history_tables > 0);
    assert_eq!(old.at(&snapshot).get("ann").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(new.at(&snapshot).get("bob").unwrap(), None);
    assert_eq!(users.at(&snapshot).iter().count(), 0);
}

/// Snapshots of one write buffer share one file: common items are written once, and items changed between
/// them a few times, not once for each snapshot.
#[test]
fn snapshots_of_one_buffer_share_a_file() {
    const COUNT: u64 = 64;
    let world = World::new(3);
    let db = world.builder().memory_bytes(4 << 20).open().unwrap();
    let users = db.ordered("users").open().unwrap();
    let put = |number: u64, fill: u8| users.put(number.to_be_bytes(), [fill; 1000]).unwrap();
    (0..150).for_each(|number| put(number, 1));
    let take = |number| {
        put(number, 2);
        db.snapshot()
    };
    let taken: Vec<Snapshot> = (0..COUNT).map(take).collect();
    (1000..4000).for_each(|number| put(number, 3));
    world.run_until_idle();
    let stats = db.stats();
    assert_eq!(stats.snapshots.history_tables, 1, "{stats:?}");
    let (base_bytes, changed_bytes) = (150 * 1008, COUNT * 1008);
    let limit_bytes = base_bytes + (2 + u64::from(COUNT.ilog2())) * changed_bytes;
    assert!((1..=limit_bytes).contains(&stats.space.history_bytes), "{stats:?}");
    assert_eq!(stats.snapshots.generation_bytes, 0, "{stats:?}");
    for (index, snapshot) in (0u64..).zip(&taken) {
        let at = users.at(snapshot);
        let fills: Vec<u8> = at.iter().map(|item| item.unwrap().1[0]).collect();
        assert_eq!(fills.len(), 150);
        assert!((0..).zip(&fills).all(|(number, fill)| *fill == if number <= index { 2 } else { 1 }));
        let (last, next) = (at.get(index.to_be_bytes()), at.get((index + 1).to_be_bytes()));
        assert_eq!((last.unwrap().unwrap()[0], next.unwrap().unwrap()[0]), (2, 1));
    }
    drop(taken);
    world.run_until_idle();
    assert_eq!(histories(&world), 0);
}

/// Keyspaces and their contents, now or as of a snapshot.
type Held = Vec<(Keyspace<Ordered>, Model)>;

/// A store beside its model, with snapshots.
struct Many {
    world: World,
    db: Db,
    now: Held,
    taken: Vec<(Snapshot, Held)>,
    rng: Rng,
}

impl Many {
    const NAMES: [&str; 2] = ["users", "others"];

    fn key(&mut self) -> Vec<u8> {
        format!("{:03}", self.rng.below(300)).into_bytes()
    }

    /// One random write, or one operation on the whole store.
    fn act(&mut self) {
        let which = self.rng.below(2);
        let (key, other) = (self.key(), self.key());
        let value = self.rng.below(1 << 30).to_string().repeat(1 + self.rng.below(20)).into_bytes();
        let kind = self.rng.below(1000);
        let (space, model) = &mut self.now[which];
        match kind {
            0..700 => {
                space.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            700..850 => {
                space.delete(&key).unwrap();
                model.remove(&key);
            }
            850..880 => {
                let (from, to) = (key.clone().min(other.clone()), key.max(other));
                space.delete_range(&from[..]..&to[..]).unwrap();
                model.retain(|key, _| !(&from..&to).contains(&key));
            }
            880..885 => {
                space.clear().unwrap();
                model.clear();
            }
            885..890 => {
                let mut ingest = space.ingest().unwrap();
                let first = self.rng.below(250);
                for number in first..first + 1 + self.rng.below(40) {
                    let key = format!("{number:03}").into_bytes();
                    ingest.put(&key, &value).unwrap();
                    model.insert(key, value.clone());
                }
                ingest.finish().unwrap();
            }
            890..893 => {
                self.db.drop_keyspace(Many::NAMES[which]).unwrap();
                self.now[which] = (self.db.ordered(Many::NAMES[which]).open().unwrap(), Model::new());
            }
            893..900 => self.db.flush().unwrap(),
            900..902 => self.db.compact().unwrap(),
            902..910 => self.world.run_until_idle(),
            910..960 => {
                for _ in 0..self.rng.below(20) {
                    self.world.run_one();
                }
            }
            960..985 => self.taken.push((self.db.snapshot(), self.now.clone())),
            _ if !self.taken.is_empty() => {
                let index = self.rng.below(self.taken.len());
                self.taken.swap_remove(index);
            }
            _ => {}
        }
    }

    fn check(&self, index: usize) {
        let (snapshot, then) = &self.taken[index];
        for (space, model) in then {
            let at = space.at(snapshot);
            assert_eq!(held(&at), *model);
            let back: Vec<Vec<u8>> = at.iter().rev().map(|item| item.unwrap().0.into()).collect();
            assert!(back.iter().eq(model.keys().rev()));
            for key in (0..300).step_by(7).map(|number| format!("{number:03}").into_bytes()) {
                assert_eq!(at.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
            }
        }
    }
}

/// Many snapshots, dropped at random, keep their contents at every step. Meanwhile keys and ranges are
/// written and deleted, keyspaces are cleared, dropped and filled by ingests, and everything is flushed and
/// merged.
#[test]
fn many_snapshots_keep_their_contents() {
    with_seeds("many_snapshots_keep_their_contents", 6, |seed| {
        let world = World::new(seed);
        let db = world.builder().memory_bytes(256 << 10).set("manifest_bytes", 16 << 10).open().unwrap();
        let now = Many::NAMES.map(|name| (db.ordered(name).open().unwrap(), Model::new())).into();
        let mut many = Many { world, db, now, taken: Vec::new(), rng: Rng::new(seed) };
        for _ in 0..5000 {
            many.act();
            if many.rng.one_in(20) && !many.taken.is_empty() {
                let index = many.rng.below(many.taken.len());
                many.check(index);
            }
        }
        many.world.run_until_idle();
        let stats = many.db.stats();
        assert!(stats.snapshots.history_tables > 0, "{stats:?}");
        assert_eq!(stats.space.total_bytes, many.world.used_bytes(), "{stats:?}");
        (0..many.taken.len()).for_each(|index| many.check(index));
        many.taken.clear();
        many.world.run_until_idle();
        assert_eq!(histories(&many.world), 0);
    });
}

/// If a history table cannot be written, other operations are not affected. History files left by a crash are
/// removed.
#[test]
fn failing_history_tables_affect_no_other_calls() {
    let world = World::new(9);
    let (db, users) = open(&world);
    let (mut rng, mut model) = (Rng::new(9), Model::new());
    write(&users, &mut model, &mut rng, 300);
    let (snapshot, then) = (db.snapshot(), model.clone());
    for failure in [Failure::Full, Failure::Io] {
        world.fail(&[Fault::of(Operation::Write, failure).in_files("history").repeat(Repeat::Always)]);
        write(&users, &mut model, &mut rng, 1500);
        world.run_until_idle();
        db.flush().unwrap();
        assert_eq!(held(&users.at(&snapshot)), then);
    }
    assert_eq!(db.stats().snapshots.history_tables, 0);
    world.fail(&[]);
    write(&users, &mut model, &mut rng, 1500);
    db.flush().unwrap();
    world.run_until_idle();
    assert!(histories(&world) > 0);
    assert_eq!(held(&users.at(&snapshot)), then);
    let after = world.crash(Crash::Process, 1);
    assert!(histories(&after) > 0);
    let (_db, users) = open(&after);
    assert_eq!(histories(&after), 0);
    assert_eq!(crate::support::contents(&users), model);
}

/// A process that crashes while it writes history leaves a file; the next opening removes it.
#[test]
fn a_file_of_history_that_was_begun_is_removed() {
    let world = World::new(10);
    // Flushing a write buffer takes a few turns.
    let db = world.builder().memory_bytes(8 << 20).open().unwrap();
    let users = db.ordered("users").open().unwrap();
    let mut model = Model::new();
    let mut put = |number: u64| {
        users.put(number.to_be_bytes(), [7; 1000]).unwrap();
        model.insert(number.to_be_bytes().into(), vec![7; 1000]);
    };
    (0..900).for_each(&mut put);
    let snapshot = db.snapshot();
    for number in 900.. {
        put(number);
        while histories(&world) == 0 && world.run_one() {}
        if histories(&world) > 0 {
            break;
        }
    }
    assert_eq!(db.stats().snapshots.history_tables, 0, "it is begun, not done");
    let after = world.crash(Crash::Process, 1);
    assert_eq!(histories(&after), 1);
    let (_db, users) = open(&after);
    assert_eq!(histories(&after), 0);
    assert_eq!(crate::support::contents(&users), model);
    drop(snapshot);
}

/// Every read at a snapshot of another store answers `Invalid`, and at one of a closed store `Closed`. The
/// stores go on.
#[test]
fn snapshots_of_other_stores_are_refused() {
    fn is_invalid<T>(result: &trine::Result<T>) -> bool {
        matches!(result, Err(Error::Invalid { faults }) if faults[0].contains("another open store"))
    }
    let (one, other) = (World::new(1), World::new(2));
    let ((db, users), (other_db, others)) = (open(&one), open(&other));
    users.put("ann", "1").unwrap();
    others.put("ann", "2").unwrap();
    let of_other = other_db.snapshot();
    let at = users.at(&of_other);
    assert!(is_invalid(&at.get("ann")) && is_invalid(&at.get_with("ann", <[u8]>::len)));
    assert!(is_invalid(&at.get_into("ann", &mut Vec::new())) && is_invalid(&at.contains("ann")));
    assert!(is_invalid(&at.multi_get(&["ann"])) && is_invalid(&at.multi_get_with(&["ann"], |_, _| ())));
    assert!(is_invalid(&at.first()) && is_invalid(&at.last()) && is_invalid(&at.approximate_len()));
    assert!(is_invalid(&at.iter().next().unwrap()) && is_invalid(&at.prefix("a").next_back().unwrap()));
    let mut cursor = at.cursor(..);
    assert!(is_invalid(&cursor.next()) && is_invalid(&cursor.seek("a")) && is_invalid(&cursor.prev()));
    assert!(
        is_invalid(&block_on(at.get_async("ann"))) && is_invalid(&block_on(at.multi_get_async(&["ann"])))
    );
    assert!(is_invalid(&block_on(at.range_async(..).next()).unwrap()));
    let mut batch = other_db.batch();
    assert!(is_invalid(&batch.put(&users, "ann", "3")) && batch.is_empty());

    let before = db.snapshot();
    drop((cursor, at, users));
    db.close().unwrap();
    let (db, users) = open(&one);
    assert!(matches!(users.at(&before).get("ann"), Err(Error::Closed)));
    assert_eq!(users.at(&db.snapshot()).get("ann").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(others.at(&of_other).get("ann").unwrap().as_deref(), Some(&b"2"[..]));
}
