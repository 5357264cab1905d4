//! Rows of mixed requests: mixgraph, YCSB; and synced puts.

use trine_workload::distribution::{Chooser, Distribution};
use trine_workload::mixgraph::Mixgraph;
use trine_workload::numbering::Numbering;
use trine_workload::ycsb::Core;

use super::cached::read;
use super::child::Child;
use super::cold::forget;
use super::drive::{Data, Job, Limit, Script};
use super::engines::{Regime, Sees};
use super::loads::{SMALL, put_all};
use super::plan::SYNCED_WRITERS;
use super::rows;
use crate::engines::{Answer, Until};

const YCSB: &str = "ycsb";
const FEW: &str = "few";

/// Clients of YCSB.
const CLIENTS: u64 = 2;

/// The order is YCSB's own; D and E insert.
const CORES: [(Core, &str); 6] = [
    (Core::A, rows::YCSB_A),
    (Core::B, rows::YCSB_B),
    (Core::C, rows::YCSB_C),
    (Core::F, rows::YCSB_F),
    (Core::D, rows::YCSB_D),
    (Core::E, rows::YCSB_E),
];

/// Runs mixgraph, whose puts have lengths of their own, and removes the store: later groups must make it
/// again.
pub(super) fn mixgraph(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.small_items();
    let data = child.data(items, items);
    // Page cache that the load left is charged to no control group, so it is dropped.
    if child.contender.uses_page_cache {
        forget();
    }
    let engine = child.open(SMALL, Regime::Cold)?;
    child.settle(&*engine)?;
    let job = Job {
        sees: Sees::Latest,
        limit: Limit::time(2 * child.time),
        ..child.job(
            &*engine,
            rows::MIXGRAPH,
            Script::Mixgraph(Mixgraph::new(items, child.options.seed)),
            &data,
        )
    };
    let (mut measured, _) = child.run_settled(&job)?;
    measured.live_bytes = None;
    child.tell(rows::MIXGRAPH, SMALL, measured)?;
    engine.close()?;
    child.remove(SMALL)
}

/// Loads in a process of its own: the page cache that it leaves is dropped before the other rows.
pub(super) fn ycsb_load(child: &Child<'_>) -> Answer<()> {
    child.remove(YCSB)?;
    let engine = child.open(YCSB, Regime::Cold)?;
    let data = child.empty(Numbering::Scattered);
    let measured = put_all(child, &*engine, rows::YCSB_LOAD, &data, child.plan.ycsb_items(), CLIENTS)?;
    child.tell(rows::YCSB_LOAD, YCSB, measured)?;
    engine.close()
}

pub(super) fn ycsb(child: &Child<'_>) -> Answer<()> {
    if child.contender.uses_page_cache {
        forget();
    }
    let engine = child.open(YCSB, Regime::Cold)?;
    let count = child.plan.ycsb_items();
    let mut data = Data { count, ..child.empty(Numbering::Scattered) };
    child.settle(&*engine)?;
    for (core, row) in CORES {
        let job = Job {
            sees: Sees::Latest,
            threads: CLIENTS,
            limit: Limit::time(2 * child.time),
            chooser: Some(Chooser::new(core.distribution(), data.count, child.options.seed)),
            ..child.job(&*engine, row, Script::Ycsb(core), &data)
        };
        let (measured, ran) = child.run_settled(&job)?;
        data.count = ran.count;
        child.tell(row, YCSB, measured)?;
    }
    engine.close()?;
    child.remove(YCSB)
}

/// Overwrites few items; each overwrite is durable.
pub(super) fn synced(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.synced_items();
    child.remove(FEW)?;
    let engine = child.open(FEW, Regime::Cached)?;
    put_all(child, &*engine, rows::SYNCED, &child.data(0, items), items, 1)?;
    engine.close()?;
    let engine = child.open_until(FEW, Regime::Cached, Until::Synced)?;
    let data = child.data(items, items);
    for (row, threads) in [(rows::SYNCED, 1), (rows::SYNCED_MANY, SYNCED_WRITERS)] {
        let job = child.job(&*engine, row, Script::Overwrite, &data);
        read(child, row, FEW, Job { sees: Sees::Latest, batch: 1, threads, ..job }, Distribution::Uniform)?;
    }
    engine.close()?;
    child.remove(FEW)
}
