//! fjall: a cache and write buffers within the total of memory; files are read through the page cache.

use std::path::Path;
use std::time::{Duration, Instant};

use fjall::config::{CompressionPolicy, HashRatioPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{
    BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Found, Look, Reader, Sees, Settings, Values,
    keyspaces, partitions,
};
use crate::engines::{Answer, Until, told};

pub(super) const CONTENDER: Contender = Contender {
    name: "fjall",
    label: "fjall",
    peer: "fjall",
    settings: "write buffers of M / 16 (at most 64 MiB), a cache of M minus three of them; a hash index \
               in data blocks; worker threads = cores; no compression. fjall reads through the page cache, \
               which comes on top of M; under a limit of total memory it has 320 MiB on top of M, most \
               others 64. Each of many keyspaces has a write buffer of that size, as fjall does not limit \
               their sum; up to 16,000 open files",
    tables: "table",
    batch: 1,
    uses_page_cache: true,
    beside_bytes: 5 * BESIDE_BYTES,
    has_order: true,
    has_owned_iterator: false,
    has_futures: false,
    open,
    open_keyspaces: Some(keyspaces::fjall::open),
    open_partitions: Some(partitions::fjall::open),
};

/// Bounds of a write buffer's size, as fjall recommends.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 20;

/// The most files that fjall keeps open; RocksDB keeps all of its files open by default.
const OPEN_FILES: usize = 16_000;

/// Slots of a block's hash index per item.
const HASH_RATIO: f32 = 8.0;

/// Background work counts as finished after so long without any: fjall has no call that waits for it.
pub(super) const QUIET: Duration = Duration::from_secs(1);

struct Fjall {
    db: Database,
    items: Keyspace,
    until: Until,
    buffer_bytes: u64,
}

pub(super) fn buffer_bytes(settings: &Settings) -> u64 {
    (settings.memory_bytes / 16).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end())
}

pub(super) fn open_db(directory: &Path, settings: &Settings) -> Answer<Database> {
    Database::builder(directory)
        .cache_size(settings.memory_bytes.saturating_sub(3 * buffer_bytes(settings)))
        .journal_compression(CompressionType::None)
        .max_cached_files(Some(OPEN_FILES))
        .open()
        .map_err(told)
}

pub(super) fn keyspace_options(buffer_bytes: u64) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(buffer_bytes)
        .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_RATIO))
        .data_block_compression_policy(CompressionPolicy::disabled())
}

fn open(directory: &Path, settings: &Settings) -> Answer<Box<dyn Engine>> {
    let db = open_db(directory, settings)?;
    let buffer_bytes = buffer_bytes(settings);
    let items = db.keyspace("items", || keyspace_options(buffer_bytes)).map_err(told)?;
    Ok(Box::new(Fjall { db, items, until: settings.until, buffer_bytes }))
}

/// Waits until the store has done no work for `QUIET`, and has nothing left to flush.
pub(super) fn rest(db: &Database, is_unflushed: impl Fn() -> bool) {
    let mut quiet_since = Instant::now();
    let mut completed = db.compactions_completed();
    while quiet_since.elapsed() < QUIET {
        std::thread::sleep(QUIET / 50);
        let is_busy = db.outstanding_flushes() > 0 || db.active_compactions() > 0 || is_unflushed();
        if is_busy || db.compactions_completed() != completed {
            quiet_since = Instant::now();
            completed = db.compactions_completed();
        }
    }
}

pub(super) fn counts(db: &Database) -> Counts {
    Counts { buffered_bytes: Some(db.write_buffer_size()), ..Counts::default() }
}

impl Fjall {
    fn persist(&self) -> Answer<()> {
        match self.until {
            Until::Synced => self.db.persist(PersistMode::SyncData).map_err(told),
            Until::Buffered => Ok(()),
        }
    }
}

impl Engine for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        self.items.insert(key, value).map_err(told)?;
        self.persist()
    }

    fn write(&self, changes: &Changes) -> Answer<()> {
        let mut batch = self.db.batch();
        for (key, value) in changes.iter() {
            match value {
                Some(value) => batch.insert(&self.items, key, value),
                None => batch.remove(&self.items, key),
            }
        }
        batch.commit().map_err(told)?;
        self.persist()
    }

    fn reader(&self, _: Sees) -> Answer<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader { items: &self.items }))
    }

    fn settle(&self) -> Answer<()> {
        self.items.rotate_memtable_and_wait().map_err(told)?;
        rest(&self.db, || false);
        Ok(())
    }

    fn compact(&mut self) -> Answer<Compacted> {
        self.items.rotate_memtable_and_wait().map_err(told)?;
        self.items.major_compact().map_err(told)?;
        Ok(Compacted::InPlace)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        Some(self.buffer_bytes)
    }

    fn counts(&self) -> Counts {
        counts(&self.db)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}

struct FjallReader<'a> {
    items: &'a Keyspace,
}

impl FjallReader<'_> {
    fn walk(iterator: fjall::Iter, items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let mut count = 0;
        for item in iterator.take(usize::try_from(items_max).unwrap_or(usize::MAX)) {
            let (key, value) = item.into_inner().map_err(told)?;
            look(&key, &value);
            count += 1;
        }
        Ok(Some(count))
    }
}

impl Reader for FjallReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self.items.get(key).map_err(told)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(if found.is_some() { Found::Value } else { Found::Nothing })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        for key in keys {
            values.push(self.items.get(key).map_err(told)?.as_deref());
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        FjallReader::walk(self.items.range(from..), items_max, look)
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.scan(from, items_max, look)
    }

    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>> {
        FjallReader::walk(self.items.iter(), u64::MAX, look)
    }
}
