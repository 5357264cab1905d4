//! The memory budget: the store stays within it under any load.

use std::pin::Pin;
use std::task::{Context, Waker};

use trine::sim::{Failure, Fault, Operation, Repeat, World};
use trine::{Db, Error, GetAsync, Keyspace, MemoryRole, Ordered, Snapshot};

use crate::support::divided;

fn open(world: &World) -> Db {
    world.builder().memory_bytes(2 << 20).open().unwrap()
}

/// A merged keyspace of `count` items with blocks of 16 KiB; a small cache has frames for few of them.
fn in_large_blocks(db: &Db, count: u64) -> Keyspace<Ordered> {
    let items = db.ordered("a").set("block_bytes", 16 << 10).open().unwrap();
    for number in 0..count {
        items.put(number.to_be_bytes(), [number as u8; 1000]).unwrap();
    }
    db.compact().unwrap();
    items
}

fn role(db: &Db, name: &str) -> MemoryRole {
    db.stats().memory.roles.into_iter().find(|role| role.name == name).unwrap()
}

/// Asserts that all roles together use at most a tenth more than the budget.
fn check(db: &Db, what: &str) {
    let memory = db.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes / 10 * 11, "{what}: {memory:?}");
}

/// A closure that gets a value may write any amount: no write buffer is kept for it, whether the value is
/// copied or in a block.
#[test]
fn closures_keep_no_write_buffer() {
    let world = World::new(1);
    let db = open(&world);
    let items = db.ordered("a").set("block_bytes", 16 << 10).open().unwrap();
    let long = vec![7; 9000];
    items.put("short", "1").unwrap();
    items.put("long", &long).unwrap();
    let snapshot = db.snapshot();
    let write = || {
        for number in 0..6000u32 {
            items.put((number % 500).to_be_bytes(), [3; 1000]).unwrap();
            if number % 500 == 0 {
                check(&db, "in a closure");
            }
        }
        check(&db, "at the end of a closure");
    };
    for round in 0..2 {
        // In the first round the items are in a write buffer, in the second in a table.
        for (key, value) in [("short", &b"1"[..]), ("long", &long)] {
            let taken = items.get_with(key, |found| {
                assert_eq!(found, value, "round {round}");
                write();
                assert_eq!(found, value, "round {round}");
            });
            assert_eq!(taken.unwrap(), Some(()));
        }
        let mut seen = 0;
        items
            .multi_get_with(&["long", "none", "short"], |number, found| {
                write();
                let wanted = [Some(&long[..]), None, Some(&b"1"[..])];
                assert_eq!(found, wanted[number], "round {round}");
                seen += 1;
            })
            .unwrap();
        assert_eq!(seen, 3);
        let then = items.at(&snapshot);
        let length = then.get_with("long", |found| {
            write();
            found.len()
        });
        assert_eq!(length.unwrap(), Some(9000));
        let mut seen = 0;
        then.multi_get_with(&["long"], |_, found| {
            write();
            seen += usize::from(found == Some(&long[..]));
        })
        .unwrap();
        assert_eq!(seen, 1);
        db.flush().unwrap();
    }
}

/// A read inside a closure has memory of its own.
#[test]
fn closures_read_too() {
    let world = World::new(2);
    let items = open(&world).ordered("a").open().unwrap();
    items.put("a", "1").unwrap();
    items.put("b", "22").unwrap();
    let both = items.get_with("a", |a| {
        let b = items.get_with("b", |b| (a.to_vec(), b.to_vec())).unwrap();
        (a.to_vec(), b)
    });
    assert_eq!(both.unwrap(), Some((b"1".to_vec(), Some((b"1".to_vec(), b"22".to_vec())))));
}

/// Keyspaces are made until the memory for their metadata is used up. Then the error names the role without
/// room, and nothing is made. Dropping one makes room again.
#[test]
fn keyspaces_are_as_many_as_there_is_room_for() {
    let world = World::new(3);
    let db = open(&world);
    let name = |number: u32| format!("k{number}");
    let mut made = 0;
    let refused = loop {
        match db.ordered(&name(made)).open() {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    let Error::Memory { role: whose, limit, wanted } = &refused else { panic!("{refused}") };
    assert_eq!((*whose, wanted > limit, made > 1000), ("manifest", true, true));
    assert!(refused.to_string().contains("memory_bytes"), "{refused}");
    let manifest = role(&db, "manifest");
    assert!(manifest.bytes <= manifest.limit_bytes && manifest.refusals == 1, "{manifest:?}");
    assert!(matches!(db.keyspace(&name(made)), Err(Error::NoKeyspace { .. })));
    assert!(db.ordered(&name(0)).open().is_ok(), "it is there");
    db.drop_keyspace(&name(0)).unwrap();
    db.ordered(&name(made)).open().unwrap();
}

/// Partitions count like keyspaces.
#[test]
fn partitions_are_as_many_as_there_is_room_for() {
    let world = World::new(3);
    let db = open(&world);
    let events = divided(&db, "events");
    let name = |number: u32| number.to_be_bytes();
    let mut made = 0;
    let refused = loop {
        match events.partition(name(made)) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Memory { role: "manifest", .. }) && made > 1000, "{refused}, {made}");
    assert!(events.find_partition(name(made)).unwrap().is_none());
    assert!(events.partition(name(0)).is_ok(), "it is there");
    assert!(events.drop_partition(name(0)).unwrap());
    events.partition(name(made)).unwrap();
}

/// A thousand snapshots, each with its own writes, several for each write buffer: the budget holds, and their
/// files have at most a few times the written bytes.
#[test]
fn a_thousand_snapshots_are_within_the_budget() {
    let world = World::new(5);
    let db = open(&world);
    let items = db.ordered("a").open().unwrap();
    let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52).to_be_bytes();
    let mut taken: Vec<Snapshot> = Vec::new();
    for number in 0..10_000u64 {
        items.put(key(number), number.to_be_bytes().repeat(60)).unwrap();
        if number % 10 == 9 {
            taken.push(db.snapshot());
        }
        if number % 150 == 99 {
            check(&db, &format!("with {} snapshots", taken.len()));
        }
    }
    world.run_until_idle();
    let stats = db.stats();
    assert_eq!((stats.snapshots.alive, role(&db, "kept write buffers").refusals), (1000, 0));
    // Some 30 snapshots share a write buffer.
    let written_bytes = 10_000 * 488;
    assert!(stats.space.history_bytes <= (2 + 5) * written_bytes, "{stats:?}");
    for (index, snapshot) in (0..).zip(&taken).step_by(37) {
        let last = index * 10 + 9;
        let found = items.at(snapshot).get(key(last)).unwrap().unwrap();
        assert_eq!(found[..8], last.to_be_bytes(), "snapshot {index}");
    }
}

/// While history cannot be written to files, writers continue as long as the budget has room. Then writes
/// fail with an error that names the cause. Once the snapshots are dropped there is room again.
#[test]
fn writers_are_told_when_snapshots_keep_too_much() {
    let world = World::new(6);
    let db = open(&world);
    let items = db.ordered("a").open().unwrap();
    world.fail(&[Fault::of(Operation::Write, Failure::Full).in_files("history").repeat(Repeat::Always)]);
    let (mut taken, mut number) = (Vec::new(), 0u64);
    let mut write = |taken: &mut Vec<Snapshot>, count: u64| {
        for _ in 0..count {
            number += 1;
            items.put((number % 100).to_be_bytes(), [7; 1000])?;
            taken.push(db.snapshot());
            if number % 60 == 0 {
                check(&db, "while snapshots keep write buffers");
            }
        }
        Ok::<(), Error>(())
    };
    let refused = write(&mut taken, 10_000).unwrap_err();
    assert!(matches!(&refused, Error::Full { file } if file.starts_with("history")), "{refused}");
    assert!(taken.len() > 500, "{} snapshots", taken.len());
    let again = write(&mut taken, 10_000).unwrap_err();
    assert!(matches!(again, Error::Full { .. }), "{again}");
    assert_eq!(items.get(1u64.to_be_bytes()).unwrap().as_deref(), Some(&[7; 1000][..]));
    // No background work runs in between.
    taken.clear();
    write(&mut Vec::new(), 500).unwrap();
    // The disk has room again: any number of snapshots is possible.
    world.fail(&[]);
    write(&mut taken, 3000).unwrap();
    assert!(db.stats().snapshots.history_tables > 0);
}

/// Range tombstones of several times the budget in total. Writers are slowed until merges have dropped the
/// tombstones that hide nothing. No item is lost.
#[test]
fn range_tombstones_are_within_the_budget() {
    const COUNT: u32 = 3000;
    let world = World::new(7);
    let db = open(&world);
    let items = db.ordered("a").open().unwrap();
    let name = |number: u32| format!("{:08x}", number.wrapping_mul(0x9e37_79b1));
    (0..COUNT / 10).for_each(|number| items.put(name(number), [5; 100]).unwrap());
    db.flush().unwrap();
    let pad = "p".repeat(1000);
    let (mut bounds_bytes_max, mut pressure_max) = (0, 0);
    for number in 0..COUNT {
        let key = name(number) + &pad;
        items.delete_range(format!("{key}a")..format!("{key}b")).unwrap();
        if number % 20 == 0 {
            check(&db, "with range tombstones");
            bounds_bytes_max = bounds_bytes_max.max(role(&db, "table bounds").bytes);
            pressure_max = pressure_max.max(db.stats().write.pressure);
        }
    }
    let limit_bytes = role(&db, "table bounds").limit_bytes;
    assert!(bounds_bytes_max > limit_bytes / 2, "{bounds_bytes_max} of {limit_bytes}");
    assert!(pressure_max > 0, "writers are slowed");
    db.settle().unwrap();
    assert!(role(&db, "table bounds").bytes < limit_bytes / 10);
    (0..COUNT / 10).for_each(|number| assert!(items.contains(name(number)).unwrap(), "{number}"));
}

/// Futures that were polled once and never again keep write buffers that no history can replace. Writes then
/// fail with the role that has no room, and succeed once the futures are dropped.
#[test]
fn writers_are_told_when_futures_keep_too_much() {
    let world = World::new(8);
    let db = open(&world);
    let cold = db.ordered("cold").open().unwrap();
    (0..3000u32).for_each(|number| cold.put(number.to_be_bytes(), [3; 1000]).unwrap());
    db.compact().unwrap();
    drop(cold);
    db.close().unwrap();
    let db = open(&world);
    let (cold, hot) = (db.ordered("cold").open().unwrap(), db.ordered("hot").open().unwrap());
    let mut begun: Vec<GetAsync> = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    let refused = (0..20_000u32).find_map(|number| {
        if number % 50 == 0 {
            let mut get = cold.get_async((number / 50 * 10 % 3000).to_be_bytes());
            if Pin::new(&mut get).poll(&mut context).is_pending() {
                begun.push(get);
            }
            check(&db, "beside futures");
        }
        hot.put((number % 100).to_be_bytes(), [7; 1000]).err()
    });
    let refused = refused.expect("there is no end to it");
    assert!(matches!(refused, Error::Memory { role: "kept write buffers", .. }), "{refused}");
    assert!(role(&db, "kept write buffers").refusals > 0);
    assert!(hot.get(1u32.to_be_bytes()).unwrap().is_some());
    begun.clear();
    world.advance_ns(1_000_000_000);
    world.run_until_idle();
    (0..1000u32).for_each(|number| hot.put((number % 100).to_be_bytes(), [8; 1000]).unwrap());
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap())
}

/// Thousands of iterators, each in a block of its own, hold only a part of the cache. Iterators without room
/// continue at their position, in both directions.
#[test]
fn idle_iterators_hold_a_part_of_the_cache() {
    const ITEMS: u64 = 60_000;
    const ITERATORS: u64 = 3000;
    let world = World::new(4);
    let db = world.builder().memory_bytes(32 << 20).open().unwrap();
    let items = db.ordered("a").set("block_bytes", 64 << 10).open().unwrap();
    for number in 0..ITEMS {
        items.put((number * 7919 % ITEMS).to_be_bytes(), [number as u8; 1000]).unwrap();
    }
    db.compact().unwrap();
    let start = |iterator: u64| iterator * 6011 % (ITEMS - 100);
    let mut held = Vec::new();
    for iterator in 0..ITERATORS {
        let first = start(iterator);
        let mut range = items.range(first.to_be_bytes()..(first + 40).to_be_bytes());
        assert_eq!(number(&range.next().unwrap().unwrap().0), first);
        let mut cursor = items.cursor(..first.to_be_bytes());
        let before = cursor.prev().unwrap().map(|(key, _)| number(key));
        assert_eq!(before, first.checked_sub(1));
        held.push((range, cursor));
        if iterator % 500 == 0 {
            check(&db, "with iterators");
        }
    }
    check(&db, "with all iterators");
    let iterators = role(&db, "iterators");
    assert!(iterators.bytes <= iterators.limit_bytes && iterators.refusals > 0, "{iterators:?}");
    for step in 1..4 {
        for (iterator, (range, cursor)) in (0..).zip(&mut held) {
            let first = start(iterator);
            assert_eq!(number(&range.next().unwrap().unwrap().0), first + step);
            assert_eq!(number(&range.next_back().unwrap().unwrap().0), first + 40 - step);
            let before = cursor.prev().unwrap().map(|(key, _)| number(key));
            assert_eq!(before, first.checked_sub(1 + step));
        }
        check(&db, "after steps");
    }
    for (iterator, (range, mut cursor)) in (0..).zip(held) {
        let first = start(iterator);
        let left: Vec<u64> = range.map(|item| number(&item.unwrap().0)).collect();
        assert_eq!(left, (first + 4..first + 37).collect::<Vec<_>>());
        let turned = cursor.next().unwrap().map(|(key, _)| number(key));
        assert_eq!(turned, (first > 0).then(|| if first < 4 { 0 } else { first - 3 }));
    }
    assert_eq!(role(&db, "iterators").bytes, 0, "they are gone");
}

/// The items that open iterators and cursors have read ahead come from the budget too. Iterators that get no
/// room read none ahead, and find the same items.
#[test]
fn items_read_ahead_are_granted() {
    const ITEMS: u64 = 2000;
    let world = World::new(14);
    let db = open(&world);
    let items = db.ordered("a").open().unwrap();
    for number in 0..ITEMS {
        items.put((number * 7919 % ITEMS).to_be_bytes(), [number as u8; 100]).unwrap();
    }
    db.compact().unwrap();
    let mut held = Vec::new();
    for iterator in 0..3000 {
        let first = iterator * 601 % (ITEMS - 40);
        // Half of the ranges are read completely by their first step.
        let length = if iterator % 2 == 0 { 10 } else { 40 };
        let mut range = items.range(first.to_be_bytes()..(first + length).to_be_bytes());
        let mut cursor = items.cursor(first.to_be_bytes()..);
        assert_eq!(number(&range.next().unwrap().unwrap().0), first);
        assert_eq!(cursor.next().unwrap().map(|(key, _)| number(key)), Some(first));
        held.push((first, length, range, cursor));
    }
    check(&db, "with all iterators");
    let ahead = role(&db, "items read ahead");
    assert!(ahead.bytes <= ahead.limit_bytes && ahead.refusals > 0, "{ahead:?}");
    assert!(ahead.bytes * 2 > ahead.limit_bytes, "{ahead:?}");
    for number in 0..ITEMS {
        items.delete(number.to_be_bytes()).unwrap();
    }
    for (first, length, range, mut cursor) in held {
        let left: Vec<u64> = range.map(|item| number(&item.unwrap().0)).collect();
        assert_eq!(left, (first + 1..first + length).collect::<Vec<_>>());
        for next in first + 1..first + 30 {
            assert_eq!(cursor.next().unwrap().map(|(key, _)| number(key)), Some(next));
        }
    }
    assert_eq!(role(&db, "items read ahead").bytes, 0, "they are gone");
}

/// Idle iterators keep no write buffer while others are flushed: neither new ones nor those at an item of a
/// write buffer. They still return the items of their view.
#[test]
fn idle_iterators_keep_no_write_buffer() {
    let world = World::new(5);
    let db = open(&world);
    let items = db.ordered("a").open().unwrap();
    let put_all = |round: u64| {
        for number in 0..1000u64 {
            items.put(number.to_be_bytes(), [round as u8; 200]).unwrap();
        }
    };
    let mut held = Vec::new();
    for round in 0..30 {
        put_all(round);
        let (fresh, mut range, mut cursor) = (items.iter(), items.iter(), items.cursor(..));
        assert_eq!(number(&range.next().unwrap().unwrap().0), 0);
        assert_eq!(number(&range.next_back().unwrap().unwrap().0), 999);
        assert_eq!(cursor.prev().unwrap().map(|(_, value)| value[0]), Some(round as u8));
        held.push((round, fresh, range, cursor));
    }
    for round in 30..60 {
        put_all(round);
        check(&db, "with iterators");
    }
    world.run_until_idle();
    let stats = db.stats();
    assert!(stats.snapshots.generation_bytes * 16 <= stats.memory.budget_bytes, "{stats:?}");
    assert!(stats.snapshots.history_tables > 0, "{stats:?}");
    for (round, fresh, range, mut cursor) in held {
        let value =
            |item: trine::Result<(trine::Value, trine::Value)>| item.unwrap().1[..] == [round as u8; 200];
        assert_eq!(cursor.prev().unwrap().map(|(key, _)| number(key)), Some(998));
        assert_eq!(fresh.map(value).filter(|is_same| *is_same).count(), 1000, "round {round}");
        assert_eq!(range.map(value).filter(|is_same| *is_same).count(), 998, "round {round}");
    }
    check(&db, "at the end");
}

/// The blocks held by asynchronous iterators come from the budget as well.
#[test]
fn iterators_of_futures_hold_a_part_of_the_cache() {
    let world = World::new(6);
    let db = open(&world);
    let items = in_large_blocks(&db, 4000);
    let mut held: Vec<_> = (0..300u64).map(|first| items.range_async((first * 13).to_be_bytes()..)).collect();
    for step in 0..3 {
        for (first, range) in (0..).zip(&mut held) {
            let (key, value) = trine::block_on(range.next()).unwrap().unwrap();
            assert_eq!((number(&key), value[0]), (first * 13 + step, (first * 13 + step) as u8));
        }
        check(&db, "with iterators of futures");
    }
    let iterators = role(&db, "iterators");
    assert!(iterators.bytes <= iterators.limit_bytes && iterators.refusals > 0, "{iterators:?}");
    drop(held);
    assert_eq!(role(&db, "iterators").bytes, 0, "they are gone");
}

/// Any number of futures that are not polled after their block has arrived hold a bounded part of the cache.
/// Each finds its item once it is polled: alone, or with all others.
#[test]
fn blocks_of_idle_futures_are_bounded() {
    for (is_scan, is_alone) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new(8);
        let db = open(&world);
        let items = in_large_blocks(&db, 8000);
        world.run_until_idle();
        let mut context = Context::from_waker(Waker::noop());
        let find = |number: u64| -> Pin<Box<dyn Future<Output = Vec<u8>>>> {
            let key = number.to_be_bytes();
            if is_scan {
                let mut range = items.range_async(key..);
                Box::pin(async move { range.next().await.unwrap().unwrap().1[..].to_vec() })
            } else {
                let get = items.get_async(key);
                Box::pin(async move { get.await.unwrap().unwrap()[..].to_vec() })
            }
        };
        let mut held: Vec<_> = (0..400u64).map(|index| (index * 20, find(index * 20))).collect();
        held.retain_mut(|(_, find)| find.as_mut().poll(&mut context).is_pending());
        assert!(held.len() > 300, "{} wait", held.len());
        world.run_until_idle();
        check(&db, "with idle futures");
        let untaken = role(&db, "blocks for futures");
        assert!(untaken.bytes <= untaken.limit_bytes && untaken.refusals > 0, "{untaken:?}");
        assert_eq!(db.stats().io.reads_in_flight, 0);
        let found: Vec<(u64, Vec<u8>)> = if is_alone {
            held.into_iter().rev().map(|(number, find)| (number, trine::block_on(find))).collect()
        } else {
            let (numbers, finds): (Vec<_>, Vec<_>) = held.into_iter().unzip();
            let found = trine::block_on(futures_util::future::join_all(finds));
            numbers.into_iter().zip(found).collect()
        };
        assert!(found.iter().all(|(number, value)| *value == [*number as u8; 1000]));
        assert_eq!(role(&db, "blocks for futures").bytes, 0, "they are gone");
        check(&db, "at the end");
    }
}

/// A future that was dropped while waiting for a block keeps no write buffer.
#[test]
fn dropped_futures_keep_no_write_buffer() {
    use std::future::Future;
    use std::task::{Context, Waker};
    let world = World::new(7);
    let db = open(&world);
    let items = in_large_blocks(&db, 6000);
    world.run_until_idle();
    let mut held = Vec::new();
    for round in 0..20u64 {
        for number in 0..600u64 {
            items.put((10_000 + number).to_be_bytes(), [round as u8; 200]).unwrap();
        }
        let mut range = items.range_async((round * 250).to_be_bytes()..);
        let is_taken = {
            let mut next = std::pin::pin!(range.next());
            let first = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            first.is_ready()
        };
        held.push((u64::from(is_taken), range));
    }
    for round in 20..60u64 {
        for number in 0..600u64 {
            items.put((10_000 + number).to_be_bytes(), [round as u8; 200]).unwrap();
        }
        check(&db, "with dropped futures");
    }
    world.run_until_idle();
    let stats = db.stats();
    assert!(stats.snapshots.generation_bytes * 16 <= stats.memory.budget_bytes, "{stats:?}");
    assert!(held.iter().any(|(taken, _)| *taken == 0), "some wait for a block");
    for (round, (taken, mut range)) in (0..).zip(held) {
        let (key, _) = trine::block_on(range.next()).unwrap().unwrap();
        assert_eq!(number(&key), round * 250 + taken);
    }
}
