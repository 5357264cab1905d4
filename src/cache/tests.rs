//! Tests of the cache as a whole.

mod annex;
mod flights;
mod hints;
mod marks;
mod shares;

use std::collections::BTreeMap;

use super::*;
use crate::base::id::{FileKind, FileName};
use crate::base::step::BlockKind;
use crate::base::sync::{AtomicUsize, Ordering};
use crate::cache::visits::DATA_VISITS;

const UNIT: u32 = frames::UNIT_BYTES as u32;
/// Miri runs the same tests, shorter.
const ROUNDS: usize = if cfg!(miri) { 60 } else { 20_000 };

fn cache_of(bytes: usize) -> (Cache, Epoch) {
    let epoch = Epoch::new();
    (Cache::new(bytes, epoch.clone(), Region::heap), epoch)
}

fn address(file: u64, offset: u64, bytes: u32) -> BlockAddress {
    let file = FileName::new(FileKind::Table, file);
    BlockAddress { file, file_uid: 7, offset, bytes, kind: BlockKind::Data }
}

/// The `index`-th block of a made-up file, of `bytes` bytes.
fn block(index: u64, bytes: u32) -> BlockAddress {
    address(index % 7 + 1, (index / 7 + 1) << 21, bytes)
}

/// A word of a block: a function of the block's address and the word's place.
fn word_of(address: &BlockAddress, place: usize) -> u64 {
    (address.file.number << 48 ^ address.offset ^ u64::from(address.bytes) << 40)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(place as u64)
}

fn fill(address: &BlockAddress, bytes: &mut [u8]) {
    for (place, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_of(address, place).to_le_bytes());
    }
}

fn assert_right(address: &BlockAddress, bytes: &[u8]) {
    assert_eq!(bytes.len(), address.bytes as usize);
    for (place, word) in bytes.chunks_exact(8).enumerate() {
        assert_eq!(word, word_of(address, place).to_le_bytes(), "{address:?} at word {place}");
    }
}

fn bytes_of(address: &BlockAddress) -> Vec<u8> {
    let mut bytes = vec![0; address.bytes as usize];
    fill(address, &mut bytes);
    bytes
}

fn read(mut slot: ReadSlot) -> BlockRef {
    let address = *slot.address();
    fill(&address, slot.buffer());
    slot.complete()
}

/// A refilled slot has the new bytes in place of the bytes read, under the same key, in frames and in heap
/// memory. A refill that fails changes nothing; no frame is lost.
#[test]
fn a_refill_replaces_the_bytes_of_a_block() {
    let (cache, epoch) = cache_of(256 << 10);
    for round in 0..200 {
        for (index, bytes) in [(1, 4096usize), (2, 8192), (3, 1 << 20)] {
            let address = block(index + round * 10, UNIT * (1 + index as u32));
            let Claim::Read(mut slot) = cache.claim(&address) else { panic!("not read yet") };
            fill(&address, slot.buffer());
            let failed = slot.refill(bytes, |_, _| Err("as it was"));
            assert_eq!(failed, Err("as it was"));
            assert_right(&address, slot.buffer());
            let doubled: Result<(), ()> = slot.refill(bytes, |read, larger| {
                assert_right(&address, read);
                larger.fill(index as u8);
                Ok(())
            });
            assert_eq!(doubled, Ok(()));
            let block = slot.complete();
            assert!(block.len() == bytes && block.iter().all(|byte| *byte == index as u8));
            drop(block);
            let pin = epoch.pin();
            let found = cache.lookup(&address, &pin).map(<[u8]>::len);
            assert_eq!(found, (bytes <= 8192).then_some(bytes));
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.heap_bytes, stats.counted_frames, stats.in_flight), (0, 0, 0));
    assert!(stats.used_bytes <= stats.capacity_bytes && stats.inserts == 400);
}

/// The block through a claim that no other thread competes with.
fn get(cache: &Cache, address: &BlockAddress) -> BlockRef {
    match cache.claim(address) {
        Claim::Ready(block) => block,
        Claim::Read(slot) => read(slot),
        Claim::Wait(_) => panic!("nobody else reads"),
    }
}

fn slot_of(cache: &Cache, address: &BlockAddress) -> ReadSlot {
    match cache.claim(address) {
        Claim::Read(slot) => slot,
        _ => panic!("nobody has read {address:?}"),
    }
}

fn waiter_of(cache: &Cache, address: &BlockAddress) -> Waiter {
    match cache.claim(address) {
        Claim::Wait(waiter) => waiter,
        _ => panic!("{address:?} is being read"),
    }
}

fn is_cached(cache: &Cache, epoch: &Epoch, address: &BlockAddress) -> bool {
    cache.lookup(address, &epoch.pin()).is_some()
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// In any mix of lookups, claims, inserts and held blocks, a block is always right and the counts always
/// balance. A place that other blocks used leads to no wrong block.
#[test]
fn a_hit_is_always_right() {
    for bytes in [16 << 10, 64 << 10, 300 << 10, 12 << 20] {
        let (cache, epoch) = cache_of(bytes);
        let mut dice = Dice(bytes as u64);
        let mut held: Vec<(BlockAddress, BlockRef)> = Vec::new();
        let (mut hits, mut inserted) = (0, BTreeMap::new());
        let hints: [FrameHint; 5] = Default::default();
        for _ in 0..ROUNDS {
            let index = dice.below(1 + (bytes as u64 >> 12) * 2);
            let units = [8, 8, 8, 9, 12, 15, 16, 20, 100, 200][(index % 10) as usize];
            let wanted = block(index, units * UNIT);
            match dice.below(8) {
                0 => {
                    cache.insert(&wanted, &bytes_of(&wanted));
                    inserted.insert(index, wanted);
                }
                1 | 2 => {
                    let block = get(&cache, &wanted);
                    assert_right(&wanted, &block);
                    inserted.insert(index, wanted);
                    if held.len() < 4 {
                        held.push((wanted, block));
                    }
                }
                3 if !held.is_empty() => {
                    let (address, block) = held.swap_remove(dice.below(held.len() as u64) as usize);
                    assert_right(&address, &block);
                }
                4 => drop(cache.claim(&wanted)),
                _ => {
                    let pin = epoch.pin();
                    let found = cache.lookup(&wanted, &pin);
                    let hint = &hints[index as usize % hints.len()];
                    assert_eq!(
                        cache.lookup_at(&wanted, hint, &pin).map(<[u8]>::as_ptr),
                        found.map(<[u8]>::as_ptr)
                    );
                    if let Some(bytes) = found {
                        assert_right(&wanted, bytes);
                        assert!(inserted.contains_key(&index), "only what was put in is found");
                        hits += 1;
                    }
                }
            }
            cache.shared.pool.lock().check();
        }
        assert!(hits > 0 || cfg!(miri));
        drop(held);
        let stats = cache.stats();
        assert_eq!((stats.counted_frames, stats.heap_bytes, stats.in_flight), (0, 0, 0));
        assert!(stats.used_bytes <= stats.capacity_bytes);
    }
}

/// At any size, the cache asks for no more bytes than given, index included; huge pages are asked for whole.
#[test]
fn memory_never_exceeds_the_given_bytes() {
    for bytes in [0, 1, 4096, 8 << 10, 9 << 10, 16 << 10, 64 << 10, 100_000, 3 << 20, 40 << 20, 64 << 20] {
        let asked = AtomicUsize::new(0);
        let cache = Cache::new(bytes, Epoch::new(), |bytes| {
            asked.fetch_add(bytes, Ordering::Relaxed);
            Region::heap(bytes)
        });
        let stats = cache.stats();
        assert!(asked.load(Ordering::Relaxed) <= bytes);
        assert!((stats.capacity_bytes + stats.index_bytes) as usize <= bytes);
        if bytes >= 64 << 10 {
            assert!(stats.capacity_bytes as usize >= bytes / 10 * 8, "{bytes}: {stats:?}");
        }
        if bytes >= 64 << 20 {
            assert_eq!(asked.load(Ordering::Relaxed) % (2 << 20), 0);
        }
        assert_right(&block(1, 4096), &get(&cache, &block(1, 4096)));
    }
    let plan = FramePlan::new(1 << 40, 0);
    assert!(plan.index_bytes * 50 < 1 << 40, "index and headers are under 2 %");
}

/// Refused memory makes the cache smaller, down to none, and it still works.
#[test]
fn refused_memory_makes_a_smaller_cache() {
    let small =
        Cache::new(1 << 20, Epoch::new(), |bytes| if bytes > 300 << 10 { None } else { Region::heap(bytes) });
    assert!((100 << 10..=300 << 10).contains(&small.stats().capacity_bytes));
    let none = Cache::new(1 << 20, Epoch::new(), |_| None);
    let held = get(&none, &block(1, 4096));
    assert_right(&block(1, 4096), &held);
    assert_eq!((none.stats().capacity_bytes, none.stats().heap_bytes), (0, 4096));
    none.insert(&block(1, 4096), &held);
    assert!(matches!(none.claim(&block(1, 4096)), Claim::Read(_)));
}

/// Frames of 4096 bytes are aligned to it, all others to 512, blocks outside the frames to 4096.
#[test]
fn buffers_are_aligned_for_direct_io() {
    let (cache, _) = cache_of(3 << 20);
    for (index, units) in (8..=130).chain([2200]).enumerate() {
        let mut slot = slot_of(&cache, &block(index as u64, units * UNIT));
        let align = if units == 8 || units > 128 { 4096 } else { 512 };
        assert_eq!(slot.buffer().len(), (units * UNIT) as usize);
        assert_eq!(slot.buffer().as_ptr() as usize % align, 0);
    }
}

/// Rounds over all blocks after which formerly hit blocks are evicted.
const FORGETS: usize = DATA_VISITS as usize + 2;

/// Reads `count` blocks of `bytes` in several rounds; returns the cached ones as a share of the capacity.
fn fill_with(cache: &Cache, epoch: &Epoch, bytes: u32, first: u64, rounds: usize) -> f64 {
    let capacity = cache.stats().capacity_bytes;
    let count = capacity / u64::from(bytes);
    for _ in 0..rounds {
        for index in first..first + count {
            if !is_cached(cache, epoch, &block(index, bytes)) {
                get(cache, &block(index, bytes));
            }
        }
    }
    let cached =
        (first..first + count).filter(|index| is_cached(cache, epoch, &block(*index, bytes))).count();
    (cached as u64 * u64::from(bytes)) as f64 / capacity as f64
}

/// When all blocks change their size, the slabs follow: to the larger size, back, and to odd ones.
#[test]
fn slabs_follow_the_sizes_in_use() {
    for capacity in [256 << 10, 10 << 20] {
        let (cache, epoch) = cache_of(capacity);
        for (turn, bytes) in [4096, 8192, 4096, 7680, 65536, 4608].into_iter().enumerate() {
            if cache.stats().capacity_bytes / u64::from(bytes) < 16 {
                continue;
            }
            let share = fill_with(&cache, &epoch, bytes, turn as u64 * 100_000, 6);
            assert!(share > 0.7, "{bytes} of {capacity}: {share}");
            cache.shared.pool.lock().check();
        }
    }
}

/// A class with no slab gets one at once, though everything else is hit all the time; blocks that are hit all
/// the time mostly stay.
#[test]
fn no_class_is_starved_and_hit_blocks_stay() {
    let (cache, epoch) = cache_of(10 << 20);
    let hot_count = cache.stats().capacity_bytes / 4096;
    fill_with(&cache, &epoch, 4096, 0, 2);
    for index in 0..40 {
        let wanted = block(1_000_000 + index, 8192);
        get(&cache, &wanted);
        assert!(is_cached(&cache, &epoch, &wanted), "the {index}th found a frame");
        for hot in 0..hot_count {
            is_cached(&cache, &epoch, &block(hot, 4096));
        }
    }
    let kept = (0..hot_count).filter(|hot| is_cached(&cache, &epoch, &block(*hot, 4096))).count();
    assert!(kept as f64 > hot_count as f64 * 0.8, "{kept} of {hot_count}");
}

/// A scan over many times the cache leaves the blocks that are hit between its steps.
#[test]
fn a_scan_evicts_few_hit_blocks() {
    let (cache, epoch) = cache_of(2 << 20);
    let hot_count = cache.stats().capacity_bytes / 4096 / 2;
    for index in 0..hot_count {
        get(&cache, &block(index, 4096));
    }
    for step in 0..hot_count * 10 {
        get(&cache, &block(100_000 + step, 4096));
        for hot in 0..4 {
            is_cached(&cache, &epoch, &block((step * 4 + hot) % hot_count, 4096));
        }
    }
    let kept = (0..hot_count).filter(|hot| is_cached(&cache, &epoch, &block(*hot, 4096))).count();
    assert!(kept as f64 > hot_count as f64 * 0.9, "{kept} of {hot_count}");
}

/// Counted blocks stay unchanged under any eviction, also when all frames are counted; then new blocks lie on
/// the heap.
#[test]
fn counted_blocks_survive_any_churn() {
    let (cache, epoch) = cache_of(64 << 10);
    let held: Vec<(BlockAddress, BlockRef)> =
        (0..100).map(|index| (block(index, 4096), get(&cache, &block(index, 4096)))).collect();
    let stats = cache.stats();
    assert_eq!(stats.counted_frames * 4096, stats.capacity_bytes, "every frame is counted");
    assert_eq!(stats.heap_bytes, 100 * 4096 - stats.capacity_bytes);
    for index in 0..200 {
        let other = block(1000 + index, if index % 2 == 0 { 4096 } else { 8192 });
        assert_right(&other, &get(&cache, &other));
        cache.insert(&other, &bytes_of(&other));
        assert!(!is_cached(&cache, &epoch, &other));
    }
    let again: Vec<BlockRef> = held.iter().map(|(_, block)| block.clone()).collect();
    for ((address, one), two) in held.iter().zip(&again) {
        assert_right(address, one);
        assert_right(address, two);
    }
    drop(held);
    assert!(cache.stats().counted_frames > 0);
    drop(again);
    assert_eq!((cache.stats().counted_frames, cache.stats().heap_bytes), (0, 0));
    get(&cache, &block(5000, 8192));
    assert!(is_cached(&cache, &epoch, &block(5000, 8192)));
}

/// A pinned reader's bytes stay unchanged while everything around is evicted. New blocks then do without
/// frames, and the reader empties no more than a bounded part of the cache.
#[test]
fn pinned_bytes_stay() {
    let (cache, epoch) = cache_of(2 << 20);
    let first = block(0, 4096);
    get(&cache, &first);
    let pin = epoch.pin();
    let seen = cache.lookup(&first, &pin).expect("just read");
    for index in 1..2_000 {
        get(&cache, &block(index, 4096));
    }
    assert_right(&first, seen);
    let stats = cache.stats();
    assert!(stats.used_bytes * 10 > stats.capacity_bytes * 8, "{stats:?}");
    drop(pin);
    for index in 2_000..2_000 + FORGETS as u64 * 512 {
        get(&cache, &block(index, 4096));
    }
    assert!(!is_cached(&cache, &epoch, &first));
}

/// One offset under two lengths, as only a damaged index names it, is two blocks; odd lengths are never
/// cached.
#[test]
fn lengths_are_part_of_the_name() {
    let (cache, epoch) = cache_of(64 << 10);
    let (short, long, odd) = (address(1, 0, 4096), address(1, 0, 8192), address(1, 0, 5000));
    for wanted in [short, long, odd, short, long, odd] {
        assert_right(&wanted, &get(&cache, &wanted));
    }
    assert!(is_cached(&cache, &epoch, &short) && is_cached(&cache, &epoch, &long));
    assert!(!is_cached(&cache, &epoch, &odd));
    assert_eq!(get(&cache, &address(1, 0, 0)).len(), 0);
}

/// Blocks, slots and waiters outlive the cache they came from.
#[test]
fn blocks_slots_and_waiters_outlive_the_cache() {
    let (cache, _) = cache_of(64 << 10);
    let held = get(&cache, &block(1, 4096));
    let slot = slot_of(&cache, &block(2, 4096));
    let mut waiter = waiter_of(&cache, &block(2, 4096));
    drop(cache);
    assert_right(&block(1, 4096), &held);
    drop(read(slot));
    assert_right(&block(2, 4096), &waiter.poll(std::task::Waker::noop()).expect("ended").expect("well"));
    fn is_free<T: Send + Sync + 'static>() {}
    is_free::<(BlockRef, ReadSlot, Waiter, Cache)>();
}

/// An offset that an index names as two kinds of block is two blocks: bytes verified as one kind are never
/// returned for the other, nor is a read of one kind joined for the other.
#[test]
fn kinds_are_told_apart() {
    let (cache, epoch) = cache_of(1 << 20);
    let [data, fence] =
        [BlockKind::Data, BlockKind::Fence].map(|kind| BlockAddress { kind, ..block(1, 4096) });
    let Claim::Read(slot) = cache.claim(&data) else { panic!("nothing is cached") };
    assert!(cache.join(&fence).is_none());
    drop(read(slot));
    assert!(cache.holds(&data) && !cache.holds(&fence));
    assert!(cache.lookup(&fence, &epoch.pin()).is_none());
    let Claim::Read(_) = cache.claim(&fence) else { panic!("only the other is cached") };
}
