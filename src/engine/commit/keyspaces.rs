//! Keyspaces created, opened, set and dropped.
//!
//! Each change has a place in the joint order of commits and catalog changes (`order`): it is durable after
//! every write before it, and a crash leaves no state in which the two are swapped.

use crate::base::error::{Error, Result};
use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::reserve::Role;
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;
use crate::format::manifest::{Change, KeyspaceKind};

use crate::engine::commit::order::OrderTurn;
use crate::engine::options::Mode;
use crate::engine::publish::catalog::{Catalog, KEYSPACE_BYTES};
use crate::engine::publish::edit::Edit;
use crate::engine::publish::keyspace::{Keyspace, is_change, merged, stored};

use super::Committer;

/// Ids are reserved this many at a time.
const IDS_RESERVED: u32 = 1024;

impl Committer {
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
    pub(in crate::engine) fn open_keyspace_in(
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
            self.changed_trees.note(keyspace.tree);
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
        self.changed_trees.note(tree);
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
    pub(in crate::engine) fn drop_keyspace_in(&self, turn: &mut OrderTurn<'_>, name: &str) -> Result<()> {
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
}
