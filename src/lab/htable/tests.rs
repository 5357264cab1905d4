//! HTable against its list of items: random sizes, fill levels and hashes, rules of migration, errors,
//! damage, crashes.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::io::sim::{Crash, FaultPlan, Operation, SimDisk, SimRng, Stop, sim_env};

use super::super::pages::Buffer;
use super::balance::{BalanceItem, Balanced, Bucket, Imbalance, balance, run_round};
use super::bucket::{CAPACITY_BYTES, item_bytes};
use super::file::table_name;
use super::item::{home, order_in};
use super::{CachedMarks, HTable, HTableItem, order_of};

const RULES: [CachedMarks; 4] =
    [CachedMarks::None, CachedMarks::Percent(90), CachedMarks::Percent(99), CachedMarks::All];

/// Distributions of value sizes.
#[derive(Clone, Copy, Debug)]
enum Mix {
    Fixed(usize),
    /// Items of 50 to 1500 bytes, with a uniform logarithm.
    LogUniform,
    /// Values of 100 bytes; every twentieth has up to 4,000.
    SomeLarge,
}

impl Mix {
    fn value_bytes(self, rng: &mut SimRng) -> usize {
        match self {
            Mix::Fixed(bytes) => bytes,
            Mix::LogUniform => {
                let part = rng.below(1000) as f64 / 1000.0;
                (50.0 * 30_f64.powf(part)) as usize - 16
            }
            Mix::SomeLarge => {
                if rng.one_in(20) {
                    rng.below(4000) as usize
                } else {
                    100
                }
            }
        }
    }
}

/// Random items that fill a percentage of the buckets; `mask` keeps a part of their hash bits.
fn items(rng: &mut SimRng, mix: Mix, (bits, percent): (u32, usize), mask: u64) -> Vec<HTableItem> {
    let wanted = (CAPACITY_BYTES << bits) * percent / 100;
    let (mut items, mut bytes) = (Vec::new(), 0);
    loop {
        let mut key = vec![0; 16];
        rng.fill(&mut key);
        let mut value = vec![0; mix.value_bytes(rng)];
        rng.fill(&mut value);
        bytes += item_bytes(&key, &value);
        if bytes > wanted {
            return items;
        }
        items.push(HTableItem { order: order_of(&key) & mask, key, value });
    }
}

fn created(bits: u32, items: &[HTableItem]) -> Result<Arc<SimDisk>> {
    let disk = SimDisk::new(1);
    HTable::create_in(sim_env(&disk, 1).0, bits, items)?;
    Ok(disk)
}

fn open(disk: &Arc<SimDisk>, rule: CachedMarks) -> Result<HTable> {
    HTable::open_in(sim_env(disk, 2).0, rule)
}

/// Every item is found within the reads that the marks in memory allow. The disk counts the same reads as the
/// gets report. Absent keys are not found.
fn check_gets(disk: &Arc<SimDisk>, items: &[HTableItem], rng: &mut SimRng) {
    for rule in RULES {
        let table = open(disk, rule).unwrap();
        disk.start_log();
        let mut reads = 0;
        for item in items {
            let found = table.get(&item.key, item.order).unwrap();
            assert_eq!(found.value.as_ref(), Some(&item.value), "{rule:?}");
            assert!((1..=1 + found.hops).contains(&found.page_reads), "{rule:?} {found:?}");
            assert!(rule != CachedMarks::All || found.page_reads == 1, "{found:?}");
            assert!(rule != CachedMarks::None || found.page_reads == 1 + found.hops, "{found:?}");
            reads += found.page_reads;
        }
        let stats = table.stats();
        let asked = disk.log().iter().filter(|call| call.operation == Operation::Read).count() as u64;
        assert_eq!((reads, stats.page_reads), (asked, asked));
        let second_reads = reads - stats.items;
        let is_capped = stats.cached_marks == stats.buckets / 4;
        assert!(rule != CachedMarks::Percent(99) || is_capped || 100 * second_reads <= stats.items);
        assert!(rule != CachedMarks::None || second_reads == stats.hops);
        for _ in 0..20 {
            let key = rng.u64().to_be_bytes();
            assert_eq!(table.get(&key, order_of(&key)).unwrap().value, None);
        }
    }
}

/// Pages have all items once, sorted and below the mark; chains of marks lead from the home bucket to each
/// item.
fn check_pages(disk: &Arc<SimDisk>, bits: u32, items: &[HTableItem]) {
    let order_by_key: std::collections::BTreeMap<&[u8], u64> =
        items.iter().map(|item| (&item.key[..], item.order)).collect();
    let table = open(disk, CachedMarks::None).unwrap();
    let (mut buffer, mut bucket_of, mut targets) = (Buffer::pages(1), Vec::new(), Vec::new());
    for number in 0..1u16 << bits {
        let page = table.page(number, &mut buffer).unwrap();
        let (mut bytes, mut last) = (0, 0);
        for item in page.items() {
            let (key, value) = item.unwrap();
            bytes += item_bytes(key, value);
            let order = order_in(number, order_by_key[key]);
            assert!(page.mark.is_none_or(|mark| order < mark.least));
            assert!(order >= last);
            last = order;
            bucket_of.push((order_by_key[key], number));
        }
        assert!(bytes <= CAPACITY_BYTES);
        targets.push(page.mark);
    }
    assert_eq!(bucket_of.len(), items.len());
    let mut away = 0;
    for (order, bucket) in bucket_of {
        let mut at = home(order, bits);
        away += u64::from(at != bucket);
        for _ in 0..targets.len() {
            at = targets[usize::from(at)].and_then(|mark| mark.target_of(order)).unwrap_or(at);
        }
        assert_eq!(at, bucket);
    }
    assert_eq!(table.stats().items_away, away);
}

/// Tables of every mix, fill level and hash width return their items, or creation fails with a reason.
#[test]
fn tables_have_their_items() {
    let masks = [u64::MAX, u64::MAX << 40 | 0xff, u64::MAX << 40 | 7, u64::MAX << 42];
    let mixes = [Mix::Fixed(100), Mix::Fixed(384), Mix::LogUniform, Mix::SomeLarge, Mix::Fixed(0)];
    let (mut built, mut migrated, mut far) = (0, 0, 0);
    for seed in 0..60u64 {
        let mut rng = SimRng::new(seed);
        let (mix, mask) = (mixes[rng.index(mixes.len())], masks[rng.index(masks.len())]);
        let (bits, percent) = (rng.below(9) as u32, [0, 75, 85, 90, 94][rng.index(5)]);
        let items = items(&mut rng, mix, (bits, percent), mask);
        match created(bits, &items) {
            Ok(disk) => {
                check_gets(&disk, &items, &mut rng);
                check_pages(&disk, bits, &items);
                let stats = open(&disk, CachedMarks::All).unwrap().stats();
                built += 1;
                migrated += stats.hops;
                far = stats.hops_max.max(far);
            }
            Err(Error::Invalid { faults }) => {
                assert!(percent >= 75 || mask != u64::MAX, "{mix:?} {bits} {percent}: {faults:?}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(built > 30 && migrated > 300 && far > 1, "{built} {migrated} {far}");
}

fn homes(bits: u32, items: &[HTableItem]) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default(); 1 << bits];
    for (index, item) in items.iter().enumerate() {
        let bytes = item_bytes(&item.key, &item.value) as u32;
        let resident = BalanceItem { order: item.order, bytes, item: index as u32, hops: 0 };
        buckets[usize::from(home(item.order, bits))].push(resident);
    }
    buckets
}

/// In each round a bucket that has given items away keeps the rest of its items, and no item is lost.
#[test]
fn sources_never_receive() {
    for seed in 0..20 {
        let mut rng = SimRng::new(seed);
        let items = items(&mut rng, Mix::LogUniform, (6, 85), u64::MAX);
        let mut buckets = homes(6, &items);
        let mut by_volume: Vec<u16> = (0..64).collect();
        let mut sources = 0;
        while buckets.iter().any(Bucket::is_overloaded) {
            let before = buckets.clone();
            let moved = run_round(&mut buckets, &mut by_volume);
            if moved == 0 {
                break;
            }
            sources += moved;
            for (old, new) in before.iter().zip(&buckets).filter(|(old, _)| old.mark.is_some()) {
                assert_eq!((old.bytes, old.mark), (new.bytes, new.mark), "seed {seed}");
            }
            assert_eq!(buckets.iter().map(|bucket| bucket.residents.len()).sum::<usize>(), items.len());
        }
        assert_eq!(buckets.iter().filter(|bucket| bucket.mark.is_some()).count(), sources as usize);
        assert!(sources > 0, "seed {seed}");
    }
}

/// Buckets with the given numbers of items of 1000 bytes; their orders ascend in buckets without rotation.
fn loads(counts: &[u32]) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default(); counts.len()];
    for (bucket, count) in buckets.iter_mut().zip(counts) {
        for number in 0..*count {
            bucket.push(BalanceItem { order: u64::from(number), bytes: 1000, item: number, hops: 0 });
        }
    }
    buckets
}

/// The most loaded bucket gives to the least loaded, the second to the second, each as little as it must and
/// the greatest orders first. A target that overflows is a source of the next round.
#[test]
fn pairs_are_the_papers() {
    let moves = |balanced: &Balanced| -> Vec<(u16, u16, u32)> {
        let marks = balanced.buckets.iter().filter_map(|bucket| bucket.mark);
        marks.map(|one| (one.mark.source, one.mark.target, one.moved)).collect()
    };
    let balanced = balance(loads(&[6, 3, 1, 5, 0])).unwrap();
    assert_eq!(moves(&balanced), [(0, 4, 2), (3, 2, 1)]);
    assert_eq!((balanced.rounds, balanced.overloaded), (1, 2));
    let mark = balanced.buckets[0].mark.unwrap().mark;
    assert_eq!(mark.least, 4, "orders 4 and 5 of 0..6 left");
    let balanced = balance(loads(&[10, 2, 2, 2])).unwrap();
    assert_eq!(moves(&balanced), [(0, 1, 6), (1, 2, 4), (2, 3, 2)]);
    assert_eq!(balanced.rounds, 3);
    let reason = balance(loads(&[5, 4, 4, 4])).unwrap_err();
    assert_eq!(reason, Imbalance::Volume { bytes: 17_000, capacity_bytes: 4 * CAPACITY_BYTES as u64 });
}

fn reason(bits: u32, items: &[HTableItem]) -> String {
    created(bits, items).expect_err("it cannot be built").to_string()
}

/// Item lists that no table can hold fail with the reason, and nothing is written.
#[test]
fn refusals_have_reasons() {
    let mut rng = SimRng::new(7);
    let mut some = items(&mut rng, Mix::Fixed(100), (4, 50), u64::MAX);
    assert!(reason(14, &some).contains("2^13"));
    let full = items(&mut rng, Mix::Fixed(100), (4, 101), u64::MAX);
    assert!(reason(4, &full).contains("all buckets together"));
    let one_order = items(&mut rng, Mix::Fixed(100), (4, 50), 0);
    assert!(reason(4, &one_order).contains("items of one order"));
    let mixed = items(&mut rng, Mix::LogUniform, (8, 99), u64::MAX);
    assert!(reason(8, &mixed).contains("overloaded and no bucket may receive"), "{}", reason(8, &mixed));
    some.push(some[3].clone());
    assert!(reason(4, &some).contains("twice"));
    some.pop();
    some[5].value = vec![1; CAPACITY_BYTES - 19];
    created(4, &some[5..6]).expect("an item as large as a bucket");
    some[5].value.push(1);
    let disk = SimDisk::new(1);
    let refused = HTable::create_in(sim_env(&disk, 1).0, 4, &some);
    let limit = CAPACITY_BYTES as u64;
    let Err(Error::TooLarge { given, limit: told, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((given, told), (limit + 1, limit));
    assert_eq!(disk.used_bytes(), 0);
    assert!(matches!(open(&disk, CachedMarks::All), Err(Error::Missing { .. })));
    let disk = created(4, &some[..5]).unwrap();
    let again = HTable::create_in(sim_env(&disk, 1).0, 4, &some[..5]);
    assert!(matches!(again, Err(Error::Exists { .. })));
}

/// A flipped bit on any page is an error for the gets that need the page, and for no other get.
#[test]
fn damage_is_an_error() {
    let items = items(&mut SimRng::new(3), Mix::Fixed(100), (3, 94), u64::MAX);
    let disk = created(3, &items).unwrap();
    let good = disk.contents(table_name()).unwrap();
    assert_eq!(good.len() / 4096, 1 + 1 + 8 + 1, "header, head, buckets, marks");
    for at in (0..good.len()).step_by(173).chain(4094..4110) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        disk.set_contents(table_name(), Some(&bytes));
        let page = at / 4096;
        let table = match open(&disk, CachedMarks::All) {
            Ok(table) => table,
            Err(error) => {
                assert!(matches!(error, Error::Corrupt(_) | Error::Unsupported { .. }), "{error}");
                assert!(page <= 1 || page == 10, "byte {at}: {error}");
                continue;
            }
        };
        // The header's unused bytes have no meaning and no checksum.
        assert!((2..10).contains(&page) || (60..4096).contains(&at), "byte {at}");
        let mut refused = 0;
        for item in &items {
            match table.get(&item.key, item.order) {
                Ok(found) => assert_eq!(found.value.as_ref(), Some(&item.value)),
                Err(Error::Corrupt(at)) => {
                    assert_eq!(at.offset / 4096, page as u64);
                    refused += 1;
                }
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
        assert_eq!(refused > 0, page > 1, "byte {at}");
        assert!(refused < items.len() / 4, "byte {at}: {refused}");
    }
    for bytes in [&good[..good.len() - 1], &good[..good.len() - 4096], &good[..4096], &[]] {
        disk.set_contents(table_name(), Some(bytes));
        let opened = open(&disk, CachedMarks::All);
        assert!(matches!(opened, Err(Error::Corrupt(_))), "{} bytes", bytes.len());
    }
}

/// A crash at any call leaves the whole table or none; if it leaves none, the table can be created again.
#[test]
fn crashes_leave_a_table_or_none() {
    let items = items(&mut SimRng::new(3), Mix::Fixed(100), (2, 90), u64::MAX);
    let (mut whole, mut none, mut is_done) = (0, 0, false);
    for index in 0.. {
        for (stop, crash) in
            [(Stop::Before, Crash::Power), (Stop::Amid, Crash::Power), (Stop::After, Crash::Process)]
        {
            let disk = SimDisk::new(index);
            disk.plan(FaultPlan::stop(stop, index));
            is_done = HTable::create_in(sim_env(&disk, 1).0, 2, &items).is_ok();
            disk.crash(crash, index);
            match open(&disk, CachedMarks::All) {
                Ok(table) => {
                    let is_there = |item: &HTableItem| {
                        table.get(&item.key, item.order).unwrap().value.as_ref() == Some(&item.value)
                    };
                    assert!(items.iter().all(is_there));
                    whole += 1;
                }
                Err(Error::Missing { .. }) => {
                    assert!(!is_done, "call {index}");
                    HTable::create_in(sim_env(&disk, 1).0, 2, &items).unwrap();
                    none += 1;
                }
                Err(other) => panic!("call {index}, {stop:?}: {other}"),
            }
        }
        if is_done {
            break;
        }
    }
    assert!(is_done && whole > 0 && none > 10, "{whole} {none}");
}
