//! Times the steps of one get by the environment's clock.

use crate::base::sync::Arc;
use crate::io::env::Clock;
use crate::read::trace::{Stage, Tracer};

use super::ReadDriver;

/// The total cost of one step, over all times it was entered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct StageCost {
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

/// Charges elapsed time to the step that is under way.
pub(crate) struct StageTimer {
    clock: Arc<dyn Clock>,
    costs: [StageCost; Stage::ALL.len()],
    current: Option<Stage>,
    since_ns: u64,
}

impl ReadDriver {
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.env.clock
    }

    pub(crate) fn stage_timer(&self) -> StageTimer {
        let clock = Arc::clone(&self.env.clock);
        StageTimer { since_ns: clock.now_ns(), clock, costs: Default::default(), current: None }
    }
}

impl StageTimer {
    fn charge(&mut self) {
        let now_ns = self.clock.now_ns();
        if let Some(stage) = self.current {
            self.costs[stage as usize].ns += now_ns.saturating_sub(self.since_ns);
        }
        self.since_ns = now_ns;
    }

    /// Ends the last step; returns the costs of all steps in order.
    pub(crate) fn finish(mut self) -> Vec<(Stage, StageCost)> {
        self.charge();
        Stage::ALL.into_iter().zip(self.costs).collect()
    }
}

impl Tracer for StageTimer {
    fn enter(&mut self, stage: Stage, bytes: usize) {
        self.charge();
        self.current = Some(stage);
        let cost = &mut self.costs[stage as usize];
        cost.bytes += bytes as u64;
        cost.count += 1;
    }
}
