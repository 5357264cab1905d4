//! The lowest layer: the present state of a store, and the ways to change it. It has the views, the catalog
//! with manifest and names, the write buffers and their log, the addition and removal of tables, and the
//! points that readers use.
//!
//! It has no jobs and does no reads. A change of a tree is noted in [`ChangedTrees`], for the merge queue; a
//! file that no version names is noted in [`Discarded`], for the flush worker. Any thread.

pub(crate) mod catalog;
pub(crate) mod changed;
pub(crate) mod compaction_policy;
pub(crate) mod edit;
mod edits;
pub(super) mod files;
pub(crate) mod keyspace;
mod keyspaces;
pub(crate) mod partitions;
mod points;
pub(crate) mod snapshot;
pub(super) mod tables;
mod usual;

use crate::base::epoch::Epoch;
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, AtomicBool, Mutex, Weak};
use crate::cache::Cache;
use crate::io::env::Env;
use crate::io::ledger::FileLedger;
use crate::levels::view::Views;
use crate::memtable::Generation;
use crate::table::{PageBudget, TableOwner};
use crate::write::writer::Writer;

use super::budget::Budget;
use super::options::OpenMode;
use catalog::CatalogCell;
use changed::ChangedTrees;
use snapshot::Points;

/// See the module.
pub(crate) struct Publisher {
    pub(super) env: Env,
    pub(super) epoch: Epoch,
    pub(super) store_id: u128,
    pub(super) settings: StoreSettings,
    pub(super) mode: OpenMode,
    pub(super) budget: Budget,
    pub(super) views: Arc<Views>,
    pub(super) writer: Writer,
    pub(super) cache: Cache,
    pub(super) pages: Arc<PageBudget>,
    pub(super) catalog: CatalogCell,
    pub(super) changed_trees: Arc<ChangedTrees>,
    pub(super) owner: TableOwner,
    pub(super) files: Arc<FileLedger>,
    pub(super) points: Points,
    /// Every generation that may still be in memory, for the memory accounts.
    pub(super) generations: Mutex<Vec<Weak<Generation>>>,
    pub(super) is_closed: AtomicBool,
}
