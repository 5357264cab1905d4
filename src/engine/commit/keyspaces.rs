//! Creates, opens, configures and drops keyspaces; creates and drops partitions.
//!
//! Each change has a place in the joint order of commits and catalog changes (`order`). The change becomes
//! durable after every write before it. A crash leaves no state in which the two are swapped.

use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::reserve::Role;
use crate::base::rule::{Rule, partition_name};
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;
use crate::format::manifest::{KeyspaceKind, ManifestChange};
use crate::levels::manifest::STATE_BYTES_MAX;

use crate::engine::commit::order::OrderTurn;
use crate::engine::options::OpenMode;
use crate::engine::publish::catalog::{Catalog, KEYSPACE_BYTES};
use crate::engine::publish::edit::Edit;
use crate::engine::publish::keyspace::{KeyspaceState, is_change, merged, stored};
use crate::engine::publish::partitions::Partitions;

use super::Committer;

/// The kind and rule that the caller requires of a keyspace.
#[derive(Clone, Copy)]
pub(in crate::engine) struct KeyspaceRequest<'r> {
    pub(in crate::engine) kind: KeyspaceKind,
    pub(in crate::engine) rule: Option<&'r Rule>,
}

impl<'r> KeyspaceRequest<'r> {
    pub(in crate::engine) fn ordered(rule: Option<&'r Rule>) -> KeyspaceRequest<'r> {
        KeyspaceRequest { kind: KeyspaceKind::Ordered, rule }
    }
}

/// Ids of keyspaces are reserved in groups of this size.
const IDS_RESERVED: u32 = 1024;
/// Most bytes that a keyspace or partition takes in the manifest beside its name.
const NAMED_BYTES: usize = 24;

impl Committer {
    /// Opens an ordered keyspace, or creates one that is undivided. The given settings replace those it has.
    ///
    /// # Errors
    /// `Mismatch` if the keyspace is hashed, or divided by `Rule::Explicit`.
    pub(crate) fn open_keyspace(&self, name: &str, given: &[(String, u64)]) -> Result<Arc<KeyspaceState>> {
        self.open(name, given, KeyspaceRequest::ordered(None))
    }

    /// Opens a hashed keyspace, or creates one that is undivided.
    ///
    /// # Errors
    /// `Mismatch` if the keyspace is ordered, or divided by `Rule::Explicit`.
    pub(crate) fn open_hashed(&self, name: &str, given: &[(String, u64)]) -> Result<Arc<KeyspaceState>> {
        self.open(name, given, KeyspaceRequest { kind: KeyspaceKind::Hashed, rule: None })
    }

    /// Opens or creates an ordered keyspace that is divided by the rule.
    ///
    /// # Errors
    /// `Mismatch` if the keyspace is hashed, not divided, or divided by another rule.
    pub(crate) fn open_divided(
        &self,
        name: &str,
        given: &[(String, u64)],
        rule: &Rule,
    ) -> Result<Arc<KeyspaceState>> {
        self.open(name, given, KeyspaceRequest::ordered(Some(rule)))
    }

    /// Opens or creates a hashed keyspace that is divided by the rule.
    ///
    /// # Errors
    /// `Mismatch` if the keyspace is ordered, not divided, or divided by another rule.
    pub(crate) fn open_hashed_divided(
        &self,
        name: &str,
        given: &[(String, u64)],
        rule: &Rule,
    ) -> Result<Arc<KeyspaceState>> {
        self.open(name, given, KeyspaceRequest { kind: KeyspaceKind::Hashed, rule: Some(rule) })
    }

    fn open(
        &self,
        name: &str,
        given: &[(String, u64)],
        request: KeyspaceRequest<'_>,
    ) -> Result<Arc<KeyspaceState>> {
        self.check_open()?;
        let found = self.catalog.names().get(name).cloned();
        if let Some(found) = found {
            found.check_kind(request.kind)?;
            found.check_rule(request.rule)?;
            if !is_change(&found.settings(), given)? {
                return Ok(found);
            }
        }
        if self.mode == OpenMode::ReadOnly {
            return match self.catalog.names().get(name) {
                Some(_) => Err(Error::ReadOnly),
                None => Err(Error::NoKeyspace { name: name.to_owned() }),
            };
        }
        self.open_keyspace_in(&mut self.take_order_turn()?, name, given, request)
    }

    /// As `open`, in a turn of the joint order that has come.
    pub(in crate::engine) fn open_keyspace_in(
        &self,
        turn: &mut OrderTurn<'_>,
        name: &str,
        given: &[(String, u64)],
        request: KeyspaceRequest<'_>,
    ) -> Result<Arc<KeyspaceState>> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        let found = self.catalog.names().get(name).cloned();
        let Some(found) = found else { return self.create_keyspace(&mut catalog, name, given, request) };
        found.check_kind(request.kind)?;
        found.check_rule(request.rule)?;
        self.change_settings(&mut catalog, &found, given)?;
        Ok(found)
    }

    fn change_settings(
        &self,
        catalog: &mut Catalog,
        keyspace: &KeyspaceState,
        given: &[(String, u64)],
    ) -> Result<()> {
        let before = keyspace.settings();
        let settings = merged(before.clone(), given)?;
        if settings != before {
            let change = ManifestChange::KeyspaceSettings { id: keyspace.id, settings: stored(&settings) };
            self.edit_taken(catalog, Edit::of(vec![change]))?;
            keyspace.set_settings(settings);
            match keyspace.partitions() {
                Some(partitions) => {
                    self.changed_trees.note_all(partitions.all().iter().map(|partition| partition.tree));
                }
                None => self.changed_trees.note(keyspace.tree),
            }
            // The new settings may make a merge due.
            self.measure_pressure();
            self.work.moved.notify();
        }
        Ok(())
    }

    /// Checks that the catalog has room for a keyspace or partition of each name.
    ///
    /// # Errors
    /// `Memory` if the keyspaces and tables fill their part of the budget. `TooLarge` if a manifest could not
    /// hold them and the names. Only drops or merges make room.
    pub(super) fn check_catalog_room(&self, catalog: &Catalog, names: &BTreeSet<&[u8]>) -> Result<()> {
        let (role, reserve) = (Role::Manifest, self.cache.reserve());
        let wanted = catalog.grant.bytes() + names.len() as u64 * KEYSPACE_BYTES;
        if wanted > reserve.limit_bytes(role) {
            return Err(reserve.refusal(role, wanted));
        }
        check_manifest_room(catalog.state.snapshot_bytes_max(), names)
    }

    fn create_keyspace(
        &self,
        catalog: &mut Catalog,
        name: &str,
        given: &[(String, u64)],
        KeyspaceRequest { kind, rule }: KeyspaceRequest<'_>,
    ) -> Result<Arc<KeyspaceState>> {
        let settings = merged(KeyspaceSettings::of_new(kind == KeyspaceKind::Hashed), given)?;
        let bit = if kind == KeyspaceKind::Hashed { KeyspaceId::HASHED } else { 0 };
        let id = KeyspaceId(catalog.next_keyspace | bit);
        let partition = PartitionId(catalog.state.next_partition);
        self.check_catalog_room(catalog, &[name.as_bytes()].into())?;
        let mut changes = vec![take_ids(catalog, u32::from(rule.is_none()))?];
        let stored = stored(&settings);
        changes.push(ManifestChange::Keyspace { id, kind, name: name.to_owned(), settings: stored });
        let keyspace = match rule {
            Some(rule) => {
                changes.push(ManifestChange::PartitionRule { keyspace: id, rule: rule.clone() });
                KeyspaceState::divided(id, name.to_owned(), (settings, rule.clone()), &self.catalog.states)?
            }
            None => {
                changes.push(ManifestChange::Partition { id: partition, keyspace: id, name: Box::default() });
                let tree = TreeId { keyspace: id, partition };
                KeyspaceState::new((id, tree), name.to_owned(), settings, &self.catalog.states)?
            }
        };
        self.edit_taken(catalog, Edit::of(changes))?;
        catalog.next_keyspace = id.number() + 1;
        let keyspace = Arc::new(keyspace);
        if rule.is_none() {
            self.note_tree(&keyspace);
        }
        self.catalog.names().insert(name.to_owned(), Arc::clone(&keyspace));
        Ok(keyspace)
    }

    /// Registers a tree that was just created.
    pub(super) fn note_tree(&self, keyspace: &Arc<KeyspaceState>) {
        self.catalog.by_tree.lock().insert(keyspace.tree, Arc::clone(keyspace));
        self.changed_trees.note(keyspace.tree);
    }

    /// The named partition of a divided keyspace; creates it if it is missing.
    ///
    /// # Errors
    /// As [`Committer::partitions`].
    pub(crate) fn partition(&self, keyspace: &KeyspaceState, name: &[u8]) -> Result<Arc<KeyspaceState>> {
        Ok(self.partitions(keyspace, &[name])?.remove(0))
    }

    /// The named partitions; creates the missing ones together.
    ///
    /// # Errors
    /// `Invalid` for a name that the keyspace's rule does not allow.
    pub(crate) fn partitions(
        &self,
        keyspace: &KeyspaceState,
        names: &[&[u8]],
    ) -> Result<Vec<Arc<KeyspaceState>>> {
        self.check_open()?;
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("asked for of keyspaces that are divided");
        let found: Option<Vec<Arc<KeyspaceState>>> = names.iter().map(|name| partitions.get(name)).collect();
        match found.filter(|found| found.iter().all(|one| one.made().is_none())) {
            Some(found) => Ok(found),
            None => self.create_partitions(keyspace, names),
        }
    }

    /// The named partitions; creates the missing ones in one edit.
    ///
    /// # Errors
    /// As [`Committer::partitions`].
    pub(crate) fn create_partitions(
        &self,
        keyspace: &KeyspaceState,
        names: &[&[u8]],
    ) -> Result<Vec<Arc<KeyspaceState>>> {
        let rule = &keyspace.partitions().expect("it is divided").rule;
        if !names.iter().all(|name| rule.has_name(name)) {
            return Err(Error::Invalid { faults: vec![rule.names_are()] });
        }
        if self.mode == OpenMode::ReadOnly {
            let partitions = keyspace.partitions().expect("it is divided");
            return Err(match names.iter().find(|name| partitions.get(name).is_none()) {
                Some(missing) if !rule.is_by_key() => {
                    Error::NoKeyspace { name: partition_name(&keyspace.name, missing) }
                }
                _ => Error::ReadOnly,
            });
        }
        self.create_partitions_in(&mut self.take_order_turn()?, keyspace, names)
    }

    /// As [`Self::create_partitions`], in a turn of the joint order that has come.
    pub(in crate::engine) fn create_partitions_in(
        &self,
        turn: &mut OrderTurn<'_>,
        keyspace: &KeyspaceState,
        names: &[&[u8]],
    ) -> Result<Vec<Arc<KeyspaceState>>> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("it is divided");
        let missing: BTreeSet<&[u8]> =
            names.iter().copied().filter(|name| partitions.get(name).is_none()).collect();
        if missing.is_empty() {
            // Log records may have made some of these partitions; the edit tells the manifest of them.
            self.edit_taken(&mut catalog, Edit::default())?;
        } else {
            self.check_catalog_room(&catalog, &missing)?;
            let mut changes = vec![take_ids(&catalog, u32::try_from(missing.len()).unwrap_or(u32::MAX))?];
            let unwanted = unwanted_beside(partitions, &missing, names);
            changes.extend(unwanted.iter().map(drop_of));
            let (mut next, mut made) = (catalog.state.next_partition, Vec::new());
            for name in missing {
                let id = PartitionId(next);
                made.push(Arc::new(keyspace.partition(id, name, &self.catalog.states)?));
                changes.push(ManifestChange::Partition { id, keyspace: keyspace.id, name: name.into() });
                next += 1;
            }
            self.edit_taken(&mut catalog, Edit::of(changes))?;
            self.forget_partitions(partitions, &unwanted);
            for partition in &made {
                self.note_tree(partition);
                partitions.add(partition);
            }
            if !unwanted.is_empty() {
                drop(catalog);
                self.retry_when_freed();
                self.measure_pressure();
            }
        }
        Ok(names.iter().map(|name| partitions.get(name).expect("it was made")).collect())
    }

    /// Drops all partitions whose names come before `name`, and returns their count. Later partitions with
    /// such names are dropped when other partitions are created.
    ///
    /// # Errors
    /// `Invalid` for a name that the keyspace's rule does not allow.
    pub(crate) fn retain_from(&self, keyspace: &KeyspaceState, name: &[u8]) -> Result<u64> {
        self.check_open()?;
        self.check_writable()?;
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("asked for of keyspaces that are divided");
        if !partitions.rule.has_name(name) {
            return Err(Error::Invalid { faults: vec![partitions.rule.names_are()] });
        }
        self.retain_from_in(&mut self.take_order_turn()?, keyspace, name)
    }

    /// As [`Self::retain_from`], in a turn of the joint order that has come.
    pub(in crate::engine) fn retain_from_in(
        &self,
        turn: &mut OrderTurn<'_>,
        keyspace: &KeyspaceState,
        name: &[u8],
    ) -> Result<u64> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("it is divided");
        let found = partitions.before(name);
        if found.is_empty() && *partitions.retained_from() == *name {
            return Ok(0);
        }
        let mut changes = vec![ManifestChange::RetainFrom { keyspace: keyspace.id, name: name.into() }];
        changes.extend(found.iter().map(drop_of));
        self.edit_taken(&mut catalog, Edit::of(changes))?;
        partitions.set_retained_from(name);
        self.forget_partitions(partitions, &found);
        drop(catalog);
        self.retry_when_freed();
        self.measure_pressure();
        Ok(found.len() as u64)
    }

    /// Drops the named partitions that exist, in one edit, and returns their count.
    pub(crate) fn drop_partitions(&self, keyspace: &KeyspaceState, names: &[&[u8]]) -> Result<u64> {
        self.check_open()?;
        self.check_writable()?;
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("asked for of keyspaces that are divided");
        if names.iter().all(|name| partitions.get(name).is_none()) {
            return Ok(0);
        }
        self.drop_partitions_in(&mut self.take_order_turn()?, keyspace, names)
    }

    /// As [`Self::drop_partitions`], in a turn of the joint order that has come.
    pub(in crate::engine) fn drop_partitions_in(
        &self,
        turn: &mut OrderTurn<'_>,
        keyspace: &KeyspaceState,
        names: &[&[u8]],
    ) -> Result<u64> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("it is divided");
        let names: BTreeSet<&[u8]> = names.iter().copied().collect();
        let found: Vec<Arc<KeyspaceState>> =
            names.into_iter().filter_map(|name| partitions.get(name)).collect();
        if found.is_empty() {
            return Ok(0);
        }
        self.edit_taken(&mut catalog, Edit::of(found.iter().map(drop_of).collect()))?;
        self.forget_partitions(partitions, &found);
        drop(catalog);
        self.retry_when_freed();
        self.measure_pressure();
        Ok(found.len() as u64)
    }

    /// Removes dropped partitions from the catalog and from their keyspace.
    fn forget_partitions(&self, partitions: &Partitions, dropped: &[Arc<KeyspaceState>]) {
        for partition in dropped {
            self.forget(partition);
            partitions.remove(partition.partition_name().expect("it is a partition"));
        }
    }

    /// Removes the tree of a dropped keyspace or partition from the catalog and from background work.
    fn forget(&self, keyspace: &KeyspaceState) {
        keyspace.set_dropped();
        self.catalog.by_tree.lock().remove(&keyspace.tree);
        self.work.forget(keyspace.tree);
    }

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.check_open()?;
        self.check_writable()?;
        self.keyspace(name)?;
        self.drop_keyspace_in(&mut self.take_order_turn()?, name)
    }

    /// As [`Self::drop_keyspace`], in a turn of the joint order that has come.
    pub(in crate::engine) fn drop_keyspace_in(&self, turn: &mut OrderTurn<'_>, name: &str) -> Result<()> {
        let keyspace = self.keyspace(name)?;
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        self.edit_taken(&mut catalog, Edit::of(vec![ManifestChange::DropKeyspace { id: keyspace.id }]))?;
        self.forget(&keyspace);
        keyspace.partitions().into_iter().flat_map(Partitions::all).for_each(|one| self.forget(&one));
        self.catalog.names().remove(name);
        drop(catalog);
        self.retry_when_freed();
        self.measure_pressure();
        Ok(())
    }
}

/// Checks that a manifest can hold a state of `state_bytes` and these names.
///
/// # Errors
/// `TooLarge` if such a manifest could not be rewritten.
fn check_manifest_room(state_bytes: u64, names: &BTreeSet<&[u8]>) -> Result<()> {
    let names_bytes: usize = names.iter().map(|name| name.len() + NAMED_BYTES).sum();
    let (limit, given) = (STATE_BYTES_MAX, state_bytes + names_bytes as u64);
    if given > limit { Err(Error::TooLarge { what: "manifest", limit, given }) } else { Ok(()) }
}

fn drop_of(partition: &Arc<KeyspaceState>) -> ManifestChange {
    ManifestChange::DropPartition { id: partition.tree.partition }
}

/// Partitions below the retained names, to be dropped when others are created, except the requested ones. The
/// result is empty if a created partition is itself below: two writers of such names would drop each other's
/// partitions forever.
pub(super) fn unwanted_beside(
    partitions: &Partitions,
    made: &BTreeSet<&[u8]>,
    names: &[&[u8]],
) -> Vec<Arc<KeyspaceState>> {
    let from = partitions.retained_from();
    if made.first().is_none_or(|first| *first < &*from) {
        return Vec::new();
    }
    let asked: BTreeSet<&[u8]> = names.iter().copied().filter(|name| *name < &*from).collect();
    let mut unwanted = partitions.before(&from);
    unwanted.retain(|one| one.partition_name().is_none_or(|name| !asked.contains(name)));
    unwanted
}

/// The change that takes `count` partition ids, and reserves keyspace ids if too few are left.
///
/// # Errors
/// `TooLarge` if no ids are left.
pub(super) fn take_ids(catalog: &Catalog, count: u32) -> Result<ManifestChange> {
    let (keyspace, next) = (catalog.next_keyspace, catalog.state.next_partition.saturating_add(count));
    let limit = !KeyspaceId::HASHED - IDS_RESERVED;
    if keyspace > limit || next > limit {
        let given = u64::from(keyspace.max(next));
        return Err(Error::TooLarge { what: "number of keyspaces", limit: limit.into(), given });
    }
    let reserved = catalog.state.next_keyspace;
    let next_keyspace = if keyspace < reserved { reserved } else { keyspace + IDS_RESERVED };
    Ok(ManifestChange::Ids { next_keyspace, next_partition: next })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A manifest that could not be rewritten is never created.
    #[test]
    fn names_fit_a_manifest() {
        let check = |state_bytes: u64, names: &[&[u8]]| {
            check_manifest_room(state_bytes, &names.iter().copied().collect()).is_ok()
        };
        let room = 2 * (NAMED_BYTES as u64 + 3);
        assert!(check(STATE_BYTES_MAX - room, &[b"one", b"two"]));
        assert!(!check(STATE_BYTES_MAX - room, &[b"one", b"three"]));
        assert!(!check(STATE_BYTES_MAX - room + 1, &[b"one", b"two"]));
        assert!(check(STATE_BYTES_MAX, &[]));
    }
}
