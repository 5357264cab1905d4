//! Hashed keyspaces of a twin: gets, multi-gets, walks from the start or from a position, and snapshots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use trine::{
    Error, Hashed, Keyspace, KeyspaceAt, KeyspaceBuilder, Partitioning, Result, Snapshot, Unordered, block_on,
};

use super::keys::Keys;
use super::write_by;
use super::{Map, Twin, own};
use crate::rng::Rng;

const NAMES: [&str; 3] = ["hashed 1", "hashed 2", BY_KEY];
/// The keyspace that is partitioned by a function of its keys.
const BY_KEY: &str = "hashed by key";
/// The longest key of a hashed keyspace.
const KEY_BYTES_MAX: usize = 65_524;

#[derive(Clone)]
pub(super) struct HashedSpace {
    keyspace: Keyspace<Hashed>,
    map: Map,
    keys: Keys,
}

/// A snapshot and its expected contents, with a walk over it that is partly done.
struct HashedMoment {
    snapshot: Snapshot,
    space: HashedSpace,
    walk: Unordered,
    walked: Map,
}

#[derive(Default)]
pub(super) struct HashedSpaces {
    spaces: BTreeMap<&'static str, HashedSpace>,
    moments: Vec<HashedMoment>,
}

/// Adds the next `count` items of a walk to `walked`; whether there were as many.
fn take(walk: &mut Unordered, count: usize, walked: &mut Map) -> bool {
    for _ in 0..count {
        let Some(item) = walk.next() else { return false };
        let (key, value) = own(item.unwrap());
        assert!(walked.insert(key, value).is_none(), "a key comes once");
    }
    true
}

/// A keyspace now, or as of a snapshot.
enum HashedReads<'k> {
    Now(&'k Keyspace<Hashed>),
    At(KeyspaceAt<Hashed>),
}

impl HashedReads<'_> {
    fn walk(&self) -> Unordered {
        match self {
            HashedReads::Now(keyspace) => keyspace.iter_unordered(),
            HashedReads::At(keyspace) => keyspace.iter_unordered(),
        }
    }

    fn walk_after(&self, position: &[u8]) -> Unordered {
        match self {
            HashedReads::Now(keyspace) => keyspace.iter_unordered_after(position),
            HashedReads::At(keyspace) => keyspace.iter_unordered_after(position),
        }
    }

    /// All items agree with the map, in one walk and in two.
    fn check_all(&self, rng: &mut Rng, map: &Map) {
        let mut walked = Map::new();
        take(&mut self.walk(), usize::MAX, &mut walked);
        assert_eq!(walked, *map);
        let (mut first, mut walked) = (self.walk(), Map::new());
        if take(&mut first, rng.below(map.len() + 1), &mut walked)
            && let Some(position) = first.position()
        {
            take(&mut self.walk_after(&position), usize::MAX, &mut walked);
            assert_eq!(walked, *map);
        }
    }

    fn check_some(&self, rng: &mut Rng, map: &Map, keys: Keys) {
        let key = keys.one(rng);
        let expected = map.get(&key).map(|value| &value[..]);
        let found = match self {
            HashedReads::Now(keyspace) => [keyspace.get(&key), block_on(keyspace.get_async(&key))],
            HashedReads::At(keyspace) => [keyspace.get(&key), block_on(keyspace.get_async(&key))],
        };
        found.into_iter().for_each(|found| assert_eq!(found.unwrap().as_deref(), expected));
        let mut asked: Vec<Vec<u8>> = (0..rng.below(150)).map(|_| keys.one(rng)).collect();
        asked.extend(asked.first().cloned());
        let found = match (self, rng.one_in(2)) {
            (HashedReads::Now(keyspace), false) => keyspace.multi_get(&asked),
            (HashedReads::Now(keyspace), true) => block_on(keyspace.multi_get_async(&asked)),
            (HashedReads::At(keyspace), false) => keyspace.multi_get(&asked),
            (HashedReads::At(keyspace), true) => block_on(keyspace.multi_get_async(&asked)),
        };
        let found = found.unwrap();
        assert_eq!(found.len(), asked.len());
        for (key, found) in asked.iter().zip(found) {
            assert_eq!(found.as_deref(), map.get(key).map(|value| &value[..]));
        }
    }
}

impl HashedMoment {
    fn check_all(mut self, rng: &mut Rng) {
        take(&mut self.walk, usize::MAX, &mut self.walked);
        assert_eq!(self.walked, self.space.map, "a walk shows what was there when it began");
        let at = self.space.keyspace.at(&self.snapshot);
        HashedReads::At(at).check_all(rng, &self.space.map);
    }
}

/// The partition name of a key in [`BY_KEY`]; keys of each shape are in all four partitions.
fn partition_of(key: &[u8]) -> Vec<u8> {
    let sum = key.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    vec![sum >> 6]
}

fn open(builder: KeyspaceBuilder<Hashed>, name: &str) -> Keyspace<Hashed> {
    let rule = Partitioning::function("sum", 1, |key| partition_of(key).into());
    let opened = if name == BY_KEY { builder.partition_by(rule).open() } else { builder.open() };
    opened.unwrap()
}

impl Twin {
    /// Opens a keyspace, existing or new.
    pub(super) fn open_hashed(&mut self) {
        let name = *self.rng.choose(&NAMES);
        let settings: [(&str, &[u64]); 5] = [
            ("table_bytes", &[64 << 10, 1 << 20]),
            ("filter_bits_per_key", &[0, 3, 10, 24]),
            ("filter_kind", &[0, 1, 2, 3, 4, 5, 5]),
            ("block_bytes", &[4096, 5000, 16 << 10]),
            ("compression", &[0, 1]),
        ];
        let mut builder = self.db.hashed(name);
        for (setting, values) in settings {
            if self.rng.one_in(2) {
                builder = builder.set(setting, *self.rng.choose(values));
            }
        }
        let keyspace = open(builder, name);
        let keys = if self.rng.one_in(2) { Keys::Many { count: 3000 } } else { Keys::any(&mut self.rng) };
        let space = HashedSpace { keyspace, map: Map::new(), keys };
        match self.hashed.spaces.get_mut(name) {
            Some(there) => there.keyspace = space.keyspace,
            None => {
                assert!(space.keyspace.is_empty().unwrap(), "what was dropped is gone");
                self.hashed.spaces.insert(name, space);
            }
        }
    }

    /// Fills a hashed keyspace until its trie has this many heights below the root, with at most `items_max`
    /// items. Settings and compression decide how many items that takes.
    pub(super) fn fill_hashed(&mut self, heights: usize, items_max: usize, value_bytes: usize) {
        // Leaves are not merged while it is filled, but from then on.
        let builder = self.db.hashed(NAMES[0]).set("table_bytes", 64 << 10);
        // Filters by column, or by run.
        let kind = if self.rng.one_in(2) { 5 } else { 0 };
        let keyspace = builder.set("runs_in_last_level", 63).set("filter_kind", kind).open().unwrap();
        let mut space = HashedSpace { keyspace, map: Map::new(), keys: Keys::Many { count: 0 } };
        let mut count = 0;
        loop {
            assert!(count < items_max, "{:?}", space.keyspace.stats().unwrap().levels);
            self.fill_some(&mut space, count..count + 1000, value_bytes);
            count += 1000;
            self.db.settle().unwrap();
            if space.keyspace.stats().unwrap().levels.len() > heights {
                break;
            }
        }
        space.keys = Keys::Many { count };
        space.keyspace = self.db.hashed(NAMES[0]).set("runs_in_last_level", 0).open().unwrap();
        self.hashed.spaces.insert(NAMES[0], space);
    }

    fn fill_some(&mut self, space: &mut HashedSpace, numbers: Range<usize>, value_bytes: usize) {
        for numbers in numbers.collect::<Vec<_>>().chunks(20) {
            let mut batch = self.db.batch();
            for number in numbers {
                self.writes += 1;
                let bytes = 8 + self.rng.below(2 * value_bytes);
                let value: Arc<[u8]> = self.writes.to_le_bytes().into_iter().cycle().take(bytes).collect();
                let key = Keys::numbered(*number);
                batch.put(&space.keyspace, &key, &value).unwrap();
                space.map.insert(key, value);
            }
            batch.commit().unwrap();
        }
    }

    fn drop_hashed(&mut self, name: &'static str) {
        let Some(space) = self.hashed.spaces.remove(name) else { return };
        self.db.drop_keyspace(name).unwrap();
        let dropped = |result: Result<()>| assert!(matches!(result, Err(Error::Dropped { .. })));
        dropped(space.keyspace.get("a").map(|_| ()));
        dropped(space.keyspace.put("a", "b"));
        dropped(space.keyspace.iter_unordered().next().unwrap().map(|_| ()));
    }

    fn drop_partition_hashed(&mut self) {
        let space = self.hashed.spaces.get_mut(BY_KEY).unwrap();
        let name = partition_of(&space.keys.one(&mut self.rng));
        let has_items = space.map.keys().any(|key| partition_of(key) == name);
        assert!(space.keyspace.drop_partition(&name).unwrap() || !has_items);
        space.map.retain(|key, _| partition_of(key) != name);
    }

    fn some_hashed(&mut self) -> Option<&'static str> {
        let names: Vec<&'static str> = self.hashed.spaces.keys().copied().collect();
        names.get(self.rng.below(names.len().max(1))).copied()
    }

    /// One operation on the hashed keyspaces, if there are any.
    pub(super) fn step_hashed(&mut self) {
        let Some(name) = self.some_hashed() else { return self.open_hashed() };
        match self.rng.below(100) {
            0..40 => self.write_hashed(name),
            40..60 => self.write_batch_hashed(name),
            60..80 => {
                let HashedSpace { keyspace, map, keys } = &self.hashed.spaces[name];
                HashedReads::Now(keyspace).check_some(&mut self.rng, map, *keys);
            }
            80..84 => {
                let HashedSpace { keyspace, map, .. } = &self.hashed.spaces[name];
                HashedReads::Now(keyspace).check_all(&mut self.rng, map);
            }
            84..88 => self.take_moment(name),
            88..93 => self.read_moment(),
            93..97 => self.open_hashed(),
            97 => self.drop_hashed(name),
            98 if self.rng.one_in(4) => self.clear_hashed(name),
            99 if name == BY_KEY => self.drop_partition_hashed(),
            _ => {}
        }
    }

    fn write_hashed(&mut self, name: &'static str) {
        let deletes = self.rng.one_in(4);
        let key = self.hashed.spaces[name].keys.one(&mut self.rng);
        let value = self.value();
        let space = self.hashed.spaces.get_mut(name).unwrap();
        let written = write_by(&mut self.rng, &space.keyspace, (&key, (!deletes).then_some(&value)));
        match written {
            Ok(()) if deletes => drop(space.map.remove(&key)),
            Ok(()) => drop(space.map.insert(key, value)),
            Err(Error::TooLarge { what: "key", .. }) => assert!(key.len() > KEY_BYTES_MAX),
            Err(Error::TooLarge { what, .. }) => assert_eq!(what, "batch"),
            Err(error) => panic!("{error}"),
        }
    }

    /// A batch of many items, so that tables fill, and one item of an ordered keyspace.
    fn write_batch_hashed(&mut self, name: &'static str) {
        let (mut batch, mut after) = (self.db.batch(), self.hashed.spaces[name].clone());
        for _ in 0..self.rng.below(60) {
            let key = after.keys.one(&mut self.rng);
            if key.len() > 1000 {
                continue;
            }
            if self.rng.one_in(6) {
                batch.delete(&after.keyspace, &key).unwrap();
                after.map.remove(&key);
            } else {
                self.writes += 1;
                let bytes = self.rng.below(200);
                let value: Arc<[u8]> = self.writes.to_le_bytes().into_iter().cycle().take(bytes).collect();
                batch.put(&after.keyspace, &key, &value).unwrap();
                after.map.insert(key, value);
            }
        }
        let ordered = self.some_name();
        let (key, value) = (self.spaces[&ordered].keys.one(&mut self.rng), self.value());
        batch.put(&self.spaces[&ordered].keyspace, &key, &value).unwrap();
        let committed = if self.rng.one_in(4) { block_on(batch.commit_async()) } else { batch.commit() };
        match committed {
            Ok(()) => {
                self.hashed.spaces.insert(name, after);
                self.spaces.get_mut(&ordered).unwrap().map.insert(key, value);
            }
            Err(Error::TooLarge { what, .. }) => assert_eq!(what, "batch"),
            Err(error) => panic!("{error}"),
        }
    }

    fn clear_hashed(&mut self, name: &'static str) {
        let space = self.hashed.spaces.get_mut(name).unwrap();
        space.keyspace.clear().unwrap();
        space.map.clear();
        if self.rng.one_in(2) {
            self.db.flush().unwrap();
            self.db.settle().unwrap();
            assert_eq!(self.hashed.spaces[name].keyspace.stats().unwrap().tables, 0);
        }
    }

    fn take_moment(&mut self, name: &'static str) {
        let (snapshot, space) = (self.db.snapshot(), self.hashed.spaces[name].clone());
        let (mut walk, mut walked) = (space.keyspace.at(&snapshot).iter_unordered(), Map::new());
        take(&mut walk, self.rng.below(space.map.len() + 1), &mut walked);
        self.hashed.moments.push(HashedMoment { snapshot, space, walk, walked });
        if self.hashed.moments.len() > 3 {
            let index = self.rng.below(self.hashed.moments.len());
            self.hashed.moments.swap_remove(index).check_all(&mut self.rng);
        }
    }

    fn read_moment(&mut self) {
        if self.hashed.moments.is_empty() {
            return;
        }
        let index = self.rng.below(self.hashed.moments.len());
        let HashedMoment { snapshot, space, walk, walked } = &mut self.hashed.moments[index];
        take(walk, self.rng.below(50), walked);
        HashedReads::At(space.keyspace.at(snapshot)).check_some(&mut self.rng, &space.map, space.keys);
    }

    /// Drops all snapshots, before the store is closed.
    pub(super) fn end_moments(&mut self) {
        for moment in std::mem::take(&mut self.hashed.moments) {
            moment.check_all(&mut self.rng);
        }
    }

    pub(super) fn check_hashed(&mut self) {
        for HashedSpace { keyspace, map, .. } in self.hashed.spaces.values() {
            HashedReads::Now(keyspace).check_all(&mut self.rng, map);
        }
    }

    pub(super) fn moments_count(&self) -> usize {
        self.hashed.moments.len()
    }

    /// After a reopen: checks that the same names exist, and opens them.
    pub(super) fn find_hashed(&mut self) {
        let names = self.db.keyspaces().into_iter().map(|one| one.name).filter(|name| is_hashed(name));
        assert!(names.eq(self.hashed.spaces.keys().copied()));
        for (name, space) in &mut self.hashed.spaces {
            space.keyspace = open(self.db.hashed(name), name);
        }
    }
}

/// Whether this is the name of a hashed keyspace.
pub(super) fn is_hashed(name: &str) -> bool {
    NAMES.contains(&name)
}
