//! Space on disk while all items are overwritten in random order.

use std::path::Path;
use std::time::{Duration, Instant};

use super::child::Child;
use super::drive::{Job, Limit, Script};
use super::engines::{Compacted, Engine, Regime, Sees};
use super::loads::put_all;
use super::measure::Moment;
use super::record::Record;
use super::results::Measured;
use super::rows;
use crate::engines::{Answer, told};

const SPACE: &str = "space";

/// Points at which space is measured.
const POINTS: u64 = 10;

/// A store may remove obsolete files a little later: space is taken once it has not changed for `QUIET`, or
/// after `LIMIT`.
const QUIET: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);

fn steady(space: impl Fn() -> Answer<Option<f64>>) -> Answer<Option<f64>> {
    let (begun, mut since, mut last) = (Instant::now(), Instant::now(), space()?);
    while last.is_some() && since.elapsed() < QUIET && begun.elapsed() < LIMIT {
        std::thread::sleep(QUIET / 10);
        let now = space()?;
        if now != last {
            (since, last) = (Instant::now(), now);
        }
    }
    Ok(last)
}

/// Overwrites everything twice. The first pass has no pause and shows the space of a load that never rests;
/// the second pauses at each tenth until background work is finished. The row combines the ten parts of the
/// first pass, and has their rate.
pub(super) fn space(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.small_items();
    child.remove(SPACE)?;
    let mut engine = child.open(SPACE, Regime::Cold)?;
    put_all(child, &*engine, rows::SPACE, &child.data(0, items), items, 1)?;
    let path = child.path(SPACE);
    let tables = |path: &Path| {
        let bytes = child.disk_bytes(path)?.map(|(tables, _)| tables);
        Ok::<_, String>(bytes.map(|bytes| bytes as f64 / child.plan.bytes(items) as f64))
    };
    let data = child.data(items, items);
    let tenth = |engine: &dyn Engine, point: u64| {
        let (from, to) = (items * (point - 1) / POINTS, items * point / POINTS);
        let job = Job {
            sees: Sees::Latest,
            limit: Limit::operations(u64::MAX),
            ..child.job(engine, rows::SPACE, Script::Rewrite { from, to }, &data)
        };
        child.run(&job)
    };
    let before = Moment::now(engine.counts());
    let (mut whole, mut record) = (Measured::default(), Record::new()?);
    for point in 1..=POINTS {
        let (measured, ran) = tenth(&*engine, point)?;
        record.add(ran.record)?;
        whole = Measured { seconds: whole.seconds + measured.seconds, more: whole.more, ..measured };
        note(&mut whole, "amid", point, tables(&path)?);
    }
    whole.operations = record.operations;
    whole.latency_ns = record.latency();
    child.settle_puts(&*engine, &mut whole, &before, record.put_bytes)?;
    for point in 1..=POINTS {
        tenth(&*engine, point)?;
        engine.settle()?;
        note(&mut whole, "settled", point, steady(|| tables(&path))?);
    }
    let compacted = match engine.compact()? {
        Compacted::InPlace => steady(|| tables(&path))?,
        Compacted::Copy(copy) => {
            let bytes = std::fs::metadata(&copy).map_err(told)?.len();
            Some(bytes as f64 / child.plan.bytes(items) as f64)
        }
        Compacted::No => None,
    };
    if let Some(ratio) = compacted {
        whole.more.insert(rows::SPACE_COMPACTED.to_owned(), ratio);
    }
    child.tell(rows::SPACE, SPACE, whole)?;
    engine.close()?;
    child.remove(SPACE)
}

/// Records the space at a point, and the worst of all points.
fn note(whole: &mut Measured, when: &str, point: u64, ratio: Option<f64>) {
    let Some(ratio) = ratio else { return };
    whole.more.insert(format!("space_{when}_{point:02}"), ratio);
    let worst = whole.more.entry(format!("space_{when}_worst")).or_insert(ratio);
    *worst = worst.max(ratio);
}
