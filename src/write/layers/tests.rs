//! Layers of small generations, written to a simulated disk and read back.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::id::{FileKind, FileName};
use crate::base::region::Region;
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::sim::SimDisk;
use crate::memtable::{Inserter, generation};
use crate::table::{TableFile, TableOwner, TableReader, TableStream};

const SLICE: SliceShape = SliceShape {
    index: crate::table::IndexPlan::Fences,
    filter: FilterPlan::of_bits(10),
    block_bytes: 512,
    compression: Compression::None,
};
const TREES: [TreeId; 2] = [tree(7), tree(9)];

const fn tree(keyspace: u32) -> TreeId {
    TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(3) }
}

fn secret() -> HashSecret {
    HashSecret::expand([3; 16])
}

/// A write: tree, first key, operation.
#[derive(Clone, Debug)]
struct Write {
    tree: usize,
    key: u8,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Put,
    Delete,
    /// Deletes this many keys from the first on; 0: all keys from the first on.
    DeleteRange(u8),
}

type State = BTreeMap<(usize, u8), Sequence>;

/// The contents of tables before the writes.
fn before() -> State {
    (0..TREES.len()).flat_map(|tree| (0..30).map(move |key| ((tree, key), 0))).collect()
}

fn apply(state: &mut State, write: &Write, sequence: Sequence) {
    let place = (write.tree, write.key);
    match write.what {
        What::Put => drop(state.insert(place, sequence)),
        What::Delete => drop(state.remove(&place)),
        What::DeleteRange(count) => {
            let end = if count == 0 { u8::MAX } else { write.key + count };
            state.retain(|(tree, key), _| *tree != write.tree || !(write.key..end).contains(key));
        }
    }
}

fn insert(inserter: &mut Inserter, write: &Write, sequence: Sequence) {
    let (tree, key) = (TREES[write.tree], [write.key]);
    let end = |count: u8| if count == 0 { Vec::new() } else { vec![write.key + count] };
    let (kind, value) = match write.what {
        What::Put => (ItemKind::Put, sequence.to_string().into_bytes()),
        What::Delete => (ItemKind::Delete, Vec::new()),
        What::DeleteRange(count) => (ItemKind::DeleteRange, end(count)),
    };
    inserter.insert(tree, &key, secret().hash(&key), sequence, kind, &value);
}

/// The layers of some writes, as tables.
struct Made {
    disk: Arc<SimDisk>,
    layers: Arc<Layers>,
    tables: Vec<(Layer, Arc<TableReader>)>,
}

fn make(writes: &[Write], bounds: Vec<Sequence>) -> Made {
    let (generation, mut inserter) = generation(Region::heap(1 << 20).expect("small"));
    for (write, sequence) in writes.iter().zip(1..) {
        insert(&mut inserter, write, sequence);
    }
    let disk = SimDisk::new(1);
    disk.create_directory().expect("no fault");
    let storage: Arc<dyn Storage> = Arc::<SimDisk>::clone(&disk);
    let identity = TableIdentity { file: FileName::new(FileKind::History, 5), uid: 77, store_id: 5 };
    let layers = Arc::new(Layers::new(bounds));
    let source = (generation, Arc::clone(&layers));
    let mut flush = LayersFlush::new(Arc::clone(&storage), identity, secret(), source, |_| Some(SLICE));
    let output = loop {
        if let TurnProgress::Done(output) = flush.turn().expect("no fault") {
            break output;
        }
    };
    let mut tables = Vec::new();
    if let Some(summary) = &output.table {
        let owner = TableOwner::alone(HashSecret::expand([5; 16]));
        let trees = output.slices.iter().map(|(tree, _)| *tree);
        let opened = TableFile::open_numbered(&storage, summary, trees, &owner).expect("a whole file");
        tables = output.slices.iter().map(|(_, layer)| *layer).zip(opened).collect();
    }
    Made { disk, layers, tables }
}

impl Made {
    fn items(&self, table: &Arc<TableReader>) -> Vec<(u8, ItemKind, Vec<u8>)> {
        let storage: Arc<dyn Storage> = Arc::<SimDisk>::clone(&self.disk);
        let stream = TableStream::new(storage, Arc::default(), Arc::clone(table), 64 << 10);
        let (mut stream, mut items) = (stream.expect("a read"), Vec::new());
        while let Some((key, kind, value)) = stream.item() {
            items.push((key[0], kind, value.to_vec()));
            stream.advance().expect("a read");
        }
        items
    }

    /// The state that a reader with that bound sees: its layers over the earlier tables, oldest first.
    fn seen_at(&self, bound: Sequence) -> State {
        let mut state = before();
        for layer in self.layers.seen_at(bound).expect("one of the bounds").into_iter().rev() {
            for (_, table) in self.tables.iter().filter(|(of, _)| *of == layer) {
                let tree = TREES.iter().position(|one| *one == table.tree()).expect("one of them");
                state.retain(|(of, key), _| *of != tree || !table.ranges().covers(&[*key]));
                for (key, kind, value) in self.items(table) {
                    let number = || String::from_utf8(value).expect("digits").parse().expect("a number");
                    match kind {
                        ItemKind::Put => drop(state.insert((tree, key), number())),
                        _ => drop(state.remove(&(tree, key))),
                    }
                }
            }
        }
        state
    }
}

/// For any number of bounds: each reader's layers are few and cover its sequences from the bound down without
/// gaps. Exactly the layers that readers need are written, and each step is in few of them.
#[test]
fn few_layers_cover_every_prefix() {
    assert!(Layers::new(Vec::new()).is_empty());
    for count in 1..300u64 {
        let layers = Layers::new((1..=count).rev().map(|step| step * 10).collect());
        let few = count.ilog2() as usize + 1;
        let mut written = vec![BASE];
        for level in 0..layers.levels_count() {
            let mut start = 0;
            while let Some(next) = layers.next_group(level, start) {
                written.push(group(next, level));
                start = next + (1 << level);
            }
        }
        let mut read = std::collections::BTreeSet::new();
        for step in 1..=count {
            let seen = layers.seen_at(step * 10).expect("one of the bounds");
            assert!(seen.len() <= few, "{seen:?} of {count}");
            let mut upto = step * 10;
            for layer in &seen {
                let (after, to) = layers.sequences(*layer);
                assert_eq!(to, upto, "{seen:?} of {count}");
                upto = after;
            }
            assert_eq!(upto, 0);
            read.extend(seen);
        }
        assert_eq!(read, written.iter().copied().collect(), "{count}");
        assert_eq!(read.len(), written.len());
        for step in 0..count as u32 {
            let times = written.iter().filter(|layer| (layer.start..layer.end).contains(&step)).count();
            assert!(times <= few, "step {step} of {count}");
        }
        assert_eq!(layers.seen_at(5), None);
    }
}

/// A key with many versions is written once per layer.
#[test]
fn a_layer_has_one_version_of_a_key() {
    let writes = vec![Write { tree: 0, key: 3, what: What::Put }; 1000];
    let made = make(&writes, vec![200, 400, 401, 900, 1000]);
    let text = |value| String::from_utf8(value).expect("digits");
    let numbers = made
        .tables
        .iter()
        .flat_map(|(layer, table)| made.items(table).into_iter().map(|(_, _, value)| (*layer, text(value))));
    let numbers: Vec<_> = numbers.collect();
    let wanted = [(BASE, "200"), (group(0, 2), "1000"), (group(0, 1), "401"), (group(0, 0), "400")];
    let wanted = wanted.map(|(layer, number)| (layer, number.to_owned()));
    // The group of the third interval alone: at level 0, beside that of the first interval.
    let third = (group(2, 0), "900".to_owned());
    assert_eq!(numbers.iter().filter(|one| **one != third).cloned().collect::<Vec<_>>(), wanted);
    assert_eq!(numbers.len(), 5);
}

fn write() -> impl Strategy<Value = Write> {
    let what = prop_oneof![
        5 => Just(What::Put),
        2 => Just(What::Delete),
        1 => (0..8u8).prop_map(What::DeleteRange),
    ];
    (0..TREES.len(), 0..30u8, what).prop_map(|(tree, key, what)| Write { tree, key, what })
}

proptest! {
    /// For any writes and bounds, each reader sees the writes up to its bound over the earlier contents. No
    /// more versions are written than the layers allow.
    #[test]
    fn layers_hold_the_writes_that_readers_see(
        writes in prop::collection::vec(write(), 1..200),
        bounds in prop::collection::vec(1..200u64, 1..40),
    ) {
        let last = writes.len() as Sequence;
        let bounds: Vec<Sequence> = bounds.into_iter().map(|bound| bound.min(last)).collect();
        let made = make(&writes, bounds.clone());
        let (mut state, mut states) = (before(), vec![before()]);
        for (write, sequence) in writes.iter().zip(1..) {
            apply(&mut state, write, sequence);
            states.push(state.clone());
        }
        for bound in &bounds {
            prop_assert_eq!(&made.seen_at(*bound), &states[*bound as usize], "at {}", bound);
        }
        let written: usize = made.tables.iter().map(|(_, table)| made.items(table).len()).sum();
        let above = writes.len() as u64 - made.layers.first();
        let times = u64::from(made.layers.levels_count());
        prop_assert!(written as u64 <= made.layers.first() + above * times, "{} written", written);
    }
}

/// A layers flush that is dropped leaves no file.
#[test]
fn given_up_it_leaves_nothing() {
    let (generation, mut inserter) = generation(Region::heap(4 << 20).expect("small"));
    let value = vec![7; 1000];
    for sequence in 1..=2000u64 {
        let key = sequence.to_be_bytes();
        inserter.insert(TREES[0], &key, secret().hash(&key), sequence, ItemKind::Put, &value);
    }
    let disk = SimDisk::new(1);
    disk.create_directory().expect("no fault");
    let storage: Arc<dyn Storage> = Arc::<SimDisk>::clone(&disk);
    let identity = TableIdentity { file: FileName::new(FileKind::History, 5), uid: 77, store_id: 5 };
    let source = (generation, Arc::new(Layers::new(vec![1000, 2000])));
    let mut flush = LayersFlush::new(Arc::clone(&storage), identity, secret(), source, |_| Some(SLICE));
    assert!(matches!(flush.turn().expect("no fault"), TurnProgress::More));
    assert!(flush.memory_bytes() > 0);
    assert_eq!(storage.list().expect("no fault").len(), 1);
    drop(flush);
    assert_eq!(storage.list().expect("no fault").len(), 0);
}
