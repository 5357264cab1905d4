//! For the tests of this folder: a storage in memory, tables made of a map, and the driver of a cursor.

use std::collections::BTreeMap;

use crate::base::epoch::Epoch;
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::region::Region;
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, AtomicU64, Event, Mutex, Ordering};
use crate::cache::{BlockRef, Cache, Claim};
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::reader::{PlainReader, Reader};
use crate::io::storage::{Entry, LockMode, Storage, StorageCounts};

use super::*;

pub(super) const FILE: FileName = FileName { kind: FileKind::Table, number: 7, path: 0 };
pub(super) const IDENTITY: TableIdentity = TableIdentity { file: FILE, uid: 0xabcd, store_id: 99 };
pub(super) const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
pub(super) const SHAPE: SliceShape =
    SliceShape { filter: FilterPlan::of_bits(10), block_bytes: 4096, compression: Compression::None };

/// A table's contents: `None` is a tombstone.
pub(super) type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Files in memory.
#[derive(Default)]
pub(super) struct Heap {
    pub(super) files: Mutex<BTreeMap<FileName, Vec<u8>>>,
    pub(super) reads: AtomicU64,
    pub(super) syncs: AtomicU64,
    /// Writes beyond this offset find the disk full, when not zero.
    pub(super) full_at_bytes: AtomicU64,
}

impl Storage for Heap {
    fn create_directory(&self) -> Result<bool> {
        Ok(false)
    }

    fn exists(&self) -> Result<bool> {
        Ok(true)
    }

    fn lock(&self, _: LockMode) -> Result<()> {
        Ok(())
    }

    fn unlock(&self) {}

    fn list(&self) -> Result<Vec<Entry>> {
        Ok(self.files.lock().keys().map(|file| Entry::Ours(*file)).collect())
    }

    fn create(&self, file: FileName) -> Result<()> {
        assert!(self.files.lock().insert(file, Vec::new()).is_none(), "{file} exists");
        Ok(())
    }

    fn read(&self, file: FileName, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        assert!(offset.is_multiple_of(512) && buffer.len().is_multiple_of(512), "reads are aligned");
        assert!(buffer.is_empty() || (buffer.as_ptr() as usize).is_multiple_of(512), "buffers are aligned");
        self.reads.fetch_add(1, Ordering::Relaxed);
        let files = self.files.lock();
        let bytes = files.get(&file).expect("the file exists").get(offset as usize..).unwrap_or_default();
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn reader(self: Arc<Self>) -> Box<dyn Reader> {
        Box::new(PlainReader::new(self))
    }

    fn write(&self, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
        let limit = self.full_at_bytes.load(Ordering::Relaxed);
        if limit != 0 && offset + bytes.len() as u64 > limit {
            return Err(crate::Error::Full { file: file.to_string() });
        }
        let mut files = self.files.lock();
        let contents = files.get_mut(&file).expect("the file exists");
        assert_eq!(contents.len() as u64, offset, "written from front to back");
        contents.extend_from_slice(bytes);
        Ok(())
    }

    fn start_writeback(&self, file: FileName, offset: u64, bytes: u64) {
        assert!(offset + bytes <= self.files.lock()[&file].len() as u64);
    }

    fn sync(&self, _: FileName) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn length(&self, file: FileName) -> Result<Option<u64>> {
        Ok(self.files.lock().get(&file).map(|bytes| bytes.len() as u64))
    }

    fn rename(&self, _: FileName, _: FileName) -> Result<()> {
        unreachable!("tables are not renamed")
    }

    fn remove(&self, file: FileName) -> Result<()> {
        self.files.lock().remove(&file);
        Ok(())
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn boot_id(&self) -> u128 {
        0
    }

    fn path(&self) -> String {
        "memory".to_owned()
    }

    fn counts(&self) -> StorageCounts {
        StorageCounts::default()
    }
}

/// A storage, a cache before it, and the hash function of a store.
pub(super) struct Bench {
    pub(super) heap: Arc<Heap>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) secret: HashSecret,
    pub(super) discarded: Arc<Discarded>,
    cache: Cache,
}

impl Bench {
    pub(super) fn new() -> Bench {
        let heap = Arc::new(Heap::default());
        Bench {
            storage: Arc::clone(&heap) as Arc<dyn Storage>,
            heap,
            secret: HashSecret::expand([5; 16]),
            discarded: Discarded::new(Arc::new(Event::new())),
            cache: Cache::new(4 << 20, Epoch::new(), Region::heap),
        }
    }

    /// Writes a file with these slices.
    pub(super) fn build(&self, slices: &[(TreeId, SliceShape, &Model)]) -> TableSummary {
        let mut builder = TableBuilder::new(Arc::clone(&self.storage), IDENTITY).expect("created");
        for (tree, shape, model) in slices {
            builder.begin(*tree, *shape).expect("begun");
            for (key, value) in *model {
                let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
                let value = value.as_deref().unwrap_or_default();
                builder.add(key, self.secret.hash(key), kind, value).expect("added");
            }
            builder.end().expect("ended");
        }
        builder.finish().expect("finished")
    }

    /// Writes a file of one slice with range tombstones.
    pub(super) fn build_with(&self, model: &Model, ranges: &[(&[u8], &[u8])]) -> TableSummary {
        let mut builder = TableBuilder::new(Arc::clone(&self.storage), IDENTITY).expect("created");
        builder.begin(TREE, SHAPE).expect("begun");
        for (key, value) in model {
            let (kind, value) = expected(value);
            builder.add(key, self.secret.hash(key), kind, &value).expect("added");
        }
        ranges.iter().for_each(|(start, end)| builder.add_range(start, end));
        builder.end().expect("ended");
        builder.finish().expect("finished")
    }

    pub(super) fn open(&self, summary: &TableSummary) -> Result<Vec<Arc<Table>>> {
        let (bytes, checksum) = (summary.bytes, summary.checksum);
        TableFile::open(&self.storage, summary.identity, bytes, checksum, &self.discarded)
    }

    /// Reads the whole file; the first damage there is.
    pub(super) fn verify(&self, summary: &TableSummary) -> Result<()> {
        let mut first = None;
        let named = (summary.identity, summary.bytes, summary.checksum);
        scrub(&self.storage, named, &self.secret, &mut |damage| {
            first.get_or_insert(damage.error);
        })?;
        first.map_or(Ok(()), |error| Err(Error::Corrupt(Box::new(error))))
    }

    /// A table of one slice, opened.
    pub(super) fn table(&self, model: &Model, shape: SliceShape) -> Arc<Table> {
        let summary = self.build(&[(TREE, shape, model)]);
        self.open(&summary).expect("opens").remove(0)
    }

    /// The block from the cache, else read and verified.
    pub(super) fn block(&self, address: &BlockAddress) -> Result<BlockRef> {
        match self.cache.claim(address) {
            Claim::Ready(block) => Ok(block),
            Claim::Read(mut slot) => {
                let read = self.storage.read(address.file, address.offset, slot.buffer())?;
                complete_read(slot, read)
            }
            Claim::Wait(_) => unreachable!("one thread"),
        }
    }

    /// A whole get: bounds, filter, fence, block.
    pub(super) fn get(&self, table: &Table, key: &[u8]) -> Result<Option<(ItemKind, Vec<u8>)>> {
        let hash = self.secret.hash(key);
        if !table.admits(key) {
            return Ok(None);
        }
        let mut filtered = table.filter(hash, None);
        if let Filtered::Need(address) = filtered {
            filtered = table.filter(hash, Some(&self.block(&address)?));
        }
        if filtered == Filtered::No {
            return Ok(None);
        }
        let mut fenced = table.fence(key, None);
        if let Fenced::Need(address) = fenced {
            fenced = table.fence(key, Some(&self.block(&address)?));
        }
        let address = match fenced {
            Fenced::Block(address) | Fenced::Alone(address) => address,
            Fenced::Not => return Ok(None),
            Fenced::Need(_) => panic!("a page was brought"),
        };
        let block = self.block(&address)?;
        let found = crate::format::table::data::find(&block, key, hash.block_tag());
        Ok(found.map(|found| (found.kind, block[found.value].to_vec())))
    }

    /// Polls until the cursor is ready (`true`) or at its end.
    pub(super) fn settle(&self, cursor: &mut TableCursor) -> Result<bool> {
        let mut block = None;
        loop {
            match cursor.poll(block.take())? {
                Moved::Ready => return Ok(true),
                Moved::End => return Ok(false),
                Moved::Need(address) => block = Some(self.block(&address)?),
            }
        }
    }
}

/// What a table must say of a model's value.
pub(super) fn expected(value: &Option<Vec<u8>>) -> (ItemKind, Vec<u8>) {
    match value {
        Some(value) => (ItemKind::Put, value.clone()),
        None => (ItemKind::Delete, Vec::new()),
    }
}

/// Numbers that look random, the same in every run.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.roll(256) as u8).collect()
    }
}
