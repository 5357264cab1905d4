//! The partitions of a keyspace that is divided, by name.
//!
//! Each is a [`Keyspace`] of its own to whoever reads and writes it, with a tree of its own and the settings
//! of the keyspace that it is of. The map is changed by who holds the catalog, after the edit that makes or
//! drops them.

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
