//! Test helpers of this folder: tables built from a map on a simulated disk, and the driver of a cursor.

use std::collections::BTreeMap;

use crate::base::epoch::Epoch;
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::region::Region;
use crate::base::step::BlockAddress;
use crate::base::sync::Arc;
use crate::cache::{BlockRef, Cache, Claim};
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::sim::SimDisk;
use crate::io::storage::Storage;

use super::*;

pub(super) const FILE: FileName = FileName { kind: FileKind::Table, number: 7, path: 0 };
pub(super) const IDENTITY: TableIdentity = TableIdentity { file: FILE, uid: 0xabcd, store_id: 99 };
pub(super) const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
pub(super) const SHAPE: SliceShape = SliceShape {
    index: IndexPlan::Fences,
    filter: FilterPlan::of_bits(10),
    block_bytes: 4096,
    compression: Compression::None,
};

/// A table's contents: `None` is a tombstone.
pub(super) type TableModel = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A disk, a cache in front of it, and the hash secret of a store.
pub(super) struct Bench {
    pub(super) disk: Arc<SimDisk>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) secret: HashSecret,
    pub(super) owner: TableOwner,
    pub(super) cache: Cache,
}

impl Bench {
    pub(super) fn new() -> Bench {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("no fault");
        disk.demand_alignment();
        Bench {
            storage: Arc::clone(&disk) as Arc<dyn Storage>,
            disk,
            secret: HashSecret::expand([5; 16]),
            owner: TableOwner::alone(HashSecret::expand([5; 16])),
            cache: Cache::new(4 << 20, Epoch::new(), Region::heap),
        }
    }

    /// The bytes of the file.
    pub(super) fn contents(&self) -> Vec<u8> {
        self.disk.contents(FILE).expect("the file is there")
    }

    /// Replaces the contents of the file.
    pub(super) fn set_contents(&self, bytes: &[u8]) {
        self.disk.set_contents(FILE, Some(bytes));
    }

    /// Writes a file with these slices.
    pub(super) fn build(&self, slices: &[(TreeId, SliceShape, &TableModel)]) -> TableSummary {
        let mut builder = TableBuilder::new(Arc::clone(&self.storage), IDENTITY).expect("created");
        for (tree, shape, model) in slices {
            builder.begin(*tree, *shape).expect("begun");
            for (key, value) in *model {
                let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
                let value = value.as_deref().unwrap_or_default();
                let hash = self.secret.hash_in(tree.keyspace, key);
                builder.add(key, hash, kind, value).expect("added");
            }
            builder.end().expect("ended");
        }
        builder.finish().expect("finished").summary
    }

    /// Writes a file of one slice with range tombstones.
    pub(super) fn build_with(&self, model: &TableModel, ranges: &[(&[u8], &[u8])]) -> TableSummary {
        let mut builder = TableBuilder::new(Arc::clone(&self.storage), IDENTITY).expect("created");
        builder.begin(TREE, SHAPE).expect("begun");
        for (key, value) in model {
            let (kind, value) = expected(value);
            builder.add(key, self.secret.hash(key), kind, &value).expect("added");
        }
        ranges.iter().for_each(|(start, end)| builder.add_range(start, end));
        builder.end().expect("ended");
        builder.finish().expect("finished").summary
    }

    pub(super) fn open(&self, summary: &TableSummary) -> Result<Vec<Arc<TableReader>>> {
        let (bytes, checksum) = (summary.bytes, summary.checksum);
        TableFile::open(&self.storage, summary.identity, bytes, checksum, &self.owner)
    }

    /// Reads the whole file and returns the first damage.
    pub(super) fn verify(&self, summary: &TableSummary) -> Result<()> {
        let mut first = None;
        let named = (summary.identity, summary.bytes, summary.checksum);
        scrub(&self.storage, named, &|_| true, &self.secret, &mut |damage| {
            first.get_or_insert(damage.error);
        })?;
        first.map_or(Ok(()), |error| Err(Error::Corrupt(Box::new(error))))
    }

    /// A table of one slice, opened.
    pub(super) fn table(&self, model: &TableModel, shape: SliceShape) -> Arc<TableReader> {
        let summary = self.build(&[(TREE, shape, model)]);
        self.open(&summary).expect("opens").remove(0)
    }

    /// Returns the block from the cache, or reads and verifies it.
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
    pub(super) fn get(&self, table: &TableReader, key: &[u8]) -> Result<Option<(ItemKind, Vec<u8>)>> {
        let hash = self.secret.hash_in(table.tree().keyspace, key);
        if !table.admits(key) {
            return Ok(None);
        }
        let mut filtered = table.filter(key, hash, None);
        if let Filtered::Need(address) = filtered {
            filtered = table.filter(key, hash, Some(&self.block(&address)?));
        }
        if filtered == Filtered::No {
            return Ok(None);
        }
        let mut fenced = table.fence(key, None);
        if let Fenced::Need(address) = fenced {
            fenced = table.fence(key, Some(&self.block(&address)?));
        }
        let address = match fenced {
            Fenced::Block(block) | Fenced::Alone(block) => table.address_of(&block),
            Fenced::Not => return Ok(None),
            Fenced::Need(_) => panic!("a page was brought"),
        };
        let block = self.block(&address)?;
        let found = crate::format::table::data::find(&block, key, hash.block_tag(), None);
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

/// The answer that a table must give for a model's value.
pub(super) fn expected(value: &Option<Vec<u8>>) -> (ItemKind, Vec<u8>) {
    match value {
        Some(value) => (ItemKind::Put, value.clone()),
        None => (ItemKind::Delete, Vec::new()),
    }
}

/// Pseudo-random numbers, the same in every run.
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
