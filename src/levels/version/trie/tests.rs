//! A trie compared with a list of tables, each with its node and run.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::sample::{SampleFiles, SampleSlice, TREE, key_in, placed};
use super::super::{Spot, Tree, Version, VersionChange};
use super::*;
use crate::format::manifest;
use crate::table::TableReader;

/// Tables of one item each, which can lie in any node on the path of their key.
const TABLES: usize = 72;
/// The number of files with these slices.
const FILES: usize = 8;
/// Run numbers in a node.
const RUNS: u64 = 4;

/// Tables whose routes meet often: their digits are two of eight. See [`clears`].
fn pool() -> Vec<Arc<TableReader>> {
    let mut files = SampleFiles::new();
    let node = |number: usize| {
        let digit = |height: usize| if (number >> (height % 5)) & 1 == 0 { 0 } else { 1 + number % 7 };
        (1..=HEIGHT_MAX).fold(NodeId::ROOT, |node, height| node.child(digit(height)))
    };
    let mut tables = Vec::new();
    for file in 0..FILES {
        let of_file = (file..TABLES).step_by(FILES);
        let mut slices: Vec<SampleSlice> = of_file
            .map(|number| SampleSlice {
                items: vec![(key_in(node(number), number as u8), number.is_multiple_of(9))],
                value_bytes: number * 797 % 9000,
                clears: clears(number),
            })
            .collect();
        slices.sort_by(|a, b| a.items.cmp(&b.items));
        // A range without an end must be the last of a file.
        let (apart, together): (Vec<_>, Vec<_>) = slices.into_iter().partition(|slice| slice.clears);
        tables.extend(files.make(&together));
        apart.iter().for_each(|slice| tables.extend(files.make(std::slice::from_ref(slice))));
    }
    tables
}

/// Whether the table of that number is a clear's; such tables lie in the root only.
fn clears(number: usize) -> bool {
    number.is_multiple_of(19)
}

/// A table that is in the trie.
#[derive(Clone, Debug)]
struct Listed {
    /// Index in the pool.
    table: usize,
    spot: Spot,
    sequence: u64,
}

struct Linear {
    pool: Vec<Arc<TableReader>>,
    list: Vec<Listed>,
}

impl Linear {
    fn node_of(&self, one: &Listed) -> NodeId {
        NodeId::of(one.spot.level, self.pool[one.table].min())
    }

    /// A node's tables, newest run first; tables of a run ascend.
    fn pile(&self, node: NodeId) -> Vec<Vec<(u64, u32)>> {
        let mut own: Vec<&Listed> = self.list.iter().filter(|one| self.node_of(one) == node).collect();
        let newness = |one: &Listed| if node.height == 0 { one.sequence } else { one.spot.run };
        own.sort_by_key(|one| (std::cmp::Reverse(newness(one)), self.pool[one.table].min()));
        let runs = own.chunk_by(|a, b| newness(a) == newness(b));
        runs.map(|run| run.iter().map(|one| self.name(one)).collect()).collect()
    }

    fn name(&self, one: &Listed) -> (u64, u32) {
        placed(&self.pool[one.table], 0).name()
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.list.iter().map(|one| self.node_of(one)).collect()
    }

    /// Bytes of a node's own tables.
    fn bytes(&self, node: NodeId) -> u64 {
        let own = self.list.iter().filter(|one| self.node_of(one) == node);
        own.map(|one| self.pool[one.table].slice_bytes()).sum()
    }

    fn is_below(node: NodeId, top: NodeId) -> bool {
        node.height >= top.height && node.path >> (CHILD_BITS * (node.height - top.height)) == top.path
    }
}

/// Bits of a route for each height.
const CHILD_BITS: usize = 3;

fn names(runs: &[Run]) -> Vec<Vec<(u64, u32)>> {
    let of_run = |run: &Run| run.tables().iter().map(Placed::name).collect();
    runs.iter().map(of_run).collect()
}

fn due_bytes(node: NodeId, bytes: u64) -> u64 {
    TrieNode { bytes, ..TrieNode::default() }.due_bytes(node)
}

/// Checks piles on the path of each key, sums of each node and counts of each height against the list.
fn check(tree: &Tree, linear: &Linear) {
    let trie = tree.trie().expect("of a hashed keyspace");
    for table in &linear.pool {
        let key = table.min();
        let piles: Vec<_> = tree.piles(key).map(names).collect();
        for height in 0..=HEIGHT_MAX {
            let expected = linear.pile(NodeId::of(height, key));
            assert_eq!(piles.get(height).cloned().unwrap_or_default(), expected, "height {height}");
        }
    }
    let nodes = linear.nodes();
    let is_before = |one: NodeId, next: NodeId| !Linear::is_below(one, next) && one.first() <= next.first();
    let in_order: Vec<NodeId> = trie.nodes().map(|(id, _)| id).collect();
    assert!(in_order.windows(2).all(|pair| is_before(pair[0], pair[1])), "{in_order:?}");
    let found: BTreeSet<NodeId> = trie.nodes().map(|(id, _)| id).collect();
    assert_eq!((found.len(), &found), (trie.nodes().count(), &nodes));
    // Includes nodes that only lead to others.
    let above = |node: &NodeId| {
        let first = node.first();
        (0..=node.height).map(move |height| NodeId::of(height, &first))
    };
    for id in nodes.iter().flat_map(above).collect::<BTreeSet<_>>() {
        let node = trie.node(id).expect("it has a run, or a node below it has");
        let below = || nodes.iter().copied().filter(|one| Linear::is_below(*one, id));
        assert_eq!(node.bytes(), linear.bytes(id));
        let most_bytes = below().map(|one| due_bytes(one, linear.bytes(one))).max();
        assert_eq!(Some(node.most_bytes()), most_bytes);
        assert_eq!(Some(node.most_runs()), below().map(|one| linear.pile(one).len()).max());
        let is_ranged = |one: &Listed| !linear.pool[one.table].ranges().is_empty();
        let is_own = |one: &&Listed| Linear::is_below(linear.node_of(one), id);
        assert_eq!(node.has_ranges(), linear.list.iter().filter(is_own).any(is_ranged));
        assert!(!node.is_bare() && node.has_children() == below().any(|one| one != id));
    }
    let deepest = linear.list.iter().map(|one| one.spot.level + 1).max().unwrap_or(0);
    assert_eq!((trie.heights().len(), tree.level_count()), (deepest, deepest));
    for (height, found) in trie.heights().iter().enumerate() {
        let tables = linear.list.iter().filter(|one| one.spot.level == height).count() as u64;
        assert_eq!((found.tables, found.items), (tables, tables));
    }
}

/// The effect of an edit on one table.
#[derive(Clone, Copy, Debug)]
struct Touch {
    table: usize,
    /// The table's new spot; a table in the trie may be removed instead.
    spot: (usize, u64),
    removes: bool,
}

fn touch() -> impl Strategy<Value = Touch> {
    let height = prop_oneof![Just(0), 0..4usize, 0..=HEIGHT_MAX];
    (0..TABLES, height, 0..RUNS, prop::bool::weighted(0.4)).prop_map(|(table, height, run, removes)| {
        let spot = (height, if height == 0 { 0 } else { run });
        Touch { table, spot, removes }
    })
}

/// The changes of an edit, which touches each table once at most.
fn changes(linear: &mut Linear, touches: &[Touch], sequence: &mut u64) -> Vec<VersionChange> {
    let mut touched = BTreeSet::new();
    let mut changes = Vec::new();
    for touch in touches.iter().filter(|touch| touched.insert(touch.table)) {
        let is_cleared = !linear.pool[touch.table].ranges().is_empty();
        let (level, run) = if is_cleared { (0, 0) } else { touch.spot };
        let spot = Spot { level, run };
        let Some(at) = linear.list.iter().position(|one| one.table == touch.table) else {
            *sequence += 1;
            linear.list.push(Listed { table: touch.table, spot, sequence: *sequence });
            changes.push(VersionChange::Add { spot, placed: placed(&linear.pool[touch.table], *sequence) });
            continue;
        };
        let (name, node) = (linear.name(&linear.list[at]), linear.node_of(&linear.list[at]));
        if touch.removes {
            linear.list.swap_remove(at);
            changes.push(VersionChange::Remove { tree: TREE, name, node });
        } else {
            linear.list[at].spot = spot;
            changes.push(VersionChange::Move { tree: TREE, name, node, spot });
        }
    }
    changes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// After edits of many tables and of few, a trie equals the list; the version before an edit stays
    /// unchanged.
    #[test]
    fn tries_equal_a_list_of_tables(
        first in prop::collection::vec(touch(), 0..TABLES),
        edits in prop::collection::vec(prop::collection::vec(touch(), 1..9), 1..12),
    ) {
        let mut linear = Linear { pool: pool(), list: Vec::new() };
        let mut version = Version::default().after(vec![VersionChange::AddTree(TREE)]);
        let mut sequence = 0;
        for touches in std::iter::once(&first).chain(&edits) {
            let before = linear.list.clone();
            let next = version.after(changes(&mut linear, touches, &mut sequence));
            check(next.tree(TREE).expect("it was added"), &linear);
            let now = std::mem::replace(&mut linear.list, before);
            check(version.tree(TREE).expect("it was added"), &linear);
            linear.list = now;
            version = next;
        }
        let tree = version.tree(TREE).expect("it was added");
        let all: BTreeMap<(u64, u32), NodeId> =
            linear.list.iter().map(|one| (linear.name(one), linear.node_of(one))).collect();
        let named: BTreeSet<(u64, u32)> = tree.named(&all).into_iter().map(Placed::name).collect();
        prop_assert!(named.iter().eq(all.keys()));
        let removed =
            all.iter().map(|(&name, &node)| VersionChange::Remove { tree: TREE, name, node });
        let none = version.after(removed.collect());
        let trie = none.tree(TREE).and_then(Tree::trie).expect("it was added");
        prop_assert!(trie.root().is_bare() && trie.heights().is_empty());
    }
}

/// A manifest that places range tombstones below the root is damaged.
#[test]
fn ranges_are_of_the_root() {
    let items = vec![(key_in(NodeId::ROOT.child(3), 1), false)];
    let table = &SampleFiles::new().make(&[SampleSlice { items, value_bytes: 9, clears: true }])[0];
    let at = |level: usize| {
        let slices = [(0, placed(table, 1).slice(Spot { level, run: 0 }))].into();
        let said = manifest::Table { path: 0, uid: 1, bytes: 1, checksum: 1, slices };
        Placed::all(&said, table.file().name(), std::slice::from_ref(table))
    };
    assert_eq!(at(0).expect("there they may be").len(), 1);
    assert!(at(1).is_err_and(|error| error.to_string().contains("below the root")));
}
