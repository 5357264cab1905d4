//! The child: a store under load until the process is killed or has closed the store.

use std::path::Path;

use trine::{Builder, Db, Durability, Keyspace, Ordered};

use crate::raw::die_with_parent;
use crate::rng::Rng;
use crate::support::small;

use super::check::read_all;
use super::plan::{Change, Item, Keys, NUMBERS, Op, Plan, Space, apply, key, name, value, version};
use super::witness::{COPIES_MAX, OPS_MAX, Orders, Own, Phase, THREADS, Witness};

pub(crate) const WITNESS: &str = "TRINE_TEST_WITNESS";
pub(crate) const IO: &str = "TRINE_TEST_IO";

/// The variable with the directory of the child's checkpoints.
pub(crate) const COPIES: &str = "TRINE_TEST_COPIES";

/// The builder of the store, for parent and child.
pub(crate) fn builder(data: &Path, io: &str) -> Builder {
    small(data).set("io", io)
}

struct Life<'l> {
    db: Db,
    spaces: [Keyspace<Ordered>; 3],
    witness: &'l Witness,
    orders: Orders,
}

/// The entry point of the child.
pub(crate) fn child(data: &Path) {
    die_with_parent();
    let variable = |name: &str| std::env::var(name).unwrap();
    let witness = Witness::open(Path::new(&variable(WITNESS)));
    let orders = witness.orders();
    witness.enter(Phase::Opening);
    let mut rng = Rng::new(orders.seed ^ orders.cycle);
    let durability = if rng.one_in(8) { Durability::Sync } else { Durability::Buffered };
    let db = builder(data, &variable(IO)).durability(durability).open().unwrap();
    let open = |name: &str| {
        let settings = db.ordered(name).set("level0_runs", 2).set("table_bytes", 64 << 10);
        settings.set("compression", if name == "right" { "lz4" } else { "none" }).open().unwrap()
    };
    let spaces = ["left", "right", "ingested"].map(open);
    witness.enter(Phase::Loading);
    let life = Life { db, spaces, witness: &witness, orders };
    let all_synced = durability == Durability::Sync;
    std::thread::scope(|scope| {
        let life = &life;
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || Writer::new(life, thread).run(all_synced)))
            .collect();
        let copies = (variable(COPIES) == "yes").then(|| data.parent().unwrap());
        let keeper = scope.spawn(move || life.keep(copies, rng));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        keeper.join().unwrap();
    });
    witness.enter(Phase::Closing);
    drop(life.spaces);
    life.db.close().unwrap();
    witness.enter(Phase::Closed);
    loop {
        std::thread::park();
    }
}

impl Life<'_> {
    /// Flushes, merges, checkpoints and reads beside the writers.
    fn keep(&self, copies: Option<&Path>, mut rng: Rng) {
        let mut made = 0;
        while self.witness.acknowledged().iter().any(|count| *count < self.orders.closes_after) {
            match rng.below(40) {
                0..4 => self.db.flush().unwrap(),
                4 => self.db.compact().unwrap(),
                5 if made < COPIES_MAX => {
                    let Some(directory) = copies else { continue };
                    self.witness.begin_copy(made);
                    self.db.checkpoint(directory.join(format!("copy {made}"))).unwrap();
                    self.witness.end_copy(made);
                    made += 1;
                }
                6..8 => drop(read_all(&self.db, &mut rng)),
                8 => assert!(self.db.verify(|_| {}).unwrap().findings.is_empty()),
                _ => {
                    let keys: Vec<String> = (0..1 + rng.below(20))
                        .map(|_| key(Space::Right, rng.below(THREADS), rng.below(NUMBERS) as u16))
                        .collect();
                    let found = self.spaces[1].multi_get(&keys).unwrap();
                    for (key, found) in keys.iter().zip(found) {
                        if let Some(found) = found {
                            let version = u64::from_le_bytes(*found.first_chunk().unwrap());
                            assert!(value(version, key) == *found, "a value that nobody wrote");
                        }
                    }
                }
            }
        }
    }
}

/// One thread, and the contents of its keys since it began.
struct Writer<'l> {
    life: &'l Life<'l>,
    thread: usize,
    own: Option<Keyspace<Ordered>>,
    plan: Plan,
    known: Known,
}

/// The writes of a thread in this life; `None`: deleted.
#[derive(Default)]
struct Known(std::collections::BTreeMap<Item, Option<u64>>);

impl Keys for Known {
    fn set(&mut self, item: Item, version: Option<u64>) {
        self.0.insert(item, version);
    }
}

impl<'l> Writer<'l> {
    fn new(life: &'l Life<'l>, thread: usize) -> Writer<'l> {
        let own: Own = life.orders.owns[thread];
        let plan = Plan::new(life.orders.seed, life.orders.cycle, thread, own);
        let own = own.present.map(|number| Writer::make(life, thread, number));
        Writer { life, thread, own, plan, known: Known::default() }
    }

    fn make(life: &Life<'_>, thread: usize, number: u32) -> Keyspace<Ordered> {
        life.db.ordered(&name(Space::Own(number), thread)).open().unwrap()
    }

    fn run(&mut self, all_synced: bool) {
        let witness = self.life.witness;
        for index in 0..self.life.orders.closes_after.min(OPS_MAX) {
            let op = self.plan.next().expect("a plan has no end");
            let version = version(self.life.orders.cycle, self.thread, index);
            let is_durable = op.is_durable() || all_synced && matches!(op, Op::Write { .. });
            witness.submit(self.thread, index);
            let before = witness.acknowledged();
            self.make_call(&op, version);
            witness.acknowledge(self.thread, index);
            if is_durable {
                let mut synced = before;
                synced[self.thread] = index + 1;
                witness.synced(synced);
            }
            apply(&op, version, &mut self.known);
            if index % 32 == 31 {
                self.look();
            }
        }
    }

    fn space(&self, space: Space) -> &Keyspace<Ordered> {
        match space {
            Space::Left => &self.life.spaces[0],
            Space::Right => &self.life.spaces[1],
            Space::Ingested => &self.life.spaces[2],
            Space::Own(_) => self.own.as_ref().expect("a plan writes to what it has made"),
        }
    }

    fn make_call(&mut self, op: &Op, version: u64) {
        match op {
            Op::Sync => self.life.db.sync().unwrap(),
            Op::Make(number) => self.own = Some(Writer::make(self.life, self.thread, *number)),
            Op::Drop(number) => {
                self.own = None;
                self.life.db.drop_keyspace(&name(Space::Own(*number), self.thread)).unwrap();
            }
            Op::Ingest(numbers) => {
                let mut ingest = self.space(Space::Ingested).ingest().unwrap();
                for number in numbers {
                    let key = key(Space::Ingested, self.thread, *number);
                    ingest.put(&key, value(version, &key)).unwrap();
                }
                ingest.finish().unwrap();
            }
            Op::Write { changes, is_synced: false } if changes.len() == 1 => {
                self.write_one(&changes[0], version);
            }
            Op::Write { changes, is_synced } => self.write_batch(changes, *is_synced, version),
        }
    }

    fn write_one(&self, change: &Change, version: u64) {
        let key = |item: &Item| key(item.0, self.thread, item.1);
        match change {
            Change::Put(item) => {
                let key = key(item);
                self.space(item.0).put(&key, value(version, &key)).unwrap();
            }
            Change::Delete(item) => self.space(item.0).delete(key(item)).unwrap(),
            Change::DeleteRange(space, numbers) => {
                let range = key(&(*space, numbers.start))..key(&(*space, numbers.end));
                self.space(*space).delete_range(range).unwrap();
            }
            Change::Clear(space) => self.space(*space).clear().unwrap(),
        }
    }

    fn write_batch(&self, changes: &[Change], is_synced: bool, version: u64) {
        let key = |item: &Item| key(item.0, self.thread, item.1);
        let mut batch = self.life.db.batch();
        for change in changes {
            match change {
                Change::Put(item) => {
                    let key = key(item);
                    batch.put(self.space(item.0), &key, value(version, &key)).unwrap();
                }
                Change::Delete(item) => batch.delete(self.space(item.0), key(item)).unwrap(),
                Change::DeleteRange(space, numbers) => {
                    let range = key(&(*space, numbers.start))..key(&(*space, numbers.end));
                    batch.delete_range(self.space(*space), range).unwrap();
                }
                Change::Clear(space) => batch.clear_keyspace(self.space(*space)).unwrap(),
            }
        }
        if is_synced { batch.commit_with(Durability::Sync).unwrap() } else { batch.commit().unwrap() }
    }

    /// Asserts that the thread reads its own last writes.
    fn look(&self) {
        let own = self.plan.own().present;
        let is_there = |space: Space| !matches!(space, Space::Own(number) if Some(number) != own);
        for (item, version) in self.known.0.iter().filter(|(item, _)| is_there(item.0)).step_by(17) {
            let key = key(item.0, self.thread, item.1);
            let expected = version.map(|version| value(version, &key));
            let found = self.space(item.0).get(&key).unwrap();
            assert!(found.as_deref() == expected.as_deref(), "not what was written last to {key}");
        }
    }
}
