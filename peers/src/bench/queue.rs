//! Point deletes from the front of a queue, and seeks to its first key before, during and after them.

use std::ops::Range;
use std::time::{Duration, Instant};

use trine_workload::numbering::Numbering;

use super::child::Child;
use super::engines::{Changes, Engine, Regime, Sees};
use super::loads::put_all;
use super::measure::{self, Moment};
use super::plan::{QUEUE_SEEKS, SHAPE};
use super::record::Record;
use super::rows;
use crate::engines::Answer;

const QUEUE: &str = "queue";

/// Pauses of the deletes, in which seeks are made.
const PAUSES: u64 = 100;

/// The number of deleted items, divided by this, is the number of items that stay.
const LEFT_PART: u64 = 10;

/// The longest time of seeks in one pause: a slow store makes fewer of them, at least one.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) fn queue(child: &Child<'_>) -> Answer<()> {
    let deletes = child.plan.queue_items();
    let items = deletes + deletes / LEFT_PART;
    child.remove(QUEUE)?;
    let engine = child.open(QUEUE, Regime::Cached)?;
    let empty = child.empty(Numbering::Sequential);
    put_all(child, &*engine, "queue", &empty, items, 1)?;
    let seeks = |row: &str, first: u64| {
        let (mut record, before, started) = (Record::new()?, Moment::now(engine.counts()), Instant::now());
        // As long as other rows: a thousand seeks are over in milliseconds, which one concurrent flush would
        // dominate.
        seek(&*engine, &mut record, first, u64::MAX, child.time)?;
        let after = Moment::now(engine.counts());
        let seconds = started.elapsed().as_secs_f64();
        let mut measured = measure::row(&record, seconds, &before, &after);
        measured.live_bytes = Some(child.plan.bytes(items - first));
        child.tell(row, QUEUE, measured)
    };
    seeks(rows::QUEUE_BEFORE, 0)?;
    delete(child, &*engine, deletes)?;
    seeks(rows::QUEUE_AFTER, deletes)?;
    // One item stays, for the seeks.
    let popped = pop(child, &*engine, deletes..items - 1)?;
    child.settle(&*engine)?;
    seeks(rows::QUEUE_SETTLED, deletes + popped)?;
    engine.close()?;
    child.remove(QUEUE)
}

/// Deletes the first keys in their order, and seeks in pauses; two rows.
fn delete(child: &Child<'_>, engine: &dyn Engine, deletes: u64) -> Answer<()> {
    let before = Moment::now(engine.counts());
    let (mut record, mut amid) = (Record::new()?, Record::new()?);
    let (mut deleting, mut seeking) = (Duration::ZERO, Duration::ZERO);
    let (mut key, mut changes, mut next) = (Vec::new(), Changes::default(), 0);
    for pause in 1..=PAUSES {
        let (end, started) = (deletes * pause / PAUSES, Instant::now());
        while next < end {
            changes.clear();
            while next < end && changes.len() < child.contender.batch {
                SHAPE.key(next, &mut key);
                changes.delete(&key);
                next += 1;
            }
            let at = Instant::now();
            engine.write(&changes)?;
            record.take(changes.len(), u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        deleting += started.elapsed();
        let started = Instant::now();
        seek(engine, &mut amid, next, QUEUE_SEEKS / PAUSES, PAUSE)?;
        seeking += started.elapsed();
    }
    let after = Moment::now(engine.counts());
    let mut measured = measure::row(&record, deleting.as_secs_f64(), &before, &after);
    measured.operations_a_latency = child.contender.batch;
    child.tell(rows::QUEUE_DELETES, QUEUE, measured)?;
    // Processor and device figures between the two moments include the deletes: this row has only times of
    // its own.
    let measured = measure::row(&amid, seeking.as_secs_f64(), &after, &after);
    child.tell(rows::QUEUE_AMID, QUEUE, measured)
}

/// Seeks to the first key and deletes it, again and again, as a consumer empties a queue. The row has the
/// seeks. Returns the number of deleted keys.
fn pop(child: &Child<'_>, engine: &dyn Engine, Range { start: first, end }: Range<u64>) -> Answer<u64> {
    let before = Moment::now(engine.counts());
    let (mut record, mut seeking, begun) = (Record::new()?, Duration::ZERO, Instant::now());
    let (mut key, mut changes, mut popped) = (Vec::new(), Changes::default(), 0);
    while popped < QUEUE_SEEKS.min(end - first) && begun.elapsed() < child.time {
        let started = Instant::now();
        seek(engine, &mut record, first + popped, 1, PAUSE)?;
        seeking += started.elapsed();
        SHAPE.key(first + popped, &mut key);
        changes.clear();
        changes.delete(&key);
        engine.write(&changes)?;
        popped += 1;
    }
    let after = Moment::now(engine.counts());
    let measured = measure::row(&record, seeking.as_secs_f64(), &before, &after);
    child.tell(rows::QUEUE_POP, QUEUE, measured)?;
    Ok(popped)
}

/// Seeks to the first key, which must have this number; makes fewer seeks if the time is over.
fn seek(engine: &dyn Engine, record: &mut Record, first: u64, seeks: u64, time: Duration) -> Answer<()> {
    let (from, mut expected) = ([0; 16], Vec::new());
    SHAPE.key(first, &mut expected);
    let begun = Instant::now();
    let mut reader = engine.reader(Sees::Latest)?;
    for _ in 0..seeks {
        let mut is_right = false;
        let started = Instant::now();
        let found = reader.scan(&from, 1, &mut |key, value| {
            is_right = key == expected && SHAPE.is_value(key, value);
        })?;
        record.take(1, u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if found.is_some() && !is_right {
            record.is_wrong(|| format!("the first key is not that of number {first}"));
        }
        if begun.elapsed() > time {
            break;
        }
    }
    Ok(())
}
