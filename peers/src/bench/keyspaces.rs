//! Stores of many keyspaces beside the same store with one: load, cached gets, reopening, creating and
//! dropping.
//!
//! A stage that exceeds its time is killed, and its rows say so: one engine may need minutes for work that
//! takes another seconds.

use std::path::Path;
use std::time::{Duration, Instant};

use trine_workload::dice::Dice;
use trine_workload::keys::Permutation;
use trine_workload::numbering::Numbering;

use super::child::Child;
use super::engines::Regime;
use super::engines::Settings;
use super::engines::keyspaces::{Handles, Keyspaces};
use super::measure::{self, Moment};
use super::plan::{SHAPE, Stage};
use super::process;
use super::record::{Expected, Record};
use super::results::Measured;
use super::rows;
use super::table::median;
use crate::engines::{Answer, Until};

const KEYSPACES: &str = "keyspaces";

/// Threads that get every item once before a row of cached gets.
const WARM_THREADS: u64 = 2;

/// Keyspaces that are created and dropped, one after the other, for a median; fewer once `MADE_TIME` is over.
const MADE: u64 = 20;
const MADE_TIME: Duration = Duration::from_secs(15);

/// Keyspaces of a small store, beside which one is created and dropped.
const FEW: u64 = 10;

/// A stage is killed after this time.
const TIME_MAX: Duration = Duration::from_secs(120);
const TIME_MAX_LARGE: Duration = Duration::from_secs(600);

/// The rows of a load over so many keyspaces at full scale, and of gets after it.
struct Spread {
    keyspaces: u64,
    rows: [&'static str; 2],
}

/// A store of so many keyspaces of this size, which is opened again.
struct Reopened {
    keyspaces: u64,
    bytes_each: u64,
    rows: &'static [&'static str],
}

enum Part {
    Spread(Spread),
    Reopened(Reopened),
}

fn part(stage: Stage) -> Option<Part> {
    let spread = |keyspaces, load, get| Some(Part::Spread(Spread { keyspaces, rows: [load, get] }));
    let reopened = |bytes_each, rows| Some(Part::Reopened(Reopened { keyspaces: 10_000, bytes_each, rows }));
    match stage {
        Stage::KeyspacesOne => spread(1, rows::KEYSPACES_LOAD_ONE, rows::KEYSPACES_GET_ONE),
        Stage::KeyspacesSome => spread(1000, rows::KEYSPACES_LOAD_SOME, rows::KEYSPACES_GET_SOME),
        Stage::KeyspacesMany => spread(10_000, rows::KEYSPACES_LOAD_MANY, rows::KEYSPACES_GET_MANY),
        Stage::KeyspacesReopen => reopened(1000, &rows::KEYSPACES_REOPEN_AND_MAKE),
        Stage::KeyspacesReopenLarger => reopened(100_000, &[rows::KEYSPACES_REOPEN_100_KB]),
        Stage::KeyspacesReopenLarge => reopened(1_000_000, &[rows::KEYSPACES_REOPEN_1_MB]),
        _ => None,
    }
}

/// The rows of a stage with a time limit; none for other stages.
pub(super) fn rows_of(stage: Stage) -> Vec<&'static str> {
    match part(stage) {
        Some(Part::Spread(spread)) => spread.rows.to_vec(),
        Some(Part::Reopened(reopened)) => reopened.rows.to_vec(),
        None => Vec::new(),
    }
}

/// The time limit of a stage; `None` if it has none.
pub(super) fn time_max(stage: Stage) -> Option<Duration> {
    part(stage)?;
    Some(if stage == Stage::KeyspacesReopenLarge { TIME_MAX_LARGE } else { TIME_MAX })
}

/// Runs the stage for a store that has keyspaces.
pub(super) fn keyspaces(child: &Child<'_>) -> Answer<()> {
    let (Some(open), Some(part)) = (child.contender.open_keyspaces, part(child.options.stage)) else {
        return Ok(());
    };
    match part {
        Part::Spread(one) => spread(child, &open, one.keyspaces, one.rows),
        Part::Reopened(reopened) => {
            Stores { child, open: &open }.reopened(&reopened)?;
            child.remove(KEYSPACES)
        }
    }
}

/// Opens a store with so many keyspaces.
type Open<'a> = &'a dyn Fn(&Path, &Settings, u64) -> Answer<Box<dyn Keyspaces>>;

/// Measures a load over so many keyspaces at full scale and gets after it, one row each, and removes the
/// store.
pub(super) fn spread(
    child: &Child<'_>,
    open: Open<'_>,
    keyspaces: u64,
    rows: [&'static str; 2],
) -> Answer<()> {
    Stores { child, open }.spread(&Spread { keyspaces, rows })?;
    child.remove(KEYSPACES)
}

struct Stores<'a> {
    child: &'a Child<'a>,
    open: Open<'a>,
}

impl Stores<'_> {
    fn open(&self, keyspaces: u64) -> Answer<Box<dyn Keyspaces>> {
        let path = self.child.path(KEYSPACES);
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(|error| error.to_string())?;
        (self.open)(&path, &self.child.settings(Regime::Cached, Until::Buffered), keyspaces)
    }

    /// Makes a new store.
    fn make(&self, keyspaces: u64) -> Answer<Box<dyn Keyspaces>> {
        self.child.remove(KEYSPACES)?;
        self.child.doing(format!("making {keyspaces} keyspaces"))?;
        self.open(keyspaces)
    }

    fn tell(&self, row: &str, keyspaces: u64, mut measured: Measured) -> Answer<()> {
        measured.more.insert(rows::KEYSPACES_COUNT.to_owned(), keyspaces as f64);
        self.child.tell(row, KEYSPACES, measured)
    }

    fn spread(&self, spread: &Spread) -> Answer<()> {
        let child = self.child;
        let [load_row, get_row] = spread.rows;
        let (keyspaces, items) = (child.plan.keyspaces(spread.keyspaces), child.plan.small_items());
        let started = Instant::now();
        let store = self.make(keyspaces)?;
        let made = started.elapsed();
        let mut measured = self.load(&*store, keyspaces, items)?;
        measured.more.insert(rows::KEYSPACES_MADE_S.to_owned(), made.as_secs_f64());
        self.tell(load_row, keyspaces, measured)?;
        let measured = self.gets(&*store, keyspaces, items, child.seed(get_row))?;
        self.tell(get_row, keyspaces, measured)?;
        store.close()
    }

    fn items<'s>(&self, store: &'s dyn Keyspaces, keyspaces: u64) -> Answer<Items<'s>> {
        Ok(Items { handles: store.handles()?, keyspaces, value_bytes: self.child.plan.value_bytes })
    }

    /// Puts the items in random order, then flushes and settles; returns one row of all that.
    fn load(&self, store: &dyn Keyspaces, keyspaces: u64, items: u64) -> Answer<Measured> {
        let child = self.child;
        child.doing(format!("loading {items} items"))?;
        let (before, started) = (Moment::now(store.counts()), Instant::now());
        let numbering = Numbering::Random(Permutation::new(items, child.options.seed));
        let record = self.items(store, keyspaces)?.put_all(items, numbering)?;
        let loaded = started.elapsed();
        child.doing(format!("settling after a load of {:.1} s", loaded.as_secs_f64()))?;
        let watched = store.settle()?;
        let whole = started.elapsed().saturating_sub(watched);
        let after = Moment::now(store.counts());
        let mut measured = measure::row(&record, whole.as_secs_f64(), &before, &after);
        measured.live_bytes = Some(child.plan.bytes(items));
        measure::amplified(&mut measured, &before, &after, child.plan.bytes(items));
        let settle = whole.saturating_sub(loaded).as_secs_f64();
        measured.more.insert(rows::SETTLE_S.to_owned(), settle);
        Ok(measured)
    }

    /// Gets every item once, then random items until the time is over.
    fn gets(&self, store: &dyn Keyspaces, keyspaces: u64, items: u64, seed: u64) -> Answer<Measured> {
        let child = self.child;
        child.doing("warming".to_owned())?;
        let all = self.items(store, keyspaces)?;
        let order = Permutation::new(items, child.options.seed ^ 1);
        let warm = |thread: u64| {
            let numbers = (thread..items).step_by(WARM_THREADS as usize).map(|place| order.of(place));
            all.get_all(numbers, None)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WARM_THREADS).map(|thread| scope.spawn(move || warm(thread))).collect();
            threads.into_iter().try_for_each(|thread| {
                let record = thread.join().map_err(|_| "a thread panicked")??;
                record.first_wrong.map_or(Ok(()), Err)
            })
        })?;
        child.doing("getting".to_owned())?;
        let mut dice = Dice::new(seed);
        let (before, started) = (Moment::now(store.counts()), Instant::now());
        let numbers = std::iter::repeat_with(|| dice.below(items));
        let record = all.get_all(numbers, Some(started + child.time))?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(measure::row(&record, seconds, &before, &Moment::now(store.counts())))
    }

    /// Makes a store, closes it and opens it again. If rows are of that, keyspaces are created and dropped:
    /// in a store of `FEW` before, in this store after.
    fn reopened(&self, reopened: &Reopened) -> Answer<()> {
        let child = self.child;
        let [row, rest @ ..] = reopened.rows else { return Ok(()) };
        if let [make_few, drop_few, ..] = rest {
            let store = self.make(FEW)?;
            self.make_and_drop(store, FEW, [make_few, drop_few])?.close()?;
        }
        let keyspaces = child.plan.keyspaces(reopened.keyspaces);
        let items = keyspaces * (reopened.bytes_each / child.plan.bytes(1)).max(1);
        let store = self.make(keyspaces)?;
        child.doing(format!("loading {items} items"))?;
        self.items(&*store, keyspaces)?.put_all(items, Numbering::Sequential)?;
        child.doing(format!("settling {items} items"))?;
        store.settle()?;
        store.close()?;
        process::forget(&child.path(KEYSPACES))?;
        child.doing("reopening".to_owned())?;
        let before = Moment::now(super::engines::Counts::default());
        let started = Instant::now();
        let store = self.open(keyspaces)?;
        let mut record = self.items(&*store, keyspaces)?.get_all(std::iter::once(items / 2), None)?;
        let took = started.elapsed();
        let after = Moment::now(store.counts());
        let wrong = record.first_wrong.take();
        let mut record = Record::new()?;
        record.take(1, nanoseconds(took));
        wrong.into_iter().for_each(|first| record.is_wrong(|| first));
        let mut measured = measure::row(&record, took.as_secs_f64(), &before, &after);
        measured.live_bytes = Some(child.plan.bytes(items));
        self.tell(row, keyspaces, measured)?;
        match rest {
            [.., make_many, drop_many] => {
                self.make_and_drop(store, keyspaces, [make_many, drop_many])?.close()
            }
            _ => store.close(),
        }
    }

    /// Creates a keyspace, puts an item into it and drops it, again and again; reports a row of each.
    fn make_and_drop(
        &self,
        mut store: Box<dyn Keyspaces>,
        keyspaces: u64,
        [make, drop]: [&str; 2],
    ) -> Answer<Box<dyn Keyspaces>> {
        self.child.doing(format!("making and dropping keyspaces beside {keyspaces}"))?;
        let (mut making, mut dropping) = ((Record::new()?, Vec::new()), (Record::new()?, Vec::new()));
        let take = |(record, seconds): &mut (Record, Vec<f64>), took: Duration| {
            record.take(1, nanoseconds(took));
            seconds.push(took.as_secs_f64());
        };
        let (before, begun) = (Moment::now(store.counts()), Instant::now());
        for number in 0..MADE {
            if number > 0 && begun.elapsed() > MADE_TIME {
                break;
            }
            let started = Instant::now();
            store.create()?;
            take(&mut making, started.elapsed());
            let made = usize::try_from(keyspaces).map_err(|error| error.to_string())?;
            store.handles()?.put(made, &number.to_be_bytes(), b"value")?;
            let started = Instant::now();
            store.drop_last()?;
            take(&mut dropping, started.elapsed());
        }
        let after = Moment::now(store.counts());
        for (row, (record, mut seconds)) in [(make, making), (drop, dropping)] {
            let middle = median(&mut seconds).ok_or("no keyspace was made")?;
            let mut measured = measure::row(&record, middle, &before, &after);
            measured.more.insert(rows::KEYSPACES_MADE.to_owned(), record.operations as f64);
            // The rate is that of the median.
            self.tell(row, keyspaces, Measured { operations: 1, ..measured })?;
        }
        Ok(store)
    }
}

/// All keyspaces of an open store.
struct Items<'a> {
    handles: Box<dyn Handles + 'a>,
    keyspaces: u64,
    value_bytes: usize,
}

impl Items<'_> {
    fn put_all(&self, items: u64, numbering: Numbering) -> Answer<Record> {
        let (mut record, mut key, mut value) = (Record::new()?, Vec::new(), Vec::new());
        for item in 0..items {
            let number = numbering.number(item);
            SHAPE.key(number, &mut key);
            SHAPE.value(&key, self.value_bytes, &mut value);
            let started = Instant::now();
            self.handles.put(self.keyspace_of(number), &key, &value)?;
            record.take(1, nanoseconds(started.elapsed()));
        }
        Ok(record)
    }

    fn get_all(&self, numbers: impl Iterator<Item = u64>, deadline: Option<Instant>) -> Answer<Record> {
        let expected = Expected::Value { made_bytes: self.value_bytes };
        let (mut record, mut key, mut value) = (Record::new()?, Vec::new(), Vec::new());
        for number in numbers {
            SHAPE.key(number, &mut key);
            let started = Instant::now();
            let found = self.handles.get(self.keyspace_of(number), &key, &mut value)?;
            let ended = Instant::now();
            record.take(1, nanoseconds(ended - started));
            record.check(SHAPE, &key, (found, &value), expected, &mut Vec::new());
            if deadline.is_some_and(|deadline| ended >= deadline) {
                break;
            }
        }
        Ok(record)
    }

    fn keyspace_of(&self, number: u64) -> usize {
        usize::try_from(number % self.keyspaces).expect("keyspaces are counted in memory")
    }
}

pub(super) fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    /// Each row of many keyspaces belongs to one stage, which has a time limit; other stages have none.
    #[test]
    fn rows_belong_to_stages() {
        let of_stages: Vec<&str> = Stage::value_variants().iter().flat_map(|stage| rows_of(*stage)).collect();
        let mut expected = rows::KEYSPACES.to_vec();
        let mut sorted = of_stages.clone();
        sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        for stage in Stage::value_variants() {
            assert_eq!(rows_of(*stage).is_empty(), time_max(*stage).is_none(), "{stage:?}");
        }
    }
}
