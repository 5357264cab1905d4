//! Column families of RocksDB, one per partition; or one column family of all items, whose partitions are
//! deleted by DeleteRange or key by key.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rocksdb::{
    AsColumnFamilyRef, BoundColumnFamily, DBWithThreadMode, FlushOptions, MultiThreaded, Options,
    ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::super::rocksdb::{arena_block_bytes, options, write_options};
use super::super::{Counts, Found, Look, Settings};
use super::{BATCH_KEYS, DropBy, PREFIX_BYTES, Partitions, prefix, prefixed};
use crate::engines::{Answer, Until, told};

const ALL_ITEMS: &str = "default";

struct Rocks {
    db: DBWithThreadMode<MultiThreaded>,
    options: Options,
    writes: WriteOptions,
    synced: WriteOptions,
    by: DropBy,
    /// Partitions with a column family.
    families: Mutex<BTreeSet<u64>>,
}

pub(in super::super) fn open(
    directory: &Path,
    settings: &Settings,
    by: DropBy,
    count: u64,
) -> Answer<Option<Box<dyn Partitions>>> {
    let mut options = options(settings);
    let partitions = if by == DropBy::Whole { count } else { 0 };
    options.set_arena_block_size(arena_block_bytes(settings, partitions.max(1)));
    let names = std::iter::once(ALL_ITEMS.to_owned()).chain((0..partitions).map(|number| number.to_string()));
    let names = names.map(|name| (name, options.clone()));
    let db = DBWithThreadMode::open_cf_with_opts(&options, directory, names).map_err(told)?;
    let synced = write_options(&Settings { until: Until::Synced, ..*settings });
    let families = Mutex::new((0..partitions).collect());
    Ok(Some(Box::new(Rocks { db, options, writes: write_options(settings), synced, by, families })))
}

impl Rocks {
    /// The column family of a partition, and the key of an item in it.
    fn place(&self, partition: u64, key: &[u8]) -> Answer<(Arc<BoundColumnFamily<'_>>, Vec<u8>)> {
        let (family, key) = match self.by {
            DropBy::Whole => (self.db.cf_handle(&partition.to_string()), key.to_vec()),
            DropBy::Range | DropBy::Keys => (self.db.cf_handle(ALL_ITEMS), prefixed(partition, key)),
        };
        Ok((family.ok_or("there is no such column family")?, key))
    }

    fn delete_keys(&self, family: &impl AsColumnFamilyRef, partition: u64) -> Answer<()> {
        let mut reads = ReadOptions::default();
        reads.set_iterate_upper_bound(prefix(partition + 1));
        let mut iterator = self.db.raw_iterator_cf_opt(family, reads);
        let mut batch = WriteBatch::default();
        iterator.seek(prefix(partition));
        while let Some(key) = iterator.key() {
            batch.delete_cf(family, key);
            if batch.len() >= BATCH_KEYS {
                self.db.write_opt(std::mem::take(&mut batch), &self.writes).map_err(told)?;
            }
            iterator.next();
        }
        iterator.status().map_err(told)?;
        self.db.write_opt(batch, &self.synced).map_err(told)
    }
}

impl Partitions for Rocks {
    fn make(&self, partition: u64) -> Answer<()> {
        if self.by == DropBy::Whole {
            self.db.create_cf(partition.to_string(), &self.options).map_err(told)?;
            self.families.lock().map_err(told)?.insert(partition);
        }
        Ok(())
    }

    fn put(&self, partition: u64, key: &[u8], value: &[u8]) -> Answer<()> {
        let (family, key) = self.place(partition, key)?;
        self.db.put_cf_opt(&family, key, value, &self.writes).map_err(told)
    }

    fn get(&self, partition: u64, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let (family, key) = self.place(partition, key)?;
        let found = self.db.get_pinned_cf(&family, key).map_err(told)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(if found.is_some() { Found::Value } else { Found::Nothing })
    }

    fn scan(&self, partition: u64, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<u64> {
        let (family, from) = self.place(partition, from)?;
        let mut reads = ReadOptions::default();
        let before = if self.by == DropBy::Whole { 0 } else { PREFIX_BYTES };
        if self.by != DropBy::Whole {
            reads.set_iterate_upper_bound(prefix(partition + 1));
        }
        let mut iterator = self.db.raw_iterator_cf_opt(&family, reads);
        iterator.seek(from);
        let mut count = 0;
        while count < items_max
            && let Some((key, value)) = iterator.item()
        {
            look(&key[before..], value);
            count += 1;
            if count < items_max {
                iterator.next();
            }
        }
        iterator.status().map_err(told)?;
        Ok(count)
    }

    fn drop_partition(&self, partition: u64) -> Answer<()> {
        let (family, _) = self.place(partition, &[])?;
        match self.by {
            DropBy::Whole => {
                drop(family);
                self.families.lock().map_err(told)?.remove(&partition);
                self.db.drop_cf(&partition.to_string()).map_err(told)
            }
            DropBy::Range => {
                let (from, end) = (prefix(partition), prefix(partition + 1));
                let mut batch = WriteBatch::default();
                batch.delete_range_cf(&family, from, end);
                self.db.write_opt(batch, &self.synced).map_err(told)
            }
            DropBy::Keys => self.delete_keys(&family, partition),
        }
    }

    fn settle(&self) -> Answer<()> {
        let mut flush = FlushOptions::default();
        flush.set_wait(false);
        let families: Vec<u64> = self.families.lock().map_err(told)?.iter().copied().collect();
        let names = families.iter().map(u64::to_string).chain([ALL_ITEMS.to_owned()]);
        for name in names {
            let family = self.db.cf_handle(&name).ok_or("there is no such column family")?;
            self.db.flush_cf_opt(&family, &flush).map_err(told)?;
        }
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(told)
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.flush_wal(false).map_err(told)
    }
}
