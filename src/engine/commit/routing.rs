//! Routes the items of keyspaces that are divided by keys to partitions.
//!
//! An unrouted batch holds such items under the keyspace's own id ([`PartitionId::OF_KEY`]). Partitions are
//! assigned at commit. A put creates its partition if that is missing. A delete in a missing partition is
//! left out. A range delete goes to each partition that may have keys of the range. A batch with such deletes
//! depends on the set of names: the write leader refuses it if a partition was made or dropped meanwhile, and
//! it is routed again.
//!
//! A put that makes a partition records it in the batch's own log record, and the manifest learns of it with
//! its next edit. So making a partition costs no sync. Until that edit, every record with items of the
//! partition also makes it: any of them that survives a crash makes it again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::{Error, Result};
use crate::base::id::{ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::sync::Arc;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::partitions::Partitions;
use crate::format::log;
use crate::memtable::{BatchSize, sorted_batch_bytes};
use crate::write::batch::{BatchItems, Keyspaces, Writable};
use crate::write::writer::Until;

use super::Committer;
use super::keyspaces::{take_ids, unwanted_beside};

/// Items to route, their keyspaces, and the keyspaces among them that keys divide.
pub(crate) struct Unrouted<'b> {
    pub(crate) items: &'b BatchItems,
    pub(crate) keyspaces: &'b Keyspaces,
    pub(crate) divided: &'b [Arc<KeyspaceState>],
}

/// A keyspace, and the name of one of its partitions.
type PartitionTarget<'b> = (&'b Arc<KeyspaceState>, Cow<'b, [u8]>);

/// The count of name changes when a batch was routed; the batch is refused once the count differs.
#[derive(Debug)]
struct SameNames {
    keyspace: Arc<KeyspaceState>,
    changes: u64,
}

impl Writable for SameNames {
    fn tree(&self) -> TreeId {
        self.keyspace.tree
    }

    fn check_live(&self) -> Result<()> {
        self.keyspace.check_live()?;
        if partitions(&self.keyspace).changes() == self.changes {
            return Ok(());
        }
        Err(Error::Dropped { name: self.keyspace.full_name() })
    }
}

fn partitions(keyspace: &KeyspaceState) -> &Partitions {
    keyspace.partitions().expect("it is divided")
}

impl Committer {
    /// Commits items, some of them in keyspaces that keys divide.
    pub(crate) fn write_routed(&self, unrouted: &Unrouted<'_>, until: Option<Until>) -> Result<()> {
        loop {
            let (items, keyspaces) = self.route(unrouted)?;
            match self.write_batch(&items, &keyspaces, until) {
                Err(error) if self.is_to_be_routed_anew(unrouted.keyspaces, &error) => {}
                written => return written,
            }
        }
    }

    /// Whether a batch was refused because partitions were made or dropped since it was routed.
    pub(crate) fn is_to_be_routed_anew(&self, keyspaces: &Keyspaces, error: &Error) -> bool {
        matches!(error, Error::Dropped { .. }) && keyspaces.check_live().is_ok() && self.check_open().is_ok()
    }

    /// Assigns items to their partitions and creates missing partitions, unless the batch is too large.
    pub(crate) fn route(&self, unrouted: &Unrouted<'_>) -> Result<(Arc<BatchItems>, Keyspaces)> {
        self.check_routed(unrouted.items, &unrouted.size()?)?;
        loop {
            unrouted.keyspaces.check_live()?;
            self.create_missing(unrouted)?;
            if let Some(routed) = try_route(unrouted)? {
                return Ok(routed);
            }
        }
    }

    /// # Errors
    /// `TooLarge` for a batch that no generation has room for.
    pub(crate) fn check_routed(&self, items: &BatchItems, size: &RoutedSize) -> Result<()> {
        self.budget.check_batch(&size.of(items)).map(drop)
    }

    fn create_missing(&self, unrouted: &Unrouted<'_>) -> Result<()> {
        let mut missing: BTreeMap<KeyspaceId, BTreeSet<Cow<'_, [u8]>>> = BTreeMap::new();
        for item in encoded(unrouted.items).filter(|item| item.kind == ItemKind::Put) {
            if let Some((keyspace, name)) = unrouted.partition_of(&item)?
                && partitions(keyspace).get(&name).is_none()
            {
                missing.entry(keyspace.id).or_default().insert(name);
            }
        }
        for (id, names) in missing {
            let keyspace = unrouted.keyspace(id).expect("it was found by its id");
            let names: BTreeSet<&[u8]> = names.iter().map(|name| &**name).collect();
            if !self.make_in_log(keyspace, &names)? {
                self.create_partitions(keyspace, &names.into_iter().collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Makes the missing ones of the named partitions without an edit; the batch's log records will make
    /// them. Returns `false` if only an edit can make them.
    fn make_in_log(&self, keyspace: &KeyspaceState, names: &BTreeSet<&[u8]>) -> Result<bool> {
        self.check_open()?;
        self.check_writable()?;
        keyspace.check_live()?;
        let partitions = partitions(keyspace);
        if !names.iter().all(|name| partitions.rule.has_name(name)) {
            return Ok(false);
        }
        let mut catalog = self.catalog.take(&*self.env.threads);
        keyspace.check_live()?;
        let is_missing = |name: &&[u8]| partitions.get(name).is_none();
        let missing: BTreeSet<&[u8]> = names.iter().copied().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(true);
        }
        if !catalog.has_unwritten_room(&missing) || !unwanted_beside(partitions, &missing, &[]).is_empty() {
            return Ok(false);
        }
        self.check_catalog_room(&catalog, &missing)?;
        take_ids(&catalog, missing.len() as u32)?;
        let ids = (catalog.state.next_partition..).map(PartitionId);
        let made = |(name, id)| keyspace.partition(id, name, &self.catalog.states).map(Arc::new);
        let made: Vec<Arc<KeyspaceState>> = missing.into_iter().zip(ids).map(made).collect::<Result<_>>()?;
        self.make_unwritten(&mut catalog, &made);
        for partition in &made {
            self.note_tree(partition);
            partitions.add(partition);
        }
        Ok(true)
    }
}

fn encoded(items: &BatchItems) -> log::Items<'_> {
    log::Items::encoded(items.payload(), items.count() as u64)
}

impl<'b> Unrouted<'b> {
    fn keyspace(&self, id: KeyspaceId) -> Option<&'b Arc<KeyspaceState>> {
        self.divided.iter().find(|keyspace| keyspace.id == id)
    }

    /// The keyspace of an item, if the item must be routed.
    fn divided_of(&self, item: &log::Item<'_>) -> Option<&'b Arc<KeyspaceState>> {
        let is_routed = item.tree.partition == PartitionId::OF_KEY;
        is_routed.then(|| self.keyspace(item.tree.keyspace)).flatten()
    }

    /// The keyspace and partition name of an item that must be routed. The name is empty for a range delete:
    /// its bounds are not keys of items, so the rule's function is not called for them.
    fn partition_of(&self, item: &log::Item<'b>) -> Result<Option<PartitionTarget<'b>>> {
        let Some(keyspace) = self.divided_of(item) else { return Ok(None) };
        if item.kind == ItemKind::DeleteRange {
            partitions(keyspace).rule.check_routed()?;
            return Ok(Some((keyspace, Cow::default())));
        }
        Ok(Some((keyspace, keyspace.name_of(item.key)?)))
    }

    /// See [`RoutedSize`].
    fn size(&self) -> Result<RoutedSize> {
        let mut size = RoutedSize::default();
        for item in encoded(self.items) {
            if let Some(keyspace) = self.divided_of(&item) {
                size.note(keyspace, (item.kind, item.key, item.value))?;
            }
        }
        Ok(size)
    }
}

/// Upper bounds of a batch's size after routing. They hold unless partitions are made before that.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutedSize {
    keyspaces: BTreeMap<KeyspaceId, RoutedItems>,
}

/// The part of [`RoutedSize`] that one keyspace has.
#[derive(Clone, Debug, Default)]
struct RoutedItems {
    /// Names of the partitions that have items.
    names: BTreeSet<Box<[u8]>>,
    /// Range deletes, and the range tombstones that they become.
    ranges: usize,
    tombstones: usize,
}

impl RoutedSize {
    /// Counts an item that is added to the batch, in a keyspace that keys divide.
    ///
    /// # Errors
    /// `Unrouted` if the rule's function has no code.
    pub(crate) fn note(
        &mut self,
        keyspace: &KeyspaceState,
        (kind, key, value): (ItemKind, &[u8], &[u8]),
    ) -> Result<()> {
        let partitions = partitions(keyspace);
        let RoutedItems { names, ranges, tombstones } = self.keyspaces.entry(keyspace.id).or_default();
        if kind == ItemKind::DeleteRange {
            let there = partitions.of_range((key, value)).into_iter();
            names.extend(there.filter_map(|one| one.partition_name().map(Box::from)));
            *ranges += 1;
            *tombstones += names.range::<[u8], _>(partitions.names_of((key, value))).count();
        } else {
            let name = keyspace.name_of(key)?;
            if !names.contains(&*name) {
                names.insert(name[..].into());
                // The earlier range deletes may cover this partition too.
                *tombstones += *ranges;
            }
        }
        Ok(())
    }

    /// Memory that the batch with these items takes.
    pub(crate) fn memory_bytes(&self, items: &BatchItems) -> usize {
        sorted_batch_bytes(&self.of(items))
    }

    fn of(&self, items: &BatchItems) -> BatchSize {
        let mut size = items.size();
        for RoutedItems { names, ranges, tombstones } in self.keyspaces.values() {
            size.items = size.items - ranges + tombstones;
            size.ranges = size.ranges - ranges + tombstones;
            size.trees += names.len();
        }
        size
    }
}

/// Routes the items; `None` if a partition was made or dropped meanwhile.
fn try_route(unrouted: &Unrouted<'_>) -> Result<Option<(Arc<BatchItems>, Keyspaces)>> {
    let changes: Vec<u64> = unrouted.divided.iter().map(|one| partitions(one).changes()).collect();
    let (mut items, mut keyspaces) = (BatchItems::default(), unrouted.keyspaces.clone());
    let mut unwritten: BTreeMap<PartitionId, Arc<KeyspaceState>> = BTreeMap::new();
    let mut hangs_on_names = false;
    for item in encoded(unrouted.items) {
        let Some((keyspace, name)) = unrouted.partition_of(&item)? else {
            items.push(item.tree, item.kind, item.key, item.value)?;
            continue;
        };
        let found = match item.kind {
            ItemKind::DeleteRange => partitions(keyspace).of_range((item.key, item.value)),
            _ => partitions(keyspace).get(&name).into_iter().collect(),
        };
        match item.kind {
            ItemKind::Put if found.is_empty() => return Ok(None),
            ItemKind::Put => {}
            ItemKind::Delete => hangs_on_names |= found.is_empty(),
            ItemKind::DeleteRange => hangs_on_names = true,
        }
        let last = found.len().saturating_sub(1);
        let partitions_in_order = partitions(keyspace).rule.is_in_key_order();
        for (index, partition) in found.into_iter().enumerate() {
            let (mut key, mut value) = (item.key, item.value);
            if item.kind == ItemKind::DeleteRange && partitions_in_order {
                // Partitions between the first and the last lie wholly in the range.
                key = if index == 0 { key } else { &[] };
                value = if index == last { value } else { &[] };
            }
            items.push(partition.tree, item.kind, key, value)?;
            if partition.made().is_some() {
                unwritten.insert(partition.tree.partition, Arc::clone(&partition));
            }
            keyspaces.add(partition);
        }
    }
    for (keyspace, changes) in unrouted.divided.iter().zip(changes) {
        if partitions(keyspace).changes() != changes {
            return Ok(None);
        }
        if hangs_on_names {
            keyspaces.replace(Arc::new(SameNames { keyspace: Arc::clone(keyspace), changes }));
        }
    }
    items.make_partitions(unwritten.values().filter_map(|partition| partition.made()));
    Ok(Some((Arc::new(items), keyspaces)))
}

#[cfg(all(test, not(loom)))]
pub(in crate::engine) mod tests {
    use super::*;
    use crate::base::rule::Rule;
    use crate::engine::publish::edit::Edit;
    use crate::engine::tests::run;
    use crate::engine::{GetMode, NoTrace};
    use crate::format::manifest::ManifestChange;
    use crate::io::sim::SimDisk;
    use crate::levels::manifest::UNWRITTEN_EDIT_BYTES;

    /// A batch that depends on the set of partitions is refused once the set differs. Routed again, it covers
    /// the new partitions too. An independent batch is written.
    #[test]
    fn batches_are_routed_again_when_names_change() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let divided = store.open_divided("d", &[], &Rule::Prefix(1)).expect("made");
        let put = |key: &[u8]| {
            let (mut items, mut keyspaces) = (BatchItems::default(), Keyspaces::default());
            items.push(divided.tree, ItemKind::Put, key, b"value").expect("small");
            keyspaces.add(Arc::clone(&divided) as Arc<dyn Writable>);
            (items, keyspaces)
        };
        let has = |key: &[u8]| {
            let found =
                store.get(&divided, (key, GetMode::Value), None, &mut NoTrace, |value| value.is_some());
            found.expect("no fault")
        };
        let of_all = (ItemKind::DeleteRange, &b""[..]);
        let of_none = (ItemKind::Delete, &b"c1"[..]);
        for (number, (kind, key)) in [of_all, of_none].into_iter().enumerate() {
            let (mut items, keyspaces) = put(b"a1");
            items.push(divided.tree, kind, key, &[]).expect("small");
            let divided_only = [Arc::clone(&divided)];
            let unrouted = Unrouted { items: &items, keyspaces: &keyspaces, divided: &divided_only };
            let (routed, marks) = store.route(&unrouted).expect("no fault");
            // This write comes in between.
            let (between, of_between) = put(if number == 0 { b"b1" } else { b"c1" });
            let other = Unrouted { items: &between, keyspaces: &of_between, divided: &divided_only };
            let (other, of_other) = store.route(&other).expect("no fault");
            store.write_batch(&other, &of_other, None).expect("it depends on no names");
            let refused = store.write_batch(&routed, &marks, None).expect_err("names are others");
            assert!(store.is_to_be_routed_anew(&keyspaces, &refused));
            store.write_routed(&unrouted, None).expect("no fault");
            assert!(!has(b"b1") && !has(b"c1"), "items between the bounds were deleted");
        }
        assert!(!has(b"zz"));
        store.close().expect("closes");
    }

    /// Writes a key of a keyspace that keys divide.
    pub(in crate::engine) fn write(store: &Committer, divided: &Arc<KeyspaceState>, key: &[u8]) {
        let (mut items, mut keyspaces) = (BatchItems::default(), Keyspaces::default());
        items.push(divided.tree, ItemKind::Put, key, b"value").expect("small");
        keyspaces.add(Arc::clone(divided) as Arc<dyn Writable>);
        let divided_only = [Arc::clone(divided)];
        let unrouted = Unrouted { items: &items, keyspaces: &keyspaces, divided: &divided_only };
        store.write_routed(&unrouted, None).expect("no fault");
    }

    fn unwritten_of(store: &Committer) -> Vec<usize> {
        let catalog = store.catalog.take(&*store.env.threads);
        catalog.unwritten.iter().filter_map(|one| one.partition_name()).map(<[u8]>::len).collect()
    }

    /// The manifest is told of partitions before their count or the bytes of their names exceed the limits.
    #[test]
    fn unwritten_partitions_are_bounded() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 4 << 20).expect("opens");
        for (name, name_bytes, most) in [("short", 2, 64), ("long", 100, 10)] {
            let divided = store.open_divided(name, &[], &Rule::Prefix(name_bytes)).expect("made");
            let mut seen = BTreeSet::new();
            for number in 0..150u8 {
                write(&store, &divided, &[&[number][..], &[7; 120]].concat());
                let names = unwritten_of(&store);
                assert!(names.len() <= 64 && names.iter().sum::<usize>() <= 1024, "{names:?}");
                seen.insert(names.len());
            }
            assert!(seen.iter().copied().eq(0..=most), "{seen:?}");
            assert_eq!(divided.partitions().expect("it is divided").names().len(), 150);
        }
        store.close().expect("closes");
    }

    /// If the manifest has no room beside its reserve, an edit makes the partition; the edit finds room or
    /// fails.
    #[test]
    fn partitions_take_no_reserve() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let divided = store.open_divided("d", &[], &Rule::Prefix(1)).expect("made");
        write(&store, &divided, b"a1");
        assert_eq!(unwritten_of(&store), [1]);
        {
            let mut catalog = store.catalog.take(&*store.env.threads);
            while catalog.manifest.has_room_for(UNWRITTEN_EDIT_BYTES) {
                let sequence = catalog.state.flushed;
                let edit = Edit::of(vec![ManifestChange::Flushed { sequence }; 4]);
                store.edit_taken(&mut catalog, edit).expect("no fault");
            }
            assert!(!catalog.manifest.must_rewrite(&catalog.state));
        }
        write(&store, &divided, b"b1");
        assert!(unwritten_of(&store).is_empty());
        store.close().expect("closes");
    }

    /// A manifest keeps the feature bit of such records when the last rule by keys is dropped, because logs
    /// still have such records.
    #[test]
    fn manifests_keep_the_feature_of_logs() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 1, 1 << 20).expect("opens");
        let divided = store.open_divided("d", &[], &Rule::Prefix(1)).expect("made");
        write(&store, &divided, b"a1");
        drop(divided);
        store.drop_keyspace("d").expect("no fault");
        {
            let mut catalog = store.catalog.take(&*store.env.threads);
            let before = catalog.manifest.file();
            store.rewrite_manifest(&mut catalog, &[]).expect("no fault");
            assert!(catalog.manifest.file() != before && catalog.manifest.admits_made_partitions());
        }
        store.close().expect("closes");
    }
}
