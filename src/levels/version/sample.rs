//! For tests: table files with slices of a hashed tree.

use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, FileName, ItemKind, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::place::NodeId;
use crate::base::sync::Arc;
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::sim::{SimDisk, sim_env};
use crate::io::storage::Storage;
use crate::table::{IndexPlan, SliceShape, TableBuilder, TableFile, TableIdentity, TableOwner, TableReader};

use super::Placed;

pub(crate) const TREE: TreeId =
    TreeId { keyspace: KeyspaceId(KeyspaceId::HASHED | 1), partition: PartitionId(1) };

/// Contents of a slice, with ascending keys.
#[derive(Clone, Debug)]
pub(crate) struct SampleSlice {
    /// Stored keys, and whether each is deleted.
    pub(crate) items: Vec<(Vec<u8>, bool)>,
    pub(crate) value_bytes: usize,
    /// Whether the slice deletes all older items, as a clear does.
    pub(crate) clears: bool,
}

/// A directory in which files are created.
pub(crate) struct SampleFiles {
    storage: Arc<dyn Storage>,
    number: u64,
}

impl SampleFiles {
    pub(crate) fn new() -> SampleFiles {
        let (env, _threads) = sim_env(&SimDisk::new(1), 1);
        env.storage.create_directory().expect("no fault");
        SampleFiles { storage: env.storage, number: 0 }
    }

    /// Creates a file of these slices, which ascend.
    pub(crate) fn make(&mut self, slices: &[SampleSlice]) -> Vec<Arc<TableReader>> {
        self.number += 1;
        let file = FileName::new(FileKind::Table, self.number);
        let identity = TableIdentity { file, uid: self.number, store_id: 7 };
        let mut builder = TableBuilder::new(Arc::clone(&self.storage), identity).expect("no fault");
        let (filter, compression) = (FilterPlan::of_bits(10), Compression::None);
        let secret = HashSecret::expand([5; 16]);
        for slice in slices {
            builder
                .begin(TREE, SliceShape { index: IndexPlan::Fences, filter, block_bytes: 4096, compression })
                .expect("no fault");
            for (key, is_deleted) in &slice.items {
                let kind = if *is_deleted { ItemKind::Delete } else { ItemKind::Put };
                let value = vec![7; if *is_deleted { 0 } else { slice.value_bytes }];
                builder.add(key, secret.hash_in(TREE.keyspace, key), kind, &value).expect("no fault");
            }
            if slice.clears {
                builder.add_range(&[], &[]);
            }
            builder.end().expect("no fault");
        }
        let made = builder.finish().expect("no fault").summary;
        let owner = TableOwner::alone(HashSecret::expand([5; 16]));
        TableFile::open(&self.storage, made.identity, made.bytes, made.checksum, &owner)
            .expect("a whole file")
    }
}

/// A key of the node; the last byte distinguishes it from others.
pub(crate) fn key_in(node: NodeId, number: u8) -> Vec<u8> {
    [&node.first()[..], &[number]].concat()
}

pub(crate) fn placed(table: &Arc<TableReader>, sequence: Sequence) -> Placed {
    Placed {
        table: Arc::clone(table),
        first_sequence: sequence,
        last_sequence: sequence,
        oldest_tombstone_s: 0,
        tombstones_dense: 0,
    }
}
