//! Rows whose data is many times the memory, and the first get after a kill.

use std::time::Instant;

use trine_workload::distribution::{Chooser, Distribution};

use super::bare::Bare;
use super::cached::{half_fill, read, read_in_turns};
use super::child::Child;
use super::drive::{Data, Job, Limit, Script};
use super::engines::{Engine, Found, Regime, Sees};
use super::flight::TURN;
use super::loads::BIG;
use super::measure::{self, Moment};
use super::plan::{MULTI_KEYS, SCAN_ITEMS, SHAPE};
use super::record::{Expected, Record};
use super::{bars, device, process, rows};
use crate::engines::{Answer, told};

/// The memory is divided by this for the bytes written before the kill: half of Trine's write buffer, and as
/// much for every store.
const WRITTEN_PART: u64 = 32;

/// Drops the page cache, or prints why that failed.
pub(super) fn forget() {
    if let Err(why) = process::drop_page_cache() {
        eprintln!("    {why}");
    }
}

/// The store for the next row, with an empty page cache. A store that reads through the page cache is opened
/// again: the kernel does not drop mapped pages.
fn cooled(child: &Child<'_>, engine: Box<dyn Engine>, regime: Regime) -> Answer<Box<dyn Engine>> {
    if !child.contender.uses_page_cache {
        forget();
        return Ok(engine);
    }
    engine.close()?;
    forget();
    child.open(BIG, regime)
}

/// Sends the requests of a row, for other keys and for as long as the row takes, and reports nothing. So the
/// row begins with a cache full of such requests' blocks.
fn warm(child: &Child<'_>, engine: &dyn Engine, row: &str, script: Script, data: &Data) -> Answer<()> {
    let chooser = Chooser::new(Distribution::Uniform, data.count, child.options.seed);
    let job = child.job(engine, &format!("warming: {row}"), script, data);
    child.prepare(&Job { chooser: Some(chooser), ..job })
}

pub(super) fn cold(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.big_items();
    let data = child.data(items, items);
    let mut engine = child.open(BIG, Regime::Cold)?;
    child.settle(&*engine)?;
    let one = |engine: &dyn Engine, row, script| {
        read(child, row, BIG, child.job(engine, row, script, &data), Distribution::Uniform)
    };
    let rows = [
        (rows::COLD_ABSENT, Script::GetAbsent),
        (rows::COLD_SCAN, Script::Scan { items: SCAN_ITEMS }),
        (rows::COLD_MULTI, Script::MultiGet { keys: MULTI_KEYS }),
    ];
    engine = cooled(child, engine, Regime::Cold)?;
    warm(child, &*engine, rows::COLD_GET, Script::Get, &data)?;
    gets(child, &*engine, &data)?;
    let has_order = child.contender.has_order;
    for (row, script) in rows {
        if !has_order && matches!(script, Script::Scan { .. }) {
            continue;
        }
        engine = cooled(child, engine, Regime::Cold)?;
        warm(child, &*engine, row, script.clone(), &data)?;
        one(&*engine, row, script)?;
    }
    if has_order {
        engine = cooled(child, engine, Regime::ColdInOrder)?;
        all(child, &*engine, &data)?;
    }
    if half_fill(child, &*engine, &data)? {
        forget();
        one(&*engine, rows::COLD_GET_HALF, Script::Get)?;
    }
    engine.close()
}

/// Gets of Trine take turns with bare reads, as the speed of a device changes by a fifth within seconds.
fn gets(child: &Child<'_>, engine: &dyn Engine, data: &Data) -> Answer<()> {
    let job = |engine, row| child.job(engine, row, Script::Get, data);
    let own = (rows::COLD_GET, job(engine, rows::COLD_GET));
    if child.contender.name != bars::OURS {
        return read(child, own.0, BIG, own.1, Distribution::Uniform);
    }
    let path = child.path(BIG).with_extension("bare");
    let bare = Bare::new(path, device::file_bytes(child.options.scale), child.options.seed)?;
    let both = vec![own, (rows::COLD_BARE, job(&bare, rows::COLD_BARE))];
    read_in_turns(child, BIG, both, Distribution::Uniform, TURN)
}

fn all(child: &Child<'_>, engine: &dyn Engine, data: &Data) -> Answer<()> {
    let limit = Limit::operations(data.count);
    let job = Job { limit, ..child.job(engine, rows::COLD_ALL, Script::All, data) };
    let (measured, _) = child.run(&job)?;
    child.tell(rows::COLD_ALL, BIG, measured)
}

/// Makes overwrites, which stay in logs, then aborts the process: no store is closed, and nothing is synced.
pub(super) fn reopen_write(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.big_items();
    let data = child.data(items, items);
    let engine = child.open(BIG, Regime::Cold)?;
    child.settle(&*engine)?;
    let written = (child.options.stage.memory_bytes(child.plan) / WRITTEN_PART / child.plan.bytes(1)).max(1);
    let job = Job {
        sees: Sees::Latest,
        limit: Limit::operations(written),
        chooser: Some(Chooser::new(Distribution::Uniform, items, child.options.seed)),
        ..child.job(&*engine, rows::REOPEN, Script::Overwrite, &data)
    };
    child.prepare(&job)?;
    std::fs::write(child.path(BIG).with_extension("written"), written.to_string()).map_err(told)?;
    std::process::abort();
}

/// Measures the time from before the opening to after the first get, with an empty page cache.
pub(super) fn reopen(child: &Child<'_>) -> Answer<()> {
    let written = std::fs::read_to_string(child.path(BIG).with_extension("written")).map_err(told)?;
    let log_items: f64 = written.parse().map_err(told)?;
    forget();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    SHAPE.key(0, &mut key);
    let before = Moment::now(super::engines::Counts::default());
    let started = Instant::now();
    let engine = child.open(BIG, Regime::Cold)?;
    let found = engine.reader(Sees::Latest)?.get(&key, &mut value)?;
    let seconds = started.elapsed().as_secs_f64();
    let after = Moment::now(engine.counts());
    let mut record = Record::new()?;
    record.take(1, (seconds * 1e9) as u64);
    if found != Found::Unasked {
        let expected = Expected::Value { made_bytes: child.plan.value_bytes };
        record.check(SHAPE, &key, (found, &value), expected, &mut Vec::new());
    }
    let mut measured = measure::row(&record, seconds, &before, &after);
    measured.more.insert(rows::LOG_ITEMS.to_owned(), log_items);
    child.tell(rows::REOPEN, BIG, measured)?;
    engine.close()
}
