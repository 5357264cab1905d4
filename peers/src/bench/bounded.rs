//! Stages with a time limit, after which they are killed: one engine may need minutes for work that takes
//! another seconds.

use std::time::Duration;

use super::engines::Contender;
use super::plan::{Group, Stage};
use super::{keyspaces, partitions};

/// The rows of a stage with a time limit; none for other stages.
pub(super) fn rows_of(stage: Stage) -> Vec<&'static str> {
    [keyspaces::rows_of(stage), partitions::rows_of(stage)].concat()
}

/// The time limit of a stage; `None` if it has none.
pub(super) fn time_max(stage: Stage) -> Option<Duration> {
    keyspaces::time_max(stage).or(partitions::time_max(stage))
}

/// Whether the store takes part in a group of stages with time limits.
pub(super) fn has(store: &Contender, group: Group) -> bool {
    match group {
        Group::Partitions => store.open_partitions.is_some(),
        _ => store.open_keyspaces.is_some(),
    }
}
