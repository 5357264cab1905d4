//! Stale-manifest check by newer, unreferenced logs.
//!
//! A log is named durably in the manifest before its first record is written, and gets a higher number than
//! all earlier logs. A stale manifest therefore shows in an unnamed log that is younger than all named ones
//! and has a write that none of them has. Opening the store from a stale manifest would lose that write and
//! remove the log as an orphan. The check only reads; the opening of a store and the inspection tools call
//! it.
//!
//! 1. A crash never leaves such a log. A log that was made and not yet named has no records. A log that was
//!    removed from the manifest has only writes that are in tables, with one exception: a log behind records
//!    that a power cut took. Its number is lower than that of the log named by the edit that removed it.
//! 2. An unreadable log shows nothing.

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, Sequence};
use crate::format::frames::{Expected, FRAMED_BYTES_MAX, scan};
use crate::format::header::FileHeader;
use crate::format::manifest::ManifestState;
use crate::io::storage::{DirectoryEntry, Storage, read_whole};

/// The manifest's state, and the files found beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside<'s> {
    pub(crate) state: &'s ManifestState,
    pub(crate) store_id: u128,
    pub(crate) files: &'s [FileName],
}

impl Beside<'_> {
    /// Logs younger than all named ones, with writes above `last`.
    ///
    /// Cost: none, except that unnamed logs are read.
    pub(crate) fn later_logs(&self, storage: &dyn Storage, last: Sequence) -> Vec<FileName> {
        let newest = self.state.logs.keys().next_back().copied().unwrap_or(0);
        let younger = self.files.iter().filter(|file| file.kind == FileKind::Log && file.number > newest);
        let has_more =
            |file: &&FileName| first_write(storage, **file, self.store_id).is_some_and(|first| first > last);
        younger.filter(has_more).copied().collect()
    }

    /// Refuses a manifest that is older than the logs beside it. The files it names hold every write up to
    /// `last`.
    ///
    /// # Errors
    /// `Corrupt` for the manifest.
    pub(crate) fn check_age(&self, storage: &dyn Storage, manifest: FileName, last: Sequence) -> Result<()> {
        match self.later_logs(storage, last).first() {
            None => Ok(()),
            Some(later) => {
                let expected = format_args!("{later} among them, as it has later writes").to_string();
                Err(Error::corrupt(manifest, 0, "the logs it names", expected, "older ones only"))
            }
        }
    }
}

/// All files of the store.
///
/// # Errors
/// The storage's errors.
pub(crate) fn files(storage: &dyn Storage) -> Result<Vec<FileName>> {
    let entries = storage.list()?.into_iter();
    Ok(entries
        .filter_map(|entry| if let DirectoryEntry::Ours(file) = entry { Some(file) } else { None })
        .collect())
}

/// The first sequence number in the log's records.
fn first_write(storage: &dyn Storage, file: FileName, store_id: u128) -> Option<Sequence> {
    let length = storage.length(file).ok()?.filter(|length| *length <= FRAMED_BYTES_MAX)?;
    let bytes = read_whole(storage, file, length).ok()?;
    let header = FileHeader::decode(file, &bytes, FileKind::Log).ok()?;
    let boot_id = storage.boot_id();
    let expected = Expected { file, header, bytes: length, recorded_end: None, witness: None, boot_id };
    let found = scan(&expected, &bytes).ok().filter(|_| header.store_id == store_id)?;
    found.records().next().map(|record| record.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::manifest::ManifestChange;
    use crate::wal::memory::MemoryStorage;
    use crate::wal::{LogFramer, LogIdentity};

    const STORE_ID: u128 = 77;

    /// Creates a log of a store, with one record if `first` is given.
    fn log(storage: &dyn Storage, number: u64, store_id: u128, first: Option<Sequence>) -> FileName {
        let identity = LogIdentity { number, path: 0, uid: number, store_id, bytes: 16 << 10 };
        let mut log = LogFramer::create(storage, &identity).expect("room");
        if let Some(first) = first {
            let (at, mut out) = (log.tail().bytes, Vec::new());
            log.frame(first, b"not looked at", &mut out);
            storage.write(log.file(), at, &out).expect("no fault");
        }
        log.file()
    }

    fn later(storage: &dyn Storage, state: &ManifestState, files: &[FileName], last: Sequence) -> Vec<u64> {
        let later = Beside { state, store_id: STORE_ID, files }.later_logs(storage, last);
        later.iter().map(|file| file.number).collect()
    }

    /// Later logs have greater numbers than all named ones and later writes than all known ones. A log that
    /// is foreign, empty or unreadable shows nothing.
    #[test]
    fn later_logs_are_told() {
        let storage = MemoryStorage::new(5);
        let mut state = ManifestState::default();
        state
            .apply_edit(&[ManifestChange::Log { number: 5, path: 0, uid: 5, bytes: 16 << 10 }])
            .expect("consistent");
        let files = [
            log(&storage, 4, STORE_ID, Some(30)),
            log(&storage, 5, STORE_ID, Some(31)),
            log(&storage, 6, STORE_ID, Some(20)),
            log(&storage, 7, STORE_ID, None),
            log(&storage, 8, 78, Some(32)),
            log(&storage, 9, STORE_ID, Some(21)),
            FileName::new(FileKind::Table, 10),
            FileName::new(FileKind::Log, 11),
        ];
        storage.put(files[6], &storage.bytes(files[5]));
        assert_eq!(later(&storage, &state, &files, 19), [6, 9]);
        assert_eq!(later(&storage, &state, &files, 20), [9]);
        assert_eq!(later(&storage, &state, &files, 21), []);
        let mut bytes = storage.bytes(files[5]);
        bytes[100] = 1;
        storage.put(files[5], &bytes);
        assert_eq!(later(&storage, &state, &files, 19), [6], "damaged");

        let beside = Beside { state: &state, store_id: STORE_ID, files: &files };
        let manifest = FileName::new(FileKind::Manifest, 3);
        beside.check_age(&storage, manifest, 20).expect("nothing is later");
        match beside.check_age(&storage, manifest, 19) {
            Err(Error::Corrupt(at)) => {
                assert_eq!((at.file, at.what), (manifest.to_string(), "the logs it names"));
                assert!(at.expected.contains(&files[2].to_string()));
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Files of the store are listed.
    #[test]
    fn files_are_listed() {
        let storage = MemoryStorage::new(5);
        let files = [log(&storage, 4, STORE_ID, None), log(&storage, 5, STORE_ID, None)];
        assert_eq!(super::files(&storage).expect("no fault"), files);
    }
}
