//! Hashed keyspaces: the cost of an edit does not grow with the trie, and the cost of keys that share one
//! path is bounded.

use std::collections::BTreeMap;

use super::super::Store;
use super::crash::scan_of;
use super::run;
use crate::base::hash::strange;
use crate::base::id::ItemKind;
use crate::base::place::stored_key;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::base::visits;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;
use crate::inspect::verify_open;
use crate::io::sim::{SimDisk, SimRng};
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;

const VALUE_BYTES: usize = 220;
/// This many items fill a table of 64 KiB.
const FLUSH_ITEMS: usize = 250;
const BATCH_ITEMS: usize = 20;

/// Puts items under these keys, in batches.
fn put(store: &Store, keyspace: &KeyspaceState, keys: impl Iterator<Item = Vec<u8>>) {
    let (keys, mut batch) = (keys.collect::<Vec<_>>(), 0u8);
    for some in keys.chunks(BATCH_ITEMS) {
        let mut items = BatchItems::default();
        for key in some {
            items.push(keyspace.tree, ItemKind::Put, key, &[batch; VALUE_BYTES]).expect("is short");
        }
        store.write(&items, None).expect("no fault");
        batch = batch.wrapping_add(1);
    }
}

fn stored(store: &Store, keyspace: &KeyspaceState, number: u32) -> Vec<u8> {
    stored_key(store.hash_secret(), keyspace.id, &number.to_le_bytes()).to_vec()
}

/// The nodes of a trie of `items` items, and the average number of nodes visited per edit, over flushes and
/// pushes.
fn visits_of_edits(items: u32) -> (u64, u64) {
    let (store, threads) = run::open_in(&SimDisk::new(1), 1, (1 << 20, 0), |_| ()).expect("no fault");
    // Filters and fences have room in memory; otherwise the whole tree would be searched for tables without
    // room.
    let given = [("filter_bits_per_key".to_owned(), 0), ("table_bytes".to_owned(), 64 << 10)];
    let keyspace = store.open_hashed("h", &given).expect("no fault");
    let write = |from: u32, to: u32| {
        for from in (from..to).step_by(FLUSH_ITEMS) {
            let keys = from..to.min(from + FLUSH_ITEMS as u32);
            put(&store, &keyspace, keys.map(|number| stored(&store, &keyspace, number)));
            store.flush().expect("no fault");
        }
    };
    write(0, items);
    store.settle().expect("no fault");
    let edits = |store: &Arc<Store>| {
        let background = store.stats().background;
        background.flushes + background.merges
    };
    let before = edits(&store);
    visits::take();
    write(items, items + 60 * FLUSH_ITEMS as u32);
    threads.run_until_idle();
    let visits = visits::take();
    let edits = edits(&store) - before;
    assert!(edits > 64, "{edits}");
    let nodes = {
        let pin = store.epoch.pin();
        let tree = store.views.load(&pin).get().version.tree(keyspace.tree).expect("it is there");
        tree.trie().expect("it is hashed").nodes().count() as u64
    };
    store.close().expect("closes");
    (nodes, visits / edits)
}

/// An edit visits the nodes that it changes and those on the path to them, however many others there are.
#[test]
fn edits_look_at_their_own_nodes() {
    let (few_nodes, few) = visits_of_edits(2500);
    let (many_nodes, many) = visits_of_edits(35_000);
    assert!(few_nodes < 20 && many_nodes > 60, "{few_nodes}, {many_nodes} nodes");
    assert!(many <= few + 12, "{few} visits an edit of {few_nodes} nodes, {many} of {many_nodes}");
}

/// The bytes that flushes and merges write per byte of keys and values, in hundredths, and the most runs of a
/// pile at any time.
fn amplification(secret: Option<[u8; 16]>, items: u32) -> (u64, usize) {
    let disk = SimDisk::new(1);
    let (store, threads) = run::open_by(&disk, 1, (128 << 10, 0), |_| (), secret).expect("no fault");
    let keyspace = store.open_hashed("h", &[]).expect("no fault");
    let most_runs = || {
        let pin = store.epoch.pin();
        let tree = store.views.load(&pin).get().version.tree(keyspace.tree).expect("it is there");
        tree.trie().expect("it is hashed").root().most_runs()
    };
    let mut longest = 0;
    for from in (0..items).step_by(FLUSH_ITEMS) {
        let numbers = from..items.min(from + FLUSH_ITEMS as u32);
        put(&store, &keyspace, numbers.map(|number| stored(&store, &keyspace, number)));
        threads.run_until_idle();
        longest = longest.max(most_runs());
    }
    store.settle().expect("no fault");
    for number in (0..items).step_by(7) {
        let key = stored(&store, &keyspace, number);
        let has_value = |value: Option<&[u8]>| value.is_some_and(|value| value.len() == VALUE_BYTES);
        let wanted = (&key[..], GetMode::Value);
        assert!(store.get(&keyspace, wanted, None, &mut NoTrace, has_value).expect("no fault"), "{number}");
    }
    let point = store.point();
    let (mut scan, mut count) = (scan_of(&keyspace, &point, Direction::Forward), 0);
    while store.advance(&point, &mut scan).expect("no fault") {
        count += 1;
    }
    assert_eq!(count, items);
    let write = store.stats().write;
    store.close().expect("closes");
    ((write.flush_bytes + write.merge_write_bytes) * 100 / write.key_value_bytes, longest)
}

/// With a leaked seed, keys of one path stay within the limits of piles, and every one is found. At most
/// three times as many bytes are written as for usual keys. Counted here, with tables of 16 KiB, half of
/// which are pages that begin and end them: 5.86 bytes per byte put, and 5.82 for usual keys.
#[test]
fn keys_of_one_path_are_bounded() {
    let (usual, usual_runs) = amplification(None, 14_000);
    let (one_path, runs) = amplification(Some(strange::ONE_PATH), 14_000);
    println!("{one_path} % written of one path, {usual} % of any keys; {runs} and {usual_runs} runs");
    assert!(one_path <= 3 * usual, "{one_path} % of one path, {usual} % of any keys");
    assert!(runs <= 17 && usual_runs <= 17, "{runs}, {usual_runs} runs");
}

/// A key of a store whose hash has 8 bits: keys with equal hashes are told apart only by their bytes. A few
/// hashes have most keys, more than a block holds.
fn collided(store: &Store, keyspace: &KeyspaceState, number: u32) -> Vec<u8> {
    // Some keys are prefixes of others.
    let (start, end) = (number.to_be_bytes(), vec![b'k'; (number >> 5) as usize % 7]);
    let key = [&start[..2], &end, &start[2..]].concat();
    stored_key(store.hash_secret(), keyspace.id, &key).to_vec()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Gets of one key and of many, and a scan, of the store at a point agree with the model.
fn check(store: &Store, keyspace: &KeyspaceState, point: &Point, model: &Model, rng: &mut SimRng) {
    let asked: Vec<Vec<u8>> =
        (0..150).map(|_| collided(store, keyspace, rng.below(COLLIDED_KEYS + 200) as u32)).collect();
    for key in &asked {
        let wanted = (&key[..], GetMode::Value);
        let found = store.get(keyspace, wanted, Some(point), &mut NoTrace, |value| value.map(<[u8]>::to_vec));
        assert_eq!(found.expect("no fault").as_ref(), model.get(key), "{key:?}");
    }
    let mut answered = 0;
    let is_right = |number: usize, value: Option<&[u8]>| {
        assert_eq!(value, model.get(&asked[number]).map(Vec::as_slice));
        answered += 1;
    };
    store.multi_get(keyspace, &asked, Some(point), is_right).expect("no fault");
    assert_eq!(answered, asked.len());
    let (mut scan, mut expected) = (scan_of(keyspace, point, Direction::Forward), model.iter());
    while store.advance(point, &mut scan).expect("no fault") {
        assert_eq!(Some((scan.key(), scan.value())), expected.next().map(|(key, value)| (&**key, &**value)));
    }
    assert!(expected.next().is_none());
}

const COLLIDED_KEYS: u64 = 6000;

/// Full hash collisions, filter bits included, give right results. Puts and deletes of keys with 256 hashes,
/// some with more items than a block, are compared with a model over pushes, snapshots and openings.
#[test]
fn collisions_are_right() {
    let (disk, mut rng, mut model) = (SimDisk::new(3), SimRng::new(3), Model::new());
    let secret = Some(strange::COLLIDING);
    let open = |seed| run::open_by(&disk, seed, (128 << 10, 0), |_| (), secret).expect("no fault").0;
    let mut store = open(0);
    let mut keyspace = store.open_hashed("h", &[]).expect("no fault");
    for round in 0..12u64 {
        let (point, before) = (store.snapshot_point(), model.clone());
        for batch in 0..60 {
            let mut items = BatchItems::default();
            for _ in 0..BATCH_ITEMS {
                let number = rng.below(COLLIDED_KEYS * (round + 1) / 12) as u32;
                let key = collided(&store, &keyspace, number);
                if rng.one_in(6) {
                    items.push(keyspace.tree, ItemKind::Delete, &key, &[]).expect("is short");
                    model.remove(&key);
                } else {
                    let value = vec![(round * 60 + batch) as u8; rng.index(400)];
                    items.push(keyspace.tree, ItemKind::Put, &key, &value).expect("is short");
                    model.insert(key, value);
                }
            }
            store.write(&items, None).expect("no fault");
        }
        check(&store, &keyspace, &point, &before, &mut rng);
        drop(point);
        if round % 4 == 3 {
            store.settle().expect("no fault");
        }
        check(&store, &keyspace, &store.point(), &model, &mut rng);
        if round % 3 == 2 {
            drop(keyspace);
            store.close().expect("closes");
            store = open(round);
            // Filters of each kind see equal hashes.
            let kind = [("filter_kind".to_owned(), 4 - round / 3)];
            keyspace = store.open_hashed("h", &kind).expect("it is there");
            check(&store, &keyspace, &store.point(), &model, &mut rng);
        }
    }
    let bytes_of = |place: u8| -> usize {
        let of_place = model.iter().filter(|(key, _)| key[0] == place);
        of_place.map(|(key, value)| key.len() + value.len()).sum()
    };
    let largest = (0..=255).map(bytes_of).max().unwrap_or(0);
    assert!(largest > 3 * 4096, "{largest} bytes of one place");
    assert!(verify_open(&store, |_| {}).expect("no fault").findings.is_empty());
    store.close().expect("closes");
}

/// Small runs in a trie's root slow no writer while no work would reduce their number, and such work is in
/// sight before they do.
#[test]
fn small_runs_slow_no_writer() {
    let (store, threads) = run::open_in(&SimDisk::new(1), 1, (1 << 20, 0), |_| ()).expect("no fault");
    // This forces piles, regardless of the observed writes.
    let given = [("runs_in_last_level".to_owned(), 63)];
    let keyspace = store.open_hashed("h", &given).expect("no fault");
    let mut most_runs = 0;
    for round in 0..40u32 {
        put(&store, &keyspace, (0..3).map(|number| stored(&store, &keyspace, round * 3 + number)));
        store.flush().expect("no fault");
        threads.run_until_idle();
        let (is_due, debt) = {
            let known = store.look_at_trees();
            (known.is_any_due(), known.debt())
        };
        assert!(!is_due, "idle");
        assert_eq!(store.writer.pressures.worst(), 0, "round {round}");
        assert!(debt.flushes_left > 0, "round {round}: {debt:?}");
        let pin = store.epoch.pin();
        let tree = store.views.load(&pin).get().version.tree(keyspace.tree).expect("it is there");
        most_runs = most_runs.max(tree.runs().count());
    }
    assert_eq!(most_runs, 12);
    store.close().expect("closes");
}
