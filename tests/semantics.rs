//! Differences from a `BTreeMap`, or from a store with transactions, that a program may rely on: the rows of
//! docs/LIMITS.md under "What is different from other maps".

use std::ops::Bound;

use trine::sim::{Failure, Fault, Operation, Repeat, World};
use trine::{Db, Error, Keyspace, Ordered, Range};

use crate::support::{Scratch, small};

fn open(seed: u64) -> (World, Db, Keyspace<Ordered>) {
    let world = World::new(seed);
    let db = world.builder().memory_bytes(8 << 20).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (world, db, items)
}

fn keys(range: Range) -> Vec<String> {
    range.map(|item| String::from_utf8(item.unwrap().0.into()).unwrap()).collect()
}

/// A range whose bounds are inverted, or leave no key between them, is empty, where a `BTreeMap` panics. A
/// range delete of such bounds writes nothing.
#[test]
fn inverted_ranges_are_empty() {
    let (_world, db, items) = open(1);
    ["a", "b", "c"].iter().for_each(|key| items.put(key, b"").unwrap());
    let sequence = || db.stats().write.commits;
    let before = sequence();
    let bounds = [
        (Bound::Included("c"), Bound::Included("a")),
        (Bound::Included("c"), Bound::Excluded("a")),
        (Bound::Excluded("b"), Bound::Excluded("b")),
        (Bound::Included("b"), Bound::Excluded("b")),
        (Bound::Excluded("b"), Bound::Included("b")),
        (Bound::Unbounded, Bound::Excluded("")),
    ];
    for range in bounds {
        assert_eq!(items.range(range).count(), 0, "{range:?}");
        assert_eq!(items.range(range).rev().count(), 0, "{range:?}");
        assert!(items.at(&db.snapshot()).range(range).next().is_none(), "{range:?}");
        let mut cursor = items.cursor(range);
        assert!(cursor.next().unwrap().is_none() && cursor.prev().unwrap().is_none(), "{range:?}");
        items.delete_range(range).unwrap();
        let mut batch = db.batch();
        batch.delete_range(&items, range).unwrap();
        assert!(batch.is_empty(), "{range:?}");
    }
    assert_eq!((sequence(), items.iter().count()), (before, 3));
}

/// A key over the limit is refused by writes and absent for reads. As a bound of a scan it is ordered as
/// usual, as a bound of a range delete it is refused.
#[test]
fn long_keys_are_refused_or_absent() {
    let (_world, db, items) = open(2);
    let long = vec![b'b'; 65_536];
    ["a", "b", "c"].iter().for_each(|key| items.put(key, b"").unwrap());
    let is_too_large = |result: trine::Result<()>| matches!(result, Err(Error::TooLarge { what: "key", .. }));
    assert!(is_too_large(items.put(&long, b"")));
    assert!(is_too_large(items.delete(&long)));
    assert!(is_too_large(items.delete_range(&long[..]..)));
    assert!(is_too_large(db.batch().put(&items, &long, b"")));
    assert_eq!(items.get(&long).unwrap(), None);
    assert!(!items.contains(&long).unwrap());
    assert_eq!(keys(items.range(&long[..]..)), ["c"]);
    assert_eq!(keys(items.range(..=&long[..])), ["a", "b"]);
}

/// The empty key is a key, before all others; the empty value is a value.
#[test]
fn empty_keys_and_values_are_items() {
    let (_world, db, items) = open(3);
    items.put("a", "1").unwrap();
    assert_eq!(items.get("").unwrap(), None);
    items.put("", "").unwrap();
    for _ in 0..2 {
        assert_eq!(items.get("").unwrap().as_deref(), Some(&b""[..]));
        assert!(items.contains("").unwrap());
        assert_eq!(items.first().unwrap().unwrap().0, b""[..]);
        assert_eq!(keys(items.range(..="")), [""]);
        assert_eq!(keys(items.prefix("")), ["", "a"]);
        db.compact().unwrap();
    }
    items.delete_range(..="").unwrap();
    assert_eq!(keys(items.iter()), ["a"]);
}

/// A write does not report the previous value: deletes of absent keys succeed, and a put replaces any other.
#[test]
fn writes_do_not_look() {
    let (_world, db, items) = open(4);
    items.delete("never").unwrap();
    items.delete_range("x"..).unwrap();
    items.clear().unwrap();
    items.put("a", "1").unwrap();
    items.put("a", "2").unwrap();
    assert_eq!(items.get("a").unwrap().as_deref(), Some(&b"2"[..]));
    let reads = db.stats().io.reads;
    (0..1000u32).for_each(|number| items.delete(number.to_be_bytes()).unwrap());
    assert_eq!(db.stats().io.reads, reads);
}

/// A range has a view from when it was made, not from its first step. Its thread may write the range's keys
/// meanwhile.
#[test]
fn ranges_see_the_moment_they_were_made() {
    let (_world, db, items) = open(5);
    ["a", "b", "c"].iter().for_each(|key| items.put(key, b"1").unwrap());
    let (made, cursor) = (items.iter(), items.cursor(..));
    items.put("b", "2").unwrap();
    items.put("d", "2").unwrap();
    for item in items.iter() {
        items.delete(item.unwrap().0).unwrap();
        db.flush().unwrap();
    }
    assert!(items.is_empty().unwrap());
    assert!(made.map(|item| item.unwrap().1).eq([b"1"; 3]));
    let mut cursor = cursor;
    assert_eq!(cursor.next().unwrap(), Some((&b"a"[..], &b"1"[..])));
}

/// There are no transactions: a value may change between a read and a write that depends on it, and the later
/// commit wins. A batch cannot be read before its commit, and batches take effect in commit order, not in the
/// order they were made.
#[test]
fn the_last_commit_wins() {
    let (_world, db, items) = open(6);
    items.put("count", [1]).unwrap();
    let (one, other) = (items.get("count").unwrap().unwrap(), items.get("count").unwrap().unwrap());
    items.put("count", [one[0] + 1]).unwrap();
    items.put("count", [other[0] + 1]).unwrap();
    assert_eq!(items.get("count").unwrap().as_deref(), Some(&[2][..]));

    let (mut first, mut second) = (db.batch(), db.batch());
    first.put(&items, "key", "first").unwrap();
    second.put(&items, "key", "second").unwrap();
    assert_eq!(items.get("key").unwrap(), None);
    second.commit().unwrap();
    first.commit().unwrap();
    assert_eq!(items.get("key").unwrap().as_deref(), Some(&b"first"[..]));
    first.put(&items, "key", "dropped").unwrap();
    drop(first);
    assert_eq!(items.get("key").unwrap().as_deref(), Some(&b"first"[..]));
}

/// Within a batch, writes take effect in their order, range deletes included.
#[test]
fn batches_are_in_their_order() {
    let (_world, db, items) = open(7);
    items.put("old", "").unwrap();
    let mut batch = db.batch();
    batch.put(&items, "a", "1").unwrap();
    batch.put(&items, "b", "1").unwrap();
    batch.delete_range(&items, ..).unwrap();
    batch.put(&items, "b", "2").unwrap();
    batch.put(&items, "c", "2").unwrap();
    batch.delete(&items, "c").unwrap();
    batch.put(&items, "d", "1").unwrap();
    batch.put(&items, "d", "2").unwrap();
    batch.commit().unwrap();
    for _ in 0..2 {
        assert_eq!(keys(items.iter()), ["b", "d"]);
        assert_eq!(items.get("d").unwrap().as_deref(), Some(&b"2"[..]));
        db.compact().unwrap();
    }
}

/// Opening a keyspace by name twice gives handles of the same keyspace. The store stays open until the last
/// handle that reads or writes is dropped, and `close` closes it for all handles.
#[test]
fn handles_are_of_one_keyspace_and_one_store() {
    let scratch = Scratch::new();
    let open = || small(&scratch.data()).open();
    let db = open().unwrap();
    let (one, other) = (db.ordered("items").open().unwrap(), db.ordered("items").open().unwrap());
    one.put("a", "1").unwrap();
    assert_eq!(other.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    let (range, snapshot, batch) = (one.iter(), db.snapshot(), db.batch());
    drop((db, one, other));
    assert!(matches!(open(), Err(Error::Locked { .. })));
    drop((snapshot, batch));
    assert!(matches!(open(), Err(Error::Locked { .. })));
    assert_eq!(range.count(), 1);

    let db = open().unwrap();
    let (items, mut range) =
        (db.ordered("items").open().unwrap(), db.ordered("items").open().unwrap().iter());
    db.clone().close().unwrap();
    assert!(matches!(items.get("a"), Err(Error::Closed)));
    assert!(matches!(range.next(), Some(Err(Error::Closed))));
    assert!(open().is_ok());
}

/// Handles of a dropped keyspace answer `Dropped`, and so do ranges made from them. A new keyspace of that
/// name is another one. Earlier ranges and snapshots can still be read.
#[test]
fn handles_of_a_dropped_keyspace_are_told() {
    let (_world, db, items) = open(8);
    items.put("a", "1").unwrap();
    let (range, before) = (items.iter(), db.snapshot());
    db.drop_keyspace("items").unwrap();
    let new = db.ordered("items").open().unwrap();
    assert!(matches!(items.get("a"), Err(Error::Dropped { .. })));
    assert!(matches!(items.put("a", "2"), Err(Error::Dropped { .. })));
    assert!(items.iter().next().is_some_and(|item| matches!(item, Err(Error::Dropped { .. }))));
    assert_eq!(keys(range), ["a"]);
    assert!(new.is_empty().unwrap());
    assert_eq!(keys(items.at(&before).iter()), ["a"]);
}

/// The items of a range are results. A failed read is the last of them. A new range continues to work.
#[test]
fn ranges_end_with_their_error() {
    let (world, db, items) = open(9);
    (0..20_000u32).for_each(|number| items.put(number.to_be_bytes(), [7; 100]).unwrap());
    db.compact().unwrap();
    drop(items);
    db.close().unwrap();
    let db = world.builder().memory_bytes(8 << 20).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    let fault = Fault::of(Operation::Read, Failure::Io).in_files("table").after(3);
    world.fail(&[fault.repeat(Repeat::Always)]);
    let mut range = items.iter();
    let last = range.by_ref().find(Result::is_err);
    assert!(matches!(last, Some(Err(Error::Io { .. }))), "{last:?}");
    world.fail(&[]);
    assert!(range.next().is_none() && range.next_back().is_none());
    assert_eq!(items.iter().filter(Result::is_ok).count(), 20_000);
}
