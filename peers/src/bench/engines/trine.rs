//! Trine with a total of memory and no other setting.

use std::path::Path;

use futures_util::stream::{FuturesUnordered, StreamExt};
use trine::{Cursor, Db, Durability, Keyspace, MemoryRole, Ordered, Stats};

use super::{
    Asked, Asker, BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Executor, Found, Look, Reader,
    Sees, Settings, Values, keyspaces, partitions,
};
use crate::engines::{Answer, Until, told};

pub(super) const CONTENDER: Contender = Contender {
    name: "trine",
    label: "Trine",
    peer: "trine",
    settings: "`memory_bytes` M, no other setting; tables bypass the page cache",
    tables: "table",
    batch: 1,
    uses_page_cache: false,
    beside_bytes: BESIDE_BYTES,
    has_order: true,
    has_owned_iterator: true,
    has_futures: true,
    open,
    open_keyspaces: Some(keyspaces::trine::open),
    open_partitions: Some(partitions::trine::open),
};

/// The most write buffers at once; the role "write buffers" has the sum of their sizes.
const WRITE_BUFFERS: u64 = 3;

pub(super) fn settle(db: &Db) -> Answer<()> {
    db.flush().map_err(told)?;
    db.settle().map_err(told)
}

pub(super) fn write_buffer_bytes(db: &Db) -> Option<u64> {
    Some(write_buffers(&db.stats())?.limit_bytes / WRITE_BUFFERS)
}

pub(super) fn lacks(db: &Db) -> Vec<String> {
    let io = db.stats().io;
    let ring = (!io.reads_with_why.is_empty())
        .then(|| format!("Trine reads with {}: {}", io.reads_with, io.reads_with_why));
    let direct = (!io.direct_io).then(|| "Trine reads through the page cache".to_owned());
    ring.into_iter().chain(direct).collect()
}

fn write_buffers(stats: &Stats) -> Option<&MemoryRole> {
    stats.memory.roles.iter().find(|role| role.name == "write buffers")
}

struct Trine {
    db: Db,
    items: Keyspace<Ordered>,
}

pub(super) fn open_db(directory: &Path, settings: &Settings) -> Answer<Db> {
    let durability = match settings.until {
        Until::Synced => Durability::Sync,
        Until::Buffered => Durability::Buffered,
    };
    let builder = Db::builder(directory).memory_bytes(settings.memory_bytes).durability(durability);
    builder.open().map_err(told)
}

fn open(directory: &Path, settings: &Settings) -> Answer<Box<dyn Engine>> {
    let db = open_db(directory, settings)?;
    let items = db.ordered("items").open().map_err(told)?;
    Ok(Box::new(Trine { db, items }))
}

/// Commits the changes to a keyspace of either kind.
pub(super) fn write<K>(db: &Db, items: &Keyspace<K>, changes: &Changes) -> Answer<()> {
    let mut batch = db.batch();
    for (key, value) in changes.iter() {
        match value {
            Some(value) => batch.put(items, key, value),
            None => batch.delete(items, key),
        }
        .map_err(told)?;
    }
    batch.commit().map_err(told)
}

pub(super) fn counts(db: &Db) -> Counts {
    let stats = db.stats();
    Counts {
        log_bytes: Some(stats.write.log_bytes),
        table_bytes: Some(stats.write.flush_bytes + stats.write.merge_write_bytes),
        reads: Some((stats.io.device_reads, stats.io.device_read_bytes)),
        delayed_ns: Some(stats.write.delayed_ns),
        buffered_bytes: write_buffers(&stats).map(|role| role.bytes),
    }
}

impl Engine for Trine {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        self.items.put(key, value).map_err(told)
    }

    fn write(&self, changes: &Changes) -> Answer<()> {
        write(&self.db, &self.items, changes)
    }

    fn reader(&self, sees: Sees) -> Answer<Box<dyn Reader + '_>> {
        let cursor = (sees == Sees::Still).then(|| self.items.cursor(..));
        Ok(Box::new(TrineReader { items: &self.items, cursor }))
    }

    fn settle(&self) -> Answer<()> {
        settle(&self.db)
    }

    fn compact(&mut self) -> Answer<Compacted> {
        self.db.compact().map_err(told)?;
        Ok(Compacted::InPlace)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        write_buffer_bytes(&self.db)
    }

    fn counts(&self) -> Counts {
        counts(&self.db)
    }

    fn lacks(&self, _has_read_together: bool) -> Vec<String> {
        lacks(&self.db)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.close().map_err(told)
    }
}

struct TrineReader<'a> {
    items: &'a Keyspace<Ordered>,
    /// Kept for all requests of a row without writers.
    cursor: Option<Cursor>,
}

fn walk(cursor: &mut Cursor, items_max: u64, look: &mut Look<'_>) -> Answer<u64> {
    let mut count = 0;
    while count < items_max
        && let Some((key, value)) = cursor.next().map_err(told)?
    {
        look(key, value);
        count += 1;
    }
    Ok(count)
}

fn answer(asker: &mut dyn Asker, asked: Asked, found: trine::Result<Option<trine::Value>>) -> Answer<()> {
    let value = found.map_err(told)?;
    let found = if value.is_some() { Found::Value } else { Found::Nothing };
    asker.answer(asked, found, value.as_deref().unwrap_or_default());
    Ok(())
}

/// Keeps `depth` gets in flight, in a keyspace of any kind.
pub(super) fn in_flight<K>(
    items: &Keyspace<K>,
    executor: Executor,
    depth: u64,
    asker: &mut dyn Asker,
) -> Answer<()> {
    let gets = asked(items, usize::try_from(depth).unwrap_or(1), asker);
    match executor {
        Executor::BlockOn => trine::block_on(gets),
        Executor::Tokio => {
            tokio::runtime::Builder::new_current_thread().build().map_err(told)?.block_on(gets)
        }
    }
}

async fn asked<K>(items: &Keyspace<K>, depth: usize, asker: &mut dyn Asker) -> Answer<()> {
    let mut key = Vec::new();
    let mut next = |asker: &mut dyn Asker| {
        let asked = asker.next(&mut key)?;
        let get = items.get_async(&key);
        Some(async move { (asked, get.await) })
    };
    if depth == 1 {
        // One get after another needs no set of futures, which has a cost of its own.
        while let Some(get) = next(asker) {
            let (asked, found) = get.await;
            answer(asker, asked, found)?;
        }
        return Ok(());
    }
    let mut gets = FuturesUnordered::new();
    gets.extend(std::iter::from_fn(|| next(asker)).take(depth));
    while let Some((asked, found)) = gets.next().await {
        answer(asker, asked, found)?;
        gets.extend(next(asker));
    }
    Ok(())
}

impl Reader for TrineReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self.items.get_into(key, value).map_err(told)?;
        Ok(if found { Found::Value } else { Found::Nothing })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        values.resize(keys.len());
        self.items.multi_get_with(keys, |index, value| values.set(index, value)).map_err(told)
    }

    fn in_flight(&mut self, executor: Executor, depth: u64, asker: &mut dyn Asker) -> Answer<()> {
        in_flight(self.items, executor, depth, asker)
    }

    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        match &mut self.cursor {
            Some(cursor) => {
                cursor.seek(from).map_err(told)?;
                walk(cursor, items_max, look).map(Some)
            }
            None => walk(&mut self.items.cursor(from..), items_max, look).map(Some),
        }
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let mut count = 0;
        for item in self.items.range(from..).take(usize::try_from(items_max).unwrap_or(usize::MAX)) {
            let (key, value) = item.map_err(told)?;
            look(&key, &value);
            count += 1;
        }
        Ok(Some(count))
    }

    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>> {
        walk(&mut self.items.cursor(..), u64::MAX, look).map(Some)
    }
}
