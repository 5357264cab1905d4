//! Gets that are in flight together, by every way a store has: threads that wait, keys together, futures. At
//! equal threads, and at equal requests in flight; of values of one size, and of six.

use super::cached::read;
use super::child::Child;
use super::cold::forget;
use super::distribution::{Chooser, Distribution};
use super::drive::{Job, Limit, Script};
use super::engines::{Executor, Regime};
use super::loads::BIG;
use super::rows::{FLIGHT, Flight, SIZES, Way};
use crate::engines::Answer;

/// Threads that fill the cache.
const FILL_THREADS: u64 = 16;

/// For how many times a row's time they do.
const FILL_TIMES: u32 = 3;

pub(super) fn flight(child: &Child<'_>) -> Answer<()> {
    gets(child, BIG, child.plan.big_items(), &FLIGHT)
}

/// The name of a store of values of one size.
pub(super) fn sized(child: &Child<'_>) -> String {
    format!("sizes-{}", child.plan.value_bytes)
}

/// Gets of values of one size; the last of its stages removes the store.
pub(super) fn sizes(child: &Child<'_>) -> Answer<()> {
    let size = SIZES.iter().find(|one| one.value_bytes == child.plan.value_bytes);
    let size = size.ok_or_else(|| format!("no row has values of {} B", child.plan.value_bytes))?;
    let name = sized(child);
    gets(child, &name, child.plan.sizes_items(), &size.gets)?;
    if child.options.stage.is_half() && !child.options.keep { child.remove(&name) } else { Ok(()) }
}

/// The rows of one store, after its cache was filled.
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
    for one in rows {
        let row = if child.options.stage.is_half() { one.half } else { one.cold };
        let (threads, script) = match one.way {
            Way::Threads(threads) => (threads, Script::Get),
            Way::Together(keys) => (1, Script::MultiGet { keys }),
            Way::BlockOn(depth) => (1, Script::InFlight { executor: Executor::BlockOn, depth }),
            Way::Tokio(depth) => (1, Script::InFlight { executor: Executor::Tokio, depth }),
        };
        if matches!(script, Script::InFlight { .. }) && !child.contender.has_futures {
            continue;
        }
        let job = Job { threads, ..child.job(&*engine, row, script, &data) };
        read(child, row, name, job, Distribution::Uniform)?;
    }
    engine.close()
}
