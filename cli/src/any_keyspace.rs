//! A keyspace or partition of either kind behind one interface.
//!
//! `named` opens and makes one. Commands that need ordered keys call [`AnyKeyspace::ordered`].

use trine::inspect::Explanation;
use trine::{Batch, Error, Hashed, Keyspace, KeyspaceStats, Ordered, Partitioned, SettingValue, Value};
use trine_workload::failure::Failure;

/// A keyspace or partition, ordered or hashed.
pub(crate) enum AnyKeyspace {
    Ordered(Keyspace<Ordered>),
    Hashed(Keyspace<Hashed>),
}

/// An explicitly partitioned keyspace of either kind.
pub(crate) enum AnyPartitioned {
    Ordered(Partitioned),
    Hashed(Partitioned<Hashed>),
}

/// The items of a keyspace, in key order if it is ordered.
pub(crate) enum Items {
    Ordered(trine::Range),
    Hashed(trine::Unordered),
}

/// Makes a call that both kinds have.
macro_rules! of_either {
    ($either:expr, $keyspace:ident => $call:expr) => {
        match $either {
            AnyKeyspace::Ordered($keyspace) => $call,
            AnyKeyspace::Hashed($keyspace) => $call,
        }
    };
}

macro_rules! of_partitioned {
    ($either:expr, $keyspace:ident => $call:expr) => {
        match $either {
            AnyPartitioned::Ordered($keyspace) => $call,
            AnyPartitioned::Hashed($keyspace) => $call,
        }
    };
}

impl AnyPartitioned {
    pub(crate) fn name(&self) -> &str {
        of_partitioned!(self, keyspace => keyspace.name())
    }

    pub(crate) fn is_hashed(&self) -> bool {
        matches!(self, AnyPartitioned::Hashed(_))
    }

    pub(crate) fn partition(&self, name: impl AsRef<[u8]>) -> trine::Result<AnyKeyspace> {
        match self {
            AnyPartitioned::Ordered(keyspace) => keyspace.partition(name).map(AnyKeyspace::Ordered),
            AnyPartitioned::Hashed(keyspace) => keyspace.partition(name).map(AnyKeyspace::Hashed),
        }
    }

    pub(crate) fn create_partitions(&self, names: &[Vec<u8>]) -> trine::Result<()> {
        of_partitioned!(self, keyspace => keyspace.create_partitions(names))
    }

    pub(crate) fn find_partition(&self, name: impl AsRef<[u8]>) -> trine::Result<Option<AnyKeyspace>> {
        Ok(match self {
            AnyPartitioned::Ordered(keyspace) => keyspace.find_partition(name)?.map(AnyKeyspace::Ordered),
            AnyPartitioned::Hashed(keyspace) => keyspace.find_partition(name)?.map(AnyKeyspace::Hashed),
        })
    }

    pub(crate) fn partitions(&self) -> trine::Result<Vec<Vec<u8>>> {
        of_partitioned!(self, keyspace => keyspace.partitions())
    }

    pub(crate) fn drop_partitions(&self, names: &[Vec<u8>]) -> trine::Result<u64> {
        of_partitioned!(self, keyspace => keyspace.drop_partitions(names))
    }

    pub(crate) fn retain_from(&self, name: &[u8]) -> trine::Result<u64> {
        of_partitioned!(self, keyspace => keyspace.retain_from(name))
    }

    pub(crate) fn retained_from(&self) -> trine::Result<Option<Vec<u8>>> {
        of_partitioned!(self, keyspace => keyspace.retained_from())
    }

    pub(crate) fn settings(&self) -> Vec<SettingValue> {
        of_partitioned!(self, keyspace => keyspace.settings())
    }
}

impl AnyKeyspace {
    pub(crate) fn is_hashed(&self) -> bool {
        matches!(self, AnyKeyspace::Hashed(_))
    }

    /// The keyspace, if it is ordered.
    ///
    /// # Errors
    /// `Unordered` if it is hashed.
    pub(crate) fn ordered(&self) -> Result<&Keyspace<Ordered>, Failure> {
        match self {
            AnyKeyspace::Ordered(keyspace) => Ok(keyspace),
            AnyKeyspace::Hashed(keyspace) => {
                Err(Error::Unordered { name: keyspace.name().to_owned() }.into())
            }
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> trine::Result<Option<Value>> {
        of_either!(self, keyspace => keyspace.get(key))
    }

    pub(crate) fn put_in(&self, batch: &mut Batch, key: &[u8], value: &[u8]) -> trine::Result<()> {
        of_either!(self, keyspace => batch.put(keyspace, key, value))
    }

    pub(crate) fn delete_in(&self, batch: &mut Batch, key: &[u8]) -> trine::Result<()> {
        of_either!(self, keyspace => batch.delete(keyspace, key))
    }

    pub(crate) fn clear(&self) -> trine::Result<()> {
        of_either!(self, keyspace => keyspace.clear())
    }

    pub(crate) fn compact(&self) -> trine::Result<()> {
        of_either!(self, keyspace => keyspace.compact())
    }

    pub(crate) fn explain(&self, key: &[u8]) -> trine::Result<Explanation> {
        of_either!(self, keyspace => keyspace.explain(key))
    }

    pub(crate) fn stats(&self) -> trine::Result<KeyspaceStats> {
        of_either!(self, keyspace => keyspace.stats())
    }

    pub(crate) fn approximate_len(&self) -> trine::Result<u64> {
        of_either!(self, keyspace => keyspace.approximate_len())
    }

    pub(crate) fn exact_len(&self, progress: impl FnMut(u64)) -> trine::Result<u64> {
        of_either!(self, keyspace => keyspace.exact_len(progress))
    }

    pub(crate) fn items(&self) -> Items {
        match self {
            AnyKeyspace::Ordered(keyspace) => Items::Ordered(keyspace.iter()),
            AnyKeyspace::Hashed(keyspace) => Items::Hashed(keyspace.iter_unordered()),
        }
    }
}

impl Iterator for Items {
    type Item = trine::Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Items::Ordered(items) => items.next(),
            Items::Hashed(items) => items.next(),
        }
    }
}
