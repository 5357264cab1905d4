//! The counts of `faults`, as they are printed and read again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use crate::machine::{self, Machine};

/// One run of `faults`.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct Results {
    pub(super) run: Run,
    pub(super) rows: Vec<Row>,
}

/// Date, machine, command and seed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Run {
    pub(super) date: String,
    pub(super) machine: String,
    pub(super) command: String,
    pub(super) seed: u64,
}

/// A store with settings.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) label: String,
    pub(super) versions: String,
    pub(super) settings: String,
    pub(super) promise_of_damage: String,
    pub(super) promise_synced: String,
    pub(super) promise_buffered: String,
    pub(super) seconds: u64,
    pub(super) damage: Vec<Count>,
    pub(super) kills: Vec<Kills>,
}

/// One kind of fault in one class of files.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub(super) struct Count {
    pub(super) class: String,
    pub(super) fault: String,
    pub(super) outcomes: BTreeMap<Outcome, u64>,
    /// Wrong outcomes with another value for some key, and not only missing keys.
    pub(super) altered: u64,
    pub(super) examples: Vec<String>,
}

/// Kills of children that write.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub(super) struct Kills {
    /// `synced` or `buffered`.
    pub(super) writes: String,
    pub(super) cycles: u64,
    /// Kills before the child had opened and read the store.
    pub(super) while_opening: u64,
    /// In batches.
    pub(super) acknowledged: u64,
    /// Times that acknowledged batches were gone, promised or not.
    pub(super) gone: u64,
    /// Times that the store was in none of the promised states, or could not be read.
    pub(super) violations: u64,
    /// Times that a store could not be opened whose first opening had never been completed.
    #[serde(default)]
    pub(super) unmade: u64,
    pub(super) told: Vec<String>,
}

impl Count {
    pub(super) fn tried(&self) -> u64 {
        self.outcomes.values().sum()
    }

    pub(super) fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }
}

/// The current run.
pub(super) fn run(seed: u64) -> Run {
    let Machine { date, machine, command } = machine::about();
    Run { date, machine, command, seed }
}
