//! LMDB: one memory-mapped file, whose cache is the page cache.
#![expect(
    unsafe_code,
    reason = "heed leaves it to its caller that nobody changes the file while it is mapped"
)]

use std::path::Path;

use heed::types::Bytes;
use heed::{CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use super::{
    BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Found, Look, Reader, Regime, Sees, Settings,
    Values,
};
use crate::engines::{Answer, Until, told};

pub(super) const CONTENDER: Contender = Contender {
    name: "lmdb",
    label: "LMDB",
    peer: "lmdb",
    settings: "loads, overwrites, deletes and the writer of readwhilewriting in batches of 1,000; \
               synced puts, YCSB A to F and mixgraph one per transaction; `MDB_NOSYNC` except in synced \
               rows; `MDB_NORDAHEAD` where the data is larger than M, except in the full scan; one read \
               transaction for all requests of a row without writers. The page cache is its only cache, \
               for any M",
    tables: "the file",
    batch: 1000,
    uses_page_cache: true,
    beside_bytes: BESIDE_BYTES,
    has_order: true,
    has_owned_iterator: false,
    has_futures: false,
    open,
    open_keyspaces: None,
    open_partitions: None,
};

/// Address space only: the file grows as needed.
const MAP_BYTES: usize = 64 << 30;

const COPY_NAME: &str = "compacted.mdb";

struct Lmdb {
    env: Env,
    items: Database<'static, Bytes, Bytes>,
}

fn open(directory: &Path, settings: &Settings) -> Answer<Box<dyn Engine>> {
    std::fs::create_dir_all(directory).map_err(told)?;
    let mut flags = EnvFlags::empty();
    flags.set(EnvFlags::NO_SYNC, settings.until == Until::Buffered);
    flags.set(EnvFlags::NO_READ_AHEAD, settings.regime == Regime::Cold);
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES);
    // SAFETY: the flags give up only durability in a system crash; the map is not written through.
    unsafe { options.flags(flags) };
    // SAFETY: only this process has the directory, and changes its files only through this environment.
    let env = unsafe { options.open(directory) }.map_err(told)?;
    let transaction = env.read_txn().map_err(told)?;
    let items = env.open_databases_and_commit(transaction, |opener, transaction| {
        opener.open_database(transaction, None).map(heed::CommitOrAbort::<_, ()>::Commit)
    });
    let items = items.map_err(|error: heed::Error| told(error))?.unwrap_commit();
    let items = items.ok_or("there is no database without a name")?;
    Ok(Box::new(Lmdb { env, items }))
}

impl Engine for Lmdb {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        let mut transaction = self.env.write_txn().map_err(told)?;
        self.items.put(&mut transaction, key, value).map_err(told)?;
        transaction.commit().map_err(told)
    }

    fn write(&self, changes: &Changes) -> Answer<()> {
        let mut transaction = self.env.write_txn().map_err(told)?;
        for (key, value) in changes.iter() {
            match value {
                Some(value) => self.items.put(&mut transaction, key, value).map_err(told)?,
                None => drop(self.items.delete(&mut transaction, key).map_err(told)?),
            }
        }
        transaction.commit().map_err(told)
    }

    fn reader(&self, sees: Sees) -> Answer<Box<dyn Reader + '_>> {
        let held = (sees == Sees::Still).then(|| self.env.read_txn()).transpose().map_err(told)?;
        Ok(Box::new(LmdbReader { lmdb: self, held }))
    }

    fn settle(&self) -> Answer<()> {
        // Otherwise the kernel's write-back would fall into the next row.
        self.env.force_sync().map_err(told)
    }

    fn compact(&mut self) -> Answer<Compacted> {
        let copy = self.env.path().join(COPY_NAME);
        self.env.copy_to_path(&copy, CompactionOption::Enabled).map_err(told)?;
        Ok(Compacted::Copy(copy))
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        None
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbReader<'a> {
    lmdb: &'a Lmdb,
    /// Kept for all requests of a row without writers.
    held: Option<RoTxn<'a, WithTls>>,
}

impl LmdbReader<'_> {
    fn with<R>(&self, ask: impl FnOnce(&RoTxn<'_, WithTls>) -> Answer<R>) -> Answer<R> {
        match &self.held {
            Some(transaction) => ask(transaction),
            None => ask(&self.lmdb.env.read_txn().map_err(told)?),
        }
    }
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        value.clear();
        self.with(|transaction| {
            let found = self.lmdb.items.get(transaction, key).map_err(told)?;
            value.extend_from_slice(found.unwrap_or_default());
            Ok(if found.is_some() { Found::Value } else { Found::Nothing })
        })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        self.with(|transaction| {
            for key in keys {
                values.push(self.lmdb.items.get(transaction, key).map_err(told)?);
            }
            Ok(())
        })
    }

    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.with(|transaction| {
            let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
            let mut range = self.lmdb.items.range(transaction, &range).map_err(told)?;
            let mut count = 0;
            while count < items_max
                && let Some(item) = range.next()
            {
                let (key, value) = item.map_err(told)?;
                look(key, value);
                count += 1;
            }
            Ok(Some(count))
        })
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.scan(from, items_max, look)
    }

    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.with(|transaction| {
            let mut count = 0;
            for item in self.lmdb.items.iter(transaction).map_err(told)? {
                let (key, value) = item.map_err(told)?;
                look(key, value);
                count += 1;
            }
            Ok(Some(count))
        })
    }
}
