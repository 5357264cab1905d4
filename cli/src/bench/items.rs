//! The contents of a bench store, recorded in the store itself: its items and their shape.

use serde::{Deserialize, Serialize};
use trine_workload::keys::{Permutation, Shape};
use trine_workload::numbering::Numbering;

/// The keyspace that marks a store as made by the bench, and the key of its state.
pub(super) const MARK: &str = ".bench";
pub(super) const STATE_KEY: &[u8] = b"state";

/// The keyspace of the workload partitions.
pub(super) const PARTITIONS: &str = ".bench.partitions";

/// The contents of the store.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) main: Option<Items>,
    pub(super) ycsb: Option<Items>,
}

/// One of the two sets of items, each in a keyspace of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    Main,
    Ycsb,
}

impl Family {
    /// The keyspace's name.
    pub(super) fn keyspace(self) -> &'static str {
        match self {
            Family::Main => ".bench.items",
            Family::Ycsb => ".bench.ycsb",
        }
    }
}

impl State {
    pub(super) fn of(&self, family: Family) -> Option<&Items> {
        match family {
            Family::Main => self.main.as_ref(),
            Family::Ycsb => self.ycsb.as_ref(),
        }
    }

    /// Bytes of keys and values of both sets; `None` if either is not known.
    pub(super) fn live_bytes(&self) -> Option<u64> {
        [&self.main, &self.ycsb].into_iter().flatten().map(|items| items.live_bytes).sum()
    }

    pub(super) fn of_mut(&mut self, family: Family) -> &mut Option<Items> {
        match family {
            Family::Main => &mut self.main,
            Family::Ycsb => &mut self.ycsb,
        }
    }
}

/// The order in which items are put.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    /// In key order.
    Sequential,
    /// In a random permutation of the keys below the bound.
    Random,
    /// As YCSB: keys scattered over the whole key space.
    Scattered,
}

/// Items, numbered from 0 in the order of the load; the first `count` are in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Items {
    pub(super) order: Order,
    pub(super) count: u64,
    /// The number of items of a whole load.
    pub(super) bound: u64,
    pub(super) seed: u64,
    pub(super) key_bytes: usize,
    pub(super) compressible_percent: u64,
    pub(super) value_bytes: u32,
    /// Whether some may have been deleted.
    pub(super) has_gaps: bool,
    /// Bytes of the keys and values that a reader sees; `None` once that is not known.
    pub(super) live_bytes: Option<u64>,
}

impl Items {
    pub(super) fn shape(&self) -> Shape {
        Shape { key_bytes: self.key_bytes, compressible_percent: self.compressible_percent }
    }

    /// Whether every key up to the bound is in the store.
    pub(super) fn is_whole(&self) -> bool {
        let is_dense = match self.order {
            Order::Sequential => true,
            Order::Random => self.count >= self.bound,
            Order::Scattered => false,
        };
        is_dense && !self.has_gaps
    }

    pub(super) fn numbering(&self) -> Numbering {
        match self.order {
            Order::Sequential => Numbering::Sequential,
            Order::Random => Numbering::Random(Permutation::new(self.bound, self.seed)),
            Order::Scattered => Numbering::Scattered,
        }
    }
}
