//! The check of a whole store: STORE, the manifest, and every byte of the tables and logs that the manifest
//! names.
//!
//! Slots of STORE, of logs and of the manifest are stored twice; one intact copy is enough. The last-synced
//! log position in STORE (the witness) may be missing or damaged.

use std::ops::Bound;
use std::path::Path;

use crate::base::error::{Corrupt, Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, Sequence, TreeId};
use crate::base::place::part_between;
use crate::base::rule::partition_name;
use crate::base::settings::StoreSettings;
use crate::base::sync::Arc;
use crate::engine::open::recover;
use crate::engine::open::unnamed::{self, Beside};
use crate::engine::{Env, OpenMode, Store};
use crate::format::manifest::ManifestState;
use crate::format::store::Live;
use crate::io::storage::{LockMode, Storage};
use crate::levels::manifest::ManifestFile;
use crate::levels::store::StoreFile;
use crate::levels::version::Placed;
use crate::table::{Damage, TableIdentity, corrupt, scrub};
use crate::wal::made::MadePartitions;
use crate::wal::replay::Chain;

/// The result of a check of a store.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let report = db.verify(|_| {})?;
/// assert_eq!((report.tables, report.items, report.findings.len()), (1, 1, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of tables read.
    pub tables: u64,
    /// Number of logs read.
    pub logs: u64,
    /// Total bytes of the files read.
    pub bytes: u64,
    /// Number of blocks and pages of tables checked.
    pub blocks: u64,
    /// Number of items of tables checked.
    pub items: u64,
    /// Number of items of logs checked.
    pub log_items: u64,
    /// The damage, file by file; empty if the store is intact.
    pub findings: Vec<Finding>,
}

/// One damaged part of a file.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// # let db = trine::Db::open(&path)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.flush()?;
/// # db.close()?;
/// # for file in std::fs::read_dir(&path)?.map(|entry| entry.unwrap().path()) {
/// #     if file.file_name().unwrap().to_string_lossy().starts_with("table-") {
/// #         let mut bytes = std::fs::read(&file)?;
/// #         bytes[4096 + 20] ^= 1;
/// #         std::fs::write(&file, bytes)?;
/// #     }
/// # }
/// use trine::inspect::AtRisk;
/// let report = trine::inspect::verify(&path, |_| {})?;
/// let finding = &report.findings[0];
/// assert!(finding.damage.file.starts_with("table") && finding.damage.offset == 4096);
/// assert!(matches!(&finding.at_risk, AtRisk::Keys { keyspace, .. } if keyspace == "users"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// File, offset, and the expected contents there.
    pub damage: Corrupt,
    /// The data that the damage puts at risk.
    pub at_risk: AtRisk,
}

/// The data that damage puts at risk.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let report = db.verify(|_| {})?;
/// assert!(!report.findings.iter().any(|one| one.at_risk == trine::inspect::AtRisk::Store));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtRisk {
    /// Nothing: no read uses the damaged bytes.
    Nothing,
    /// Reads between these keys fail with `Corrupt` if they need this table. If the damage is to parts read
    /// at open (the table's length, header, end, range tombstones), the store cannot be opened.
    Keys {
        /// The keyspace's name.
        keyspace: String,
        /// Lower bound of the keys at risk.
        from: Bound<Vec<u8>>,
        /// Upper bound of the keys at risk.
        to: Bound<Vec<u8>>,
    },
    /// As `Keys`, for the keys of a hashed keyspace whose hashes lie between two bounds.
    HashedKeys {
        /// The keyspace's name.
        keyspace: String,
        /// Approximate share of the keyspace's keys, in keys per million; at least 1.
        per_million: u64,
    },
    /// Writes that are in no table yet: all after this sequence number. The store cannot be opened while they
    /// are unreadable.
    Writes {
        /// The last sequence number that is safe.
        after: u64,
    },
    /// Everything: the store cannot be opened.
    Store,
}

/// The progress of a check.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let mut files = 0;
/// db.verify(|progress: &trine::inspect::Progress| {
///     assert!(progress.done_bytes <= progress.total_bytes);
///     files += 1;
/// })?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The next file to check.
    pub file: String,
    /// Bytes of the files already checked.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// Reads every file of the store in `path` and reports the damage. The store must not be open for writing;
/// [`Db::verify`](crate::Db::verify) checks an open store.
///
/// `progress` is called before each file.
///
/// # Errors
/// `Missing`, `Foreign` for a directory without a file of a store, `Locked`, `Unsupported`, `Permission`,
/// `Io`. Damage is no error: the report lists it.
///
/// # Cost
/// Reads all tables and logs once, in pieces of 1 MiB. Memory: one log, or the filters and fences of one
/// table.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// # trine::Db::open(&path)?;
/// let report = trine::inspect::verify(&path, |progress| eprintln!("{}", progress.file))?;
/// for finding in &report.findings {
///     eprintln!("{} at {}: {:?}", finding.damage.file, finding.damage.offset, finding.at_risk);
/// }
/// # Ok(()) }
/// ```
pub fn verify(path: impl AsRef<Path>, progress: impl FnMut(&Progress)) -> Result<Report> {
    verify_in(&StoreSettings::default().env(path.as_ref())?, progress)
}

/// As [`verify`], with the caller's environment.
pub(crate) fn verify_in(env: &Env, mut progress: impl FnMut(&Progress)) -> Result<Report> {
    let mut check = Check::new(&env.storage, &mut progress);
    match lock(env) {
        Ok(()) => {}
        Err(error) => {
            check.find(error, AtRisk::Store)?;
            return Ok(check.report);
        }
    }
    let checked = check.closed_store();
    env.storage.unlock();
    checked.map(|()| check.report)
}

/// As [`verify`], for an open store. Items that are only in memory and in the log in use are not checked.
pub(crate) fn verify_open(store: &Store, mut progress: impl FnMut(&Progress)) -> Result<Report> {
    let (moment, read) = store.inspected();
    let mut check = Check::new(store.storage(), &mut progress);
    if let Err(error) = read {
        check.find(error, AtRisk::Store)?;
    }
    let mut state = moment.state;
    // Writers append to the log in use, so a read of it may be torn.
    state.logs.retain(|_, log| log.recorded_end.is_some());
    check.tables(&state, &moment.live)?;
    check.logs((&state, None), &moment.live, |number| store.names_log(number))?;
    drop(moment.point);
    Ok(check.report)
}

/// Locks out writers. Without a LOCK file there is no writer, and there was none since the files were copied
/// here. LOCK is not created, because a check changes no file.
pub(super) fn lock(env: &Env) -> Result<()> {
    recover::prepare(env, OpenMode::ReadOnly)?;
    match env.storage.length(FileName::LOCK)? {
        Some(_) => env.storage.lock(LockMode::Shared),
        None => Ok(()),
    }
}

/// A check under way.
struct Check<'c> {
    storage: &'c Arc<dyn Storage>,
    progress: &'c mut dyn FnMut(&Progress),
    total_bytes: u64,
    report: Report,
}

impl<'c> Check<'c> {
    fn new(storage: &'c Arc<dyn Storage>, progress: &'c mut dyn FnMut(&Progress)) -> Check<'c> {
        Check { storage, progress, total_bytes: 0, report: Report::default() }
    }

    fn closed_store(&mut self) -> Result<()> {
        let live = match StoreFile::load(&**self.storage) {
            Ok(Some(file)) => file.live().clone(),
            Ok(None) => return Err(Error::Missing { path: self.storage.path() }),
            Err(error) => return self.find(error, AtRisk::Store),
        };
        let (state, manifest) = match ManifestFile::load(&**self.storage, &live) {
            Ok(loaded) => loaded,
            Err(error) => return self.find(error, AtRisk::Store),
        };
        self.tables(&state, &live)?;
        self.logs((&state, Some(&manifest)), &live, |_| true)
    }

    fn tables(&mut self, state: &ManifestState, live: &Live) -> Result<()> {
        let files = state.logs.values().map(|log| log.bytes);
        let files = files.chain(state.tables.values().map(|table| table.bytes));
        self.total_bytes = files.fold(0, u64::saturating_add);
        let secret = HashSecret::expand(live.hash_secret);
        for (number, table) in &state.tables {
            let file = table.file(*number);
            self.begin(file);
            let identity = TableIdentity { file, uid: table.uid, store_id: live.store_id };
            let mut damages = Vec::new();
            let is_live = |index: u32| table.slices.contains_key(&index);
            let named = (identity, table.bytes, table.checksum);
            let scrubbed = scrub(self.storage, named, &is_live, &secret, &mut |damage| damages.push(damage));
            for Damage { error, tree, keys } in damages {
                let at_risk = match keys {
                    None => AtRisk::Nothing,
                    Some((from, to)) => keys_at_risk(state, tree, (from, to)),
                };
                self.report.findings.push(Finding { damage: error, at_risk });
            }
            let placed = scrubbed.and_then(|scrubbed| {
                self.report.blocks += scrubbed.blocks;
                self.report.items += scrubbed.items;
                Placed::all(table, file, &scrubbed.tables)
            });
            if let Err(error) = placed {
                for slice in table.slices.values() {
                    let tree = TreeId { keyspace: slice.keyspace, partition: slice.partition };
                    let max = slice.max_key.as_deref();
                    let to = max.map_or(Bound::Unbounded, |max| Bound::Included(max.to_vec()));
                    let from = Bound::Included(slice.min_key.to_vec());
                    let at_risk = keys_at_risk(state, tree, (from, to));
                    self.report.findings.push(Finding { damage: of_file(file, error.clone()), at_risk });
                }
            }
            self.report.tables += 1;
            self.report.bytes = self.report.bytes.saturating_add(table.bytes);
        }
        Ok(())
    }

    /// `is_named`: whether the store still names the log when damage is found in it.
    fn logs(
        &mut self,
        (state, manifest): (&ManifestState, Option<&ManifestFile>),
        live: &Live,
        is_named: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let mut chain = Chain::begin(&**self.storage, live.store_id, state.flushed);
        let (mut last, mut made) = (state.flushed, MadePartitions::default());
        for (number, log) in &state.logs {
            let file = log.file(*number);
            self.begin(file);
            let replayed = chain.next(&**self.storage, (*number, *log), &mut |first, items| {
                made.note(state, file, &items)?;
                for (item, sequence) in items.zip(first..) {
                    let is_missing = || match manifest {
                        Some(manifest) if sequence > state.flushed => {
                            manifest.check_unknown(*number, item.tree)
                        }
                        _ => Ok(()),
                    };
                    made.check(state, file, item.tree, is_missing)?;
                    last = Sequence::max(last, sequence);
                    self.report.log_items += 1;
                }
                Ok(())
            });
            if let Err(error) = replayed {
                if is_named(*number) {
                    let at_risk = AtRisk::Writes { after: last };
                    self.report.findings.push(Finding { damage: of_file(file, error), at_risk });
                }
                // Later logs cannot be chained to the damaged one.
                return Ok(());
            }
            self.report.logs += 1;
            self.report.bytes = self.report.bytes.saturating_add(log.bytes);
        }
        let Some(manifest) = manifest else { return Ok(()) };
        let files = unnamed::files(&**self.storage)?;
        let beside = Beside { state, store_id: live.store_id, files: &files };
        match beside.check_age(&**self.storage, manifest.file(), last) {
            Ok(()) => Ok(()),
            Err(error) => self.find(error, AtRisk::Store),
        }
    }

    fn begin(&mut self, file: FileName) {
        let (done_bytes, total_bytes) = (self.report.bytes, self.total_bytes);
        (self.progress)(&Progress { file: file.to_string(), done_bytes, total_bytes });
    }

    /// Adds damage to the findings; any other error ends the check.
    fn find(&mut self, error: Error, at_risk: AtRisk) -> Result<()> {
        self.report.findings.push(Finding { damage: corrupt(error)?, at_risk });
        Ok(())
    }
}

/// Any error of reading one file counts as damage of the file, so that the check of other files continues.
fn of_file(file: FileName, error: Error) -> Corrupt {
    corrupt(error).unwrap_or_else(|error| Corrupt {
        file: file.to_string(),
        offset: 0,
        what: "the file",
        expected: "one that can be read".to_owned(),
        found: error.to_string(),
    })
}

/// The risk to stored keys between bounds.
fn keys_at_risk(state: &ManifestState, tree: TreeId, (from, to): (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> AtRisk {
    let keyspace = name(state, tree);
    if !tree.keyspace.is_hashed() {
        return AtRisk::Keys { keyspace, from, to };
    }
    fn end(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
        match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        }
    }
    AtRisk::HashedKeys { keyspace, per_million: part_between(end(&from), end(&to)) }
}

fn name(state: &ManifestState, tree: TreeId) -> String {
    let Some(keyspace) = state.keyspaces.get(&tree.keyspace) else { return String::new() };
    match state.partitions.get(&tree.partition) {
        Some(partition) if keyspace.rule.is_some() => partition_name(&keyspace.name, &partition.name),
        _ => keyspace.name.clone(),
    }
}
