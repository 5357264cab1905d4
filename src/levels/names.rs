//! The partitions of keyspaces that keys divide, by name, at one moment: a part of a version, so that a
//! snapshot finds the partitions that there were.
//!
//! A change copies what lies beside it, and shares the rest.
//!
//! Invariant: names of a keyspace are ascending, each once; so are the chunks that they lie in, and none of
//! these is empty.

use std::ops::Bound;

use crate::base::id::{KeyspaceId, PartitionId};
use crate::base::key::head;
use crate::base::step::Direction;
use crate::base::sync::Arc;

/// Names of a chunk, at most.
const CHUNK_NAMES_MAX: usize = 128;

/// The names of all keyspaces that keys divide.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamesByKeyspace {
    /// By keyspace. A keyspace without a partition is here too.
    keyspaces: Vec<(KeyspaceId, Arc<Names>)>,
}

/// A change of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// A keyspace that keys divide, without partitions.
    Divide(KeyspaceId),
    /// The keyspace was dropped.
    Forget(KeyspaceId),
    Add(KeyspaceId, Box<[u8]>, PartitionId),
    Remove(KeyspaceId, Box<[u8]>),
}

impl NamesByKeyspace {
    /// The names of a keyspace, if keys divide it.
    #[inline]
    pub(crate) fn of(&self, keyspace: KeyspaceId) -> Option<&Names> {
        match self.keyspaces.as_slice() {
            [(only, names)] if *only == keyspace => Some(names),
            keyspaces => {
                let index = keyspaces.binary_search_by_key(&keyspace, |(id, _)| *id).ok()?;
                Some(&keyspaces[index].1)
            }
        }
    }

    pub(crate) fn apply(&mut self, change: Change) {
        let (Change::Divide(id) | Change::Forget(id) | Change::Add(id, ..) | Change::Remove(id, _)) = &change;
        let found = self.keyspaces.binary_search_by_key(id, |(id, _)| *id);
        match (change, found) {
            (Change::Divide(id), Err(index)) => self.keyspaces.insert(index, (id, Arc::default())),
            (Change::Forget(_), Ok(index)) => drop(self.keyspaces.remove(index)),
            (Change::Add(_, name, partition), Ok(index)) => {
                Arc::make_mut(&mut self.keyspaces[index].1).insert(name, partition);
            }
            (Change::Remove(_, name), Ok(index)) => Arc::make_mut(&mut self.keyspaces[index].1).remove(&name),
            (Change::Divide(_), Ok(_)) => unreachable!("a keyspace is divided once"),
            (_, Err(_)) => unreachable!("names are of keyspaces that were divided"),
        }
    }
}

/// The partitions of one keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    chunks: Vec<Arc<Chunk>>,
    /// The head of the first name of each chunk, so that a search touches few lines.
    first_heads: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Heads of `names`.
    heads: Vec<u64>,
    names: Vec<Box<[u8]>>,
    partitions: Vec<PartitionId>,
}

impl Chunk {
    /// How many of its names lie before `name`.
    fn position(&self, name: &[u8]) -> usize {
        let name_head = head(name);
        let start = self.heads.partition_point(|one| *one < name_head);
        if self.heads.get(start).is_none_or(|one| *one != name_head) {
            return start;
        }
        let equal = self.heads[start..].partition_point(|one| *one == name_head);
        start + self.names[start..start + equal].partition_point(|one| &**one < name)
    }

    fn split_off(&mut self, index: usize) -> Chunk {
        Chunk {
            heads: self.heads.split_off(index),
            names: self.names.split_off(index),
            partitions: self.partitions.split_off(index),
        }
    }
}

impl Names {
    /// The chunk that has `name` if any has.
    fn chunk_of(&self, name: &[u8]) -> usize {
        let name_head = head(name);
        let below = self.first_heads.partition_point(|one| *one < name_head);
        let equal = self.first_heads[below..].partition_point(|one| *one == name_head);
        let begun = self.chunks[below..below + equal].partition_point(|chunk| &*chunk.names[0] <= name);
        (below + begun).saturating_sub(1)
    }

    /// The partition of that name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<PartitionId> {
        let chunk = self.chunks.get(self.chunk_of(name))?;
        let index = chunk.position(name);
        (&**chunk.names.get(index)? == name).then(|| chunk.partitions[index])
    }

    /// The first partition in that direction from a name on.
    pub(crate) fn next(&self, from: Bound<&[u8]>, direction: Direction) -> Option<(&[u8], PartitionId)> {
        let (chunk, index) = match (direction, from) {
            (Direction::Forward, Bound::Unbounded) => (0, 0),
            (Direction::Backward, Bound::Unbounded) => {
                let last = self.chunks.len().checked_sub(1)?;
                (last, self.chunks[last].names.len() - 1)
            }
            (Direction::Forward, Bound::Included(name) | Bound::Excluded(name)) => {
                let number = self.chunk_of(name);
                let chunk = self.chunks.get(number)?;
                let index = chunk.position(name);
                let is_it = chunk.names.get(index).is_some_and(|one| &**one == name);
                let index = index + usize::from(is_it && matches!(from, Bound::Excluded(_)));
                if index < chunk.names.len() { (number, index) } else { (number + 1, 0) }
            }
            (Direction::Backward, Bound::Included(name) | Bound::Excluded(name)) => {
                let number = self.chunk_of(name);
                let chunk = self.chunks.get(number)?;
                let index = chunk.position(name);
                let is_it = chunk.names.get(index).is_some_and(|one| &**one == name);
                match (index + usize::from(is_it && matches!(from, Bound::Included(_)))).checked_sub(1) {
                    Some(index) => (number, index),
                    None => {
                        let before = number.checked_sub(1)?;
                        (before, self.chunks[before].names.len() - 1)
                    }
                }
            }
        };
        let chunk = self.chunks.get(chunk)?;
        Some((&chunk.names[index], chunk.partitions[index]))
    }

    fn insert(&mut self, name: Box<[u8]>, partition: PartitionId) {
        let number = self.chunk_of(&name);
        if self.chunks.is_empty() {
            self.chunks.push(Arc::default());
            self.first_heads.push(0);
        }
        let chunk = Arc::make_mut(&mut self.chunks[number]);
        let index = chunk.position(&name);
        assert!(chunk.names.get(index) != Some(&name), "a partition is added once");
        chunk.heads.insert(index, head(&name));
        chunk.names.insert(index, name);
        chunk.partitions.insert(index, partition);
        self.first_heads[number] = chunk.heads[0];
        if chunk.names.len() > CHUNK_NAMES_MAX {
            // Names mostly come in their order: what they leave behind stays full.
            let is_at_end = index + 1 == chunk.names.len();
            let next = chunk.split_off(if is_at_end { CHUNK_NAMES_MAX } else { CHUNK_NAMES_MAX / 2 });
            self.first_heads.insert(number + 1, next.heads[0]);
            self.chunks.insert(number + 1, Arc::new(next));
        }
    }

    fn remove(&mut self, name: &[u8]) {
        let number = self.chunk_of(name);
        let chunk = Arc::make_mut(&mut self.chunks[number]);
        let index = chunk.position(name);
        assert!(&*chunk.names[index] == name, "only what is there is removed");
        chunk.heads.remove(index);
        chunk.names.remove(index);
        chunk.partitions.remove(index);
        if chunk.names.is_empty() {
            self.chunks.remove(number);
            self.first_heads.remove(number);
            return;
        }
        self.first_heads[number] = chunk.heads[0];
        self.join_next(number);
    }

    /// Makes a chunk and the next one, if they are small, one.
    fn join_next(&mut self, number: usize) {
        let count = |number: usize| self.chunks.get(number).map_or(CHUNK_NAMES_MAX, |one| one.names.len());
        if count(number) + count(number + 1) > CHUNK_NAMES_MAX / 2 {
            return;
        }
        self.first_heads.remove(number + 1);
        let next = Arc::unwrap_or_clone(self.chunks.remove(number + 1));
        let chunk = Arc::make_mut(&mut self.chunks[number]);
        chunk.heads.extend(next.heads);
        chunk.names.extend(next.names);
        chunk.partitions.extend(next.partitions);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    const KEYSPACE: KeyspaceId = KeyspaceId(3);

    /// A name of which few or many begin alike.
    fn name(number: u32, is_long: bool) -> Box<[u8]> {
        let number = number.to_be_bytes();
        if is_long { [&b"a long prefix/"[..], &number].concat().into() } else { number[2..].into() }
    }

    proptest! {
        /// Names are found, and met in their order from any name on, however they came and went; an older
        /// value is as it was.
        #[test]
        fn names_are_as_in_a_map(
            is_long in any::<bool>(),
            edits in proptest::collection::vec((0u32..2000, 1u32..400, proptest::bool::weighted(0.6)), 1..12),
        ) {
            let mut names = NamesByKeyspace::default();
            names.apply(Change::Divide(KEYSPACE));
            let mut map: BTreeMap<Box<[u8]>, PartitionId> = BTreeMap::new();
            for (from, count, adds) in edits {
                let (before, map_before) = (names.clone(), map.clone());
                for number in from..from + count {
                    let name = name(number, is_long);
                    if adds && !map.contains_key(&name) {
                        map.insert(name.clone(), PartitionId(number + 1));
                        names.apply(Change::Add(KEYSPACE, name, PartitionId(number + 1)));
                    } else if !adds && map.remove(&name).is_some() {
                        names.apply(Change::Remove(KEYSPACE, name));
                    }
                }
                check(before.of(KEYSPACE).expect("divided"), &map_before, is_long)?;
                check(names.of(KEYSPACE).expect("divided"), &map, is_long)?;
            }
            names.apply(Change::Forget(KEYSPACE));
            prop_assert!(names.of(KEYSPACE).is_none());
        }
    }

    fn check(
        names: &Names,
        map: &BTreeMap<Box<[u8]>, PartitionId>,
        is_long: bool,
    ) -> Result<(), TestCaseError> {
        prop_assert!(names.chunks.iter().all(|one| (1..=CHUNK_NAMES_MAX).contains(&one.names.len())));
        for number in (0..2500).step_by(7) {
            let name = name(number, is_long);
            let name = &*name;
            prop_assert_eq!(names.find(name), map.get(name).copied());
            for from in [Bound::Included(name), Bound::Excluded(name)] {
                let after = map.range::<[u8], _>((from, Bound::Unbounded)).next();
                let before = map.range::<[u8], _>((Bound::Unbounded, from)).next_back();
                for (direction, wanted) in [(Direction::Forward, after), (Direction::Backward, before)] {
                    let found = names.next(from, direction);
                    prop_assert_eq!(found, wanted.map(|(name, partition)| (&**name, *partition)));
                }
            }
        }
        let ends = [(Direction::Forward, map.iter().next()), (Direction::Backward, map.iter().next_back())];
        for (direction, wanted) in ends {
            let found = names.next(Bound::Unbounded, direction);
            prop_assert_eq!(found, wanted.map(|(name, partition)| (&**name, *partition)));
        }
        Ok(())
    }

    /// A change among ten thousand names copies few of them.
    #[test]
    fn changes_copy_few_names() {
        let mut all = NamesByKeyspace::default();
        all.apply(Change::Divide(KEYSPACE));
        for number in 0..10_000u32 {
            let name = number.to_be_bytes();
            all.apply(Change::Add(KEYSPACE, name.into(), PartitionId(number + 1)));
        }
        let mut after = all.clone();
        after.apply(Change::Remove(KEYSPACE, 5000u32.to_be_bytes().into()));
        let (all, after) = (all.of(KEYSPACE).expect("divided"), after.of(KEYSPACE).expect("divided"));
        assert!(all.chunks.len() <= 10_000 / CHUNK_NAMES_MAX + 2, "{} chunks", all.chunks.len());
        let is_shared = |chunk: &&Arc<Chunk>| all.chunks.iter().any(|old| Arc::ptr_eq(old, chunk));
        assert!(after.chunks.iter().filter(|chunk| !is_shared(chunk)).count() <= 2);
    }
}
