//! Flushes of small generations into real files.

use super::*;
use crate::base::id::{FileKind, FileName, KeyspaceId, PartitionId};
use crate::base::region::Region;
use crate::format::table::compressed::Compression;
use crate::format::table::filter::FilterPlan;
use crate::io::env::Env;
use crate::io::os::{DirectIo, FileUse, ReadWith};
use crate::memtable::{Inserter, generation};
use crate::table::{TableFile, TableOwner, TableReader, TableStream, TableSummary};

const SLICE: SliceShape = SliceShape {
    index: crate::table::IndexPlan::Fences,
    filter: FilterPlan::of_bits(10),
    block_bytes: 4096,
    compression: Compression::None,
};
const KEEP: TreeFlushPlan = TreeFlushPlan { slice: SLICE, tombstones: Tombstones::Keep };
const DROP: TreeFlushPlan = TreeFlushPlan { slice: SLICE, tombstones: Tombstones::Drop };

fn tree(keyspace: u32) -> TreeId {
    TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(keyspace + 100) }
}

fn secret() -> HashSecret {
    HashSecret::expand([3; 16])
}

/// Items of a slice; a tombstone is `None`.
type Pairs = Vec<(String, Option<String>)>;

struct Files {
    _directory: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    sequence: Sequence,
    number: u64,
}

impl Files {
    fn new(number: u64) -> Files {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let env = Env::os(&directory.path().join("store"), FileUse::new(DirectIo::Off, 64, ReadWith::Auto))
            .expect("an environment");
        env.storage.create_directory().expect("a new directory");
        Files { _directory: directory, storage: env.storage, sequence: 0, number }
    }

    fn write(&mut self, inserter: &mut Inserter, keyspace: u32, key: &str, value: Option<&str>) {
        self.sequence += 1;
        let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
        let (key, value) = (key.as_bytes(), value.unwrap_or_default().as_bytes());
        inserter.insert(tree(keyspace), key, secret().hash(key), self.sequence, kind, value);
    }

    fn flush(
        &self,
        generations: &[&Arc<Generation>],
        plan_of: impl FnMut(TreeId) -> Option<TreeFlushPlan>,
    ) -> Flush {
        let file = FileName::new(FileKind::Table, self.number);
        let identity = TableIdentity { file, uid: 77, store_id: 5 };
        let generations = generations.iter().map(|one| Arc::clone(one)).collect();
        Flush::new(Arc::clone(&self.storage), identity, secret(), generations, plan_of)
    }

    /// Tree and items of each slice.
    fn slices(&self, summary: &TableSummary) -> Vec<(TreeId, Pairs)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("tests write text");
        let items = |table: &Arc<TableReader>| {
            let mut stream =
                TableStream::new(Arc::clone(&self.storage), Arc::default(), Arc::clone(table), 64 << 10)
                    .expect("a read");
            let mut items = Vec::new();
            while let Some((key, kind, value)) = stream.item() {
                items.push((text(key), (kind == ItemKind::Put).then(|| text(value))));
                stream.advance().expect("a read");
            }
            (table.tree(), items)
        };
        self.open(summary).iter().map(items).collect()
    }

    fn open(&self, summary: &TableSummary) -> Vec<Arc<TableReader>> {
        let owner = TableOwner::alone(HashSecret::expand([5; 16]));
        TableFile::open(&self.storage, summary.identity, summary.bytes, summary.checksum, &owner)
            .expect("a whole file")
    }

    fn file_count(&self) -> usize {
        self.storage.list().expect("a directory").len()
    }
}

fn new_generation() -> (Arc<Generation>, Inserter) {
    generation(Region::heap(4 << 20).expect("a small allocation"))
}

fn finish(mut flush: Flush) -> (FlushOutput, usize) {
    for turn in 1.. {
        if let TurnProgress::Done(output) = flush.turn().expect("nothing fails") {
            return (output, turn);
        }
    }
    unreachable!("a flush ends")
}

fn pairs(items: &[(&str, Option<&str>)]) -> Pairs {
    items.iter().map(|(key, value)| (key.to_string(), value.map(str::to_string))).collect()
}

/// Two generations become one file: a slice per tree in order, with the newest version of each key.
/// Tombstones stay only where tables may hold items that they hide. Dropped trees are left out.
#[test]
fn generations_become_slices() {
    let mut files = Files::new(1_000_001);
    let (older, mut inserter) = new_generation();
    files.write(&mut inserter, 3, "a", Some("old"));
    files.write(&mut inserter, 3, "b", Some("old"));
    files.write(&mut inserter, 1, "x", None);
    files.write(&mut inserter, 1, "y", Some("first"));
    files.write(&mut inserter, 1, "y", Some("second"));
    let (newer, mut inserter) = new_generation();
    files.write(&mut inserter, 3, "a", None);
    files.write(&mut inserter, 3, "c", Some("new"));
    files.write(&mut inserter, 2, "gone", Some("dropped"));
    files.write(&mut inserter, 4, "never", None);

    let plan_of = |id: TreeId| match id.keyspace.0 {
        2 => None,
        3 => Some(KEEP),
        _ => Some(DROP),
    };
    let (output, _) = finish(files.flush(&[&newer, &older], plan_of));
    let summary = output.table.expect("something is kept").summary;
    let expected = [
        (tree(1), pairs(&[("y", Some("second"))])),
        (tree(3), pairs(&[("a", None), ("b", Some("old")), ("c", Some("new"))])),
    ];
    assert_eq!(files.slices(&summary), expected);
    assert_eq!(summary.slices.iter().map(|slice| slice.tombstones).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(output.sequences, Some((1, 9)));
    let counts = FlushCounts {
        items_in: 7,
        items_out: 4,
        tombstones_dropped: 2,
        items_hidden: 0,
        bytes_written: summary.bytes,
    };
    assert_eq!(output.counts, counts);
    assert_eq!(files.file_count(), 1);
}

/// If no item is kept, no file is made; the sequence numbers are returned nevertheless.
#[test]
fn nothing_kept_makes_no_file() {
    let mut files = Files::new(2_000_001);
    let (one, mut inserter) = new_generation();
    files.write(&mut inserter, 1, "x", None);
    files.write(&mut inserter, 2, "x", Some("dropped"));
    let (output, _) = finish(files.flush(&[&one], |id| (id == tree(1)).then_some(DROP)));
    assert!(output.table.is_none());
    assert_eq!(output.sequences, Some((1, 2)));
    let (empty, _inserter) = new_generation();
    let (output, _) = finish(files.flush(&[&empty], |_| Some(KEEP)));
    assert!(output.table.is_none() && output.sequences.is_none());
    assert_eq!(files.file_count(), 0);
}

/// A flush of a few megabytes takes several turns. Dropped between them, it removes its file.
#[test]
fn an_abandoned_flush_removes_its_file() {
    let mut files = Files::new(3_000_001);
    let (one, mut inserter) = new_generation();
    let value = "v".repeat(1000);
    for index in 0..2000 {
        files.write(&mut inserter, index % 3, &format!("{index:08}"), Some(&value));
    }
    let mut flush = files.flush(&[&one], |_| Some(KEEP));
    for _ in 0..2 {
        assert!(matches!(flush.turn(), Ok(TurnProgress::More)));
    }
    assert_eq!(files.file_count(), 1);
    drop(flush);
    assert_eq!(files.file_count(), 0);
    let (output, turns) = finish(files.flush(&[&one], |_| Some(KEEP)));
    assert!(turns > 3, "{turns} turns");
    assert_eq!(output.counts.items_out, 2000);
    assert_eq!(files.file_count(), 1);
}
