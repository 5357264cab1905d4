//! A store with a trie.

use std::collections::BTreeMap;

use trine::{Hashed, Keyspace};

use super::{Maker, SMALL, State, value};

/// The name of the hashed keyspace.
const NAME: &str = "hashed";
const BATCH_ITEMS: usize = 20;

fn hashed(maker: &Maker) -> Keyspace<Hashed> {
    maker.db.keyspace(NAME).and_then(|any| any.hashed()).expect("it is there")
}

/// Of the first `count` numbers, those whose keys are below the first child of the root, and every sixteenth
/// other. The first byte of a walk's position begins with the route.
fn numbers(maker: &Maker, count: u32) -> Vec<u32> {
    let probe = maker.db.hashed("probe").open().expect("a new keyspace");
    (0..count).for_each(|number| probe.put(number.to_be_bytes(), "").expect("a write"));
    let mut walk = probe.iter_unordered();
    let mut chosen = Vec::new();
    while let Some(item) = walk.next() {
        let (key, _) = item.expect("no fault");
        let number = u32::from_be_bytes(key[..].try_into().expect("a number"));
        let route = walk.position().expect("an item was taken")[0];
        if route >> 5 == 0 || number.is_multiple_of(16) {
            chosen.push(number);
        }
    }
    maker.db.drop_keyspace("probe").expect("it is there");
    chosen.sort_unstable();
    chosen
}

/// Writes to each of these keys: a put, or for some a delete.
fn write(maker: &mut Maker, numbers: &[u32], version: u32) {
    let keyspace = hashed(maker);
    for some in numbers.chunks(BATCH_ITEMS) {
        let mut batch = maker.db.batch();
        for number in some {
            let key = number.to_be_bytes();
            let keys = maker.keys.entry(NAME.to_owned()).or_default();
            keys.extend([key.to_vec(), [&key[..], b"~"].concat()]);
            match (number + version) % 11 {
                0 => batch.delete(&keyspace, key).expect("small"),
                _ => {
                    let length = 250 + (number % 13) as usize;
                    batch.put(&keyspace, key, value(NAME, *number, version, length)).expect("small");
                }
            }
        }
        batch.commit().expect("a write");
        maker.world.run_until_idle();
    }
}

/// A trie of three or more heights, with files of several slices, runs in the root, and items in the log.
/// Beside it an ordered keyspace.
pub(crate) fn tries() -> State {
    let mut maker = Maker::new(SMALL);
    maker.keyspace("left", &[]);
    // Filters by column, as where memory is short.
    maker.db.hashed(NAME).set("filter_kind", 5).open().expect("a new keyspace");
    let numbers = numbers(&maker, 12_000);
    let heights = |maker: &Maker| hashed(maker).stats().expect("it is there").levels;
    for (version, some) in (0..).zip(numbers.chunks(300)) {
        write(&mut maker, some, version);
        if heights(&maker).len() > 2 && heights(&maker)[0].runs > 1 {
            break;
        }
    }
    maker.mark();
    maker.write("left", (60, 1), 0, 25);
    maker.db.flush().expect("a flush");
    write(&mut maker, &numbers[..20], 7);
    let levels = heights(&maker);
    assert!(levels.len() > 2 && levels[0].runs > 0, "{levels:?}");
    let (mut walk, mut positions) = (hashed(&maker).iter_unordered(), BTreeMap::new());
    while let Some(item) = walk.next() {
        positions.insert(item.expect("no fault").0.to_vec(), walk.position().expect("an item was taken"));
    }
    drop(walk);
    State { positions, ..maker.closed("a trie") }
}
