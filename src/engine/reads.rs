//! Gets and scans: the machines of `read`, driven on the caller's thread or by futures.
//!
//! It owns requests and their order, and no logic of lookup or scan. `get`, `many`, `scan` and `short` drive
//! on the caller's thread, `later` drives futures, `local` reads for futures under `block_on`. All of them,
//! and the worker, read missing blocks through one [`BlockReader`].

pub(super) mod admission;
pub(super) mod blocks;
pub(crate) mod callback;
mod fetch;
mod found;
mod get;
pub(crate) mod later;
pub(super) mod length;
pub(crate) mod local;
mod many;
pub(super) mod queue;
mod request;
mod scan;
pub(crate) mod short;
mod timer;
pub(super) mod timers;
pub(super) mod worker;

use std::ops::Deref;

use crate::base::load::DeviceLoad;
use crate::base::settings::StoreSettings;
use crate::base::sync::Arc;
use crate::read::breadth::{Breadth, Search};

use super::publish::Publisher;
use blocks::BlockReader;

/// See the module.
pub(crate) struct ReadDriver {
    pub(super) publisher: Publisher,
    pub(super) breadth: Breadth,
    pub(super) blocks: Arc<BlockReader>,
}

impl Deref for ReadDriver {
    type Target = Publisher;

    #[inline]
    fn deref(&self) -> &Publisher {
        &self.publisher
    }
}

impl StoreSettings {
    pub(super) fn breadth(&self, load: &Arc<DeviceLoad>) -> Breadth {
        let reads_overlap = self.io != 1;
        let search = match self.search {
            2 => Search::Parallel(2),
            3 => Search::Parallel(4),
            4 => Search::Parallel(8),
            0 if reads_overlap => Search::Adaptive,
            _ => Search::Serial,
        };
        Breadth::new(search, Arc::clone(load))
    }
}
