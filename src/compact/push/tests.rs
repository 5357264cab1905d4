//! Choices on random tries compared with fresh counts, and a trie that flushes fill and pushes empty, with
//! every item known.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::place::HEIGHT_MAX;
use crate::levels::version::sample::{SampleFiles, SampleSlice, TREE, key_in, placed};
use crate::levels::version::{Version, VersionChange};

const TABLE_BYTES: u64 = 8 << 10;

/// Items of a table: the sequence of each key's write, and whether it was a delete.
type Items = BTreeMap<Vec<u8>, (u64, bool)>;

/// A trie with every item known.
struct Model {
    files: SampleFiles,
    version: Version,
    contents: BTreeMap<(u64, u32), Items>,
    /// The newest item of each key.
    newest: Items,
    value_bytes: usize,
    sequence: u64,
    flushed_bytes: u64,
    merged_bytes: u64,
}

impl Model {
    fn new(value_bytes: usize) -> Model {
        Model {
            files: SampleFiles::new(),
            version: Version::default().after(vec![VersionChange::AddTree(TREE)]),
            contents: BTreeMap::new(),
            newest: BTreeMap::new(),
            value_bytes,
            sequence: 0,
            flushed_bytes: 0,
            merged_bytes: 0,
        }
    }

    fn trie(&self) -> &Trie {
        self.version.tree(TREE).and_then(|tree| tree.trie()).expect("it was added")
    }

    /// Adds a file of slices, each at the spot that `spot` returns.
    fn add(&mut self, slices: Vec<Items>, sequence: u64, spot: impl Fn(&[u8]) -> Spot) -> Vec<VersionChange> {
        let sample = |items: &Items| SampleSlice {
            items: items.iter().map(|(key, (_, is_deleted))| (key.clone(), *is_deleted)).collect(),
            value_bytes: self.value_bytes,
            clears: false,
        };
        let samples: Vec<SampleSlice> = slices.iter().map(sample).collect();
        let tables = if samples.is_empty() { Vec::new() } else { self.files.make(&samples) };
        let mut changes = Vec::new();
        for (table, items) in tables.iter().zip(slices) {
            let placed = placed(table, sequence);
            self.contents.insert(placed.name(), items);
            changes.push(VersionChange::Add { spot: spot(table.min()), placed });
        }
        changes
    }

    fn edit(&mut self, changes: Vec<VersionChange>) {
        self.version = self.version.after(changes);
    }

    fn bytes(&self) -> u64 {
        self.trie().nodes().map(|(_, node)| node.bytes()).sum()
    }

    fn flush(&mut self, keys: &[(Vec<u8>, bool)]) {
        self.sequence += 1;
        let items: Items =
            keys.iter().map(|(key, is_deleted)| (key.clone(), (self.sequence, *is_deleted))).collect();
        self.newest.extend(items.clone());
        let before = self.bytes();
        let changes = self.add(vec![items], self.sequence, |_| Spot::LEVEL_0);
        self.edit(changes);
        self.flushed_bytes += self.bytes() - before;
    }

    /// Does a piece of work as the engine does it.
    fn take(&mut self, push: &Push) {
        let trie = self.trie();
        let inputs: Vec<Placed> = push.inputs(trie).iter().flat_map(Run::tables).cloned().collect();
        let runs: Vec<Vec<Placed>> = push.inputs(trie).iter().map(|run| run.tables().to_vec()).collect();
        if push.work == MergeKind::Move {
            let moves =
                runs.iter().rev().zip(0..).flat_map(|(run, moved)| run.iter().map(move |one| (one, moved)));
            let changes = moves.map(|(one, moved)| VersionChange::Move {
                tree: TREE,
                name: one.name(),
                node: push.node,
                spot: push.output(trie, one.table.min(), moved),
            });
            let changes = changes.collect();
            return self.edit(changes);
        }
        let older = push.older(trie);
        let may_be_older = |key: &[u8]| older.iter().any(|(min, max)| &**min <= key && key <= &**max);
        let mut merged = Items::new();
        for one in inputs.iter().rev() {
            // A newer item has the greater sequence, for any order of the tables.
            for (key, item) in &self.contents[&one.name()] {
                let kept = merged.entry(key.clone()).or_insert(*item);
                *kept = (*kept).max(*item);
            }
        }
        merged.retain(|key, (_, is_deleted)| !*is_deleted || may_be_older(key));
        let mut by_node: BTreeMap<NodeId, Items> = BTreeMap::new();
        for (key, item) in merged {
            by_node.entry(NodeId::of(push.output_height(), &key)).or_default().insert(key, item);
        }
        let sequence = inputs.iter().map(|one| one.last_sequence).max().unwrap_or(0);
        let version = self.version.clone();
        let before = version.tree(TREE).and_then(|tree| tree.trie()).expect("it was added");
        let mut changes: Vec<VersionChange> = inputs
            .iter()
            .map(|one| VersionChange::Remove { tree: TREE, name: one.name(), node: push.node })
            .collect();
        let added = self.add(by_node.into_values().collect(), sequence, |min| push.output(before, min, 0));
        self.merged_bytes += added.iter().map(added_bytes).sum::<u64>();
        changes.extend(added);
        self.edit(changes);
    }

    /// Checks that every key's newest item comes first on its path, or is a dropped delete that hides
    /// nothing.
    fn check(&self) {
        let tree = self.version.tree(TREE).expect("it was added");
        for (key, newest) in &self.newest {
            let runs = tree.piles(key).flatten();
            let tables = runs.filter_map(|run| run.find(key).map(|at| &run.tables()[at]));
            let found = tables.filter_map(|one| self.contents[&one.name()].get(key)).next();
            assert!(found == Some(newest) || found.is_none() && newest.1, "{key:?}: {found:?}, {newest:?}");
        }
    }

    /// Does the steps of a full merge until none is left, with a flush after each piece.
    fn merge_fully_under_writes(&mut self, upto: u64, keys: &[(Vec<u8>, bool)]) {
        let mut count = 0;
        loop {
            let due = is_root_long(self.trie()).then(|| due(self.trie(), &RESTS)).flatten();
            let Some(push) = due.or_else(|| full(self.trie(), TABLE_BYTES, upto)) else { break };
            self.take(&push);
            self.flush(keys);
            count += 1;
            assert!(count < 1000, "writes do not keep it");
        }
    }

    /// Does the steps of a full merge until none is left.
    fn merge_fully(&mut self, upto: u64) {
        let mut count = 0;
        while let Some(push) = full(self.trie(), TABLE_BYTES, upto) {
            let node = self.trie().node(push.node).expect("it is there");
            let runs = node.runs();
            let is_wanted = |run: &Run| run.tables().iter().any(|one| one.first_sequence <= upto);
            assert!(push.runs.end == runs.len() && is_wanted(&runs[push.runs.start]));
            assert!(push.runs.start == 0 || !is_wanted(&runs[push.runs.start - 1]));
            check_places(self.trie(), &push, node);
            self.take(&push);
            count += 1;
            assert!(count < 1000, "it ends");
        }
    }

    /// Does all due work; returns the number of pieces.
    fn settle(&mut self, settings: &PushSettings) -> usize {
        let mut count = 0;
        while let Some(push) = check_due(self.trie(), settings) {
            self.take(&push);
            count += 1;
            assert!(count < 1000, "it comes to rest");
        }
        count
    }
}

/// The most bytes of a model after each key was written ten times, and the bytes written for each byte
/// flushed.
fn overwritten(settings: &PushSettings) -> (u64, f64) {
    let mut model = Model::new(300);
    let mut most_bytes = 0;
    for flush in 0..200u64 {
        let number = |index: u64| (flush * 40 + index) * 7 % 800;
        let digits = |number: u64| -> Vec<u8> {
            (0..HEIGHT_MAX).map(|height| (number >> (3 * height) & 7) as u8 ^ (number % 5) as u8).collect()
        };
        let keys: Vec<(Vec<u8>, bool)> =
            (0..40).map(number).map(|number| (key(&digits(number), (number / 8) as u8), false)).collect();
        model.flush(&keys);
        while let Some(push) = check_due(model.trie(), settings) {
            model.take(&push);
        }
        most_bytes = most_bytes.max(model.bytes());
    }
    model.check();
    (most_bytes, (model.flushed_bytes + model.merged_bytes) as f64 / model.flushed_bytes as f64)
}

/// Merging leaves while keys are overwritten bounds the space of a trie; piles do not.
#[test]
fn overwritten_leaves_are_merged() {
    let (grown_bytes, _) = overwritten(&GROWS);
    let (most_bytes, written) = overwritten(&REWRITTEN);
    assert!(most_bytes * 2 < grown_bytes, "{most_bytes} of {grown_bytes}");
    assert!(written < 6.0, "{written}");
}

/// Deletes of large values make leaves stale, though the tombstones are small: the deleted values are
/// removed.
#[test]
fn deleted_leaves_are_merged() {
    for settings in [REWRITTEN, RESTS] {
        let mut model = Model::new(3000);
        let keys = || (0..200u8).map(|number| key(&[number % 8, number / 8 % 8], number));
        model.flush(&keys().map(|key| (key, false)).collect::<Vec<_>>());
        model.settle(&settings);
        let full_bytes = model.bytes();
        for deleted in keys().collect::<Vec<_>>().chunks(20) {
            model.flush(&deleted.iter().map(|key| (key.clone(), true)).collect::<Vec<_>>());
            model.settle(&settings);
        }
        model.check();
        assert!(model.bytes() * 4 < full_bytes, "{} of {full_bytes}", model.bytes());
    }
}

fn added_bytes(change: &VersionChange) -> u64 {
    let VersionChange::Add { placed, .. } = change else { unreachable!("all are added") };
    placed.table.slice_bytes()
}

/// Policies: while a trie grows, while it is overwritten, at rest.
const GROWS: PushSettings = PushSettings {
    table_bytes: TABLE_BYTES,
    stale_permille: None,
    upper_permille: None,
    is_highest_first: false,
};
const REWRITTEN: PushSettings =
    PushSettings { stale_permille: Some(500), upper_permille: Some(250), ..GROWS };
const RESTS: PushSettings =
    PushSettings { stale_permille: Some(125), upper_permille: Some(125), is_highest_first: true, ..GROWS };

/// The bytes and the items of runs.
fn counts(runs: &[Run]) -> [u64; 2] {
    let tables = || runs.iter().flat_map(Run::tables).map(|one| &one.table);
    [tables().map(|table| table.slice_bytes()).sum(), tables().map(|table| table.items()).sum()]
}

/// One part of the other, in thousandths, by bytes or items.
fn share(part: [u64; 2], whole: [u64; 2]) -> u64 {
    part.iter().zip(whole).map(|(part, whole)| part * 1000 / whole.max(1)).max().expect("of two")
}

/// The newer runs of a leaf's pile relative to its oldest, in thousandths.
fn staleness(node: &TrieNode) -> u64 {
    let runs = node.runs();
    if node.has_children() || runs.len() < 2 {
        return 0;
    }
    share(counts(&runs[..runs.len() - 1]), counts(&runs[runs.len() - 1..])).min(u64::from(u16::MAX))
}

/// The due work, checked against counts of all nodes.
fn check_due(trie: &Trie, settings: &PushSettings) -> Option<Push> {
    let (table_bytes, nodes) = (settings.table_bytes, trie.nodes().collect::<Vec<(NodeId, &TrieNode)>>());
    let is_large = |id: NodeId, node: &TrieNode| node.due_bytes(id) >= table_bytes;
    let is_stale = |node: &TrieNode| {
        let permille = settings.stale_permille.map(u64::from);
        node.runs().len() > 1 && permille.is_some_and(|permille| staleness(node) >= permille)
    };
    let sum = |is_inner: bool| {
        let those = nodes.iter().filter(|(_, node)| node.has_children() == is_inner);
        those.map(|(_, node)| counts(node.runs())).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    };
    let is_high = settings.upper_permille.is_some_and(|most| share(sum(true), sum(false)) > most);
    let is_due =
        |(id, node): &&(NodeId, &TrieNode)| is_long(*id, node) || is_large(*id, node) || is_stale(node);
    let debt: u64 = nodes.iter().filter(is_due).map(|(_, node)| node.bytes()).sum();
    let allowed = settings.upper_permille.map_or(u64::MAX, |most| sum(false)[0] * most / 1000);
    let above = sum(true)[0].saturating_sub(allowed);
    assert_eq!(debt_bytes(trie, settings), debt + above);
    let push = due(trie, settings);
    let Some(push) = push else {
        assert!(!nodes.iter().any(|(id, node)| is_long(*id, node) || is_large(*id, node) || is_stale(node)));
        assert!(!is_high);
        return None;
    };
    let node = trie.node(push.node).expect("it is there");
    let (runs, id) = (node.runs(), push.node);
    let is_merged = !node.has_children() && settings.stale_permille.is_some();
    let root_sends = id == NodeId::ROOT && node.bytes() > 2 * table_bytes;
    if nodes.iter().any(|(id, node)| is_long(*id, node)) {
        let long = nodes.iter().filter(|(id, node)| is_long(*id, node));
        let most = long.map(|(_, node)| node.runs().len()).max();
        let is_root_long = nodes.iter().any(|(id, node)| *id == NodeId::ROOT && is_long(*id, node));
        assert!(Some(runs.len()) == most || is_root_long, "the root first, and the longest pile");
        assert!(!is_root_long || id == NodeId::ROOT);
        assert_eq!(push.is_down, is_large(id, node) || is_merged && root_sends);
    } else if nodes.iter().any(|(id, node)| is_large(*id, node)) {
        let most = nodes.iter().map(|(id, node)| node.due_bytes(*id)).max();
        assert!(push.is_down && Some(node.due_bytes(id)) == most, "the fullest node first");
    } else if nodes.iter().any(|(_, node)| is_stale(node)) {
        let most = nodes.iter().map(|(_, node)| staleness(node)).max();
        assert_eq!((Some(staleness(node)), push.is_down), (most, root_sends), "the most stale leaf first");
    } else {
        let mut inner = nodes.iter().filter(|(_, node)| node.has_children());
        let chosen = match settings.is_highest_first {
            true => inner.next().is_some_and(|(first, _)| *first == id),
            false => inner.map(|(_, node)| node.bytes()).max() == Some(node.bytes()),
        };
        assert!(push.is_down && chosen && is_high);
    }
    if settings.stale_permille.is_some() && (push.is_down || is_merged) {
        assert_eq!(push.runs, 0..runs.len(), "the whole pile");
        assert!(push.is_down || push.work == MergeKind::Merge && runs.len() > 1);
    }
    if push.is_down {
        check_down(&push, node, settings);
    } else if !is_merged {
        // The newest runs of the pile, at least two, up to one that is far larger than they, or does not fit.
        assert!(push.runs.start == 0 && push.runs.end >= 2 && push.work == MergeKind::Merge);
        let bytes: u64 = push.inputs(trie).iter().map(Run::bytes).sum();
        let is_too_much = |next: &Run| {
            let is_root = id == NodeId::ROOT;
            next.bytes() > 2 * bytes || is_root && bytes + next.bytes() > 2 * table_bytes
        };
        assert!(runs.get(push.runs.end).is_none_or(is_too_much));
    }
    check_places(trie, &push, node);
    Some(push)
}

/// The oldest runs go down; while a trie grows, as many as make eight tables; without a read if one child
/// takes all of them.
fn check_down(push: &Push, node: &TrieNode, settings: &PushSettings) {
    let runs = node.runs();
    assert!(push.runs.end == runs.len() && !push.runs.is_empty());
    let bytes = |from: usize| runs[from..].iter().map(Run::bytes).sum::<u64>();
    let (from, most_bytes) = (push.runs.start, 8 * settings.table_bytes);
    if settings.stale_permille.is_none() {
        assert!(push.runs.len() == 1 || bytes(from) <= most_bytes);
        assert!(from == 0 || bytes(from - 1) > most_bytes);
    }
    let tables = || runs[from..].iter().flat_map(Run::tables).map(|one| &one.table);
    let child = |key: &[u8]| NodeId::of(push.node.height + 1, key);
    let first = child(tables().next().expect("it has a run").min());
    let is_one = tables().all(|table| child(table.min()) == first && child(table.max()) == first);
    let has_older = node.child((first.path & 7) as usize).is_some_and(|child| !child.is_bare());
    let is_needed = has_older || tables().all(|table| table.tombstones() == 0);
    let is_move = is_one && is_needed && tables().all(|table| table.ranges().is_empty());
    assert_eq!(push.work == MergeKind::Move, is_move);
}

/// Output is newer than all other runs of its piles, and the bounds of `older` contain every older table.
fn check_places(trie: &Trie, push: &Push, node: &TrieNode) {
    let older = push.older(trie);
    let is_bounded = |one: &Placed| {
        let (min, max) = (one.table.min(), one.table.max());
        older.iter().any(|(from, to)| &**from <= min && max <= &**to)
    };
    assert!(node.runs()[push.runs.end..].iter().flat_map(Run::tables).all(is_bounded));
    for (id, below) in trie.nodes() {
        let is_below = id.height > push.node.height && NodeId::of(push.node.height, &id.first()) == push.node;
        if is_below {
            assert!(below.runs().iter().flat_map(Run::tables).all(is_bounded));
        }
        if push.is_down && is_below && id.height == push.node.height + 1 {
            let spot = push.output(trie, &id.first(), 1);
            assert!(spot.level == id.height && below.runs().iter().all(|run| run.number() < spot.run));
        }
    }
}

/// A key of the node with that path, three bits a digit.
fn key(digits: &[u8], number: u8) -> Vec<u8> {
    let node = digits.iter().fold(NodeId::ROOT, |node, digit| node.child(usize::from(digit % 8)));
    key_in(node, number)
}

/// Flushes of random keys, or of keys with a common route prefix; with deletes among them.
fn flush() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    let digits = prop_oneof![
        3 => prop::collection::vec(0..8u8, HEIGHT_MAX),
        1 => prop::collection::vec(0..2u8, HEIGHT_MAX).prop_map(|mut digits| { digits[..3].fill(5); digits }),
    ];
    let item = (digits, 0..3u8, prop::bool::weighted(0.2))
        .prop_map(|(digits, number, is_deleted)| (key(&digits, number), is_deleted));
    let is_narrow = prop::bool::weighted(0.3);
    (prop::collection::vec(item, 1..40), is_narrow).prop_map(|(items, is_narrow)| match is_narrow {
        // All items in the child of the first.
        true => {
            let child = NodeId::of(2, &items[0].0);
            let of_child = |(key, _): &(Vec<u8>, bool)| NodeId::of(2, key) == child;
            items.into_iter().filter(of_child).collect()
        }
        false => items,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Flushes and the work due after them, in any order and under any policy. Every choice is right by
    /// counts of all nodes, no key is found in an older state, and every pile is short and small in the end.
    /// At rest few bytes lie above leaves of almost one run. A full merge leaves no data above leaves, one
    /// run in each and no tombstone.
    #[test]
    fn choices_are_right_and_lose_nothing(
        flushes in prop::collection::vec((flush(), 0..3usize, 0..4usize), 1..60),
        value_bytes in 0..1500usize,
        upto in 0..80u64,
    ) {
        let mut model = Model::new(value_bytes);
        for (keys, pieces, wanted) in flushes {
            model.flush(&keys);
            for _ in 0..pieces {
                if let Some(push) = check_due(model.trie(), [&GROWS, &GROWS, &REWRITTEN, &RESTS][wanted]) {
                    model.take(&push);
                }
            }
        }
        model.check();
        for settings in [GROWS, REWRITTEN, RESTS] {
            model.settle(&settings);
            model.check();
            prop_assert!(!model.trie().nodes().any(|(id, node)| is_long(id, node)));
        }
        let written: Vec<_> = model.newest.keys().step_by(3).map(|key| (key.clone(), false)).collect();
        model.merge_fully_under_writes(model.sequence, &written);
        model.check();
        for upto in [upto, u64::MAX] {
            model.merge_fully(upto);
            model.check();
        }
        let nodes = || model.trie().nodes();
        prop_assert!(nodes().all(|(_, node)| !node.has_children() && node.runs().len() == 1));
        let tables = || nodes().flat_map(|(_, node)| node.runs()).flat_map(Run::tables);
        prop_assert!(tables().all(|one| one.table.tombstones() == 0));
        let alive = model.newest.values().filter(|(_, is_deleted)| !*is_deleted).count() as u64;
        prop_assert_eq!(tables().map(|one| one.table.items()).sum::<u64>(), alive);
    }
}

/// The due work of a root with `runs` runs of that size.
fn due_of(runs: usize, value_bytes: usize) -> Option<Push> {
    let mut model = Model::new(value_bytes);
    for number in 0..runs {
        model.flush(&[(key(&[1], number as u8), false), (key(&[6], number as u8), false)]);
    }
    check_due(model.trie(), &GROWS)
}

/// A pile of the root is due at more than twelve runs, which are folded, or at some tables' bytes, which go
/// down, eight tables' bytes at once.
#[test]
fn piles_are_due_by_their_runs_and_their_bytes() {
    assert_eq!(due_of(0, 10), None);
    assert_eq!(due_of(12, 10), None);
    let fold = due_of(13, 10).expect("it is long");
    assert_eq!((fold.is_down, fold.runs, fold.node), (false, 0..13, NodeId::ROOT));
    // Runs of two KiB each: two tables' bytes.
    let fold = due_of(13, 600).expect("it is long");
    assert_eq!((fold.is_down, fold.runs, fold.node), (false, 0..8, NodeId::ROOT));
    // Runs of more than a table and a half each: the root may have a little more than seven, and four go at
    // once.
    assert_eq!(due_of(4, 6000), None);
    let down = due_of(5, 6000).expect("it is large");
    assert_eq!((down.is_down, down.work, down.runs), (true, MergeKind::Merge, 1..5));
    let down = due_of(9, 6000).expect("it is large");
    assert_eq!((down.is_down, down.runs), (true, 5..9));
    // One run larger than eight tables goes alone.
    let down = due_of(3, 60_000).expect("it is large");
    assert_eq!((down.is_down, down.runs), (true, 2..3));
    // Long and large: the pile goes down.
    let down = due_of(17, 6000).expect("it is both");
    assert!(down.is_down);
}

/// Keys of one path go down unread to the last height, where no pile is due by its bytes and long piles are
/// folded: each byte is written a few times, for any number of flushes.
#[test]
fn one_path_is_moved_down_and_folded_there() {
    let mut model = Model::new(1200);
    let digits = [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
    let last = digits.iter().fold(NodeId::ROOT, |node, digit| node.child(usize::from(*digit)));
    let mut moves = 0;
    for flush in 0..400u64 {
        let number = |index: u64| ((flush * 7 + index) % 200) as u8;
        let keys: Vec<(Vec<u8>, bool)> = (0..7).map(|index| (key(&digits, number(index)), false)).collect();
        model.flush(&keys);
        while let Some(push) = check_due(model.trie(), &GROWS) {
            assert_eq!(push.work == MergeKind::Move, push.node != last, "{push:?}");
            moves += u64::from(push.work == MergeKind::Move);
            model.take(&push);
        }
        assert!(!model.trie().nodes().any(|(id, node)| is_long(id, node)));
    }
    model.check();
    let at_last = model.trie().node(last).expect("there they are").bytes();
    assert!(moves > 100 && model.trie().heights().len() == HEIGHT_MAX + 1, "{moves}");
    assert!(at_last > 0 && model.merged_bytes <= 3 * model.flushed_bytes, "{}", model.merged_bytes);
}

/// A move keeps tombstones that hide older items: tombstones move down unread only over other data.
#[test]
fn tombstones_over_nothing_are_not_moved() {
    let mut model = Model::new(9000);
    let mut keys = (0..200u8).map(|number| key(&[3, 3], number));
    for number in 0..8 {
        model.flush(&[(keys.next().expect("enough"), false), (keys.next().expect("enough"), number == 0)]);
    }
    let first = check_due(model.trie(), &GROWS).expect("it is large");
    assert_eq!((first.work, first.is_down), (MergeKind::Merge, true));
    model.settle(&GROWS);
    for _ in 0..16 {
        model.flush(&[(keys.next().expect("enough"), false), (keys.next().expect("enough"), true)]);
        let push = check_due(model.trie(), &GROWS);
        assert!(push.is_none_or(|push| push.work == MergeKind::Move || push.node != NodeId::ROOT));
        model.settle(&GROWS);
    }
    model.check();
}
