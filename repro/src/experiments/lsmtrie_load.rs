//! A load of items with random keys into a trie or a tree, with its cost by tenths.
//!
//! Keys and values are those of the bench. Table and write buffer have 256 KiB, so that a load of a gigabyte
//! has as many tables as one of the paper, whose tables have 32 MiB. One thread puts the items one by one.
//! Callers are the figures of `lsmtrie`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use trine::{Db, Hashed, Keyspace, KeyspaceBuilder, KeyspaceStats, Ordered, Stats};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::keys::{Permutation, Shape};
use trine_workload::text::ratio;

use super::Job;
use crate::lab::stop_if_asked;

/// Bytes of a table, and of a write buffer.
pub(super) const TABLE_BYTES: u64 = 256 << 10;
/// The paper's keys and values.
pub(super) const KEY_BYTES: usize = 16;
pub(super) const VALUE_BYTES: usize = 100;
/// Parts of a load with separate rates.
pub(super) const PARTS: u64 = 10;
/// Samples of the longest pile during a load.
const LOOKS: u64 = 200;
/// Gets after a load, whose answers are checked.
const GETS: u64 = 2000;
/// Memory of a store: enough for filters and fences of all its tables.
const MEMORY_BYTES: u64 = 128 << 20;

/// The structure of a store's items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Structure {
    /// A hashed keyspace.
    Trie,
    /// A tree with one run in each level, each ten times the one above, as in LevelDB.
    Leveled,
    /// A tree that merges the runs of a level into one run of the next.
    Tiered,
}

impl Structure {
    pub(super) const ALL: [Structure; 3] = [Structure::Trie, Structure::Leveled, Structure::Tiered];

    pub(super) fn name(self) -> &'static str {
        match self {
            Structure::Trie => "trie",
            Structure::Leveled => "leveled tree, 1:10",
            Structure::Tiered => "tiered tree, 1:8",
        }
    }

    fn open(self, db: &Db) -> trine::Result<Items> {
        fn small<K>(builder: KeyspaceBuilder<K>) -> KeyspaceBuilder<K> {
            builder.set("table_bytes", TABLE_BYTES)
        }
        let tree = |ratio: u64, runs: u64| {
            let builder = small(db.ordered("items")).set("size_ratio", ratio);
            builder.set("runs_per_level", runs).set("runs_in_last_level", runs).open()
        };
        Ok(match self {
            // Like the paper's last level, which grows and is not merged.
            Structure::Trie => Items::Hashed(small(db.hashed("items")).set("runs_in_last_level", 63).open()?),
            Structure::Leveled => Items::Ordered(tree(10, 1)?),
            Structure::Tiered => Items::Ordered(tree(8, 63)?),
        })
    }
}

/// The keyspace of a load.
pub(super) enum Items {
    Hashed(Keyspace<Hashed>),
    Ordered(Keyspace<Ordered>),
}

impl Items {
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> trine::Result<()> {
        match self {
            Items::Hashed(items) => items.put(key, value),
            Items::Ordered(items) => items.put(key, value),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> trine::Result<Option<trine::Value>> {
        match self {
            Items::Hashed(items) => items.get(key),
            Items::Ordered(items) => items.get(key),
        }
    }

    pub(super) fn get_async(&self, key: &[u8]) -> trine::GetAsync {
        match self {
            Items::Hashed(items) => items.get_async(key),
            Items::Ordered(items) => items.get_async(key),
        }
    }

    pub(super) fn trace(&self, key: &[u8]) -> trine::Result<trine::Trace> {
        Ok(match self {
            Items::Hashed(items) => items.trace(key)?.1,
            Items::Ordered(items) => items.trace(key)?.1,
        })
    }

    pub(super) fn explain(&self, key: &[u8]) -> trine::Result<trine::inspect::Explanation> {
        match self {
            Items::Hashed(items) => items.explain(key),
            Items::Ordered(items) => items.explain(key),
        }
    }

    pub(super) fn stats(&self) -> trine::Result<KeyspaceStats> {
        match self {
            Items::Hashed(items) => items.stats(),
            Items::Ordered(items) => items.stats(),
        }
    }
}

/// A part of a load.
pub(super) struct Part {
    /// Puts a second.
    pub(super) rate: f64,
    /// Bytes written to tables so far for each byte put so far, without the log.
    pub(super) amplification: f64,
}

/// A load, and the store after it.
pub(super) struct Load {
    pub(super) structure: Structure,
    pub(super) parts: Vec<Part>,
    pub(super) longest_put: Duration,
    /// The most runs seen in the root, or level 0, and in a node, or level, below it.
    pub(super) longest_piles: [u64; 2],
    /// The time of the background work left at the end.
    pub(super) settle: Duration,
    /// Statistics after that work.
    pub(super) stats: Stats,
}

/// A store of one structure, with the experiment's small sizes.
pub(super) struct Store {
    pub(super) db: Db,
    pub(super) items: Items,
    pub(super) place: PathBuf,
}

impl Store {
    pub(super) fn make(job: &mut Job, structure: Structure) -> Result<Store, Failure> {
        let place = job.workshop.place();
        Store::open(place, structure)
    }

    /// Opens or makes the store in a directory.
    pub(super) fn open(place: PathBuf, structure: Structure) -> Result<Store, Failure> {
        let db = Db::builder(&place).memory_bytes(MEMORY_BYTES).write_buffer_bytes(TABLE_BYTES).open()?;
        let items = structure.open(&db)?;
        Ok(Store { db, items, place })
    }

    pub(super) fn close(self) -> Result<PathBuf, Failure> {
        let Store { db, items, place } = self;
        drop(items);
        db.close()?;
        Ok(place)
    }
}

/// Makes the key and the value of an item.
pub(super) struct Maker {
    shape: Shape,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Maker {
    pub(super) fn new() -> Maker {
        let shape = Shape { key_bytes: KEY_BYTES, compressible_percent: 0 };
        Maker { shape, key: Vec::new(), value: Vec::new() }
    }

    pub(super) fn make(&mut self, number: u64) {
        self.shape.key(number, &mut self.key);
        self.shape.value(&self.key, VALUE_BYTES, &mut self.value);
    }
}

impl Load {
    /// Puts all items into a new store and checks some of them; the store is left open.
    pub(super) fn run(job: &Job, store: &Store, structure: Structure, count: u64) -> Result<Load, Failure> {
        let order = Permutation::new(count, job.seed);
        let mut maker = Maker::new();
        let (mut parts, mut longest_put, mut longest_piles) = (Vec::new(), Duration::ZERO, [0; 2]);
        let look = (count / LOOKS).max(1);
        for part in 0..PARTS {
            let (start, end) = (part * count / PARTS, (part + 1) * count / PARTS);
            let mut spent = Duration::ZERO;
            for number in start..end {
                maker.make(order.of(number));
                let started = Instant::now();
                store.items.put(&maker.key, &maker.value)?;
                let took = started.elapsed();
                longest_put = longest_put.max(took);
                spent += took;
                if number % look == 0 {
                    stop_if_asked()?;
                    for level in store.items.stats()?.levels {
                        let longest = &mut longest_piles[usize::from(level.level > 0)];
                        *longest = level.node_runs_max.max(*longest);
                    }
                }
            }
            let rate = (end - start) as f64 / spent.as_secs_f64().max(1e-9);
            parts.push(Part { rate, amplification: amplification(&store.db.stats()) });
        }
        let started = Instant::now();
        store.db.flush()?;
        store.db.settle()?;
        let settle = started.elapsed();
        check(job, store, count)?;
        let stats = store.db.stats();
        Ok(Load { structure, parts, longest_put, longest_piles, settle, stats })
    }

    /// The statistics of the only keyspace.
    pub(super) fn keyspace(&self) -> &KeyspaceStats {
        &self.stats.keyspaces[0]
    }

    /// Levels, or heights of nodes, down to the deepest that has tables.
    pub(super) fn depth(&self) -> u64 {
        self.keyspace().levels.last().map_or(0, |level| level.level + 1)
    }

    /// The rates of the first and of the last part.
    pub(super) fn ends(&self) -> (f64, f64) {
        let rate = |part: Option<&Part>| part.map_or(0.0, |part| part.rate);
        (rate(self.parts.first()), rate(self.parts.last()))
    }

    pub(super) fn amplification(&self) -> f64 {
        amplification(&self.stats)
    }

    /// Bytes written by merges for each byte moved one level down: without overwrites, data in level n was
    /// moved n times.
    pub(super) fn written_per_descent(&self) -> f64 {
        let down = |level: &trine::LevelStats| level.level * level.table_bytes;
        ratio(self.stats.write.merge_write_bytes, self.keyspace().levels.iter().map(down).sum())
    }
}

fn amplification(stats: &Stats) -> f64 {
    let write = &stats.write;
    ratio(write.flush_bytes + write.merge_write_bytes, write.key_value_bytes)
}

/// Gets random items; every answer must be the put value.
fn check(job: &Job, store: &Store, count: u64) -> Result<(), Failure> {
    let (mut dice, mut maker) = (Dice::new(job.seed), Maker::new());
    for _ in 0..GETS {
        let number = dice.below(count);
        maker.make(number);
        if store.items.get(&maker.key)?.as_deref() != Some(&maker.value[..]) {
            return Err(Failure::Other(format!("item {number} is not as it was put")));
        }
    }
    Ok(())
}
