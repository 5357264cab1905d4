//! Partitions created by log records that the manifest does not have yet.
//!
//! The manifest's next partition id identifies them: the manifest has not recorded any id from there on, and
//! a smaller id that it does not have belongs to a dropped partition. They are collected from records in
//! order, while the manifest's state does not change.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{Error, Result};
use crate::base::id::{FileName, KeyspaceId, PartitionId, TreeId};
use crate::format::log::{Items, MadePartition};
use crate::format::manifest::{ManifestChange, ManifestState};

/// See the module.
#[derive(Clone, Default, Debug)]
pub(crate) struct MadePartitions {
    by_id: BTreeMap<PartitionId, (KeyspaceId, Box<[u8]>)>,
    names: BTreeSet<(KeyspaceId, Box<[u8]>)>,
}

impl MadePartitions {
    /// Collects the partitions that a record of the log `file` creates.
    ///
    /// # Errors
    /// `Corrupt` for a partition that no store creates: its keyspace is not divided by key, its name does not
    /// fit the rule, or another partition has its name or its id.
    pub(crate) fn note(&mut self, state: &ManifestState, file: FileName, items: &Items<'_>) -> Result<()> {
        for MadePartition { tree, name } in items.partitions() {
            let TreeId { keyspace, partition } = tree;
            if partition.0 < state.next_partition {
                continue;
            }
            let stored: (KeyspaceId, Box<[u8]>) = (keyspace, name.into());
            if self.by_id.get(&partition) == Some(&stored) {
                continue;
            }
            let rule = state.keyspaces.get(&keyspace).and_then(|keyspace| keyspace.rule.as_ref());
            let is_given = rule.is_some_and(|rule| rule.is_by_key() && rule.has_name(name));
            if !is_given
                || state.has_name(keyspace, name)
                || self.by_id.contains_key(&partition)
                || !self.names.insert(stored.clone())
            {
                let what = "a partition that a record makes";
                return Err(Error::corrupt(file, 0, what, "a new one of its keyspace", tree));
            }
            self.by_id.insert(partition, stored);
        }
        Ok(())
    }

    pub(crate) fn contains(&self, tree: TreeId) -> bool {
        self.by_id.get(&tree.partition).is_some_and(|(keyspace, _)| *keyspace == tree.keyspace)
    }

    /// Checks the tree of an item. For an unknown partition `is_missing` is called first, because its error
    /// may describe the damage better.
    ///
    /// # Errors
    /// `Corrupt` for a tree that neither the manifest nor a record can have created; the error of
    /// `is_missing`.
    pub(crate) fn check(
        &self,
        state: &ManifestState,
        file: FileName,
        tree: TreeId,
        is_missing: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let corrupt = |what, limit: u32, found: u32| Err(Error::corrupt(file, 0, what, limit, found));
        if tree.keyspace.number() >= state.next_keyspace {
            return corrupt("the keyspace of an item", state.next_keyspace, tree.keyspace.0);
        }
        if state.has_tree(tree) || self.contains(tree) {
            return Ok(());
        }
        is_missing()?;
        if tree.partition.0 >= state.next_partition {
            return corrupt("the partition of an item", state.next_partition, tree.partition.0);
        }
        Ok(())
    }

    /// All collected partitions, as trees with names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TreeId, &[u8])> {
        self.by_id.iter().map(|(partition, (keyspace, name))| {
            (TreeId { keyspace: *keyspace, partition: *partition }, &**name)
        })
    }

    /// The edits that create the partitions in the manifest state `state`.
    pub(crate) fn changes(&self, state: &ManifestState) -> Vec<ManifestChange> {
        changes_of_made(state.next_keyspace, self.iter())
    }
}

/// The edits that create partitions, and the edit that reserves their ids.
pub(crate) fn changes_of_made<'m>(
    next_keyspace: u32,
    made: impl Iterator<Item = (TreeId, &'m [u8])>,
) -> Vec<ManifestChange> {
    let mut changes = Vec::new();
    let mut next_partition = 0;
    for (tree, name) in made {
        next_partition = next_partition.max(tree.partition.0.saturating_add(1));
        changes.push(ManifestChange::Partition {
            id: tree.partition,
            keyspace: tree.keyspace,
            name: name.into(),
        });
    }
    if next_partition > 0 {
        changes.insert(0, ManifestChange::Ids { next_keyspace, next_partition });
    }
    changes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::{FileKind, ItemKind};
    use crate::base::rule::Rule;
    use crate::format::log::{put_item, put_partition};
    use crate::format::manifest::KeyspaceKind;

    const KEYSPACE: KeyspaceId = KeyspaceId(1);

    /// A keyspace divided by prefixes of two bytes, with one partition; the next id is 7.
    fn state() -> ManifestState {
        let mut state = ManifestState::default();
        let settings = Vec::new();
        let name = "k".to_owned();
        let changes = [
            ManifestChange::Ids { next_keyspace: 2, next_partition: 7 },
            ManifestChange::Keyspace { id: KEYSPACE, kind: KeyspaceKind::Ordered, name, settings },
            ManifestChange::PartitionRule { keyspace: KEYSPACE, rule: Rule::Prefix(2) },
            ManifestChange::Partition { id: PartitionId(3), keyspace: KEYSPACE, name: b"aa"[..].into() },
        ];
        state.apply_edit(&changes).expect("consistent");
        state
    }

    fn note(made: &mut MadePartitions, entries: &[(u32, u32, &[u8])]) -> Result<()> {
        let mut payload = Vec::new();
        for (keyspace, partition, name) in entries {
            let tree = TreeId { keyspace: KeyspaceId(*keyspace), partition: PartitionId(*partition) };
            put_partition(&mut payload, MadePartition { tree, name });
        }
        let tree = TreeId { keyspace: KEYSPACE, partition: PartitionId(3) };
        put_item(&mut payload, tree, ItemKind::Delete, b"aa", b"");
        let items = Items::new(&payload).expect("decodes");
        made.note(&state(), FileName::new(FileKind::Log, 2), &items)
    }

    /// Entries of partitions that the manifest had, and entries already collected, are skipped. Edits for the
    /// rest apply to the state.
    #[test]
    fn new_ones_are_made_once() {
        let mut made = MadePartitions::default();
        note(&mut made, &[(1, 3, b"aa"), (1, 4, b"bb"), (9, 6, b"of no keyspace")]).expect("had once");
        assert!(made.changes(&state()).is_empty());
        note(&mut made, &[(1, 9, b"bb"), (1, 7, b"c")]).expect("new");
        note(&mut made, &[(1, 7, b"c"), (1, 9, b"bb")]).expect("noted before");
        let mut after = state();
        after.apply_edit(&made.changes(&state())).expect("they fit");
        assert_eq!((after.next_partition, after.partitions.len()), (10, 3));
        let file = FileName::new(FileKind::Log, 2);
        let check = |partition, keyspace| {
            let tree = TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(partition) };
            made.check(&state(), file, tree, || Ok(())).is_ok()
        };
        assert!(check(9, 1) && check(7, 1) && check(6, 1));
        assert!(!check(8, 1) && !check(10, 1) && !check(3, 2));
    }

    /// Records that no store writes are refused.
    #[test]
    fn impossible_ones_are_refused() {
        let of_another: &[(u32, u32, &[u8])] = &[(1, 7, b"bb"), (1, 8, b"bb")];
        let one_id: &[(u32, u32, &[u8])] = &[(1, 7, b"bb"), (1, 7, b"cc")];
        let singles: [&[(u32, u32, &[u8])]; 3] = [&[(1, 7, b"aa")], &[(1, 7, b"long")], &[(2, 7, b"bb")]];
        for entries in singles.into_iter().chain([of_another, one_id]) {
            let refused = note(&mut MadePartitions::default(), entries);
            assert!(matches!(refused, Err(Error::Corrupt(_))), "{entries:?}: {refused:?}");
        }
        let mut made = MadePartitions::default();
        note(&mut made, &[(1, u32::MAX, b"bb")]).expect("its id is looked at when it is made");
        assert!(state().apply_edit(&made.changes(&state())).is_err());
    }
}
