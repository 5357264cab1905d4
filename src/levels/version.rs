//! A version: the immutable map partition → levels → runs → tables. A change makes a new version that shares
//! what did not change.
//!
//! It reads nothing and decides nothing. Readers search it under a view; flush, merge and drop make its
//! successors.
//!
//! Invariants:
//! 1. Trees are sorted by id, each once; so are the chunks that they lie in.
//! 2. Levels hold their runs newest first. In level 0 every table is a run, and they are disjoint in
//!    sequence; in a deeper level tables with one run number are a run, and the greater number is the newer.
//! 3. Tables of a run are sorted by key and disjoint.

mod placed;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::{KeyspaceId, TreeId};
use crate::base::key::{common_prefix, head, head_after};
use crate::base::sync::{Arc, OnceLock};
use crate::format::manifest;
use crate::format::table::ranges::{Around, Ranges};
use crate::table::Table;

use super::names::{self, Names, NamesByKeyspace};

pub(crate) use placed::Placed;

/// Deepest level.
const LEVEL_MAX: usize = manifest::LEVEL_MAX as usize;

/// Tables with disjoint key ranges, searched as one.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Among the runs of a level ≥ 1 the newer has the greater; 0 in level 0.
    number: u64,
    tables: Tables,
    bytes: u64,
    /// Whether any of its tables has range tombstones: every get asks.
    has_ranges: bool,
}

/// The tables of a run: in most runs of a small tree one, which needs nothing beside it.
#[derive(Clone, Debug)]
enum Tables {
    One(Placed),
    Many(Box<Many>),
}

#[derive(Clone, Debug)]
struct Many {
    tables: Vec<Placed>,
    /// Length of the prefix that all keys of the run share.
    shared_bytes: usize,
    /// The 8 bytes of each table's largest key after the shared prefix, so that a search touches few lines.
    max_words: Vec<u64>,
    /// Tables with range tombstones, in order.
    ranged: Vec<u32>,
}

impl Many {
    fn new(tables: Vec<Placed>) -> Many {
        let (first, last) = (&tables[0].table, &tables[tables.len() - 1].table);
        let shared_bytes = common_prefix(first.min(), last.max());
        let max_words = tables.iter().map(|placed| head_after(placed.table.max(), shared_bytes)).collect();
        let has_ranges = |index: &u32| !tables[*index as usize].table.ranges().is_empty();
        let ranged = (0..tables.len() as u32).filter(has_ranges).collect();
        Many { tables, shared_bytes, max_words, ranged }
    }

    /// See [`Run::position`], of a key between the run's ends.
    #[inline]
    fn position(&self, key: &[u8]) -> usize {
        // There every key has the shared prefix.
        let word = head_after(key, self.shared_bytes);
        let start = self.max_words.partition_point(|max| *max < word);
        if self.max_words.get(start).is_none_or(|max| *max != word) {
            return start;
        }
        let equal = self.max_words[start..].partition_point(|max| *max == word);
        start + self.tables[start..start + equal].partition_point(|placed| placed.table.max() < key)
    }
}

impl Run {
    /// A run of tables in key order.
    pub(crate) fn new(number: u64, tables: Vec<Placed>) -> Run {
        assert!(!tables.is_empty(), "a run has a table");
        for pair in tables.windows(2) {
            assert!(pair[0].table.max() < pair[1].table.min(), "tables of a run are sorted and disjoint");
        }
        let bytes = tables.iter().map(|placed| placed.table.slice_bytes()).sum();
        let has_ranges = tables.iter().any(|placed| !placed.table.ranges().is_empty());
        let tables = match <[Placed; 1]>::try_from(tables) {
            Ok([one]) => Tables::One(one),
            Err(tables) => Tables::Many(Box::new(Many::new(tables))),
        };
        Run { number, tables, bytes, has_ranges }
    }

    fn min(&self) -> &[u8] {
        self.tables()[0].table.min()
    }

    fn max(&self) -> &[u8] {
        self.last().max()
    }

    fn last(&self) -> &Table {
        let tables = self.tables();
        &tables[tables.len() - 1].table
    }

    /// Bytes of its tables' files that are its own.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    pub(crate) fn tables(&self) -> &[Placed] {
        match &self.tables {
            Tables::One(one) => std::slice::from_ref(one),
            Tables::Many(many) => &many.tables,
        }
    }

    /// Numbers of the tables with range tombstones, ascending.
    fn ranged(&self) -> &[u32] {
        match &self.tables {
            Tables::One(one) if one.table.ranges().is_empty() => &[],
            Tables::One(_) => &[0],
            Tables::Many(many) => &many.ranged,
        }
    }

    /// Index of the first table whose largest key is not below `key`; the number of tables if there is none.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.position_with_head(key, head(key))
    }

    /// As `position`, of a key that has this head: most comparisons need no more of it.
    #[inline]
    fn position_with_head(&self, key: &[u8], key_head: u64) -> usize {
        let tables = self.tables();
        if !tables[0].table.ends_before(key, key_head) {
            return 0;
        }
        match &self.tables {
            Tables::Many(many) if !self.last().ends_before(key, key_head) => many.position(key),
            _ => tables.len(),
        }
    }

    /// Whether any of its tables has range tombstones.
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// How far its range tombstones go on over a key, if they cover it; an empty end is none.
    pub(crate) fn end_over(&self, key: &[u8]) -> Option<&[u8]> {
        let around = self.around(key);
        around.is_covered.then_some(around.to)
    }

    /// What its range tombstones say of the keys around `key`. A range that goes on in the next table is one.
    pub(crate) fn around(&self, key: &[u8]) -> Around<'_> {
        let ranged = self.ranged();
        let ranges = |index: usize| ranged.get(index).map(|table| self.ranges_of(*table));
        let first = |index: usize| ranges(index).and_then(Ranges::first);
        let begun =
            ranged.partition_point(|table| self.ranges_of(*table).first().is_some_and(|first| first <= key));
        let Some(at) = begun.checked_sub(1) else {
            return Around { is_covered: false, from: &[], to: first(0).unwrap_or_default() };
        };
        let mut around = self.ranges_of(ranged[at]).around(key);
        if !around.is_covered {
            if around.to.is_empty() {
                around.to = first(begun).unwrap_or_default();
            }
            return around;
        }
        for table in &ranged[begun..] {
            let next = self.ranges_of(*table);
            if around.to.is_empty() || next.first() != Some(around.to) {
                break;
            }
            around.to = next.get(0).1;
            if next.count() > 1 {
                break;
            }
        }
        for index in (0..at).rev() {
            let is_first = first(index + 1) == Some(around.from);
            match self.ranges_of(ranged[index]).last() {
                Some((start, end)) if is_first && end == around.from => around.from = start,
                _ => break,
            }
        }
        around
    }

    fn ranges_of(&self, table: u32) -> &Ranges {
        self.tables()[table as usize].table.ranges()
    }

    /// The table that holds `key` if the run does: by range only.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let key_head = head(key);
        let index = self.position_with_head(key, key_head);
        (!self.tables().get(index)?.table.begins_after(key, key_head)).then_some(index)
    }
}

/// One partition of a keyspace: its levels.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    /// Level 0 first; empty levels at the end are left out. Trees share the levels in which they are alike.
    levels: Vec<Arc<[Run]>>,
    shared_prefix: Box<[u8]>,
    key_bytes: usize,
    /// Names of tables that nobody would miss, once somebody looked for them.
    unseen: OnceLock<Box<[(u64, u32)]>>,
}

impl Tree {
    /// The tables that nobody would miss, as `find` finds them once: a tree never changes.
    pub(crate) fn unseen(&self, find: impl FnOnce() -> Box<[(u64, u32)]>) -> &[(u64, u32)] {
        self.unseen.get_or_init(find)
    }

    pub(crate) fn levels(&self) -> &[Arc<[Run]>] {
        &self.levels
    }

    /// What all keys of its tables begin with.
    pub(crate) fn shared_prefix(&self) -> &[u8] {
        &self.shared_prefix
    }

    /// Length of the longer of its bounds, as that of its keys is not known; 0 without tables.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Every run, newest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.levels.iter().flat_map(|runs| runs.iter())
    }

    /// The run at a place; `None` past the end of its level.
    pub(crate) fn run(&self, level: usize, run: usize) -> Option<&Run> {
        self.levels.get(level)?.get(run)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Placed)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| {
            runs.iter().flat_map(move |run| run.tables().iter().map(move |placed| (level, placed)))
        })
    }

    /// A number for a run that is newer than all others of a level ≥ 1.
    pub(crate) fn next_run_number(&self, level: usize) -> u64 {
        let runs = self.levels.get(level).into_iter().flat_map(|runs| runs.iter());
        runs.map(Run::number).max().map_or(0, |newest| newest + 1)
    }

    /// Every table with where it is.
    pub(crate) fn spots(&self) -> impl Iterator<Item = (Spot, &Placed)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| {
            runs.iter().flat_map(move |run| {
                let spot = Spot { level, run: run.number };
                run.tables().iter().map(move |placed| (spot, placed))
            })
        })
    }

    /// `before`: what it was before a change.
    fn from_tables(id: TreeId, placed: Vec<(Spot, Placed)>, before: Option<&Tree>) -> Tree {
        let level_count = placed.iter().map(|(spot, _)| spot.level + 1).max().unwrap_or(0);
        assert!(level_count <= LEVEL_MAX + 1, "a level fits its range");
        let mut by_level: Vec<Vec<(u64, Placed)>> = vec![Vec::new(); level_count];
        for (spot, one) in placed {
            by_level[spot.level].push((spot.run, one));
        }
        let levels = by_level.into_iter().enumerate().map(|(level, tables)| {
            let runs = runs_of(level, tables);
            let same =
                before.and_then(|before| before.levels.get(level)).filter(|same| are_same(same, &runs));
            same.map_or_else(|| runs.into(), Arc::clone)
        });
        let levels: Vec<Arc<[Run]>> = levels.collect();
        let runs = || levels.iter().flat_map(|runs| runs.iter());
        let min = runs().map(Run::min).min().unwrap_or_default();
        let max = runs().map(Run::max).max().unwrap_or_default();
        let (shared_prefix, key_bytes) = (min[..common_prefix(min, max)].into(), min.len().max(max.len()));
        Tree { id, levels, shared_prefix, key_bytes, unseen: OnceLock::new() }
    }
}

/// Whether runs have the same tables.
fn are_same(runs: &[Run], others: &[Run]) -> bool {
    let is_same = |(one, other): (&Placed, &Placed)| {
        Arc::ptr_eq(&one.table, &other.table)
            && (one.first_sequence, one.last_sequence) == (other.first_sequence, other.last_sequence)
    };
    runs.len() == others.len()
        && runs.iter().zip(others).all(|(run, other)| {
            run.number == other.number
                && run.tables().len() == other.tables().len()
                && run.tables().iter().zip(other.tables()).all(is_same)
        })
}

fn runs_of(level: usize, mut tables: Vec<(u64, Placed)>) -> Vec<Run> {
    if level > 0 {
        let mut runs: BTreeMap<u64, Vec<Placed>> = BTreeMap::new();
        tables.into_iter().for_each(|(run, placed)| runs.entry(run).or_default().push(placed));
        let newest_first = runs.into_iter().rev().map(|(number, mut tables)| {
            tables.sort_by(|a, b| a.table.min().cmp(b.table.min()));
            Run::new(number, tables)
        });
        return newest_first.collect();
    }
    tables.sort_by_key(|(_, placed)| std::cmp::Reverse(placed.last_sequence));
    for pair in tables.windows(2) {
        let (newer, older) = (&pair[0].1, &pair[1].1);
        assert!(older.last_sequence < newer.first_sequence, "runs of level 0 are disjoint in sequence");
    }
    tables.into_iter().map(|(_, placed)| Run::new(0, vec![placed])).collect()
}

/// A run of a level, by its number: 0 in level 0, where each table is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub(crate) level: usize,
    pub(crate) run: u64,
}

impl Spot {
    /// Where flushes write.
    pub(crate) const LEVEL_0: Spot = Spot { level: 0, run: 0 };
}

/// One change of a version.
#[derive(Debug)]
pub(crate) enum Change {
    AddTree(TreeId),
    DropTree(TreeId),
    Add {
        spot: Spot,
        placed: Placed,
    },
    /// The table of that name leaves the tree; its file goes once nobody looks at it.
    Remove {
        tree: TreeId,
        name: (u64, u32),
    },
    Move {
        tree: TreeId,
        name: (u64, u32),
        spot: Spot,
    },
    Name(names::Change),
}

/// Trees of a chunk, at most: a change of a version copies one or two of them, and a pointer to each other.
const CHUNK_TREES_MAX: usize = 128;

/// Trees whose ids follow one another.
#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Ids of `trees`, apart so that a search touches few lines.
    ids: Vec<TreeId>,
    trees: Vec<Arc<Tree>>,
}

impl Chunk {
    #[inline]
    fn tree(&self, id: TreeId) -> Option<&Arc<Tree>> {
        let index = match self.ids.as_slice() {
            [only] if *only == id => 0,
            ids => ids.binary_search(&id).ok()?,
        };
        self.trees.get(index)
    }

    fn replace(&mut self, id: TreeId, tree: Option<Arc<Tree>>) {
        match (self.ids.binary_search(&id), tree) {
            (Ok(index), Some(tree)) => self.trees[index] = tree,
            (Ok(index), None) => {
                self.ids.remove(index);
                self.trees.remove(index);
            }
            (Err(index), Some(tree)) => {
                self.ids.insert(index, id);
                self.trees.insert(index, tree);
            }
            (Err(_), None) => {}
        }
    }

    /// Its trees from an index on.
    fn split_off(&mut self, index: usize) -> Chunk {
        Chunk { ids: self.ids.split_off(index), trees: self.trees.split_off(index) }
    }

    fn append(&mut self, next: &Chunk) {
        self.ids.extend_from_slice(&next.ids);
        self.trees.extend_from_slice(&next.trees);
    }
}

/// All trees at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    /// Here, so that a search of few trees goes no further. It may be empty.
    first: Chunk,
    /// None is empty.
    others: Vec<Arc<Chunk>>,
    /// The first id in each of `others`.
    others_from: Vec<TreeId>,
    names: NamesByKeyspace,
}

impl Version {
    pub(crate) fn tree(&self, id: TreeId) -> Option<&Tree> {
        self.counted_tree(id).map(Arc::as_ref)
    }

    /// The same, for what outlives the version.
    #[inline]
    pub(crate) fn counted_tree(&self, id: TreeId) -> Option<&Arc<Tree>> {
        if self.others.is_empty() {
            return self.first.tree(id);
        }
        match self.others_from.partition_point(|from| *from <= id) {
            0 => self.first.tree(id),
            number => self.others.get(number - 1)?.tree(id),
        }
    }

    /// The partitions of a keyspace by name, if keys divide it.
    #[inline]
    pub(crate) fn names(&self, keyspace: KeyspaceId) -> Option<&Names> {
        self.names.of(keyspace)
    }

    pub(crate) fn trees(&self) -> impl Iterator<Item = &Arc<Tree>> {
        let trees = self.first.trees.iter().chain(self.others.iter().flat_map(|chunk| &chunk.trees));
        #[cfg(test)]
        let trees = trees.inspect(|_| crate::base::visits::count());
        trees
    }

    /// The version after `changes`; untouched trees are shared.
    pub(crate) fn after(&self, changes: Vec<Change>) -> Version {
        let mut touched: BTreeMap<TreeId, Option<Vec<(Spot, Placed)>>> = BTreeMap::new();
        // An edit may remove all that a large tree has: they are looked for together.
        let mut removed: BTreeMap<TreeId, BTreeSet<(u64, u32)>> = BTreeMap::new();
        let mut next = self.clone();
        for change in changes {
            let change = match change {
                Change::Name(name) => {
                    next.names.apply(name);
                    continue;
                }
                other => other,
            };
            let id = change.tree().expect("all others are of a tree");
            let tables = touched.entry(id).or_insert_with(|| {
                #[cfg(test)]
                crate::base::visits::count();
                self.tree(id).map(|tree| tree.spots().map(|(spot, one)| (spot, one.clone())).collect())
            });
            match change {
                Change::Remove { tree, name } => drop(removed.entry(tree).or_default().insert(name)),
                other => apply(tables, other),
            }
        }
        for (id, names) in removed {
            let tables = touched.get_mut(&id).and_then(Option::as_mut);
            let tables = tables.expect("tables are removed from trees that are there");
            let before = tables.len();
            tables.retain(|(_, placed)| !names.contains(&placed.name()));
            assert_eq!(before - tables.len(), names.len(), "only what is there is removed, and once");
        }
        for (id, tables) in touched {
            let tree = tables.map(|tables| Arc::new(Tree::from_tables(id, tables, self.tree(id))));
            next.replace(id, tree);
        }
        next
    }

    fn replace(&mut self, id: TreeId, tree: Option<Arc<Tree>>) {
        let Some(index) = self.others_from.partition_point(|from| *from <= id).checked_sub(1) else {
            self.first.replace(id, tree);
            if self.first.ids.len() > CHUNK_TREES_MAX {
                let next = self.first.split_off(CHUNK_TREES_MAX / 2);
                self.insert_chunk(0, next);
            }
            return;
        };
        let is_last = index + 1 == self.others.len();
        let chunk = Arc::make_mut(&mut self.others[index]);
        chunk.replace(id, tree);
        if chunk.ids.len() > CHUNK_TREES_MAX {
            // New trees have the greatest ids: what they leave behind stays full.
            let next = chunk.split_off(if is_last { CHUNK_TREES_MAX } else { CHUNK_TREES_MAX / 2 });
            self.insert_chunk(index + 1, next);
        } else if chunk.ids.is_empty() {
            self.remove_chunk(index);
        } else {
            self.others_from[index] = chunk.ids[0];
            self.join_next(index);
        }
    }

    fn insert_chunk(&mut self, index: usize, chunk: Chunk) {
        self.others_from.insert(index, chunk.ids[0]);
        self.others.insert(index, Arc::new(chunk));
    }

    fn remove_chunk(&mut self, index: usize) -> Arc<Chunk> {
        self.others_from.remove(index);
        self.others.remove(index)
    }

    /// Makes a chunk and the next one, if they are small, one.
    fn join_next(&mut self, index: usize) {
        let count = |index: usize| self.others.get(index).map_or(CHUNK_TREES_MAX, |one| one.ids.len());
        if count(index) + count(index + 1) <= CHUNK_TREES_MAX / 2 {
            let next = self.remove_chunk(index + 1);
            Arc::make_mut(&mut self.others[index]).append(&next);
        }
    }
}

impl Change {
    /// The tree that it changes.
    pub(crate) fn tree(&self) -> Option<TreeId> {
        match self {
            Change::AddTree(tree) | Change::DropTree(tree) => Some(*tree),
            Change::Remove { tree, .. } | Change::Move { tree, .. } => Some(*tree),
            Change::Add { placed, .. } => Some(placed.table.tree()),
            Change::Name(_) => None,
        }
    }
}

fn apply(tables: &mut Option<Vec<(Spot, Placed)>>, change: Change) {
    match change {
        Change::AddTree(_) => assert!(tables.replace(Vec::new()).is_none(), "a tree is added once"),
        Change::DropTree(_) => *tables = None,
        Change::Add { spot, placed } => {
            tables.as_mut().expect("tables are added to trees that are there").push((spot, placed));
        }
        Change::Remove { .. } => unreachable!("removed together, after all others"),
        Change::Name(_) => unreachable!("of no tree"),
        Change::Move { name, spot, .. } => {
            let tables = tables.as_mut().expect("tables are moved in trees that are there");
            let moved = tables.iter_mut().find(|(_, placed)| placed.name() == name);
            moved.expect("only what is there is moved").0 = spot;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::{KeyspaceId, PartitionId};

    fn id(number: u32) -> TreeId {
        TreeId { keyspace: KeyspaceId(number), partition: PartitionId(number) }
    }

    fn check(version: &Version, numbers: &BTreeSet<u32>) {
        let found: Vec<TreeId> = version.trees().map(|tree| tree.id).collect();
        assert_eq!(found, numbers.iter().map(|number| id(*number)).collect::<Vec<_>>());
        let most = numbers.last().map_or(0, |last| *last) + 2;
        for number in 0..most {
            let tree = version.tree(id(number)).map(|tree| tree.id);
            assert_eq!(tree, numbers.contains(&number).then(|| id(number)));
        }
        let sizes = || std::iter::once(&version.first).chain(version.others.iter().map(|one| &**one));
        assert!(
            sizes().all(|chunk| chunk.ids.len() <= CHUNK_TREES_MAX && chunk.ids.len() == chunk.trees.len())
        );
        assert!(version.others.iter().all(|chunk| !chunk.ids.is_empty()));
    }

    proptest::proptest! {
        /// A version has the trees that were added and not dropped, in the order of their ids, however they
        /// came and went.
        #[test]
        fn trees_are_found_in_their_order(
            edits in proptest::collection::vec((0u32..2000, 1u32..400, proptest::bool::weighted(0.6)), 1..20),
        ) {
            let (mut version, mut numbers) = (Version::default(), BTreeSet::new());
            for (from, count, adds) in edits {
                let (mut changes, before) = (Vec::new(), numbers.clone());
                for number in from..from + count {
                    if adds && numbers.insert(number) {
                        changes.push(Change::AddTree(id(number)));
                    } else if !adds && numbers.remove(&number) {
                        changes.push(Change::DropTree(id(number)));
                    }
                }
                let after = version.after(changes);
                check(&version, &before);
                check(&after, &numbers);
                version = after;
            }
        }
    }

    /// A change of one tree of ten thousand copies few of them, and a pointer for each hundred others.
    #[test]
    fn changes_copy_few_trees() {
        let all = Version::default().after((0..10_000).map(|number| Change::AddTree(id(number))).collect());
        assert!(all.others.len() <= 10_000 / CHUNK_TREES_MAX + 2, "{} chunks", all.others.len());
        for number in [0, 63, 64, 5000, 9999] {
            let after = all.after(vec![Change::DropTree(id(number))]);
            let is_shared = |chunk: &&Arc<Chunk>| all.others.iter().any(|old| Arc::ptr_eq(old, chunk));
            let copied: usize =
                after.others.iter().filter(|chunk| !is_shared(chunk)).map(|chunk| chunk.ids.len()).sum();
            assert!(copied + after.first.ids.len() <= 2 * CHUNK_TREES_MAX, "{copied} trees are copied");
        }
        let none = all.after((0..9_990).map(|number| Change::DropTree(id(number))).collect());
        assert!(none.others.len() <= 2, "{} chunks of 10 trees", none.others.len());
    }
}
