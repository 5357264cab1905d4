//! The annex: memory that the cache has only for a while.

use super::*;
use crate::base::reserve::Role;

/// Memory for tests with bays smaller than huge pages.
const SMALL: (usize, usize) = (1 << 20, 512 << 10);

fn with_annex(bytes: (usize, usize)) -> (Cache, Epoch) {
    let epoch = Epoch::new();
    (Cache::with_annex(bytes, RoleLimits::unlimited(), epoch.clone(), Region::heap), epoch)
}

fn check(cache: &Cache) {
    cache.shared.pool.lock().check();
}

/// Closed, the annex costs nothing beyond the given bytes; open, it adds all of its bytes. Whole huge pages
/// are asked for and given back.
#[test]
fn an_annex_comes_on_top() {
    for (bytes, annex_bytes) in
        [(0, 0), (8 << 10, 8 << 10), (20 << 10, 20 << 10), SMALL, (20 << 20, 11 << 20), (70 << 20, 32 << 20)]
    {
        let asked = AtomicUsize::new(0);
        let cache = Cache::with_annex((bytes, annex_bytes), RoleLimits::unlimited(), Epoch::new(), |bytes| {
            asked.fetch_add(bytes, Ordering::Relaxed);
            Region::heap(bytes)
        });
        let closed = cache.stats();
        assert!((closed.capacity_bytes + closed.index_bytes) as usize <= bytes, "{closed:?}");
        assert!(asked.load(Ordering::Relaxed) <= bytes + annex_bytes);
        assert_eq!(closed.annex_bytes, 0);
        cache.shut_annex(0);
        check(&cache);
        let open = cache.stats();
        let came = (open.capacity_bytes - closed.capacity_bytes) as usize;
        assert_eq!(came, open.annex_bytes as usize);
        if bytes > 64 << 10 {
            assert!(came <= annex_bytes && came * 10 > annex_bytes * 8, "{came} of {annex_bytes}");
        }
        if bytes >= 64 << 20 {
            assert_eq!((asked.load(Ordering::Relaxed) % (2 << 20), came % (2 << 20)), (0, 0));
        }
        assert_right(&block(1, 4096), &get(&cache, &block(1, 4096)));
        cache.shut_annex(usize::MAX);
        assert_eq!(
            (cache.close_annex(), cache.stats().capacity_bytes),
            (AnnexClosing::Done, closed.capacity_bytes)
        );
    }
}

/// The annex is opened, filled, closed in part and whole, and opened again, in small bays and in huge pages.
/// Closed bays hold no blocks; the others keep theirs.
#[test]
fn an_annex_opens_and_closes() {
    for (bytes, annex_bytes) in [SMALL, (16 << 20, 8 << 20)] {
        let (cache, epoch) = with_annex((bytes, annex_bytes));
        let base = cache.stats().capacity_bytes;
        for round in 0..3 {
            cache.shut_annex(0);
            for units in [8, 15] {
                let first = 100_000 * (round * 2 + u64::from(units == 15));
                assert!(fill_with(&cache, &epoch, units * UNIT, first, FORGETS) > 0.7);
            }
            let full = cache.stats();
            assert!(full.used_bytes > base, "{full:?}");
            cache.shut_annex(annex_bytes / 2);
            assert_eq!(cache.close_annex(), AnnexClosing::Done);
            check(&cache);
            let half = cache.stats();
            assert!(half.annex_bytes > 0 && half.annex_bytes * 2 <= annex_bytes as u64, "{half:?}");
            assert!(half.used_bytes <= half.capacity_bytes && half.used_bytes * 2 > base, "{half:?}");
            cache.shut_annex(usize::MAX);
            assert_eq!(cache.close_annex(), AnnexClosing::Done);
            check(&cache);
            let closed = cache.stats();
            assert_eq!((closed.annex_bytes, closed.capacity_bytes), (0, base));
            assert!(closed.used_bytes <= base, "{closed:?}");
        }
    }
}

/// Counted blocks stay, and so do their bays. The rest is closed, and their bays once the counts are dropped.
/// The bays may be wanted back before that.
#[test]
fn counted_blocks_keep_their_bays() {
    for opens_again in [false, true] {
        let (cache, epoch) = with_annex(SMALL);
        cache.shut_annex(0);
        let count = cache.stats().capacity_bytes / 4096;
        let mut held: Vec<(BlockAddress, BlockRef)> =
            (0..count).map(|index| (block(index, 4096), get(&cache, &block(index, 4096)))).collect();
        assert_eq!(cache.stats().heap_bytes, 0, "every frame is counted");
        let mut nth = 0;
        held.retain(|_| {
            nth += 1;
            nth % 100 == 0
        });
        cache.shut_annex(usize::MAX);
        assert_eq!(cache.close_annex(), AnnexClosing::Late);
        check(&cache);
        let late = cache.stats().annex_bytes;
        assert!(late > 0 && late <= held.len() as u64 * (64 << 10), "{late}");
        for (address, block) in &held {
            assert_right(address, block);
            assert!(is_cached(&cache, &epoch, address));
        }
        if opens_again {
            cache.shut_annex(0);
            check(&cache);
            assert!(fill_with(&cache, &epoch, 4096, 100_000, FORGETS) > 0.9);
            held.iter().for_each(|(address, block)| assert_right(address, block));
            cache.shut_annex(usize::MAX);
        }
        drop(held);
        assert_eq!((cache.close_annex(), cache.stats().annex_bytes), (AnnexClosing::Done, 0));
        check(&cache);
    }
}

/// A pinned reader's bytes stay unchanged, whether the annex is opened again meanwhile or not. Their bay is
/// closed when the pin has ended.
#[test]
fn pinned_readers_delay_the_closing_of_bays() {
    for opens_again in [false, true] {
        let (cache, epoch) = with_annex(SMALL);
        cache.shut_annex(0);
        fill_with(&cache, &epoch, 4096, 0, 1);
        let count = cache.stats().capacity_bytes / 4096;
        let pin = epoch.pin();
        let seen: Vec<(BlockAddress, &[u8])> = (0..count)
            .map(|index| block(index, 4096))
            .filter_map(|address| Some((address, cache.lookup(&address, &pin)?)))
            .collect();
        cache.shut_annex(usize::MAX);
        assert_eq!(cache.close_annex(), AnnexClosing::Late);
        check(&cache);
        if opens_again {
            cache.shut_annex(0);
            (0..300).for_each(|index| drop(get(&cache, &block(10_000 + index, 4096))));
            check(&cache);
        }
        seen.iter().for_each(|(address, bytes)| assert_right(address, bytes));
        drop(pin);
        cache.shut_annex(usize::MAX);
        assert_eq!((cache.close_annex(), cache.stats().annex_bytes), (AnnexClosing::Done, 0));
        check(&cache);
    }
}

/// Pages and loans are served without the annex, however much of it is free, and keep none of it open.
#[test]
fn pages_and_loans_are_never_in_the_annex() {
    let (cache, epoch) = with_annex(SMALL);
    let base = cache.stats().capacity_bytes;
    cache.shut_annex(0);
    assert!(cache.pin_pages((base / 4096) as usize + 1, 4096, u64::MAX).is_none());
    fill_with(&cache, &epoch, 4096, 0, 2);
    let mut pages = cache.pin_pages((base / 2 / 4096) as usize, 4096, u64::MAX).expect("half of the base");
    pages.page_mut(0, 4096).fill(7);
    let loan = cache.reserve().grant(Role::Ingests, base / 4);
    fill_with(&cache, &epoch, 8192, 100_000, 3);
    check(&cache);
    let stats = cache.stats();
    assert!(stats.used_bytes + stats.pinned_bytes + stats.lent_bytes <= stats.capacity_bytes, "{stats:?}");
    cache.shut_annex(usize::MAX);
    assert_eq!(cache.close_annex(), AnnexClosing::Done);
    let stats = cache.stats();
    assert!(stats.used_bytes + stats.pinned_bytes + stats.lent_bytes <= base, "{stats:?}");
    assert!(pages.page(0, 4096).iter().all(|byte| *byte == 7));
    let all = cache.reserve().grant(Role::Ingests, base);
    cache.shut_annex(0);
    get(&cache, &block(900_000, 4096));
    assert!(is_cached(&cache, &epoch, &block(900_000, 4096)), "blocks have it when all else is lent");
    drop((loan, all, pages));
    check(&cache);
}

/// In any mix of calls, blocks are right and the counts balance.
#[test]
fn an_annex_in_any_mix() {
    for bytes in [(64 << 10, 64 << 10), (300 << 10, 200 << 10), SMALL] {
        let (cache, _) = with_annex(bytes);
        let mut dice = Dice(bytes.0 as u64);
        let (mut held, mut pages, mut loans) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS / 2 {
            let index = dice.below(1 + (bytes.0 as u64 >> 12) * 3);
            let wanted = block(index, [8, 8, 8, 9, 12, 15, 16, 20, 100, 200][(index % 10) as usize] * UNIT);
            match dice.below(64) {
                0 => cache.shut_annex(dice.below(bytes.1 as u64 + 1) as usize),
                1 => cache.shut_annex(0),
                2 | 3 => drop(cache.close_annex()),
                4 => pages.extend(cache.pin_pages(
                    dice.below(20) as usize,
                    512 << dice.below(4),
                    bytes.0 as u64 / 2,
                )),
                5 => loans.push(cache.reserve().grant(Role::Ingests, dice.below(bytes.0 as u64 / 8))),
                6 => (pages, loans) = (Vec::new(), Vec::new()),
                7 => held.clear(),
                8 => cache.insert(&wanted, &bytes_of(&wanted)),
                step => {
                    let block = get(&cache, &wanted);
                    assert_right(&wanted, &block);
                    if step == 9 && held.len() < 6 {
                        held.push(block);
                    }
                }
            }
            check(&cache);
        }
        drop((held, pages, loans));
        cache.shut_annex(usize::MAX);
        assert_eq!(cache.close_annex(), AnnexClosing::Done);
        check(&cache);
        assert_eq!((cache.stats().annex_bytes, cache.stats().heap_bytes), (0, 0));
    }
}

/// Threads that read all the while, by pin and by count, see only the blocks that they look up, while two
/// others open and close the annex.
#[test]
fn readers_do_not_see_it_close() {
    let (cache, epoch) = with_annex(SMALL);
    let count = (SMALL.0 + SMALL.1) as u64 / 4096;
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (cache, epoch) = (&cache, &epoch);
            scope.spawn(move || {
                let mut dice = Dice(seed);
                for _ in 0..ROUNDS {
                    let wanted = block(dice.below(count), 4096);
                    let pin = epoch.pin();
                    match cache.lookup(&wanted, &pin) {
                        Some(bytes) => assert_right(&wanted, bytes),
                        None => {
                            drop(pin);
                            if let Claim::Read(slot) = cache.claim(&wanted) {
                                assert_right(&wanted, &read(slot));
                            }
                        }
                    }
                }
            });
            scope.spawn(move || {
                let mut dice = Dice(seed + 10);
                for _ in 0..ROUNDS / 50 {
                    cache.shut_annex(dice.below(2 * SMALL.1 as u64).saturating_sub(SMALL.1 as u64) as usize);
                    cache.close_annex();
                }
            });
        }
    });
    cache.shut_annex(usize::MAX);
    while cache.close_annex() == AnnexClosing::Late {}
    check(&cache);
    assert_eq!((cache.stats().annex_bytes, cache.stats().counted_frames), (0, 0));
}
