//! The scheduler after crashes at every call, with torn tails and with damaged bytes.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeMap;

use crate::base::error::Error;
use crate::base::id::FileName;
use crate::base::sync::Arc;
use crate::io::sim::{Crash, FaultPlan, SimDisk, SimRng, Stop};

use super::store::LOG;
use super::tests::{BLOCK_ITEMS, Model, VALUE_BYTES, contents, files, key, logs, open, small, write_step};
use super::{L0IndexKind, PartitionSchedulerOptions};

/// Returns the states after each operation, from the last state known to be durable on.
fn run_to_the_stop(disk: &Arc<SimDisk>, options: &PartitionSchedulerOptions) -> Vec<Model> {
    let mut rng = SimRng::new(3);
    let mut model = Model::new();
    let mut states = vec![model.clone()];
    let Ok(mut store) = open(disk, 3, options) else { return states };
    let create = |model: &mut Model, first: u32, count: u32| {
        (first..first + count).for_each(|id| drop(model.insert(id, BTreeMap::new())));
    };
    for number in 0..200u64 {
        let before = model.clone();
        let done = match number {
            0 => store.create_partitions(3).map(drop).inspect(|()| create(&mut model, 1, 3)),
            70 => store.drop_partition(2).inspect(|()| drop(model.remove(&2))),
            100 => store.create_partitions(1).map(drop).inspect(|()| create(&mut model, 4, 1)),
            _ => write_step(&mut store, &mut model, &mut rng, 40),
        };
        if done.is_err() {
            // A failed edit may be durable or not, so both states are possible.
            match number {
                0 => create(&mut model, 1, 3),
                70 => drop(model.remove(&2)),
                100 => create(&mut model, 4, 1),
                _ => {}
            }
            states.push(model);
            return states;
        }
        if model != before {
            states.push(model.clone());
        }
        if number % 9 == 0 || number == 70 || number == 100 {
            if store.sync().is_err() {
                return states;
            }
            states.drain(..states.len() - 1);
        }
    }
    let Ok(found) = store.stats() else { return states };
    assert!(found.compactions > 2 && found.short_blocks > 2 && found.blocks > found.short_blocks);
    states
}

/// Wherever the process or the power ends, the state is that of a moment at or after the last sync. Leftovers
/// of the crash are removed, and the state stays.
#[test]
fn crashes_lose_only_unsynced_writes() {
    for l0_index in [L0IndexKind::Memory, L0IndexKind::Persistent] {
        let options = PartitionSchedulerOptions {
            memtable_bytes: 5_000,
            datatable_blocks: 1,
            l0_datatables: 2,
            leftover_percent: 100,
            file_bytes: 20_000,
            l0_index,
            ..small()
        };
        let whole = SimDisk::new(3);
        run_to_the_stop(&whole, &options);
        let calls = whole.calls();
        assert!(calls > 150, "{calls} calls");
        for index in 0..calls {
            for stop in [Stop::Before, Stop::Amid] {
                let disk = SimDisk::new(3);
                disk.plan(FaultPlan::stop(stop, index));
                let possible = run_to_the_stop(&disk, &options);
                for crash in [Crash::Process, Crash::Power] {
                    let after = disk.fork();
                    after.crash(crash, index ^ 77);
                    let store = open(&after, 9, &options)
                        .unwrap_or_else(|error| panic!("call {index} {stop:?} {crash:?}: {error}"));
                    let found = contents(&store).unwrap();
                    assert!(possible.contains(&found), "call {index} {stop:?} {crash:?}");
                    drop(store);
                    after.crash(Crash::Power, index);
                    let store = open(&after, 10, &options).unwrap();
                    assert!(contents(&store).unwrap() == found, "call {index} {stop:?} {crash:?}, again");
                }
            }
        }
    }
}

/// Two disks with the same items: in the log only, and also in level 0 by one run and its edit.
fn before_and_after_a_schedule() -> (Arc<SimDisk>, Arc<SimDisk>, Model) {
    let disk = SimDisk::new(1);
    let mut store = open(&disk, 1, &small()).unwrap();
    store.create_partitions(2).unwrap();
    for number in 0..BLOCK_ITEMS as u64 * 2 + 3 {
        store.put(1 + (number % 2) as u32, &key(number), &[number as u8; VALUE_BYTES]).unwrap();
    }
    store.schedule().unwrap();
    for number in 0..BLOCK_ITEMS as u64 * 2 {
        store.put(1, &key(number), &[100 + number as u8; VALUE_BYTES]).unwrap();
    }
    store.sync().unwrap();
    let model = contents(&store).unwrap();
    let before = disk.fork();
    store.schedule().unwrap();
    (before, disk, model)
}

/// The file that matches `is_it` and is longer in the second disk, with both contents.
fn grown(before: &SimDisk, after: &SimDisk, is_it: impl Fn(u64) -> bool) -> (FileName, Vec<u8>, Vec<u8>) {
    let found = files(before).into_iter().filter(|file| is_it(file.number)).find_map(|file| {
        let (old, new) = (before.contents(file)?, after.contents(file)?);
        (old.len() < new.len()).then_some((file, old, new))
    });
    found.unwrap()
}

/// Blocks torn at any page or byte before their edit, and an edit torn at any byte, have no effect: the log
/// has the items.
#[test]
fn torn_runs_and_torn_edits_are_dropped() {
    let (before, after, model) = before_and_after_a_schedule();
    let is_manifest = |number: u64| number & 1 << 62 != 0;
    let (manifest, old_manifest, new_manifest) = grown(&before, &after, is_manifest);
    let (l0, old_l0, new_l0) = grown(&before, &after, |number| number < LOG);
    let check = |l0_bytes: &[u8], manifest_bytes: &[u8]| {
        let disk = before.fork();
        disk.crash(Crash::Process, 1);
        disk.set_contents(l0, Some(l0_bytes));
        disk.set_contents(manifest, Some(manifest_bytes));
        contents(&open(&disk, 2, &small())?)
    };
    for at in (old_l0.len()..=new_l0.len()).step_by(97).chain([new_l0.len()]) {
        assert!(check(&new_l0[..at], &old_manifest).unwrap() == model, "level 0 is cut at {at}");
        let mut garbage = new_l0[..at].to_vec();
        garbage.resize(new_l0.len(), 0xa5);
        assert!(check(&garbage, &old_manifest).unwrap() == model, "level 0 is garbage from {at} on");
    }
    for at in old_manifest.len()..new_manifest.len() {
        assert!(check(&new_l0, &new_manifest[..at]).unwrap() == model, "the edit is cut at {at}");
    }
    assert!(check(&new_l0, &new_manifest).unwrap() == model);
    let torn = check(&new_l0[..new_l0.len() - 1], &new_manifest);
    assert!(matches!(torn, Err(Error::Corrupt(_))), "an edit counts on durable blocks");
}

/// The newest log, cut at any byte, keeps the writes before the cut.
#[test]
fn a_torn_log_ends_at_its_last_whole_item() {
    let disk = SimDisk::new(1);
    let options = PartitionSchedulerOptions { value_bytes: 5, ..small() };
    let mut store = open(&disk, 1, &options).unwrap();
    store.create_partitions(1).unwrap();
    for number in 0..12 {
        store.put(1, &key(number), &[number as u8; 5]).unwrap();
    }
    store.close().unwrap();
    let log = *logs(&disk).last().unwrap();
    let good = disk.contents(log).unwrap();
    let (item_bytes, start) = (8 + 4 + 1 + 4 + 5, 4096 + 8 + 8);
    assert_eq!(good.len(), start + 12 * item_bytes);
    for at in 0..=good.len() {
        let cut = disk.fork();
        cut.set_contents(log, Some(&good[..at]));
        let store = open(&cut, 2, &options).unwrap();
        let whole = at.saturating_sub(start) / item_bytes;
        let found = contents(&store).unwrap();
        assert_eq!(found[&1].len(), whole, "cut at {at}");
        assert!(found[&1].keys().eq((0..whole as u64).map(key).collect::<Vec<_>>().iter()));
    }
}

/// A flipped bit of any file is an error or changes nothing, missing files are errors, and nothing panics.
#[test]
fn damage_is_an_error() {
    let (_, disk, model) = before_and_after_a_schedule();
    disk.crash(Crash::Process, 1);
    let verdict = |disk: &Arc<SimDisk>| contents(&open(disk, 5, &small())?);
    assert!(verdict(&disk.fork()).unwrap() == model);
    let newest_log = logs(&disk).into_iter().max();
    for file in files(&disk) {
        let bytes = disk.contents(file).unwrap();
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(211).chain(0..60).chain(4096..bytes.len().min(4150)) {
            let damaged = disk.fork();
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            damaged.set_contents(file, Some(&changed));
            match verdict(&damaged) {
                Err(Error::Corrupt(_) | Error::Unsupported { .. }) => refused += 1,
                Err(other) => panic!("{file} byte {at}: {other}"),
                Ok(found) => assert!(found == model, "{file} byte {at}"),
            }
        }
        assert!(refused > 30 || Some(file) == newest_log, "{file}: {refused}");
        if Some(file) != newest_log {
            let damaged = disk.fork();
            damaged.set_contents(file, None);
            assert!(matches!(verdict(&damaged), Err(Error::Corrupt(_))), "{file}");
        }
    }
}
