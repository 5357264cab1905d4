//! The parts of a store that an opening creates and reads before the store itself exists.

use crate::base::epoch::Epoch;
use crate::base::id::FileName;
use crate::base::sync::{Arc, Event};
use crate::cache::Cache;
use crate::engine::budget::Budget;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::format::manifest::ManifestState;
use crate::io::env::Env;
use crate::io::fork::ForkBytes;
use crate::io::ledger::FileLedger;
use crate::levels::manifest::ManifestFile;
use crate::levels::store::StoreFile;
use crate::levels::version::Version;
use crate::table::{Discarded, PageBudget};

/// All state read from the store's files.
pub(in crate::engine) struct RecoveredState {
    pub(in crate::engine) state: ManifestState,
    pub(in crate::engine) manifest: ManifestFile,
    pub(in crate::engine) store_file: StoreFile,
    pub(in crate::engine) keyspaces: Vec<Arc<KeyspaceState>>,
    /// Memory for the states of further keyspaces.
    pub(in crate::engine) states: ForkBytes,
    pub(in crate::engine) version: Version,
    pub(in crate::engine) entries: Vec<FileName>,
}

/// The parts created before any file is read.
pub(in crate::engine) struct OpenParts {
    pub(in crate::engine) env: Env,
    pub(in crate::engine) budget: Budget,
    pub(in crate::engine) epoch: Epoch,
    pub(in crate::engine) cache: Cache,
    pub(in crate::engine) pages: Arc<PageBudget>,
    pub(in crate::engine) discarded: Arc<Discarded>,
    pub(in crate::engine) files: Arc<FileLedger>,
    pub(in crate::engine) changed: Arc<Event>,
}
