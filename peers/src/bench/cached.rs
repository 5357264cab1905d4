//! Rows whose data fits the memory, in a settled and warmed store.

use std::time::Duration;

use trine_workload::distribution::{Chooser, Distribution};

use super::child::Child;
use super::drive::{Data, Job, Limit, Script};
use super::engines::{Engine, Executor, Regime, Sees};
use super::loads::SMALL;
use super::measure::Turns;
use super::plan::{BESIDE_PUTS_A_SECOND, MULTI_KEYS, RANGE_ITEMS, SCAN_ITEMS};
use super::rows;
use crate::engines::Answer;

/// Passes over all items before the first row: a cache may admit a block only at its second read.
const WARM_PASSES: u64 = 2;

/// Threads that warm the cache.
const WARM_THREADS: u64 = 2;

/// The time slice of a row before the next, where rows are compared with each other: load by other tenants of
/// the machine comes and goes within seconds.
const TURN: Duration = Duration::from_millis(200);

fn warm(child: &Child<'_>, engine: &dyn Engine, data: &Data) -> Answer<()> {
    for pass in 0..WARM_PASSES {
        let job = Job {
            threads: WARM_THREADS,
            limit: Limit::operations(u64::MAX),
            seed: pass,
            ..child.job(engine, "warming", Script::GetEach, data)
        };
        child.prepare(&job)?;
    }
    Ok(())
}

/// Measures a row that chooses items, and reports it.
pub(super) fn read(
    child: &Child<'_>,
    row: &str,
    name: &str,
    job: Job<'_>,
    distribution: Distribution,
) -> Answer<()> {
    let chooser = Chooser::new(distribution, job.data.count, child.options.seed);
    let (measured, _) = child.run_settled(&Job { chooser: Some(chooser), ..job })?;
    child.tell(row, name, measured)
}

/// Measures rows that choose items in turns of length `turn`, until each row has had its whole time.
pub(super) fn read_in_turns(
    child: &Child<'_>,
    name: &str,
    rows: Vec<(&str, Job<'_>)>,
    distribution: Distribution,
    turn: Duration,
) -> Answer<()> {
    let count = child.time.div_duration_f64(turn).ceil().max(1.0) as u32;
    let mut turns: Vec<_> = rows.into_iter().map(|(row, job)| (row, job, Turns::default())).collect();
    for (_, job, _) in &mut turns {
        job.chooser = Some(Chooser::new(distribution, job.data.count, child.options.seed));
        job.limit = Limit::time(child.time / count);
    }
    for number in 0..count {
        for (row, job, turns) in &mut turns {
            job.seed = child.seed(row) ^ u64::from(number) << 24;
            turns.add(child.run(job)?)?;
        }
    }
    for (row, _, turns) in turns {
        child.tell(row, name, turns.row().ok_or("a row had no turn")?)?;
    }
    Ok(())
}

/// Overwrites until a write buffer is half full; returns whether the store has one.
pub(super) fn half_fill(child: &Child<'_>, engine: &dyn Engine, data: &Data) -> Answer<bool> {
    let Some(bytes) = engine.write_buffer_bytes() else { return Ok(false) };
    let job = Job {
        sees: Sees::Latest,
        limit: Limit::operations((bytes / 2 / child.plan.bytes(1)).max(1)),
        chooser: Some(Chooser::new(Distribution::Uniform, data.count, child.options.seed)),
        ..child.job(engine, "half a write buffer", Script::Overwrite, data)
    };
    child.prepare(&job)?;
    Ok(true)
}

pub(super) fn cached(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.small_items();
    let data = child.data(items, items);
    let engine = child.open(SMALL, Regime::Cached)?;
    child.settle(&*engine)?;
    warm(child, &*engine, &data)?;
    let uniform = Distribution::Uniform;
    let job = |row, script| child.job(&*engine, row, script, &data);
    let two = Job { threads: 2, ..job(rows::GET_TWO, Script::Get) };
    let mut compared = vec![(rows::GET, job(rows::GET, Script::Get)), (rows::GET_TWO, two)];
    if child.contender.has_futures {
        let script = Script::InFlight { executor: Executor::BlockOn, depth: 1 };
        compared.push((rows::GET_FUTURE, job(rows::GET_FUTURE, script)));
    }
    read_in_turns(child, SMALL, compared, uniform, TURN)?;
    read(child, rows::GET_ZIPF, SMALL, job(rows::GET_ZIPF, Script::Get), Distribution::Zipf)?;
    read(child, rows::GET_ABSENT, SMALL, job(rows::GET_ABSENT, Script::GetAbsent), uniform)?;
    let multi = job(rows::MULTI, Script::MultiGet { keys: MULTI_KEYS });
    read(child, rows::MULTI, SMALL, multi, uniform)?;
    if child.contender.has_order {
        scans(child, &*engine, &data)?;
    }
    if half_fill(child, &*engine, &data)? {
        read(child, rows::GET_HALF, SMALL, job(rows::GET_HALF, Script::Get), uniform)?;
        if child.contender.has_order {
            let range = job(rows::RANGE_HALF, Script::Scan { items: RANGE_ITEMS });
            read(child, rows::RANGE_HALF, SMALL, range, uniform)?;
        }
    }
    engine.close()
}

/// Rows that need the order of keys.
fn scans(child: &Child<'_>, engine: &dyn Engine, data: &Data) -> Answer<()> {
    let uniform = Distribution::Uniform;
    let job = |row, script| child.job(engine, row, script, data);
    let scan = job(rows::SCAN, Script::Scan { items: SCAN_ITEMS });
    read(child, rows::SCAN, SMALL, scan, uniform)?;
    if child.contender.has_owned_iterator {
        let owned = job(rows::SCAN_OWNED, Script::ScanOwned { items: SCAN_ITEMS });
        read(child, rows::SCAN_OWNED, SMALL, owned, uniform)?;
    }
    let range = job(rows::RANGE, Script::Scan { items: RANGE_ITEMS });
    read(child, rows::RANGE, SMALL, range, uniform)?;
    if child.contender.has_owned_iterator {
        let owned = job(rows::RANGE_OWNED, Script::ScanOwned { items: RANGE_ITEMS });
        read(child, rows::RANGE_OWNED, SMALL, owned, uniform)?;
    }
    read(child, rows::SEEK, SMALL, job(rows::SEEK, Script::Scan { items: 1 }), uniform)?;
    Ok(())
}

/// Gets of one thread beside a thread that puts at a fixed rate.
pub(super) fn beside(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.small_items();
    let data = child.data(items, items);
    let engine = child.open(SMALL, Regime::Cached)?;
    child.settle(&*engine)?;
    warm(child, &*engine, &data)?;
    let job = Job {
        sees: Sees::Latest,
        beside: Some(BESIDE_PUTS_A_SECOND),
        batch: child.contender.batch,
        limit: Limit::time(2 * child.time),
        ..child.job(&*engine, rows::BESIDE, Script::Get, &data)
    };
    read(child, rows::BESIDE, SMALL, job, Distribution::Uniform)?;
    engine.close()
}
