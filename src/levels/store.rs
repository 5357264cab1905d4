//! STORE on disk: which manifest is live, and the file numbers given out.
//!
//! It is not the choice between slots (`format::store`), nor the witness, which who commits writes beside
//! them (`wal`). Owned by whoever changes the manifest; `Send`, not shared.
//!
//! A change is written and synced to slot 0, then the same to slot 1; only when the call has returned may the
//! caller append to the new manifest or remove the old one.
//!
//! Invariants: 1. a file named STORE is whole: it is made under another name and renamed; 2. one slot is
//! durable at all times: a slot is written only when the other is known to be. What a load reads may stand in
//! the page cache alone, after a process that died before its sync or whose sync failed, so nothing is known
//! until [`StoreFile::mend`] has written and synced again whatever may be in doubt; 3. after any error
//! nothing may be appended to any manifest until `mend` has succeeded, as the change may or may not be found
//! at the next open.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::format::header::is_foreign;
use crate::format::store::{self, Live, ManifestPlace, SLOT_OFFSETS, STORE_BYTES};
use crate::io::storage::{Entry, Storage};

/// STORE before it has its name. Number 0 is given to no manifest, so what a crash leaves of it is known for
/// what it is.
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

/// Which slots may not durably hold the live one. As slot 0 is always written first, it is slot 1 that is
/// durable while the slots differ, and slot 0 once they look equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doubt {
    None,
    /// Slot 1: a change may have ended before its second sync.
    Second,
    /// Slot 0, and so slot 1, which must not be touched before it.
    Both,
}

impl StoreFile {
    /// Makes the directory a store: the last step of creating one. The manifest must be written and synced;
    /// this makes its name durable, then that of STORE.
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

    /// Reads STORE and writes nothing; `None` if there is no such file, which makes the directory no store.
    ///
    /// # Errors
    /// As `format::store::decode`; `Foreign` if STORE is another program's and there is nothing of ours
    /// beside it but LOCK; `Io` of the storage.
    pub(crate) fn load(storage: &dyn Storage) -> Result<Option<StoreFile>> {
        let Some(length) = storage.length(FileName::STORE)? else {
            return Ok(None);
        };
        // A file of another length may still say in its header that it is newer.
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

    /// Makes both slots durably equal to the live one: after a load, before any other write to the store.
    /// Cost: one sync after a load of equal slots, two of unequal ones, none when there is no doubt.
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

    /// Makes another manifest the live one; it must be written, synced, and its name durable.
    pub(crate) fn switch_manifest(&mut self, storage: &dyn Storage, manifest: ManifestPlace) -> Result<()> {
        let live = Live { turn: self.live.turn + 1, manifest, ..self.live.clone() };
        self.change(storage, live)
    }

    /// Reserves 1,024 file numbers, which no earlier call returned.
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

/// Whether STORE has no other file of a store beside it. LOCK may be there: it is made before STORE is read.
fn is_alone(storage: &dyn Storage) -> Result<bool> {
    let is_of_store = |entry| matches!(entry, Entry::Ours(file) if file.kind.is_numbered());
    Ok(!storage.list()?.into_iter().any(is_of_store))
}

#[cfg(test)]
mod tests;
