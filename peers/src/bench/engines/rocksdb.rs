//! RocksDB: one total of memory, a cache that write buffers are charged to, and direct I/O.

use std::path::Path;

use rocksdb::properties::CUR_SIZE_ALL_MEM_TABLES;
use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, Cache, DB, DBCompressionType, DBPinnableSlice,
    DBRawIterator, DataBlockIndexType, IteratorMode, Options, ReadOptions, WaitForCompactOptions, WriteBatch,
    WriteBufferManager, WriteOptions,
};

use super::super::process::has_ring;
use super::{
    BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Found, Look, Reader, Sees, Settings, Values,
    keyspaces, partitions,
};
use crate::engines::{Answer, Until, told};

pub(super) const CONTENDER: Contender = Contender {
    name: "rocksdb",
    label: "RocksDB",
    peer: "rocksdb",
    settings: "a HyperClockCache of M, to which a WriteBufferManager charges the write buffers, four of \
               M / 8 (at most 128 MiB); index and filters in the cache, pinned; Bloom filters of 10 bits; \
               a hash index in data blocks; direct reads, flushes and compactions; io_uring for multi-get \
               and full scans; background jobs = cores; levels sized to the write buffers; no compression. \
               With many column families the arena blocks are smaller: a quarter of the write buffers' \
               total holds one per family; 16,000 open files where four per family are more",
    tables: "table",
    batch: 1,
    uses_page_cache: false,
    beside_bytes: BESIDE_BYTES,
    has_order: true,
    has_owned_iterator: true,
    has_futures: false,
    open,
    open_keyspaces: Some(keyspaces::rocksdb::open),
    open_partitions: Some(partitions::rocksdb::open),
};

const COLUMN_FAMILY: &str = "default";

/// Bounds of a write buffer's size; four buffers may be full.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=128 << 20;

/// Arena blocks of each column family that fit in the total of the write buffers.
const ARENA_BLOCKS: u64 = 4;

/// Bounds of an arena block's size: the least that RocksDB accepts, and its default.
const ARENA_BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 20;

/// Read-ahead of a full scan; by itself RocksDB reads ahead 256 KiB at most.
const SCAN_AHEAD_BYTES: usize = 2 << 20;

struct Rocks {
    db: DB,
    writes: WriteOptions,
    gets: ReadOptions,
    multi_gets: ReadOptions,
    buffer_bytes: u64,
}

fn tables(cache: &Cache) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    tables.set_bloom_filter(10.0, false);
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);
    tables.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    tables
}

pub(super) fn buffer_bytes(settings: &Settings) -> u64 {
    (settings.memory_bytes / 8).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end())
}

/// The arena block size of a store with so many column families.
pub(super) fn arena_block_bytes(settings: &Settings, families: u64) -> usize {
    let block = 4 * buffer_bytes(settings) / ARENA_BLOCKS / families.max(1);
    let block = block.clamp(*ARENA_BLOCK_BYTES.start(), *ARENA_BLOCK_BYTES.end());
    usize::try_from(block).unwrap_or(usize::MAX)
}

pub(super) fn options(settings: &Settings) -> Options {
    let buffer_bytes = buffer_bytes(settings);
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let cache = Cache::new_hyper_clock_cache(bytes(settings.memory_bytes), 0);
    let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
        bytes(4 * buffer_bytes),
        false,
        cache.clone(),
    );
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.increase_parallelism(cores());
    options.set_write_buffer_manager(&buffers);
    options.set_write_buffer_size(bytes(buffer_bytes));
    options.set_max_write_buffer_number(4);
    options.set_max_bytes_for_level_base(4 * buffer_bytes);
    options.set_target_file_size_base((buffer_bytes / 2).max(4 << 20));
    options.set_block_based_table_factory(&tables(&cache));
    options
}

pub(super) fn write_options(settings: &Settings) -> WriteOptions {
    let mut writes = WriteOptions::default();
    writes.set_sync(settings.until == Until::Synced);
    writes
}

fn open(directory: &Path, settings: &Settings) -> Answer<Box<dyn Engine>> {
    let options = options(settings);
    let db = DB::open_cf_with_opts(&options, directory, [(COLUMN_FAMILY, options.clone())]).map_err(told)?;
    let mut multi_gets = ReadOptions::default();
    multi_gets.set_async_io(true);
    let (writes, buffer_bytes) = (write_options(settings), buffer_bytes(settings));
    Ok(Box::new(Rocks { db, writes, gets: ReadOptions::default(), multi_gets, buffer_bytes }))
}

fn cores() -> i32 {
    std::thread::available_parallelism().ok().and_then(|cores| i32::try_from(cores.get()).ok()).unwrap_or(2)
}

/// The number of gigabytes between two words of RocksDB's statistics. RocksDB always counts them, and prints
/// them to a hundredth.
fn gigabytes(text: &str, before: &str, after: &str) -> Option<u64> {
    let (_, rest) = text.split_once(before)?;
    let (number, _) = rest.split_once(after)?;
    let number: f64 = number.rsplit([' ', ',']).find(|part| !part.is_empty())?.parse().ok()?;
    Some((number * (1_u64 << 30) as f64) as u64)
}

pub(super) fn counts(db: &DB) -> Counts {
    let property = |name: &str| db.property_value(name).ok().flatten().unwrap_or_default();
    let (levels, whole) = (property("rocksdb.cfstats-no-file-histogram"), property("rocksdb.dbstats"));
    let log = whole.split_once("Cumulative WAL:").map(|(_, rest)| rest);
    Counts {
        log_bytes: log.and_then(|log| gigabytes(log, "written:", " GB")),
        table_bytes: gigabytes(&levels, "Cumulative compaction:", " GB write"),
        reads: None,
        delayed_ns: None,
        buffered_bytes: db.property_int_value(CUR_SIZE_ALL_MEM_TABLES).ok().flatten(),
    }
}

impl Engine for Rocks {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        self.db.put_opt(key, value, &self.writes).map_err(told)
    }

    fn write(&self, changes: &Changes) -> Answer<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in changes.iter() {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        self.db.write_opt(batch, &self.writes).map_err(told)
    }

    fn reader(&self, sees: Sees) -> Answer<Box<dyn Reader + '_>> {
        let iterator = (sees == Sees::Still).then(|| self.db.raw_iterator());
        Ok(Box::new(RocksReader { rocks: self, iterator }))
    }

    fn settle(&self) -> Answer<()> {
        self.db.flush().map_err(told)?;
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(told)
    }

    fn compact(&mut self) -> Answer<Compacted> {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(told)?;
        Ok(Compacted::InPlace)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        Some(self.buffer_bytes)
    }

    fn counts(&self) -> Counts {
        counts(&self.db)
    }

    fn lacks(&self, has_read_together: bool) -> Vec<String> {
        let lacks = has_read_together && !has_ring();
        lacks.then(|| "RocksDB was told to use io_uring, and has none".to_owned()).into_iter().collect()
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.flush_wal(false).map_err(told)
    }
}

struct RocksReader<'a> {
    rocks: &'a Rocks,
    /// Kept for all requests of a row without writers.
    iterator: Option<DBRawIterator<'a>>,
}

fn walk(iterator: &mut DBRawIterator<'_>, items_max: u64, look: &mut Look<'_>) -> Answer<u64> {
    let mut count = 0;
    while count < items_max
        && let Some((key, value)) = iterator.item()
    {
        look(key, value);
        count += 1;
        if count < items_max {
            iterator.next();
        }
    }
    iterator.status().map_err(told)?;
    Ok(count)
}

impl Reader for RocksReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self.rocks.db.get_pinned_opt(key, &self.rocks.gets).map_err(told)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(if found.is_some() { Found::Value } else { Found::Nothing })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        let db = &self.rocks.db;
        let family = db.cf_handle(COLUMN_FAMILY).ok_or("there is no default column family")?;
        for found in db.batched_multi_get_cf_opt(family, keys, false, &self.rocks.multi_gets) {
            let found: Option<DBPinnableSlice<'_>> = found.map_err(told)?;
            values.push(found.as_deref());
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let mut fresh;
        let iterator = match &mut self.iterator {
            Some(iterator) => iterator,
            None => {
                fresh = self.rocks.db.raw_iterator();
                &mut fresh
            }
        };
        iterator.seek(from);
        walk(iterator, items_max, look).map(Some)
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let mode = IteratorMode::From(from, rocksdb::Direction::Forward);
        let mut count = 0;
        for item in self.rocks.db.iterator(mode).take(usize::try_from(items_max).unwrap_or(usize::MAX)) {
            let (key, value) = item.map_err(told)?;
            look(&key, &value);
            count += 1;
        }
        Ok(Some(count))
    }

    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let mut options = ReadOptions::default();
        options.set_readahead_size(SCAN_AHEAD_BYTES);
        options.set_async_io(true);
        let mut iterator = self.rocks.db.raw_iterator_opt(options);
        iterator.seek_to_first();
        walk(&mut iterator, u64::MAX, look).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are found in lines as RocksDB prints them.
    #[test]
    fn statistics_are_read() {
        let levels = "Flush(GB): cumulative 0.015, interval 0.015\n\
                      Cumulative compaction: 10.50 GB write, 145.21 MB/s write, 3.00 GB read\n";
        let table_bytes = gigabytes(levels, "Cumulative compaction:", " GB write");
        assert_eq!(table_bytes, Some(21 << 29));
        let log = " 9 writes, 0 syncs, 9.00 writes per sync, written: 2.00 GB, 145.21 MB/s\n";
        assert_eq!(gigabytes(log, "written:", " GB"), Some(2 << 30));
        assert_eq!(gigabytes("nothing", "written:", " GB"), None);
    }
}
