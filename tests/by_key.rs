//! Keyspaces that are partitioned by key, compared with a map without partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use proptest::prelude::*;
use trine::sim::{Crash, World};
use trine::{Db, Keyspace, Ordered, Partitioning};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, u8),
    Delete(Vec<u8>),
    /// Puts and deletes in one batch.
    Batch(Vec<(Vec<u8>, Option<u8>)>),
    DeleteRange(Vec<u8>, Vec<u8>),
    /// Keys in ascending order, with the same value.
    Ingest(BTreeSet<Vec<u8>>, u8),
    Drop(Vec<u8>),
    Retain(Vec<u8>),
    Clear,
    Flush,
    Compact,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..4u8, 0..5)
}

fn step() -> impl Strategy<Value = Step> {
    let item = (key(), proptest::option::of(any::<u8>()));
    prop_oneof![
        8 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::Delete),
        4 => proptest::collection::vec(item, 1..8).prop_map(Step::Batch),
        2 => (key(), key()).prop_map(|(from, to)| Step::DeleteRange(from, to)),
        2 => key().prop_map(Step::Drop),
        2 => (proptest::collection::btree_set(key(), 1..12), any::<u8>())
            .prop_map(|(keys, value)| Step::Ingest(keys, value)),
        1 => key().prop_map(Step::Retain),
        1 => Just(Step::Clear),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

/// The partitioning rule of a keyspace, and the partition name of a key under it.
#[derive(Clone, Copy, Debug)]
enum Division {
    Prefix(usize),
    Ranges(&'static [&'static [u8]]),
    /// By the bytes after the first one.
    Function,
}

fn behind_first(key: &[u8]) -> &[u8] {
    key.get(1..).unwrap_or_default()
}

impl Division {
    fn open(self, db: &Db) -> Keyspace<Ordered> {
        self.open_as(db, "divided")
    }

    fn open_as(self, db: &Db, name: &str) -> Keyspace<Ordered> {
        let rule = match self {
            Division::Prefix(bytes) => Partitioning::prefix(bytes),
            Division::Ranges(bounds) => Partitioning::ranges(bounds),
            Division::Function => Partitioning::function("behind first", 1, |key| behind_first(key).into()),
        };
        db.ordered(name).partition_by(rule).open().expect("opens")
    }

    fn name(self, key: &[u8]) -> &[u8] {
        match self {
            Division::Prefix(bytes) => &key[..bytes.min(key.len())],
            Division::Ranges(bounds) => {
                bounds.iter().rev().find(|bound| **bound <= key).map_or(&[], |bound| bound)
            }
            Division::Function => behind_first(key),
        }
    }
}

const DIVISIONS: [Division; 5] = [
    Division::Prefix(1),
    Division::Prefix(3),
    Division::Ranges(&[&[1], &[1, 2], &[2], &[3, 0, 1]]),
    Division::Ranges(&[&[2, 2]]),
    Division::Function,
];

fn value(number: u8) -> Vec<u8> {
    vec![number; 20]
}

/// Scans in both directions, ranges, gets, multi-gets and counts agree with the model.
fn check(keyspace: &Keyspace<Ordered>, model: &Model) {
    let owned = |item: trine::Result<(trine::Value, trine::Value)>| {
        let (key, value) = item.expect("no fault");
        (key.to_vec(), value.to_vec())
    };
    let all: Vec<(Vec<u8>, Vec<u8>)> = model.clone().into_iter().collect();
    assert_eq!(keyspace.iter().map(owned).collect::<Vec<_>>(), all);
    let mut backward: Vec<_> = keyspace.iter().rev().map(owned).collect();
    backward.reverse();
    assert_eq!(backward, all);
    assert_eq!(keyspace.exact_len(|_| {}).expect("no fault"), all.len() as u64);
    assert_eq!(keyspace.is_empty().expect("no fault"), all.is_empty());
    let first = keyspace.first().expect("no fault").map(|(key, _)| key.to_vec());
    let last = keyspace.last().expect("no fault").map(|(key, _)| key.to_vec());
    assert_eq!((first.as_ref(), last.as_ref()), (model.keys().next(), model.keys().next_back()));
    let keys: Vec<Vec<u8>> = (0..64u8).map(|one| vec![one / 16, one / 4 % 4, one % 4]).collect();
    let found = keyspace.multi_get(&keys).expect("no fault");
    let later = trine::block_on(keyspace.multi_get_async(&keys)).expect("no fault");
    for (number, key) in keys.iter().enumerate() {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(found[number].as_deref(), expected);
        assert_eq!(later[number].as_deref(), expected);
        assert_eq!(keyspace.get(key).expect("no fault").as_deref(), expected);
        assert_eq!(trine::block_on(keyspace.get_async(key)).expect("no fault").as_deref(), expected);
    }
    for pair in keys.windows(9).step_by(5) {
        let (from, to) = (&pair[0], &pair[8]);
        let expected: Vec<&Vec<u8>> = model
            .range::<Vec<u8>, _>((Bound::Excluded(from), Bound::Included(to)))
            .map(|(key, _)| key)
            .collect();
        let bounds = (Bound::Excluded(from.as_slice()), Bound::Included(to.as_slice()));
        let found: Vec<Vec<u8>> = keyspace.range(bounds).map(|item| owned(item).0).collect();
        assert!(found.iter().eq(expected.iter().copied()), "{found:?} {expected:?}");
        let mut backward: Vec<Vec<u8>> = keyspace.range(bounds).rev().map(|item| owned(item).0).collect();
        backward.reverse();
        assert_eq!(backward, found);
        let later: Vec<Vec<u8>> = trine::block_on(async {
            let (mut range, mut keys) = (keyspace.range_async(bounds), Vec::new());
            while let Some(item) = range.next().await {
                keys.push(item.expect("no fault").0.to_vec());
            }
            keys
        });
        assert_eq!(later, found);
        // From both ends at once, and a cursor that reverses at each key.
        let (mut range, mut met) = (keyspace.range(bounds), 0);
        while range.next().is_some() {
            met += 1 + usize::from(range.next_back().is_some());
        }
        assert_eq!(met, found.len());
        let mut cursor = keyspace.cursor(..);
        cursor.seek(from).expect("no fault");
        let at = cursor.next().expect("no fault").map(|(key, _)| key.to_vec());
        assert_eq!(at.as_ref(), model.range(from.clone()..).next().map(|(key, _)| key));
        if at.is_some() {
            let before = cursor.prev().expect("no fault").map(|(key, _)| key.to_vec());
            assert_eq!(before.as_ref(), model.range(..from.clone()).next_back().map(|(key, _)| key));
        }
    }
}

/// The partitions that exist, and the least name that `retain_from` keeps.
#[derive(Default)]
struct Names {
    there: BTreeSet<Vec<u8>>,
    wanted_from: Vec<u8>,
}

impl Names {
    /// Items of the partitions `names` are put. If one of them has to be made and all missing ones are
    /// wanted, the store drops the unwanted partitions.
    fn make(&mut self, names: Vec<Vec<u8>>, division: Division, model: &mut Model) {
        let first_missing = names.iter().filter(|name| !self.there.contains(*name)).min();
        if first_missing.is_some_and(|name| *name >= self.wanted_from) {
            self.keep_wanted(division, model);
        }
        self.there.extend(names);
    }

    fn keep_wanted(&mut self, division: Division, model: &mut Model) {
        let from = &self.wanted_from;
        self.there.retain(|name| name >= from);
        model.retain(|key, _| division.name(key) >= from.as_slice());
    }
}

/// Without its partitioning function a keyspace can be scanned; gets and writes are refused.
fn check_unrouted(keyspace: &Keyspace<Ordered>, model: &Model) {
    let keys: Vec<Vec<u8>> = keyspace.keys().map(|key| key.expect("no fault").to_vec()).collect();
    assert!(keys.iter().eq(model.keys()));
    let refused = [
        keyspace.get("a").map(drop),
        keyspace.contains("a").map(drop),
        keyspace.multi_get(&["a"]).map(drop),
        trine::block_on(keyspace.get_async("a")).map(drop),
        trine::block_on(keyspace.multi_get_async(&["a"])).map(drop),
        keyspace.put("a", ""),
        keyspace.delete("a"),
        trine::block_on(keyspace.put_async("a", "")),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        let Err(trine::Error::Unrouted { name }) = result else { panic!("{number}: {result:?}") };
        assert_eq!(name, "behind first");
    }
}

/// Ingests `keys` in order, all with this value.
fn ingest(
    (keyspace, division): (&Keyspace<Ordered>, Division),
    (model, names): (&mut Model, &mut Names),
    keys: &BTreeSet<Vec<u8>>,
    value: Vec<u8>,
) {
    if matches!(division, Division::Function) {
        assert!(matches!(keyspace.ingest(), Err(trine::Error::Invalid { .. })));
        return;
    }
    let mut ingest = keyspace.ingest().expect("no fault");
    let put = keys.iter().try_for_each(|key| ingest.put(key, &value));
    for key in keys {
        names.make(vec![division.name(key).to_vec()], division, model);
    }
    let finished = put.and_then(|()| ingest.finish());
    if keys.iter().all(|key| names.there.contains(division.name(key))) {
        finished.expect("no fault");
        model.extend(keys.iter().map(|key| (key.clone(), value.clone())));
    } else {
        // The ingest made an unwanted partition; making a wanted one later dropped it.
        assert!(matches!(finished, Err(trine::Error::Dropped { .. })), "{finished:?}");
    }
}

fn take(
    (keyspace, db, division): (&Keyspace<Ordered>, &Db, Division),
    (model, names): (&mut Model, &mut Names),
    step: &Step,
) {
    match step {
        Step::Put(key, number) => {
            keyspace.put(key, value(*number)).expect("no fault");
            names.make(vec![division.name(key).to_vec()], division, model);
            model.insert(key.clone(), value(*number));
        }
        Step::Delete(key) => {
            keyspace.delete(key).expect("no fault");
            model.remove(key);
        }
        Step::Batch(items) => {
            let mut batch = db.batch();
            let puts = items.iter().filter(|(_, number)| number.is_some());
            names.make(puts.map(|(key, _)| division.name(key).to_vec()).collect(), division, model);
            for (key, number) in items {
                match number {
                    Some(number) => {
                        batch.put(keyspace, key, value(*number)).expect("no fault");
                        model.insert(key.clone(), value(*number));
                    }
                    None => {
                        batch.delete(keyspace, key).expect("no fault");
                        model.remove(key);
                    }
                }
            }
            if items.len() % 2 == 0 {
                batch.commit().expect("no fault");
            } else {
                trine::block_on(batch.commit_async()).expect("no fault");
            }
        }
        Step::DeleteRange(from, to) => {
            keyspace.delete_range(from.as_slice()..to.as_slice()).expect("no fault");
            model.retain(|key, _| key < from || key >= to);
        }
        Step::Drop(key) => {
            keyspace.drop_partition(division.name(key)).expect("no fault");
            model.retain(|one, _| division.name(one) != division.name(key));
            names.there.remove(division.name(key));
        }
        Step::Ingest(keys, number) => ingest((keyspace, division), (model, names), keys, value(*number)),
        Step::Retain(key) => {
            let count = names.there.len();
            names.wanted_from = match division {
                Division::Function => key.clone(),
                _ => division.name(key).to_vec(),
            };
            names.keep_wanted(division, model);
            let dropped = keyspace.retain_from(key).expect("no fault");
            assert_eq!(dropped, (count - names.there.len()) as u64);
        }
        Step::Clear => {
            keyspace.clear().expect("no fault");
            model.clear();
        }
        Step::Flush => db.flush().expect("no fault"),
        Step::Compact => keyspace.compact().expect("no fault"),
        Step::Reopen => unreachable!("done by the caller"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A keyspace partitioned by key answers as a plain map after any operations. A snapshot keeps its
    /// answers.
    #[test]
    fn keyspaces_by_key_answer_as_a_map(
        division in proptest::sample::select(DIVISIONS.to_vec()),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("data");
        let mut db = Db::open(&path).expect("opens");
        let (mut keyspace, mut model, mut names) = (division.open(&db), Model::new(), Names::default());
        let mut before: Option<(trine::Snapshot, Model)> = None;
        for (number, step) in steps.iter().enumerate() {
            if matches!(step, Step::Reopen) {
                before = None;
                drop(keyspace);
                db.close().expect("closes");
                db = Db::open(&path).expect("opens");
                keyspace = db.ordered("divided").open().expect("opens without its rule");
                if matches!(division, Division::Function) {
                    check_unrouted(&keyspace, &model);
                    keyspace = division.open(&db);
                }
            } else {
                take((&keyspace, &db, division), (&mut model, &mut names), step);
            }
            if number == steps.len() / 2 {
                before = Some((db.snapshot(), model.clone()));
            }
        }
        check(&keyspace, &model);
        if let Some((snapshot, then)) = before {
            let found: Vec<Vec<u8>> = keyspace.at(&snapshot).iter()
                .map(|item| item.expect("no fault").0.to_vec()).collect();
            prop_assert!(found.iter().eq(then.keys()));
            for key in then.keys() {
                let found = keyspace.at(&snapshot).get(key).expect("no fault");
                prop_assert_eq!(found.as_deref(), then.get(key).map(Vec::as_slice));
            }
        }
        let there: Vec<Vec<u8>> = keyspace.partitions().expect("no fault");
        prop_assert!(there.iter().eq(&names.there));
        let from = keyspace.retained_from().expect("no fault").unwrap_or_default();
        prop_assert_eq!(from, names.wanted_from);
    }
}

/// Invalid rules, rules other than the stored one, names that no key has, and unsupported operations are
/// refused.
#[test]
fn invalid_partitionings_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path().join("data")).expect("opens");
    let open = |rule: Partitioning<trine::ByKey>| db.ordered("divided").partition_by(rule).open();
    for rule in [
        Partitioning::prefix(0),
        Partitioning::prefix(256),
        Partitioning::ranges(["b", "a"]),
        Partitioning::ranges([""]),
        Partitioning::ranges([[1; 256]]),
        Partitioning::ranges::<[u8; 2]>([]),
        Partitioning::ranges((1..=4097u16).map(u16::to_be_bytes)),
    ] {
        assert!(matches!(open(rule), Err(trine::Error::Invalid { .. })));
    }
    let divided = open(Partitioning::prefix(2)).expect("made");
    let mismatch = open(Partitioning::ranges(["a"]));
    assert!(matches!(mismatch, Err(trine::Error::Mismatch { name: "partitioning", .. })));
    for (name, code) in [("", 1), (&"f".repeat(256), 1)] {
        let wrong = open(Partitioning::function(name, code, |key| key.into()));
        assert!(matches!(wrong, Err(trine::Error::Invalid { .. })));
    }
    let by_length = |version| {
        let rule = Partitioning::function("length", version, |key| vec![0; key.len()].into());
        db.ordered("function").partition_by(rule).open()
    };
    let function = by_length(1).expect("made");
    assert!(matches!(by_length(2), Err(trine::Error::Mismatch { name: "partitioning", .. })));
    function.put([1; 255], "1").expect("a name of 255 bytes");
    assert!(matches!(function.put([1; 256], "1"), Err(trine::Error::Invalid { .. })));
    assert_eq!((function.get([1; 256]).expect("no fault"), function.iter().count()), (None, 1));
    let explicit = db.ordered("divided").partition_by(Partitioning::explicit()).open();
    assert!(matches!(explicit, Err(trine::Error::Mismatch { .. })));
    let is_invalid = |result| matches!(result, Err(trine::Error::Invalid { .. }));
    assert!(is_invalid(divided.create_partition("abc")));
    assert!(is_invalid(divided.create_partitions(["zz", "abc"])), "then none is made");
    divided.create_partitions([""; 0]).expect("nothing to make");
    let whole = db.ordered("whole").open().expect("made");
    assert!(is_invalid(whole.create_partition("a")) && is_invalid(whole.partitions().map(drop)));
    assert!(!divided.drop_partition("zz").expect("no fault"));
    assert!(matches!(divided.put("zz", vec![0; 2 << 20]), Err(trine::Error::TooLarge { .. })));
    assert!(divided.partitions().expect("no fault").is_empty(), "a put that is refused makes none");
}

/// A snapshot still sees a keyspace that was dropped later, with all its partitions; later readers do not.
#[test]
fn snapshots_see_dropped_keyspaces() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path().join("data")).expect("opens");
    let divided = db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("made");
    for key in ["a1", "b1", "b2"] {
        divided.put(key, "1").expect("no fault");
    }
    let before = db.snapshot();
    db.drop_keyspace("divided").expect("no fault");
    let after = db.snapshot();
    assert_eq!(divided.at(&before).iter().filter(Result::is_ok).count(), 3);
    assert_eq!(divided.at(&before).get("b2").expect("no fault").as_deref(), Some(&b"1"[..]));
    for gone in [divided.get("a1"), divided.at(&after).get("a1")] {
        assert!(matches!(gone, Err(trine::Error::Dropped { .. })));
    }
    assert!(matches!(divided.put("c1", "1"), Err(trine::Error::Dropped { .. })));
    let again = db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("made");
    assert!(again.is_empty().expect("no fault"));
}

/// Threads put, delete ranges and drop partitions at once. The items left are those that no later write
/// removed, and each batch is there whole or not at all.
#[test]
fn batches_are_whole_while_partitions_come_and_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path().join("data")).expect("opens");
    let keyspace = db.ordered("divided").partition_by(Partitioning::prefix(1)).open().expect("made");
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let (db, keyspace) = (&db, &keyspace);
            scope.spawn(move || {
                for round in 0..200u32 {
                    let mut batch = db.batch();
                    batch.delete_range(keyspace, ..).expect("no fault");
                    for first in 0..4u8 {
                        batch.put(keyspace, [first, thread], round.to_be_bytes()).expect("no fault");
                    }
                    batch.commit().expect("no fault");
                    if round % 8 == u32::from(thread) {
                        let names = keyspace.partitions().expect("no fault");
                        keyspace.drop_partitions(names).expect("no fault");
                    }
                }
            });
        }
        for _ in 0..200 {
            let found = keyspace.iter().collect::<trine::Result<Vec<_>>>().expect("no fault");
            let values: std::collections::BTreeSet<&[u8]> = found.iter().map(|(_, value)| &**value).collect();
            assert!(matches!(found.len(), 0 | 4) && values.len() <= 1, "{found:?}");
        }
    });
}

/// The copies made by salvage and by checkpoint have the same partitioning rule and the same partitions.
/// Dropped partitions stay dropped, also if their items are still in the log.
#[test]
fn copies_have_the_rule() {
    let world = World::new(5);
    let db = world.builder().open().expect("opens");
    for (number, division) in DIVISIONS.into_iter().enumerate() {
        let keyspace = division.open_as(&db, &format!("divided {number}"));
        for key in 0..64u8 {
            keyspace.put([key / 16, key / 4 % 4, key % 4], value(key)).expect("no fault");
            if key == 40 {
                db.flush().expect("no fault");
            }
        }
        assert!(keyspace.drop_partition(division.name(&[1, 2, 3])).expect("no fault"));
    }
    db.checkpoint("copy").expect("no fault");
    db.sync().expect("no fault");
    let (crashed, target) = (world.crash(Crash::Process, 6), World::new(7));
    let salvaged = crashed.salvage(&target).expect("salvages");
    assert!(salvaged.doubtful.is_empty() && salvaged.report.findings.is_empty(), "{salvaged:?}");
    for copy in [world.beside("copy"), target, crashed] {
        let copy = copy.builder().open().expect("opens");
        assert!(copy.verify(|_| {}).expect("no fault").findings.is_empty());
        for (number, division) in DIVISIONS.into_iter().enumerate() {
            let name = format!("divided {number}");
            let (found, original) = (division.open_as(&copy, &name), division.open_as(&db, &name));
            assert_eq!(found.partitions().expect("no fault"), original.partitions().expect("no fault"));
            let all = original.iter().map(|item| item.expect("no fault"));
            let model: Model = all.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert!(model.len() < 64 && !model.contains_key(&[1, 2, 3][..]));
            check(&found, &model);
            let other = copy.ordered(&name).partition_by(Partitioning::prefix(2)).open();
            assert!(matches!(other, Err(trine::Error::Mismatch { .. })));
            found.put([1, 2, 3], "again").expect("no fault");
            assert_eq!(found.range([1, 2, 3].as_slice()..=&[1, 2, 3]).count(), 1);
        }
    }
}
