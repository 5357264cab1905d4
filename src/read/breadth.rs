//! The number of runs that a get may wait for at once (setting `search`).
//!
//! Called only by a get that has to read from the device. Any thread.
//!
//! The parallel searches of LSM-trie (Cheng et al., SPE 2020: two threads a get) and Drizard (section 2.6: a
//! thread a component) always search runs in parallel. Let F be the share of gets that the newer run decides,
//! t the time of a read, q the reads in flight and Q half of the reads that the device takes at once. A
//! parallel read then saves (1 - F) t and costs F t (q / Q)². If a run's filter lets the key pass, the run
//! decides in all but one get of some hundred. So F is nearly 1 there, and a second read would be wasted.

use crate::base::load::DeviceLoad;
use crate::base::sync::Arc;

/// See the setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// One run after another.
    Serial,
    /// This many runs at once, 8 at most.
    Parallel(usize),
    /// Two while the first may not decide and the device has few reads; in a trie up to `READS_FEW` less the
    /// reads in flight.
    Adaptive,
}

/// From this many reads in flight on, gets are serial. It is a quarter of Q = 32, so that parallel reads pay
/// while F is less than 0.94.
pub(super) const READS_FEW: u64 = 8;
/// With more, wasted reads would cost more than parallel ones save.
const LANES_ADAPTIVE: usize = 2;

/// An estimate of F where a get needs a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chance {
    /// Nearly 1.
    Likely,
    Open,
    /// Small: a node of a trie is searched, and its filters cover all its runs. Mostly the last node on the
    /// way has the key, so every page read together with earlier ones saves a wait.
    Node,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Breadth {
    search: Search,
    load: Arc<DeviceLoad>,
}

impl Breadth {
    pub(crate) fn new(search: Search, load: Arc<DeviceLoad>) -> Breadth {
        Breadth { search, load }
    }

    /// Most runs, or nodes of a trie, that a get may wait for at once. `chance` estimates whether the first
    /// of them decides.
    pub(super) fn lanes_max(&self, chance: Chance) -> usize {
        match self.search {
            Search::Serial => 1,
            Search::Parallel(lanes) => lanes,
            Search::Adaptive if chance == Chance::Likely => 1,
            Search::Adaptive => match (READS_FEW.saturating_sub(self.load.awaited()), chance) {
                (0, _) => 1,
                // The reads of several gets together stay few.
                (few, Chance::Node) => few as usize,
                _ => LANES_ADAPTIVE,
            },
        }
    }
}
