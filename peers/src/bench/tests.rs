//! Tests of the driver, with every store of this build and with one that lies.

use std::cell::RefCell;
use std::path::Path;

use trine_workload::distribution::{Chooser, Distribution};
use trine_workload::keys::Permutation;
use trine_workload::mixgraph::Mixgraph;
use trine_workload::numbering::Numbering;
use trine_workload::ycsb::Core;

use super::child::{self, ChildOptions};
use super::drive::{self, Data, Job, Limit, Script};
use super::engines::{
    Asker, Changes, Compacted, Counts, Engine, Executor, Found, Look, Reader, Regime, Sees, Settings, Values,
    contenders,
};
use super::plan::{Group, SHAPE, Stage, VALUE_BYTES};
use super::process::disk_bytes;
use super::{bars, rows};
use crate::engines::{Answer, Until};

const ITEMS: u64 = 3000;

fn settings(until: Until) -> Settings {
    Settings { memory_bytes: 64 << 20, until, regime: Regime::Cached, value_bytes: VALUE_BYTES }
}

fn job<'a>(engine: &'a dyn Engine, script: Script, data: Data) -> Job<'a> {
    Job {
        name: format!("{script:?}"),
        engine,
        chooser: Some(Chooser::new(Distribution::Uniform, data.count.max(1), 1)),
        batch: if script.is_batched() { 100 } else { 1 },
        script,
        data,
        sees: Sees::Latest,
        threads: 2,
        limit: Limit::operations(600),
        seed: 5,
        beside: None,
    }
}

fn data(numbering: Numbering, count: u64, is_dense: bool) -> Data {
    Data { numbering, count, is_dense, value_bytes: VALUE_BYTES }
}

fn load(engine: &dyn Engine, numbering: Numbering) -> drive::Ran {
    let data = data(numbering, 0, false);
    let limit = Limit::operations(u64::MAX);
    let ran = drive::run(&Job { limit, ..job(engine, Script::Load { end: ITEMS }, data) });
    ran.expect("the load ends")
}

/// Every store returns the items put, for every kind of request, through kept views and new ones. Its tables
/// are in the class `tables`.
#[test]
fn stores_answer_right() {
    for contender in contenders() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store");
        let engine = (contender.open)(&path, &settings(Until::Buffered)).expect(contender.name);
        let numbering = Numbering::Random(Permutation::new(ITEMS, 7));
        let ran = load(&*engine, numbering);
        assert_eq!((ran.count, ran.record.operations, ran.record.wrong), (ITEMS, ITEMS, 0));
        engine.settle().expect(contender.name);
        let data = data(numbering, ITEMS, true);
        let reads = [
            Script::Get,
            Script::GetEach,
            Script::GetAbsent,
            Script::MultiGet { keys: 10 },
            Script::Scan { items: 20 },
            Script::ScanOwned { items: 20 },
            Script::All,
        ];
        let flights =
            [Executor::BlockOn, Executor::Tokio].map(|executor| Script::InFlight { executor, depth: 7 });
        let flights = flights.into_iter().filter(|_| contender.has_futures);
        let needs_order = |script: &Script| {
            matches!(
                script,
                Script::Scan { .. } | Script::ScanOwned { .. } | Script::All | Script::Mixgraph(_)
            )
        };
        let can = |script: &Script| contender.has_order || !needs_order(script);
        let reads = reads.into_iter().chain(flights).filter(&can);
        let writes = [
            Script::Rewrite { from: 0, to: ITEMS },
            Script::Overwrite,
            Script::Mixgraph(Mixgraph::new(ITEMS, 1)),
        ];
        for (sees, script) in reads.flat_map(|one| [(Sees::Still, one.clone()), (Sees::Latest, one)]) {
            let ran = drive::run(&Job { sees, ..job(&*engine, script.clone(), data.clone()) });
            let ran = ran.expect(contender.name);
            assert_eq!(ran.record.first_wrong, None, "{} {script:?}", contender.name);
            assert!(ran.record.operations >= 600, "{} {script:?}", contender.name);
        }
        for script in writes.into_iter().filter(&can) {
            let ran = drive::run(&job(&*engine, script.clone(), data.clone())).expect(contender.name);
            assert_eq!(ran.record.first_wrong, None, "{} {script:?}", contender.name);
        }
        engine.settle().expect(contender.name);
        if let Some(peer) = contender.peer() {
            let bytes = disk_bytes(&path, peer.class).expect("the directory is read");
            assert!(bytes.get(contender.tables).is_some_and(|bytes| *bytes > 0), "{bytes:?}");
        }
        engine.close().expect(contender.name);
    }
}

/// Clients that insert and read side by side find the items that they may expect, in every store.
#[test]
fn inserts_are_seen() {
    for contender in contenders() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store");
        let mut engine = (contender.open)(&path, &settings(Until::Buffered)).expect(contender.name);
        load(&*engine, Numbering::Scattered);
        let mut data = data(Numbering::Scattered, ITEMS, false);
        let can = |core: &Core| contender.has_order || !matches!(core, Core::E);
        for core in [Core::A, Core::D, Core::E, Core::F].into_iter().filter(can) {
            let chooser = Some(Chooser::new(core.distribution(), data.count, 1));
            let one = Job { chooser, batch: 1, ..job(&*engine, Script::Ycsb(core), data.clone()) };
            let ran = drive::run(&one).expect(contender.name);
            assert_eq!(ran.record.first_wrong, None, "{} {core:?}", contender.name);
            assert_eq!(ran.count > data.count, matches!(core, Core::D | Core::E), "{core:?}");
            data.count = ran.count;
        }
        if contender.has_order {
            let all = Job { threads: 1, ..job(&*engine, Script::All, data.clone()) };
            let ran = drive::run(&all).expect(contender.name);
            assert_eq!((ran.record.first_wrong, ran.record.operations), (None, data.count));
        }
        let is_made = engine.compact().expect(contender.name) != Compacted::No;
        assert_eq!(is_made, contender.name != "null");
        engine.close().expect(contender.name);
    }
}

/// Synced puts, and a writer beside readers, change no answer of any store.
#[test]
fn writers_change_no_answer() {
    for contender in contenders() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store");
        let engine = (contender.open)(&path, &settings(Until::Synced)).expect(contender.name);
        load(&*engine, Numbering::Sequential);
        let data = data(Numbering::Sequential, ITEMS, true);
        let limit = Limit::operations(20_000);
        let beside = Job { limit, beside: Some(1000), batch: 1, ..job(&*engine, Script::Get, data) };
        let ran = drive::run(&beside).expect(contender.name);
        assert_eq!((ran.record.operations, ran.record.first_wrong), (20_000, None), "{}", contender.name);
        engine.close().expect(contender.name);
    }
}

/// A store that returns another key's value, forgets some keys and finds keys that were never put.
struct Liar;

impl Engine for Liar {
    fn put(&self, _: &[u8], _: &[u8]) -> Answer<()> {
        Ok(())
    }

    fn write(&self, _: &Changes) -> Answer<()> {
        Ok(())
    }

    fn reader(&self, _: Sees) -> Answer<Box<dyn Reader + '_>> {
        Ok(Box::new(Liar))
    }

    fn settle(&self) -> Answer<()> {
        Ok(())
    }

    fn compact(&mut self) -> Answer<Compacted> {
        Ok(Compacted::No)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        None
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}

impl Reader for Liar {
    fn get(&mut self, _: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        SHAPE.value(b"another key", VALUE_BYTES, value);
        Ok(Found::Value)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        keys.iter().for_each(|_| values.push(None));
        Ok(())
    }

    fn in_flight(&mut self, _: Executor, _: u64, asker: &mut dyn Asker) -> Answer<()> {
        let mut key = Vec::new();
        while let Some(asked) = asker.next(&mut key) {
            asker.answer(asked, Found::Value, b"a value of no key");
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], _: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        look(from, b"a value of no key");
        Ok(Some(1))
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.scan(from, items_max, look)
    }

    fn all(&mut self, _: &mut Look<'_>) -> Answer<Option<u64>> {
        Ok(Some(0))
    }
}

/// Every answer of the lying store is counted as wrong.
#[test]
fn lies_are_counted() {
    let data = data(Numbering::Sequential, ITEMS, true);
    let scripts = [
        Script::Get,
        Script::GetAbsent,
        Script::MultiGet { keys: 10 },
        Script::InFlight { executor: Executor::Tokio, depth: 7 },
        Script::Scan { items: 20 },
        Script::All,
    ];
    for script in scripts {
        let is_all = matches!(script, Script::All);
        let ran = drive::run(&job(&Liar, script.clone(), data.clone())).expect("it answers");
        let least = if is_all { 1 } else { ran.record.operations };
        assert!(ran.record.wrong >= least, "{script:?}: {} of {least}", ran.record.wrong);
    }
}

/// A store that cannot be opened returns its own error, and no store is made where a file is.
#[test]
fn faults_are_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    std::fs::write(&path, "a file").expect("it is written");
    for contender in contenders().iter().filter(|one| one.name != "null") {
        let opened = (contender.open)(Path::new(&path), &settings(Until::Buffered));
        assert!(opened.is_err(), "{}", contender.name);
    }
}

/// A store without an order has the rows of loads and gets, and none that needs an order.
#[test]
fn stores_without_an_order_have_loads_and_gets() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let measured = RefCell::new(Vec::new());
    for (group, stage) in
        [(Group::Load, Stage::Load), (Group::Cached, Stage::MakeSmall), (Group::Cached, Stage::Cached)]
    {
        assert!(!group.needs_order());
        let options = ChildOptions {
            store: bars::HASHED.to_owned(),
            group,
            stage,
            directory: directory.path().to_owned(),
            run: 1,
            scale: 0.0,
            seconds: 0.01,
            seed: 1,
            value_bytes: VALUE_BYTES,
            keep: false,
            limited: None,
        };
        let done = child::stage(&options, &|line| {
            measured.borrow_mut().push(line);
            Ok(())
        });
        done.unwrap_or_else(|why| panic!("{stage:?}: {why}"));
    }
    let lines = measured.into_inner();
    for row in [
        rows::LOAD,
        rows::GET,
        rows::GET_TWO,
        rows::GET_FUTURE,
        rows::GET_ABSENT,
        rows::MULTI,
        rows::GET_HALF,
    ] {
        let found = bars::find(&lines, 1, row, bars::HASHED).expect(row);
        assert_eq!(found.first_wrong, None, "{row}");
    }
    for row in [rows::SCAN, rows::RANGE, rows::SEEK, rows::RANGE_HALF] {
        assert!(bars::find(&lines, 1, row, bars::HASHED).is_none(), "{row}");
    }
    assert!(!bars::is_peer(bars::HASHED) && bars::is_peer("rocksdb"));
}

/// Every stage gives its rows without a wrong answer, for Trine and for `null`, except stages that drop the
/// machine's page cache. Stores that no other group reads are gone afterwards.
#[test]
fn stages_give_their_rows() {
    for store in ["trine", "null"] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let measured = RefCell::new(Vec::new());
        for group in Group::all().iter().filter(|group| !matches!(group, Group::Cold | Group::Reopen)) {
            let stages = group
                .value_sizes()
                .into_iter()
                .flat_map(|bytes| group.stages().iter().map(move |stage| (bytes, *stage)));
            for (value_bytes, stage) in stages {
                let options = ChildOptions {
                    store: store.to_owned(),
                    group: *group,
                    stage,
                    directory: directory.path().to_owned(),
                    run: 1,
                    scale: 0.0,
                    seconds: 0.01,
                    seed: 1,
                    value_bytes,
                    keep: false,
                    limited: None,
                };
                let done = child::stage(&options, &|line| {
                    measured.borrow_mut().push(line);
                    Ok(())
                });
                done.unwrap_or_else(|why| panic!("{store}, {stage:?}: {why}"));
            }
        }
        let lines = measured.into_inner();
        for row in rows::all_rows().filter(|row| !row.contains("cold") && *row != rows::REOPEN) {
            let is_half = row.contains("half full") && store == "null";
            let has_groups = rows::KEYSPACES.contains(&row) || rows::partition_rows().any(|one| one == row);
            let is_of_others = has_groups && store == "null";
            let found = bars::find(&lines, 1, row, store);
            assert_eq!(found.is_none(), is_half || is_of_others, "{store}: {row}");
            let wrong = found.and_then(|one| one.first_wrong.clone());
            assert_eq!(wrong, None, "{store}: {row}");
        }
        // Every row that writes has its write amplification, also beside reads; the log alone has each key
        // and value once.
        let writes = [rows::LOAD, rows::OVERWRITE, rows::SYNCED, rows::BESIDE, rows::YCSB_A, rows::YCSB_F];
        for row in writes.iter().chain(&[rows::GET, rows::YCSB_C]).filter(|_| store == "trine") {
            let told = bars::find(&lines, 1, row, store).and_then(|one| one.amplification_with_log);
            assert_eq!(told.is_some_and(|told| told >= 1.0), writes.contains(row), "{row}: {told:?}");
        }
        // Stores with write buffers report the bytes in them, and more of them after a buffer was half
        // filled.
        let held =
            |row| bars::find(&lines, 1, row, store).and_then(|one| one.more.get(rows::BUFFERED_MIB).copied());
        let (settled, half) = (held(rows::GET), held(rows::GET_HALF));
        assert_eq!((settled.is_some(), half.is_some()), (store == "trine", store == "trine"));
        assert!(store != "trine" || half > settled, "{half:?} MiB, {settled:?} settled");
        let left = std::fs::read_dir(directory.path().join(child::STORES).join(store));
        let mut left: Vec<_> =
            left.expect("it is there").map(|entry| entry.expect("a file").file_name()).collect();
        left.sort_unstable();
        let expected: &[&str] = if store == "null" { &["big.made"] } else { &["big", "big.made"] };
        assert_eq!(left, expected);
    }
}
