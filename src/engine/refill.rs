//! Logs replayed into memtable generations when a store is opened. Reads only; `recover` decides and writes.

use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, SEQUENCE_MAX, Sequence, TreeId};
use crate::base::sync::Arc;
use crate::format::manifest::State;
use crate::memtable::{self, Generation, Inserter};
use crate::wal::replay::{After, LogEntry, Replayed, replay};

use super::recover::{Found, Parts};
use super::stats::Recovery;

/// No process lives to write this many items: a store that is nearer to the end of the numbers was not
/// written by one.
const SEQUENCES_LEFT_MIN: Sequence = 1 << 52;

/// What the logs held.
pub(super) struct Logs {
    /// In order; those behind a torn one are not among them.
    pub(super) replayed: Vec<(u64, Replayed)>,
    /// Logs that were not replayed.
    pub(super) forgotten: Vec<u64>,
    /// Oldest first, each with the numbers of the logs that end in it.
    pub(super) generations: Vec<(Arc<Generation>, Vec<u64>, Sequence)>,
    pub(super) last_sequence: Sequence,
    pub(super) recovery: Recovery,
}

/// Replays every log into generations, in order. Reads only.
pub(super) fn replay_logs(parts: &Parts, found: &Found) -> Result<Logs> {
    let storage = &*parts.env.storage;
    let live = found.store_file.live();
    let secret = HashSecret::expand(live.hash_secret);
    let known: BTreeSet<TreeId> = found.keyspaces.iter().map(|keyspace| keyspace.tree).collect();
    let mut filling = Filling { parts, secret, known, state: &found.state, done: Vec::new(), now: None };
    let mut logs = Logs {
        replayed: Vec::new(),
        forgotten: Vec::new(),
        generations: Vec::new(),
        last_sequence: found.state.flushed,
        recovery: Recovery::default(),
    };
    let mut after = After::AtLeast(found.state.flushed);
    let mut is_cut = false;
    for (number, log) in &found.state.logs {
        // Also behind a gap: whether what is missing was synced shows in the later logs.
        let entry = LogEntry { number: *number, log: *log, store_id: live.store_id, after };
        let file = log.file(*number);
        let replayed = replay(storage, &entry, &mut |first, items| {
            if is_cut {
                let what = "the first sequence behind records that are missing";
                return Err(Error::corrupt(file, 0, what, "a later one", first));
            }
            filling.add(file, first, items)
        })?;
        logs.recovery.replayed_items += replayed.items;
        logs.recovery.replayed_bytes += replayed.end.bytes;
        logs.recovery.discarded_bytes += replayed.discarded_bytes;
        // A torn end alone says nothing: a recycled log ends in remains of its earlier life. What is missing
        // of it shows in the next one, which does not go on from here.
        is_cut |= replayed.gap;
        if is_cut {
            logs.forgotten.push(*number);
            continue;
        }
        if replayed.items > 0 {
            after = After::Exactly(replayed.last_sequence);
            logs.last_sequence = logs.last_sequence.max(replayed.last_sequence);
        }
        filling.end_log(*number, replayed.last_sequence);
        logs.replayed.push((*number, replayed));
    }
    if logs.last_sequence > SEQUENCE_MAX - SEQUENCES_LEFT_MIN {
        let limit = SEQUENCE_MAX - SEQUENCES_LEFT_MIN;
        let file = found.manifest.file();
        return Err(Error::corrupt(file, 0, "the last sequence number", limit, logs.last_sequence));
    }
    logs.generations = filling.finish();
    Ok(logs)
}

/// Generations being filled from logs.
struct Filling<'f> {
    parts: &'f Parts,
    secret: HashSecret,
    known: BTreeSet<TreeId>,
    state: &'f State,
    done: Vec<(Arc<Generation>, Vec<u64>, Sequence)>,
    now: Option<(Arc<Generation>, Inserter, Vec<u64>, Sequence)>,
}

impl Filling<'_> {
    fn add(&mut self, file: FileName, first: Sequence, items: crate::format::log::Items<'_>) -> Result<()> {
        let count = items.count_left() as usize;
        let bytes = items.clone().map(|item| item.key.len() + item.value.len()).sum();
        if self.now.as_ref().is_some_and(|(_, inserter, ..)| !inserter.room(count, bytes)) {
            self.seal();
        }
        if self.now.is_none() {
            self.now = Some(self.begin(file, count, bytes)?);
        }
        let Some((_, inserter, _, last)) = &mut self.now else { unreachable!("begun above") };
        for (item, sequence) in items.zip(first..) {
            *last = (*last).max(sequence);
            if sequence <= self.state.flushed {
                continue;
            }
            if self.known.contains(&item.tree) {
                inserter.insert(
                    item.tree,
                    item.key,
                    self.secret.hash(item.key),
                    sequence,
                    item.kind,
                    item.value,
                );
            } else if item.tree.keyspace.0 >= self.state.next_keyspace {
                let limit = self.state.next_keyspace;
                return Err(Error::corrupt(file, 0, "the keyspace of an item", limit, item.tree.keyspace.0));
            }
        }
        Ok(())
    }

    /// An empty generation that has room for a batch of this size; larger than the budget's if the store was
    /// written under a larger one.
    fn begin(
        &self,
        file: FileName,
        count: usize,
        bytes: usize,
    ) -> Result<(Arc<Generation>, Inserter, Vec<u64>, Sequence)> {
        let mut region_bytes = self.parts.budget.generation_bytes as usize;
        let given = memtable::batch_bytes(count, bytes);
        while memtable::batch_bytes_max(region_bytes) < given {
            region_bytes *= 2;
        }
        if region_bytes > memtable::REGION_BYTES_MAX {
            let limit = memtable::batch_bytes_max(memtable::REGION_BYTES_MAX);
            return Err(Error::corrupt(file, 0, "memory that a batch takes", limit, given));
        }
        let region = self.parts.env.memory.region_for("a generation to replay into", region_bytes)?;
        let (generation, inserter) = memtable::generation(region);
        Ok((generation, inserter, Vec::new(), self.state.flushed))
    }

    fn end_log(&mut self, number: u64, last: Sequence) {
        match (&mut self.now, self.done.last_mut()) {
            (Some((_, _, logs, sequence)), _) => {
                logs.push(number);
                *sequence = (*sequence).max(last);
            }
            (None, Some((_, logs, _))) => logs.push(number),
            // Nothing was replayed so far: the log is empty and forgotten at once.
            (None, None) => {}
        }
    }

    fn seal(&mut self) {
        if let Some((generation, _, logs, last)) = self.now.take() {
            self.done.push((generation, logs, last));
        }
    }

    fn finish(mut self) -> Vec<(Arc<Generation>, Vec<u64>, Sequence)> {
        self.seal();
        self.done
    }
}
