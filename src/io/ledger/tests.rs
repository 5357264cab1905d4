//! The ledger over a simulated disk, which knows the lengths of its files itself.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use super::*;
use crate::io::sim::{Failure, FaultPlan, Operation, Repeat, Select, SimDisk};

const LOG: FileName = FileName { kind: FileKind::Log, number: 7, path: 0 };
const NEXT_LOG: FileName = FileName { kind: FileKind::Log, number: 9, path: 0 };
const TABLE: FileName = FileName { kind: FileKind::Table, number: 8, path: 0 };

fn ledger() -> (Arc<SimDisk>, Arc<FileLedger>) {
    let disk = SimDisk::new(1);
    let ledger = FileLedger::new(Arc::clone(&disk) as Arc<dyn Storage>);
    ledger.create_directory().unwrap();
    ledger.lock(LockMode::Exclusive).unwrap();
    (disk, ledger)
}

fn sum(ledger: &FileLedger) -> u64 {
    ledger.files().values().map(|one| one.bytes).sum()
}

fn found(disk: &SimDisk) -> Vec<FileName> {
    let ours = |entry| match entry {
        DirectoryEntry::Ours(file) => Some(file),
        DirectoryEntry::Foreign(_) => None,
    };
    disk.list().unwrap().into_iter().filter_map(ours).collect()
}

/// Creations, writes within and past the end, renames and removals change the ledger as they change the disk.
#[test]
fn the_sum_is_that_of_the_files() {
    let (disk, ledger) = ledger();
    ledger.complete(&found(&disk));
    let check = |bytes: u64| assert_eq!((sum(&ledger), disk.used_bytes()), (bytes, bytes));
    ledger.create(LOG).unwrap();
    ledger.write(LOG, 0, &[1; 5000]).unwrap();
    check(5000);
    ledger.sync(LOG).unwrap();
    ledger.write(LOG, 100, &[2; 50]).unwrap();
    ledger.create(TABLE).unwrap();
    ledger.write(TABLE, 0, &[1; 300]).unwrap();
    ledger.write(TABLE, 200, &[1; 300]).unwrap();
    check(5500);
    ledger.rename(LOG, NEXT_LOG).unwrap();
    ledger.write(NEXT_LOG, 0, &[3; 5000]).unwrap();
    check(5500);
    ledger.remove(TABLE).unwrap();
    check(5000);
    assert_eq!(ledger.files().keys().copied().collect::<Vec<_>>(), [FileName::LOCK, NEXT_LOG]);
}

/// Files from an earlier opening are noted, whether the opening looked at them or not. A file removed before
/// `complete` is not.
#[test]
fn files_of_an_earlier_opening_are_noted() {
    let (disk, earlier) = ledger();
    for (file, bytes) in [(LOG, 100), (NEXT_LOG, 20), (TABLE, 3)] {
        earlier.create(file).unwrap();
        earlier.write(file, 0, &vec![1; bytes]).unwrap();
    }
    let ledger = FileLedger::new(Arc::clone(&disk) as Arc<dyn Storage>);
    let files = found(&disk);
    assert_eq!(ledger.length(LOG).unwrap(), Some(100));
    // The length of TABLE has not been asked for yet.
    ledger.write(TABLE, 1, &[2]).unwrap();
    ledger.remove(NEXT_LOG).unwrap();
    ledger.complete(&files);
    assert_eq!((sum(&ledger), disk.used_bytes()), (103, 103));
    // Asking for a length again creates no entry.
    ledger.remove(TABLE).unwrap();
    earlier.create(TABLE).unwrap();
    assert_eq!(ledger.length(TABLE).unwrap(), Some(0));
    assert!(!ledger.files().contains_key(&TABLE));
}

/// The part of a write that fitted on a full disk counts. A file whose removal failed counts too, and is
/// marked as left over.
#[test]
fn failed_calls_are_counted_as_they_are() {
    let (disk, ledger) = ledger();
    ledger.complete(&found(&disk));
    ledger.create(TABLE).unwrap();
    disk.set_capacity_bytes(Some(1000));
    ledger.write(TABLE, 0, &[1; 5000]).unwrap_err();
    assert_eq!((sum(&ledger), disk.used_bytes()), (1000, 1000));
    disk.plan(FaultPlan::fail(Select::operation(Operation::Remove), 0, Failure::Io, Repeat::Once));
    ledger.remove(TABLE).unwrap_err();
    assert_eq!(ledger.files()[&TABLE], FileLength { bytes: 1000, hole_bytes: 0, is_left_over: true });
    ledger.remove(TABLE).unwrap();
    assert_eq!((sum(&ledger), disk.used_bytes()), (0, 0));
}
