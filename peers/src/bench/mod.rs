//! Measurements of Trine beside other stores: one driver, and the same keys, values and streams of requests
//! for all stores.
//!
//! 1. Each group of rows of each store has processes of its own. Stores take turns group by group, run by
//!    run, so a drift of the machine affects all of them.
//! 2. Each row is kept as soon as it is measured: ctrl-C, or a session that dies, loses one row at most.
//! 3. Keys, values, distributions, mixes and the calibration of the device are those of `trine bench`: the
//!    package `trine-workload`.

mod bare;
mod bars;
mod bounded;
mod cached;
mod child;
mod cold;
mod compare;
mod device;
mod drive;
mod engines;
mod flight;
mod keyspaces;
mod latest;
mod limits;
mod loads;
mod measure;
mod mixes;
mod page;
mod parent;
mod partitions;
mod plan;
mod process;
mod queue;
mod record;
mod results;
mod rows;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod verdicts;
mod worker;

pub(crate) use child::{ChildOptions, child};
pub(crate) use page::pages;
pub(crate) use parent::{Options, run, show};
