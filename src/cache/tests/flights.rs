//! Tests of reads in flight, and of many threads at once.

use super::*;
use crate::base::error::Error;
use crate::base::reserve::{Role, RoleLimits};
use std::task::Waker;

use crate::base::sync::{AtomicU64, Event};

/// Any number of claims of one block make one read, and each waiter gets the block, as often as it asks.
#[test]
fn one_read_for_all_waiters() {
    let (cache, epoch) = cache_of(64 << 10);
    for bytes in [4096, 1 << 20] {
        let wanted = block(1, bytes);
        let slot = slot_of(&cache, &wanted);
        let mut waiters: Vec<Waiter> = (0..10).map(|_| waiter_of(&cache, &wanted)).collect();
        waiters.push(slot.waiter());
        let events: Vec<Arc<Event>> = waiters.iter().map(|_| Arc::default()).collect();
        for _ in 0..2 {
            let looks = waiters.iter_mut().zip(&events).map(|(waiter, event)| waiter.poll(&event.waker()));
            assert!(looks.into_iter().all(|block| block.is_none()));
        }
        assert!(!is_cached(&cache, &epoch, &wanted), "not before it is complete");
        assert_eq!(cache.stats().in_flight, 1);
        drop(read(slot));
        for (waiter, event) in waiters.iter_mut().zip(&events) {
            assert_eq!(event.seen(), 1, "woken once");
            for _ in 0..2 {
                let block = waiter.poll(Waker::noop()).expect("the read has ended").expect("it went well");
                assert_right(&wanted, &block);
            }
        }
        assert_eq!(cache.stats().in_flight, 0);
        drop(waiters);
        let stats = cache.stats();
        assert_eq!((stats.counted_frames, stats.heap_bytes), (0, 0));
        assert_eq!(
            matches!(cache.claim(&wanted), Claim::Ready(_)),
            bytes == 4096,
            "the large one is not kept"
        );
    }
}

/// An error reaches every waiter, nothing is cached, and the next claim reads again.
#[test]
fn errors_reach_all_waiters() {
    let (cache, epoch) = cache_of(64 << 10);
    let wanted = block(1, 4096);
    for _ in 0..100 {
        let mut slot = slot_of(&cache, &wanted);
        let mut waiters = [waiter_of(&cache, &wanted), waiter_of(&cache, &wanted)];
        slot.buffer().fill(1);
        slot.fail(Error::corrupt(wanted.file, wanted.offset, "a block's checksum", 1, 2));
        for waiter in &mut waiters {
            assert!(matches!(waiter.poll(Waker::noop()), Some(Err(Error::Corrupt(_)))));
        }
        assert!(!is_cached(&cache, &epoch, &wanted));
    }
    assert_eq!((cache.stats().used_bytes, cache.stats().in_flight), (0, 0));
    assert_right(&wanted, &get(&cache, &wanted));
}

/// A dropped slot fails its waiters with an error that names the cause.
#[test]
fn a_dropped_slot_fails_its_waiters() {
    let (cache, _) = cache_of(64 << 10);
    let wanted = block(1, 8192);
    let slot = slot_of(&cache, &wanted);
    let mut waiter = waiter_of(&cache, &wanted);
    drop(slot);
    let Some(Err(error)) = waiter.poll(Waker::noop()) else { panic!("it was given up") };
    let text = error.to_string();
    assert!(text.contains("given up") && text.contains(&wanted.file.to_string()), "{text}");
    assert_eq!(cache.stats().used_bytes, 0);
    assert_right(&wanted, &get(&cache, &wanted));
}

/// A dropped waiter is not woken, nor is a replaced waker; the read goes on.
#[test]
fn only_current_wakers_are_woken() {
    let (cache, epoch) = cache_of(64 << 10);
    let wanted = block(1, 4096);
    let slot = slot_of(&cache, &wanted);
    let events: [Arc<Event>; 4] = Default::default();
    let [moved, dropped, stays, last] = &events;
    let mut waiters: Vec<Waiter> = (0..3).map(|_| waiter_of(&cache, &wanted)).collect();
    for (waiter, event) in waiters.iter_mut().zip([moved, dropped, stays]) {
        assert!(waiter.poll(&event.waker()).is_none());
    }
    drop(waiters.remove(1));
    assert!(waiters[0].poll(&last.waker()).is_none());
    let mut late = slot.waiter();
    drop(slot.waiter());
    drop(read(slot));
    assert_eq!(events.each_ref().map(|event| event.seen()), [0, 0, 1, 1]);
    assert!(events.iter().all(|event| Arc::strong_count(event) == 1 + usize::from(event.seen() > 0)));
    assert!(late.poll(Waker::noop()).is_some_and(|block| block.is_ok()));
    assert!(is_cached(&cache, &epoch, &wanted));
}

/// A replaced waker may be the last owner of its task, and the task may own a waiter of the same read.
#[test]
fn a_replaced_waker_may_hold_a_waiter() {
    #[expect(dead_code, reason = "it is kept to be dropped")]
    struct Task(Mutex<Option<Waiter>>);
    impl std::task::Wake for Task {
        fn wake(self: Arc<Task>) {}
    }
    let (cache, _) = cache_of(64 << 10);
    let wanted = block(1, 4096);
    let slot = slot_of(&cache, &wanted);
    let [mut first, mut held] = [slot.waiter(), slot.waiter()];
    assert!(held.poll(Waker::noop()).is_none());
    let task: Waker = Arc::new(Task(Mutex::new(Some(held)))).into();
    assert!(first.poll(&task).is_none());
    drop(task);
    assert!(first.poll(Waker::noop()).is_none());
    drop(read(slot));
    assert!(first.poll(Waker::noop()).is_some());
}

/// A read claimed apart is awaited by its own waiters only: another claim reads too, and the block is cached
/// once.
#[test]
fn apart_is_waited_for_by_its_own() {
    let (cache, epoch) = cache_of(64 << 10);
    let wanted = block(1, 4096);
    for fails in [true, false] {
        assert!(cache.join(&wanted).is_none(), "it is not here");
        let mut apart = cache.slot_apart(&wanted);
        let mut own = apart.waiter();
        let shared = slot_of(&cache, &wanted);
        assert!(matches!(cache.join(&wanted), Some(Err(_))), "what is in the table is shared");
        assert!(own.poll(Waker::noop()).is_none());
        if fails {
            apart.buffer().fill(1);
            apart.fail(Error::Closed);
            assert!(matches!(own.poll(Waker::noop()), Some(Err(Error::Closed))));
            assert_eq!(cache.stats().in_flight, 1, "the other goes on");
            shared.fail(Error::Closed);
            continue;
        }
        assert_right(&wanted, &read(apart));
        assert_right(&wanted, &own.poll(Waker::noop()).expect("it has ended").expect("well"));
        assert_eq!(cache.stats().in_flight, 1, "the other goes on");
        assert_right(&wanted, &read(shared));
    }
    assert!(matches!(cache.join(&wanted), Some(Ok(_))) && is_cached(&cache, &epoch, &wanted));
    assert_eq!((cache.stats().used_bytes, cache.stats().inserts), (4096, 1));
}

/// A block that is offered while it is read, and read while it is offered, is cached once.
#[test]
fn offered_while_read_is_cached_once() {
    let (cache, epoch) = cache_of(64 << 10);
    let wanted = block(1, 4096);
    let slot = slot_of(&cache, &wanted);
    cache.insert(&wanted, &bytes_of(&wanted));
    cache.insert(&wanted, &bytes_of(&wanted));
    assert!(is_cached(&cache, &epoch, &wanted));
    assert_right(&wanted, &read(slot));
    assert_eq!((cache.stats().used_bytes, cache.stats().inserts), (4096, 1));
    let counted = cache.lookup_counted(&wanted, &epoch.pin()).expect("cached");
    assert_eq!(cache.stats().counted_frames, 1);
    assert_right(&wanted, &counted);
}

/// One thread's share of the stress: lookups, claims, waits, offers. Every block seen is checked.
fn stress(cache: &Cache, epoch: &Epoch, seed: u64, reads: &AtomicU64) {
    let mut dice = Dice(seed);
    let mut held: Vec<(BlockAddress, BlockRef)> = Vec::new();
    let ended = Arc::new(Event::new());
    let waker = ended.waker();
    for _ in 0..ROUNDS {
        let index = dice.below(120).min(dice.below(120));
        let wanted = block(index, [8, 8, 9, 16, 8, 200][index as usize % 6] * UNIT);
        let pin = epoch.pin();
        if let Some(bytes) = cache.lookup(&wanted, &pin) {
            assert_right(&wanted, bytes);
            if dice.below(16) == 0 {
                held.extend(cache.lookup_counted(&wanted, &pin).map(|block| (wanted, block)));
            }
            // Once more, after other threads had time to evict it.
            if dice.below(64) == 0 {
                std::thread::yield_now();
                assert_right(&wanted, bytes);
            }
            continue;
        }
        drop(pin);
        if dice.below(4) == 0 {
            cache.insert(&wanted, &bytes_of(&wanted));
            continue;
        }
        let block = match cache.claim(&wanted) {
            Claim::Ready(block) => block,
            Claim::Read(slot) if dice.below(16) == 0 => {
                slot.fail(Error::Closed);
                continue;
            }
            Claim::Read(slot) => {
                reads.fetch_add(1, Ordering::Relaxed);
                read(slot)
            }
            Claim::Wait(mut waiter) => loop {
                let seen = ended.seen();
                match waiter.poll(&waker) {
                    Some(Ok(block)) => break block,
                    Some(Err(_)) => break get_any(cache, &wanted),
                    None => ended.block(seen, None),
                }
            },
        };
        held.push((wanted, block));
        if held.len() > 3 {
            let (address, block) = held.swap_remove(dice.below(4) as usize % held.len());
            assert_right(&address, &block);
        }
        held.truncate(4);
    }
}

/// The block, while other threads claim it too: waits for their reads.
fn get_any(cache: &Cache, wanted: &BlockAddress) -> BlockRef {
    let ended = Arc::new(Event::new());
    let waker = ended.waker();
    loop {
        match cache.claim(wanted) {
            Claim::Ready(block) => return block,
            Claim::Read(slot) => return read(slot),
            Claim::Wait(mut waiter) => {
                let seen = ended.seen();
                match waiter.poll(&waker) {
                    Some(Ok(block)) => return block,
                    Some(Err(_)) => {}
                    None => ended.block(seen, None),
                }
            }
        }
    }
}

/// Four threads on a cache much too small: each sees only right blocks, and at the end no frame is lost.
#[test]
fn threads_see_only_right_blocks() {
    for bytes in [40 << 10, 256 << 10] {
        let (cache, epoch) = cache_of(bytes);
        let reads = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (cache, epoch, reads) = (&cache, &epoch, &reads);
                scope.spawn(move || stress(cache, epoch, seed, reads));
            }
        });
        assert!(reads.load(Ordering::Relaxed) > 0);
        let stats = cache.stats();
        assert_eq!((stats.counted_frames, stats.heap_bytes, stats.in_flight), (0, 0, 0));
        cache.shared.pool.lock().check();
        // Every frame is available again, so none was lost.
        epoch.collect();
        let held: Vec<BlockRef> = (0..200).map(|index| get(&cache, &block(10_000 + index, 4096))).collect();
        epoch.collect();
        let more: Vec<BlockRef> = (0..200).map(|index| get(&cache, &block(20_000 + index, 4096))).collect();
        assert_eq!(cache.stats().counted_frames * 4096, stats.capacity_bytes);
        drop((held, more));
    }
}

/// Threads that claim the same new blocks at the same moment read each block once.
#[test]
fn racing_claims_never_read_twice() {
    let (cache, _) = cache_of(4 << 20);
    let count = if cfg!(miri) { 10 } else { 500 };
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for index in 0..count {
                    match cache.claim(&block(index, 4096)) {
                        Claim::Ready(_) | Claim::Wait(_) => {}
                        Claim::Read(slot) => {
                            reads.fetch_add(1, Ordering::Relaxed);
                            read(slot);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(reads.load(Ordering::Relaxed), count);
}

/// Blocks that were not polled since they were read are granted up to the limit of their role, the newest
/// first. Waiters of the others ask again, and so do those made by `Waiter::gone`.
#[test]
fn unpolled_blocks_are_bounded() {
    let epoch = Epoch::new();
    let mut limits = RoleLimits::unlimited();
    limits.roles[Role::Untaken as usize] = 10 * 4096;
    let cache = Cache::with_annex((64 << 10, 0), limits, epoch, Region::heap);
    let taken_bytes = || cache.reserve().bytes(Role::Untaken);
    let blocks: Vec<BlockAddress> = (0..500).map(|index| block(index, 4096)).collect();
    let ended = |wanted: &BlockAddress| {
        let slot = slot_of(&cache, wanted);
        let waiter = slot.waiter();
        assert!(waiter.may_idle());
        drop(read(slot));
        waiter
    };
    // A waiter without a future is sure to poll.
    let slot = slot_of(&cache, &block(700, 4096));
    let waits = slot.waiter();
    drop(read(slot));
    assert!(taken_bytes() == 0 && !waits.is_gone());
    drop(waits);
    let mut waiters: Vec<Waiter> = blocks.iter().map(ended).collect();
    assert_eq!(taken_bytes(), 10 * 4096);
    assert!(cache.shared.untaken.lock().len() < 200, "those that were let go of are forgotten");
    let stats = cache.stats();
    assert!(stats.counted_frames * 4096 + stats.heap_bytes <= 10 * 4096, "{stats:?}");
    for (index, (waiter, wanted)) in waiters.iter_mut().zip(&blocks).enumerate() {
        assert_eq!(waiter.is_gone(), index < 490);
        match waiter.poll(Waker::noop()) {
            Some(result) => assert_right(wanted, &result.expect("it went well")),
            None => assert_right(wanted, &get(&cache, wanted)),
        }
    }
    drop(waiters);
    assert_eq!((taken_bytes(), cache.stats().counted_frames, cache.stats().heap_bytes), (0, 0, 0));
    // A block larger than the limit is kept while it is alone.
    let mut large = [block(600, 1 << 20), block(601, 1 << 20)].map(|wanted| ended(&wanted));
    assert_eq!(large.each_ref().map(Waiter::is_gone), [true, false]);
    assert!(large[1].poll(Waker::noop()).is_some() && taken_bytes() == 1 << 20);
    drop(large);
    assert_eq!(taken_bytes(), 0);
    assert!(Waiter::gone().is_gone() && Waiter::gone().poll(Waker::noop()).is_none());
}
