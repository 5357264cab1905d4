//! STORE through storage: the protocol under a crash at every step.

use super::*;
use crate::base::error::Error;
use crate::wal::memory::MemoryStorage;

fn live() -> Live {
    let manifest = ManifestPlace { number: 1, uid: 11, bytes: 1 << 16 };
    Live { turn: 1, store_id: 77, hash_secret: [3; 16], manifest, next_file_number: 1025 }
}

const SECOND: ManifestPlace = ManifestPlace { number: 2, uid: 22, bytes: 1 << 17 };

fn created() -> (MemoryStorage, StoreFile) {
    let storage = MemoryStorage::new(5);
    let store = StoreFile::create(&storage, 99, live()).expect("no fault");
    (storage, store)
}

fn loaded(storage: &MemoryStorage) -> StoreFile {
    StoreFile::load(storage).expect("sound").expect("there is a STORE")
}

fn unequal(storage: &MemoryStorage) -> bool {
    store::decode(&storage.bytes(FileName::STORE)).expect("sound").unequal
}

/// A new STORE is read back, with equal slots.
#[test]
fn create_and_load() {
    let (storage, store) = created();
    storage.power_cut();
    let found = loaded(&storage);
    assert_eq!(found.live(), &live());
    assert_eq!(store.live(), found.live());
    assert_eq!((found.doubt, store.doubt), (Doubt::Second, Doubt::None));
    assert!(!unequal(&storage));
    assert_eq!(storage.names(), [FileName::STORE]);
    assert!(StoreFile::load(&MemoryStorage::new(5)).expect("no fault").is_none());
}

/// A creation cut at any step leaves no file named STORE or a whole one, and can be repeated.
#[test]
fn a_cut_creation_leaves_no_store() {
    let mut step = 1;
    loop {
        let storage = MemoryStorage::new(5);
        storage.fail_after(Some(step));
        let made = StoreFile::create(&storage, 99, live());
        storage.power_cut();
        match StoreFile::load(&storage).expect("sound") {
            None => {
                assert!(made.is_err(), "step {step}");
                StoreFile::create(&storage, 98, live()).expect("again");
                assert_eq!(loaded(&storage).live(), &live());
            }
            Some(found) => assert_eq!(found.live(), &live(), "step {step}"),
        }
        if made.is_ok() {
            break;
        }
        step += 1;
    }
    assert_eq!(step, 8);
}

/// A change cut at any step is found made or not made, never half, and is mended before the next.
#[test]
fn a_change_is_whole_or_absent() {
    for cut in [Cut::Power, Cut::Process] {
        let (mut step, mut done_after_error) = (1, 0);
        loop {
            let (storage, mut store) = created();
            storage.fail_after(Some(step));
            let changed = store.switch_manifest(&storage, SECOND);
            storage.fail_after(None);
            if cut == Cut::Power {
                storage.power_cut();
            }
            let mut found = loaded(&storage);
            let is_new = found.live().manifest == SECOND;
            assert!(is_new || found.live() == &live());
            assert!(is_new || changed.is_err());
            done_after_error += u64::from(is_new && changed.is_err());
            found.mend(&storage).expect("no fault");
            storage.power_cut();
            assert_eq!(loaded(&storage).live(), found.live(), "step {step}");
            assert!(!unequal(&storage), "step {step}");
            if changed.is_ok() {
                break;
            }
            step += 1;
        }
        assert_eq!(step, 5);
        assert!(done_after_error > 0);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Cut {
    Power,
    Process,
}

/// The same process can retry after a failure: it first makes both slots durable.
#[test]
fn a_failed_change_can_be_tried_again() {
    for step in 1..=4 {
        let (storage, mut store) = created();
        storage.fail_after(Some(step));
        store.reserve_file_numbers(&storage).expect_err("cut");
        assert_ne!(store.doubt, Doubt::None);
        storage.fail_after(None);
        let before = store.live().clone();
        let numbers = store.reserve_file_numbers(&storage).expect("healed");
        assert_eq!(numbers, before.next_file_number..before.next_file_number + 1024);
        assert_eq!(store.doubt, Doubt::None);
        storage.power_cut();
        assert_eq!(loaded(&storage).live(), store.live());
        assert!(!unequal(&storage));
    }
}

/// While a slot is written, the other slot is known to be durable: after a change cut at any step, tearing
/// the pages that the next process left unsynced destroys at most one slot.
#[test]
fn one_slot_is_durable_at_all_times() {
    for first_cut in 1..=5 {
        for second_cut in 1..=8 {
            let (storage, mut store) = created();
            storage.fail_after(Some(first_cut));
            let first = store.switch_manifest(&storage, SECOND);
            storage.fail_after(Some(second_cut));
            let mut next = loaded(&storage);
            let second = next.reserve_file_numbers(&storage);
            storage.fail_after(None);
            storage.tear_unsynced();
            let found = loaded(&storage);
            let is_second = found.live().manifest == SECOND;
            assert!(is_second || first.is_err(), "{first_cut} {second_cut}");
            assert!(second.is_err() || found.live() == next.live(), "{first_cut} {second_cut}");
        }
    }
}

/// Each file number is given out once.
#[test]
fn numbers_are_reserved_once() {
    let (storage, mut store) = created();
    assert_eq!(store.reserve_file_numbers(&storage).expect("no fault"), 1025..2049);
    assert_eq!(store.reserve_file_numbers(&storage).expect("no fault"), 2049..3073);
    assert_eq!(loaded(&storage).live().next_file_number, 3073);
    assert_eq!(loaded(&storage).live().turn, 3);
}

/// A truncated, grown or empty STORE is damaged; if no file of a store is beside it, it is another program's.
#[test]
fn damaged_and_foreign_stores() {
    let (storage, _) = created();
    let bytes = storage.bytes(FileName::STORE);
    for length in (0..bytes.len()).step_by(100).chain([STORE_BYTES - 1]) {
        storage.put(FileName::STORE, &bytes[..length]);
        assert!(matches!(StoreFile::load(&storage), Err(Error::Corrupt(_))), "{length} bytes");
    }
    storage.put(FileName::STORE, &[&bytes[..], &[0; 5000]].concat());
    assert!(matches!(StoreFile::load(&storage), Err(Error::Corrupt(_))));
    let foreign = [&b"hello"[..], &[b'x'; 100_000]];
    for (foreign, beside) in foreign.into_iter().zip([FileKind::Log, FileKind::Table]) {
        let storage = MemoryStorage::new(5);
        storage.put(FileName::STORE, foreign);
        storage.put(FileName::LOCK, b"");
        assert!(matches!(StoreFile::load(&storage), Err(Error::Foreign { .. })));
        storage.put(FileName::new(beside, 7), b"of any kind");
        assert!(matches!(StoreFile::load(&storage), Err(Error::Corrupt(_))));
    }
}
