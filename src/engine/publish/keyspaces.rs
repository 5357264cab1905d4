//! Checks before a call (process, open, writable), and keyspaces by name and by tree.

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::TreeId;
use crate::base::place::{StoredKey, stored_key};
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, Ordering};
use crate::io::storage::Storage;

use super::Publisher;
use super::keyspace::KeyspaceState;

impl Publisher {
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.env.storage
    }

    pub(crate) fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(in crate::engine) fn check_writable(&self) -> Result<()> {
        self.check_process()?;
        self.writer.latched().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        self.check_open()?;
        let found = self.catalog.names().get(name).cloned();
        found.ok_or_else(|| Error::NoKeyspace { name: name.to_owned() })
    }

    pub(crate) fn hash_secret(&self) -> &HashSecret {
        &self.owner.secret
    }

    /// A key as the keyspace stores it.
    #[inline]
    pub(crate) fn stored_key<'k>(&self, keyspace: &KeyspaceState, key: &'k [u8]) -> StoredKey<'k> {
        stored_key(&self.owner.secret, keyspace.id, key)
    }

    /// All keyspaces, in the order of their names.
    pub(crate) fn keyspaces(&self) -> Vec<Arc<KeyspaceState>> {
        self.catalog.names().values().cloned().collect()
    }

    pub(crate) fn has_keyspace(&self, name: &str) -> bool {
        self.catalog.names().contains_key(name)
    }

    pub(in crate::engine) fn trees(&self) -> Vec<TreeId> {
        let by_tree = self.catalog.by_tree.lock();
        let trees = by_tree.keys().copied();
        #[cfg(test)]
        let trees = trees.inspect(|_| crate::base::visits::count());
        trees.collect()
    }

    pub(in crate::engine) fn keyspace_of(&self, tree: TreeId) -> Option<Arc<KeyspaceState>> {
        self.catalog.by_tree.lock().get(&tree).cloned()
    }

    /// Whether the calling process was forked off the process that opened the store.
    pub(crate) fn is_forked(&self) -> bool {
        self.env.storage.is_forked()
    }

    /// # Errors
    /// `Forked`.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// # Errors
    /// `Forked`, `Closed`.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// A stand-in for a keyspace that belongs to another store and is read as of this store's snapshots: its
    /// reads return `Invalid`.
    pub(crate) fn stand_in(&self, keyspace: &KeyspaceState) -> Arc<KeyspaceState> {
        Arc::new(keyspace.stand_in(self.catalog.stand_in.clone()))
    }

    /// Closes the handles of all keyspaces.
    pub(in crate::engine) fn close_keyspaces(&self) {
        // A keyspace that is divided has no tree; a partition has no name in the catalog.
        self.catalog.names().values().for_each(|keyspace| keyspace.set_closed());
        self.catalog.by_tree.lock().values().for_each(|keyspace| keyspace.set_closed());
    }
}
