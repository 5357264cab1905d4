//! The writing part of an opening: applies the decisions about logs.
//!
//! The youngest log stays active, with the generation that it was replayed into, so that opening a store
//! creates no file. The manifest records the ends of the older logs and drops any recorded end of the active
//! one. A new log is created in three cases: there is none, logs lie behind records that a power cut took, or
//! the logs hold more than the budget has generations for.
//!
//! Invariants:
//! 1. Every replayed log is durable before the edit. The edit is durable before anything is appended to the
//!    active log.
//! 2. Logs behind missing records are forgotten in the edit that names a new log, with a greater number.

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::sync::{Arc, AtomicBool, Mutex, OnceLock};
use crate::format::manifest::{ManifestChange, ManifestState, edit_bytes};
use crate::io::storage::Storage;
use crate::levels::manifest::{ManifestFile, ManifestIdentity};
use crate::levels::store::StoreFile;
use crate::memtable;
use crate::wal::replay::{LogEntry, Replayed, make_durable, read_witness, replay, resume};
use crate::wal::{LogFramer, LogIdentity};
use crate::write::writer::{MemtableAndLog, Resumed, SealedGeneration, SealedLog};

use super::parts::OpenParts;
use super::refill::{Logs, RefilledGeneration};

/// The files and state that recovery changes.
pub(in crate::engine) struct RecoveryFiles<'f> {
    pub(in crate::engine) store: &'f mut StoreFile,
    pub(in crate::engine) manifest: &'f mut ManifestFile,
    pub(in crate::engine) state: &'f mut ManifestState,
    pub(in crate::engine) next: &'f mut u64,
    /// All files found in the directory.
    pub(in crate::engine) entries: &'f [FileName],
}

impl RecoveryFiles<'_> {
    /// A file number that was never given out.
    fn next_number(&mut self, storage: &dyn Storage) -> Result<u64> {
        if *self.next >= self.store.live().next_file_number {
            *self.next = self.store.reserve_file_numbers(storage)?.start;
        }
        *self.next += 1;
        Ok(*self.next - 1)
    }
}

impl OpenParts {
    /// Mends STORE, removes unnamed files, makes logs durable, and resumes the youngest log.
    pub(in crate::engine) fn settle_logs(
        &self,
        files: &mut RecoveryFiles<'_>,
        logs: &mut Logs,
        manifest_bytes: u64,
    ) -> Result<Resumed> {
        let storage = &*self.env.storage;
        // A creator may have died before the directory entry of STORE was durable. It must be durable before
        // any file is made below: a crash must not lose STORE and keep such a file.
        storage.sync_directory()?;
        files.store.mend(storage)?;
        files.manifest.make_durable(storage)?;
        // Orphans go before any file is created, because their numbers may be given out again now.
        remove_orphans(storage, files.state, files.manifest.file(), files.entries);
        let can_go_on = !logs.overflow && logs.forgotten.is_empty();
        let active = if can_go_on { logs.replayed.pop() } else { None };
        self.make_logs_durable(files, logs)?;
        let mut changes = changes_of_ended(logs, files.state);
        let log = match active {
            Some((number, replayed)) => {
                if let Some(log) = files.state.logs.get(&number).filter(|log| log.recorded_end.is_some()) {
                    changes.push(ManifestChange::LogRemoved { number });
                    changes.push(ManifestChange::Log {
                        number,
                        path: log.path,
                        uid: log.uid,
                        bytes: log.bytes,
                    });
                }
                resume(storage, replayed)?
            }
            None => self.create_log(files, &mut changes)?,
        };
        self.append_changes(files, &changes, manifest_bytes)?;
        self.resumed(log, logs, files.state)
    }

    fn make_logs_durable(&self, files: &RecoveryFiles<'_>, logs: &mut Logs) -> Result<()> {
        let storage = &*self.env.storage;
        let witness = read_witness(storage);
        for ((number, replayed), after) in logs.replayed.iter_mut().zip(&logs.afters) {
            if logs.overflow {
                // These logs exceed memory, so they are read again one at a time.
                let log = files.state.logs[number];
                let store_id = files.store.live().store_id;
                let (number, after) = (*number, *after);
                let entry = LogEntry { number, log, store_id, witness, after, before: None };
                *replayed = replay(storage, &entry, &mut |_, _| Ok(()))?;
            }
            make_durable(storage, replayed)?;
        }
        Ok(())
    }

    fn create_log(
        &self,
        files: &mut RecoveryFiles<'_>,
        changes: &mut Vec<ManifestChange>,
    ) -> Result<LogFramer> {
        let storage = &*self.env.storage;
        let (uid, store_id) = (self.env.random.u64(), files.store.live().store_id);
        let (number, bytes) = (files.next_number(storage)?, self.budget.log_bytes_min);
        let log = LogFramer::create(storage, &LogIdentity { number, path: 0, uid, store_id, bytes })?;
        storage.sync_directory()?;
        changes.push(ManifestChange::Log { number, path: 0, uid, bytes });
        Ok(log)
    }

    /// Appends one edit if there are changes. The edit goes to a new manifest if the old one has no room or
    /// has an older format version.
    fn append_changes(
        &self,
        files: &mut RecoveryFiles<'_>,
        changes: &[ManifestChange],
        bytes_min: u64,
    ) -> Result<()> {
        if changes.is_empty() && !files.manifest.is_older() {
            return Ok(());
        }
        let storage = &*self.env.storage;
        if files.manifest.must_rewrite(files.state) || !files.manifest.has_room(changes) {
            let old = files.manifest.file();
            let identity = ManifestIdentity {
                number: files.next_number(storage)?,
                uid: self.env.random.u64(),
                store_id: files.store.live().store_id,
                bytes_min: bytes_min.max(4 * edit_bytes(changes)),
                features: files.manifest.kept_features(),
            };
            match ManifestFile::create(storage, &identity, files.state) {
                Err(Error::Full { .. }) if files.manifest.has_reserved_room(changes) => {}
                created => {
                    *files.manifest = created?;
                    storage.sync_directory()?;
                    files.store.switch_manifest(storage, files.manifest.place())?;
                    storage.remove(old)?;
                }
            }
        }
        if !changes.is_empty() {
            files.manifest.append(storage, changes)?;
            files.state.apply_edit(changes).expect("edits are made from the state they change");
        }
        Ok(())
    }

    /// The state from which the writer resumes.
    fn resumed(&self, log: LogFramer, logs: &mut Logs, state: &ManifestState) -> Result<Resumed> {
        let (generation, inserter, numbers) = match logs.last.take() {
            Some(RefilledGeneration { generation, inserter, logs, .. }) => (generation, inserter, logs),
            None => {
                let bytes = self.budget.generation_bytes as usize;
                let region = self.env.memory.region_for("a memtable generation", bytes)?;
                let (generation, inserter) = memtable::generation(region);
                (generation, inserter, Vec::new())
            }
        };
        let sealed = logs.generations.iter().map(|(generation, numbers, last_sequence)| {
            let logs = ended(numbers, &logs.replayed, state);
            Arc::new(SealedGeneration {
                generation: Arc::clone(generation),
                logs,
                last_sequence: *last_sequence,
                grant: Mutex::new(None),
            })
        });
        Ok(Resumed {
            active: MemtableAndLog { log, generation, inserter },
            logs: ended(&numbers, &logs.replayed, state),
            last_sequence: logs.last_sequence,
            sealed: sealed.collect(),
        })
    }
}

/// Edits that record the ends of logs still needed and remove the others.
fn changes_of_ended(logs: &Logs, state: &ManifestState) -> Vec<ManifestChange> {
    let mut changes = Vec::new();
    for (number, replayed) in &logs.replayed {
        let mut kept = logs.generations.iter().map(|(_, numbers, _)| numbers);
        let mut last = logs.last.iter().map(|last| &last.logs);
        let is_kept = logs.overflow
            || kept.any(|numbers| numbers.contains(number))
            || last.any(|numbers| numbers.contains(number));
        if !is_kept {
            changes.push(ManifestChange::LogRemoved { number: *number });
        } else if state.logs.get(number).is_some_and(|log| log.recorded_end.is_none()) {
            changes.push(ManifestChange::LogPromised { number: *number, end: replayed.end });
        }
    }
    changes.extend(logs.forgotten.iter().map(|number| ManifestChange::LogRemoved { number: *number }));
    changes
}

/// The logs with these numbers that take no more records.
fn ended(numbers: &[u64], replayed: &[(u64, Replayed)], state: &ManifestState) -> Vec<Arc<SealedLog>> {
    let ended = numbers.iter().filter_map(|number| {
        let (_, replayed) = replayed.iter().find(|(one, _)| one == number)?;
        let log = state.logs.get(number)?;
        let is_durable = OnceLock::new();
        is_durable.get_or_init(|| ());
        Some(Arc::new(SealedLog {
            file: log.file(*number),
            end: replayed.end,
            bytes: log.bytes,
            is_durable,
            has_recorded_end: AtomicBool::new(true),
        }))
    });
    ended.collect()
}

/// Removes our files that the manifest does not name: leftovers of work that a crash cut short.
pub(in crate::engine) fn remove_orphans(
    storage: &dyn Storage,
    state: &ManifestState,
    manifest: FileName,
    entries: &[FileName],
) {
    for file in entries {
        let is_named = match file.kind {
            FileKind::Lock | FileKind::Store => true,
            FileKind::Manifest => *file == manifest,
            FileKind::Log => state.logs.contains_key(&file.number),
            FileKind::Table => state.tables.contains_key(&file.number),
            // Files of later releases, and of the lab, are kept: this release cannot judge them.
            FileKind::Cluster | FileKind::Blob | FileKind::Lab => true,
            FileKind::History => false,
        };
        if !is_named && let Err(error) = storage.remove(*file) {
            log::warn!("{file} is not needed and could not be removed: {error}");
        }
    }
}
