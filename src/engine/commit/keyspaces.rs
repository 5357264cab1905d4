//! Keyspaces created, opened, set and dropped; partitions created and dropped.
//!
//! Each change has a place in the joint order of commits and catalog changes (`order`): it is durable after
//! every write before it, and a crash leaves no state in which the two are swapped.

use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::reserve::Role;
use crate::base::rule::{Rule, partition_name};
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;
use crate::format::manifest::{Change, KeyspaceKind};
use crate::levels::manifest::STATE_BYTES_MAX;

use crate::engine::commit::order::OrderTurn;
use crate::engine::options::Mode;
use crate::engine::publish::catalog::{Catalog, KEYSPACE_BYTES};
use crate::engine::publish::edit::Edit;
use crate::engine::publish::keyspace::{Keyspace, is_change, merged, stored};
use crate::engine::publish::partitions::Partitions;

use super::Committer;

/// Kind and rule that a keyspace has to have.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Wanted<'r> {
    pub(in crate::engine) kind: KeyspaceKind,
    pub(in crate::engine) rule: Option<&'r Rule>,
}

impl<'r> Wanted<'r> {
    pub(in crate::engine) fn ordered(rule: Option<&'r Rule>) -> Wanted<'r> {
        Wanted { kind: KeyspaceKind::Ordered, rule }
    }
}

/// Ids of keyspaces are reserved this many at a time.
const IDS_RESERVED: u32 = 1024;
/// Bytes of a keyspace or partition in the manifest beside its name, at most.
const NAMED_BYTES: usize = 24;

impl Committer {
    /// Opens the keyspace or makes it; settings given replace those it has.
    ///
    /// # Errors
    /// `Mismatch` if it is divided.
    pub(crate) fn open_keyspace(&self, name: &str, given: &[(String, u64)]) -> Result<Arc<Keyspace>> {
        self.open(name, given, Wanted::ordered(None))
    }

    /// The same of one that is hashed.
    ///
    /// # Errors
    /// `Mismatch` if it is ordered.
    pub(crate) fn open_hashed(&self, name: &str, given: &[(String, u64)]) -> Result<Arc<Keyspace>> {
        self.open(name, given, Wanted { kind: KeyspaceKind::Hashed, rule: None })
    }

    /// The same of one that is divided by the rule.
    ///
    /// # Errors
    /// `Mismatch` if it is not, or by another rule.
    pub(crate) fn open_divided(
        &self,
        name: &str,
        given: &[(String, u64)],
        rule: &Rule,
    ) -> Result<Arc<Keyspace>> {
        self.open(name, given, Wanted::ordered(Some(rule)))
    }

    /// The same of one that is hashed and divided by the rule.
    ///
    /// # Errors
    /// `Mismatch` if it is ordered, not divided, or by another rule.
    pub(crate) fn open_hashed_divided(
        &self,
        name: &str,
        given: &[(String, u64)],
        rule: &Rule,
    ) -> Result<Arc<Keyspace>> {
        self.open(name, given, Wanted { kind: KeyspaceKind::Hashed, rule: Some(rule) })
    }

    fn open(&self, name: &str, given: &[(String, u64)], wanted: Wanted<'_>) -> Result<Arc<Keyspace>> {
        self.check_open()?;
        let found = self.catalog.names().get(name).cloned();
        if let Some(found) = found {
            found.check_kind(wanted.kind)?;
            found.check_rule(wanted.rule)?;
            if !is_change(&found.settings(), given)? {
                return Ok(found);
            }
        }
        if self.mode == Mode::ReadOnly {
            return match self.catalog.names().get(name) {
                Some(_) => Err(Error::ReadOnly),
                None => Err(Error::NoKeyspace { name: name.to_owned() }),
            };
        }
        self.open_keyspace_in(&mut self.take_order_turn()?, name, given, wanted)
    }

    /// The same in a turn that has come.
    pub(in crate::engine) fn open_keyspace_in(
        &self,
        turn: &mut OrderTurn<'_>,
        name: &str,
        given: &[(String, u64)],
        wanted: Wanted<'_>,
    ) -> Result<Arc<Keyspace>> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        let found = self.catalog.names().get(name).cloned();
        let Some(found) = found else { return self.create_keyspace(&mut catalog, name, given, wanted) };
        found.check_kind(wanted.kind)?;
        found.check_rule(wanted.rule)?;
        self.change_settings(&mut catalog, &found, given)?;
        Ok(found)
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
            match keyspace.partitions() {
                Some(partitions) => {
                    self.changed_trees.note_all(partitions.all().iter().map(|partition| partition.tree));
                }
                None => self.changed_trees.note(keyspace.tree),
            }
            // A merge may be due by the new ones that was not by the old.
            self.measure_pressure();
            self.work.moved.notify();
        }
        Ok(())
    }

    /// # Errors
    /// `Memory`, if there are as many keyspaces and tables as the budget has room for, `TooLarge`, if a
    /// manifest could not hold them and the names. Only dropping some, or merges, make room.
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
        Wanted { kind, rule }: Wanted<'_>,
    ) -> Result<Arc<Keyspace>> {
        let settings = merged(KeyspaceSettings::of_new(kind == KeyspaceKind::Hashed), given)?;
        let bit = if kind == KeyspaceKind::Hashed { KeyspaceId::HASHED } else { 0 };
        let id = KeyspaceId(catalog.next_keyspace | bit);
        let partition = PartitionId(catalog.state.next_partition);
        self.check_catalog_room(catalog, &[name.as_bytes()].into())?;
        let mut changes = vec![take_ids(catalog, u32::from(rule.is_none()))?];
        let stored = stored(&settings);
        changes.push(Change::Keyspace { id, kind, name: name.to_owned(), settings: stored });
        let keyspace = match rule {
            Some(rule) => {
                changes.push(Change::PartitionRule { keyspace: id, rule: rule.clone() });
                Keyspace::divided(id, name.to_owned(), (settings, rule.clone()), &self.catalog.states)?
            }
            None => {
                changes.push(Change::Partition { id: partition, keyspace: id, name: Box::default() });
                let tree = TreeId { keyspace: id, partition };
                Keyspace::new((id, tree), name.to_owned(), settings, &self.catalog.states)?
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

    /// It has a tree that was made just now.
    pub(super) fn note_tree(&self, keyspace: &Arc<Keyspace>) {
        self.catalog.by_tree.lock().insert(keyspace.tree, Arc::clone(keyspace));
        self.changed_trees.note(keyspace.tree);
    }

    /// The partition of a keyspace that is divided; it is made if it is not there.
    ///
    /// # Errors
    /// As [`Committer::partitions`].
    pub(crate) fn partition(&self, keyspace: &Keyspace, name: &[u8]) -> Result<Arc<Keyspace>> {
        Ok(self.partitions(keyspace, &[name])?.remove(0))
    }

    /// The partitions of those names; if any is not there, the missing ones are made together.
    ///
    /// # Errors
    /// `Invalid` for a name that no partition of it may have.
    pub(crate) fn partitions(&self, keyspace: &Keyspace, names: &[&[u8]]) -> Result<Vec<Arc<Keyspace>>> {
        self.check_open()?;
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("asked for of keyspaces that are divided");
        let found: Option<Vec<Arc<Keyspace>>> = names.iter().map(|name| partitions.get(name)).collect();
        match found.filter(|found| found.iter().all(|one| one.made().is_none())) {
            Some(found) => Ok(found),
            None => self.create_partitions(keyspace, names),
        }
    }

    /// The partitions of those names; those that are not there are made, in one edit.
    ///
    /// # Errors
    /// As [`Committer::partitions`].
    pub(crate) fn create_partitions(
        &self,
        keyspace: &Keyspace,
        names: &[&[u8]],
    ) -> Result<Vec<Arc<Keyspace>>> {
        let rule = &keyspace.partitions().expect("it is divided").rule;
        if !names.iter().all(|name| rule.has_name(name)) {
            return Err(Error::Invalid { faults: vec![rule.names_are()] });
        }
        if self.mode == Mode::ReadOnly {
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

    /// The same in a turn that has come.
    pub(in crate::engine) fn create_partitions_in(
        &self,
        turn: &mut OrderTurn<'_>,
        keyspace: &Keyspace,
        names: &[&[u8]],
    ) -> Result<Vec<Arc<Keyspace>>> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("it is divided");
        let missing: BTreeSet<&[u8]> =
            names.iter().copied().filter(|name| partitions.get(name).is_none()).collect();
        if missing.is_empty() {
            // Records of the log may have made some of them.
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
                changes.push(Change::Partition { id, keyspace: keyspace.id, name: name.into() });
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

    /// Drops the partitions whose names come before one, and has later ones of such names dropped with the
    /// making of others; says how many there were.
    ///
    /// # Errors
    /// `Invalid` for a name that no partition of it may have.
    pub(crate) fn retain_from(&self, keyspace: &Keyspace, name: &[u8]) -> Result<u64> {
        self.check_open()?;
        self.check_writable()?;
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("asked for of keyspaces that are divided");
        if !partitions.rule.has_name(name) {
            return Err(Error::Invalid { faults: vec![partitions.rule.names_are()] });
        }
        self.retain_from_in(&mut self.take_order_turn()?, keyspace, name)
    }

    /// The same in a turn that has come.
    pub(in crate::engine) fn retain_from_in(
        &self,
        turn: &mut OrderTurn<'_>,
        keyspace: &Keyspace,
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
        let mut changes = vec![Change::RetainFrom { keyspace: keyspace.id, name: name.into() }];
        changes.extend(found.iter().map(drop_of));
        self.edit_taken(&mut catalog, Edit::of(changes))?;
        partitions.set_retained_from(name);
        self.forget_partitions(partitions, &found);
        drop(catalog);
        self.retry_when_freed();
        self.measure_pressure();
        Ok(found.len() as u64)
    }

    /// Drops those partitions of a keyspace that is divided that there are, in one edit; says how many.
    pub(crate) fn drop_partitions(&self, keyspace: &Keyspace, names: &[&[u8]]) -> Result<u64> {
        self.check_open()?;
        self.check_writable()?;
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("asked for of keyspaces that are divided");
        if names.iter().all(|name| partitions.get(name).is_none()) {
            return Ok(0);
        }
        self.drop_partitions_in(&mut self.take_order_turn()?, keyspace, names)
    }

    /// The same in a turn that has come.
    pub(in crate::engine) fn drop_partitions_in(
        &self,
        turn: &mut OrderTurn<'_>,
        keyspace: &Keyspace,
        names: &[&[u8]],
    ) -> Result<u64> {
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        keyspace.check_live()?;
        let partitions = keyspace.partitions().expect("it is divided");
        let names: BTreeSet<&[u8]> = names.iter().copied().collect();
        let found: Vec<Arc<Keyspace>> = names.into_iter().filter_map(|name| partitions.get(name)).collect();
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

    /// These partitions are gone.
    fn forget_partitions(&self, partitions: &Partitions, dropped: &[Arc<Keyspace>]) {
        for partition in dropped {
            self.forget(partition);
            partitions.remove(partition.partition_name().expect("it is a partition"));
        }
    }

    /// Its tree is gone.
    fn forget(&self, keyspace: &Keyspace) {
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

    /// The same in a turn that has come.
    pub(in crate::engine) fn drop_keyspace_in(&self, turn: &mut OrderTurn<'_>, name: &str) -> Result<()> {
        let keyspace = self.keyspace(name)?;
        turn.make_durable()?;
        let mut catalog = self.catalog.take(&*self.env.threads);
        self.edit_taken(&mut catalog, Edit::of(vec![Change::DropKeyspace { id: keyspace.id }]))?;
        self.forget(&keyspace);
        keyspace.partitions().into_iter().flat_map(Partitions::all).for_each(|one| self.forget(&one));
        self.catalog.names().remove(name);
        drop(catalog);
        self.retry_when_freed();
        self.measure_pressure();
        Ok(())
    }
}

/// # Errors
/// `TooLarge` if a manifest that has a state of so many bytes could not be written anew with these names.
fn check_manifest_room(state_bytes: u64, names: &BTreeSet<&[u8]>) -> Result<()> {
    let names_bytes: usize = names.iter().map(|name| name.len() + NAMED_BYTES).sum();
    let (limit, given) = (STATE_BYTES_MAX, state_bytes + names_bytes as u64);
    if given > limit { Err(Error::TooLarge { what: "manifest", limit, given }) } else { Ok(()) }
}

fn drop_of(partition: &Arc<Keyspace>) -> Change {
    Change::DropPartition { id: partition.tree.partition }
}

/// Partitions that are wanted no more, to be dropped when others are made, without those that are asked for
/// too. Where one that is made is itself wanted no more, none: two writers that make such ones would else
/// drop each other's for ever.
pub(super) fn unwanted_beside(
    partitions: &Partitions,
    made: &BTreeSet<&[u8]>,
    names: &[&[u8]],
) -> Vec<Arc<Keyspace>> {
    let from = partitions.retained_from();
    if made.first().is_none_or(|first| *first < &*from) {
        return Vec::new();
    }
    let asked: BTreeSet<&[u8]> = names.iter().copied().filter(|name| *name < &*from).collect();
    let mut unwanted = partitions.before(&from);
    unwanted.retain(|one| one.partition_name().is_none_or(|name| !asked.contains(name)));
    unwanted
}

/// The change that takes ids for some partitions, and reserves some for keyspaces if too few are left.
///
/// # Errors
/// `TooLarge` when there are no more.
pub(super) fn take_ids(catalog: &Catalog, count: u32) -> Result<Change> {
    let (keyspace, next) = (catalog.next_keyspace, catalog.state.next_partition.saturating_add(count));
    let limit = !KeyspaceId::HASHED - IDS_RESERVED;
    if keyspace > limit || next > limit {
        let given = u64::from(keyspace.max(next));
        return Err(Error::TooLarge { what: "number of keyspaces", limit: limit.into(), given });
    }
    let reserved = catalog.state.next_keyspace;
    let next_keyspace = if keyspace < reserved { reserved } else { keyspace + IDS_RESERVED };
    Ok(Change::Ids { next_keyspace, next_partition: next })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A manifest that could not be written anew is never made.
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
