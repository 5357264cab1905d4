//! Measures the disk space of a closed store beside its keys and values, part by part.
//!
//! `cargo run --release --example space -- DIR [ITEMS [MEMORY_MIB]]`: creates a store in DIR and puts ITEMS
//! (1,000,000) in random order, with keys of 24 bytes and values of 150. Then it deletes every other item,
//! also in random order, compacts the store and closes it. The output is the same on every machine, except
//! for the assignment of items to blocks. Values do not compress.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures, not the library"
)]

use std::collections::BTreeMap;
use std::path::Path;

use trine::{Db, inspect};

const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 150;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((dir, numbers)) = arguments.split_first() else {
        eprintln!("usage: space DIR [ITEMS [MEMORY_MIB]]");
        std::process::exit(2);
    };
    let number = |index: usize, default| numbers.get(index).map_or(default, |text| text.parse().unwrap());
    let (items, memory_mib) = (number(0, 1_000_000), number(1, 256));
    let db = Db::builder(dir).memory_bytes(memory_mib << 20).open().unwrap();
    let keyspace = db.ordered("items").open().unwrap();
    for number in 0..items {
        keyspace.put(bytes::<KEY_BYTES>(number), bytes::<VALUE_BYTES>(!number)).unwrap();
    }
    // The order of keys is not that of their numbers.
    for number in (0..items).step_by(2) {
        keyspace.delete(bytes::<KEY_BYTES>(number)).unwrap();
    }
    db.compact().unwrap();
    let other = db.clone();
    drop(keyspace);
    db.close().unwrap();
    let space = other.stats().space;
    report(Path::new(dir), (items / 2) * (KEY_BYTES + VALUE_BYTES) as u64, space.total_bytes);
}

/// Bytes derived from a number.
fn bytes<const COUNT: usize>(number: u64) -> [u8; COUNT] {
    let (mut state, mut bytes) = (number, [0; COUNT]);
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&mix(&mut state).to_be_bytes()[..part.len()]);
    }
    bytes
}

/// SplitMix64.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn report(dir: &Path, live_bytes: u64, told_bytes: u64) {
    let mut parts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut all_bytes = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (name, bytes) = (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len());
        all_bytes += bytes;
        let kind = name.split('-').next().unwrap_or_default().to_owned();
        let mut rest = bytes;
        if kind == "table" {
            inspect::dump(entry.path(), |part| {
                let of_part = parts.entry(format!("table: {}", part.name)).or_default();
                *of_part = (of_part.0 + 1, of_part.1 + part.bytes);
                rest -= part.bytes;
            })
            .unwrap();
        }
        let name = if kind == "table" { "table: padding".to_owned() } else { kind };
        let of_kind = parts.entry(name).or_default();
        *of_kind = (of_kind.0 + 1, of_kind.1 + rest);
    }
    let share = |bytes: u64| bytes as f64 / live_bytes as f64;
    println!("{:<28} {:>9} {:>12} {:>9}", "part", "count", "bytes", "of live");
    for (name, (count, bytes)) in &parts {
        println!("{name:<28} {count:>9} {bytes:>12} {:>9.4}", share(*bytes));
    }
    let blocks = parts.get("table: data block").map_or(1, |(_, bytes)| *bytes);
    println!("live keys and values: {live_bytes} bytes; pages of items are {:.4} full", 1.0 / share(blocks));
    println!("directory: {all_bytes} bytes, {:.4} of what lives; stats: {told_bytes}", share(all_bytes));
}
