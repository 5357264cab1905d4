//! A keyspace partitioned by any rule: lists, makes and drops its partitions.

use trine::{Any, Db, Error, Keyspace, KeyspaceStats, PartitioningInfo};
use trine_workload::failure::Failure;

use crate::any_keyspace::AnyPartitioned;
use crate::named;

/// A partitioned keyspace, by the kind of its rule.
pub(crate) enum Divided {
    Explicit(AnyPartitioned),
    ByKey(Keyspace<Any>),
}

/// The size of a partition.
pub(crate) struct PartitionSize {
    pub(crate) name: Vec<u8>,
    pub(crate) approximate_keys: u64,
    pub(crate) stats: KeyspaceStats,
}

impl Divided {
    /// Opens an existing partitioned keyspace; returns its rule too.
    pub(crate) fn find(db: &Db, name: &str) -> Result<(Divided, PartitioningInfo), Failure> {
        let Some(info) = db.keyspaces().into_iter().find(|one| one.name == name) else {
            return Err(Error::NoKeyspace { name: name.to_owned() }.into());
        };
        let Some(rule) = info.partitioning else {
            return Err(Failure::Usage(format!("the keyspace {name:?} is not divided into partitions")));
        };
        let divided = match info.is_partitioned {
            true => Divided::Explicit(named::partitioned(db, name, named::is_hashed(db, name))?),
            false => Divided::ByKey(db.keyspace(name)?),
        };
        Ok((divided, rule))
    }

    /// The names of all partitions, in their order.
    pub(crate) fn names(&self) -> trine::Result<Vec<Vec<u8>>> {
        match self {
            Divided::Explicit(keyspace) => keyspace.partitions(),
            Divided::ByKey(keyspace) => keyspace.partitions(),
        }
    }

    /// Makes the missing ones of these partitions, in one operation.
    pub(crate) fn make(&self, names: &[Vec<u8>]) -> trine::Result<()> {
        match self {
            Divided::Explicit(keyspace) => keyspace.create_partitions(names),
            Divided::ByKey(keyspace) => keyspace.create_partitions(names),
        }
    }

    /// Drops those of these partitions that exist; returns their number.
    pub(crate) fn drop_partitions(&self, names: &[Vec<u8>]) -> trine::Result<u64> {
        match self {
            Divided::Explicit(keyspace) => keyspace.drop_partitions(names),
            Divided::ByKey(keyspace) => keyspace.drop_partitions(names),
        }
    }

    /// Drops the partitions before the bound and keeps the bound; returns their number.
    pub(crate) fn retain_from(&self, bound: &[u8]) -> trine::Result<u64> {
        match self {
            Divided::Explicit(keyspace) => keyspace.retain_from(bound),
            Divided::ByKey(keyspace) => keyspace.retain_from(bound),
        }
    }

    /// The bound before which partitions are dropped, if there is one.
    pub(crate) fn retained_from(&self) -> trine::Result<Option<Vec<u8>>> {
        match self {
            Divided::Explicit(keyspace) => keyspace.retained_from(),
            Divided::ByKey(keyspace) => keyspace.retained_from(),
        }
    }

    /// The size of a partition; `None` if it does not exist.
    pub(crate) fn size(&self, name: &[u8]) -> trine::Result<Option<PartitionSize>> {
        let found = match self {
            Divided::Explicit(keyspace) => match keyspace.find_partition(name)? {
                Some(partition) => Some((partition.approximate_len()?, partition.stats()?)),
                None => None,
            },
            Divided::ByKey(keyspace) => {
                keyspace.partition_approximate_len(name)?.zip(keyspace.partition_stats(name)?)
            }
        };
        let name = name.to_vec();
        Ok(found.map(|(approximate_keys, stats)| PartitionSize { name, approximate_keys, stats }))
    }

    /// The sizes of all partitions, in the order of their names.
    pub(crate) fn sizes(&self) -> trine::Result<Vec<PartitionSize>> {
        self.names()?.iter().map(|name| self.size(name)).filter_map(Result::transpose).collect()
    }
}
