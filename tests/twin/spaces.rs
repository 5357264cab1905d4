//! Keyspaces and partitions of a twin: opened, made, dropped, and found again.

use std::collections::BTreeSet;

use trine::{ByKey, Error, Partitioning, Result};

use crate::support::{divided, find, names};

use super::hashed::is_hashed;
use super::keys::Keys;
use super::{Map, Space, Twin};

/// Names with a slash are partitions of an explicitly partitioned keyspace; see [`Rule::of`] for others.
const NAMES: [&str; 9] =
    ["a", "b", "by first", "by ranges", "by second", "divided/", "divided/p", "users", "z"];
/// The bounds of the keyspace partitioned by ranges; keys of each shape are near some of them.
const BOUNDS: [&[u8]; 10] = [
    &[0],
    &[0, 0],
    &[0x10],
    b"aab",
    b"b",
    b"k\x02",
    b"kk",
    b"tenants/0000000000000042/users/01000/name",
    &[0x7f, 0xff],
    &[0xff, 0xff],
];

/// The rule of a keyspace partitioned by key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    Prefix(usize),
    Ranges,
}

impl Rule {
    /// The rule of the keyspace of that name, if it is partitioned by key.
    pub(super) fn of(name: &str) -> Option<Rule> {
        match name {
            "by first" => Some(Rule::Prefix(1)),
            "by second" => Some(Rule::Prefix(2)),
            "by ranges" => Some(Rule::Ranges),
            _ => None,
        }
    }

    fn partitioning(self) -> Partitioning<ByKey> {
        match self {
            Rule::Prefix(bytes) => Partitioning::prefix(bytes),
            Rule::Ranges => Partitioning::ranges(BOUNDS),
        }
    }

    /// The name of a key's partition.
    fn name_of(self, key: &[u8]) -> &[u8] {
        match self {
            Rule::Prefix(bytes) => &key[..bytes.min(key.len())],
            Rule::Ranges => BOUNDS.iter().rev().find(|bound| **bound <= key).map_or(&[], |bound| bound),
        }
    }
}

impl Twin {
    /// Opens a keyspace, existing or new, with settings or without.
    pub(super) fn open_keyspace(&mut self) {
        let name = *self.rng.choose(&NAMES);
        let mut builder = self.db.ordered(name.split('/').next().unwrap());
        let settings: [(&str, &[u64]); 13] = [
            ("table_bytes", &[64 << 10, 100_000, 1 << 20]),
            ("size_ratio", &[2, 3, 8]),
            ("level0_runs", &[1, 2, 4]),
            ("runs_per_level", &[0, 1, 2, 63]),
            ("runs_in_last_level", &[0, 0, 1, 2, 63]),
            ("delete_persist_within", &[0, 1, 3600]),
            ("filter_bits_per_key", &[0, 3, 10, 12, 24]),
            ("filter_kind", &[0, 1, 2, 3, 4, 5]),
            ("filter_probes", &[0, 1, 16]),
            ("index_kind", &[0, 1, 1, 2]),
            ("filter_allocation", &[0, 1]),
            ("block_bytes", &[4096, 5000, 16 << 10, 64 << 10]),
            ("compression", &[0, 1]),
        ];
        for (setting, values) in settings {
            if self.rng.one_in(2) {
                builder = builder.set(setting, *self.rng.choose(values));
            }
        }
        let keyspace = match (name.split_once('/'), Rule::of(name)) {
            (None, None) => builder.open().unwrap(),
            // An existing keyspace may be opened without its rule.
            (None, Some(_)) if self.spaces.contains_key(name) && self.rng.one_in(2) => {
                builder.open().unwrap()
            }
            (None, Some(rule)) => builder.partition_by(rule.partitioning()).open().unwrap(),
            (Some((_, partition)), _) => {
                let divided = builder.partition_by(Partitioning::explicit()).open().unwrap();
                divided.partition(partition).unwrap()
            }
        };
        let partition = name.split_once('/').map(|(_, partition)| partition.as_bytes());
        assert_eq!(
            (keyspace.name(), keyspace.partition_name()),
            (name.split('/').next().unwrap(), partition)
        );
        let mut keys = Keys::any(&mut self.rng);
        while Rule::of(name) == Some(Rule::Prefix(2)) && matches!(keys, Keys::Numbers { .. }) {
            // Each key would be a partition.
            keys = Keys::any(&mut self.rng);
        }
        match self.spaces.get_mut(name) {
            Some(space) => space.keyspace = keyspace,
            None => {
                let space = Space { keyspace, map: Map::new(), keys };
                assert!(space.keyspace.iter().next().is_none(), "what was dropped is gone");
                self.spaces.insert(name.to_owned(), space);
            }
        }
    }

    pub(super) fn drop_keyspace(&mut self) {
        if self.spaces.len() < 2 {
            return;
        }
        let name = self.some_name();
        let space = self.spaces.remove(&name).unwrap();
        match name.split_once('/') {
            None => self.db.drop_keyspace(&name).unwrap(),
            Some((keyspace, partition)) => {
                let divided = divided(&self.db, keyspace);
                assert!(divided.drop_partition(partition).unwrap());
                assert!(divided.find_partition(partition).unwrap().is_none());
                let is_last = divided.partitions().unwrap().is_empty();
                if is_last && self.rng.one_in(2) {
                    self.db.drop_keyspace(keyspace).unwrap();
                    assert!(matches!(divided.partition(partition), Err(Error::Dropped { .. })));
                }
            }
        }
        let dropped = |result: Result<()>| assert!(matches!(result, Err(Error::Dropped { .. })));
        dropped(space.keyspace.get("a").map(|_| ()));
        dropped(space.keyspace.put("a", "b"));
        dropped(space.keyspace.iter().next().unwrap().map(|_| ()));
        let now = self.db.snapshot();
        dropped(space.keyspace.at(&now).iter().next().unwrap().map(|_| ()));
        assert!(matches!(self.db.keyspace(&name), Err(Error::NoKeyspace { .. })));
    }

    /// Makes and drops partitions of a keyspace partitioned by key, if there is one.
    pub(super) fn change_partitions(&mut self) {
        let by_key = |name: &&String| Rule::of(name).is_some();
        let names: Vec<String> = self.spaces.keys().filter(by_key).cloned().collect();
        let Some(name) = names.get(self.rng.below(names.len().max(1))) else { return };
        let (rule, space) = (Rule::of(name).unwrap(), self.spaces.get_mut(name).unwrap());
        let there: BTreeSet<Vec<u8>> = space.keyspace.partitions().unwrap().into_iter().collect();
        assert!(space.map.keys().all(|key| there.contains(rule.name_of(key))), "each key has a partition");
        let key = space.keys.one(&mut self.rng);
        let mut gone = BTreeSet::from([rule.name_of(&key).to_vec()]);
        match self.rng.below(4) {
            0 => {
                let created = gone.pop_first().unwrap();
                space.keyspace.create_partition(&created).unwrap();
                assert!(space.keyspace.partitions().unwrap().contains(&created));
            }
            1 => {
                let was_there = there.contains(rule.name_of(&key));
                assert_eq!(space.keyspace.drop_partition(rule.name_of(&key)).unwrap(), was_there);
            }
            _ => {
                gone.extend(there.iter().filter(|_| self.rng.one_in(3)).cloned());
                let dropped = space.keyspace.drop_partitions(&gone).unwrap();
                assert_eq!(dropped, gone.intersection(&there).count() as u64);
            }
        }
        space.map.retain(|key, _| !gone.contains(rule.name_of(key)));
        let left = space.keyspace.partitions().unwrap();
        assert!(left.is_sorted() && left.iter().all(|name| !gone.contains(name)));
        for name in &left {
            let stats = space.keyspace.partition_stats(name).unwrap();
            assert!(stats.is_some(), "it is there");
        }
    }

    /// After a reopen: checks that the expected names exist, and opens them.
    pub(super) fn find_keyspaces(&mut self) {
        let mut names = names(&self.db);
        names.retain(|name| !is_hashed(name));
        assert!(names.iter().eq(self.spaces.keys()), "{names:?}");
        for (name, space) in &mut self.spaces {
            space.keyspace = find(&self.db, name).unwrap();
        }
    }
}
