//! Hashed keyspaces whose filters do not fit in memory. One filter page covers all runs of a node, so a get
//! reads one page for each node, and the block.

use trine::sim::World;
use trine::{Db, Hashed, Keyspace};

use super::rng::Rng;

const ITEMS: u32 = 14_000;
const VALUE_BYTES: usize = 150;
/// Room for fences and the filters of the root.
const CACHE_BYTES: u64 = 96 << 10;
/// Below the root, a filter page passes one absent key in 2,000.
const BITS: u64 = 16;
/// The serial value of `search`; the others search several nodes at once.
const SERIAL: u64 = 1;

fn open(world: &World, search: u64, kind: &str) -> (Db, Keyspace<Hashed>) {
    let builder = world.builder().memory_bytes(1 << 20).cache_bytes(CACHE_BYTES).set("search", search);
    let db = builder.open().unwrap();
    let keyspace = db.hashed("h").set("table_bytes", 64 << 10).set("filter_bits_per_key", BITS);
    let keyspace = keyspace.set("filter_kind", kind).set("runs_in_last_level", 63).open().unwrap();
    (db, keyspace)
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// The value from the item's last round of writes, which deleted every fifth item.
fn value(number: u32) -> Option<[u8; VALUE_BYTES]> {
    let round = if number.is_multiple_of(3) { 1 } else { 0 };
    (round == 0 || !number.is_multiple_of(5)).then_some([number as u8 ^ round; VALUE_BYTES])
}

/// A closed store with all items, then every third once more, unmerged.
fn filled(kind: &str) -> World {
    let world = World::new(7);
    let (db, keyspace) = open(&world, SERIAL, kind);
    for step in [1, 3] {
        for numbers in (0..ITEMS).step_by(step).collect::<Vec<_>>().chunks(1000) {
            for number in numbers {
                match value(*number).filter(|_| step == 3) {
                    Some(value) => keyspace.put(key(*number), value).unwrap(),
                    None if step == 3 => keyspace.delete(key(*number)).unwrap(),
                    None => keyspace.put(key(*number), [*number as u8; VALUE_BYTES]).unwrap(),
                }
            }
            db.settle().unwrap();
        }
    }
    db.close().unwrap();
    world
}

/// Device reads in hundredths for each get: of present keys, and of absent ones.
fn reads(world: &World, search: u64, kind: &str) -> [u64; 2] {
    let (db, keyspace) = open(world, search, kind);
    let mut rng = Rng::new(5);
    let count = 3000;
    [0, ITEMS].map(|from| {
        let before = db.stats().io.device_reads;
        for _ in 0..count {
            let number = from + rng.below(ITEMS as usize) as u32;
            let expected = if from == 0 { value(number) } else { None };
            assert_eq!(
                keyspace.get(key(number)).unwrap().as_deref(),
                expected.as_ref().map(|value| &value[..])
            );
        }
        (db.stats().io.device_reads - before) * 100 / count
    })
}

/// With filters by column a get reads one filter page for each node and one block; for an absent key only the
/// pages. With a filter for each run it reads one page for each run. Serial and parallel searches answer
/// alike.
#[test]
fn a_page_tells_of_a_node() {
    let (by_column, by_run) = (filled("column_bloom"), filled("cache_line_bloom"));
    let (heights, runs) = {
        let (_db, keyspace) = open(&by_column, SERIAL, "column_bloom");
        let levels = keyspace.stats().unwrap().levels;
        let runs: u64 = levels.iter().skip(1).map(|level| level.runs).sum();
        (levels.len() as u64 - 1, runs)
    };
    assert!(heights >= 1 && runs > 10 * heights, "{heights} heights, {runs} runs");
    let [there, absent] = reads(&by_column, SERIAL, "column_bloom");
    assert!(there <= heights * 100 + 115, "{there} hundredths of a read, {heights} heights");
    assert!(absent <= heights * 100 + 15, "{absent} hundredths of a read, {heights} heights");
    let [there_by_run, absent_by_run] = reads(&by_run, SERIAL, "cache_line_bloom");
    assert!(there_by_run > there && absent_by_run > 2 * absent, "{there_by_run}, {absent_by_run}");
    for search in [0, 2, 4] {
        let [there, absent] = reads(&by_column, search, "column_bloom");
        assert!(
            there <= heights * 200 + 130 && absent <= heights * 100 + 15,
            "search {search}: {there}, {absent}"
        );
    }
}
