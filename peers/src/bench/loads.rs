//! Stages that make a store, in random order or in the order of keys.

use std::path::Path;

use trine_workload::distribution::{Chooser, Distribution};
use trine_workload::numbering::Numbering;

use super::child::Child;
use super::drive::{Data, Job, Limit, Script};
use super::engines::{Engine, Regime, Sees};
use super::results::Measured;
use super::rows;
use crate::engines::{Answer, told};

/// Names of stores, each of which is a directory.
pub(super) const BIG: &str = "big";
pub(super) const SMALL: &str = "small";
const ORDERED: &str = "ordered";

/// Puts items up to `end` in the order of the data and settles; returns the row of both.
pub(super) fn put_all(
    child: &Child<'_>,
    engine: &dyn Engine,
    row: &str,
    data: &Data,
    end: u64,
    threads: u64,
) -> Answer<Measured> {
    let job = Job {
        sees: Sees::Latest,
        threads,
        limit: Limit::operations(u64::MAX),
        ..child.job(engine, row, Script::Load { end }, data)
    };
    Ok(child.run_settled(&job)?.0)
}

/// The row of a load in random order; the store stays for the stages that read it.
pub(super) fn load(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.big_items();
    let measured = make_store(child, BIG, items)?;
    child.tell(rows::LOAD, BIG, measured)
}

/// Makes a store anew, without a row.
pub(super) fn make(child: &Child<'_>, name: &str, items: u64) -> Answer<()> {
    make_store(child, name, items).map(drop)
}

fn make_store(child: &Child<'_>, name: &str, items: u64) -> Answer<Measured> {
    child.remove(name)?;
    let engine = child.open(name, Regime::Cached)?;
    let measured = put_all(child, &*engine, rows::LOAD, &child.data(0, items), items, 1)?;
    engine.close()?;
    std::fs::write(child.made(name), made_with(child, items)).map_err(told)?;
    Ok(measured)
}

/// Makes a store, unless another group left the same one.
pub(super) fn ensure(child: &Child<'_>, name: &str, items: u64) -> Answer<()> {
    let is_there =
        |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text == made_with(child, items));
    if is_there(&child.made(name)) { Ok(()) } else { make(child, name, items) }
}

fn made_with(child: &Child<'_>, items: u64) -> String {
    format!("{items} items, seed {}\n", child.options.seed)
}

/// Puts items in the order of keys, then a quarter as many random overwrites.
pub(super) fn fill(child: &Child<'_>) -> Answer<()> {
    let items = child.plan.big_items();
    child.remove(ORDERED)?;
    let engine = child.open(ORDERED, Regime::Cached)?;
    let empty = child.empty(Numbering::Sequential);
    let measured = put_all(child, &*engine, rows::FILLSEQ, &empty, items, 1)?;
    child.tell(rows::FILLSEQ, ORDERED, measured)?;
    let data = Data { count: items, is_dense: true, ..empty };
    let overwrites = items / 4;
    let job = Job {
        sees: Sees::Latest,
        limit: Limit::operations(overwrites),
        chooser: Some(Chooser::new(Distribution::Uniform, items, child.options.seed)),
        ..child.job(&*engine, rows::OVERWRITE, Script::Overwrite, &data)
    };
    let (measured, _) = child.run_settled(&job)?;
    child.tell(rows::OVERWRITE, ORDERED, measured)?;
    engine.close()?;
    child.remove(ORDERED)
}
