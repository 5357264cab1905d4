//! Measures the cost of a merge policy: one load in random order, and the state of the tree afterwards.
//!
//! `cargo run --release --example policies -- DIR ITEMS MEMORY_MIB LEVEL0 T K Z [OVERWRITES] [hashed]`:
//! creates a store in DIR with `level0_runs`, `size_ratio`, `runs_per_level` and `runs_in_last_level`, puts
//! ITEMS in random order, overwrites OVERWRITES of them, and reads 20,000. Keys have 16 bytes, values 100.
//! The output is one line: rates hold for this machine, amplifications and runs are exact. With `hashed` the
//! keyspace is a trie, and a second line describes it after a full merge.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures, not the library"
)]

use std::time::Instant;

use trine::{Db, Hashed, Keyspace, KeyspaceBuilder, Ordered, Result};

const GETS: u64 = 20_000;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_hashed = arguments.pop_if(|last| last == "hashed").is_some();
    let [dir, numbers @ ..] = arguments.as_slice() else { return usage() };
    let numbers: Vec<u64> = numbers.iter().map_while(|number| number.parse().ok()).collect();
    let [items, memory_mib, level0, ratio, above, in_last, rest @ ..] = numbers.as_slice() else {
        return usage();
    };
    let overwrites = rest.first().copied().unwrap_or(0);
    let db = Db::builder(dir).memory_bytes(memory_mib << 20).open().unwrap();
    let policy = [*level0, *ratio, *above, *in_last];
    let keyspace = match is_hashed {
        true => Items::Hashed(with(db.hashed("items"), policy).open().unwrap()),
        false => Items::Ordered(with(db.ordered("items"), policy).open().unwrap()),
    };

    let started = Instant::now();
    let mut longest_ns = 0;
    let mut space_most = 0.0f64;
    for number in 0..items + overwrites {
        let at = Instant::now();
        let which = if number < *items { number } else { mix(number) % items };
        keyspace.put(&key(which), &value(number)).unwrap();
        longest_ns = longest_ns.max(at.elapsed().as_nanos());
        if number % 100_000 == 99_999 {
            let live = (number + 1).min(*items) as f64 * 116.0;
            let table_bytes = db.stats().space.table_bytes as f64;
            space_most = space_most.max(table_bytes / live);
        }
    }
    let puts = (items + overwrites) as f64 / started.elapsed().as_secs_f64();
    let settling = Instant::now();
    db.settle().unwrap();
    let settled_s = settling.elapsed().as_secs_f64();

    println!(
        "L0 {level0} T {ratio} K {above} Z {in_last}: {} (most {space_most:.2}), {:.0} K puts/s, \
         longest put {:.1} ms, delayed {:.2} s, settled after {settled_s:.1} s; {}",
        look(&db, &keyspace, *items),
        puts / 1e3,
        longest_ns as f64 / 1e6,
        db.stats().write.delayed_ns as f64 / 1e9,
        levels(&db)
    );
    if is_hashed {
        let compacting = Instant::now();
        db.compact().unwrap();
        let compacted_s = compacting.elapsed().as_secs_f64();
        println!("merged after {compacted_s:.1} s: {}; {}", look(&db, &keyspace, *items), levels(&db));
    }
    drop(keyspace);
    db.close().unwrap();
}

/// The keyspace of a run.
enum Items {
    Ordered(Keyspace<Ordered>),
    Hashed(Keyspace<Hashed>),
}

impl Items {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Items::Ordered(items) => items.put(key, value),
            Items::Hashed(items) => items.put(key, value),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Items::Ordered(items) => items.contains(key),
            Items::Hashed(items) => items.contains(key),
        }
    }
}

fn with<K>(builder: KeyspaceBuilder<K>, [level0, ratio, above, in_last]: [u64; 4]) -> KeyspaceBuilder<K> {
    let builder = builder.set("level0_runs", level0).set("size_ratio", ratio);
    builder.set("runs_per_level", above).set("runs_in_last_level", in_last)
}

/// Write amplification so far, device reads of a get now, and space relative to live data.
fn look(db: &Db, keyspace: &Items, items: u64) -> String {
    let before = db.stats();
    let written = before.write.key_value_bytes as f64;
    let amplification = (before.write.flush_bytes + before.write.merge_write_bytes) as f64 / written;
    for number in 0..GETS {
        assert!(keyspace.contains(&key(mix(number) % items)).unwrap());
    }
    let reads = (db.stats().io.device_reads - before.io.device_reads) as f64 / GETS as f64;
    let space = before.space.table_bytes as f64 / (items as f64 * 116.0);
    format!("write amplification {amplification:.2}, reads a get {reads:.3}, space {space:.3}")
}

fn levels(db: &Db) -> String {
    let levels = db.stats().keyspaces[0].levels.clone();
    let level = |level: &trine::LevelStats| {
        let (nodes, runs) = (level.nodes, level.runs);
        let of = if nodes > 0 { format!(" in {nodes} nodes") } else { String::new() };
        format!("L{} {runs} runs{of} {:.1} MB", level.level, level.table_bytes as f64 / 1e6)
    };
    levels.iter().map(level).collect::<Vec<String>>().join(", ")
}

fn usage() {
    eprintln!("usage: policies DIR ITEMS MEMORY_MIB LEVEL0 T K Z [OVERWRITES] [hashed]");
    std::process::exit(2);
}

/// The 16-byte key of an item: two random numbers.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[8..].copy_from_slice(&mix(!number).to_be_bytes());
    key
}

fn value(number: u64) -> [u8; 100] {
    let mut value = [0; 100];
    for (index, part) in value.chunks_mut(8).enumerate() {
        let bytes = mix(number ^ (index as u64) << 48).to_le_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    }
    value
}

/// SplitMix64 of one number.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
