//! The partitions of a keyspace that is divided, by name.
//!
//! A partition is a [`KeyspaceState`] with a tree of its own; it shares the settings of its keyspace. The
//! holder of the catalog changes the map, after the edit that makes or drops partitions, or once the state
//! has the partitions that records are to make.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::rule::{KeyBounds, Rule};
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};

use super::keyspace::KeyspaceState;

/// See the module.
#[derive(Debug)]
pub(crate) struct Partitions {
    pub(crate) rule: Rule,
    by_name: Mutex<BTreeMap<Box<[u8]>, Arc<KeyspaceState>>>,
    /// Number of times that a partition was made or dropped.
    changes: AtomicU64,
    /// Partitions whose names come before this one are no longer wanted.
    retained_from: Mutex<Box<[u8]>>,
}

impl Partitions {
    pub(crate) fn new(rule: Rule) -> Partitions {
        let (by_name, retained_from) = (Mutex::default(), Mutex::default());
        Partitions { rule, by_name, changes: AtomicU64::new(0), retained_from }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<KeyspaceState>> {
        self.by_name.lock().get(name).cloned()
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> Vec<Box<[u8]>> {
        self.by_name.lock().keys().cloned().collect()
    }

    /// All partitions, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<KeyspaceState>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// The partitions whose names come before `name`, in the order of their names.
    pub(in crate::engine) fn before(&self, name: &[u8]) -> Vec<Arc<KeyspaceState>> {
        let names = (Bound::Unbounded, Bound::Excluded(name));
        self.by_name.lock().range::<[u8], _>(names).map(|(_, partition)| Arc::clone(partition)).collect()
    }

    /// The name before which partitions are no longer wanted; empty: all are wanted.
    pub(crate) fn retained_from(&self) -> Box<[u8]> {
        self.retained_from.lock().clone()
    }

    pub(in crate::engine) fn set_retained_from(&self, name: &[u8]) {
        *self.retained_from.lock() = name.into();
    }

    /// The partitions that may have keys of a range, in the order of their keys.
    pub(in crate::engine) fn of_range(&self, range: (&[u8], &[u8])) -> Vec<Arc<KeyspaceState>> {
        let names = self.names_of(range);
        self.by_name.lock().range::<[u8], _>(names).map(|(_, partition)| Arc::clone(partition)).collect()
    }

    /// The names of partitions that may have keys of a range that is not empty. An empty end means that the
    /// range has no end.
    pub(in crate::engine) fn names_of<'n>(&'n self, (start, end): (&'n [u8], &'n [u8])) -> KeyBounds<'n> {
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        self.rule.names_of((Bound::Included(start), end))
    }

    /// Number of times that a partition was made or dropped: while it does not move, the names stay the same.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(in crate::engine) fn add(&self, partition: &Arc<KeyspaceState>) {
        let name = partition.partition_name().expect("it is a partition").into();
        self.by_name.lock().insert(name, Arc::clone(partition));
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(in crate::engine) fn remove(&self, name: &[u8]) {
        self.by_name.lock().remove(name);
        self.changes.fetch_add(1, Ordering::Release);
    }
}
