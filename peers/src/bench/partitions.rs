//! Groups of items that are dropped as a whole: the duration of a drop, idle and under load, its effect on
//! gets and scans beside it, and the cost of many groups.
//!
//! Partitions of Trine are compared with column families of RocksDB and keyspaces of fjall. Trine and RocksDB
//! also drop the groups of one keyspace by a range deletion and key by key. A stage that exceeds its time is
//! killed, and its rows say so.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trine_workload::dice::Dice;
use trine_workload::keys::Permutation;
use trine_workload::numbering::Numbering;

use super::child::Child;
use super::engines::partitions::{AsKeyspaces, DropBy, OpenPartitions, Partitions};
use super::engines::{Counts, Regime, Settings};
use super::keyspaces::{self, nanoseconds};
use super::measure::{self, Moment};
use super::plan::{Plan, SCAN_ITEMS, SHAPE, Stage};
use super::record::{Expected, InOrder, Record};
use super::rows::{self, PARTITION_WAYS, PartitionRows};
use crate::engines::{Answer, Until};

const PARTITIONS: &str = "partitions";

/// Partitions that stay beside the dropped ones, and the bytes of each.
const BESIDE: u64 = 10;
const BESIDE_MANY: u64 = 10_000;
const BESIDE_BYTES: u64 = 1000;

/// Bytes of keys and values in a dropped partition, and the number of such partitions.
const DROPPED: [(u64, u64); 3] = [(1000, 100), (1_000_000, 50), (1_000_000_000, 3)];
const BUSY_BYTES: u64 = 1_000_000;
const BUSY_MAX: u64 = 200;

/// Row, bytes and partitions of each load for which memory is reported.
const MEMORY_LOADS: [(&str, u64, u64); 3] = [
    (rows::PARTITIONS_MEMORY_ONE, 1_000_000_000, 1),
    (rows::PARTITIONS_MEMORY_SOME, 1_000_000_000, 1000),
    (rows::PARTITIONS_MEMORY_MANY, BESIDE_MANY * BESIDE_BYTES, BESIDE_MANY),
];

/// How long the files of a dropped partition are watched, and how often.
const FREED_TIME: Duration = Duration::from_secs(10);
const FREED_LOOK: Duration = Duration::from_millis(5);

/// A stage is killed after this time.
const TIME_MAX: Duration = Duration::from_secs(120);
const TIME_MAX_LARGE: Duration = Duration::from_secs(600);

/// The rows of a stage with a time limit; none for other stages.
pub(super) fn rows_of(stage: Stage) -> Vec<&'static str> {
    let of_ways = |rows: fn(&PartitionRows) -> Vec<&'static str>| {
        PARTITION_WAYS.iter().flat_map(rows).collect::<Vec<&'static str>>()
    };
    match stage {
        Stage::PartitionsOne => vec![rows::PARTITIONS_LOAD_ONE, rows::PARTITIONS_GET_ONE],
        Stage::PartitionsSome => vec![rows::PARTITIONS_LOAD_SOME, rows::PARTITIONS_GET_SOME],
        Stage::PartitionsMany => vec![rows::PARTITIONS_LOAD_MANY, rows::PARTITIONS_GET_MANY],
        Stage::PartitionsMemory => MEMORY_LOADS.iter().map(|(row, ..)| *row).collect(),
        Stage::PartitionsDrop => of_ways(|one| one.drops.to_vec()),
        Stage::PartitionsDropMany => of_ways(|one| vec![one.drop_of_many]),
        Stage::PartitionsBusy => of_ways(|one| one.busy.to_vec()),
        Stage::PartitionsNine => of_ways(|one| [one.gets, one.scans].concat()),
        _ => Vec::new(),
    }
}

/// The time limit of a stage; `None` if it has none.
pub(super) fn time_max(stage: Stage) -> Option<Duration> {
    let is_large = matches!(stage, Stage::PartitionsDrop | Stage::PartitionsMemory | Stage::PartitionsNine);
    let time = if is_large { TIME_MAX_LARGE } else { TIME_MAX };
    (!rows_of(stage).is_empty()).then_some(time)
}

/// Runs the stage for a store that has partitions.
pub(super) fn partitions(child: &Child<'_>) -> Answer<()> {
    let Some(open) = child.contender.open_partitions else { return Ok(()) };
    let as_keyspaces =
        |path: &Path, settings: &Settings, count| AsKeyspaces::open(open, path, settings, count);
    let spread = |count, rows| keyspaces::spread(child, &as_keyspaces, count, rows);
    let stores = Stores { child, open };
    // Thousands of column families may use up the time, so they come last.
    let mut ways = PARTITION_WAYS.iter().rev();
    match child.options.stage {
        Stage::PartitionsOne => spread(1, [rows::PARTITIONS_LOAD_ONE, rows::PARTITIONS_GET_ONE]),
        Stage::PartitionsSome => spread(1000, [rows::PARTITIONS_LOAD_SOME, rows::PARTITIONS_GET_SOME]),
        Stage::PartitionsMany => spread(10_000, [rows::PARTITIONS_LOAD_MANY, rows::PARTITIONS_GET_MANY]),
        Stage::PartitionsMemory => stores.memory(),
        Stage::PartitionsDrop => ways.try_for_each(|one| stores.drops(one)),
        Stage::PartitionsDropMany => ways.try_for_each(|one| stores.drops_of_many(one)),
        Stage::PartitionsBusy => ways.try_for_each(|one| stores.busy(one)),
        Stage::PartitionsNine => ways.try_for_each(|one| stores.nine(one)),
        _ => Ok(()),
    }?;
    child.remove(PARTITIONS)
}

struct Stores<'a> {
    child: &'a Child<'a>,
    open: OpenPartitions,
}

impl Stores<'_> {
    /// Makes a new store; `None` if the store cannot drop partitions in this way.
    fn make(&self, by: DropBy, count: u64) -> Answer<Option<Box<dyn Partitions>>> {
        let child = self.child;
        child.remove(PARTITIONS)?;
        child.doing(format!("making {count} partitions, {by:?}"))?;
        let path = child.path(PARTITIONS);
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(|error| error.to_string())?;
        (self.open)(&path, &child.settings(Regime::Cached, Until::Buffered), by, count)
    }

    /// Items in so many bytes at full scale.
    fn items_of(&self, bytes: u64) -> u64 {
        let plan = self.child.plan;
        ((bytes as f64 * plan.scale.min(1.0)) as u64 / plan.bytes(1)).max(1)
    }

    fn tell(&self, row: &str, record: &Record, seconds: f64, more: &[(&str, Option<f64>)]) -> Answer<()> {
        let now = Moment::now(Counts::default());
        let mut measured = measure::row(record, seconds, &now, &now);
        for (name, figure) in more {
            figure.map(|figure| measured.more.insert((*name).to_owned(), figure));
        }
        self.child.tell(row, PARTITIONS, measured)
    }

    /// Measures loads over many partitions in little memory, and the memory in use after them.
    fn memory(&self) -> Answer<()> {
        for (row, bytes, partitions) in MEMORY_LOADS {
            let (items, partitions) = (self.items_of(bytes), self.child.plan.keyspaces(partitions));
            let Some(store) = self.make(DropBy::Whole, partitions)? else { return Ok(()) };
            self.child.doing(format!("loading {items} items over {partitions} partitions"))?;
            let (before, started) = (Moment::now(store.counts()), Instant::now());
            let record = self.load(&*store, 0..partitions, items)?;
            store.settle()?;
            let seconds = started.elapsed().as_secs_f64();
            let mut measured = measure::row(&record, seconds, &before, &Moment::now(store.counts()));
            let roles = store.memory_bytes().map(|bytes| bytes as f64 / f64::from(1 << 20));
            roles.map(|mib| measured.more.insert(rows::ROLES_MIB.to_owned(), mib));
            self.child.tell(row, PARTITIONS, measured)?;
            store.close()?;
        }
        Ok(())
    }

    /// Puts `items` in random order, spread over the partitions `over`; an item's number selects its
    /// partition.
    fn load(&self, store: &dyn Partitions, over: std::ops::Range<u64>, items: u64) -> Answer<Record> {
        let (mut record, mut key, mut value) = (Record::new()?, Vec::new(), Vec::new());
        let order = Numbering::Random(Permutation::new(items, self.child.options.seed));
        for item in 0..items {
            let number = order.number(item);
            SHAPE.key(number, &mut key);
            SHAPE.value(&key, self.child.plan.value_bytes, &mut value);
            let partition = over.start + number % (over.end - over.start);
            let started = Instant::now();
            store.put(partition, &key, &value)?;
            record.take(1, nanoseconds(started.elapsed()));
        }
        Ok(record)
    }

    /// Makes a store with `count` small partitions, settled.
    fn beside(&self, by: DropBy, count: u64) -> Answer<Option<Box<dyn Partitions>>> {
        let Some(store) = self.make(by, count)? else { return Ok(None) };
        self.load(&*store, 0..count, count * self.items_of(BESIDE_BYTES))?;
        store.settle()?;
        Ok(Some(store))
    }

    fn drops(&self, rows: &PartitionRows) -> Answer<()> {
        for (row, (bytes, count)) in rows.drops.into_iter().zip(DROPPED) {
            let Some(store) = self.beside(rows.by, BESIDE)? else { return Ok(()) };
            self.drop_each(&*store, row, BESIDE..BESIDE + count, bytes)?;
            store.close()?;
        }
        Ok(())
    }

    fn drops_of_many(&self, rows: &PartitionRows) -> Answer<()> {
        let beside = self.child.plan.keyspaces(BESIDE_MANY);
        let Some(store) = self.beside(rows.by, beside)? else { return Ok(()) };
        let (bytes, count) = DROPPED[0];
        self.drop_each(&*store, rows.drop_of_many, beside..beside + count, bytes)?;
        store.close()
    }

    /// Fills partitions, settles, and drops them one after the other; large partitions are filled one at a
    /// time.
    fn drop_each(
        &self,
        store: &dyn Partitions,
        row: &str,
        numbers: std::ops::Range<u64>,
        bytes: u64,
    ) -> Answer<()> {
        let items = self.items_of(bytes);
        let (mut record, mut seconds, mut freed) = (Record::new()?, 0.0, Vec::new());
        let at_once = (numbers.end - numbers.start).min((DROPPED[1].0 * DROPPED[1].1 / bytes).max(1));
        let mut next = numbers.start;
        while next < numbers.end {
            let some = next..(next + at_once).min(numbers.end);
            self.child.doing(format!("filling {at_once} partitions of {items} items for {row}"))?;
            for partition in some.clone() {
                store.make(partition)?;
                self.load(store, partition..partition + 1, items)?;
            }
            store.settle()?;
            self.child.doing(format!("dropping {at_once} partitions of {items} items"))?;
            for partition in some.clone() {
                let disk = self.disk_bytes()?;
                let started = Instant::now();
                store.drop_partition(partition)?;
                let took = started.elapsed();
                record.take(1, nanoseconds(took));
                seconds += took.as_secs_f64();
                if at_once == 1 {
                    freed.extend(self.watch(disk, self.child.plan.bytes(items), started)?);
                }
                self.is_gone(store, &mut record, partition)?;
            }
            next = some.end;
        }
        let freed = super::table::median(&mut freed);
        self.tell(row, &record, seconds, &[(rows::FREED_S, freed)])
    }

    fn disk_bytes(&self) -> Answer<u64> {
        Ok(self.child.disk_bytes(&self.child.path(PARTITIONS))?.map_or(0, |(_, all)| all))
    }

    /// Seconds until the files shrink by nine tenths of the dropped bytes; `None` if they do not in time.
    fn watch(&self, before: u64, dropped: u64, started: Instant) -> Answer<Option<f64>> {
        let goal = before.saturating_sub(dropped / 10 * 9);
        while started.elapsed() < FREED_TIME.min(10 * self.child.time) {
            if self.disk_bytes()? <= goal {
                return Ok(Some(started.elapsed().as_secs_f64()));
            }
            std::thread::sleep(FREED_LOOK);
        }
        Ok(None)
    }

    /// Checks that the first item of a dropped partition is gone, if the store can still be asked.
    fn is_gone(&self, store: &dyn Partitions, record: &mut Record, partition: u64) -> Answer<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        SHAPE.key(0, &mut key);
        if let Ok(found) = store.get(partition, &key, &mut value) {
            record.check(SHAPE, &key, (found, &value), Expected::Nothing, &mut Vec::new());
        }
        Ok(())
    }

    /// Fills and drops partitions while another thread puts into others as fast as it can.
    fn busy(&self, rows: &PartitionRows) -> Answer<()> {
        let Some(store) = self.beside(rows.by, BESIDE)? else { return Ok(()) };
        let (store, is_over) = (&*store, AtomicBool::new(false));
        let [row, puts_row] = rows.busy;
        self.child.doing(format!("dropping under load, {:?}", rows.by))?;
        let started = Instant::now();
        let (drops, puts) = std::thread::scope(|scope| {
            let (plan, is_over, seed) = (self.child.plan, &is_over, self.child.seed(puts_row));
            let putting = scope.spawn(move || put_until(store, is_over, plan, seed));
            let drops = self.drop_beside(store, started);
            is_over.store(true, Ordering::Relaxed);
            (drops, putting.join())
        });
        let (drops, puts) = (drops?, puts.map_err(|_| "a thread panicked")??);
        let (record, seconds) = drops;
        self.tell(row, &record, seconds, &[])?;
        self.tell(puts_row, &puts, started.elapsed().as_secs_f64(), &[])
    }

    fn drop_beside(&self, store: &dyn Partitions, started: Instant) -> Answer<(Record, f64)> {
        let (mut record, mut seconds, items) = (Record::new()?, 0.0, self.items_of(BUSY_BYTES));
        for partition in BESIDE..BESIDE + BUSY_MAX {
            store.make(partition)?;
            self.load(store, partition..partition + 1, items)?;
            let begun = Instant::now();
            store.drop_partition(partition)?;
            record.take(1, nanoseconds(begun.elapsed()));
            seconds += begun.elapsed().as_secs_f64();
            if started.elapsed() > self.child.time {
                break;
            }
        }
        Ok((record, seconds))
    }

    /// Measures gets and scans in one of ten partitions, before and right after the other nine are dropped.
    fn nine(&self, rows: &PartitionRows) -> Answer<()> {
        let Some(store) = self.make(rows.by, BESIDE)? else { return Ok(()) };
        let items = self.child.plan.small_items();
        self.child.doing(format!("loading {items} items over {BESIDE} partitions, {:?}", rows.by))?;
        self.load(&*store, 0..BESIDE, items)?;
        store.settle()?;
        // The first pass is not measured: it warms the cache for the passes before and after the drops.
        self.gets(&*store, items, rows.gets[0])?;
        for moment in 0..2 {
            let (record, seconds) = self.gets(&*store, items, rows.gets[moment])?;
            self.tell(rows.gets[moment], &record, seconds, &[])?;
            let (record, seconds) = self.scans(&*store, items, rows.scans[moment])?;
            self.tell(rows.scans[moment], &record, seconds, &[])?;
            if moment == 0 {
                self.child.doing(format!("dropping nine, {:?}", rows.by))?;
                (1..BESIDE).try_for_each(|partition| store.drop_partition(partition))?;
            }
        }
        store.close()
    }

    fn gets(&self, store: &dyn Partitions, items: u64, row: &str) -> Answer<(Record, f64)> {
        let expected = Expected::Value { made_bytes: self.child.plan.value_bytes };
        let (mut record, mut key, mut value) = (Record::new()?, Vec::new(), Vec::new());
        let (mut dice, started) = (Dice::new(self.child.seed(row)), Instant::now());
        while started.elapsed() < self.child.time {
            SHAPE.key(dice.below(items.div_ceil(BESIDE)) * BESIDE, &mut key);
            let begun = Instant::now();
            let found = store.get(0, &key, &mut value)?;
            record.take(1, nanoseconds(begun.elapsed()));
            record.check(SHAPE, &key, (found, &value), expected, &mut Vec::new());
        }
        Ok((record, started.elapsed().as_secs_f64()))
    }

    fn scans(&self, store: &dyn Partitions, items: u64, row: &str) -> Answer<(Record, f64)> {
        let (mut record, mut key, mut previous) = (Record::new()?, Vec::new(), Vec::new());
        let (mut dice, started) = (Dice::new(self.child.seed(row)), Instant::now());
        while started.elapsed() < self.child.time {
            SHAPE.key(dice.below(items.div_ceil(BESIDE)) * BESIDE, &mut key);
            previous.clear();
            let begun = Instant::now();
            let mut in_order = InOrder { shape: SHAPE, previous: &mut previous, record: &mut record };
            let count = store.scan(0, &key, SCAN_ITEMS, &mut |key, value| in_order.look(key, value))?;
            record.take(1, nanoseconds(begun.elapsed()));
            if count == 0 {
                record.is_wrong(|| format!("a scan from key {} has nothing", super::record::hex(&key)));
            }
        }
        Ok((record, started.elapsed().as_secs_f64()))
    }
}

/// Overwrites random items of the partitions that stay.
fn put_until(store: &dyn Partitions, is_over: &AtomicBool, plan: Plan, seed: u64) -> Answer<Record> {
    let (mut record, mut key, mut value) = (Record::new()?, Vec::new(), Vec::new());
    let (mut dice, items) = (Dice::new(seed), plan.small_items());
    while !is_over.load(Ordering::Relaxed) {
        let number = dice.below(items);
        SHAPE.key(number, &mut key);
        SHAPE.value(&key, plan.value_bytes, &mut value);
        let begun = Instant::now();
        store.put(number % BESIDE, &key, &value)?;
        record.take(1, nanoseconds(begun.elapsed()));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    /// Each row of partitions belongs to one stage, which has a time limit; other stages have neither.
    #[test]
    fn rows_belong_to_stages() {
        let mut of_stages: Vec<&str> =
            Stage::value_variants().iter().flat_map(|stage| rows_of(*stage)).collect();
        let mut expected: Vec<&str> = rows::partition_rows().collect();
        of_stages.sort_unstable();
        expected.sort_unstable();
        assert_eq!(of_stages, expected);
        for stage in Stage::value_variants() {
            assert_eq!(rows_of(*stage).is_empty(), time_max(*stage).is_none(), "{stage:?}");
        }
    }
}
