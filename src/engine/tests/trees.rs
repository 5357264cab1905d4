//! Many trees: the cost of a merge does not grow with their number.

use std::ops::Range;

use super::super::Store;
use super::run;
use crate::base::error::Error;
use crate::base::id::ItemKind;
use crate::base::sync::Arc;
use crate::base::visits;
use crate::engine::background::work::WorkKind;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::io::sim::SimDisk;
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;

fn make(store: &Store, keyspaces: usize) -> Vec<Arc<KeyspaceState>> {
    let name = |number| format!("k{number}");
    (0..keyspaces).map(|number| store.open_keyspace(&name(number), &[]).expect("no fault")).collect()
}

/// Puts one item per round into each keyspace, and flushes each round.
fn put_rounds(store: &Store, all: &[Arc<KeyspaceState>], rounds: Range<u64>) {
    for round in rounds {
        let mut items = BatchItems::default();
        for keyspace in all {
            items.push(keyspace.tree, ItemKind::Put, &round.to_be_bytes(), b"value").expect("is short");
        }
        store.write(&items, None).expect("no fault");
        store.flush().expect("no fault");
    }
}

/// The number of rounds whose item is present.
fn count(store: &Store, keyspace: &KeyspaceState, rounds: u64) -> usize {
    let has = |round: &u64| {
        let key = (&round.to_be_bytes()[..], GetMode::Value);
        store.get(keyspace, key, None, &mut NoTrace, |value| value.is_some()).expect("no fault")
    };
    (0..rounds).filter(has).count()
}

fn runs_of(store: &Store, keyspace: &KeyspaceState) -> usize {
    let pin = store.epoch.pin();
    store.views.load(&pin).get().version.tree(keyspace.tree).map_or(0, |tree| tree.runs().count())
}

/// The looks at trees, and the merges, needed to settle `keyspaces` keyspaces of five flushed runs each.
fn looks_to_settle(keyspaces: usize) -> (u64, u64) {
    let (store, _threads) = run::open_in(&SimDisk::new(1), 1, (8 << 20, 0), |_| ()).expect("no fault");
    let all = make(&store, keyspaces);
    put_rounds(&store, &all, 0..5);
    let before = store.look_at_trees().looks();
    store.settle().expect("no fault");
    let looks = store.look_at_trees().looks() - before;
    assert!(!store.is_merge_due());
    let merges = store.stats().background.merges;
    store.close().expect("closes");
    (looks, merges)
}

/// After a merge only its own trees are looked at: each keyspace a few times, however many there are. Small
/// merges that are due together are done together, so there are few merges.
#[test]
fn settling_keyspaces_looks_only_at_changed_trees() {
    let (few, few_merges) = looks_to_settle(25);
    assert!(few <= 4 * 25, "{few} looks, {few_merges} merges");
    let (many, many_merges) = looks_to_settle(100);
    assert!(many <= 4 * 100, "{few} looks for 25 keyspaces, {many} for 100");
    assert!(many_merges <= few_merges + 2 && many_merges < 8, "{few_merges} merges, and {many_merges}");
}

/// The trees visited by four changes in a store of `keyspaces` keyspaces. The changes are: one item put and
/// flushed; the tree merged; a keyspace made, written and dropped; and a while without work.
fn visits_of_a_change(keyspaces: usize) -> [u64; 4] {
    let (store, threads) = run::open_in(&SimDisk::new(1), 1, (256 << 20, 0), |_| ()).expect("no fault");
    let all = make(&store, keyspaces);
    for some in all.chunks(500) {
        let mut items = BatchItems::default();
        for keyspace in some {
            items.push(keyspace.tree, ItemKind::Put, b"key", b"value").expect("is short");
        }
        store.write(&items, None).expect("no fault");
    }
    store.flush().expect("no fault");
    store.settle().expect("no fault");
    let put = |keyspace: &KeyspaceState| {
        let mut items = BatchItems::default();
        items.push(keyspace.tree, ItemKind::Put, b"key", b"other").expect("is short");
        store.write(&items, None).expect("no fault");
        store.flush().expect("no fault");
    };
    put(&all[0]);
    threads.run_until_idle();
    visits::take();
    put(&all[0]);
    let flushed = visits::take();
    (0..4).for_each(|_| put(&all[keyspaces / 2]));
    threads.run_until_idle();
    let merged = visits::take();
    let made = store.open_keyspace("made", &[]).expect("no fault");
    put(&made);
    drop(made);
    store.drop_keyspace("made").expect("no fault");
    threads.run_until_idle();
    let dropped = visits::take();
    (0..3).for_each(|_| threads.run_until_idle());
    let idle = visits::take();
    store.close().expect("closes");
    [flushed, merged, dropped, idle]
}

/// The cost of a change follows its size: a store of ten thousand keyspaces visits as many trees as one of
/// ten.
#[test]
fn changes_look_at_their_own_trees() {
    let few = visits_of_a_change(10);
    assert!(few.iter().all(|visits| *visits < 60), "{few:?}");
    for keyspaces in [1000, 10_000] {
        let many = visits_of_a_change(keyspaces);
        assert!(many.iter().zip(few).all(|(many, few)| *many <= few + 4), "{few:?}, {many:?}");
    }
}

/// A damaged tree stops its own merges; the trees that would be merged with it go on.
#[test]
fn damage_stops_its_own_tree() {
    const BAD: usize = 7;
    const ROUNDS: u64 = 16;
    let disk = SimDisk::new(1);
    let (store, threads) = run::open_in(&disk, 1, (8 << 20, 0), |_| ()).expect("no fault");
    let all = make(&store, 40);
    put_rounds(&store, &all, 0..1);
    let (file, at) = {
        let pin = store.epoch.pin();
        let tree = store.views.load(&pin).get().version.tree(all[BAD].tree).expect("it is there");
        let (_, placed) = tree.tables().next().expect("it was flushed");
        (placed.table.file().name(), placed.table.slice_offset() as usize)
    };
    let mut bytes = disk.contents(file).expect("it is there");
    bytes[at + 40] ^= 0xff;
    disk.set_contents(file, Some(&bytes));
    put_rounds(&store, &all, 1..ROUNDS);
    threads.run_until_idle();
    let error = store.work.error_of(WorkKind::Merge(all[BAD].tree));
    assert!(matches!(error, Some(Error::Corrupt(_))), "{error:?}");
    assert_eq!(runs_of(&store, &all[BAD]), ROUNDS as usize, "nothing of it was merged");
    for (number, keyspace) in all.iter().enumerate().filter(|(number, _)| *number != BAD) {
        assert!(store.work.error_of(WorkKind::Merge(keyspace.tree)).is_none());
        assert!(runs_of(&store, keyspace) < ROUNDS as usize / 2, "k{number}");
        assert_eq!(count(&store, keyspace, ROUNDS), ROUNDS as usize, "k{number}");
    }
    assert!(matches!(store.close(), Err(Error::Corrupt(_))), "it is told");
}

/// A keyspace dropped at any moment of a merge of many trees leaves that merge. The others keep their
/// contents, even after a crash.
#[test]
fn a_drop_amid_a_merge_of_many_leaves_the_others() {
    const ROUNDS: u64 = 12;
    for turns in (0..60).step_by(3) {
        let disk = SimDisk::new(turns);
        let (store, threads) = run::open_in(&disk, turns, (8 << 20, 0), |_| ()).expect("no fault");
        let all = make(&store, 30);
        put_rounds(&store, &all, 0..ROUNDS);
        for _ in 0..turns {
            threads.run_one();
        }
        store.drop_keyspace("k5").expect("no fault");
        let check = |store: &Store, when: &str| {
            for number in (0..30).filter(|number| *number != 5) {
                let keyspace = store.keyspace(&format!("k{number}")).expect("it is there");
                assert_eq!(
                    count(store, &keyspace, ROUNDS),
                    ROUNDS as usize,
                    "{when}, {turns} turns: k{number}"
                );
            }
            assert!(store.keyspace("k5").is_err(), "{when}, {turns} turns");
        };
        check(&store, "dropped");
        let after = disk.fork();
        after.crash(crate::io::sim::Crash::Power, turns);
        let (other, _threads) = run::open_in(&after, turns, (8 << 20, 0), |_| ()).expect("no fault");
        check(&other, "crashed");
        other.close().expect("closes");
        store.compact().expect("no fault");
        check(&store, "compacted");
        assert_eq!(runs_of(&store, &all[6]), 1);
        store.close().expect("closes");
    }
}
