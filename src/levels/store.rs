//! STORE on disk: which manifest is live, and the file numbers given out.
//!
//! This module does not choose between slots (`format::store`), and does not write the last-synced log
//! position, which committers write beside the slots (`wal`). The owner is the code that changes the
//! manifest; `Send`, not shared.
//!
//! A change is written and synced to slot 0, then the same to slot 1. Only after the call has returned may
//! the caller append to the new manifest or remove the old one.
//!
//! Invariants:
//! 1. A file named STORE is whole: it is created under another name and renamed.
//! 2. One slot is durable at all times: a slot is written only when the other is known to be durable.
//!    Bytes read by a load may be in the page cache only, if a process died before its sync or its sync
//!    failed. So no slot counts as durable until [`StoreFile::mend`] has written and synced every doubtful
//!    slot again.
//! 3. After any error, nothing may be appended to any manifest until `mend` has succeeded, because the
//!    next open may or may not find the change.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::format::header::is_foreign;
use crate::format::store::{self, Live, ManifestPlace, SLOT_OFFSETS, STORE_BYTES};
use crate::io::storage::{DirectoryEntry, Storage};

/// STORE before its rename. No manifest has number 0, so a file left by a crash is recognised.
pub(crate) const UNNAMED_STORE: FileName = FileName { kind: FileKind::Manifest, number: 0, path: 0 };

/// File numbers reserved at a time.
const NUMBERS_RESERVED: u64 = 1024;

/// STORE, open for reading and changing.
#[derive(Debug)]
pub(crate) struct StoreFile {
    /// Uid of STORE itself.
    uid: u64,
    live: Live,
    doubt: Doubt,
}

/// The slots that may not durably hold the live state. Slot 0 is always written first. So slot 1 is the
/// durable one while the slots differ, and slot 0 once they look equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doubt {
    None,
    /// Slot 1: a change may have ended before its second sync.
    Second,
    /// Slot 0, and so slot 1, which must not be written before slot 0.
    Both,
}

impl StoreFile {
    /// Makes the directory a store; this is the last step of a creation. The manifest must be written and
    /// synced. The call makes the manifest's name durable, then STORE's.
    pub(crate) fn create(storage: &dyn Storage, uid: u64, live: Live) -> Result<StoreFile> {
        storage.remove(UNNAMED_STORE)?;
        storage.create(UNNAMED_STORE)?;
        storage.write(UNNAMED_STORE, 0, &store::encode(uid, &live))?;
        storage.sync(UNNAMED_STORE)?;
        storage.sync_directory()?;
        storage.rename(UNNAMED_STORE, FileName::STORE)?;
        storage.sync_directory()?;
        Ok(StoreFile { uid, live, doubt: Doubt::None })
    }

    /// Reads STORE and writes nothing. `None` if there is no such file: the directory is no store.
    ///
    /// # Errors
    /// As `format::store::decode`; `Foreign` if STORE belongs to another program and there is no file of ours
    /// beside it but LOCK; `Io` of the storage.
    pub(crate) fn load(storage: &dyn Storage) -> Result<Option<StoreFile>> {
        let Some(length) = storage.length(FileName::STORE)? else {
            return Ok(None);
        };
        // A file of another length may still have a newer version in its header.
        let mut bytes = vec![0; length.min(STORE_BYTES as u64 + 1) as usize];
        let read = storage.read(FileName::STORE, 0, &mut bytes)?;
        bytes.truncate(read);
        let found = match store::decode(&bytes) {
            Err(Error::Corrupt(_)) if is_foreign(&bytes) && is_alone(storage)? => {
                let found = "a file STORE of another program".to_owned();
                return Err(Error::Foreign { path: storage.path(), found });
            }
            found => found?,
        };
        let doubt = if found.unequal { Doubt::Both } else { Doubt::Second };
        Ok(Some(StoreFile { uid: found.uid, live: found.live, doubt }))
    }

    pub(crate) fn live(&self) -> &Live {
        &self.live
    }

    /// Makes both slots durably equal to the live state: after a load, before any other write to the store.
    /// Cost: one sync after a load of equal slots, two after unequal ones, none if no slot is in doubt.
    pub(crate) fn mend(&mut self, storage: &dyn Storage) -> Result<()> {
        if self.doubt == Doubt::Both {
            self.write(storage, 0, &self.live)?;
            self.doubt = Doubt::Second;
        }
        if self.doubt == Doubt::Second {
            self.write(storage, 1, &self.live)?;
            self.doubt = Doubt::None;
        }
        Ok(())
    }

    /// Makes another manifest the live one. It must be written and synced, and its name durable.
    pub(crate) fn switch_manifest(&mut self, storage: &dyn Storage, manifest: ManifestPlace) -> Result<()> {
        let live = Live { turn: self.live.turn + 1, manifest, ..self.live.clone() };
        self.change(storage, live)
    }

    /// Reserves 1,024 file numbers that no earlier call returned.
    pub(crate) fn reserve_file_numbers(&mut self, storage: &dyn Storage) -> Result<Range<u64>> {
        let from = self.live.next_file_number;
        let live =
            Live { turn: self.live.turn + 1, next_file_number: from + NUMBERS_RESERVED, ..self.live.clone() };
        self.change(storage, live)?;
        Ok(from..from + NUMBERS_RESERVED)
    }

    fn change(&mut self, storage: &dyn Storage, live: Live) -> Result<()> {
        self.mend(storage)?;
        self.doubt = Doubt::Both;
        self.write(storage, 0, &live)?;
        self.live = live;
        self.doubt = Doubt::Second;
        self.mend(storage)
    }

    fn write(&self, storage: &dyn Storage, slot: usize, live: &Live) -> Result<()> {
        storage.write(FileName::STORE, SLOT_OFFSETS[slot], &live.encode(self.uid, slot))?;
        storage.sync(FileName::STORE)
    }
}

/// Whether no other file of a store is beside STORE. LOCK may be: it is created before STORE is read.
fn is_alone(storage: &dyn Storage) -> Result<bool> {
    let is_of_store = |entry| matches!(entry, DirectoryEntry::Ours(file) if file.kind.is_numbered());
    Ok(!storage.list()?.into_iter().any(is_of_store))
}

#[cfg(test)]
mod tests;
