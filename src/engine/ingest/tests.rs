//! Ingests alone: their place in the tree, their cleanup after a failure, and their state after a crash.
//! Ingests beside other work are in the engine's own tests.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::*;
use crate::base::id::FileKind;
use crate::base::step::Direction;
use crate::base::sync::Mutex;
use crate::engine::Until;
use crate::engine::publish::snapshot::Point;
use crate::engine::tests::crash::assert_no_orphans;
use crate::engine::tests::model::Known;
use crate::engine::tests::recorder::Recorder;
use crate::engine::tests::run::open;
use crate::io::sim::{Crash, Failure, FaultPlan, Operation, Repeat, Select, SimDisk, SimThreads};
use crate::io::storage::{DirectoryEntry, Storage};
use crate::read::scan::ScanMachine;
use crate::write::batch::BatchItems;
use crate::write::hold::Hold;

const MEMORY_BYTES: u64 = 256 << 10;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn seen(store: &Store, keyspace: &KeyspaceState, point: &Point) -> Map {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut scan = ScanMachine::new(point.sight(keyspace.tree), all, Direction::Forward);
    let mut map = Map::new();
    while store.advance(point, &mut scan).expect("it can be read") {
        map.insert(scan.key().to_vec(), scan.value().to_vec());
    }
    map
}

fn contents(store: &Store) -> Map {
    seen(store, &store.keyspace("a").expect("it is there"), &store.point())
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

/// Writes items as one batch; `None` deletes.
fn write(
    store: &Store,
    keyspace: &KeyspaceState,
    items: &[(u32, Option<&[u8]>)],
    until: Until,
) -> Result<()> {
    let mut batch = BatchItems::default();
    for (number, value) in items {
        let kind = if value.is_some() { ItemKind::Put } else { ItemKind::Delete };
        batch.push(keyspace.tree, kind, &key(*number), value.unwrap_or_default())?;
    }
    store.write(&batch, Some(until))
}

/// Ingests the same value under each of the keys.
fn ingest(store: &Arc<Store>, keys: impl Iterator<Item = u32>, value: &[u8]) -> Result<()> {
    let keyspace = store.keyspace("a")?;
    let mut ingest = IngestWriter::begin(store, &keyspace)?;
    for number in keys {
        ingest.put(&key(number), value)?;
    }
    ingest.finish()
}

/// Number of tables in each run of each level.
fn shape_of(store: &Store) -> Vec<Vec<usize>> {
    let tree = store.keyspace("a").expect("it is there").tree;
    let pin = store.epoch.pin();
    let tree = store.views.load(&pin).get().version.tree(tree).expect("it is there");
    tree.levels().iter().map(|runs| runs.iter().map(|run| run.tables().len()).collect()).collect()
}

fn tables_on(disk: &SimDisk) -> usize {
    let entries = disk.fork().list().expect("nothing fails");
    entries
        .iter()
        .filter(|one| matches!(one, DirectoryEntry::Ours(file) if file.kind == FileKind::Table))
        .count()
}

/// An ingest into an empty keyspace makes one run of level 1, of tables that grow with the run. Nothing is
/// flushed, logged or merged, and each byte is written about once. The run is there after a power cut.
#[test]
fn an_empty_keyspace_is_written_once() {
    let disk = SimDisk::new(1);
    let (store, threads) = open(&disk, None, 1, MEMORY_BYTES).expect("nothing fails");
    store.open_keyspace("a", &[]).expect("nothing fails");
    ingest(&store, 0..20_000, &[7; 50]).expect("nothing fails");
    let shape = shape_of(&store);
    assert!(shape.len() == 2 && shape[0].is_empty() && shape[1].len() == 1, "{shape:?}");
    assert!((6..60).contains(&shape[1][0]), "{shape:?}");
    store.settle().expect("nothing fails");
    threads.run_until_idle();
    assert_eq!(shape_of(&store), shape);
    let (write, background) = (store.stats().write, store.stats().background);
    assert_eq!((write.log_bytes, write.flush_bytes, write.merge_write_bytes), (0, 0, 0));
    assert_eq!((background.ingests, background.merges), (1, 0));
    let key_value_bytes = 20_000 * 55;
    assert!((key_value_bytes..key_value_bytes * 5 / 4).contains(&write.ingest_bytes), "{write:?}");
    store.compact().expect("nothing fails");
    assert_eq!(contents(&store).len(), 20_000);
    let after = disk.fork();
    after.crash(Crash::Power, 3);
    let (again, _threads) = open(&after, None, 1, MEMORY_BYTES).expect("it opens");
    assert_eq!((shape_of(&again), contents(&again)), (shape, contents(&store)));
    [again, store].iter().for_each(|store| store.close().expect("nothing fails"));
}

/// Earlier writes, in memory and in tables, deletes of ranges too, are older than the ingest. Later writes
/// are newer, and snapshots do not see the ingest. The same holds after merges, and when the store is opened
/// again.
#[test]
fn an_ingest_is_newer_than_earlier_writes() {
    let disk = SimDisk::new(2);
    let (store, _threads) = open(&disk, None, 2, MEMORY_BYTES).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    let items: Vec<_> = (0..100).map(|number| (number, Some(&b"old"[..]))).collect();
    write(&store, &keyspace, &items, Until::Written).expect("nothing fails");
    store.flush().expect("nothing fails");
    let mut range = BatchItems::default();
    range.push(keyspace.tree, ItemKind::DeleteRange, &key(20), &key(60)).expect("within limits");
    store.write(&range, None).expect("nothing fails");
    let before = store.snapshot_point();
    let seen_before = seen(&store, &keyspace, &before);
    ingest(&store, (30..200).step_by(2), b"new").expect("nothing fails");
    assert_eq!(seen(&store, &keyspace, &before), seen_before);
    write(&store, &keyspace, &[(40, Some(b"newer")), (42, None)], Until::Written).expect("nothing fails");
    let mut expected = seen_before;
    expected.extend((30..200).step_by(2).map(|number| (key(number), b"new".to_vec())));
    expected.insert(key(40), b"newer".to_vec());
    expected.remove(&key(42));
    assert_eq!(contents(&store), expected);
    let after = disk.fork();
    after.crash(Crash::Process, 3);
    store.compact().expect("nothing fails");
    assert_eq!((contents(&store), shape_of(&store)[1].as_slice()), (expected.clone(), &[1][..]));
    store.close().expect("nothing fails");
    let (again, _threads) = open(&after, None, 1, MEMORY_BYTES).expect("it opens");
    assert_eq!(contents(&again), expected);
    again.close().expect("nothing fails");
}

/// Tables between those of the last level join it by the edit alone, without a flush or a merge. Items in
/// memory, elsewhere in this keyspace or in other keyspaces, make no difference.
#[test]
fn gaps_of_the_last_level_are_filled() {
    let (store, threads) = open(&SimDisk::new(3), None, 3, MEMORY_BYTES).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    let other = store.open_keyspace("b", &[]).expect("nothing fails");
    for from in [0, 5000, 2000] {
        write(&store, &keyspace, &[(from + 1500, Some(b"apart"))], Until::Written).expect("nothing fails");
        write(&store, &other, &[(from + 10, Some(b"apart"))], Until::Written).expect("nothing fails");
        ingest(&store, from..from + 1000, &[7; 50]).expect("nothing fails");
    }
    store.settle().expect("nothing fails");
    threads.run_until_idle();
    let shape = shape_of(&store);
    assert!(shape.len() == 2 && shape[0].is_empty() && shape[1].len() == 1, "{shape:?}");
    let background = store.stats().background;
    assert_eq!((background.ingests, background.flushes, background.merges), (3, 0, 0));
    store.close().expect("nothing fails");
}

/// A key that does not come after the key before ends the ingest, which leaves neither item nor file; so does
/// dropping the ingest. An item that is too large is refused alone.
#[test]
fn unsorted_ingests_leave_nothing() {
    let disk = SimDisk::new(4);
    let (store, _threads) = open(&disk, None, 4, MEMORY_BYTES).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    for wrong in [4999, 17] {
        let mut ingest = IngestWriter::begin(&store, &keyspace).expect("nothing fails");
        (0..5000).for_each(|number| ingest.put(&key(number), &[7; 50]).expect("ascending"));
        assert!(tables_on(&disk) > 1);
        let error = ingest.put(&key(wrong), b"").expect_err("it is not ascending");
        let Error::NotAscending { items, key: given, before } = &error else { panic!("{error}") };
        assert_eq!((*items, given, before), (5000, &key(wrong), &key(4999)));
        assert_eq!(tables_on(&disk), 0);
        assert!(matches!(ingest.put(&key(6000), b""), Err(Error::NotAscending { .. })));
        assert!(matches!(ingest.finish(), Err(Error::NotAscending { .. })));
    }
    let mut ingest = IngestWriter::begin(&store, &keyspace).expect("nothing fails");
    (0..5000).for_each(|number| ingest.put(&key(number), &[7; 50]).expect("ascending"));
    assert!(tables_on(&disk) > 1 && store.stats().memory.used_bytes <= MEMORY_BYTES + (64 << 10));
    drop(ingest);
    assert!(contents(&store).is_empty() && tables_on(&disk) == 0);
    let mut ingest = IngestWriter::begin(&store, &keyspace).expect("nothing fails");
    assert!(matches!(ingest.put(&[0; 70_000], b""), Err(Error::TooLarge { what: "key", .. })));
    assert!(matches!(ingest.put(b"a", &vec![0; 2 << 20]), Err(Error::TooLarge { what: "value", .. })));
    ingest.put(b"", b"").expect("an empty key comes first");
    ingest.put(b"a", &vec![0; 1 << 20]).expect("within limits");
    ingest.finish().expect("nothing fails");
    assert_eq!(contents(&store).len(), 2);
    IngestWriter::begin(&store, &keyspace).and_then(IngestWriter::finish).expect("none is no error");
    assert_eq!(store.stats().background.ingests, 1);
    store.close().expect("nothing fails");
}

/// An ingest into a keyspace that is dropped, or a store that is closed meanwhile, returns that error; the
/// store that is opened next has nothing of it.
#[test]
fn drops_and_closes_end_it() {
    let disk = SimDisk::new(5);
    let (store, _threads) = open(&disk, None, 5, MEMORY_BYTES).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    let fill = || {
        let mut ingest = IngestWriter::begin(&store, &keyspace).expect("nothing fails");
        (0..5000).for_each(|number| ingest.put(&key(number), &[7; 50]).expect("ascending"));
        ingest
    };
    let dropped = fill();
    let mut closed = fill();
    store.drop_keyspace("a").expect("nothing fails");
    assert!(matches!(dropped.finish(), Err(Error::Dropped { .. })));
    assert!(matches!(IngestWriter::begin(&store, &keyspace), Err(Error::Dropped { .. })));
    store.close().expect("nothing fails");
    let left = tables_on(&disk);
    assert!(left > 0 && (0..1000).any(|number| closed.put(&key(6000 + number), &[7; 50]).is_err()));
    assert!(matches!(closed.finish(), Err(Error::Closed)));
    assert_eq!(tables_on(&disk), left);
    let (again, _threads) = open(&disk, None, 5, MEMORY_BYTES).expect("it opens");
    assert_eq!(tables_on(&disk), 0);
    again.close().expect("nothing fails");
}

/// Two ingests at a time both succeed, with less memory for each. Merges of the tree go on after them.
#[test]
fn ingests_take_turns() {
    let (store, _threads) = open(&SimDisk::new(6), None, 6, 32 << 20).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    let mut both = [0, 1].map(|_| IngestWriter::begin(&store, &keyspace).expect("nothing fails"));
    for number in 0..3000 {
        for (half, ingest) in both.iter_mut().enumerate() {
            ingest.put(&key(2 * number + half as u32), b"value").expect("ascending");
        }
    }
    let memory = store.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
    assert!(both[1].memory_bytes() < both[0].memory_bytes());
    both.into_iter().for_each(|ingest| ingest.finish().expect("nothing fails"));
    assert_eq!(
        store.stats().memory.roles.iter().find(|role| role.name == "merges").map(|one| one.bytes),
        Some(0)
    );
    assert_eq!((shape_of(&store), contents(&store).len()), (vec![vec![], vec![1, 1]], 6000));
    store.settle().expect("nothing fails");
    assert_eq!((shape_of(&store), contents(&store).len()), (vec![vec![], vec![1]], 6000));
    store.close().expect("nothing fails");
}

/// Ingests over each other and over items in memory, without end: merges keep the number of runs bounded.
#[test]
fn runs_stay_few_however_much_is_ingested() {
    let (store, _threads) = open(&SimDisk::new(7), None, 7, MEMORY_BYTES).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    let mut runs_max = 0;
    for round in 0..200u32 {
        let value = round.to_le_bytes();
        write(&store, &keyspace, &[(round % 50, Some(&value))], Until::Written).expect("nothing fails");
        ingest(&store, (0..60).step_by(1 + round as usize % 3), &value).expect("nothing fails");
        runs_max = runs_max.max(shape_of(&store).iter().map(Vec::len).sum::<usize>());
    }
    assert!(runs_max <= 70, "{runs_max} runs");
    assert!(contents(&store).values().all(|value| value[0] >= 195));
    store.close().expect("nothing fails");
}

/// Writers go on while an ingest has memory flushed the first time. Their writes between its keys, until the
/// ingest holds the lead, are older than the ingest, and flushed too.
#[test]
fn writers_go_on_while_memory_is_flushed() {
    let (store, threads) = open(&SimDisk::new(12), None, 12, MEMORY_BYTES).expect("nothing fails");
    threads.run_until_idle();
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    write(&store, &keyspace, &[(10, Some(b"old"))], Until::Written).expect("nothing fails");
    let mut ingest = IngestWriter::begin(&store, &keyspace).expect("nothing fails");
    (0..20).for_each(|number| ingest.put(&key(number), b"new").expect("ascending"));
    let tables = ingest.complete().expect("nothing fails");
    let mut publish = Publish::new(&store, ingest.targets(), tables);
    let (mut waits_count, mut has_written) = (0, false);
    loop {
        match publish.turn().expect("nothing fails") {
            PublishStep::Done => break,
            PublishStep::Again => continue,
            PublishStep::Wait => waits_count += 1,
        }
        // The ingest holds the lead while the first log of the next generation is made.
        let is_lead_free = Hold::start(&store.writer).expect("not latched").poll();
        if is_lead_free && !has_written {
            has_written = true;
            write(&store, &keyspace, &[(11, Some(b"old")), (30, Some(b"apart"))], Until::Synced)
                .expect("nothing fails");
        }
        let (event, seen) = publish.waits_for();
        store.env.threads.wait(event, seen, None);
    }
    ingest.published();
    drop(publish);
    assert!(has_written && waits_count > 1 && store.stats().background.flushes == 2);
    let expected = (0..20).map(|number| (key(number), b"new".to_vec()));
    let expected: Map = expected.chain([(key(30), b"apart".to_vec())]).collect();
    assert_eq!(contents(&store), expected);
    store.close().expect("nothing fails");
}

/// A store with items in tables and in memory, some of them not synced, and its contents.
fn setting(disk: &Arc<SimDisk>, over: Option<Arc<dyn Storage>>) -> (Arc<Store>, Arc<SimThreads>, Map) {
    let (store, threads) = open(disk, over, 9, MEMORY_BYTES).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    for from in [0, 3] {
        let items: Vec<_> = (from..90).step_by(2).map(|number| (number, Some(&b"old"[..]))).collect();
        write(&store, &keyspace, &items, Until::Written).expect("nothing fails");
        store.flush().expect("nothing fails");
    }
    write(&store, &keyspace, &[(50, Some(b"synced")), (51, None)], Until::Synced).expect("nothing fails");
    write(&store, &keyspace, &[(52, Some(b"buffered")), (200, Some(b"far"))], Until::Written)
        .expect("nothing fails");
    let map = contents(&store);
    (store, threads, map)
}

fn with_ingested(before: &Map) -> Map {
    let mut after = before.clone();
    after.extend((40..2000).map(|number| (key(number), vec![7; 50])));
    after
}

/// An ingest that is stopped at any call, by a crash or a power cut, is there whole or not at all. It is
/// never there without the earlier writes, and no file is left over.
#[test]
fn a_crash_leaves_all_or_none() {
    let disk = SimDisk::new(8);
    let recorder = Recorder::new(&disk, &Arc::new(Mutex::new(Known::default())));
    let (store, _threads, before) = setting(&disk, Some(recorder.clone()));
    recorder.take();
    ingest(&store, 40..2000, &[7; 50]).expect("nothing fails");
    let moments = recorder.take();
    let after = with_ingested(&before);
    let mut unsynced = before.clone();
    unsynced.remove(&key(200));
    unsynced.insert(key(52), b"old".to_vec());
    let mut found = [0; 3];
    for moment in &moments {
        for seed in 0..6 {
            let crash = if seed == 0 { Crash::Process } else { Crash::Power };
            let disk = moment.disk.fork();
            disk.crash(crash, seed);
            let (store, threads) = open(&disk, None, seed, MEMORY_BYTES).expect("it opens");
            let now = contents(&store);
            let which = [&before, &after, &unsynced].into_iter().position(|one| *one == now);
            let which = which.unwrap_or_else(|| panic!("{}: it holds something else", moment.what));
            assert!(which != 2 || crash == Crash::Power, "{}: acknowledged writes are gone", moment.what);
            found[which] += 1;
            store.settle().expect("nothing fails");
            threads.run_until_idle();
            assert_no_orphans(&disk, &store);
            store.close().expect("nothing fails");
        }
    }
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
    disk.crash(Crash::Power, 1);
    assert_eq!(contents(&store), after);
}

/// An ingest that fails because one call fails, at any call, leaves neither item nor file. No acknowledged
/// write is lost. Unless log, manifest or directory failed, the next ingest succeeds.
#[test]
fn failed_calls_leave_nothing() {
    let of = |operation| Select { operation: Some(operation), kind: None };
    let (mut failed_count, mut latched_count) = (0, 0);
    for (select, failure) in [
        (of(Operation::Write), Failure::Full),
        (of(Operation::Create), Failure::Full),
        (Select { operation: None, kind: Some(FileKind::Table) }, Failure::Io),
        (of(Operation::Sync), Failure::Io),
        (of(Operation::SyncDirectory), Failure::Io),
    ] {
        for index in 0.. {
            let disk = SimDisk::new(10 + index);
            let (store, threads, before) = setting(&disk, None);
            disk.plan(FaultPlan::fail(select, index, failure, Repeat::Once));
            disk.start_log();
            let ingested = ingest(&store, 40..2000, &[7; 50]);
            let has_failed = disk.log().iter().any(|call| call.outcome == "failed");
            disk.plan(FaultPlan::default());
            let after = with_ingested(&before);
            let is_latched = store.writer.latched().is_some();
            let expected = if ingested.is_ok() { &after } else { &before };
            assert_eq!(contents(&store), *expected);
            latched_count += u64::from(is_latched);
            failed_count += u64::from(ingested.is_err());
            if let Err(error) = &ingested {
                let is_full = matches!(error, Error::Full { .. });
                assert!(is_full == (failure == Failure::Full) || is_latched, "{error}");
                assert!(!is_latched || failure != Failure::Full, "{error}");
            }
            if !is_latched {
                store.settle().expect("it goes on");
                ingest(&store, 40..2000, &[7; 50]).expect("it goes on");
                assert_eq!(contents(&store), after);
                store.flush().expect("it goes on");
                store.settle().expect("it goes on");
                threads.run_until_idle();
                let named = store.catalog.take(&*store.env.threads).state.tables.len();
                assert_eq!(tables_on(&disk), named, "tables that nothing names");
            }
            // The failure may be reported again, and was seen above.
            let _ = store.close();
            let next = disk.fork();
            next.crash(Crash::Process, 0);
            let (again, _threads) = open(&next, None, 1, MEMORY_BYTES).expect("it opens");
            let now = contents(&again);
            assert!(now == after || (is_latched && now == before), "a part of an ingest");
            assert_no_orphans(&next, &again);
            again.close().expect("nothing fails");
            if !has_failed {
                break;
            }
        }
    }
    assert!(failed_count > 20 && latched_count > 0, "{failed_count} failed, {latched_count} latched");
}

/// A waiter for the lead that gives up takes no other waiter's turn, and a holder gives the lead back.
#[test]
fn the_lead_goes_on() {
    let (store, _threads) = open(&SimDisk::new(11), None, 11, MEMORY_BYTES).expect("nothing fails");
    let keyspace = store.open_keyspace("a", &[]).expect("nothing fails");
    let mut first = Hold::start(&store.writer).expect("not latched");
    assert!(first.poll() && first.waits_for().is_none());
    let mut second = Hold::start(&store.writer).expect("not latched");
    let third = Hold::start(&store.writer).expect("not latched");
    assert!(!second.poll() && second.waits_for().is_some());
    drop(second);
    drop(first);
    let mut third = third;
    assert!(third.poll());
    let fourth = Hold::start(&store.writer).expect("not latched");
    drop(third);
    drop(fourth);
    write(&store, &keyspace, &[(1, Some(b"1"))], Until::Synced).expect("nothing fails");
    assert_eq!(contents(&store).len(), 1);
    store.close().expect("nothing fails");
}
