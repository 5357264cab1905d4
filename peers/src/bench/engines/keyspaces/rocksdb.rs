//! Column families of RocksDB, with one write-buffer manager and one cache for all.

use std::path::Path;
use std::time::Duration;

use rocksdb::{ColumnFamily, DB, FlushOptions, Options, ReadOptions, WaitForCompactOptions, WriteOptions};

use super::super::rocksdb::{arena_block_bytes, counts, options, write_options};
use super::super::{Counts, Found, Settings};
use super::{Handles, Keyspaces, count, name};
use crate::engines::{Answer, told};

/// Files of a column family that level 0 may have, and the open files allowed if not all can be open.
const FILES_EACH: u64 = 4;
const OPEN_FILES: i32 = 16_000;

struct Rocks {
    db: DB,
    options: Options,
    writes: WriteOptions,
    gets: ReadOptions,
    families: usize,
}

pub(in super::super) fn open(
    directory: &Path,
    settings: &Settings,
    keyspaces: u64,
) -> Answer<Box<dyn Keyspaces>> {
    let mut options = options(settings);
    options.set_arena_block_size(arena_block_bytes(settings, keyspaces));
    if keyspaces * FILES_EACH > OPEN_FILES.unsigned_abs().into() {
        options.set_max_open_files(OPEN_FILES);
    }
    let families = count(keyspaces);
    let names = std::iter::once("default".to_owned()).chain((0..families).map(name));
    let db = DB::open_cf_with_opts(&options, directory, names.map(|name| (name, options.clone())));
    let db = db.map_err(told)?;
    let (writes, gets) = (write_options(settings), ReadOptions::default());
    Ok(Box::new(Rocks { db, options, writes, gets, families }))
}

impl Rocks {
    fn all(&self) -> Answer<Vec<&ColumnFamily>> {
        let family = |number| self.db.cf_handle(&name(number)).ok_or("a column family is missing".to_owned());
        (0..self.families).map(family).collect()
    }
}

impl Keyspaces for Rocks {
    fn create(&mut self) -> Answer<()> {
        self.db.create_cf(name(self.families), &self.options).map_err(told)?;
        self.families += 1;
        Ok(())
    }

    fn drop_last(&mut self) -> Answer<()> {
        self.families -= 1;
        self.db.drop_cf(&name(self.families)).map_err(told)
    }

    fn handles(&self) -> Answer<Box<dyn Handles + '_>> {
        Ok(Box::new(Families { rocks: self, all: self.all()? }))
    }

    fn settle(&self) -> Answer<Duration> {
        // All flushes are started before one is waited for, so that they run in parallel.
        let mut flush = FlushOptions::default();
        flush.set_wait(false);
        for family in self.all()? {
            self.db.flush_cf_opt(&family, &flush).map_err(told)?;
        }
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(told)?;
        Ok(Duration::ZERO)
    }

    fn counts(&self) -> Counts {
        // The other counters are of the default column family alone.
        Counts { log_bytes: counts(&self.db).log_bytes, ..Counts::default() }
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.flush_wal(false).map_err(told)
    }
}

struct Families<'a> {
    rocks: &'a Rocks,
    all: Vec<&'a ColumnFamily>,
}

impl Handles for Families<'_> {
    fn put(&self, keyspace: usize, key: &[u8], value: &[u8]) -> Answer<()> {
        self.rocks.db.put_cf_opt(&self.all[keyspace], key, value, &self.rocks.writes).map_err(told)
    }

    fn get(&self, keyspace: usize, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self.rocks.db.get_pinned_cf_opt(&self.all[keyspace], key, &self.rocks.gets);
        let found = found.map_err(told)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(if found.is_some() { Found::Value } else { Found::Nothing })
    }
}
