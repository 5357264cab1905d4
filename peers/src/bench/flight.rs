//! Gets that are in flight together, by every way a store has: threads that wait, keys together, futures. At
//! equal threads, and at equal requests in flight.

use super::cached::read;
use super::child::Child;
use super::cold::forget;
use super::distribution::{Chooser, Distribution};
use super::drive::{Job, Limit, Script};
use super::engines::{Executor, Regime};
use super::loads::BIG;
use super::plan::Stage;
use super::rows::{FLIGHT, Way};
use crate::engines::Answer;

/// Threads that fill the cache, where it holds half of the data, and for how many times a row's time.
const FILL_THREADS: u64 = 16;
const FILL_TIMES: u32 = 4;

pub(super) fn flight(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.big_items();
    let data = child.data(items, items);
    if child.contender.uses_page_cache {
        forget();
    }
    let engine = child.open(BIG, Regime::Cold)?;
    child.settle(&*engine)?;
    let is_half = child.options.stage == Stage::FlightHalf;
    if is_half {
        let filling = Job {
            threads: FILL_THREADS,
            limit: Limit::time(FILL_TIMES * child.time),
            chooser: Some(Chooser::new(Distribution::Uniform, items, child.options.seed)),
            ..child.job(&*engine, "filling the cache", Script::Get, &data)
        };
        child.run(&filling)?;
    }
    for one in FLIGHT {
        let row = if is_half { one.half } else { one.cold };
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
        read(child, row, BIG, job, Distribution::Uniform)?;
    }
    engine.close()
}
