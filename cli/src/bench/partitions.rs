//! The workload partitions: partitions made and dropped over the life of a store, with its size at ten
//! points.
//!
//! Partitions are made in groups, each by one batch that writes a few items to each of its partitions. While
//! more than `--live` exist, one drop removes the oldest group. At each point the sizes of manifest and
//! memory are recorded, the store is closed and opened, and answers are checked.

use std::time::Instant;

use serde_json::{Map, Value, json};
use trine::{Db, Keyspace, Ordered};
use trine_workload::failure::Failure;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{bytes, count, nanoseconds};
use trine_workload::{progress, system};

use super::stop_if_asked;
use super::store::Engine;
use crate::arguments::Bench;

/// The number of points.
const POINTS: u64 = 10;

/// Keys of existing partitions, and of dropped ones, that are read at each point.
const CHECKS: u64 = 100;

/// The role of memory that is left out: the cache grows to its limit in every store.
const CACHE: &str = "cache";

/// Length of a partition's name, which is its number.
pub(super) const NAME_BYTES: usize = 8;

/// The results over the life of the store.
pub(super) struct PartitionsReport {
    live: u64,
    group: u64,
    items: u64,
    points: Vec<LifePoint>,
    /// The number of wrong answers.
    pub(super) wrong: u64,
}

/// The store after some number of partitions.
struct LifePoint {
    made: u64,
    live: u64,
    makes_a_second: f64,
    drops_a_second: f64,
    /// Processor time of all threads, for each partition made since the last point, with its drop.
    cpu_ns: u64,
    manifest_bytes: u64,
    table_bytes: u64,
    tables: u64,
    /// Each role except the cache, and its bytes.
    memory: Vec<(&'static str, u64)>,
    resident_bytes: Option<u64>,
    /// The time of closing and opening; `open_ns` is that of opening alone.
    reopen_seconds: f64,
    open_ns: u64,
}

/// Partitions made and dropped since the last point, and the time for them.
struct Spent {
    /// The processor time at the last point.
    cpu_ns: u64,
    made: u64,
    make_seconds: f64,
    dropped: u64,
    drop_seconds: f64,
}

impl Spent {
    fn begin() -> Spent {
        Spent { cpu_ns: system::cpu_ns(), made: 0, make_seconds: 0.0, dropped: 0, drop_seconds: 0.0 }
    }
}

/// The partitions by number; those from `oldest` up to `next`, exclusive, exist.
struct Life<'a> {
    arguments: &'a Bench,
    keyspace: Keyspace<Ordered>,
    oldest: u64,
    next: u64,
    spent: Spent,
}

pub(super) fn measure(engine: &mut Engine<'_>, arguments: &Bench) -> Result<PartitionsReport, Failure> {
    let total = arguments.partitions;
    let bar = progress::over_items(total, "partitions");
    let keyspace = engine.begin_partitions()?;
    let mut life = Life { arguments, keyspace, oldest: 0, next: 0, spent: Spent::begin() };
    let mut report = PartitionsReport {
        live: arguments.live,
        group: u64::from(arguments.group),
        items: u64::from(arguments.partition_items),
        points: Vec::new(),
        wrong: 0,
    };
    let started = Instant::now();
    let is_over = || arguments.seconds.is_some_and(|seconds| started.elapsed().as_secs() >= seconds);
    for point in 1..=POINTS {
        let end = point * total / POINTS;
        while life.next < end && !is_over() {
            let db = engine.db().ok_or_else(needs_store)?.clone();
            life.make(&db, (end - life.next).min(report.group))?;
            life.drop_oldest(report.group)?;
            bar.set_position(life.next);
            stop_if_asked()?;
        }
        if life.spent.made > 0 {
            report.points.push(life.look(engine)?);
            report.wrong += life.check()?;
        }
    }
    bar.finish_and_clear();
    Ok(report)
}

pub(super) fn needs_store() -> Failure {
    Failure::Usage("partitions has nothing to measure without the store; leave --engine null out".to_owned())
}

/// The key of an item: the number of its partition, and its own.
fn key(partition: u64, item: u32) -> [u8; NAME_BYTES + 4] {
    let mut key = [0; NAME_BYTES + 4];
    key[..NAME_BYTES].copy_from_slice(&partition.to_be_bytes());
    key[NAME_BYTES..].copy_from_slice(&item.to_be_bytes());
    key
}

impl Life<'_> {
    /// The value of every item of a partition: its number, repeated.
    fn value(&self, partition: u64) -> Vec<u8> {
        partition.to_be_bytes().into_iter().cycle().take(self.arguments.value_bytes as usize).collect()
    }

    fn make(&mut self, db: &Db, number: u64) -> Result<(), Failure> {
        let mut batch = db.batch();
        for partition in self.next..self.next + number {
            let value = self.value(partition);
            for item in 0..self.arguments.partition_items {
                batch.put(&self.keyspace, key(partition, item), &value)?;
            }
        }
        let started = Instant::now();
        batch.commit()?;
        self.spent.make_seconds += started.elapsed().as_secs_f64();
        self.spent.made += number;
        self.next += number;
        Ok(())
    }

    /// Drops the oldest groups while too many partitions exist.
    fn drop_oldest(&mut self, group: u64) -> Result<(), Failure> {
        while self.next - self.oldest > self.arguments.live {
            let surplus = self.next - self.oldest - self.arguments.live;
            let end = self.oldest + surplus.min(group);
            let names = (self.oldest..end).map(u64::to_be_bytes);
            let started = Instant::now();
            let dropped = self.keyspace.drop_partitions(names)?;
            self.spent.drop_seconds += started.elapsed().as_secs_f64();
            self.spent.dropped += dropped;
            self.oldest = end;
        }
        Ok(())
    }

    /// Measures the store, closes it and opens it.
    fn look(&mut self, engine: &mut Engine<'_>) -> Result<LifePoint, Failure> {
        let cpu_ns = system::cpu_ns().saturating_sub(self.spent.cpu_ns) / self.spent.made.max(1);
        let stats = engine.db().ok_or_else(needs_store)?.stats();
        let size = self.keyspace.stats()?;
        let roles = stats.memory.roles.iter().filter(|role| role.name != CACHE);
        let memory = roles.map(|role| (role.name, role.bytes)).collect();
        let resident_bytes = system::resident_bytes();
        let started = Instant::now();
        engine.reopen()?;
        let reopen_seconds = started.elapsed().as_secs_f64();
        let db = engine.db().ok_or_else(needs_store)?;
        self.keyspace = engine.partitions_keyspace(db)?;
        let spent = std::mem::replace(&mut self.spent, Spent::begin());
        let rate = |number: u64, seconds: f64| number as f64 / seconds.max(1e-9);
        Ok(LifePoint {
            made: self.next,
            live: self.next - self.oldest,
            makes_a_second: rate(spent.made, spent.make_seconds),
            drops_a_second: rate(spent.dropped, spent.drop_seconds),
            cpu_ns,
            manifest_bytes: stats.space.manifest_bytes,
            table_bytes: size.table_bytes,
            tables: size.tables,
            memory,
            resident_bytes,
            reopen_seconds,
            open_ns: db.stats().recovery.open_ns,
        })
    }

    /// Reads keys of existing and of dropped partitions; returns the number of wrong answers.
    fn check(&self) -> Result<u64, Failure> {
        let mut wrong = u64::from(self.keyspace.partitions()?.len() as u64 != self.next - self.oldest);
        let last = self.arguments.partition_items - 1;
        for partition in spread(self.oldest, self.next) {
            let found = self.keyspace.get(key(partition, last))?;
            wrong += u64::from(found.as_deref() != Some(&self.value(partition)[..]));
        }
        for partition in spread(0, self.oldest) {
            wrong += u64::from(self.keyspace.get(key(partition, last))?.is_some());
        }
        Ok(wrong)
    }
}

/// About [`CHECKS`] numbers of `start..end` in equal steps, or all if there are few; the last one is
/// included.
fn spread(start: u64, end: u64) -> impl Iterator<Item = u64> {
    let step = ((end - start) / CHECKS).max(1);
    (start..end).rev().step_by(usize::try_from(step).unwrap_or(usize::MAX))
}

pub(super) fn to_json(report: &PartitionsReport) -> Value {
    let point = |point: &LifePoint| {
        let memory: Map<String, Value> =
            point.memory.iter().map(|(name, bytes)| ((*name).to_owned(), json!(bytes))).collect();
        json!({
            "made": point.made,
            "live": point.live,
            "makes_a_second": point.makes_a_second,
            "drops_a_second": point.drops_a_second,
            "cpu_ns_a_partition": point.cpu_ns,
            "manifest_bytes": point.manifest_bytes,
            "table_bytes": point.table_bytes,
            "tables": point.tables,
            "memory": memory,
            "resident_bytes": point.resident_bytes,
            "reopen_seconds": point.reopen_seconds,
            "open_ns": point.open_ns,
        })
    };
    json!({
        "name": "partitions",
        "live": report.live,
        "group": report.group,
        "items_a_partition": report.items,
        "wrong": report.wrong,
        "points": report.points.iter().map(point).collect::<Vec<Value>>(),
    })
}

pub(super) fn print(report: &PartitionsReport, screen: &mut Screen) -> Result<(), Failure> {
    let (live, group) = (count(report.live), count(report.group));
    let items = count(report.items);
    let title = format!("Partitions of {items} items, made and dropped {group} at a time, {live} kept");
    screen.heading(title)?;
    let mut rows = table([
        "made",
        "live",
        "makes a second",
        "drops a second",
        "CPU of one",
        "manifest",
        "in tables",
        "close and open",
        "open",
    ]);
    for point in &report.points {
        rows.add_row([
            count(point.made),
            count(point.live),
            count(point.makes_a_second as u64),
            count(point.drops_a_second as u64),
            nanoseconds(point.cpu_ns),
            bytes(point.manifest_bytes),
            bytes(point.table_bytes),
            nanoseconds((point.reopen_seconds * 1e9) as u64),
            nanoseconds(point.open_ns),
        ]);
    }
    screen.line(rows)?;
    screen.line(memory_of(report))?;
    if report.wrong > 0 {
        screen.line(format_args!("{} answers were WRONG", count(report.wrong)))?;
    }
    screen.line("")
}

/// Memory at each point, of the roles that use any.
fn memory_of(report: &PartitionsReport) -> comfy_table::Table {
    let of = |point: &LifePoint, name: &str| {
        point.memory.iter().find(|(role, _)| *role == name).map_or(0, |(_, bytes)| *bytes)
    };
    let roles = report.points.first().map_or(&[][..], |point| &point.memory);
    let is_used = |name: &&str| report.points.iter().any(|point| of(point, name) > 0);
    let roles: Vec<&str> = roles.iter().map(|(name, _)| *name).filter(is_used).collect();
    let mut heads = vec!["made"];
    heads.extend(&roles);
    heads.push("resident, cache included");
    let mut rows = table(heads);
    for point in &report.points {
        let mut row = vec![count(point.made)];
        row.extend(roles.iter().map(|name| bytes(of(point, name))));
        row.push(point.resident_bytes.map_or_else(String::new, bytes));
        rows.add_row(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few numbers are all taken, of many about a hundred, and the last is included.
    #[test]
    fn checks_are_spread() {
        assert_eq!(spread(3, 3).count(), 0);
        assert_eq!(spread(3, 6).collect::<Vec<_>>(), [5, 4, 3]);
        let many: Vec<u64> = spread(0, 12_345).collect();
        assert!((100..=102).contains(&many.len()) && many[0] == 12_344, "{many:?}");
    }
}
