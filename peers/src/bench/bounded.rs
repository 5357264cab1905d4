//! Stages that are killed after their time: an engine may need minutes for work that another does in seconds.

use std::time::Duration;

use super::engines::Contender;
use super::plan::{Group, Stage};
use super::{keyspaces, partitions};

/// The rows of a stage that is killed after its time; none of other stages.
pub(super) fn rows_of(stage: Stage) -> Vec<&'static str> {
    [keyspaces::rows_of(stage), partitions::rows_of(stage)].concat()
}

/// How long a stage may take; `None`: as long as it does.
pub(super) fn time_max(stage: Stage) -> Option<Duration> {
    keyspaces::time_max(stage).or(partitions::time_max(stage))
}

/// Whether the store takes part in a group of such stages.
pub(super) fn has(store: &Contender, group: Group) -> bool {
    match group {
        Group::Partitions => store.open_partitions.is_some(),
        _ => store.open_keyspaces.is_some(),
    }
}
