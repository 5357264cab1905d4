//! A keyspace, as its handles and the workers share it, and its settings as the manifest keeps them.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds};

use crate::base::error::{Error, Result};
use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::place::given_key;
use crate::base::rule::{KeyBounds, Rule, partition_name};
use crate::base::settings::KeyspaceSettings;
use crate::base::step::Direction;
use crate::base::sync::{Arc, AtomicBool, Mutex, Ordering};
use crate::format::log::MadePartition;
use crate::format::manifest::{KeyspaceKind, Settings};
use crate::io::fork::{FORKED, ForkByte, ForkBytes};
use crate::levels::version::Version;
use crate::read::scan::ScanRange;
use crate::write::batch::Writable;

use super::compaction_policy::{TreeWriteStats, is_adaptive};
use super::partitions::Partitions;
use super::usual::Usual;

/// A keyspace, or a partition of one, as its handles share it.
#[derive(Debug)]
pub(crate) struct KeyspaceState {
    pub(crate) id: KeyspaceId,
    /// The name of the keyspace, also for a partition.
    pub(crate) name: String,
    /// The tree that holds its items. A keyspace that is divided has no tree of its own; its `tree` has
    /// [`PartitionId::OF_KEY`] instead of a partition.
    pub(crate) tree: TreeId,
    role: PartitionRole,
    /// One of the values below, [`FORKED`] in a forked process.
    state: ForkByte,
    /// Partitions share the settings of their keyspace.
    settings: Arc<Mutex<KeyspaceSettings>>,
    pub(in crate::engine) write_stats: TreeWriteStats,
    /// The usual length and direction of its ranges.
    pub(crate) usual: Usual,
}

/// The three kinds of [`KeyspaceState`].
#[derive(Debug)]
enum PartitionRole {
    /// A keyspace that is not divided.
    Whole,
    Divided(Box<Partitions>),
    Partition(Partition),
}

/// A partition of a keyspace that is divided.
#[derive(Debug)]
struct Partition {
    name: Box<[u8]>,
    /// The manifest does not have the partition yet: records with its items make it.
    is_unwritten: AtomicBool,
}

const LIVE: u8 = 1;
const DROPPED: u8 = 2;
const CLOSED: u8 = 3;
/// State of a stand-in for a keyspace that is read as of another store's snapshot.
const OF_ANOTHER_STORE: u8 = 4;

impl KeyspaceState {
    /// # Errors
    /// `Io` if there is no memory for its state.
    pub(crate) fn new(
        (id, tree): (KeyspaceId, TreeId),
        name: String,
        settings: KeyspaceSettings,
        bytes: &ForkBytes,
    ) -> Result<KeyspaceState> {
        let state = bytes.byte(LIVE)?;
        let (settings, write_stats, usual) =
            (Arc::new(Mutex::new(settings)), TreeWriteStats::new(), Usual::new());
        Ok(KeyspaceState { id, name, tree, role: PartitionRole::Whole, state, settings, write_stats, usual })
    }

    /// A keyspace that is divided by the rule, without partitions.
    ///
    /// # Errors
    /// As [`KeyspaceState::new`].
    pub(crate) fn divided(
        id: KeyspaceId,
        name: String,
        (settings, rule): (KeyspaceSettings, Rule),
        bytes: &ForkBytes,
    ) -> Result<KeyspaceState> {
        let tree = TreeId { keyspace: id, partition: PartitionId::OF_KEY };
        let role = PartitionRole::Divided(Box::new(Partitions::new(rule)));
        Ok(KeyspaceState { role, ..KeyspaceState::new((id, tree), name, settings, bytes)? })
    }

    /// A partition of this divided keyspace; it is not among [`KeyspaceState::partitions`] yet.
    ///
    /// # Errors
    /// As [`KeyspaceState::new`].
    pub(crate) fn partition(&self, id: PartitionId, name: &[u8], bytes: &ForkBytes) -> Result<KeyspaceState> {
        let (write_stats, usual, settings) =
            (TreeWriteStats::new(), Usual::new(), Arc::clone(&self.settings));
        let tree = TreeId { keyspace: self.id, partition: id };
        let role =
            PartitionRole::Partition(Partition { name: name.into(), is_unwritten: AtomicBool::new(false) });
        let state = bytes.byte(LIVE)?;
        Ok(KeyspaceState {
            id: self.id,
            name: self.name.clone(),
            tree,
            role,
            state,
            settings,
            write_stats,
            usual,
        })
    }

    /// Its partitions, if it is divided.
    pub(crate) fn partitions(&self) -> Option<&Partitions> {
        if let PartitionRole::Divided(partitions) = &self.role { Some(partitions) } else { None }
    }

    /// # Errors
    /// `Mismatch` unless it is of that kind.
    pub(crate) fn check_kind(&self, given: KeyspaceKind) -> Result<()> {
        let stored = if self.id.is_hashed() { KeyspaceKind::Hashed } else { KeyspaceKind::Ordered };
        let text = |kind| if kind == KeyspaceKind::Hashed { "hashed" } else { "ordered" }.to_owned();
        let mismatch = || Error::Mismatch { name: "kind", stored: text(stored), given: text(given) };
        if stored == given { Ok(()) } else { Err(mismatch()) }
    }

    /// # Errors
    /// `Mismatch` unless it is hashed.
    pub(crate) fn check_is_hashed(&self) -> Result<()> {
        self.check_kind(KeyspaceKind::Hashed)
    }

    /// Takes over the code of the given rule, if the stored rule has none.
    ///
    /// # Errors
    /// `Mismatch` unless it is divided by that rule. Without a given rule it may be divided by keys, or not
    /// divided.
    pub(crate) fn check_rule(&self, given: Option<&Rule>) -> Result<()> {
        let stored = self.rule();
        if stored == given || given.is_none() && stored.is_some_and(Rule::is_by_key) {
            if let (Some(stored), Some(given)) = (stored, given) {
                stored.take_code(given);
            }
            return Ok(());
        }
        let text = |rule: Option<&Rule>| rule.map_or_else(|| "none".to_owned(), ToString::to_string);
        Err(Error::Mismatch { name: "partitioning", stored: text(stored), given: text(given) })
    }

    /// Whether a key determines the partition that has it.
    #[inline]
    pub(crate) fn is_divided_by_keys(&self) -> bool {
        self.tree.partition == PartitionId::OF_KEY && self.rule().is_some_and(Rule::is_by_key)
    }

    fn rule(&self) -> Option<&Rule> {
        self.partitions().map(|partitions| &partitions.rule)
    }

    /// Whether its partitions are not in the order of their keys: a range is the merge of all partitions. A
    /// hashed keyspace has no ranges.
    #[inline]
    pub(crate) fn is_scattered(&self) -> bool {
        self.tree.partition == PartitionId::OF_KEY
            && !self.id.is_hashed()
            && self.rule().is_some_and(|rule| !rule.is_in_key_order())
    }

    /// The name of the partition that has a stored key; empty unless keys divide the keyspace. Rules get the
    /// key as the caller gave it.
    ///
    /// # Errors
    /// `Unrouted`.
    #[inline]
    pub(crate) fn name_of<'n>(&'n self, stored: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        self.rule().map_or(Ok(Cow::default()), |rule| rule.name_of(given_key(self.tree, stored)))
    }

    /// The tree that has a key, as of a version. If there is none, an id that no version has.
    ///
    /// # Errors
    /// `Unrouted`.
    #[inline]
    pub(crate) fn tree_of(&self, key: &[u8], version: &Version) -> Result<TreeId> {
        if self.tree.partition == PartitionId::OF_KEY { self.routed(key, version) } else { Ok(self.tree) }
    }

    #[inline(never)]
    fn routed(&self, key: &[u8], version: &Version) -> Result<TreeId> {
        let Some(names) = version.names(self.id) else { return Ok(self.tree) };
        let found = names.find(&self.name_of(key)?);
        Ok(found.map_or(self.tree, |partition| TreeId { keyspace: self.id, partition }))
    }

    /// The first partition in that direction, from the name `from` on, that may have keys of the range: its
    /// name and its tree. A range of a hashed keyspace is the whole keyspace.
    pub(crate) fn next_partition<'v>(
        &self,
        version: &'v Version,
        (range, direction): (KeyBounds<'_>, Direction),
        from: Bound<&[u8]>,
    ) -> Option<(&'v [u8], TreeId)> {
        let is_all = matches!(range, (Bound::Unbounded | Bound::Included([]), Bound::Unbounded));
        assert!(is_all || !self.id.is_hashed(), "places do not name partitions");
        let (first, last) = self.rule()?.names_of(range);
        let own = match direction {
            Direction::Forward => first,
            Direction::Backward => last,
        };
        let from = if matches!(from, Bound::Unbounded) { own } else { from };
        let (name, partition) = version.names(self.id)?.next(from, direction)?;
        RangeBounds::<[u8]>::contains(&(first, last), name)
            .then_some((name, TreeId { keyspace: self.id, partition }))
    }

    /// The tree that has all keys of a range, as of a version. If there is none, an id that no version has;
    /// `None` if there are several.
    #[inline]
    pub(crate) fn tree_of_range(&self, range: &ScanRange, version: &Version) -> Option<TreeId> {
        if !self.is_divided_by_keys() { Some(self.tree) } else { self.only_partition(range, version) }
    }

    #[inline(never)]
    fn only_partition(&self, (start, end): &ScanRange, version: &Version) -> Option<TreeId> {
        let range = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        let of = (range, Direction::Forward);
        let Some((name, tree)) = self.next_partition(version, of, Bound::Unbounded) else {
            return Some(self.tree);
        };
        self.next_partition(version, of, Bound::Excluded(name)).is_none().then_some(tree)
    }

    /// Whether a version has the keyspace.
    pub(crate) fn is_in(&self, version: &Version) -> bool {
        match self.tree.partition {
            PartitionId::OF_KEY => version.names(self.id).is_some(),
            _ => version.tree(self.tree).is_some(),
        }
    }

    /// The trees that have keys of a range as of a version, in the order of their keys; see
    /// [`Partitions::of_range`].
    pub(crate) fn trees_in(&self, version: &Version, (start, end): (&[u8], &[u8])) -> Vec<TreeId> {
        if self.tree.partition != PartitionId::OF_KEY {
            return vec![self.tree];
        }
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let (range, mut from, mut trees) = ((Bound::Included(start), end), Bound::Unbounded, Vec::new());
        while let Some((name, tree)) = self.next_partition(version, (range, Direction::Forward), from) {
            trees.push(tree);
            from = Bound::Excluded(name);
        }
        trees
    }

    /// Its name among the partitions of its keyspace, if it is a partition.
    pub(crate) fn partition_name(&self) -> Option<&[u8]> {
        if let PartitionRole::Partition(partition) = &self.role { Some(&partition.name) } else { None }
    }

    /// Records whether the manifest still lacks the partition.
    pub(in crate::engine) fn set_unwritten(&self, is_unwritten: bool) {
        if let PartitionRole::Partition(partition) = &self.role {
            partition.is_unwritten.store(is_unwritten, Ordering::Release);
        }
    }

    /// The entry that begins a record with items of this partition, if the manifest may not have the
    /// partition yet.
    pub(crate) fn made(&self) -> Option<MadePartition<'_>> {
        let PartitionRole::Partition(Partition { name, is_unwritten }) = &self.role else { return None };
        is_unwritten.load(Ordering::Acquire).then_some(MadePartition { tree: self.tree, name })
    }

    /// Its name in messages.
    pub(crate) fn full_name(&self) -> String {
        match self.partition_name() {
            Some(partition) => partition_name(&self.name, partition),
            None => self.name.clone(),
        }
    }

    /// A stand-in for this keyspace: each read of it returns `Invalid`. `state` is from
    /// [`KeyspaceState::state_of_stand_ins`].
    pub(in crate::engine) fn stand_in(&self, state: ForkByte) -> KeyspaceState {
        let (name, settings) = (self.full_name(), Arc::new(Mutex::new(self.settings())));
        let (write_stats, usual, role) = (TreeWriteStats::new(), Usual::new(), PartitionRole::Whole);
        KeyspaceState { id: self.id, name, tree: self.tree, role, state, settings, write_stats, usual }
    }

    /// The state that all stand-ins of a store share.
    ///
    /// # Errors
    /// `Io` if there is no memory for it.
    pub(in crate::engine) fn state_of_stand_ins(bytes: &ForkBytes) -> Result<ForkByte> {
        bytes.byte(OF_ANOTHER_STORE)
    }

    #[cfg(test)]
    pub(crate) fn is_dropped(&self) -> bool {
        self.state.load() == DROPPED
    }

    /// Whether it may be read and written now.
    #[inline]
    pub(crate) fn check_live(&self) -> Result<()> {
        match self.state.load() {
            LIVE => Ok(()),
            state => Err(self.error(state)),
        }
    }

    /// Whether it may be read as of a point; `is_seen` tells whether the point sees it, if it was dropped
    /// since.
    #[inline]
    pub(crate) fn check_live_at(&self, is_seen: impl FnOnce() -> bool) -> Result<()> {
        match self.state.load() {
            LIVE => Ok(()),
            DROPPED if is_seen() => Ok(()),
            state => Err(self.error(state)),
        }
    }

    /// The error for reads and writes in that state.
    #[cold]
    fn error(&self, state: u8) -> Error {
        match state {
            FORKED => Error::Forked,
            DROPPED => Error::Dropped { name: self.full_name() },
            OF_ANOTHER_STORE => {
                let name = &self.name;
                let fault = format!("keyspace {name:?} belongs to another open store than the snapshot");
                Error::Invalid { faults: vec![fault] }
            }
            _ => Error::Closed,
        }
    }

    pub(in crate::engine) fn set_dropped(&self) {
        self.state.change(LIVE, DROPPED);
    }

    pub(in crate::engine) fn set_closed(&self) {
        self.state.change(LIVE, CLOSED);
    }

    pub(crate) fn settings(&self) -> KeyspaceSettings {
        self.settings.lock().clone()
    }

    pub(in crate::engine) fn set_settings(&self, settings: KeyspaceSettings) {
        *self.settings.lock() = settings;
    }
}

impl KeyspaceState {
    /// Time until its tree is at rest and its merge policy changes; `None` if the policy stays.
    pub(in crate::engine) fn restless_for_ns(&self, now_ns: u64) -> Option<u64> {
        if is_adaptive(&self.settings()) { self.write_stats.rests_in_ns(now_ns) } else { None }
    }
}

impl Writable for KeyspaceState {
    fn tree(&self) -> TreeId {
        self.tree
    }

    fn check_live(&self) -> Result<()> {
        KeyspaceState::check_live(self)
    }
}

/// Whether the given settings differ from the present ones.
pub(in crate::engine) fn is_change(before: &KeyspaceSettings, given: &[(String, u64)]) -> Result<bool> {
    Ok(!given.is_empty() && merged(before.clone(), given)? != *before)
}

pub(in crate::engine) fn merged(
    mut settings: KeyspaceSettings,
    given: &[(String, u64)],
) -> Result<KeyspaceSettings> {
    for (name, value) in given {
        settings.set(name, *value)?;
    }
    settings.validate()?;
    Ok(settings)
}

/// The settings as the manifest keeps them.
pub(in crate::engine) fn stored(settings: &KeyspaceSettings) -> Settings {
    let mut values: Settings =
        settings.values().into_iter().map(|(setting, value)| (setting.id, value)).collect();
    values.sort_unstable();
    values
}

/// The settings from the manifest. Settings unknown to this release are left alone; missing ones have their
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
