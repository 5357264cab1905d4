//! Keyspaces created, opened, set and dropped.
//!
//! Each change has a place in the joint order of commits and catalog changes (`order`): it is durable after
//! every write before it, and a crash leaves no state in which the two are swapped.

use crate::base::error::{Error, Result};
use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::reserve::Role;
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;
use crate::format::manifest::{Change, KeyspaceKind, Settings};

use super::catalog::{Catalog, KEYSPACE_BYTES, Keyspace};
use super::edit::Edit;
use super::order::OrderTurn;
use super::{Mode, Store};

/// Ids are reserved this many at a time.
const IDS_RESERVED: u32 = 1024;

impl Store {
    pub(crate) fn keyspace(&self, name: &str) -> Result<Arc<Keyspace>> {
        self.check_open()?;
        let found = self.catalog.names().get(name).cloned();
        found.ok_or_else(|| Error::NoKeyspace { name: name.to_owned() })
    }

    pub(crate) fn keyspace_names(&self) -> Vec<String> {
        self.catalog.names().keys().cloned().collect()
    }

    pub(crate) fn has_keyspace(&self, name: &str) -> bool {
        self.catalog.names().contains_key(name)
    }

    pub(super) fn trees(&self) -> Vec<TreeId> {
        self.catalog.names().values().map(|keyspace| keyspace.tree).collect()
    }

    pub(super) fn keyspace_of(&self, tree: TreeId) -> Option<Arc<Keyspace>> {
        self.catalog.by_tree.lock().get(&tree).cloned()
    }

    /// Whether the caller is a process that was forked off the one that opened the store.
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

    /// Opens the keyspace or makes it; settings given replace those it has.
    pub(crate) fn open_keyspace(&self, name: &str, given: &[(String, u64)]) -> Result<Arc<Keyspace>> {
        self.check_open()?;
        let found = self.catalog.names().get(name).cloned();
        if let Some(found) = found
            && !is_change(&found.settings(), given)?
        {
            return Ok(found);
        }
        if self.mode == Mode::ReadOnly {
            return match self.catalog.names().get(name) {
                Some(_) => Err(Error::ReadOnly),
                None => Err(Error::NoKeyspace { name: name.to_owned() }),
            };
        }
        self.open_keyspace_in(&mut self.take_order_turn()?, name, given)
    }

    /// The same in a turn that has come.
    pub(super) fn open_keyspace_in(
        &self,
        turn: &mut OrderTurn<'_>,
        name: &str,
        given: &[(String, u64)],
    ) -> Result<Arc<Keyspace>> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        let found = self.catalog.names().get(name).cloned();
        match found {
            Some(keyspace) => self.change_settings(&mut catalog, &keyspace, given).map(|()| keyspace),
            None => self.create_keyspace(&mut catalog, name, given),
        }
    }

    fn change_settings(
        &self,
        catalog: &mut Catalog,
        keyspace: &Keyspace,
        given: &[(String, u64)],
    ) -> Result<()> {
        let before = keyspace.settings();
        let settings = merged(before.clone(), given)?;
        if settings != before {
            let change = Change::KeyspaceSettings { id: keyspace.id, settings: stored(&settings) };
            self.edit_taken(catalog, Edit::of(vec![change]))?;
            keyspace.set_settings(settings);
            self.work.merge_queue.note(keyspace.tree);
            // A merge may be due by the new ones that was not by the old.
            self.measure_pressure();
            self.work.moved.notify();
        }
        Ok(())
    }

    /// # Errors
    /// `Memory`, if there are as many keyspaces and tables as the budget has room for. Only dropping some, or
    /// merges, make room.
    fn check_catalog_room(&self, catalog: &Catalog) -> Result<()> {
        let (role, reserve) = (Role::Manifest, self.cache.reserve());
        let wanted = catalog.grant.bytes() + KEYSPACE_BYTES;
        if wanted <= reserve.limit_bytes(role) { Ok(()) } else { Err(reserve.refusal(role, wanted)) }
    }

    fn create_keyspace(
        &self,
        catalog: &mut Catalog,
        name: &str,
        given: &[(String, u64)],
    ) -> Result<Arc<Keyspace>> {
        let settings = merged(KeyspaceSettings::default(), given)?;
        let (id, partition) = (KeyspaceId(catalog.next_keyspace), PartitionId(catalog.next_partition));
        let tree = TreeId { keyspace: id, partition };
        let limit = u32::MAX - IDS_RESERVED;
        if id.0 > limit || partition.0 > limit {
            let given = u64::from(id.0.max(partition.0));
            return Err(Error::TooLarge { what: "number of keyspaces", limit: limit.into(), given });
        }
        self.check_catalog_room(catalog)?;
        let keyspace = Keyspace::new((id, tree), name.to_owned(), settings.clone(), &self.catalog.states)?;
        let mut changes = Vec::new();
        let (next_keyspace, next_partition) = (catalog.state.next_keyspace, catalog.state.next_partition);
        if id.0 >= next_keyspace || partition.0 >= next_partition {
            changes.push(Change::Ids {
                next_keyspace: next_keyspace.max(id.0 + IDS_RESERVED),
                next_partition: next_partition.max(partition.0 + IDS_RESERVED),
            });
        }
        changes.push(Change::Keyspace {
            id,
            kind: KeyspaceKind::Ordered,
            name: name.to_owned(),
            settings: stored(&settings),
        });
        changes.push(Change::Partition { id: partition, keyspace: id, name: Box::default() });
        (catalog.next_keyspace, catalog.next_partition) = (id.0 + 1, partition.0 + 1);
        self.edit_taken(catalog, Edit::of(changes))?;
        let keyspace = Arc::new(keyspace);
        self.catalog.by_tree.lock().insert(tree, Arc::clone(&keyspace));
        self.work.merge_queue.note(tree);
        self.catalog.names().insert(name.to_owned(), Arc::clone(&keyspace));
        Ok(keyspace)
    }

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.check_open()?;
        self.check_writable()?;
        self.keyspace(name)?;
        self.drop_keyspace_in(&mut self.take_order_turn()?, name)
    }

    /// The same in a turn that has come.
    pub(super) fn drop_keyspace_in(&self, turn: &mut OrderTurn<'_>, name: &str) -> Result<()> {
        let keyspace = self.keyspace(name)?;
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        self.edit_taken(&mut catalog, Edit::of(vec![Change::DropKeyspace { id: keyspace.id }]))?;
        keyspace.set_dropped();
        self.catalog.names().remove(name);
        self.catalog.by_tree.lock().remove(&keyspace.tree);
        self.work.forget(keyspace.tree);
        drop(catalog);
        self.retry_when_freed();
        self.measure_pressure();
        Ok(())
    }

    /// In the place of a keyspace that is read as of this store's snapshots and belongs to another store: its
    /// reads answer `Invalid`.
    pub(crate) fn stand_in(&self, keyspace: &Keyspace) -> Arc<Keyspace> {
        Arc::new(keyspace.stand_in(self.catalog.stand_in.clone()))
    }

    /// After closing, handles of keyspaces answer no more.
    pub(super) fn close_keyspaces(&self) {
        for keyspace in self.catalog.names().values() {
            keyspace.set_closed();
        }
    }
}

/// Whether the settings given differ from those there are.
fn is_change(before: &KeyspaceSettings, given: &[(String, u64)]) -> Result<bool> {
    Ok(!given.is_empty() && merged(before.clone(), given)? != *before)
}

pub(super) fn merged(mut settings: KeyspaceSettings, given: &[(String, u64)]) -> Result<KeyspaceSettings> {
    for (name, value) in given {
        settings.set(name, *value)?;
    }
    settings.validate()?;
    Ok(settings)
}

/// As the manifest keeps them.
fn stored(settings: &KeyspaceSettings) -> Settings {
    let mut values: Settings =
        settings.values().into_iter().map(|(setting, value)| (setting.id, value)).collect();
    values.sort_unstable();
    values
}

/// From the manifest. Settings that this release does not know are left alone; missing ones have their
/// default.
pub(crate) fn restored(values: &Settings) -> KeyspaceSettings {
    let mut settings = KeyspaceSettings::default();
    for setting in KeyspaceSettings::TABLE {
        if let Some((_, value)) = values.iter().find(|(id, _)| *id == setting.id) {
            let value = (*value).clamp(setting.min, setting.max);
            settings.set(setting.name, value).expect("the name is the table's own");
        }
    }
    settings
}
