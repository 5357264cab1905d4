//! Models of the worker's bell: a push or an earlier timer comes while the worker is about to wait. The bell
//! is an event here, and the clock stands still.

use super::*;
use crate::base::epoch::Epoch;
use crate::base::few::Few;
use crate::base::id::{FileKind, FileName};
use crate::base::region::Region;
use crate::base::step::{BlockAddress, BlockKind};
use crate::base::sync::{explore, explore_deep};
use crate::cache::{Cache, Claim};

/// Waits as the worker does with reads in flight, unless it need not wait. Returns whether there was a
/// timeout.
fn wait(reads: &ReadQueue) -> bool {
    let bell: Arc<Event> = Arc::default();
    let seen = bell.seen();
    let timeout_ns = reads.listen(bell.waker(), 0);
    if timeout_ns.is_none() {
        bell.block(seen, None);
    }
    reads.queue.lock().bell = None;
    timeout_ns.is_some_and(|ns| ns > 0)
}

/// The block of a cache at an offset, claimed.
fn claimed(cache: &Cache, offset: u64) -> Few<Claimed> {
    let file = FileName::new(FileKind::Table, 1);
    let address = BlockAddress { file, file_uid: 7, offset, bytes: 4096, kind: BlockKind::Data };
    match cache.claim(&address) {
        Claim::Read(slot) => Few::from_buf([Claimed::new(slot)]),
        Claim::Ready(_) | Claim::Wait(_) => unreachable!("nobody has it"),
    }
}

/// A push beside a worker that is about to wait for its reads is taken or ends the wait. So is a second push.
#[test]
fn loom_a_push_ends_the_wait() {
    explore(|| {
        let reads = Arc::new(ReadQueue::new(Reserve::alone()));
        let cache = Cache::new(64 << 10, Epoch::new(), Region::heap);
        let blocks = [0, 4096].map(|offset| claimed(&cache, offset));
        let pushes = loom::thread::spawn({
            let reads = Arc::clone(&reads);
            move || blocks.into_iter().for_each(|block| assert!(reads.push(block).is_none()))
        });
        let mut taken = Vec::new();
        while taken.len() < 2 {
            wait(&reads);
            taken.append(&mut reads.queue.lock().asked);
        }
        pushes.join().expect("it ends");
    });
}

/// A timer beside such a worker limits the wait or ends it.
#[test]
fn loom_a_time_is_heard_of() {
    explore_deep(|| {
        let reads = Arc::new(ReadQueue::new(Reserve::alone()));
        let adds = loom::thread::spawn({
            let reads = Arc::clone(&reads);
            move || reads.wake_at(5, Waker::noop())
        });
        while !wait(&reads) {}
        drop(adds.join().expect("it ends"));
    });
}
