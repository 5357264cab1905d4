//! Adversarial keys and workloads cost at most a fifth more than random ones.
//!
//! Costs are counted, not timed: the places a get searched, and the bytes it examined, by its trace. The
//! adversary knows the hash function and the code, but not the store's secret.

use trine::sim::{Crash, World};
use trine::{Db, Keyspace, Ordered};

use super::rng::Rng;

/// The largest cost of hostile keys, in costs of random ones.
const TIMES_MAX: f64 = 1.2;
/// False positives of filters are so rare that a few more are chance.
const CHANCE: f64 = 0.01;
const ITEMS: usize = 8000;

type Keys = Vec<Vec<u8>>;

/// The average cost of a get.
#[derive(Debug)]
struct Costs {
    /// Blocks and pages that a device would read without a cache.
    loads: f64,
    /// Tables whose filter did not rule the key out.
    tables: f64,
    bytes: f64,
}

impl Costs {
    fn of(items: &Keyspace<Ordered>, keys: &[Vec<u8>], is_present: bool) -> Costs {
        let mut sums = [0u64; 3];
        for key in keys {
            let (found, trace) = items.trace(key).unwrap();
            assert_eq!(found.is_some(), is_present, "{key:?}");
            for step in &trace.steps {
                sums[0] += if step.name.ends_with("Load") { step.count } else { 0 };
                sums[1] += if step.name == "DBSeek" { step.count } else { 0 };
                sums[2] += step.bytes;
            }
        }
        let [loads, tables, bytes] = sums.map(|sum| sum as f64 / keys.len() as f64);
        Costs { loads, tables, bytes }
    }

    fn assert_within(&self, usual: &Costs, what: &str) {
        println!("{what}: {self:.3?}, random keys: {usual:.3?}");
        for (mine, usual) in [(self.loads, usual.loads), (self.tables, usual.tables)] {
            assert!(mine <= usual * TIMES_MAX + CHANCE, "{what}: {self:?} against {usual:?}");
        }
        let bytes_max = usual.bytes * TIMES_MAX + CHANCE * 4096.0;
        assert!(self.bytes <= bytes_max, "{what}: {self:?} against {usual:?}");
    }
}

/// Puts `inside` into a store with several runs, one of them in memory. Returns the costs of gets of `inside`
/// and of `outside`, and the bytes of the tables.
fn costs(seed: u64, inside: &[Vec<u8>], outside: &[Vec<u8>]) -> (Costs, Costs, u64) {
    let world = World::new(seed);
    let db = world.builder().memory_bytes(2 << 20).cache_bytes(128 << 10).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    let mut rng = Rng::new(seed);
    let (inside, outside) = (shuffled(inside, &mut rng), shuffled(outside, &mut rng));
    for (count, key) in inside.iter().enumerate() {
        items.put(key, [7; 100]).unwrap();
        if count % (inside.len() / 4) == 1000 {
            db.flush().unwrap();
        }
    }
    db.settle().unwrap();
    let table_bytes = db.stats().space.table_bytes;
    (Costs::of(&items, &inside, true), Costs::of(&items, &outside, false), table_bytes)
}

fn shuffled(keys: &[Vec<u8>], rng: &mut Rng) -> Keys {
    let mut keys = keys.to_vec();
    (1..keys.len()).rev().for_each(|at| keys.swap(at, rng.below(at + 1)));
    keys
}

fn random_keys(seed: u64, count: usize) -> Keys {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| [rng.u64().to_be_bytes(), rng.u64().to_be_bytes()].concat()).collect()
}

/// Keys whose hash without a secret satisfies `is_like`, found by trying random ones.
fn ground_keys(is_like: fn(u128) -> bool) -> Keys {
    let mut rng = Rng::new(2);
    let keys = std::iter::repeat_with(|| {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&rng.u64().to_be_bytes());
        key[8..].copy_from_slice(&rng.u64().to_be_bytes());
        key
    });
    let ground = keys.filter(|key| is_like(xxhash_rust::xxh3::xxh3_128(key)));
    ground.take(2 * ITEMS).map(Vec::from).collect()
}

/// Whether the key maps to the first line of a table's filter; docs/FORMAT.md has the computation.
fn is_in_the_first_line(hash: u128) -> bool {
    let field = ((hash >> 84) as u64) << 20;
    let mixed = (field ^ (field >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ (mixed >> 33)) >> 54 == 0
}

/// Whether the key's tag in a block is 0, with some more bits of its order field.
fn has_the_first_tag(hash: u128) -> bool {
    (hash >> 36) & 1023 == 0
}

/// Under the hash without the store's secret, these keys all share a filter line or a block tag. With the
/// secret they cost as much as random keys, both present and absent ones.
#[test]
fn ground_keys_cost_as_much_as_random_keys() {
    let usual = random_keys(1, 2 * ITEMS);
    let (present, absent, table_bytes) = costs(1, &usual[..ITEMS], &usual[ITEMS..]);
    for (what, keys) in [("line", ground_keys(is_in_the_first_line)), ("tag", ground_keys(has_the_first_tag))]
    {
        let (mine_present, mine_absent, mine_bytes) = costs(2, &keys[..ITEMS], &keys[ITEMS..]);
        mine_present.assert_within(&present, what);
        mine_absent.assert_within(&absent, what);
        assert!(mine_bytes as f64 <= table_bytes as f64 * TIMES_MAX, "{mine_bytes} of {table_bytes}");
    }
}

/// Keys in dense clusters with vast gaps, and keys with doubling distances: the shapes that mislead
/// interpolation search. Gets cost as much as among random keys.
#[test]
fn clustered_keys_cost_as_much_as_random_keys() {
    let usual: Keys = random_keys(3, 2 * ITEMS).into_iter().map(|key| key[..8].to_vec()).collect();
    let (present, absent, table_bytes) = costs(3, &usual[..ITEMS], &usual[ITEMS..]);
    // Even numbers are in the store; the odd ones between them are not.
    let clusters = |number: u64| (number / 400) * (u64::MAX / 20) / 2 * 2 + number % 400 * 2;
    let steps = |number: u64| (1 << (number / 200 + 10)) + number % 200 * 2;
    let ends = |number: u64| if number.is_multiple_of(2) { number * 2 } else { u64::MAX - 1 - number * 2 };
    let shapes: [(&str, &dyn Fn(u64) -> u64); 3] =
        [("clusters", &clusters), ("steps", &steps), ("ends", &ends)];
    for (what, shape) in shapes {
        let inside: Vec<u64> = (0..ITEMS as u64).map(shape).collect();
        let keys: Keys = inside.iter().map(|number| number.to_be_bytes().to_vec()).collect();
        let others: Keys = inside.iter().map(|number| (number + 1).to_be_bytes().to_vec()).collect();
        let (mine_present, mine_absent, mine_bytes) = costs(4, &keys, &others);
        mine_present.assert_within(&present, what);
        mine_absent.assert_within(&absent, what);
        assert!(mine_bytes as f64 <= table_bytes as f64 * TIMES_MAX, "{mine_bytes} of {table_bytes}");
    }
}

/// Keys that share 60,000 bytes. Tables are no larger than the keys and a fence for each. A get reads one
/// block and its index, and a scan reads everything once.
#[test]
fn very_long_shared_prefixes_cost_their_bytes() {
    const PREFIX_BYTES: usize = 60_000;
    const COUNT: u32 = 400;
    let key = |number: u32| [&[b'x'; PREFIX_BYTES][..], &number.to_be_bytes()].concat();
    let world = World::new(5);
    let db = world.builder().memory_bytes(32 << 20).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (0..COUNT).for_each(|number| items.put(key(number * 2), b"value").unwrap());
    db.compact().unwrap();
    let given_bytes = u64::from(COUNT) * PREFIX_BYTES as u64;
    let stats = db.stats();
    assert!(stats.space.table_bytes < given_bytes * 2, "{}", stats.space.table_bytes);
    for number in 0..COUNT {
        let (found, trace) = items.trace(key(number * 2)).unwrap();
        assert!(found.is_some());
        let loads: u64 =
            trace.steps.iter().filter(|step| step.name.ends_with("Load")).map(|step| step.count).sum();
        assert!(loads <= 3, "{loads} loads");
        assert!(!items.contains(key(number * 2 + 1)).unwrap());
    }
    let before = db.stats().io.device_read_bytes;
    assert_eq!(items.iter().count(), COUNT as usize);
    let read_bytes = db.stats().io.device_read_bytes - before;
    assert!(read_bytes <= stats.space.table_bytes * 11 / 10, "{read_bytes}");
    let memory = db.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
}

/// Very many batches of one tiny item: each takes few bytes of the log, and all are there after a crash.
#[test]
fn tiny_batches_take_little_of_the_log() {
    const COUNT: u32 = 30_000;
    const LOG_BYTES_MAX: u64 = 48;
    let world = World::new(6);
    let db = world.builder().memory_bytes(32 << 20).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (0..COUNT).for_each(|number| items.put(&number.to_be_bytes()[1..], b"").unwrap());
    let log_bytes = db.stats().write.log_bytes;
    assert!(log_bytes <= u64::from(COUNT) * LOG_BYTES_MAX, "{log_bytes}");
    let db = world.crash(Crash::Process, 1).builder().memory_bytes(32 << 20).open().unwrap();
    assert_eq!(db.stats().recovery.replayed_items, u64::from(COUNT));
    assert_eq!(db.ordered("items").open().unwrap().iter().count(), COUNT as usize);
}

/// A thousand keyspaces of one item each: a flush writes one file, opening reads a few blocks for each, and
/// every item is found.
#[test]
fn very_many_keyspaces_are_borne() {
    const COUNT: usize = 1000;
    const READS_MAX: u64 = 8;
    let open = |world: &World| -> Db { world.builder().memory_bytes(32 << 20).open().unwrap() };
    let world = World::new(7);
    let db = open(&world);
    let name = |number: usize| format!("tenant {number}");
    for number in 0..COUNT {
        db.ordered(&name(number)).open().unwrap().put(b"key", name(number)).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let db = open(&world);
    let reads = db.stats().io.reads;
    assert!(reads <= COUNT as u64 * READS_MAX, "{reads} reads");
    for number in 0..COUNT {
        let found = db.ordered(&name(number)).open().unwrap().get(b"key").unwrap();
        assert_eq!(found.as_deref(), Some(name(number).as_bytes()));
    }
    let memory = db.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes, "{memory:?}");
}
