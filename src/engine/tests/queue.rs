//! Reads in flight that fail, or whose reader is dropped, in the simulated completion queue. They end in any
//! order; one ring in four is refused.

use std::collections::BTreeMap;

use crate::base::error::{Error, Result};
use crate::base::id::FileKind;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::io::sim::{Crash, Failure, FaultPlan, Operation, Repeat, Select, SimDisk};
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;

use super::super::Store;
use super::crash::{scan_of, seeds};
use super::play::{Played, Script, Stage};
use super::run::open_in;
use super::scenario::named;

type Items = BTreeMap<Vec<u8>, Vec<u8>>;

/// The first items of keyspace `a`, by a scan that is then dropped with its read-ahead.
fn scanned(store: &Store, most: usize, direction: Direction) -> Result<Items> {
    let (keyspace, point) = (store.keyspace("a")?, store.point());
    let (mut scan, mut items) = (scan_of(&keyspace, &point, direction), Items::new());
    while items.len() < most && store.advance(&point, &mut scan)? {
        items.insert(scan.key().to_vec(), scan.value().to_vec());
    }
    Ok(items)
}

/// Gets all keys of `items` and as many absent keys, in batches.
fn got(store: &Store, items: &Items) -> Result<()> {
    let absent = items.keys().map(|key| [&key[..], b"/"].concat());
    let keys: Vec<Vec<u8>> = items.keys().cloned().chain(absent).collect();
    store.multi_get(&*store.keyspace("a")?, &keys, None, |number, value| {
        assert_eq!(value, items.get(&keys[number]).map(Vec::as_slice), "a key has another's value");
    })
}

/// Gets the same keys one by one: a failed get leaves nothing in flight.
fn got_alone(store: &Store, items: &Items) -> Result<()> {
    let keyspace = store.keyspace("a")?;
    let absent = items.keys().map(|key| [&key[..], b"/"].concat());
    let keys: Vec<Vec<u8>> = items.keys().cloned().chain(absent).collect();
    let get = |key: &Vec<u8>| {
        let found = store.get(&keyspace, (key, GetMode::Value), None, &mut NoTrace, |value| {
            assert_eq!(value, items.get(key).map(Vec::as_slice), "a key has another's value");
        });
        assert_eq!((store.cache.stats().in_flight, store.blocks.load.awaited()), (0, 0));
        found
    };
    // Later keys are read even if the first ones fail.
    keys.iter().map(get).fold(Ok(()), Result::and)
}

/// Opens the store of a disk, with none of it in memory.
fn cold(disk: &SimDisk, memory_bytes: u64, seed: u64) -> (Arc<SimDisk>, Arc<Store>) {
    let disk = disk.fork();
    disk.crash(Crash::Process, seed);
    let (store, _threads) = open_in(&disk, seed, (memory_bytes, 0), |_| {}).expect("it opens");
    (disk, store)
}

/// Each read that scans and multi-gets have in flight fails, alone and with all later ones. Only the reads
/// that need the block report an error, and no buffer is used twice. Once reads succeed, every item is found.
#[test]
fn f11_reads_in_flight_fail_one_by_one() {
    let (mut runs, mut told) = (0, 0);
    for (seed, name) in seeds(0..6).flat_map(|seed| ["tiered", "packed", "large"].map(|name| (seed, name))) {
        let scenario = named(name).expect("it is one");
        let (script, disk) = (Script::new(scenario, seed), SimDisk::new(seed));
        let Played { process, .. } = Stage::new(&disk, &|_| {}).play(&script);
        let (store, threads) = process.expect("it was opened");
        store.flush().expect("nothing fails");
        let items = scanned(&store, usize::MAX, Direction::Forward).expect("nothing fails");
        store.close().expect("nothing fails");
        disk.kill(|| drop((store, threads)));
        for (index, repeat) in (0..).flat_map(|index| [(index, Repeat::Once), (index, Repeat::Always)]) {
            let (disk, store) = cold(&disk, scenario.memory_bytes, seed + index);
            let reads = Select { operation: Some(Operation::Read), kind: Some(FileKind::Table) };
            disk.start_log();
            disk.plan(FaultPlan::fail(reads, index, Failure::Io, repeat));
            let some = index as usize % 5;
            let all = [
                scanned(&store, some, Direction::Backward)
                    .map(|found| assert_eq!(found.len(), some.min(items.len()))),
                got_alone(&store, &items),
                got(&store, &items),
                scanned(&store, some + 1, Direction::Forward).map(drop),
                scanned(&store, usize::MAX, Direction::Forward).map(|found| assert!(found == items)),
            ];
            let has_failed = disk.log().iter().any(|call| call.outcome == "failed");
            for error in all.into_iter().filter_map(Result::err) {
                let is_named = matches!(&error, Error::Io { file, .. } if file.starts_with("table"));
                assert!(has_failed && is_named, "{error}");
                told += 1;
            }
            disk.plan(FaultPlan::default());
            got_alone(&store, &items).expect("reads succeed");
            got(&store, &items).expect("reads succeed");
            assert!(scanned(&store, usize::MAX, Direction::Forward).expect("reads succeed") == items);
            store.close().expect("nothing fails");
            runs += 1;
            if !has_failed {
                break;
            }
        }
    }
    println!("{runs} runs, {told} errors told");
    assert!(runs > 200 && told > 300, "{runs}, {told}");
}
