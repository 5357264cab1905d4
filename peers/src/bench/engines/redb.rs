//! redb: one file, a copy-on-write tree with a cache of its own above the page cache.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, WriteTransaction,
};

use super::{
    BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Found, Look, Reader, Sees, Settings, Values,
};
use crate::engines::{Answer, Until, told};

pub(super) const CONTENDER: Contender = Contender {
    name: "redb",
    label: "redb",
    peer: "redb",
    settings: "a cache of M; loads, overwrites, deletes and the writer of readwhilewriting in batches \
               of 1,000; synced puts, YCSB A to F and mixgraph one per transaction; `Durability::None` \
               except in synced rows, and a durable commit every 100,000 changes, without which the \
               file grows; one read transaction for all requests of a row without writers. The page cache \
               comes on top of M",
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

const ITEMS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("items");

type Items = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Pages freed by commits without durability are reused only after a durable commit.
const CHANGES_TO_DURABLE: u64 = 100_000;

struct Redb {
    db: Database,
    until: Until,
    /// Changes since the last durable commit.
    changes: AtomicU64,
}

fn open(directory: &Path, settings: &Settings) -> Answer<Box<dyn Engine>> {
    std::fs::create_dir_all(directory).map_err(told)?;
    let mut builder = Builder::new();
    builder.set_cache_size(usize::try_from(settings.memory_bytes).map_err(told)?);
    let db = builder.create(directory.join("data.redb")).map_err(told)?;
    let transaction = db.begin_write().map_err(told)?;
    transaction.open_table(ITEMS).map_err(told)?;
    transaction.commit().map_err(told)?;
    Ok(Box::new(Redb { db, until: settings.until, changes: AtomicU64::new(0) }))
}

impl Redb {
    fn begin(&self, changes: u64) -> Answer<WriteTransaction> {
        let mut transaction = self.db.begin_write().map_err(told)?;
        let since = self.changes.fetch_add(changes, Ordering::Relaxed) + changes;
        let durability = if self.until == Until::Synced || since >= CHANGES_TO_DURABLE {
            self.changes.store(0, Ordering::Relaxed);
            Durability::Immediate
        } else {
            Durability::None
        };
        transaction.set_durability(durability).map_err(told)?;
        Ok(transaction)
    }

    fn table(&self) -> Answer<Items> {
        self.db.begin_read().map_err(told)?.open_table(ITEMS).map_err(told)
    }
}

impl Engine for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        let transaction = self.begin(1)?;
        transaction.open_table(ITEMS).map_err(told)?.insert(key, value).map_err(told)?;
        transaction.commit().map_err(told)
    }

    fn write(&self, changes: &Changes) -> Answer<()> {
        let transaction = self.begin(changes.len())?;
        {
            let mut items = transaction.open_table(ITEMS).map_err(told)?;
            for (key, value) in changes.iter() {
                match value {
                    Some(value) => items.insert(key, value),
                    None => items.remove(key),
                }
                .map_err(told)?;
            }
        }
        transaction.commit().map_err(told)
    }

    fn reader(&self, sees: Sees) -> Answer<Box<dyn Reader + '_>> {
        let held = (sees == Sees::Still).then(|| self.table()).transpose()?;
        Ok(Box::new(RedbReader { redb: self, held }))
    }

    fn settle(&self) -> Answer<()> {
        let mut transaction = self.db.begin_write().map_err(told)?;
        transaction.set_durability(Durability::Immediate).map_err(told)?;
        transaction.commit().map_err(told)
    }

    fn compact(&mut self) -> Answer<Compacted> {
        self.db.compact().map_err(told)?;
        Ok(Compacted::InPlace)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        None
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.close().map_err(told)
    }
}

struct RedbReader<'a> {
    redb: &'a Redb,
    /// Kept for all requests of a row without writers.
    held: Option<Items>,
}

impl RedbReader<'_> {
    fn with<R>(&self, ask: impl FnOnce(&Items) -> Answer<R>) -> Answer<R> {
        match &self.held {
            Some(items) => ask(items),
            None => ask(&self.redb.table()?),
        }
    }

    fn walk(&self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.with(|items| {
            let mut range = items.range::<&[u8]>(from..).map_err(told)?;
            let mut count = 0;
            while count < items_max
                && let Some(item) = range.next()
            {
                let (key, value) = item.map_err(told)?;
                look(key.value(), value.value());
                count += 1;
            }
            Ok(Some(count))
        })
    }
}

impl Reader for RedbReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        value.clear();
        self.with(|items| match items.get(key).map_err(told)? {
            Some(found) => {
                value.extend_from_slice(found.value());
                Ok(Found::Value)
            }
            None => Ok(Found::Nothing),
        })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        self.with(|items| {
            for key in keys {
                let found = items.get(key.as_slice()).map_err(told)?;
                values.push(found.as_ref().map(|value| value.value()));
            }
            Ok(())
        })
    }

    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.walk(from, items_max, look)
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.walk(from, items_max, look)
    }

    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.walk(&[], u64::MAX, look)
    }
}
