//! Opens a store. The steps are: create it if asked, read every file, decide, and only then write.
//!
//! Invariants:
//! 1. Until everything has been read and decided, no byte is written except LOCK and, for a new store, its
//!    first files.
//! 2. Before the first acknowledgement, every replayed log is durable (`settle`).

use crate::base::epoch::Epoch;
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, KeyspaceId, Sequence, TreeId};
use crate::base::load::DeviceLoad;
use crate::base::reserve::Role;
use crate::base::sync::{Arc, AtomicBool, Event, Mutex, Weak};
use crate::cache::Cache;
use crate::format::manifest::{self, ManifestState};
use crate::format::store::Live;
use crate::io::env::Env;
use crate::io::fork::ForkBytes;
use crate::io::ledger::FileLedger;
use crate::io::pace::Pacer;
use crate::io::storage::{DirectoryEntry, LockMode, Storage};
use crate::levels::manifest::{ManifestFile, ManifestIdentity};
use crate::levels::names::NameChange;
use crate::levels::store::StoreFile;
use crate::levels::version::{Placed, Version, VersionChange};
use crate::levels::view::{View, Views};
use crate::memtable::Generation;
use crate::table::{Discarded, PageBudget, TableIdentity, TableOwner, TableReader, open_files};
use crate::wal::made::MadePartitions;
use crate::write::writer::{Resumed, Writer};

use super::parts::{OpenParts, RecoveredState};
use super::refill::{Logs, replay_logs};
use super::reflush::flush_logs;
use super::settle::{RecoveryFiles, remove_orphans};
use super::start::start;
use super::unnamed::Beside;
use crate::engine::background::Scheduler;
use crate::engine::background::quiet::Quiet;
use crate::engine::background::work::BackgroundWork;
use crate::engine::budget::GENERATION_COUNT;
use crate::engine::closing::Close;
use crate::engine::commit::Committer;
use crate::engine::commit::async_writes::AsyncWrites;
use crate::engine::commit::gate::OrderGate;
use crate::engine::options::{OpenMode, OpenOptions};
use crate::engine::publish::Publisher;
use crate::engine::publish::catalog::{Catalog, CatalogCell};
use crate::engine::publish::changed::ChangedTrees;
use crate::engine::publish::edit::Edit;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::keyspace::restored;
use crate::engine::publish::snapshot::Points;
use crate::engine::publish::tables::pin_pages;
use crate::engine::reads::ReadDriver;
use crate::engine::reads::blocks::BlockReader;
use crate::engine::store::Store;

impl Store {
    /// Opens the store in the environment's directory.
    pub(crate) fn open(env: Env, options: OpenOptions) -> Result<Arc<Store>> {
        let started_ns = env.clock.now_ns();
        lock(&env, options.mode)?;
        let locked = Unlock { env: env.clone(), is_armed: true };
        let (store, overflow) = Store::open_locked(env.clone(), options)?;
        let mut store = Arc::new(store);
        if !overflow.is_empty() {
            flush_logs(&store, &overflow)?;
        }
        let alone = Arc::get_mut(&mut store).expect("no worker was started yet");
        alone.recovery.open_ns = env.clock.now_ns() - started_ns;
        if let Err(error) = start(&store) {
            // Workers that did start end at their next turn.
            store.stop_workers();
            env.threads.join();
            return Err(error);
        }
        locked.keep();
        Ok(store)
    }

    /// The store, and the logs to flush before it is used.
    fn open_locked(mut env: Env, options: OpenOptions) -> Result<(Store, Vec<u64>)> {
        let files = FileLedger::new(env.storage);
        env.storage = Arc::clone(&files) as Arc<dyn Storage>;
        let budget = options.budget;
        let epoch = Epoch::new();
        let cache_bytes = (budget.cache_bytes as usize, budget.annex_bytes as usize);
        let region = |bytes| env.memory.region(bytes);
        let cache = Cache::with_annex(cache_bytes, budget.limits(), epoch.clone(), region);
        let pages = PageBudget::new(&cache, budget.pages_bytes);
        let changed = Arc::new(Event::new());
        let discarded = Discarded::new(Arc::clone(&changed));
        let parts = OpenParts { env, budget, epoch, cache, pages, discarded, files, changed };
        let mut recovered = match read(&parts, options.mode)? {
            Some(_) if options.mode == OpenMode::CreateNew => {
                return Err(Error::Exists { path: parts.env.storage.path() });
            }
            Some(recovered) => recovered,
            None if options.mode.makes() => {
                create(&parts, &options)?;
                read(&parts, options.mode)?.expect("it was made just now")
            }
            None => return Err(Error::Missing { path: parts.env.storage.path() }),
        };
        // One generation is left for new writes.
        let replayed_bytes_max = match options.mode {
            OpenMode::ReadOnly => u64::MAX,
            _ => (GENERATION_COUNT - 1) * budget.generation_bytes,
        };
        let logs = replay_logs(&parts, &recovered, replayed_bytes_max)?;
        let store_id = recovered.store_file.live().store_id;
        let beside = Beside { state: &recovered.state, store_id, files: &recovered.entries };
        beside.check_age(&*parts.env.storage, recovered.manifest.file(), logs.last_sequence)?;
        let unwritten = make_partitions(&mut recovered, &logs.made)?;
        let overflow = match logs.overflow {
            true => logs.replayed.iter().map(|(number, _)| *number).collect(),
            false => Vec::new(),
        };
        Ok((parts.assemble((recovered, unwritten), logs, options)?, overflow))
    }
}

/// Adds the partitions that log records make. The manifest does not name them yet.
fn make_partitions(recovered: &mut RecoveredState, made: &MadePartitions) -> Result<Vec<Arc<KeyspaceState>>> {
    let edit = Edit::of(made.changes(&recovered.state));
    let version_changes = edit.version_changes(&recovered.state);
    let file = recovered.manifest.file();
    let taken = recovered.state.apply_edit(edit.changes());
    taken.map_err(|bad| Error::corrupt(file, 0, bad.what, "one of the store", bad.number))?;
    recovered.version = recovered.version.after(version_changes);
    let mut partitions = Vec::new();
    for (tree, name) in made.iter() {
        let keyspace =
            recovered.keyspaces.iter().find(|one| one.id == tree.keyspace).expect("the state has it");
        let partition = Arc::new(keyspace.partition(tree.partition, name, &recovered.states)?);
        partition.set_unwritten(true);
        keyspace.partitions().expect("keys divide it").add(&partition);
        partitions.push(partition);
    }
    Ok(partitions)
}

/// Releases the lock when dropped, unless the store was opened.
struct Unlock {
    env: Env,
    is_armed: bool,
}

impl Unlock {
    fn keep(mut self) {
        self.is_armed = false;
    }
}

impl Drop for Unlock {
    fn drop(&mut self) {
        if self.is_armed {
            self.env.storage.unlock();
        }
    }
}

/// Creates the directory if the mode allows, and locks it. A directory with foreign contents is left as it
/// is.
pub(crate) fn lock(env: &Env, mode: OpenMode) -> Result<()> {
    prepare(env, mode)?;
    env.storage.lock(if mode == OpenMode::ReadOnly { LockMode::Shared } else { LockMode::Exclusive })
}

/// Creates the directory if the mode allows, and checks that it holds a store or may hold a new one.
///
/// # Errors
/// `Missing` if there is no store, `Foreign` if the directory holds foreign files, `Corrupt` if only STORE is
/// missing.
pub(crate) fn prepare(env: &Env, mode: OpenMode) -> Result<()> {
    let storage = &env.storage;
    if !storage.exists()? {
        if !mode.makes() {
            return Err(Error::Missing { path: storage.path() });
        }
        storage.create_directory()?;
    }
    if storage.length(FileName::STORE)?.is_none() {
        let mut foreign = None;
        for entry in storage.list()? {
            match entry {
                DirectoryEntry::Foreign(name) => foreign = Some(name),
                // A creation was cut short before it could make a table or log.
                DirectoryEntry::Ours(file) if matches!(file.kind, FileKind::Lock | FileKind::Manifest) => {}
                DirectoryEntry::Ours(file) => {
                    let expected = format_args!("there beside {file}").to_string();
                    return Err(Error::corrupt(FileName::STORE, 0, "the file", expected, "missing"));
                }
            }
        }
        if !mode.makes() {
            return Err(Error::Missing { path: storage.path() });
        }
        if let Some(found) = foreign {
            return Err(Error::Foreign { path: storage.path(), found });
        }
    }
    // This check comes before LOCK is created in a foreign directory.
    if storage.length(FileName::LOCK)?.is_none()
        && let Err(error @ Error::Foreign { .. }) = StoreFile::load(&**storage)
    {
        return Err(error);
    }
    Ok(())
}

fn create(parts: &OpenParts, options: &OpenOptions) -> Result<()> {
    let (storage, random) = (&*parts.env.storage, &parts.env.random);
    for entry in storage.list()? {
        if let DirectoryEntry::Ours(file) = entry
            && file.kind == FileKind::Manifest
        {
            storage.remove(file)?;
        }
    }
    let mut secret = [0; 16];
    random.fill(&mut secret);
    let secret = options.hash_secret.unwrap_or(secret);
    let store_id = u128::from(random.u64()) << 64 | u128::from(random.u64());
    let bytes_min = options.settings.manifest_bytes;
    let identity = ManifestIdentity { number: 1, uid: random.u64(), store_id, bytes_min, features: 0 };
    let mut state = ManifestState::default();
    (state.next_keyspace, state.next_partition) = (1, 1);
    let manifest = ManifestFile::create(storage, &identity, &state)?;
    let live =
        Live { turn: 1, store_id, hash_secret: secret, manifest: manifest.place(), next_file_number: 2 };
    StoreFile::create(storage, random.u64(), live).map(|_| ())
}

/// Reads STORE and the manifest, and opens all tables.
fn read(parts: &OpenParts, mode: OpenMode) -> Result<Option<RecoveredState>> {
    let storage = &parts.env.storage;
    let Some(store_file) = StoreFile::load(&**storage)? else {
        return Ok(None);
    };
    let (state, manifest) = ManifestFile::load(&**storage, store_file.live())?;
    let mut entries = Vec::new();
    for entry in storage.list()? {
        match entry {
            DirectoryEntry::Ours(file) => entries.push(file),
            DirectoryEntry::Foreign(name) => {
                log::info!("{name} in the store's directory is not ours, and left alone")
            }
        }
    }
    let states = ForkBytes::new(&parts.env.memory)?;
    let keyspaces = keyspaces(manifest.file(), &state, &states)?;
    let version = open_tables(parts, &state, store_file.live(), mode)?;
    Ok(Some(RecoveredState { state, manifest, store_file, keyspaces, states, version, entries }))
}

fn keyspaces(file: FileName, state: &ManifestState, states: &ForkBytes) -> Result<Vec<Arc<KeyspaceState>>> {
    let keyspace = |(id, one): (&KeyspaceId, &crate::format::manifest::ManifestKeyspace)| {
        let (name, settings) = (one.name.clone(), restored(&one.settings));
        let Some(rule) = one.rule.clone() else {
            let mut partitions = state.partitions_of(*id);
            let (Some(partition), None) = (partitions.next(), partitions.next()) else {
                let count = state.partitions_of(*id).count();
                return Err(Error::corrupt(file, 0, "partitions of a keyspace", 1, count));
            };
            let tree = TreeId { keyspace: *id, partition };
            return KeyspaceState::new((*id, tree), name, settings, states).map(Arc::new);
        };
        let divided = KeyspaceState::divided(*id, name, (settings, rule), states)?;
        let partitions = divided.partitions().expect("it was made so");
        partitions.set_retained_from(&one.retained_from);
        for partition in state.partitions_of(*id) {
            let name = &state.partitions[&partition].name;
            partitions.add(&Arc::new(divided.partition(partition, name, states)?));
        }
        Ok(Arc::new(divided))
    };
    state.keyspaces.iter().map(keyspace).collect()
}

/// The partition names by which keys are routed.
fn names_of(state: &ManifestState) -> impl Iterator<Item = NameChange> {
    let divided = state.keyspaces.keys().filter(|id| state.is_divided_by_keys(**id));
    let of_it = move |id: KeyspaceId| {
        state
            .partitions_of(id)
            .map(move |partition| NameChange::Add(id, state.partitions[&partition].name.clone(), partition))
    };
    divided.flat_map(move |id| std::iter::once(NameChange::Divide(*id)).chain(of_it(*id)))
}

fn open_tables(parts: &OpenParts, state: &ManifestState, live: &Live, mode: OpenMode) -> Result<Version> {
    let store_id = live.store_id;
    let mut changes: Vec<VersionChange> = state.trees().map(VersionChange::AddTree).collect();
    changes.extend(names_of(state).map(VersionChange::Name));
    let identity = |(number, table): (&u64, &manifest::Table)| {
        let identity = TableIdentity { file: table.file(*number), uid: table.uid, store_id };
        (identity, table.bytes, table.checksum)
    };
    let tables: Vec<&manifest::Table> = state.tables.values().collect();
    let files: Vec<(TableIdentity, u64, u32)> = state.tables.iter().map(identity).collect();
    let is_live = |index: usize, slice: u32| tables[index].slices.contains_key(&slice);
    open_files(
        &parts.env.storage,
        &files,
        &is_live,
        &parts.owner(live),
        |index, opened: Vec<Arc<TableReader>>| {
            if mode != OpenMode::ReadOnly {
                // The previous process may have ended before it freed the space of these slices.
                let dead = opened.iter().filter(|table| !is_live(index, table.index() as u32));
                dead.for_each(|table| table.mark_dying());
            }
            let placed = Placed::all(tables[index], files[index].0.file, &opened)?;
            changes.extend(placed.into_iter().map(|(spot, placed)| VersionChange::Add { spot, placed }));
            Ok(())
        },
    )?;
    let version = Version::default().after(changes);
    let trees = version.trees().map(Arc::as_ref);
    // Sketches are built in the background.
    pin_pages(&parts.env.storage, (&parts.pages, 0), trees, |error| match error {
        // A reader of the damaged page gets this error; the opening only logs it.
        Error::Corrupt(_) => {
            log::warn!("{error}");
            Ok(())
        }
        error => Err(error),
    })?;
    Ok(version)
}

impl OpenParts {
    fn owner(&self, live: &Live) -> TableOwner {
        let secret = Arc::new(HashSecret::expand(live.hash_secret));
        TableOwner { secret, discarded: Arc::clone(&self.discarded) }
    }

    fn writer(
        &self,
        resumed: Option<Resumed>,
        views: &Arc<Views>,
        secret: &HashSecret,
        last: Sequence,
    ) -> Writer {
        let (views, secret) = (Arc::clone(views), secret.clone());
        let (lengths, reserve) = (self.budget.log_lengths(), Arc::clone(self.cache.reserve()));
        match resumed {
            Some(resumed) => {
                Writer::new(views, secret, resumed, lengths, (Arc::clone(&self.changed), reserve))
            }
            None => Writer::read_only(views, secret, last, reserve),
        }
    }

    /// Applies recovery's decisions and returns the state from which the writer resumes. Partitions that the
    /// manifest then names are no longer unwritten.
    fn go_on(
        &self,
        mut files: RecoveryFiles<'_>,
        (logs, unwritten): (&mut Logs, &mut Vec<Arc<KeyspaceState>>),
        manifest_bytes: u64,
    ) -> Result<Resumed> {
        let place = files.manifest.place();
        let resumed = self.settle_logs(&mut files, logs, manifest_bytes)?;
        if files.manifest.place() != place {
            // The new manifest begins with the state, which has these partitions.
            unwritten.drain(..).for_each(|partition| partition.set_unwritten(false));
        }
        // This also removes logs that are no longer needed.
        remove_orphans(&*self.env.storage, files.state, files.manifest.file(), files.entries);
        Ok(resumed)
    }

    fn assemble(
        self,
        (recovered, mut unwritten): (RecoveredState, Vec<Arc<KeyspaceState>>),
        mut logs: Logs,
        options: OpenOptions,
    ) -> Result<Store> {
        let epoch = self.epoch.clone();
        let live = recovered.store_file.live().clone();
        let owner = self.owner(&live);
        let RecoveredState { mut state, mut manifest, mut store_file, keyspaces, states, version, entries } =
            recovered;
        let mut generations: Vec<Arc<Generation>> =
            logs.generations.iter().rev().map(|one| Arc::clone(&one.0)).collect();
        let mut next_file = live.next_file_number;
        let resumed = if options.mode != OpenMode::ReadOnly {
            let files = RecoveryFiles {
                store: &mut store_file,
                manifest: &mut manifest,
                state: &mut state,
                next: &mut next_file,
                entries: &entries,
            };
            let resumed = self.go_on(files, (&mut logs, &mut unwritten), options.settings.manifest_bytes)?;
            generations.insert(0, Arc::clone(&resumed.active.generation));
            Some(resumed)
        } else {
            generations.splice(..0, logs.last.take().map(|last| last.generation));
            unwritten.drain(..).for_each(|partition| partition.set_unwritten(false));
            None
        };
        self.files.complete(&entries);
        let alive: Vec<Weak<Generation>> = generations.iter().map(Arc::downgrade).collect();
        let views = Arc::new(Views::new(&epoch, View { generations, version: Arc::new(version) }));
        let last = logs.last_sequence;
        let writer = self.writer(resumed, &views, &owner.secret, last);
        let grant = self.cache.reserve().grant(Role::Manifest, 0);
        let catalog = Catalog::new(state, (manifest, store_file), unwritten, grant);
        let changed_trees = Arc::<ChangedTrees>::default();
        let (work, load) = (BackgroundWork::new(&changed_trees), Arc::<DeviceLoad>::default());
        let kept = Mutex::new(self.cache.reserve().grant(Role::Kept, 0));
        let quiet = Quiet::new(&self.cache, &self.budget, &work.moved);
        let pacer = Pacer::new(options.settings.background_bytes_per_second);
        let breadth = options.settings.breadth(&load);
        let blocks = BlockReader::new(&self.env, &self.cache, load);
        let publisher = Publisher {
            env: self.env,
            epoch,
            store_id: live.store_id,
            settings: options.settings,
            mode: options.mode,
            budget: self.budget,
            views,
            writer,
            cache: self.cache,
            pages: self.pages,
            catalog: CatalogCell::new(catalog, (keyspaces, states), next_file)?,
            changed_trees,
            owner,
            files: self.files,
            points: Points::default(),
            generations: Mutex::new(alive),
            is_closed: AtomicBool::new(false),
        };
        let reads = ReadDriver { publisher, breadth, blocks };
        let known_trees = Mutex::default();
        let scheduler = Scheduler { reads, work, known_trees, quiet, pacer, kept };
        let (gate, async_writes) = (OrderGate::default(), AsyncWrites::default());
        let committer = Committer { scheduler, gate, async_writes };
        Ok(Store { committer, recovery: logs.recovery, close: Close::default() })
    }
}

#[cfg(test)]
mod tests;
