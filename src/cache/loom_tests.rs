//! Models of a reader beside a thread that publishes, evicts and reuses frames, and of reads in flight.

use std::task::Waker;

use super::frames::{Counted, Retired};
use super::*;
use crate::base::id::{FileKind, FileName};
use crate::base::reserve::{Role, RoleLimits};
use crate::base::step::BlockKind;
use crate::base::sync::{Event, explore};

const BYTES: usize = 4096;

fn key(offset: u64) -> Key {
    Key { file: 1, at: offset << 12, bytes: BYTES as u32 }
}

fn address() -> BlockAddress {
    let file = FileName::new(FileKind::Table, 1);
    BlockAddress { file, file_uid: 7, offset: 4096, bytes: BYTES as u32, kind: BlockKind::Data }
}

fn frames() -> Arc<Frames> {
    let plan = FramePlan::new(64 << 10, 0);
    Arc::new(Frames::new(plan, Region::heap(plan.region_bytes)))
}

/// Fills a free frame and publishes it; the callers' lock is the model's own.
fn publish(frames: &Arc<Frames>, lock: &Mutex<()>, frame: u32, offset: u64) -> Counted {
    let _held = lock.lock();
    let mut owned = frames.take_for_model(frame, key(offset));
    owned.bytes_mut().fill(offset as u8);
    owned.publish()
}

/// Evicts a frame and uses it for another block, once the epoch allows it.
fn reuse(frames: &Arc<Frames>, lock: &Mutex<()>, epoch: &Epoch, frame: u32, offset: u64) -> bool {
    let held = lock.lock();
    if !frames.evict(frame) {
        return false;
    }
    let (retired, stamp) = Retired::new(frames, vec![frame]);
    drop(held);
    stamp.defer(epoch);
    epoch.collect();
    if !retired.has_passed() {
        return false;
    }
    let held = lock.lock();
    assert_eq!(retired.free(frames), [frame]);
    drop(held);
    drop(publish(frames, lock, frame, offset));
    true
}

fn assert_right(bytes: &[u8], offset: u64) {
    assert!(bytes.len() == BYTES && bytes.iter().all(|byte| *byte == offset as u8));
}

/// A block found under a pin is whole, and stays unchanged while its frame is evicted and reused.
#[test]
fn loom_pinned_blocks_stay() {
    explore(|| {
        let (frames, lock, epoch) = (frames(), Arc::new(Mutex::new(())), Epoch::new());
        drop(publish(&frames, &lock, 3, 1));
        let reader = loom::thread::spawn({
            let (frames, epoch) = (Arc::clone(&frames), epoch.clone());
            move || {
                let pin = epoch.pin();
                for offset in [1, 2] {
                    if let Some(bytes) = frames.lookup(key(offset), 1, &pin) {
                        assert_right(bytes, offset);
                    }
                }
            }
        });
        reuse(&frames, &lock, &epoch, 3, 2);
        reader.join().expect("it ends");
    });
}

/// The same for a block found by its hint, while its frame is reused for another block.
#[test]
fn loom_placed_blocks_stay() {
    explore(|| {
        let (frames, lock, epoch) = (frames(), Arc::new(Mutex::new(())), Epoch::new());
        let hint = FrameHint::default();
        drop(publish(&frames, &lock, 3, 1));
        frames.lookup_at(key(1), &hint, 1, &epoch.pin()).expect("it is there");
        let reader = loom::thread::spawn({
            let (frames, epoch) = (Arc::clone(&frames), epoch.clone());
            move || {
                let pin = epoch.pin();
                for offset in [1, 2] {
                    if let Some(bytes) = frames.lookup_at(key(offset), &hint, 1, &pin) {
                        assert_right(bytes, offset);
                    }
                }
            }
        });
        reuse(&frames, &lock, &epoch, 3, 2);
        reader.join().expect("it ends");
    });
}

/// A counted block stays without a pin, and is not evicted; only live frames can be counted.
#[test]
fn loom_counted_blocks_stay() {
    explore(|| {
        let (frames, lock, epoch) = (frames(), Arc::new(Mutex::new(())), Epoch::new());
        drop(publish(&frames, &lock, 3, 1));
        let reader = loom::thread::spawn({
            let (frames, epoch) = (Arc::clone(&frames), epoch.clone());
            move || {
                let pin = epoch.pin();
                let counted = frames.lookup_counted(key(1), 1, &pin);
                drop(pin);
                if let Some(counted) = counted {
                    assert_right(counted.clone().bytes(), 1);
                }
            }
        });
        reuse(&frames, &lock, &epoch, 3, 2);
        reader.join().expect("it ends");
    });
}

/// Index entries that are not being moved are found while a neighbour in their chain is removed and inserted
/// again.
#[test]
fn loom_neighbours_are_found() {
    use super::index::Index;
    use crate::base::sync::{AtomicU64, Ordering};
    explore(|| {
        let slots: Arc<Vec<AtomicU64>> = Arc::new((0..6).map(|_| AtomicU64::new(0)).collect());
        let index = Index::new(&slots);
        // One chain: the first entry stays, the third moves up when the second is removed.
        (0..3).for_each(|frame| index.insert(frame, frame));
        let reader = loom::thread::spawn({
            let slots = Arc::clone(&slots);
            move || {
                let index = Index::new(&slots);
                assert_eq!(index.find(0, |frame| frame == 0), Some(0));
                assert!(index.find(2, |frame| frame == 2).is_none_or(|frame| frame == 2));
            }
        });
        index.remove(1, 1);
        reader.join().expect("it ends");
        assert_eq!(index.find(2, |frame| frame == 2), Some(2));
        assert!(slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0).count() == 2);
    });
}

/// Of two claimers of a block one reads it and both get it; if the reader gives up, the other gets an error.
#[test]
fn loom_a_block_is_read_once() {
    for gives_up in [false, true] {
        explore(move || {
            let epoch = Epoch::new();
            let cache = Cache::new(64 << 10, epoch.clone(), Region::heap);
            let address = address();
            let want = move |cache: &Cache| match cache.claim(&address) {
                Claim::Ready(block) => assert_right(&block, 1),
                Claim::Read(slot) if gives_up => drop(slot),
                Claim::Read(mut slot) => {
                    slot.buffer().fill(1);
                    assert_right(&slot.complete(), 1);
                }
                Claim::Wait(mut waiter) => {
                    let ended = Arc::new(Event::new());
                    let waker = ended.waker();
                    let result = loop {
                        let seen = ended.seen();
                        match waiter.poll(&waker) {
                            Some(result) => break result,
                            None => ended.block(seen, None),
                        }
                    };
                    assert_eq!(result.is_err(), gives_up);
                    if let Ok(block) = result {
                        assert_right(&block, 1);
                    }
                }
            };
            let other = loom::thread::spawn({
                let cache = cache.clone();
                move || want(&cache)
            });
            want(&cache);
            other.join().expect("it ends");
            assert_eq!(cache.stats().in_flight, 0);
        });
    }
}

/// A waiter waits, changes its waker or is dropped while the read ends. It is woken by its last waker, or
/// sees the result; a dropped waiter takes no other waiter's waker along.
#[test]
fn loom_waiters_are_woken() {
    for fails in [false, true] {
        explore(move || {
            let cache = Cache::new(64 << 10, Epoch::new(), Region::heap);
            let address = address();
            let slot = cache.slot_apart(&address);
            let (mut gives_up, mut waits) = (slot.waiter(), slot.waiter());
            assert!(gives_up.poll(Waker::noop()).is_none());
            assert!(waits.poll(Waker::noop()).is_none(), "of a poll before, by another task");
            let drops = loom::thread::spawn(move || drop(gives_up));
            let reads = loom::thread::spawn(move || {
                if fails {
                    drop(slot);
                } else {
                    drop(slot.complete());
                }
            });
            let ended = Arc::new(Event::new());
            let seen = ended.seen();
            if waits.poll(&ended.waker()).is_none() {
                ended.block(seen, None);
            }
            let result = waits.poll(Waker::noop()).expect("it has ended");
            assert_eq!(result.is_err(), fails);
            drops.join().expect("it ends");
            reads.join().expect("it ends");
        });
    }
}

/// A waiter polls while another read ends and takes its block's room. The waiter sees the block, or that it
/// has to ask again, and nothing stays granted.
#[test]
fn loom_waiters_see_that_their_block_was_let_go() {
    explore(|| {
        let mut limits = RoleLimits::unlimited();
        limits.roles[Role::Untaken as usize] = BYTES as u64;
        let cache = Cache::with_annex((64 << 10, 0), limits, Epoch::new(), Region::heap);
        let (first, second) = (cache.slot_apart(&address()), cache.slot_apart(&address()));
        let (mut waits, idle) = (first.waiter(), second.waiter());
        assert!(waits.may_idle() && idle.may_idle());
        let reads = loom::thread::spawn(move || {
            drop(first.complete());
            drop(second.complete());
        });
        let ended = Arc::new(Event::new());
        let seen = ended.seen();
        if waits.poll(&ended.waker()).is_none() && !waits.is_gone() {
            ended.block(seen, None);
        }
        assert!(waits.poll(Waker::noop()).is_some_and(|block| block.is_ok()) || waits.is_gone());
        drop(waits);
        reads.join().expect("it ends");
        assert!(cache.reserve().bytes(Role::Untaken) <= BYTES as u64);
        drop(idle);
        assert_eq!(cache.reserve().bytes(Role::Untaken), 0);
    });
}
