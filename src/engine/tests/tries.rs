//! Hashed keyspaces: what an edit costs does not grow with the trie, and what keys of one path cost.

use super::super::Store;
use super::crash::scan_of;
use super::run;
use crate::base::id::ItemKind;
use crate::base::place::stored_key;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::base::visits;
use crate::engine::publish::keyspace::Keyspace;
use crate::io::sim::SimDisk;
use crate::read::get::Wants;
use crate::read::trace::NoTrace;
use crate::write::batch::Items;

const VALUE_BYTES: usize = 220;
/// Items that are a table of 64 KiB.
const FLUSH_ITEMS: usize = 250;
const BATCH_ITEMS: usize = 20;

/// Puts items under these keys, a batch of some after another.
fn put(store: &Store, keyspace: &Keyspace, keys: impl Iterator<Item = Vec<u8>>) {
    let (keys, mut batch) = (keys.collect::<Vec<_>>(), 0u8);
    for some in keys.chunks(BATCH_ITEMS) {
        let mut items = Items::default();
        for key in some {
            items.push(keyspace.tree, ItemKind::Put, key, &[batch; VALUE_BYTES]).expect("is short");
        }
        store.write(&items, None).expect("no fault");
        batch = batch.wrapping_add(1);
    }
}

fn stored(store: &Store, keyspace: &Keyspace, number: u32) -> Vec<u8> {
    stored_key(store.hash_secret(), keyspace.id, &number.to_le_bytes()).to_vec()
}

/// Nodes of a trie of so many items, and those that are looked at in an edit on average, over flushes and
/// pushes.
fn visits_of_edits(items: u32) -> (u64, u64) {
    let (store, threads) = run::open_in(&SimDisk::new(1), 1, (1 << 20, 0), |_| ()).expect("no fault");
    // Filters and fences find room: for those that find none all of a tree is searched.
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

/// An edit looks at the nodes that it changes and at those on the way to them, however many others there are.
#[test]
fn edits_look_at_their_own_nodes() {
    let (few_nodes, few) = visits_of_edits(2500);
    let (many_nodes, many) = visits_of_edits(35_000);
    assert!(few_nodes < 20 && many_nodes > 60, "{few_nodes}, {many_nodes} nodes");
    assert!(many <= few + 12, "{few} visits an edit of {few_nodes} nodes, {many} of {many_nodes}");
}

/// A key that was chosen, by one who knows the seed, so that each height gives it to the last child.
fn ground(number: u32) -> Vec<u8> {
    let order = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let mut stored = vec![0xff; 5];
    stored[4] = 0xf0 | (order >> 44) as u8;
    stored.extend_from_slice(&(order << 20).to_be_bytes()[..6]);
    *stored.last_mut().expect("it has bytes") &= 0xf0;
    stored.extend_from_slice(&number.to_le_bytes());
    stored
}

/// Bytes that flushes and merges write for each byte of these keys and their values, in hundredths, and runs
/// of the longest pile at any time.
fn amplification(keys: impl Fn(&Store, &Keyspace, u32) -> Vec<u8>, items: u32) -> (u64, usize) {
    let (store, threads) = run::open_in(&SimDisk::new(1), 1, (128 << 10, 0), |_| ()).expect("no fault");
    let keyspace = store.open_hashed("h", &[]).expect("no fault");
    let most_runs = || {
        let pin = store.epoch.pin();
        let tree = store.views.load(&pin).get().version.tree(keyspace.tree).expect("it is there");
        tree.trie().expect("it is hashed").root().most_runs()
    };
    let mut longest = 0;
    for from in (0..items).step_by(FLUSH_ITEMS) {
        let numbers = from..items.min(from + FLUSH_ITEMS as u32);
        put(&store, &keyspace, numbers.map(|number| keys(&store, &keyspace, number)));
        threads.run_until_idle();
        longest = longest.max(most_runs());
    }
    store.settle().expect("no fault");
    for number in (0..items).step_by(7) {
        let key = keys(&store, &keyspace, number);
        let has_value = |value: Option<&[u8]>| value.is_some_and(|value| value.len() == VALUE_BYTES);
        let wanted = (&key[..], Wants::Value);
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

/// With a seed that has leaked, keys of one path keep to the bounds of piles, every one is found, and at most
/// three times as many bytes are written as for any keys. Counted here, with tables of 16 KiB, half of which
/// are pages that begin and end them: 5.86 bytes a byte put, and 5.82 for any keys.
#[test]
fn keys_of_one_path_are_bounded() {
    let (usual, usual_runs) = amplification(stored, 14_000);
    let (one_path, runs) = amplification(|_, _, number| ground(number), 14_000);
    println!("{one_path} % written of one path, {usual} % of any keys; {runs} and {usual_runs} runs");
    assert!(one_path <= 3 * usual, "{one_path} % of one path, {usual} % of any keys");
    assert!(runs <= 17 && usual_runs <= 17, "{runs}, {usual_runs} runs");
}
