//! Jobs over real table files in a directory of their own.

use std::collections::BTreeMap;

use super::*;
use crate::base::error::Error;
use crate::base::id::{FileKind, FileName, KeyspaceId, PartitionId};
use crate::base::sync::{AtomicU64, Ordering};
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::env::Env;
use crate::io::os::{DirectIo, FileUse, ReadWith};
use crate::table::{TableFile, TableOwner, TableSummary};

mod ranges;
mod trees;

pub(in crate::compact) const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(2) };
const SLICE: SliceShape = SliceShape {
    index: crate::table::IndexPlan::Fences,
    filter: FilterPlan::of_bits(10),
    block_bytes: 4096,
    compression: Compression::None,
};

/// A run's items; tombstones are `None`.
pub(in crate::compact) type Items = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Numbers for new files; fails after `left` have been given out.
struct Numbers {
    next: AtomicU64,
    left: AtomicU64,
}

impl NewFiles for Numbers {
    fn next(&self) -> Result<TableIdentity> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(Error::Closed);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(TableIdentity { file: FileName::new(FileKind::Table, number), uid: number * 77, store_id: 5 })
    }
}

/// A directory with tables.
pub(in crate::compact) struct Files {
    _directory: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    numbers: Arc<Numbers>,
}

impl Files {
    pub(in crate::compact) fn new() -> Files {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let env = Env::os(&directory.path().join("store"), FileUse::new(DirectIo::Off, 64, ReadWith::Auto))
            .expect("an environment");
        env.storage.create_directory().expect("a new directory");
        let numbers = Numbers { next: AtomicU64::new(1), left: AtomicU64::new(u64::MAX) };
        Files { _directory: directory, storage: env.storage, numbers: Arc::new(numbers) }
    }

    fn table(&self, items: &Items) -> Arc<TableReader> {
        self.table_with(items, &[])
    }

    pub(in crate::compact) fn table_with(&self, items: &Items, ranges: &[(&str, &str)]) -> Arc<TableReader> {
        let identity = self.numbers.next().expect("numbers are left");
        let mut builder = TableBuilder::new(Arc::clone(&self.storage), identity).expect("a new file");
        builder.begin(TREE, SLICE).expect("a new slice");
        for (key, value) in items {
            let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
            let value = value.as_deref().unwrap_or_default();
            builder.add(key, secret().hash(key), kind, value).expect("a write");
        }
        ranges.iter().for_each(|(start, end)| builder.add_range(start.as_bytes(), end.as_bytes()));
        builder.end().expect("a write");
        let summary = builder.finish().expect("a write").summary;
        self.open(&summary)
    }

    fn open(&self, summary: &TableSummary) -> Arc<TableReader> {
        let owner = TableOwner::alone(HashSecret::expand([5; 16]));
        let identity = summary.identity;
        TableFile::open(&self.storage, identity, summary.bytes, summary.checksum, &owner)
            .expect("a whole file")
            .remove(0)
    }

    fn items(&self, table: &Arc<TableReader>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut stream =
            TableStream::new(Arc::clone(&self.storage), Arc::default(), Arc::clone(table), 64 << 10)
                .expect("a read");
        let mut items = Vec::new();
        while let Some((key, kind, value)) = stream.item() {
            items.push((key.to_vec(), (kind == ItemKind::Put).then(|| value.to_vec())));
            stream.advance().expect("a read");
        }
        items
    }

    fn job(
        &self,
        runs: &[Vec<Arc<TableReader>>],
        older: &[Vec<Arc<TableReader>>],
        table_bytes: u64,
    ) -> MergeJob {
        let new_files: Arc<dyn NewFiles> = Arc::clone(&self.numbers) as Arc<dyn NewFiles>;
        let tree = TreeMergePlan {
            tree: TREE,
            slice: SLICE,
            runs: runs.to_vec(),
            next: older.first().cloned().unwrap_or_default(),
            older: older.iter().skip(1).flatten().cloned().collect(),
            nodes: None,
            table_bytes,
        };
        let plan = MergePlan {
            trees: vec![tree],
            memory_bytes: 64 << 20,
            admission: None,
            opening: None,
            load: Arc::default(),
        };
        MergeJob::new(&self.storage, new_files, secret(), plan).expect("inputs are readable")
    }

    fn file_count(&self) -> usize {
        self.storage.list().expect("a directory").len()
    }
}

fn secret() -> HashSecret {
    HashSecret::expand([3; 16])
}

/// Runs turns until the job is done; returns the output and the number of turns.
fn finish(mut job: MergeJob) -> (MergeOutput, usize) {
    for turn in 1.. {
        if let TurnProgress::Done(output) = job.turn().expect("nothing fails") {
            return (output, turn);
        }
    }
    unreachable!("a merge ends")
}

/// `count` items from `start`, `step` apart; every fifth is a tombstone.
fn items(start: u32, step: u32, count: u32, value_bytes: usize, mark: u8) -> Items {
    let item = |index: u32| {
        let key = format!("key{:08}", start + index * step).into_bytes();
        (key, (index % 5 != 4).then(|| vec![mark; value_bytes]))
    };
    (0..count).map(item).collect()
}

fn split(items: &Items, count: usize) -> Vec<Items> {
    let items: Vec<_> = items.iter().collect();
    let part = |chunk: &[(&Vec<u8>, &Option<Vec<u8>>)]| {
        chunk.iter().map(|(key, value)| ((*key).clone(), (*value).clone())).collect()
    };
    items.chunks(items.len().div_ceil(count)).map(part).collect()
}

/// The newest version of each key comes out once, in disjoint tables of the requested length, over many
/// turns; counts add up.
#[test]
fn newest_versions_in_disjoint_tables() {
    let files = Files::new();
    let layers = [items(10, 3, 3000, 100, 1), items(0, 2, 6000, 100, 2), items(5, 1, 9000, 100, 3)];
    let runs: Vec<Vec<Arc<TableReader>>> = [1, 1, 4]
        .iter()
        .zip(&layers)
        .map(|(count, layer)| split(layer, *count).iter().map(|part| files.table(part)).collect())
        .collect();
    let mut expected = Items::new();
    for layer in layers.iter().rev() {
        expected.extend(layer.clone());
    }
    let tombstones = expected.values().filter(|value| value.is_none()).count() as u64;
    expected.retain(|_, value| value.is_some());

    let (output, turns) = finish(files.job(&runs, &[], 200_000));
    assert!(turns > 3, "{turns} turns");
    let tables: Vec<Arc<TableReader>> =
        output.tables.iter().map(|built| files.open(&built.summary)).collect();
    let mut found = Vec::new();
    for table in &tables {
        found.extend(files.items(table));
    }
    assert!(found.iter().map(|(key, value)| (key, value)).eq(expected.iter()));
    assert!(tables.windows(2).all(|pair| pair[0].max() < pair[1].min()));
    let all_but_last = &output.tables[..output.tables.len() - 1];
    assert!(all_but_last.iter().all(|table| (200_000..260_000).contains(&table.summary.bytes)));
    let items_in = layers.iter().map(|layer| layer.len() as u64).sum();
    let items_out = expected.len() as u64;
    let counts = MergeCounts {
        items_in,
        items_out,
        items_shadowed: items_in - items_out - tombstones,
        tombstones_dropped: tombstones,
        tombstones_added: 0,
        bytes_read: runs.iter().flatten().map(|table| table.slice_bytes()).sum(),
        bytes_written: output.tables.iter().map(|built| built.summary.bytes).sum(),
    };
    assert_eq!(output.counts, counts);
    assert_eq!(files.file_count(), 6 + output.tables.len());
}

/// A tombstone stays as long as an older table outside the merge may hold its key, bounds included. In both
/// cases it hides older versions inside the merge.
#[test]
fn tombstones_live_as_long_as_older_tables_may_hold_their_key() {
    let files = Files::new();
    let set = |pairs: &[(&str, Option<&str>)]| -> Items {
        let own = |(key, value): &(&str, Option<&str>)| {
            (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))
        };
        pairs.iter().map(own).collect()
    };
    let deletes = set(&[("a", None), ("b", None), ("c", None), ("d", None), ("e", Some("new")), ("f", None)]);
    let newer = files.table(&deletes);
    let inner = files.table(&set(&[("a", Some("old")), ("e", Some("old")), ("z", Some("old"))]));
    let older = [
        vec![files.table(&set(&[("b", Some("1")), ("c", Some("1"))]))],
        vec![files.table(&set(&[("f", Some("1"))]))],
    ];
    let (output, _) = finish(files.job(&[vec![newer], vec![inner]], &older, 1 << 20));
    let found = files.items(&files.open(&output.tables[0].summary));
    let expected = [("b", None), ("c", None), ("e", Some("new")), ("f", None), ("z", Some("old"))];
    assert_eq!(found, set(&expected).into_iter().collect::<Vec<_>>());
    assert_eq!((output.counts.tombstones_dropped, output.counts.items_shadowed), (2, 2));
}

/// Without live items there is no table, and no file is ever created.
#[test]
fn nothing_alive_makes_no_file() {
    let files = Files::new();
    let dead: Items = items(0, 1, 100, 10, 1).into_keys().map(|key| (key, None)).collect();
    let runs = [vec![files.table(&dead)], vec![files.table(&items(0, 1, 100, 10, 1))]];
    let (output, _) = finish(files.job(&runs, &[], 1 << 20));
    assert!(output.tables.is_empty());
    assert_eq!(output.counts.tombstones_dropped, 100);
    assert_eq!(files.file_count(), 2);
}

/// An output table does not overlap too many tables of the level below.
#[test]
fn tables_are_cut_above_many_tables_below() {
    let files = Files::new();
    let below: Vec<Arc<TableReader>> =
        split(&items(0, 1, 4000, 100, 9), 40).iter().map(|part| files.table(part)).collect();
    let table_bytes = below[0].slice_bytes();
    let sparse = files.table(&items(0, 50, 80, 10, 1));
    let (output, _) = finish(files.job(&[vec![sparse]], &[below], table_bytes));
    assert_eq!(output.tables.len(), 4);
}

/// A job that is dropped at any turn, or fails, leaves the directory unchanged.
#[test]
fn an_abandoned_job_removes_its_files() {
    let files = Files::new();
    let runs = [vec![files.table(&items(0, 1, 20_000, 100, 1))]];
    for turns in [0, 1, 3] {
        let mut job = files.job(&runs, &[], 300_000);
        for _ in 0..turns {
            assert!(matches!(job.turn(), Ok(TurnProgress::More)));
        }
        assert!(turns == 0 || files.file_count() > 1);
        drop(job);
        assert_eq!(files.file_count(), 1);
    }
    files.numbers.left.store(2, Ordering::Relaxed);
    let mut job = files.job(&runs, &[], 300_000);
    let failed = (0..100).find_map(|_| job.turn().err());
    assert!(matches!(failed, Some(Error::Closed)));
    assert!(files.file_count() > 1);
    drop(job);
    assert_eq!(files.file_count(), 1);
}

/// A damaged input is an error that names its file, and the output so far is removed.
#[test]
fn a_damaged_input_fails_the_job() {
    let files = Files::new();
    let good = files.table(&items(1, 2, 10_000, 100, 1));
    let bad = files.table(&items(0, 2, 10_000, 100, 2));
    let file = bad.file().name();
    let middle = bad.slice_bytes() / 2;
    let mut byte = [0];
    files.storage.read(file, middle, &mut byte).expect("a read");
    files.storage.write(file, middle, &[byte[0] ^ 1]).expect("a write");
    let mut job = files.job(&[vec![good], vec![bad]], &[], 300_000);
    let failed = (0..100).find_map(|_| job.turn().err());
    let Some(Error::Corrupt(corrupt)) = failed else { panic!("damage is found: {failed:?}") };
    assert_eq!(corrupt.file, file.to_string());
    assert!(files.file_count() > 2);
    drop(job);
    assert_eq!(files.file_count(), 2);
}

/// Items gathered for a learned page end no table: with any memory as many tables come out as with fences.
/// They once took half of the memory, and tables of 16 MiB became 32.
#[test]
fn gathered_items_end_no_table() {
    let value = vec![b'v'; 100];
    let items = (0..60_000u32).map(|number| (format!("user{number:012}").into_bytes(), Some(value.clone())));
    let items: Items = items.collect();
    for mebibytes in [3, 5, 6, 12, 14] {
        let tables = [IndexPlan::Fences, IndexPlan::Learned].map(|index| {
            let files = Files::new();
            let tree = TreeMergePlan {
                tree: TREE,
                slice: SliceShape { index, ..SLICE },
                runs: vec![vec![files.table(&items)]],
                next: Vec::new(),
                older: Vec::new(),
                nodes: None,
                table_bytes: 16 << 20,
            };
            let memory_bytes = mebibytes << 20;
            let (admission, opening, load) = (None, None, Arc::default());
            let plan = MergePlan { trees: vec![tree], memory_bytes, admission, opening, load };
            let new_files: Arc<dyn NewFiles> = Arc::clone(&files.numbers) as Arc<dyn NewFiles>;
            let mut job = MergeJob::new(&files.storage, new_files, secret(), plan).expect("begins");
            loop {
                let progress = job.turn().expect("no fault");
                assert!(job.memory_bytes() as u64 <= memory_bytes, "{index:?} within {mebibytes} MiB");
                if let TurnProgress::Done(output) = progress {
                    break output.tables.len();
                }
            }
        });
        assert_eq!(tables[0], tables[1], "{mebibytes} MiB");
    }
}
