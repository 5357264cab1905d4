//! How many runs a get may wait for at once (setting `search`).
//!
//! Asked by a get that would read from the device, and by no other. Any thread.
//!
//! The parallel searches of LSM-trie (Cheng et al., SPE 2020: two threads a get) and Drizard (section 2.6: a
//! thread a component) are always wide. With F for the share of gets that the newer run decides, t for a
//! read, q for reads in flight and Q for half of what the device takes, that saves (1 - F) t and costs
//! F t (q / Q)². A run whose filter lets the key pass decides but for one get in some hundred, so F is nearly
//! 1 there and another read would be in vain.

use crate::base::load::DeviceLoad;
use crate::base::sync::Arc;

/// See the setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// One run after another.
    Serial,
    /// So many at once, 8 at most.
    Parallel(usize),
    /// Two while it is open what the first will say and the device has little to do.
    Adaptive,
}

/// With so many reads in flight the device has something to do: a quarter of Q, 32, so that being wide pays
/// while F is less than 0.94.
pub(super) const READS_FEW: u64 = 8;
/// More would read in vain more often than they save.
const LANES_ADAPTIVE: usize = 2;

/// What is known of F where a get needs a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chance {
    /// Nearly 1.
    Likely,
    Open,
    /// Small: a node of a trie is asked, whose filters tell of all its runs. Mostly the last node on the way
    /// has the key, so that each page asked for with those before it saves the wait for it.
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

    /// How many runs may be waited for at once, or of a trie nodes. `chance`: that the first of them decides.
    pub(super) fn lanes_max(&self, chance: Chance) -> usize {
        match self.search {
            Search::Serial => 1,
            Search::Parallel(lanes) => lanes,
            Search::Adaptive if chance == Chance::Likely => 1,
            Search::Adaptive => match (READS_FEW.saturating_sub(self.load.awaited()), chance) {
                (0, _) => 1,
                // Reads of several gets together stay few.
                (few, Chance::Node) => few as usize,
                _ => LANES_ADAPTIVE,
            },
        }
    }
}
