//! The start of a store's workers.

use crate::base::error::Result;
use crate::base::sync::Arc;
use crate::engine::background::Scheduler;
use crate::engine::background::flush_work::FlushWork;
use crate::engine::background::merge_work::MergeWork;
use crate::engine::background::quiet::Whose;
use crate::engine::background::workers::spawn;
use crate::engine::options::OpenMode;
use crate::engine::publish::Publisher;
use crate::engine::publish::files::StoreFiles;
use crate::engine::reads::worker::ReadsWork;
use crate::engine::store::{Store, StoreLayer};

/// Starts the workers of a store; a read-only store starts only the reads worker.
pub(super) fn start(store: &Arc<Store>) -> Result<()> {
    let scheduler = || StoreLayer::<Scheduler>::new(store);
    store.blocks.limit_reads(store.settings.reads_in_flight);
    spawn(scheduler(), Arc::clone(&store.blocks), "trine-reads", ReadsWork::default())?;
    if store.mode == OpenMode::ReadOnly {
        store.quiet.lend_for_good(Whose::Merges);
        if store.is_in_one_generation() {
            store.quiet.lend_for_good(Whose::Flushes);
        }
        return Ok(());
    }
    store.changed_trees.note_all(store.trees());
    store.measure_pressure();
    spawn(scheduler(), scheduler(), "trine-flush", FlushWork::default())?;
    for _ in 0..store.settings.background_threads.saturating_sub(1).max(1) {
        let files = Arc::new(StoreFiles(StoreLayer::<Publisher>::new(store)));
        spawn(scheduler(), scheduler(), "trine-merge", MergeWork::new(files))?;
    }
    Ok(())
}
