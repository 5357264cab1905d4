//! Gets in flight together, in every way that a store has: blocking threads, multi-gets, futures. They are
//! compared at equal threads and at equal requests in flight, for values of one size and of six.

use std::time::Duration;

use trine_workload::distribution::{Chooser, Distribution};

use super::cached::{read, read_in_turns};
use super::child::Child;
use super::cold::forget;
use super::drive::{Job, Limit, Script};
use super::engines::{Executor, Regime};
use super::loads::BIG;
use super::rows::{FLIGHT, Flight, SIZES, Way};
use crate::engines::Answer;

/// Threads that fill the cache.
const FILL_THREADS: u64 = 16;

/// The filling takes so many times the time of a row.
const FILL_TIMES: u32 = 3;

/// The time slice of a row before the next, where single gets are compared: their cost changes by a fifth
/// within seconds.
pub(super) const TURN: Duration = Duration::from_millis(50);

pub(super) fn flight(child: &Child<'_>) -> Answer<()> {
    gets(child, BIG, child.plan.big_items(), &FLIGHT)
}

/// The name of the store with values of one size.
pub(super) fn sized(child: &Child<'_>) -> String {
    format!("sizes-{}", child.plan.value_bytes)
}

/// Measures gets of values of one size; the last stage removes the store.
pub(super) fn sizes(child: &Child<'_>) -> Answer<()> {
    let size = SIZES.iter().find(|one| one.value_bytes == child.plan.value_bytes);
    let size = size.ok_or_else(|| format!("no row has values of {} B", child.plan.value_bytes))?;
    let name = sized(child);
    gets(child, &name, child.plan.sizes_items(), &size.gets)?;
    if child.options.stage.is_half() && !child.options.keep { child.remove(&name) } else { Ok(()) }
}

/// Measures the rows of one store, after its cache is filled.
fn gets(child: &Child<'_>, name: &str, items: u64, rows: &[Flight]) -> Answer<()> {
    let data = child.data(items, items);
    if child.contender.uses_page_cache {
        forget();
    }
    let engine = child.open(name, Regime::Cold)?;
    child.settle(&*engine)?;
    let filling = Job {
        threads: FILL_THREADS,
        limit: Limit::time(FILL_TIMES * child.time),
        chooser: Some(Chooser::new(Distribution::Uniform, items, child.options.seed)),
        ..child.job(&*engine, "filling the cache", Script::Get, &data)
    };
    child.prepare(&filling)?;
    let is_half = child.options.stage.is_half();
    let name_of = |one: &Flight| if is_half { one.half } else { one.cold };
    let has = |one: &&Flight| child.contender.has_futures || !one.way.has_futures();
    let job = |one: &Flight| {
        let (threads, script) = match one.way {
            Way::Threads(threads) => (threads, Script::Get),
            Way::Together(keys) => (1, Script::MultiGet { keys }),
            Way::BlockOn(depth) => (1, Script::InFlight { executor: Executor::BlockOn, depth }),
            Way::Tokio(depth) => (1, Script::InFlight { executor: Executor::Tokio, depth }),
        };
        Job { threads, ..child.job(&*engine, name_of(one), script, &data) }
    };
    let (alone, rest): (Vec<&Flight>, Vec<&Flight>) =
        rows.iter().filter(has).partition(|one| one.way.in_flight() == 1);
    let alone = alone.into_iter().map(|one| (name_of(one), job(one))).collect();
    read_in_turns(child, name, alone, Distribution::Uniform, TURN)?;
    for one in rest {
        read(child, name_of(one), name, job(one), Distribution::Uniform)?;
    }
    engine.close()
}
