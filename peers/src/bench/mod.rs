//! Trine beside other stores, measured: one driver, the same keys, values and streams of requests for all.
//!
//! 1. Each group of rows of each store is a process of its own; stores take turns group by group, and that is
//!    done run by run, so that a machine that drifts does so for all.
//! 2. What was measured is kept at once: ctrl-C, or a session that dies, loses one row at most.
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
