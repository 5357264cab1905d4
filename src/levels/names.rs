//! The partitions of keyspaces that keys divide, by name, at one moment. They are part of a version, so that
//! a snapshot finds the partitions of its time.
//!
//! A change copies only its neighbourhood and shares the rest.
//!
//! Invariant: names of a keyspace are ascending, each once; so are the chunks that hold them, and no chunk is
//! empty.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use smallvec::SmallVec;

use crate::base::id::{KeyspaceId, PartitionId};
use crate::base::key::{common_prefix, head, head_after};
use crate::base::step::Direction;
use crate::base::sync::Arc;

/// The most names of a chunk.
const CHUNK_NAMES_MAX: usize = 128;
const CHUNK_NAMES_BITS: u32 = 8;

/// The names of all keyspaces that keys divide.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamesByKeyspace {
    /// Sorted by keyspace. A keyspace without partitions is here too.
    keyspaces: Vec<(KeyspaceId, Arc<Names>)>,
}

/// A change of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameChange {
    /// A keyspace that keys divide is added, without partitions.
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

    pub(crate) fn apply(&mut self, change: NameChange) {
        let (NameChange::Divide(id)
        | NameChange::Forget(id)
        | NameChange::Add(id, ..)
        | NameChange::Remove(id, _)) = &change;
        let found = self.keyspaces.binary_search_by_key(id, |(id, _)| *id);
        match (change, found) {
            (NameChange::Divide(id), Err(index)) => self.keyspaces.insert(index, (id, Arc::default())),
            (NameChange::Forget(_), Ok(index)) => drop(self.keyspaces.remove(index)),
            (NameChange::Add(_, name, partition), Ok(index)) => {
                Arc::make_mut(&mut self.keyspaces[index].1).insert(name, partition);
            }
            (NameChange::Remove(_, name), Ok(index)) => {
                Arc::make_mut(&mut self.keyspaces[index].1).remove(&name)
            }
            (NameChange::Divide(_), Ok(_)) => unreachable!("a keyspace is divided once"),
            (_, Err(_)) => unreachable!("names are of keyspaces that were divided"),
        }
    }
}

/// The partitions of one keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    chunks: Vec<Arc<Chunk>>,
    /// Heads of the first name of each chunk, so that a search touches few cache lines.
    firsts: Heads,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Heads of `names`.
    heads: Heads,
    names: Vec<Named>,
}

/// A partition and its name, together because a search that finds the name reads the partition. Most names
/// are stored inline, so that a copy of a chunk follows no pointers.
#[derive(Clone, Debug)]
struct Named {
    name: SmallVec<[u8; 16]>,
    partition: PartitionId,
}

/// For some ascending names, the eight bytes of each that follow their common prefix.
#[derive(Clone, Debug, Default)]
struct Heads {
    /// After a removal the prefix may be shorter than possible.
    shared: Box<[u8]>,
    heads: Vec<u64>,
}

impl Heads {
    fn of<'n>(names: impl Iterator<Item = &'n [u8]> + Clone) -> Heads {
        let (mut ends, first) = (names.clone(), names.clone().next().unwrap_or_default());
        let shared_bytes = common_prefix(first, ends.by_ref().last().unwrap_or_default());
        let heads = names.map(|name| head_after(name, shared_bytes)).collect();
        Heads { shared: first[..shared_bytes].into(), heads }
    }

    /// Inserts a name at an index, or replaces the one there. `false` if the name lacks the shared prefix:
    /// the caller rebuilds all heads.
    fn put(&mut self, index: usize, name: &[u8], is_new: bool) -> bool {
        let begins_so = !self.heads.is_empty() && name.starts_with(&self.shared);
        if begins_so {
            let head = head_after(name, self.shared.len());
            if is_new { self.heads.insert(index, head) } else { self.heads[index] = head }
        }
        begins_so
    }

    /// The names whose heads equal that of `name`; other names lie before or behind them.
    fn equal(&self, name: &[u8]) -> Range<usize> {
        let own = &name[..name.len().min(self.shared.len())];
        match own.cmp(&self.shared) {
            Ordering::Less => 0..0,
            Ordering::Greater => self.heads.len()..self.heads.len(),
            Ordering::Equal => {
                let name_head = head_after(name, self.shared.len());
                let start = self.heads.partition_point(|one| *one < name_head);
                let rest = &self.heads[start..];
                let equal = if rest.first() == Some(&name_head) {
                    rest.partition_point(|one| *one == name_head)
                } else {
                    0
                };
                start..start + equal
            }
        }
    }

    /// Whether the head at `index` equals that of a name with the shared prefix.
    #[inline]
    fn is_at(&self, index: usize, name: &[u8]) -> bool {
        self.heads[index] == head_after(name, self.shared.len())
    }

    /// The index of a name if the names between first and last were evenly spaced as numbers.
    #[inline]
    fn guess(&self, name: &[u8]) -> Option<usize> {
        let rest = name.strip_prefix(&*self.shared)?;
        let (name_head, first, last) = (head(rest), *self.heads.first()?, *self.heads.last()?);
        let (ahead, width) = (name_head.checked_sub(first)?, last - first);
        if ahead > width {
            return None;
        }
        // The product with a chunk's length stays within 64 bits.
        let shift = (64 - width.leading_zeros()).saturating_sub(u64::BITS - CHUNK_NAMES_BITS);
        let steps = (self.heads.len() - 1) as u64;
        Some(((ahead >> shift) * steps).checked_div(width >> shift).unwrap_or(0) as usize)
    }
}

impl Chunk {
    fn of(names: Vec<Named>) -> Chunk {
        Chunk { heads: Heads::of(names.iter().map(|one| &*one.name)), names }
    }

    /// The number of its names before `name`.
    fn position(&self, name: &[u8]) -> usize {
        let equal = self.heads.equal(name);
        equal.start + self.names[equal].partition_point(|one| &*one.name < name)
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<PartitionId> {
        let is_it = |index| self.names.get(index).filter(|one: &&Named| *one.name == *name);
        let guessed = self.heads.guess(name).and_then(|index| {
            // For names no longer than their heads, equal heads and lengths mean equal names.
            let (one, is_whole) = (self.names.get(index)?, name.len() <= self.heads.shared.len() + 8);
            let is_same = is_whole && self.heads.is_at(index, name) && one.name.len() == name.len();
            if is_same { Some(one) } else { is_it(index) }
        });
        guessed.or_else(|| is_it(self.position(name))).map(|one| one.partition)
    }

    fn insert(&mut self, index: usize, named: Named) {
        let is_put = self.heads.put(index, &named.name, true);
        self.names.insert(index, named);
        if !is_put {
            self.heads = Heads::of(self.names.iter().map(|one| &*one.name));
        }
    }

    fn remove(&mut self, index: usize) {
        self.heads.heads.remove(index);
        self.names.remove(index);
    }

    fn first(&self) -> &[u8] {
        &self.names[0].name
    }
}

impl Names {
    /// The chunk that has `name`, if any has.
    #[inline]
    fn chunk_of(&self, name: &[u8]) -> usize {
        let equal = self.firsts.equal(name);
        let begun = self.chunks[equal.clone()].partition_point(|chunk| chunk.first() <= name);
        (equal.start + begun).saturating_sub(1)
    }

    /// The partition of that name.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<PartitionId> {
        self.chunks.get(self.chunk_of(name))?.find(name)
    }

    /// Updates the head of a chunk whose first name is new or has changed.
    fn put_first(&mut self, number: usize, is_new: bool) {
        if !self.firsts.put(number, self.chunks[number].first(), is_new) {
            self.firsts = Heads::of(self.chunks.iter().map(|chunk| chunk.first()));
        }
    }

    fn remove_chunk(&mut self, number: usize) -> Arc<Chunk> {
        self.firsts.heads.remove(number);
        self.chunks.remove(number)
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
                let is_it = chunk.names.get(index).is_some_and(|one| *one.name == *name);
                let index = index + usize::from(is_it && matches!(from, Bound::Excluded(_)));
                if index < chunk.names.len() { (number, index) } else { (number + 1, 0) }
            }
            (Direction::Backward, Bound::Included(name) | Bound::Excluded(name)) => {
                let number = self.chunk_of(name);
                let chunk = self.chunks.get(number)?;
                let index = chunk.position(name);
                let is_it = chunk.names.get(index).is_some_and(|one| *one.name == *name);
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
        let Named { name, partition } = &chunk.names[index];
        Some((name, *partition))
    }

    fn insert(&mut self, name: Box<[u8]>, partition: PartitionId) {
        let number = self.chunk_of(&name);
        let named = Named { name: SmallVec::from_slice(&name), partition };
        if self.chunks.is_empty() {
            self.chunks.push(Arc::new(Chunk::of(vec![named])));
            return self.put_first(0, true);
        }
        let chunk = Arc::make_mut(&mut self.chunks[number]);
        let index = chunk.position(&named.name);
        assert!(chunk.names.get(index).is_none_or(|one| one.name != named.name), "a partition is added once");
        chunk.insert(index, named);
        let next = (chunk.names.len() > CHUNK_NAMES_MAX).then(|| {
            // Names mostly come in order: the chunk before stays full.
            let is_at_end = index + 1 == chunk.names.len();
            let next = chunk.names.split_off(if is_at_end { CHUNK_NAMES_MAX } else { CHUNK_NAMES_MAX / 2 });
            *chunk = Chunk::of(std::mem::take(&mut chunk.names));
            Chunk::of(next)
        });
        if index == 0 {
            self.put_first(number, false);
        }
        if let Some(next) = next {
            self.chunks.insert(number + 1, Arc::new(next));
            self.put_first(number + 1, true);
        }
    }

    fn remove(&mut self, name: &[u8]) {
        let number = self.chunk_of(name);
        let chunk = Arc::make_mut(&mut self.chunks[number]);
        let index = chunk.position(name);
        assert!(*chunk.names[index].name == *name, "only present names are removed");
        chunk.remove(index);
        if chunk.names.is_empty() {
            self.remove_chunk(number);
            return;
        }
        if index == 0 {
            self.put_first(number, false);
        }
        self.join_next(number);
    }

    /// Joins a chunk and the next one if both are small.
    fn join_next(&mut self, number: usize) {
        let count = |number: usize| self.chunks.get(number).map_or(CHUNK_NAMES_MAX, |one| one.names.len());
        if count(number) + count(number + 1) > CHUNK_NAMES_MAX / 2 {
            return;
        }
        let next = Arc::unwrap_or_clone(self.remove_chunk(number + 1));
        let chunk = Arc::make_mut(&mut self.chunks[number]);
        let mut names = std::mem::take(&mut chunk.names);
        names.extend(next.names);
        *chunk = Chunk::of(names);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    const KEYSPACE: KeyspaceId = KeyspaceId(3);

    /// Kinds of names.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Family {
        Short,
        /// All have a common prefix.
        Long,
        /// Of any length from zero on; some differ only in trailing zeros, and one in five shares more than a
        /// head with others.
        Odd,
    }

    fn name(number: u32, family: Family) -> Box<[u8]> {
        let bytes = number.to_be_bytes();
        match family {
            Family::Short => bytes[2..].into(),
            Family::Long => [&b"a long prefix/"[..], &bytes].concat().into(),
            Family::Odd => {
                let mut name = if number % 5 == 1 { vec![b'a'; 14] } else { Vec::new() };
                let mut rest = number;
                while rest > 0 {
                    rest -= 1;
                    name.push([0, b'a', u8::MAX][rest as usize % 3]);
                    rest /= 3;
                }
                name.into()
            }
        }
    }

    proptest! {
        /// Names are found, and iterated in order from any name on, for any sequence of edits; an older value
        /// stays unchanged.
        #[test]
        fn names_are_as_in_a_map(
            family in prop_oneof![Just(Family::Short), Just(Family::Long), Just(Family::Odd)],
            edits in proptest::collection::vec((0u32..2000, 1u32..400, proptest::bool::weighted(0.6)), 1..12),
        ) {
            let mut names = NamesByKeyspace::default();
            names.apply(NameChange::Divide(KEYSPACE));
            let mut map: BTreeMap<Box<[u8]>, PartitionId> = BTreeMap::new();
            for (from, count, adds) in edits {
                let (before, map_before) = (names.clone(), map.clone());
                for number in from..from + count {
                    let name = name(number, family);
                    if adds && !map.contains_key(&name) {
                        map.insert(name.clone(), PartitionId(number + 1));
                        names.apply(NameChange::Add(KEYSPACE, name, PartitionId(number + 1)));
                    } else if !adds && map.remove(&name).is_some() {
                        names.apply(NameChange::Remove(KEYSPACE, name));
                    }
                }
                check(before.of(KEYSPACE).expect("divided"), &map_before, family)?;
                check(names.of(KEYSPACE).expect("divided"), &map, family)?;
            }
            names.apply(NameChange::Forget(KEYSPACE));
            prop_assert!(names.of(KEYSPACE).is_none());
        }
    }

    fn check(
        names: &Names,
        map: &BTreeMap<Box<[u8]>, PartitionId>,
        family: Family,
    ) -> Result<(), TestCaseError> {
        prop_assert!(names.chunks.iter().all(|one| (1..=CHUNK_NAMES_MAX).contains(&one.names.len())));
        for number in (0..2500).step_by(7) {
            let name = name(number, family);
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
        all.apply(NameChange::Divide(KEYSPACE));
        for number in 0..10_000u32 {
            let name = number.to_be_bytes();
            all.apply(NameChange::Add(KEYSPACE, name.into(), PartitionId(number + 1)));
        }
        let mut after = all.clone();
        after.apply(NameChange::Remove(KEYSPACE, 5000u32.to_be_bytes().into()));
        let (all, after) = (all.of(KEYSPACE).expect("divided"), after.of(KEYSPACE).expect("divided"));
        assert!(all.chunks.len() <= 10_000 / CHUNK_NAMES_MAX + 2, "{} chunks", all.chunks.len());
        let is_shared = |chunk: &&Arc<Chunk>| all.chunks.iter().any(|old| Arc::ptr_eq(old, chunk));
        assert!(after.chunks.iter().filter(|chunk| !is_shared(chunk)).count() <= 2);
    }
}
