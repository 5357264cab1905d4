//! Measures the cost of many keyspaces in one store: load, settle, memory, gets, creating, dropping, opening.
//!
//! `cargo run --release --example trees -- DIR KEYSPACES ITEMS [MEMORY_MIB [GETS]]`: puts ITEMS of 16 + 100
//! bytes in random order, each into the keyspace of its number, flushes, settles, gets random items, and
//! opens the store again. The baseline is the same ITEMS in one keyspace.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures, not the library"
)]

mod items;

use std::time::{Duration, Instant};

use items::{key, next, value};
use trine::{Db, Keyspace, Ordered};

/// Keyspaces created and dropped to measure the times.
const MADE: u64 = 50;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, numbers @ ..] = arguments.as_slice() else {
        eprintln!("usage: trees DIR KEYSPACES ITEMS [MEMORY_MIB [GETS]]");
        std::process::exit(2);
    };
    let number = |index: usize, default| numbers.get(index).map_or(default, |text| text.parse().unwrap());
    let (trees, items) = (number(0, 1000), number(1, 1_000_000));
    let (memory_mib, gets) = (number(2, 256), number(3, 1_000_000));
    let open = || Db::builder(dir).memory_bytes(memory_mib << 20).open().unwrap();
    let db = open();
    let (keyspaces, took) = timed(|| open_all(&db, trees));
    println!("make {trees} keyspaces: {:.3} s", took.as_secs_f64());
    let (_, load) = timed(|| {
        for number in 0..items {
            keyspaces[(number % trees) as usize].put(key(number), value(number)).unwrap();
        }
    });
    let (_, settle) = timed(|| {
        db.flush().unwrap();
        db.settle().unwrap();
    });
    let (load, settle) = (load.as_secs_f64(), settle.as_secs_f64());
    let rate = items as f64 / (load + settle) / 1e3;
    println!("load {load:.2} s, settle {settle:.2} s, together {rate:.1} K items/s");
    tell_memory(&db, trees);
    tell_gets(&keyspaces, items, gets);
    tell_making(&db);
    drop(keyspaces);
    db.close().unwrap();
    let (db, opened) = timed(open);
    let (keyspaces, took) = timed(|| open_all(&db, trees));
    let first = keyspaces[(trees / 2) as usize].get(key(trees / 2)).unwrap();
    assert!(first.is_some_and(|first| first == value(trees / 2)));
    println!("open {:.3} s, its keyspaces {:.3} s", opened.as_secs_f64(), took.as_secs_f64());
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = what();
    (done, began.elapsed())
}

fn open_all(db: &Db, trees: u64) -> Vec<Keyspace<Ordered>> {
    (0..trees).map(|number| db.ordered(&format!("t{number:06}")).open().unwrap()).collect()
}

fn tell_memory(db: &Db, trees: u64) {
    let stats = db.stats();
    let each = |name: &str| {
        let role = stats.memory.roles.iter().find(|role| role.name == name);
        role.unwrap().bytes as f64 / trees as f64
    };
    println!(
        "memory a keyspace: filters and fences {:.0}, table bounds {:.0}, manifest {:.0} bytes",
        each("filters and fences"),
        each("table bounds"),
        each("manifest")
    );
    println!(
        "merges {}, written by them {} MiB",
        stats.background.merges,
        stats.write.merge_write_bytes >> 20
    );
}

fn tell_gets(keyspaces: &[Keyspace<Ordered>], items: u64, gets: u64) {
    let trees = keyspaces.len() as u64;
    let mut state = 1;
    let mut get = |count: u64, is_absent: bool| {
        for _ in 0..count {
            let number = next(&mut state) % items;
            let wanted = if is_absent { number + items } else { number };
            let found = keyspaces[(number % trees) as usize].get_with(key(wanted), |value| value.len());
            assert_eq!(found.unwrap().is_some(), !is_absent);
        }
    };
    get(items.min(gets), false);
    let (_, present) = timed(|| get(gets, false));
    let (_, absent) = timed(|| get(gets, true));
    let ns = |took: Duration| took.as_nanos() as f64 / gets as f64;
    println!("get {:.0} ns, absent {:.0} ns", ns(present), ns(absent));
}

fn tell_making(db: &Db) {
    let name = |number| format!("made{number:03}");
    let ms = |took: Duration| took.as_secs_f64() * 1e3 / MADE as f64;
    let (made, making) =
        timed(|| (0..MADE).map(|number| db.ordered(&name(number)).open().unwrap()).collect::<Vec<_>>());
    made.iter().for_each(|one| one.put("key", "value").unwrap());
    drop(made);
    let (_, dropping) = timed(|| (0..MADE).for_each(|number| db.drop_keyspace(&name(number)).unwrap()));
    println!("make a keyspace {:.2} ms, drop one {:.2} ms", ms(making), ms(dropping));
}
