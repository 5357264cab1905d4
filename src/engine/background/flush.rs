//! One flush: syncs its logs, records their ends, builds its table, and installs the table in the store.
//!
//! The flush worker uses it. So do flushes outside that worker: the restart of the log, opening and closing.

use crate::base::error::Result;
use crate::base::sync::{Arc, Ordering};
use crate::format::manifest::ManifestChange;
use crate::levels::version::Spot;
use crate::memtable::Generation;
use crate::table::{Otherwise, PageRank};
use crate::write::flush::{Flush, FlushOutput, Tombstones, TreeFlushPlan};
use crate::write::writer::SealedLog;

use crate::engine::publish::Publisher;
use crate::engine::publish::edit::{Edit, Origin};
use crate::engine::slices;

/// Installs the output of a flush in the store.
pub(in crate::engine) fn install(
    store: &Publisher,
    output: &FlushOutput,
    oldest_tombstone_s: u64,
    mut edit: Edit<'_>,
) -> Result<()> {
    store.sync_directory()?;
    // Take the catalog before the check which trees exist: no tree may be dropped between the check and the
    // edit.
    let mut catalog = store.catalog.take(&*store.env.threads);
    if let (Some(built), Some(sequences)) = (&output.table, output.sequences) {
        let origin = Origin { sequences, oldest_tombstone_s };
        store.add_tables(&catalog, &mut edit, built, |_| (Spot::LEVEL_0, origin));
    }
    store.edit_taken(&mut catalog, edit)
}

/// Makes the sealed logs durable and records their ends in the manifest.
pub(in crate::engine) fn record_sealed_log_ends(store: &Publisher, logs: &[Arc<SealedLog>]) -> Result<()> {
    let mut changes = Vec::new();
    for log in logs.iter().filter(|log| !log.has_recorded_end.load(Ordering::Acquire)) {
        if log.is_durable.get().is_none() {
            store.env.storage.sync(log.file).inspect_err(|error| store.writer.latch(error))?;
            // A commit may have synced the log at the same time; then it is marked durable already.
            let _ = log.is_durable.set(());
        }
        changes.push(ManifestChange::LogPromised { number: log.file.number, end: log.end });
    }
    if changes.is_empty() {
        return Ok(());
    }
    store.edit(Edit::of(changes))?;
    logs.iter().for_each(|log| log.has_recorded_end.store(true, Ordering::Release));
    Ok(())
}

/// Begins a flush of these generations, which are listed newest first.
pub(in crate::engine) fn begin_flush(store: &Publisher, generations: Vec<Arc<Generation>>) -> Result<Flush> {
    let version = {
        let pin = store.epoch.pin();
        Arc::clone(&store.views.load(&pin).get().version)
    };
    let trees: u64 = generations.iter().map(|one| one.trees().len() as u64).sum();
    let items_per_tree = generations.iter().map(|one| one.items()).sum::<u64>() / trees.max(1);
    let plan_of = |tree| {
        let settings = store.keyspace_of(tree)?.settings();
        let is_empty = version.tree(tree).is_none_or(|tree| tree.runs().next().is_none());
        let tombstones = if is_empty { Tombstones::Drop } else { Tombstones::Keep };
        let slice = slices::of_flush(&settings, version.tree(tree), items_per_tree);
        Some(TreeFlushPlan { slice, tombstones })
    };
    let storage = Arc::clone(&store.env.storage);
    let secret = store.owner.hash_secret();
    let mut flush = Flush::new(storage, store.new_table()?, secret, generations, plan_of);
    flush.set_memory_bytes(store.budget.flush_bytes());
    // Reads use new tables soon: pages that the budget cannot pin are offered to the cache.
    flush.open_with(store.opening(PageRank::UpperFilters, Otherwise::Offer));
    Ok(flush)
}
