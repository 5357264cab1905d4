//! Filters by column: the answers of a node's newest slice for all its runs, through copies, cuts and damage.

use std::collections::BTreeSet;

use super::*;
use crate::base::checksum::Context;
use crate::base::id::{FileName, ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::place::stored_key;
use crate::format::table::compressed::Compression;
use crate::format::table::{filter, seal};
use crate::table::harness::{Bench, IDENTITY};
use crate::table::{IndexPlan, SliceShape, TableBuilder, TableIdentity};
use proptest::prelude::*;

const TREE: TreeId = TreeId { keyspace: KeyspaceId(KeyspaceId::HASHED | 1), partition: PartitionId(1) };
const NODE: NodeId = NodeId { height: 1, path: 5 };

type Keys = BTreeSet<Vec<u8>>;

/// The runs of a node, built from the oldest on.
struct Pile {
    bench: Bench,
    /// Newest first: the keys of each run and its tables.
    runs: Vec<(Keys, Vec<Arc<TableReader>>)>,
    files: u64,
    /// The number of the next key.
    next: u32,
}

impl Pile {
    fn new() -> Pile {
        Pile { bench: Bench::new(), runs: Vec::new(), files: 0, next: 0 }
    }

    /// New keys of the node.
    fn keys(&mut self, count: usize) -> Keys {
        let mut keys = Keys::new();
        while keys.len() < count {
            let stored = stored_key(&self.bench.secret, TREE.keyspace, &self.next.to_le_bytes()).to_vec();
            self.next += 1;
            if NodeId::of(NODE.height, &stored) == NODE {
                keys.insert(stored);
            }
        }
        keys
    }

    /// Adds a run of `items` items in `tables` tables.
    fn push(&mut self, items: usize, tables: usize, kind: FilterKind) {
        let keys = self.keys(items);
        let all: Vec<&Vec<u8>> = keys.iter().collect();
        let runs = self.runs.iter().map(|(_, tables)| tables.clone()).collect();
        let node = Arc::new(NodeRuns { node: NODE, runs });
        let mut opened = Vec::new();
        for part in all.chunks(items.div_ceil(tables)) {
            self.files += 1;
            let file = FileName { number: self.files, ..IDENTITY.file };
            let identity = TableIdentity { file, uid: 1000 + self.files, ..IDENTITY };
            let storage = Arc::clone(&self.bench.storage);
            let mut builder = TableBuilder::new(storage, identity).expect("created");
            let plan = FilterPlan { kind, millibits_per_key: 16_000, probes: 0 };
            let shape = SliceShape {
                index: IndexPlan::Fences,
                filter: plan,
                block_bytes: 4096,
                compression: Compression::None,
            };
            match kind {
                FilterKind::Column => builder.begin_in_node(TREE, shape, Arc::clone(&node)),
                _ => builder.begin(TREE, shape),
            }
            .expect("begun");
            for key in part {
                let hash = self.bench.secret.hash_in(TREE.keyspace, key);
                builder.add(key, hash, ItemKind::Put, &[7; 90]).expect("added");
            }
            builder.end().expect("ended");
            let summary = builder.finish().expect("finished").summary;
            self.bench.verify(&summary).expect("it is whole");
            opened.extend(self.bench.open(&summary).expect("opens"));
        }
        self.runs.insert(0, (keys, opened));
    }

    /// Counts the answers of a run's pages about an older run's keys; no present key may be denied.
    fn told(&self, newer: usize, older: usize) -> (usize, usize) {
        let name = self.runs[older].1[0].unique_name();
        let (mut told, mut asked) = (0, 0);
        for key in &self.runs[older].0 {
            let hash = self.bench.secret.hash_in(TREE.keyspace, key);
            let span =
                |table: &&Arc<TableReader>| *table.entry().min() <= **key && **key <= *table.entry().max();
            let Some(table) = self.runs[newer].1.iter().find(span) else { continue };
            let Some(number) = table.filter_page(key, hash).filter(|_| table.has_columns()) else { continue };
            let shape = table.entry().filter;
            let mut page = AlignedBytes::new(shape.page_bytes as usize);
            let offset = table.entry().filter_offset() + number * u64::from(shape.page_bytes);
            fill_exact(self.bench.storage.as_ref(), table.file().name(), offset, &mut page)
                .expect("no fault");
            let (page, column) = table.tells(key, &page).expect("it is by column");
            let entry = if newer == older {
                Some(0)
            } else {
                (1..page.runs()).find(|run| page.run(*run).name == name)
            };
            let may_have = entry.and_then(|entry| page.tell(column, filter::field(hash)).nth(entry)?);
            assert_ne!(may_have, Some(false), "run {newer} denies a key of run {older}");
            (asked, told) = (asked + 1, told + usize::from(may_have.is_some()));
        }
        (told, asked)
    }
}

/// The newest run of a pile answers for all older ones, each in one table.
#[test]
fn the_newest_run_tells_of_all() {
    let mut pile = Pile::new();
    for _ in 0..6 {
        pile.push(3000, 1, FilterKind::Column);
    }
    for older in 0..6 {
        let (told, asked) = pile.told(0, older);
        assert!(told == asked && asked >= 2990, "{told} of {asked} keys of run {older}");
    }
}

/// Columns keep the first run's width while the runs are of similar size; a far larger run begins anew, and a
/// small one does not copy the filters of a large one.
#[test]
fn sizes_may_differ() {
    let mut pile = Pile::new();
    pile.push(40, 1, FilterKind::Column);
    pile.push(5000, 1, FilterKind::Column);
    assert_eq!(pile.told(0, 1), (0, 40));
    pile.push(2500, 1, FilterKind::Column);
    let (told, asked) = pile.told(0, 1);
    assert_eq!(told, asked);
    pile.push(30, 1, FilterKind::Column);
    assert_eq!(pile.told(0, 1).0, 0);
    assert!(pile.told(1, 2).0 > 4900);
}

/// A damaged page has no answers for its runs; all other pages have, and no present key is denied.
#[test]
fn damaged_pages_are_not_copied() {
    let mut pile = Pile::new();
    (0..3).for_each(|_| pile.push(4000, 1, FilterKind::Column));
    let table = Arc::clone(&pile.runs[0].1[0]);
    let mut bytes = pile.bench.disk.contents(table.file().name()).expect("it is there");
    let span = table.entry().filter_span();
    assert!(span.bytes >= 4 * 4096, "{} bytes of pages", span.bytes);
    bytes[span.offset as usize + 4096 + 77] ^= 1;
    pile.bench.disk.set_contents(table.file().name(), Some(&bytes));
    pile.push(4000, 1, FilterKind::Column);
    for older in 1..4 {
        let (told, asked) = pile.told(0, older);
        assert!(told < asked && told > asked / 2, "{told} of {asked}");
    }
}

/// Pages of another kind than their footer names, as only crafted files have them, are not copied.
#[test]
fn pages_of_another_kind_are_not_copied() {
    let mut pile = Pile::new();
    pile.push(4000, 1, FilterKind::Column);
    let table = Arc::clone(&pile.runs[0].1[0]);
    let mut bytes = pile.bench.disk.contents(table.file().name()).expect("it is there");
    let (span, page_bytes) = (table.entry().filter_span(), table.entry().filter.page_bytes as usize);
    for offset in (span.offset as usize..span.end() as usize).step_by(page_bytes) {
        let page = &mut bytes[offset..offset + page_bytes];
        page[6] = FilterKind::Line as u8;
        page[16..].fill(0);
        let file_uid = table.file().identity().uid;
        seal(page, Context { file_uid, offset: offset as u64, tag: BlockKind::Filter as u8 });
    }
    pile.bench.disk.set_contents(table.file().name(), Some(&bytes));
    pile.push(4000, 1, FilterKind::Column);
    assert_eq!(pile.told(0, 1).0, 0);
    let (told, asked) = pile.told(0, 0);
    assert_eq!(told, asked);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For runs of any size, in any number of tables, with or without columns, and with any of them removed:
    /// no page denies a key that a run of its pile has.
    #[test]
    fn nothing_is_denied(
        runs in proptest::collection::vec((1usize..900, 1usize..4, any::<bool>(), 0usize..8), 2..7),
    ) {
        let mut pile = Pile::new();
        for (items, tables, is_plain, gone) in runs {
            let kind = if is_plain && gone > 4 { FilterKind::Line } else { FilterKind::Column };
            pile.push(items, tables.min(items), kind);
            if gone < pile.runs.len() && gone > 0 {
                pile.runs.remove(gone);
            }
        }
        for newer in 0..pile.runs.len() {
            for older in newer..pile.runs.len() {
                pile.told(newer, older);
            }
        }
    }
}
