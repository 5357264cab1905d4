//! Salvage: a new store made from the undamaged parts of another.
//!
//! Every readable block of items is written again, as far as known in the order of the original writes: the
//! runs of each tree from the oldest on, range tombstones before the items of their table, then the logs. So
//! salvage needs no merge, and fills the new store by ordinary writes.
//!
//! 1. Files are identified by their own headers, not by their names (`salvage::survey`).
//! 2. A keyspace gets under its own name only items that the manifest names and that certainly belong to it.
//!    Items that may be older, or another keyspace's, go to separate keyspaces (`salvage::plan`,
//!    `salvage::segments`).
//! 3. Versions in unknown order go to different keyspaces, so that none hides another (`salvage::layers`).
//!
//! Limit: where a tombstone or a newer version was lost, the older version comes back. The report names those
//! keys.

mod copy;
mod layers;
mod plan;
mod segments;
mod survey;

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::settings::StoreSettings;
use crate::base::sync::Arc;
use crate::engine::{Env, OpenMode, OpenOptions, Store};
use crate::io::storage::DirectoryEntry;

use copy::Copy;
use survey::Survey;

use super::verify::{Progress, Report, lock, verify_in};

/// The result of a salvage.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let db = trine::Db::open(&old)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.close()?;
/// let salvaged = trine::inspect::salvage(&old, &new, |_| {})?;
/// assert_eq!((salvaged.writes, salvaged.report.findings.len()), (1, 0));
/// assert!(trine::Db::open(&new)?.keyspace("users")?.contains(b"ann")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Salvaged {
    /// Number of puts, deletes and range deletes written to the new store.
    pub writes: u64,
    /// The damage in the old store. In the key ranges at risk, items may be missing and older versions may
    /// have come back.
    pub report: Report,
    /// The manifest is complete and nothing shows that it is outdated. Then no keyspace of
    /// [`Salvaged::doubtful`] has items that the manifest names, and the newest of competing versions under a
    /// keyspace's own name wins.
    pub is_order_known: bool,
    /// Tables that the manifest does not name. Their items go to separate keyspaces, except items of dropped
    /// keyspaces and partitions.
    pub unplaced: Vec<String>,
    /// Files without any usable contents.
    pub unused: Vec<String>,
    /// Keyspaces of the new store that hold only items that may be older, or another keyspace's.
    pub doubtful: Vec<Doubtful>,
}

/// A keyspace of the new store with doubtful items.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let db = trine::Db::open(&old)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.flush()?;
/// # db.close()?;
/// # for file in std::fs::read_dir(&old)?.map(|entry| entry.unwrap().path()) {
/// #     if file.file_name().unwrap().to_string_lossy().starts_with("manifest-") {
/// #         std::fs::remove_file(&file)?;
/// #     }
/// # }
/// // Without the manifest the name of the keyspace is unknown.
/// let salvaged = trine::inspect::salvage(&old, &new, |_| {})?;
/// let doubtful = &salvaged.doubtful[0];
/// assert_eq!((doubtful.of.as_deref(), doubtful.writes), (None, 1));
/// assert!(trine::Db::open(&new)?.keyspace(&doubtful.keyspace)?.contains(b"ann")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Doubtful {
    /// Name of the keyspace, which begins with `salvaged-`.
    pub keyspace: String,
    /// The keyspace of the old store that the items are from; `None` if its name is unknown.
    pub of: Option<String>,
    /// The reason for the doubt.
    pub doubt: Doubt,
    /// The source files of the items.
    pub files: Vec<String>,
    /// Number of puts, deletes and range deletes written to the keyspace.
    pub writes: u64,
}

/// The reason that items are doubtful.
///
/// ```
/// use trine::inspect::Doubt;
/// assert!(Doubt::Older.to_string().contains("older"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Doubt {
    /// Items that the manifest names, in `salvaged-older-NAME`: the manifest is damaged or outdated, and
    /// there are tables of the keyspace that it does not name. Items may have been overwritten or deleted
    /// since.
    Older,
    /// Items of tables that the manifest does not name, in `salvaged-unnamed-LAYER-NAME`. The tables are
    /// newer than the manifest, or were left over. Tables of one layer have disjoint key ranges. A higher
    /// layer has tables with greater numbers, which were made later but may hold older items. Deletes are
    /// left out.
    Unnamed,
    /// Items of logs, in `salvaged-log-NAME`, in the order of the writes. If [`Doubt::Older`] or
    /// [`Doubt::Unnamed`] is reported for the keyspace, the items are later than all tables. Otherwise each
    /// may be an item lost from a damaged table, or an older version.
    Log,
    /// The keyspace is unknown, and may have been dropped. Either the edit that made it is lost: then the
    /// name is `salvaged-unknown-NUMBER`, with a layer or `log` before the number as above. Or the end of a
    /// table, which assigns its blocks to keyspaces, is lost: then the name is
    /// `salvaged-unknown-table-FILE-PART`. If there are more than 16 parts, parts with ascending keys share
    /// one keyspace.
    Unknown,
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Doubt::Older => "may be older: the manifest does not name newer tables of the keyspace",
            Doubt::Unnamed => "may be newer or left over: the manifest does not name their tables",
            Doubt::Log => "are from logs, and may be newer or older than those of the tables",
            Doubt::Unknown => "are of a keyspace whose name is lost, or that was dropped",
        })
    }
}

/// Makes a store in `to`, which must be missing or empty, from all readable data of the store `from`. `from`
/// must not be open for writing, and is not changed.
///
/// A keyspace has under its own name the items that are certainly its own, in the newest version that the
/// undamaged data shows. Items that may be older, or another keyspace's, go to separate keyspaces, which
/// [`Salvaged::doubtful`] lists. No item of an intact block is left out.
///
/// `progress` is called during the initial check, then for each file that is read.
///
/// # Errors
/// `Missing`, `Locked`, `Permission`, `ReadOnlyFileSystem`, `Unsupported`, `Foreign` if `to` is not empty or
/// `from` has no file of a store, `Full`, `Io`. A partly made `to` is left in place. Damage in `from` is no
/// error.
///
/// # Cost
/// Reads tables twice, a table whose end is damaged three times, and logs three times. Writes every version
/// of every item to the log of `to`, and to its tables. Memory: the manifest, the footers of all tables and
/// one log, in addition to the new store's memory.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let db = trine::Db::open(&old)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.flush()?;
/// # db.close()?;
/// std::fs::write(old.join("STORE"), b"gone")?;
/// assert!(trine::Db::open(&old).is_err());
/// let salvaged = trine::inspect::salvage(&old, &new, |_| {})?;
/// assert_eq!(salvaged.report.findings.len(), 1);
/// assert!(trine::Db::open(&new)?.keyspace("users")?.contains(b"ann")?);
/// # Ok(()) }
/// ```
pub fn salvage(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    mut progress: impl FnMut(&Progress),
) -> Result<Salvaged> {
    let settings = StoreSettings::default();
    let (from, to) = (settings.env(from.as_ref())?, settings.env(to.as_ref())?);
    salvage_in(&from, to, settings, &mut progress)
}

/// As [`salvage`], with the caller's environments.
pub(crate) fn salvage_in(
    from: &Env,
    to: Env,
    settings: StoreSettings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Salvaged> {
    let report = verify_in(from, &mut *progress)?;
    match lock(from) {
        Ok(()) | Err(Error::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    let salvaged = salvage_locked(from, to, settings, report, progress);
    from.storage.unlock();
    salvaged
}

fn salvage_locked(
    from: &Env,
    to: Env,
    settings: StoreSettings,
    report: Report,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Salvaged> {
    if to.storage.exists()?
        && let Some(found) = to.storage.list()?.into_iter().next()
    {
        let found = match found {
            DirectoryEntry::Ours(file) => file.to_string(),
            DirectoryEntry::Foreign(name) => name,
        };
        return Err(Error::Foreign { path: to.storage.path(), found });
    }
    let survey = Survey::new(&*from.storage)?;
    // Hashed keyspaces are ordered by hash, so the new store uses the same hash secret.
    let hash_secret = survey.hash_secret;
    let options = OpenOptions { hash_secret, ..OpenOptions::new(settings, OpenMode::CreateIfMissing) };
    let target = Store::open(to, options)?;
    let mut salvaged = Salvaged { report, ..Salvaged::default() };
    let done = copied((from, &survey), &target, progress, &mut salvaged);
    let closed = target.close();
    done.and(closed).map(|()| salvaged)
}

fn copied(
    (from, survey): (&Env, &Survey),
    to: &Arc<Store>,
    progress: &mut dyn FnMut(&Progress),
    salvaged: &mut Salvaged,
) -> Result<()> {
    let plan = plan::plan(&*from.storage, survey)?;
    let known = &survey.known;
    salvaged.is_order_known = known.is_whole && !known.is_older && plan.stale.is_empty();
    salvaged.unplaced = survey.other_tables.iter().map(|held| held.file.to_string()).collect();
    salvaged.unused.clone_from(&survey.unused);
    Copy::new((&from.storage, to), progress, (survey, &plan)).all(salvaged)
}
