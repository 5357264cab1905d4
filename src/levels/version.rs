//! A version: the immutable map partition → levels → runs → tables; for a hashed keyspace partition → nodes →
//! runs → tables. A change makes a new version that shares all unchanged parts.
//!
//! A version does no I/O and has no policy. Readers search it under a view; flush, merge and drop make its
//! successors.
//!
//! Invariants:
//! 1. Trees are sorted by id, without duplicates. They lie in chunks, which are in the same order.
//! 2. Levels hold their runs newest first. In level 0 each table is a run, and no two overlap in sequence
//!    numbers. In a deeper level, tables with the same run number form a run, and the run with the greater
//!    number is newer.
//! 3. Tables of a run are sorted by key and disjoint.

mod placed;
mod run;
#[cfg(test)]
pub(crate) mod sample;
mod spot;
mod trie;

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::base::id::{KeyspaceId, TreeId};
use crate::base::key::common_prefix;
use crate::base::place::{NodeId, child_at};
use crate::base::sync::{Arc, OnceLock};
use crate::format::manifest;

use super::names::{self, Names, NamesByKeyspace};

pub(crate) use placed::Placed;
use run::runs_of;
pub(crate) use run::{Run, next_number};
pub(crate) use spot::Spot;
use trie::PileChange;
pub(crate) use trie::{Trie, TrieNode};

/// The deepest level.
const LEVEL_MAX: usize = manifest::LEVEL_MAX as usize;

/// One partition of a keyspace.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    shape: Shape,
    shared_prefix: Box<[u8]>,
    key_bytes: usize,
    /// Names of the tables that an edit alone can remove (`compact::fully_covered`), cached at the first
    /// search.
    fully_covered: OnceLock<Box<[(u64, u32)]>>,
}

/// The arrangement of a tree's runs.
#[derive(Clone, Debug)]
enum Shape {
    /// Level 0 first; empty levels at the end are left out. Versions of a tree share equal levels. Most small
    /// trees have one level beside level 0; two levels fit inline.
    Levels(SmallVec<[Arc<[Run]>; 2]>),
    /// The nodes of a hashed tree.
    Trie(Trie),
}

/// The runs that may have a key: a pile for each level or height, newest first.
pub(crate) enum Piles<'t, 'k> {
    Levels(std::slice::Iter<'t, Arc<[Run]>>),
    Trie { node: Option<&'t TrieNode>, height: usize, key: &'k [u8] },
}

impl<'t> Iterator for Piles<'t, '_> {
    type Item = &'t [Run];

    #[inline(always)]
    fn next(&mut self) -> Option<&'t [Run]> {
        match self {
            Piles::Levels(levels) => levels.next().map(|runs| &**runs),
            Piles::Trie { node, height, key } => {
                let at = (*node)?;
                *height += 1;
                *node = at.child(child_at(*height, key));
                Some(at.runs())
            }
        }
    }
}

impl Tree {
    /// The tables that an edit alone can remove. `find` is called once, since a tree never changes.
    pub(crate) fn fully_covered(&self, find: impl FnOnce() -> Box<[(u64, u32)]>) -> &[(u64, u32)] {
        self.fully_covered.get_or_init(find)
    }

    /// The levels of an ordered tree; none for a trie.
    pub(crate) fn levels(&self) -> &[Arc<[Run]>] {
        match &self.shape {
            Shape::Levels(levels) => levels,
            Shape::Trie(_) => &[],
        }
    }

    /// The nodes of a hashed tree.
    pub(crate) fn trie(&self) -> Option<&Trie> {
        match &self.shape {
            Shape::Levels(_) => None,
            Shape::Trie(trie) => Some(trie),
        }
    }

    /// The number of levels, or heights of nodes, down to the deepest with a table.
    pub(crate) fn level_count(&self) -> usize {
        match &self.shape {
            Shape::Levels(levels) => levels.len(),
            Shape::Trie(trie) => trie.heights().len(),
        }
    }

    /// For each level, the runs that may have a key, chosen by level or node only.
    #[inline(always)]
    pub(crate) fn piles<'t, 'k>(&'t self, key: &'k [u8]) -> Piles<'t, 'k> {
        match &self.shape {
            Shape::Levels(levels) => Piles::Levels(levels.iter()),
            Shape::Trie(trie) => Piles::Trie { node: Some(trie.root()), height: 0, key },
        }
    }

    /// The common prefix of all keys of its tables.
    pub(crate) fn shared_prefix(&self) -> &[u8] {
        &self.shared_prefix
    }

    /// The length of the longer of its bounds, an estimate of its keys' length; 0 without tables.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Every run, each before older runs that may have the same keys.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs_by_level().map(|(_, run)| run)
    }

    /// Every run with its level, in the same order.
    pub(crate) fn runs_by_level(&self) -> impl Iterator<Item = (usize, &Run)> {
        self.piles_by_level().flat_map(|(level, runs)| runs.iter().map(move |run| (level, run)))
    }

    /// The runs of each level, or node of a trie, that has any.
    pub(crate) fn piles_by_level(&self) -> impl Iterator<Item = (usize, &[Run])> {
        let levels = self.levels().iter().map(|runs| &**runs).enumerate();
        let nodes = self.trie().into_iter().flat_map(Trie::nodes);
        let piles = levels.chain(nodes.map(|(id, node)| (id.height, node.runs())));
        piles.filter(|(_, runs)| !runs.is_empty())
    }

    /// Those of its first `runs` runs that have range tombstones. In a trie only runs of the root have any.
    pub(crate) fn ranged_runs(&self, runs: usize) -> impl Iterator<Item = &Run> {
        let root = self.trie().map_or(&[][..], |trie| trie.root().runs());
        let runs = self.levels().iter().flat_map(|runs| runs.iter()).chain(root).take(runs);
        runs.filter(|run| run.has_ranges())
    }

    /// The run at this level and index on the path of a key; `None` past the end of its pile.
    #[inline]
    pub(crate) fn run(&self, level: usize, run: usize, key: &[u8]) -> Option<&Run> {
        match &self.shape {
            Shape::Levels(levels) => levels.get(level)?.get(run),
            Shape::Trie(_) => self.piles(key).nth(level)?.get(run),
        }
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Placed)> {
        self.spots().map(|(spot, placed)| (spot.level, placed))
    }

    /// A number for a run newer than all others of a level ≥ 1.
    pub(crate) fn next_run_number(&self, level: usize) -> u64 {
        next_number(self.levels().get(level).map_or(&[][..], |runs| runs))
    }

    /// Every table with its spot.
    pub(crate) fn spots(&self) -> impl Iterator<Item = (Spot, &Placed)> {
        self.runs_by_level().flat_map(|(level, run)| {
            let spot = Spot { level, run: run.number() };
            run.tables().iter().map(move |placed| (spot, placed))
        })
    }

    /// Its tables with one of the names; in a trie each is looked up in its node.
    pub(crate) fn named(&self, names: &BTreeMap<(u64, u32), NodeId>) -> Vec<&Placed> {
        match &self.shape {
            Shape::Levels(_) => {
                let all = self.tables().map(|(_, placed)| placed);
                all.filter(|placed| names.contains_key(&placed.name())).collect()
            }
            Shape::Trie(trie) => names.iter().filter_map(|(name, node)| trie.find(*name, *node)).collect(),
        }
    }

    fn from_trie(id: TreeId, trie: Trie) -> Tree {
        Tree {
            id,
            shape: Shape::Trie(trie),
            shared_prefix: Box::default(),
            key_bytes: 0,
            fully_covered: OnceLock::new(),
        }
    }

    /// `before`: the tree before the change.
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
                before.and_then(|before| before.levels().get(level)).filter(|same| are_same(same, &runs));
            same.map_or_else(|| runs.into(), Arc::clone)
        });
        let mut levels: SmallVec<[Arc<[Run]>; 2]> = levels.collect();
        levels.shrink_to_fit();
        let runs = || levels.iter().flat_map(|runs| runs.iter());
        let min = runs().map(Run::min).min().unwrap_or_default();
        let max = runs().map(Run::max).max().unwrap_or_default();
        let (shared_prefix, key_bytes) = (min[..common_prefix(min, max)].into(), min.len().max(max.len()));
        Tree { id, shape: Shape::Levels(levels), shared_prefix, key_bytes, fully_covered: OnceLock::new() }
    }
}

/// Whether two lists of runs have the same tables.
fn are_same(runs: &[Run], others: &[Run]) -> bool {
    let is_same = |(one, other): (&Placed, &Placed)| {
        Arc::ptr_eq(&one.table, &other.table)
            && (one.first_sequence, one.last_sequence) == (other.first_sequence, other.last_sequence)
    };
    runs.len() == others.len()
        && runs.iter().zip(others).all(|(run, other)| {
            run.number() == other.number()
                && run.tables().len() == other.tables().len()
                && run.tables().iter().zip(other.tables()).all(is_same)
        })
}

/// One change of a version.
#[derive(Debug)]
pub(crate) enum VersionChange {
    AddTree(TreeId),
    DropTree(TreeId),
    Add {
        spot: Spot,
        placed: Placed,
    },
    /// The table of that name leaves the tree; its file is removed once it has no readers.
    Remove {
        tree: TreeId,
        name: (u64, u32),
        /// The table's node, in a hashed tree.
        node: NodeId,
    },
    Move {
        tree: TreeId,
        name: (u64, u32),
        node: NodeId,
        spot: Spot,
    },
    Name(names::NameChange),
}

/// The most trees of a chunk: a change of a version copies one or two chunks, and a pointer to each other
/// chunk.
const CHUNK_TREES_MAX: usize = 128;

/// Trees with adjacent ids.
#[derive(Clone, Debug, Default)]
struct Chunk {
    /// The ids of `trees`, kept apart so that a search touches few cache lines.
    ids: Vec<TreeId>,
    trees: Vec<Arc<Tree>>,
}

impl Chunk {
    #[inline]
    fn tree(&self, id: TreeId) -> Option<&Arc<Tree>> {
        let first = self.ids.first()?;
        // Trees that were created together have consecutive ids.
        let ahead = id.partition.0.wrapping_sub(first.partition.0) as usize;
        match self.trees.get(ahead) {
            Some(tree) if tree.id == id => Some(tree),
            _ => self.trees.get(self.ids.binary_search(&id).ok()?),
        }
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

    /// Splits off its trees from an index on.
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
    /// Inline, so that a search among few trees needs no pointer. May be empty.
    first: Chunk,
    /// None of these is empty.
    others: Vec<Arc<Chunk>>,
    /// The first id of each of `others`.
    others_from: Vec<TreeId>,
    names: NamesByKeyspace,
}

impl Version {
    pub(crate) fn tree(&self, id: TreeId) -> Option<&Tree> {
        self.counted_tree(id).map(Arc::as_ref)
    }

    /// As [`Version::tree`], counted, for callers that outlive the version.
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
    pub(crate) fn after(&self, changes: Vec<VersionChange>) -> Version {
        let mut touched: BTreeMap<TreeId, Option<Vec<(Spot, Placed)>>> = BTreeMap::new();
        // An edit may remove all tables of a large tree, so removals are applied together.
        let mut removed: BTreeMap<TreeId, BTreeSet<(u64, u32)>> = BTreeMap::new();
        let mut hashed: BTreeMap<TreeId, Vec<VersionChange>> = BTreeMap::new();
        let mut next = self.clone();
        for change in changes {
            let change = match change {
                VersionChange::Name(name) => {
                    next.names.apply(name);
                    continue;
                }
                other => other,
            };
            let id = change.tree().expect("all others are of a tree");
            if id.keyspace.is_hashed() {
                hashed.entry(id).or_default().push(change);
                continue;
            }
            let tables = touched.entry(id).or_insert_with(|| {
                #[cfg(test)]
                crate::base::visits::count();
                self.tree(id).map(|tree| tree.spots().map(|(spot, one)| (spot, one.clone())).collect())
            });
            match change {
                VersionChange::Remove { tree, name, .. } => {
                    removed.entry(tree).or_default().insert(name);
                }
                other => apply(tables, other),
            }
        }
        for (id, changes) in hashed {
            let trie = trie_after(self.tree(id), changes);
            next.replace(id, trie.map(|trie| Arc::new(Tree::from_trie(id, trie))));
        }
        for (id, names) in removed {
            let tables = touched.get_mut(&id).and_then(Option::as_mut);
            let tables = tables.expect("tables are removed from trees that are there");
            let before = tables.len();
            tables.retain(|(_, placed)| !names.contains(&placed.name()));
            assert_eq!(before - tables.len(), names.len(), "tables are removed once, and only if present");
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
            // New trees have the greatest ids: the chunk before stays full.
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

    /// Joins a chunk and the next one if both are small.
    fn join_next(&mut self, index: usize) {
        let count = |index: usize| self.others.get(index).map_or(CHUNK_TREES_MAX, |one| one.ids.len());
        if count(index) + count(index + 1) <= CHUNK_TREES_MAX / 2 {
            let next = self.remove_chunk(index + 1);
            Arc::make_mut(&mut self.others[index]).append(&next);
        }
    }
}

impl VersionChange {
    /// The tree that the change affects.
    pub(crate) fn tree(&self) -> Option<TreeId> {
        match self {
            VersionChange::AddTree(tree) | VersionChange::DropTree(tree) => Some(*tree),
            VersionChange::Remove { tree, .. } | VersionChange::Move { tree, .. } => Some(*tree),
            VersionChange::Add { placed, .. } => Some(placed.table.tree()),
            VersionChange::Name(_) => None,
        }
    }
}

/// A hashed tree after changes; `None` if it is dropped.
fn trie_after(before: Option<&Tree>, changes: Vec<VersionChange>) -> Option<Trie> {
    let before = before.and_then(Tree::trie);
    let mut trie = before.cloned();
    let mut piles: BTreeMap<NodeId, Vec<PileChange>> = BTreeMap::new();
    let find =
        |name, node| before.and_then(|trie| trie.find(name, node)).expect("only present tables are moved");
    for change in changes {
        match change {
            VersionChange::AddTree(_) => {
                assert!(trie.replace(Trie::default()).is_none(), "a tree is added once")
            }
            VersionChange::DropTree(_) => trie = None,
            VersionChange::Add { spot, placed } => {
                let node = NodeId::of(spot.level, placed.table.min());
                piles.entry(node).or_default().push(PileChange::Add(spot.run, placed));
            }
            VersionChange::Remove { name, node, .. } => {
                piles.entry(node).or_default().push(PileChange::Remove(name));
            }
            VersionChange::Move { name, node, spot, .. } => {
                let placed = find(name, node).clone();
                piles.entry(node).or_default().push(PileChange::Remove(name));
                let to = NodeId::of(spot.level, placed.table.min());
                piles.entry(to).or_default().push(PileChange::Add(spot.run, placed));
            }
            VersionChange::Name(_) => unreachable!("of no tree"),
        }
    }
    trie.map(|trie| trie.after(piles))
}

fn apply(tables: &mut Option<Vec<(Spot, Placed)>>, change: VersionChange) {
    match change {
        VersionChange::AddTree(_) => assert!(tables.replace(Vec::new()).is_none(), "a tree is added once"),
        VersionChange::DropTree(_) => *tables = None,
        VersionChange::Add { spot, placed } => {
            tables.as_mut().expect("tables are added to trees that are there").push((spot, placed));
        }
        VersionChange::Remove { .. } => unreachable!("removed together, after all others"),
        VersionChange::Name(_) => unreachable!("of no tree"),
        VersionChange::Move { name, spot, .. } => {
            let tables = tables.as_mut().expect("tables are moved in trees that are there");
            let moved = tables.iter_mut().find(|(_, placed)| placed.name() == name);
            moved.expect("only present tables are moved").0 = spot;
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
        /// A version has the trees that were added and not dropped, in the order of their ids, for any
        /// sequence of changes.
        #[test]
        fn trees_are_found_in_their_order(
            edits in proptest::collection::vec((0u32..2000, 1u32..400, proptest::bool::weighted(0.6)), 1..20),
        ) {
            let (mut version, mut numbers) = (Version::default(), BTreeSet::new());
            for (from, count, adds) in edits {
                let (mut changes, before) = (Vec::new(), numbers.clone());
                for number in from..from + count {
                    if adds && numbers.insert(number) {
                        changes.push(VersionChange::AddTree(id(number)));
                    } else if !adds && numbers.remove(&number) {
                        changes.push(VersionChange::DropTree(id(number)));
                    }
                }
                let after = version.after(changes);
                check(&version, &before);
                check(&after, &numbers);
                version = after;
            }
        }
    }

    /// A change of one tree of ten thousand copies few trees, and a pointer for each hundred others.
    #[test]
    fn changes_copy_few_trees() {
        let all =
            Version::default().after((0..10_000).map(|number| VersionChange::AddTree(id(number))).collect());
        assert!(all.others.len() <= 10_000 / CHUNK_TREES_MAX + 2, "{} chunks", all.others.len());
        for number in [0, 63, 64, 5000, 9999] {
            let after = all.after(vec![VersionChange::DropTree(id(number))]);
            let is_shared = |chunk: &&Arc<Chunk>| all.others.iter().any(|old| Arc::ptr_eq(old, chunk));
            let copied: usize =
                after.others.iter().filter(|chunk| !is_shared(chunk)).map(|chunk| chunk.ids.len()).sum();
            assert!(copied + after.first.ids.len() <= 2 * CHUNK_TREES_MAX, "{copied} trees are copied");
        }
        let none = all.after((0..9_990).map(|number| VersionChange::DropTree(id(number))).collect());
        assert!(none.others.len() <= 2, "{} chunks of 10 trees", none.others.len());
    }
}
