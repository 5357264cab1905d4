//! Space on disk by role, and the readers of files that are obsolete.
//!
//! Lengths and holes come from the ledger of the store's files (`io::ledger`). The roles add up to the space
//! of the directory's files at any time, and no call reads the directory.

use std::collections::BTreeMap;

use crate::base::id::{FileKind, FileName};
use crate::base::sync::Ordering;
use crate::levels::version::{Placed, Version};

use super::store::Store;
use crate::engine::publish::snapshot::PointKind;

/// Space on disk, by role: lengths of the store's files without their holes, in bytes. `table_bytes` to
/// `unnamed_bytes` add up to `total_bytes`, the space of the directory's files except files that are no
/// store's.
///
/// Cost: a copy of the list of files, and for the readers of obsolete files a look at the tables of each
/// snapshot and iterator. No device read, and no read of the directory.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// assert_eq!(db.stats().space.table_bytes, 0);
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let space = db.stats().space;
/// assert!(space.table_bytes > 0 && space.total_bytes > space.table_bytes);
/// assert!(space.obsolete_files.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SpaceStats {
    /// Tables that hold the store's items.
    pub table_bytes: u64,
    /// Tables that hold no items of the store any more. A reader still uses them, or they are about to be
    /// removed. See `obsolete_files`.
    pub obsolete_table_bytes: u64,
    /// Tables of items that only snapshots and iterators see.
    pub history_bytes: u64,
    /// Tables that flushes, merges and ingests are writing.
    pub new_table_bytes: u64,
    /// Logs of items that are in no table yet, and of items that are being flushed.
    pub log_bytes: u64,
    /// A log that is ready and not in use yet.
    pub standby_log_bytes: u64,
    /// A log whose items were flushed, kept for reuse.
    pub recycled_log_bytes: u64,
    /// The manifest, and while it is rewritten the new one.
    pub manifest_bytes: u64,
    /// The files STORE and LOCK.
    pub store_bytes: u64,
    /// Files that nothing names: left by a process that died, of a later release, or files that could not be
    /// removed. The next opening for writing removes those that it may.
    pub unnamed_bytes: u64,
    /// All of these together.
    pub total_bytes: u64,
    /// Not a role: space given back to the file system since the store was opened, out of the middle of table
    /// files that hold the items of several trees, or of several nodes of a hashed one. 0 where the file
    /// system has no holes.
    pub hole_bytes: u64,
    /// Each obsolete table and each history table, by name, with its readers.
    pub obsolete_files: Vec<ObsoleteFile>,
}

/// A file that is kept for its readers alone.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let snapshot = db.snapshot();
/// users.put(b"ann", b"2")?;
/// db.compact()?;
/// let space = db.stats().space;
/// let readers = &space.obsolete_files[0].readers;
/// assert_eq!((readers[0].kind, readers[0].count), (trine::FileReaderKind::Snapshot, 1));
/// drop(snapshot);
/// db.settle()?;
/// assert_eq!(db.stats().space.obsolete_table_bytes, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ObsoleteFile {
    /// Its name in the store's directory.
    pub name: String,
    /// Its length without its holes.
    pub bytes: u64,
    /// Its readers, by kind. Once all of them are gone the file is removed, soon and in the background.
    pub readers: Vec<FileReader>,
}

/// Readers of one kind that hold a file; see [`ObsoleteFile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FileReader {
    /// Their kind.
    pub kind: FileReaderKind,
    /// How many there are. Reads under way are not counted: always 1.
    pub count: u64,
}

/// A kind of reader that may hold a file; see [`ObsoleteFile`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum FileReaderKind {
    /// A [`Snapshot`](crate::Snapshot); `stats().snapshots` tells the age of the oldest.
    Snapshot,
    /// An iterator or cursor, or a scan of a future.
    Iterator,
    /// A checkpoint that is being made.
    Checkpoint,
    /// A check of the open store ([`Db::verify`](crate::Db::verify)).
    Verify,
    /// A read under way, a future of a get that was not dropped, or background work. Listed for files that
    /// have no other reader, and for those that are about to be removed.
    Read,
}

impl FileReaderKind {
    /// The word for the kind, as the command `trine stats` shows it.
    ///
    /// ```
    /// assert_eq!(trine::FileReaderKind::Snapshot.name(), "snapshot");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            FileReaderKind::Snapshot => "snapshot",
            FileReaderKind::Iterator => "iterator",
            FileReaderKind::Checkpoint => "checkpoint",
            FileReaderKind::Verify => "verify",
            FileReaderKind::Read => "read",
        }
    }
}

/// The roles of files, by their numbers.
struct Roles<'r> {
    /// Tables of the present version.
    live: &'r BTreeMap<u64, u64>,
    obsolete: BTreeMap<u64, BTreeMap<FileReaderKind, u64>>,
    standby_log: Option<u64>,
    recycled_log: u64,
}

impl Store {
    /// The space of the store, whose present version has the files `live`.
    pub(super) fn space_stats(&self, live: &BTreeMap<u64, u64>) -> SpaceStats {
        // After `live`, and before the lengths: a table that leaves the version meanwhile is obsolete, and a
        // table that is removed meanwhile has no length.
        let roles = Roles {
            live,
            obsolete: self.readers_of_obsolete(),
            standby_log: self.writer.standby().0.map(|log| log.number),
            recycled_log: self.work.recycled_log.load(Ordering::Relaxed),
        };
        let mut space = SpaceStats::default();
        for (file, length) in self.files.files() {
            space.total_bytes += length.held_bytes();
            space.hole_bytes += length.hole_bytes;
            match length.is_left_over {
                true => space.unnamed_bytes += length.held_bytes(),
                false => *roles.role(&mut space, file) += length.held_bytes(),
            }
            if let (FileKind::Table | FileKind::History, Some(readers)) =
                (file.kind, roles.obsolete.get(&file.number))
            {
                let readers = readers.iter().map(|(kind, count)| FileReader { kind: *kind, count: *count });
                let readers = readers.collect();
                let (name, bytes) = (file.to_string(), length.held_bytes());
                space.obsolete_files.push(ObsoleteFile { name, bytes, readers });
            }
        }
        space
    }

    /// Each obsolete file, by number, with the number of its readers of each kind.
    fn readers_of_obsolete(&self) -> BTreeMap<u64, BTreeMap<FileReaderKind, u64>> {
        let mut obsolete: BTreeMap<u64, BTreeMap<FileReaderKind, u64>> =
            self.owner.discarded.obsolete().into_iter().map(|file| (file.number, BTreeMap::new())).collect();
        if obsolete.is_empty() {
            return obsolete;
        }
        for point in self.points.alive() {
            let kind = match point.kind() {
                PointKind::Snapshot { .. } => FileReaderKind::Snapshot,
                PointKind::Iterator => FileReaderKind::Iterator,
                PointKind::Checkpoint => FileReaderKind::Checkpoint,
                PointKind::Verify => FileReaderKind::Verify,
            };
            let view = self.view_of(&point);
            let mut numbers: Vec<u64> = placed(&view.version).map(|placed| placed.name().0).collect();
            numbers.sort_unstable();
            // A file may have several slices.
            numbers.dedup();
            for number in numbers {
                if let Some(readers) = obsolete.get_mut(&number) {
                    *readers.entry(kind).or_default() += 1;
                }
            }
        }
        for readers in obsolete.values_mut().filter(|readers| readers.is_empty()) {
            readers.insert(FileReaderKind::Read, 1);
        }
        obsolete
    }
}

impl Roles<'_> {
    fn role<'s>(&self, space: &'s mut SpaceStats, file: FileName) -> &'s mut u64 {
        match file.kind {
            FileKind::Lock | FileKind::Store => &mut space.store_bytes,
            FileKind::Manifest => &mut space.manifest_bytes,
            FileKind::Log if self.standby_log == Some(file.number) => &mut space.standby_log_bytes,
            FileKind::Log if self.recycled_log == file.number => &mut space.recycled_log_bytes,
            FileKind::Log => &mut space.log_bytes,
            FileKind::Table if self.live.contains_key(&file.number) => &mut space.table_bytes,
            FileKind::Table if self.obsolete.contains_key(&file.number) => &mut space.obsolete_table_bytes,
            FileKind::Table => &mut space.new_table_bytes,
            FileKind::History => &mut space.history_bytes,
            FileKind::Cluster | FileKind::Blob | FileKind::Lab => &mut space.unnamed_bytes,
        }
    }
}

/// Every table of a version, slice by slice.
pub(super) fn placed(version: &Version) -> impl Iterator<Item = &Placed> {
    version.trees().flat_map(|tree| tree.tables()).map(|(_, placed)| placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ItemKind;
    use crate::base::sync::Arc;
    use crate::engine::tests::run;
    use crate::io::sim::SimDisk;
    use crate::write::batch::BatchItems;

    /// Each kind of reader is listed, with its count; once the readers are gone so is the file.
    #[test]
    fn every_kind_of_reader_is_told() {
        let (store, threads) = run::open(&SimDisk::new(1), None, 0, 1 << 20).expect("opens");
        let keyspace = store.open_keyspace("k", &[]).expect("is made");
        let mut items = BatchItems::default();
        items.push(keyspace.tree, ItemKind::Put, b"a", b"1").expect("is short");
        store.write(&items, None).expect("no fault");
        store.flush().expect("no fault");
        let kinds = [PointKind::Iterator, PointKind::Checkpoint, PointKind::Verify, PointKind::Verify];
        let points: Vec<_> = kinds.into_iter().map(|kind| store.point_of(kind)).collect();
        let snapshot = store.snapshot_point();
        let (view, _) = store.now();
        store.drop_keyspace("k").expect("no fault");
        let told = || -> Vec<(FileReaderKind, u64)> {
            threads.run_until_idle();
            let files = store.stats().space.obsolete_files;
            files.iter().flat_map(|file| &file.readers).map(|one| (one.kind, one.count)).collect()
        };
        let (snapshots, iterators) = ((FileReaderKind::Snapshot, 1), (FileReaderKind::Iterator, 1));
        let others = [(FileReaderKind::Checkpoint, 1), (FileReaderKind::Verify, 2)];
        assert_eq!(told(), [&[snapshots, iterators][..], &others].concat());
        drop(points);
        assert_eq!(told(), [snapshots]);
        drop(snapshot);
        assert_eq!(told(), [(FileReaderKind::Read, 1)], "the view of a read");
        assert_eq!(Arc::strong_count(&view), 1);
        drop(view);
        assert_eq!(told(), []);
        store.close().expect("closes");
    }
}
