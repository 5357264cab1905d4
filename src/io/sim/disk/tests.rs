//! Durable, lost and torn state after a crash; the effects of plans; determinism by seed.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use super::*;
use crate::base::error::Error;
use crate::base::id::FileKind;
use crate::io::sim::{
    Crash, DiskCall, FailedSync, Failure, FaultPlan, Operation, Repeat, Select, SimDisk, SimRng, Stop,
    sim_env,
};

const LOG: FileName = FileName { kind: FileKind::Log, number: 7, path: 0 };
const TABLE: FileName = FileName { kind: FileKind::Table, number: 8, path: 0 };
const SEEDS_COUNT: u64 = 200;

/// A disk with a durable directory and a durable, empty log.
fn disk_with_log(seed: u64) -> Arc<SimDisk> {
    let disk = SimDisk::new(seed);
    disk.create_directory().unwrap();
    disk.create(LOG).unwrap();
    disk.sync(LOG).unwrap();
    disk.sync_directory().unwrap();
    disk
}

/// The log after a power cut, for many seeds.
fn after_power_cuts(disk: &SimDisk) -> Vec<Option<Vec<u8>>> {
    let cut = |seed| {
        let after = disk.fork();
        after.crash(Crash::Power, seed);
        after.contents(LOG)
    };
    (0..SEEDS_COUNT).map(cut).collect()
}

/// Asserts that `is_so` holds for some of `all`, and returns their number.
fn some<T>(all: &[T], what: &str, is_so: impl Fn(&T) -> bool) -> usize {
    let count = all.iter().filter(|one| is_so(one)).count();
    assert!(count > 0, "never {what}");
    count
}

/// Synced bytes survive every power cut. An overwrite is lost, kept, cut at any byte, or torn by sectors, and
/// the bytes around it stay.
#[test]
fn overwrites_are_lost_kept_or_torn() {
    let disk = disk_with_log(1);
    disk.write(LOG, 0, &[1; 8192]).unwrap();
    disk.sync(LOG).unwrap();
    disk.write(LOG, 100, &[2; 3000]).unwrap();
    let all: Vec<Vec<u8>> = after_power_cuts(&disk).into_iter().map(Option::unwrap).collect();
    for bytes in &all {
        assert_eq!(bytes.len(), 8192);
        assert!(bytes[..100].iter().chain(&bytes[3100..]).all(|byte| *byte == 1));
        assert!(bytes[100..3100].iter().all(|byte| [1, 2].contains(byte)));
    }
    let new_count = |bytes: &Vec<u8>| bytes.iter().filter(|byte| **byte == 2).count();
    let changes = |bytes: &Vec<u8>| bytes[100..3100].windows(2).filter(|pair| pair[0] != pair[1]).count();
    let is_torn = |bytes: &Vec<u8>| (1..3000).contains(&new_count(bytes));
    some(&all, "lost", |bytes| new_count(bytes) == 0);
    some(&all, "kept", |bytes| new_count(bytes) == 3000);
    some(&all, "cut, its beginning kept", |bytes| is_torn(bytes) && bytes[100] == 2 && bytes[3099] == 1);
    some(&all, "cut, its end kept", |bytes| is_torn(bytes) && bytes[100] == 1 && bytes[3099] == 2);
    some(&all, "torn by sectors", |bytes| changes(bytes) > 1);
    some(&all, "cut inside a sector", |bytes| {
        bytes
            .windows(2)
            .skip(100)
            .take(2999)
            .enumerate()
            .any(|(at, pair)| pair[0] != pair[1] && (at + 101) % 512 != 0)
    });
}

/// Pages are independent: a later write may survive without an earlier one in another page.
#[test]
fn pages_are_independent() {
    let disk = disk_with_log(1);
    disk.write(LOG, 0, &[1; 3 * 4096]).unwrap();
    disk.sync(LOG).unwrap();
    for page in 0..3 {
        disk.write(LOG, page * 4096, &[2; 4096]).unwrap();
    }
    let all: Vec<Vec<u8>> = after_power_cuts(&disk).into_iter().map(Option::unwrap).collect();
    let kept =
        |bytes: &Vec<u8>| [0, 1, 2].map(|page| bytes[page * 4096..][..4096].iter().all(|byte| *byte == 2));
    for pattern in 0..8 {
        let wanted = [0, 1, 2].map(|page| pattern >> page & 1 == 1);
        some(&all, "every pattern of pages kept", |bytes| kept(bytes) == wanted);
    }
}

/// Within a page, writes are applied in order: any prefix of the writes may survive, but no write without
/// those before it.
#[test]
fn writes_within_a_page_keep_their_order() {
    let disk = disk_with_log(1);
    disk.write(LOG, 0, &[0; 4096]).unwrap();
    disk.sync(LOG).unwrap();
    for at in 0..4 {
        disk.write(LOG, at, &[1 + at as u8]).unwrap();
    }
    let all: Vec<Vec<u8>> = after_power_cuts(&disk).into_iter().map(Option::unwrap).collect();
    let kept = |bytes: &Vec<u8>| bytes.iter().take_while(|byte| **byte != 0).count();
    for bytes in &all {
        assert!(bytes[kept(bytes)..].iter().all(|byte| *byte == 0));
    }
    for wanted in 0..=4 {
        some(&all, "every first part", |bytes| kept(bytes) == wanted);
    }
}

/// A file may have grown without its data. The new part then holds zeros, noise or the bytes of a removed
/// file. Bytes that were durable before the growth stay.
#[test]
fn growth_may_come_without_data() {
    let disk = disk_with_log(1);
    disk.create(TABLE).unwrap();
    disk.write(TABLE, 0, &[9; 4096]).unwrap();
    disk.remove(TABLE).unwrap();
    disk.sync_directory().unwrap();
    disk.write(LOG, 0, &[1; 1000]).unwrap();
    disk.sync(LOG).unwrap();
    disk.write(LOG, 1000, &[2; 4000]).unwrap();
    disk.write(LOG, 5000, &[3; 4000]).unwrap();
    let all: Vec<Vec<u8>> = after_power_cuts(&disk).into_iter().map(Option::unwrap).collect();
    for bytes in &all {
        assert!([1000, 5000, 9000].contains(&bytes.len()));
        assert!(bytes[..1000].iter().all(|byte| *byte == 1));
    }
    for length in [1000, 5000, 9000] {
        some(&all, "every length", |bytes| bytes.len() == length);
    }
    let second = |bytes: &Vec<u8>| bytes.get(4096..8192).map(<[u8]>::to_vec);
    some(&all, "zeros", |bytes| second(bytes).is_some_and(|page| page.iter().all(|byte| *byte == 0)));
    some(&all, "old bytes", |bytes| second(bytes).is_some_and(|page| page.iter().all(|byte| *byte == 9)));
    some(&all, "noise", |bytes| second(bytes).is_some_and(|page| page.iter().any(|byte| *byte > 9)));
    let whole = [&[1; 1000][..], &[2; 4000], &[3; 4000]].concat();
    some(&all, "everything", |bytes| *bytes == whole);
}

/// Each unsynced name is kept or lost independently; a sync of the directory makes all names durable.
#[test]
fn names_are_kept_or_lost() {
    let disk = disk_with_log(1);
    let renamed = FileName::new(FileKind::Log, 9);
    disk.create(TABLE).unwrap();
    disk.sync(TABLE).unwrap();
    disk.rename(LOG, renamed).unwrap();
    let names = |disk: &SimDisk, seed| {
        let after = disk.fork();
        after.crash(Crash::Power, seed);
        [LOG, renamed, TABLE].map(|file| after.contents(file).is_some())
    };
    let all: Vec<[bool; 3]> = (0..SEEDS_COUNT).map(|seed| names(&disk, seed)).collect();
    for (has_old, has_new, has_table) in
        [(true, false, false), (true, false, true), (false, true, false), (false, true, true)]
    {
        some(&all, "every outcome", |names| *names == [has_old, has_new, has_table]);
    }
    assert!(all.iter().all(|[has_old, has_new, _]| has_old != has_new), "a rename is whole or not at all");
    disk.sync_directory().unwrap();
    assert!((0..SEEDS_COUNT).all(|seed| names(&disk, seed) == [false, true, true]));
    disk.remove(TABLE).unwrap();
    let all: Vec<[bool; 3]> = (0..SEEDS_COUNT).map(|seed| names(&disk, seed)).collect();
    some(&all, "back", |names| names[2]);
    some(&all, "removed", |names| !names[2]);
}

/// An unsynced new directory may be lost with its contents.
#[test]
fn a_new_directory_may_be_lost() {
    let disk = SimDisk::new(1);
    disk.create_directory().unwrap();
    disk.create(LOG).unwrap();
    let exists = |seed| {
        let after = disk.fork();
        after.crash(Crash::Power, seed);
        let exists = after.exists().unwrap();
        assert!(exists || after.contents(LOG).is_none());
        exists
    };
    let all: Vec<bool> = (0..SEEDS_COUNT).map(exists).collect();
    some(&all, "lost", |exists| !exists);
    some(&all, "kept", |exists| *exists);
}

/// A killed process loses none of its writes and its lock is free. Unsynced writes are still not durable.
#[test]
fn a_killed_process_loses_nothing() {
    let disk = disk_with_log(1);
    disk.lock(LockMode::Exclusive).unwrap();
    disk.write(LOG, 0, b"written").unwrap();
    let boot_id = disk.boot_id();
    disk.crash(Crash::Process, 1);
    assert_eq!(disk.contents(LOG).unwrap(), b"written");
    assert_eq!(disk.boot_id(), boot_id);
    disk.lock(LockMode::Exclusive).unwrap();
    let all = after_power_cuts(&disk);
    some(&all, "lost", |bytes| bytes.as_deref() != Some(b"written"));
    some(&all, "kept", |bytes| bytes.as_deref() == Some(b"written"));
    disk.crash(Crash::Power, 1);
    assert_ne!(disk.boot_id(), boot_id);
}

/// The process stops at any call: before, amid or after its effect. Later calls have no effect.
#[test]
fn the_process_stops_at_a_call() {
    let run = |stop, index| {
        let disk = disk_with_log(3);
        disk.plan(FaultPlan::stop(stop, index));
        let results =
            [disk.write(LOG, 0, &[1; 9]), disk.write(LOG, 9, &[2; 9]), disk.write(LOG, 18, &[3; 9])];
        let stopped = (disk.is_stopped(), disk.calls());
        disk.unlock();
        assert_eq!((disk.list().is_err(), disk.sync(LOG).is_err()), (stopped.0, stopped.0));
        disk.crash(Crash::Process, 0);
        assert!(!disk.is_stopped() && disk.list().is_ok());
        (results.map(|result| result.is_ok()), stopped, disk.contents(LOG).unwrap().len())
    };
    let setup_count = disk_with_log(3).calls();
    assert_eq!(run(Stop::Before, 1), ([true, false, false], (true, setup_count + 2), 9));
    assert_eq!(run(Stop::After, 1), ([true, false, false], (true, setup_count + 2), 18));
    assert_eq!(run(Stop::Before, 9), ([true; 3], (false, setup_count + 3), 27));
    let (_, _, length) = run(Stop::Amid, 1);
    assert!((9..=18).contains(&length));
}

/// A planned failure returns the planned error. A failed write may be partly done, and other calls go on.
#[test]
fn planned_failures_are_answered() {
    let writes = Select::operation(Operation::Write);
    let disk = disk_with_log(1);
    disk.plan(FaultPlan::fail(writes, 0, Failure::Full, Repeat::Once).and_fail(
        writes,
        1,
        Failure::Io,
        Repeat::Once,
    ));
    assert!(matches!(disk.write(LOG, 0, &[1; 100]), Err(Error::Full { .. })));
    assert!(disk.contents(LOG).unwrap().len() <= 100);
    assert!(matches!(disk.write(LOG, 0, &[1; 100]), Err(Error::Io { operation: "write", .. })));
    disk.write(LOG, 0, &[1; 100]).unwrap();

    let create = Select { kind: Some(FileKind::Table), ..Select::operation(Operation::Create) };
    disk.plan(FaultPlan::fail(create, 0, Failure::Full, Repeat::Always));
    for _ in 0..3 {
        assert!(matches!(disk.create(TABLE), Err(Error::Full { .. })));
    }
    disk.create(FileName::STORE).unwrap();
    assert_eq!(disk.length(TABLE).unwrap(), None);
    disk.plan(FaultPlan::default());
    disk.create(TABLE).unwrap();
}

/// After a failed sync every later sync by the process fails. The lost pages are readable or not, as planned.
/// They are not durable for the next process either, until they are written again.
#[test]
fn a_failed_sync_poisons_and_loses() {
    for (variant, is_readable) in [(FailedSync::Readable, true), (FailedSync::Reverted, false)] {
        let (mut lost_count, mut kept_count) = (0, 0);
        for seed in 0..40 {
            let disk = disk_with_log(seed);
            disk.write(LOG, 0, &[1; 4096]).unwrap();
            disk.sync(LOG).unwrap();
            disk.write(LOG, 0, &[2; 4096]).unwrap();
            let sync = Select::operation(Operation::Sync);
            disk.plan(FaultPlan::fail(sync, 0, Failure::Full, Repeat::Once).with_failed_sync(variant));
            assert!(matches!(disk.sync(LOG), Err(Error::Io { operation: "sync", .. })), "never Full");
            assert!(disk.sync(LOG).is_err());
            disk.crash(Crash::Process, seed);
            let read = disk.contents(LOG).unwrap()[0];
            disk.sync(LOG).unwrap();
            let after = disk.fork();
            after.crash(Crash::Power, seed);
            let durable = after.contents(LOG).unwrap()[0];
            if durable == 1 {
                lost_count += 1;
                assert_eq!(read, if is_readable { 2 } else { 1 });
            } else {
                kept_count += 1;
            }
            disk.write(LOG, 10, &[3]).unwrap();
            disk.sync(LOG).unwrap();
            disk.crash(Crash::Power, seed);
            let bytes = disk.contents(LOG).unwrap();
            assert_eq!((bytes[0], bytes[10], bytes[4095]), (read, 3, read), "written again as a whole page");
        }
        assert!(lost_count > 0 && kept_count > 0);
    }
    let disk = disk_with_log(1);
    disk.plan(FaultPlan::fail(Select::operation(Operation::SyncDirectory), 0, Failure::Io, Repeat::Once));
    assert!(disk.sync_directory().is_err() && disk.sync_directory().is_err());
    disk.crash(Crash::Process, 1);
    disk.sync_directory().unwrap();
}

/// A full disk takes the bytes that fit and still allows overwrites. It has room again when a file is removed
/// or the capacity grows.
#[test]
fn a_full_disk_clears() {
    let disk = disk_with_log(1);
    disk.set_capacity_bytes(Some(10_000));
    disk.write(LOG, 0, &[1; 8000]).unwrap();
    disk.create(TABLE).unwrap();
    assert!(matches!(disk.write(TABLE, 0, &[2; 3000]), Err(Error::Full { .. })));
    assert_eq!((disk.length(TABLE).unwrap(), disk.used_bytes()), (Some(2000), 10_000));
    disk.write(LOG, 10, &[3; 100]).unwrap();
    assert!(disk.write(LOG, 7999, &[3; 2]).is_err());
    disk.remove(TABLE).unwrap();
    disk.write(LOG, 8000, &[1; 2000]).unwrap();
    disk.set_capacity_bytes(Some(20_000));
    disk.write(LOG, 10_000, &[1; 10_000]).unwrap();
    disk.set_capacity_bytes(None);
    disk.write(LOG, 20_000, &[1; 10_000]).unwrap();
}

/// Changes of a fork do not reach its origin, nor the other way round.
#[test]
fn forks_share_nothing_that_changes() {
    let disk = disk_with_log(1);
    disk.write(LOG, 0, &[1; 10_000]).unwrap();
    let fork = disk.fork();
    fork.write(LOG, 5000, &[2; 10]).unwrap();
    fork.remove(LOG).unwrap();
    disk.write(LOG, 0, &[3; 10]).unwrap();
    assert!(fork.contents(LOG).is_none());
    let bytes = disk.contents(LOG).unwrap();
    assert!(bytes[10..].iter().all(|byte| *byte == 1) && bytes[..10] == [3; 10]);
}

/// A test can damage, replace and remove files durably. Foreign names are listed.
#[test]
fn files_can_be_damaged() {
    let disk = disk_with_log(1);
    disk.set_contents(LOG, Some(b"damaged"));
    disk.set_contents(TABLE, Some(b"stray"));
    disk.set_contents(TABLE, None);
    disk.add_foreign("notes.txt");
    let calls_count = disk.calls();
    for seed in 0..10 {
        disk.crash(Crash::Power, seed);
        assert_eq!(disk.contents(LOG).unwrap(), b"damaged");
        assert!(disk.contents(TABLE).is_none());
    }
    assert_eq!(disk.calls(), calls_count);
    let list = disk.list().unwrap();
    assert_eq!(list, [DirectoryEntry::Ours(LOG), DirectoryEntry::Foreign("notes.txt".to_owned())]);
}

/// A thousand operations chosen by a seed, with failures and crashes among them.
fn random_run(seed: u64) -> (Vec<DiskCall>, Vec<Option<Vec<u8>>>) {
    let disk = SimDisk::new(seed);
    disk.start_log();
    let mut rng = SimRng::new(seed ^ 0x5eed);
    let files: Vec<FileName> = (0..4).map(|number| FileName::new(FileKind::Log, number)).collect();
    disk.create_directory().unwrap();
    for _ in 0..1000 {
        let (file, other) = (files[rng.index(4)], files[rng.index(4)]);
        let offset = rng.below(20_000);
        // Failures are expected here.
        let _ = match rng.below(20) {
            0 => disk.create(file),
            1 => disk.rename(file, other),
            2 => disk.remove(file),
            3 => disk.sync_directory(),
            4..7 => disk.sync(file),
            7 => disk.read(file, offset, &mut [0; 100]).map(|_| ()),
            8 if rng.one_in(4) => {
                disk.crash(if rng.one_in(2) { Crash::Power } else { Crash::Process }, rng.u64());
                Ok(())
            }
            9 => {
                disk.plan(FaultPlan::stop(Stop::Amid, rng.below(30)));
                Ok(())
            }
            10 => {
                disk.plan(FaultPlan::fail(Select::ANY, rng.below(3), Failure::Io, Repeat::Once));
                Ok(())
            }
            _ => {
                let mut bytes = vec![0; rng.index(6000)];
                rng.fill(&mut bytes);
                disk.write(file, offset, &bytes)
            }
        };
    }
    (disk.log(), files.iter().map(|file| disk.contents(*file)).collect())
}

/// The same seed gives the same calls, outcomes and bytes; another seed gives others.
#[test]
fn a_seed_decides_everything() {
    for seed in 0..5 {
        let (log, contents) = random_run(seed);
        assert!(log.len() > 100);
        assert!(log.iter().zip(&log[1..]).all(|(one, next)| one.index + 1 == next.index));
        assert_eq!((&log, &contents), (&random_run(seed).0, &random_run(seed).1));
        assert_ne!(log, random_run(seed + 100).0);
    }
}

/// A simulated process has a complete environment, whose randomness comes from the seed.
#[test]
fn an_environment_is_made() {
    let disk = SimDisk::new(1);
    let (env, threads) = sim_env(&disk, 5);
    assert!(!env.storage.exists().unwrap());
    assert_eq!(env.clock.now_ns(), 0);
    threads.clock().advance(3);
    assert_eq!(env.clock.now_ns(), 3);
    assert_eq!(env.memory.region(100).unwrap().bytes(), 100);
    assert_eq!(env.random.u64(), sim_env(&disk, 5).0.random.u64());
    env.threads.join();
}

/// Where alignment is demanded, logs may be read anywhere, and tables only as a direct read can.
#[test]
#[should_panic(expected = "a read of table-0000000000000008 is not aligned")]
fn tables_are_read_aligned() {
    let disk = disk_with_log(1);
    disk.create(TABLE).unwrap();
    [LOG, TABLE].into_iter().for_each(|file| disk.write(file, 0, &[1; 1000]).unwrap());
    sim_env(&disk, 5);
    let mut buffer = [0; 100];
    assert_eq!(disk.read(LOG, 3, &mut buffer).unwrap(), 100);
    // The read panics rather than fails, because a store may tolerate a failure.
    disk.read(TABLE, 512, &mut buffer).unwrap();
}
