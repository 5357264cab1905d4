//! The partitions of a keyspace that is divided, by name.
//!
//! A partition is a [`Keyspace`] with a tree of its own; it shares the settings of the keyspace that it is
//! part of. The holder of the catalog changes the map, after the edit that makes or drops partitions.

use std::collections::BTreeMap;

use crate::base::rule::Rule;
use crate::base::sync::{Arc, Mutex};

use super::keyspace::Keyspace;

/// See the module.
#[derive(Debug)]
pub(crate) struct Partitions {
    pub(crate) rule: Rule,
    by_name: Mutex<BTreeMap<Box<[u8]>, Arc<Keyspace>>>,
}

impl Partitions {
    pub(crate) fn new(rule: Rule) -> Partitions {
        Partitions { rule, by_name: Mutex::default() }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<Keyspace>> {
        self.by_name.lock().get(name).cloned()
    }

    /// In the order of their names.
    pub(crate) fn names(&self) -> Vec<Box<[u8]>> {
        self.by_name.lock().keys().cloned().collect()
    }

    /// In the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Keyspace>> {
        self.by_name.lock().values().cloned().collect()
    }

    pub(in crate::engine) fn add(&self, partition: &Arc<Keyspace>) {
        let name = partition.partition_name().expect("it is a partition").into();
        self.by_name.lock().insert(name, Arc::clone(partition));
    }

    pub(in crate::engine) fn remove(&self, name: &[u8]) {
        self.by_name.lock().remove(name);
    }
}
