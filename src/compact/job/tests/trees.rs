//! Merges of many trees as one.

use super::*;

/// A tree of the same keyspace.
fn tree(number: u32) -> TreeId {
    TreeId { partition: PartitionId(number), ..TREE }
}

/// The contents of one run: items of each tree, and perhaps a range tombstone.
type Run = BTreeMap<TreeId, (Items, Option<(&'static str, &'static str)>)>;

impl Files {
    /// Creates a file with a slice for each tree.
    fn shared(&self, run: &Run) -> Vec<Arc<TableReader>> {
        let identity = self.numbers.next().expect("numbers are left");
        let mut builder = TableBuilder::new(Arc::clone(&self.storage), identity).expect("a new file");
        for (tree, (items, range)) in run {
            builder.begin(*tree, SLICE).expect("a new slice");
            for (key, value) in items {
                let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
                let value = value.as_deref().unwrap_or_default();
                builder.add(key, secret().hash(key), kind, value).expect("a write");
            }
            range.iter().for_each(|(start, end)| builder.add_range(start.as_bytes(), end.as_bytes()));
            builder.end().expect("a write");
        }
        self.open_all(&builder.finish().expect("a write").summary)
    }

    fn open_all(&self, summary: &TableSummary) -> Vec<Arc<TableReader>> {
        let owner = TableOwner::alone(HashSecret::expand([5; 16]));
        TableFile::open(&self.storage, summary.identity, summary.bytes, summary.checksum, &owner)
            .expect("a whole file")
    }

    /// A merge of some trees of these files, newest first, each above one older table.
    fn joint(
        &self,
        trees: &[TreeId],
        files: &[Vec<Arc<TableReader>>],
        older: &BTreeMap<TreeId, Arc<TableReader>>,
    ) -> MergeJob {
        self.joint_of(trees, files, older, 40_000)
    }

    /// The same with tables of that length.
    fn joint_of(
        &self,
        trees: &[TreeId],
        files: &[Vec<Arc<TableReader>>],
        older: &BTreeMap<TreeId, Arc<TableReader>>,
        table_bytes: u64,
    ) -> MergeJob {
        let plan = |tree: &TreeId| {
            let of_tree = |file: &Vec<Arc<TableReader>>| file.iter().find(|one| one.tree() == *tree).cloned();
            TreeMergePlan {
                tree: *tree,
                slice: SLICE,
                runs: files.iter().filter_map(of_tree).map(|table| vec![table]).collect(),
                next: older.get(tree).cloned().into_iter().collect(),
                older: Vec::new(),
                nodes: None,
                table_bytes,
            }
        };
        let plan = MergePlan {
            trees: trees.iter().map(plan).collect(),
            memory_bytes: 64 << 20,
            admission: None,
            opening: None,
            load: Arc::default(),
        };
        let new_files: Arc<dyn NewFiles> = Arc::clone(&self.numbers) as Arc<dyn NewFiles>;
        MergeJob::new(&self.storage, new_files, secret(), plan).expect("inputs are readable")
    }

    /// Items, ranges and bounds of the output, by tree.
    fn contents(&self, output: &MergeOutput) -> BTreeMap<TreeId, Vec<String>> {
        let mut by_tree: BTreeMap<TreeId, Vec<String>> = BTreeMap::new();
        for table in output.tables.iter().flat_map(|built| self.open_all(&built.summary)) {
            let ranges: Vec<_> = table.ranges().iter().map(|(a, b)| (a.to_vec(), b.to_vec())).collect();
            let said = format!("{:?} {ranges:?} {:?}..={:?}", self.items(&table), table.min(), table.max());
            by_tree.entry(table.tree()).or_default().push(said);
        }
        by_tree
    }
}

/// Four flushes of many trees; a few have one run, or none, or ranges, and one is long enough to be cut.
fn flushes() -> Vec<Run> {
    let mut runs = Vec::new();
    for newness in 0..4u32 {
        let of_tree = |number: u32| {
            let has_range = number % 7 == newness;
            let only_range = number % 11 == 3;
            let count = if number == 90 { 900 } else { 1 + number * 31 % 17 };
            let items = match only_range {
                true => Items::from([(b"key00000000".to_vec(), None)]),
                false => items(number + newness, 3, count, 90, newness as u8),
            };
            (tree(number), (items, has_range.then_some(("key00000010", "key00000040"))))
        };
        runs.push((1..200).filter(|number| (number + newness) % 5 > 0).map(of_tree).collect());
    }
    runs
}

/// Each tree gets the result of a merge of it alone, in few files, read in few pieces; its tables are cut
/// alike.
#[test]
fn many_trees_come_out_as_alone() {
    let files = Files::new();
    let inputs: Vec<Vec<Arc<TableReader>>> = flushes().iter().map(|run| files.shared(run)).collect();
    let older = (1..200).step_by(3).map(|number| {
        let run = Run::from([(tree(number), (items(0, 20, 10, 5, 9), None))]);
        (tree(number), files.shared(&run).remove(0))
    });
    let older: BTreeMap<TreeId, Arc<TableReader>> = older.collect();
    let trees: Vec<TreeId> = inputs.iter().flatten().map(|table| table.tree()).collect();
    let trees: Vec<TreeId> = trees.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(trees.len(), 199);

    let before = files.storage.counts().reads;
    let (joint, turns) = finish(files.joint(&trees, &inputs, &older));
    let reads = files.storage.counts().reads - before;
    assert!(turns > 3 && reads < 60, "{turns} turns, {reads} reads");
    assert!((10..30).contains(&joint.tables.len()), "{} files", joint.tables.len());
    let found = files.contents(&joint);

    let (mut counts, mut single_bytes) = (MergeCounts::default(), 0);
    for tree in &trees {
        let (alone, _) = finish(files.joint(&[*tree], &inputs, &older));
        let mut expected = files.contents(&alone);
        assert_eq!(found.get(tree), expected.remove(tree).as_ref(), "{tree:?}");
        counts.items_in += alone.counts.items_in;
        counts.items_out += alone.counts.items_out;
        counts.items_shadowed += alone.counts.items_shadowed;
        counts.tombstones_dropped += alone.counts.tombstones_dropped;
        counts.tombstones_added += alone.counts.tombstones_added;
        counts.bytes_read += alone.counts.bytes_read;
        single_bytes += alone.counts.bytes_written;
    }
    assert!(joint.counts.bytes_written < single_bytes);
    counts.bytes_written = joint.counts.bytes_written;
    assert_eq!(joint.counts, counts);
}

/// An error names the tree being read; dropping the job removes all files that it created.
#[test]
fn damage_is_of_one_tree() {
    let files = Files::new();
    let inputs: Vec<Vec<Arc<TableReader>>> = flushes().iter().map(|run| files.shared(run)).collect();
    let damaged = inputs[2].iter().find(|table| table.tree() == tree(94)).expect("it has that tree");
    let (file, at) = (damaged.file().name(), damaged.slice_offset());
    files.storage.write(file, at + 40, &[0xff; 8]).expect("a write");
    let before = files.file_count();
    let trees: Vec<TreeId> = (1..200).map(tree).filter(|tree| tree.partition.0 != 10).collect();
    let mut job = files.joint(&trees, &inputs, &BTreeMap::new());
    let error = loop {
        match job.turn() {
            Ok(TurnProgress::More) => {}
            Ok(TurnProgress::Done(_)) => panic!("a damaged slice was merged"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert_eq!(job.tree(), Some(tree(94)));
    assert!(files.file_count() > before);
    drop(job);
    assert_eq!(files.file_count(), before);
    let others: Vec<TreeId> = trees.into_iter().filter(|one| *one != tree(94)).collect();
    finish(files.joint(&others, &inputs, &BTreeMap::new()));
}

/// A file shared by trees ends behind the tree with which it reaches 4 MiB, for any target size of a tree's
/// tables.
#[test]
fn shared_files_are_short() {
    let files = Files::new();
    let of_tree = |number: u32| (tree(number), (items(number, 1, 100, 5000, 1), None));
    let inputs = vec![files.shared(&(1..=30).map(of_tree).collect())];
    let trees: Vec<TreeId> = (1..=30).map(tree).collect();
    let (output, _) = finish(files.joint_of(&trees, &inputs, &BTreeMap::new(), 64 << 20));
    let lengths: Vec<u64> = output.tables.iter().map(|built| built.summary.bytes).collect();
    let (last, others) = lengths.split_last().expect("there are files");
    assert!(others.len() >= 2 && *last < 5 << 20, "{lengths:?}");
    assert!(others.iter().all(|bytes| (4 << 20..5 << 20).contains(bytes)), "{lengths:?}");
}
