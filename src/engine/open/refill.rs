//! Replays logs into memtable generations when a store is opened. It only reads; `recover` decides and
//! writes. Logs that exceed the budget are flushed later by `reflush`.

use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, SEQUENCE_MAX, Sequence, TreeId};
use crate::base::sync::Arc;
use crate::format::log::{Item, Items};
use crate::memtable::{self, BatchSize, Generation, Inserter};
use crate::wal::made::MadePartitions;
use crate::wal::replay::{After, Chain, Replayed};
use crate::write::large;

use super::parts::{OpenParts, RecoveredState};
use crate::engine::budget::Budget;
use crate::engine::recovery::Recovery;

/// No process lives long enough to write this many items. A store whose numbers are closer to the end is
/// damaged.
const SEQUENCES_LEFT_MIN: Sequence = 1 << 52;

/// The contents of the replayed logs.
pub(in crate::engine) struct Logs {
    /// Replayed logs, in order; logs behind a torn one are excluded.
    pub(in crate::engine) replayed: Vec<(u64, Replayed)>,
    /// Logs that were not replayed.
    pub(in crate::engine) forgotten: Vec<u64>,
    /// For each replayed log, the extent of the writes before it.
    pub(in crate::engine) afters: Vec<After>,
    /// The logs exceed the generation budget. No generation was kept; the opening flushes the logs.
    pub(in crate::engine) overflow: bool,
    /// Full generations, oldest first, each with the numbers of the logs that end in it.
    pub(in crate::engine) generations: Vec<(Arc<Generation>, Vec<u64>, Sequence)>,
    /// The youngest generation, to which writes may be added.
    pub(in crate::engine) last: Option<RefilledGeneration>,
    pub(in crate::engine) last_sequence: Sequence,
    /// Partitions that log records make.
    pub(in crate::engine) made: MadePartitions,
    pub(in crate::engine) recovery: Recovery,
}

/// A generation that still has room, and the numbers of the logs that end in it.
pub(in crate::engine) struct RefilledGeneration {
    pub(in crate::engine) generation: Arc<Generation>,
    pub(in crate::engine) inserter: Inserter,
    pub(in crate::engine) logs: Vec<u64>,
    last_sequence: Sequence,
}

/// Replays every log, in order, into generations of `generations_bytes_max` in all. Reads only.
pub(in crate::engine) fn replay_logs(
    parts: &OpenParts,
    recovered: &RecoveredState,
    generations_bytes_max: u64,
) -> Result<Logs> {
    let storage = &*parts.env.storage;
    let live = recovered.store_file.live();
    let secret = HashSecret::expand(live.hash_secret);
    let known: BTreeSet<TreeId> = recovered.state.trees().collect();
    let mut filling = Filling {
        parts,
        secret,
        known,
        recovered,
        made: MadePartitions::default(),
        done: Vec::new(),
        now: None,
        bytes: 0,
        bytes_max: generations_bytes_max,
        overflow: false,
    };
    let mut logs = Logs {
        replayed: Vec::new(),
        forgotten: Vec::new(),
        afters: Vec::new(),
        overflow: false,
        generations: Vec::new(),
        last: None,
        last_sequence: recovered.state.flushed,
        made: MadePartitions::default(),
        recovery: Recovery::default(),
    };
    let mut chain = Chain::begin(storage, live.store_id, recovered.state.flushed);
    for (number, log) in &recovered.state.logs {
        let file = log.file(*number);
        let (replayed, after) =
            chain.next(storage, (*number, *log), &mut |first, items| filling.add(file, first, items))?;
        logs.recovery.replayed_items += replayed.items;
        logs.recovery.replayed_bytes += replayed.end.bytes;
        logs.recovery.discarded_bytes += replayed.discarded_bytes;
        let Some(after) = after else {
            logs.forgotten.push(*number);
            continue;
        };
        logs.afters.push(after);
        logs.last_sequence = logs.last_sequence.max(replayed.last_sequence);
        filling.end_log(*number, replayed.last_sequence);
        logs.replayed.push((*number, replayed));
        if filling.overflow {
            logs.replayed.iter_mut().for_each(|(_, replayed)| replayed.shed());
        }
    }
    if logs.last_sequence > SEQUENCE_MAX - SEQUENCES_LEFT_MIN {
        let limit = SEQUENCE_MAX - SEQUENCES_LEFT_MIN;
        let file = recovered.manifest.file();
        return Err(Error::corrupt(file, 0, "the last sequence number", limit, logs.last_sequence));
    }
    logs.overflow = filling.overflow;
    logs.made = filling.made;
    (logs.generations, logs.last) = (filling.done, filling.now);
    Ok(logs)
}

/// The generations being filled from logs.
struct Filling<'f> {
    parts: &'f OpenParts,
    secret: HashSecret,
    known: BTreeSet<TreeId>,
    recovered: &'f RecoveredState,
    made: MadePartitions,
    done: Vec<(Arc<Generation>, Vec<u64>, Sequence)>,
    now: Option<RefilledGeneration>,
    /// Total memory of the generations.
    bytes: u64,
    bytes_max: u64,
    /// The budget did not suffice: all further items are only checked.
    overflow: bool,
}

impl Filling<'_> {
    fn add(&mut self, file: FileName, first: Sequence, items: Items<'_>) -> Result<()> {
        self.made.note(&self.recovered.state, file, &items)?;
        let size = large::batch_size(&items);
        if self.now.as_ref().is_some_and(|now| !now.inserter.room(size.items, size.key_value_bytes)) {
            self.seal();
        }
        if self.now.is_none() {
            self.begin(file, &size)?;
        }
        let (state, known, made) = (&self.recovered.state, &self.known, &self.made);
        let keeps = |item: &Item<'_>, sequence: Sequence| {
            if sequence <= state.flushed {
                return Ok(false);
            }
            if known.contains(&item.tree) || made.contains(item.tree) {
                return Ok(true);
            }
            let is_missing = || self.recovered.manifest.check_unknown(file.number, item.tree);
            made.check(state, file, item.tree, is_missing)?;
            Ok(false)
        };
        let Some(now) = &mut self.now else {
            // The budget is exceeded: items are only checked.
            return items.zip(first..).try_for_each(|(item, sequence)| keeps(&item, sequence).map(drop));
        };
        now.last_sequence = now.last_sequence.max(first + (size.items as u64).saturating_sub(1));
        large::insert(&mut now.inserter, &self.secret, items, first, keeps)
    }

    /// Begins an empty generation with room for a batch of this size, unless the budget is exceeded.
    fn begin(&mut self, file: FileName, size: &BatchSize) -> Result<()> {
        let region_bytes = region_bytes_for(&self.parts.budget, file, size)?;
        self.bytes += region_bytes as u64;
        self.overflow |= self.bytes > self.bytes_max;
        if self.overflow {
            self.done.clear();
            return Ok(());
        }
        let region = self.parts.env.memory.region_for("a generation to replay into", region_bytes)?;
        let (generation, inserter) = memtable::generation(region);
        let last_sequence = self.recovered.state.flushed;
        self.now = Some(RefilledGeneration { generation, inserter, logs: Vec::new(), last_sequence });
        Ok(())
    }

    fn end_log(&mut self, number: u64, last: Sequence) {
        match (&mut self.now, self.done.last_mut()) {
            (Some(now), _) => {
                now.logs.push(number);
                now.last_sequence = now.last_sequence.max(last);
            }
            (None, Some((_, logs, _))) => logs.push(number),
            // No record was replayed so far: the log is empty and is forgotten at once.
            (None, None) => {}
        }
    }

    fn seal(&mut self) {
        if let Some(RefilledGeneration { generation, logs, last_sequence, .. }) = self.now.take() {
            self.done.push((generation, logs, last_sequence));
        }
    }
}

/// The size of a generation that has room for a batch. It is the budget's size, or as much as the batch takes
/// when sorted by key if that is more: the batch may have been written under a larger budget.
pub(in crate::engine) fn region_bytes_for(
    budget: &Budget,
    file: FileName,
    size: &BatchSize,
) -> Result<usize> {
    let least = budget.generation_bytes as usize;
    if memtable::batch_bytes(size.items, size.key_value_bytes) <= memtable::batch_bytes_max(least) {
        return Ok(least);
    }
    let given = memtable::sorted_batch_bytes(size);
    let limit = memtable::batch_bytes_max(memtable::REGION_BYTES_MAX);
    if given > limit {
        return Err(Error::corrupt(file, 0, "memory that a batch takes", limit, given));
    }
    Ok(memtable::region_bytes_for(given).max(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::FileKind;

    /// A batch gets the budget's memory, or as much as it takes when sorted by key. That size is exact to the
    /// page and stays within the limit of a generation.
    #[test]
    fn batches_find_memory() {
        let (budget, file) = (Budget::divide(1 << 20), FileName::new(FileKind::Log, 3));
        let size = |bytes| BatchSize { items: 1, ranges: 0, key_value_bytes: bytes, trees: 1 };
        let region_bytes = |bytes| region_bytes_for(&budget, file, &size(bytes));
        let least = budget.generation_bytes as usize;
        assert_eq!(region_bytes(0).expect("fits"), least);
        for bytes in [least, 3 * least, 17 * least + 5] {
            let found = region_bytes(bytes).expect("fits");
            let taken = memtable::sorted_batch_bytes(&size(bytes));
            assert!(memtable::batch_bytes_max(found) >= taken, "{bytes}");
            assert!(memtable::batch_bytes_max(found - 2 * 4096) < taken, "{bytes}");
        }
        let around = memtable::sorted_batch_bytes(&size(0));
        let most = memtable::batch_bytes_max(memtable::REGION_BYTES_MAX) - around;
        assert!(region_bytes(most).expect("fits") <= memtable::REGION_BYTES_MAX);
        match region_bytes(most + 1) {
            Err(Error::Corrupt(at)) => {
                assert_eq!((at.file, at.what), (file.to_string(), "memory that a batch takes"))
            }
            other => panic!("not refused: {other:?}"),
        }
    }
}
