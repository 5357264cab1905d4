//! Many trees: what a merge costs does not grow with their number.

use super::run;
use crate::base::id::ItemKind;
use crate::io::sim::SimDisk;
use crate::write::batch::Items;

/// Looks at a tree, and merges, that it takes to settle so many keyspaces of five flushed runs each.
fn looks_to_settle(keyspaces: usize) -> (u64, u64) {
    let (store, _threads) = run::open_in(&SimDisk::new(1), 1, (8 << 20, 0), |_| ()).expect("no fault");
    let all: Vec<_> = (0..keyspaces)
        .map(|number| store.open_keyspace(&format!("k{number}"), &[]).expect("no fault"))
        .collect();
    for round in 0..5u64 {
        let mut items = Items::default();
        for keyspace in &all {
            items.push(keyspace.tree, ItemKind::Put, &round.to_be_bytes(), b"value").expect("is short");
        }
        store.write(&items, None).expect("no fault");
        store.flush().expect("no fault");
    }
    let before = store.look_at_trees().looks();
    store.settle().expect("no fault");
    let looks = store.look_at_trees().looks() - before;
    assert!(!store.is_merge_due());
    let merges = store.stats().background.merges;
    store.close().expect("closes");
    (looks, merges)
}

/// Each merge has its own tree looked at, and no other: four times as many keyspaces are settled by four
/// times as many looks.
#[test]
fn settling_keyspaces_looks_at_what_changed() {
    let (few, merges) = looks_to_settle(25);
    assert!(merges >= 25 && few <= 6 * merges, "{few} looks for {merges} merges");
    let (many, merges) = looks_to_settle(100);
    assert!(merges >= 100);
    assert!(many * 10 <= few * 44, "{few} looks for 25 keyspaces, {many} for 100");
}
