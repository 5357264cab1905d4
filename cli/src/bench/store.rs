//! The bench's store, which is opened without touching foreign ones; and the replacement for the engine
//! `null`.

use std::path::{Path, PathBuf};

use trine::{Access, Create, Db, Durability, Hashed, Keyspace, KeyspaceBuilder, Kind, Ordered, Partitioning};
use trine_workload::failure::Failure;
use trine_workload::text::parse_bytes;

use super::items::{Family, Items, MARK, Order, PARTITIONS, STATE_KEY, State};
use super::partitions;
use crate::arguments::{Bench, EngineName, Global};

/// The settings of `--set`, divided into those of the store and of the keyspace.
#[derive(Default)]
struct Settings {
    store: Vec<(String, String)>,
    keyspace: Vec<(String, String)>,
}

impl Settings {
    /// Makes a scratch store in `directory` to learn the names of the settings.
    fn sort(given: &[(String, String)], directory: &Path) -> Result<Settings, Failure> {
        if given.is_empty() {
            return Ok(Settings::default());
        }
        let scratch = tempfile::tempdir_in(directory)
            .map_err(|source| Failure::file("create a directory in", directory, source))?;
        let db = Db::builder(scratch.path().join("names")).memory_bytes(32 << 20).open()?;
        let of_store: Vec<&str> = db.settings().iter().map(|setting| setting.name).collect();
        let keyspace = db.ordered("names").open()?;
        let of_keyspace: Vec<&str> = keyspace.settings().iter().map(|setting| setting.name).collect();
        db.close()?;
        let mut settings = Settings::default();
        for (name, value) in given {
            let setting = (name.clone(), value.clone());
            if of_store.contains(&name.as_str()) {
                settings.store.push(setting);
            } else if of_keyspace.contains(&name.as_str()) {
                settings.keyspace.push(setting);
            } else {
                let all = [of_store, of_keyspace].concat().join(", ");
                return Err(Failure::Usage(format!("there is no setting {name:?}; there are: {all}")));
            }
        }
        Ok(settings)
    }
}

/// The engine that is measured.
pub(super) struct Engine<'a> {
    arguments: &'a Bench,
    global: &'a Global,
    path: PathBuf,
    /// The kind of the keyspaces with the items.
    pub(super) kind: Kind,
    settings: Settings,
    /// `None` for `null`.
    db: Option<Db>,
    pub(super) state: State,
}

impl<'a> Engine<'a> {
    /// Opens or makes the store in `directory`, with items in keyspaces of this kind.
    pub(super) fn open(
        global: &'a Global,
        arguments: &'a Bench,
        (directory, kind): (&Path, Kind),
    ) -> Result<Engine<'a>, Failure> {
        let path = directory.join(if kind == Kind::Hashed { "hashed-store" } else { "store" });
        let mut engine = Engine {
            arguments,
            global,
            path,
            kind,
            settings: Settings::default(),
            db: None,
            state: State::default(),
        };
        if arguments.engine == EngineName::Trine {
            if !arguments.any_store {
                engine.refuse_foreign(directory)?;
            }
            engine.settings = Settings::sort(&arguments.settings, directory)?;
            engine.open_db()?;
        }
        Ok(engine)
    }

    fn refuse_foreign(&self, directory: &Path) -> Result<(), Failure> {
        let foreign = |path: &Path| {
            let path = trine_workload::text::path(path);
            let hint = "give --dir another directory, or --any-store to work beside its other data";
            Failure::Usage(format!("{path} is a store that the bench did not make; {hint}"))
        };
        if directory.join("STORE").exists() {
            return Err(foreign(directory));
        }
        let is_empty = std::fs::read_dir(&self.path).map_or(true, |mut entries| entries.next().is_none());
        if is_empty {
            return Ok(());
        }
        let db = Db::builder(&self.path).create(Create::Never).access(Access::ReadOnly).open()?;
        let keyspaces = db.keyspaces();
        db.close()?;
        let is_own = keyspaces.is_empty() || keyspaces.iter().any(|keyspace| keyspace.name == MARK);
        if is_own { Ok(()) } else { Err(foreign(&self.path)) }
    }

    fn open_db(&mut self) -> Result<(), Failure> {
        let mut builder = Db::builder(&self.path);
        if let Some(memory_bytes) = self.global.memory {
            builder = builder.memory_bytes(memory_bytes);
        }
        if self.arguments.sync {
            builder = builder.durability(Durability::Sync);
        }
        for (name, value) in &self.settings.store {
            builder = match parse_bytes(value) {
                Ok(number) => builder.set(name, number),
                Err(_) => builder.set(name, value.as_str()),
            };
        }
        let db = builder.open()?;
        let state = db.ordered(MARK).open()?.get(STATE_KEY)?;
        if let Some(state) = state {
            self.state = serde_json::from_slice(&state).map_err(|error| {
                Failure::Other(format!("the state of the bench store is damaged: {error}"))
            })?;
        }
        self.db = Some(db);
        Ok(())
    }

    /// `None` for `null`.
    pub(super) fn db(&self) -> Option<&Db> {
        self.db.as_ref()
    }

    /// The store's directory; `None` for `null`.
    pub(super) fn path(&self) -> Option<&Path> {
        self.db.is_some().then_some(&self.path)
    }

    pub(super) fn reopen(&mut self) -> Result<(), Failure> {
        if let Some(db) = self.db.take() {
            db.close()?;
            self.open_db()?;
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), Failure> {
        match self.db.take() {
            Some(db) => Ok(db.close()?),
            None => Ok(()),
        }
    }

    /// Saves the state of the items in the store.
    pub(super) fn save(&self) -> Result<(), Failure> {
        if let Some(db) = &self.db {
            let state = serde_json::to_vec(&self.state)
                .map_err(|error| Failure::Other(format!("the state does not become JSON: {error}")))?;
            db.ordered(MARK).open()?.put(STATE_KEY, state)?;
        }
        Ok(())
    }

    /// Removes the items of a family and begins without any.
    pub(super) fn begin(&mut self, family: Family, order: Order) -> Result<(), Failure> {
        *self.state.of_mut(family) = None;
        self.save()?;
        if let Some(db) = &self.db
            && db.keyspaces().iter().any(|keyspace| keyspace.name == family.keyspace())
        {
            db.drop_keyspace(family.keyspace())?;
        }
        *self.state.of_mut(family) = Some(Items {
            order,
            count: 0,
            bound: self.arguments.items,
            seed: self.arguments.seed,
            key_bytes: usize::from(self.arguments.key_bytes.unwrap_or(16)),
            compressible_percent: u64::from(self.arguments.compressible.unwrap_or(0)),
            value_bytes: self.arguments.value_bytes,
            has_gaps: false,
            live_bytes: Some(0),
        });
        Ok(())
    }

    /// The items for a workload.
    pub(super) fn items(&self, family: Family, workload: &str) -> Result<&Items, Failure> {
        let load = if family == Family::Main { "fillseq or fillrandom" } else { "ycsb-load" };
        let items = self.state.of(family).filter(|items| items.count > 0).ok_or_else(|| {
            Failure::Usage(format!("{workload} has nothing to work on: run {load} before it"))
        })?;
        let wrong = |what: &str, loaded: u64, given: u64| {
            Failure::Usage(format!("the items were loaded with {what} {loaded}, not {given}"))
        };
        let compressible = items.compressible_percent;
        match (self.arguments.key_bytes, self.arguments.compressible) {
            (Some(given), _) if usize::from(given) != items.key_bytes => {
                Err(wrong("--key-bytes", items.key_bytes as u64, u64::from(given)))
            }
            (_, Some(given)) if u64::from(given) != compressible => {
                Err(wrong("--compressible", compressible, u64::from(given)))
            }
            _ => Ok(items),
        }
    }

    /// The target of a workload's threads.
    pub(super) fn target(&self, family: Family) -> Result<Target, Failure> {
        let Some(db) = &self.db else { return Ok(Target::Null) };
        let (db, name) = (db.clone(), family.keyspace());
        Ok(match self.kind {
            Kind::Hashed => Target::Hashed { keyspace: self.with_settings(db.hashed(name)).open()?, db },
            _ => Target::Store { keyspace: self.with_settings(db.ordered(name)).open()?, db },
        })
    }

    fn with_settings<K>(&self, mut builder: KeyspaceBuilder<K>) -> KeyspaceBuilder<K> {
        for (name, value) in &self.settings.keyspace {
            builder = match parse_bytes(value) {
                Ok(number) => builder.set(name, number),
                Err(_) => builder.set(name, value.as_str()),
            };
        }
        builder
    }

    /// Makes the keyspace of the workload partitions anew, without partitions.
    pub(super) fn begin_partitions(&self) -> Result<Keyspace<Ordered>, Failure> {
        let db = self.db().ok_or_else(partitions::needs_store)?;
        if db.contains_keyspace(PARTITIONS) {
            db.drop_keyspace(PARTITIONS)?;
        }
        self.partitions_keyspace(db)
    }

    /// The keyspace of the workload partitions.
    pub(super) fn partitions_keyspace(&self, db: &Db) -> Result<Keyspace<Ordered>, Failure> {
        let rule = Partitioning::prefix(partitions::NAME_BYTES);
        Ok(self.with_settings(db.ordered(PARTITIONS)).partition_by(rule).open()?)
    }
}

/// The keyspace that is measured, or none.
pub(super) enum Target {
    Store { db: Db, keyspace: Keyspace<Ordered> },
    Hashed { db: Db, keyspace: Keyspace<Hashed> },
    Null,
}

/// The result of a get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Value,
    Nothing,
    /// There is no store.
    Unasked,
}

/// A batch of writes.
pub(super) struct Pending {
    batch: Option<trine::Batch>,
    pub(super) count: u32,
}

impl Target {
    pub(super) fn get(&self, key: &[u8], value: &mut Vec<u8>) -> trine::Result<Found> {
        match self {
            Target::Store { keyspace, .. } => {
                Ok(if keyspace.get_into(key, value)? { Found::Value } else { Found::Nothing })
            }
            Target::Hashed { keyspace, .. } => {
                Ok(if keyspace.get_into(key, value)? { Found::Value } else { Found::Nothing })
            }
            Target::Null => Ok(Found::Unasked),
        }
    }

    /// A multi-get of all keys; `None` for `null`.
    pub(super) fn multi_get(&self, keys: &[Vec<u8>]) -> trine::Result<Option<Vec<Option<trine::Value>>>> {
        match self {
            Target::Store { keyspace, .. } => keyspace.multi_get(keys).map(Some),
            Target::Hashed { keyspace, .. } => keyspace.multi_get(keys).map(Some),
            Target::Null => Ok(None),
        }
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> trine::Result<()> {
        match self {
            Target::Store { keyspace, .. } => keyspace.put(key, value),
            Target::Hashed { keyspace, .. } => keyspace.put(key, value),
            Target::Null => Ok(()),
        }
    }

    pub(super) fn delete(&self, key: &[u8]) -> trine::Result<()> {
        match self {
            Target::Store { keyspace, .. } => keyspace.delete(key),
            Target::Hashed { keyspace, .. } => keyspace.delete(key),
            Target::Null => Ok(()),
        }
    }

    /// Up to `items_max` items from `key` on; `None` for `null`.
    pub(super) fn scan(
        &self,
        key: &[u8],
        items_max: u64,
        mut look: impl FnMut(&[u8], &[u8]),
    ) -> trine::Result<Option<u64>> {
        let keyspace = match self {
            Target::Store { keyspace, .. } => keyspace,
            Target::Hashed { .. } => unreachable!("workloads that need an order were refused"),
            Target::Null => return Ok(None),
        };
        let mut cursor = keyspace.cursor(key..);
        let mut count = 0;
        while count < items_max
            && let Some((key, value)) = cursor.next()?
        {
            look(key, value);
            count += 1;
        }
        Ok(Some(count))
    }

    /// A cursor from `key` on; `None` for `null`.
    pub(super) fn cursor(&self, key: &[u8]) -> Option<trine::Cursor> {
        match self {
            Target::Store { keyspace, .. } => Some(keyspace.cursor(key..)),
            Target::Hashed { .. } => unreachable!("workloads that need an order were refused"),
            Target::Null => None,
        }
    }

    pub(super) fn pending(&self) -> Pending {
        let batch = match self {
            Target::Store { db, .. } | Target::Hashed { db, .. } => Some(db.batch()),
            Target::Null => None,
        };
        Pending { batch, count: 0 }
    }

    /// Adds a put, or a delete if there is no value.
    pub(super) fn add(&self, pending: &mut Pending, key: &[u8], value: Option<&[u8]>) -> trine::Result<()> {
        pending.count += 1;
        match (self, &mut pending.batch, value) {
            (Target::Store { keyspace, .. }, Some(batch), Some(value)) => batch.put(keyspace, key, value),
            (Target::Store { keyspace, .. }, Some(batch), None) => batch.delete(keyspace, key),
            (Target::Hashed { keyspace, .. }, Some(batch), Some(value)) => batch.put(keyspace, key, value),
            (Target::Hashed { keyspace, .. }, Some(batch), None) => batch.delete(keyspace, key),
            _ => Ok(()),
        }
    }

    /// Commits the pending writes and begins a new batch.
    pub(super) fn commit(&self, pending: &mut Pending) -> trine::Result<()> {
        match std::mem::replace(pending, self.pending()).batch {
            Some(mut batch) => batch.commit(),
            None => Ok(()),
        }
    }
}
