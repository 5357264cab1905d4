//! A new store made of what is undamaged in another.
//!
//! Every block of items that reads back is written again, in the order in which it was written first as far
//! as that is known: the runs of each tree from the oldest, range tombstones before the items of their table,
//! then the logs. So nothing has to be merged here, and the new store is made as any other is.
//!
//! 1. Files are known by their own headers, not by their names (`salvage::survey`).
//! 2. A keyspace gets under its own name what the manifest names, and only what is surely of it; what may be
//!    older, or another's, goes to keyspaces of its own (`salvage::plan`, `salvage::segments`).
//! 3. Versions whose order is not known are in different keyspaces, so that none hides another
//!    (`salvage::layers`).
//!
//! What cannot be known: where a tombstone or a newer version was lost, the older version comes back. The
//! report names those keys.

mod copy;
mod layers;
mod plan;
mod segments;
mod survey;

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::settings::StoreSettings;
use crate::base::sync::Arc;
use crate::engine::{Env, Mode, OpenOptions, Store};
use crate::io::storage::Entry;

use copy::Copy;
use survey::Survey;

use super::verify::{Progress, Report, lock, verify_in};

/// What a salvage came to.
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
    /// Puts, deletes and deletes of ranges that were written to the new store.
    pub writes: u64,
    /// What is damaged in the old one: between the keys that are at risk items may be missing, and older
    /// versions may have come back.
    pub report: Report,
    /// The manifest is whole and nothing shows that it is an older one: no keyspace of [`Salvaged::doubtful`]
    /// has items that it names, and of competing versions under a keyspace's own name the newest has won.
    pub is_order_known: bool,
    /// Tables that the manifest does not name. What is in them was put apart, but for what was dropped.
    pub unplaced: Vec<String>,
    /// Files of which nothing could be used.
    pub unused: Vec<String>,
    /// Keyspaces of the new store that hold what may be older, or another keyspace's, and nothing else.
    pub doubtful: Vec<Doubtful>,
}

/// A keyspace of the new store with items that are not sure.
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
/// // Without the manifest nobody knows the name of the keyspace.
/// let salvaged = trine::inspect::salvage(&old, &new, |_| {})?;
/// let doubtful = &salvaged.doubtful[0];
/// assert_eq!((doubtful.of.as_deref(), doubtful.writes), (None, 1));
/// assert!(trine::Db::open(&new)?.keyspace(&doubtful.keyspace)?.contains(b"ann")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Doubtful {
    /// Its name, which begins with `salvaged-`.
    pub keyspace: String,
    /// The keyspace of the old store whose items it has; `None` if nobody knows its name.
    pub of: Option<String>,
    /// Why it is not sure.
    pub doubt: Doubt,
    /// The files that the items are from.
    pub files: Vec<String>,
    /// Puts, deletes and deletes of ranges that were written to it.
    pub writes: u64,
}

/// Why items are not sure.
///
/// ```
/// use trine::inspect::Doubt;
/// assert!(Doubt::Older.to_string().contains("older"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Doubt {
    /// What the manifest names, in `salvaged-older-NAME`: it is damaged or an older one, and there are tables
    /// of the keyspace that it does not name. Items may have been overwritten or deleted since.
    Older,
    /// What tables hold that the manifest does not name, in `salvaged-unnamed-LAYER-NAME`. They are newer
    /// than the manifest, or were left over. No table of a layer has keys between those of another; a higher
    /// layer has the tables with greater numbers, which were made later, but may hold older items. Deletes
    /// are left out.
    Unnamed,
    /// What logs hold, in `salvaged-log-NAME`, in the order in which it was written: later than all tables,
    /// if [`Doubt::Older`] or [`Doubt::Unnamed`] are told of the keyspace, else part of what was lost from
    /// damaged tables, or older.
    Log,
    /// The keyspace is unknown: the edit that made it is lost (`salvaged-unknown-NUMBER`, and with a layer or
    /// `log` before the number as above), or the end of a table that says whose its blocks are
    /// (`salvaged-unknown-table-FILE-PART`; of more than 16 parts those with ascending keys are one). It may
    /// be one that was dropped.
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

/// Makes a store in `to`, which must be missing or empty, of everything in the store `from` that reads back.
/// `from` must not be open for writing, and is not changed.
///
/// A keyspace has under its own name what is surely its own and as new as what is undamaged can show. What
/// may be older, or another's, is put into keyspaces for that alone, and [`Salvaged::doubtful`] tells which.
/// No item whose block is whole is left out.
///
/// `progress` is told of the check that comes first, then of each file that is read.
///
/// # Errors
/// `Missing`, `Locked`, `Permission`, `ReadOnlyFileSystem`, `Unsupported`, `Foreign` if there is something in
/// `to`, or nothing of a store in `from`, `Full`, `Io`. What was made of `to` by then is left. Damage in
/// `from` is no error.
///
/// # Cost
/// Reads tables twice and logs three times, a table whose end is damaged once more, and writes every version
/// of every item to the log of `to`, and to its tables. Memory: the manifest, the footers of all tables and
/// one log, beside that of the new store.
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

/// As [`salvage`], in worlds of the caller's.
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
            Entry::Ours(file) => file.to_string(),
            Entry::Foreign(name) => name,
        };
        return Err(Error::Foreign { path: to.storage.path(), found });
    }
    let survey = Survey::new(&*from.storage)?;
    // Hashed keyspaces lie in the order of their hashes.
    let hash_secret = survey.hash_secret;
    let options = OpenOptions { hash_secret, ..OpenOptions::new(settings, Mode::CreateIfMissing) };
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
