//! Models of a turn that is handed over. Wakers and reference counts are those of the standard library.

use super::*;
use crate::base::id::{FileKind, FileName};
use crate::base::step::BlockKind;
use crate::base::sync::{Event, explore_deep};

const BLOCK: BlockAddress = BlockAddress {
    file: FileName { kind: FileKind::Table, number: 1, path: 0 },
    file_uid: 1,
    offset: 0,
    bytes: 1,
    kind: BlockKind::Data,
};

fn poll(admission: &Arc<ReadAdmission>, queued: &mut Option<QueuedRead>, waker: &Waker) -> Poll<ReadTurn> {
    admission.poll(queued, (&BLOCK, false), waker)
}

/// Begins reads for all owners, and waits for its own turn.
fn read_and_wait(admission: &Arc<ReadAdmission>, woken: &Arc<Event>) -> ReadTurn {
    let mut queued = None;
    loop {
        let seen = woken.seen();
        admission.begin(|_, _permit| Err(Waiter::of_nothing()));
        match poll(admission, &mut queued, &woken.waker()) {
            Poll::Ready(turn) => return turn,
            Poll::Pending => woken.block(seen, None),
        }
    }
}

/// The first owner in the queue is dropped while its turn comes: the next has its turn, whichever happens
/// first.
#[test]
fn loom_a_dropped_place_holds_up_no_owner() {
    explore_deep(|| {
        let woken = Arc::new(Event::new());
        let admission = ReadAdmission::new(ReadLimits { reads: 1, bytes: 100 }, woken.waker(), None);
        let (permit, mut first) = (admission.try_now(1), None);
        assert!(poll(&admission, &mut first, Waker::noop()).is_pending());
        let reads = loom::thread::spawn(move || drop(permit));
        let gives_up = loom::thread::spawn(move || drop(first));
        drop(read_and_wait(&admission, &woken));
        reads.join().expect("it ends");
        gives_up.join().expect("it ends");
        assert_eq!(admission.counts(), (ReadLimits::default(), 0));
        assert!(admission.state.lock().begun.is_empty());
    });
}

/// A waiting owner is woken when another thread begins its read, or when the queue is closed.
#[test]
fn loom_a_turn_is_heard_of() {
    explore_deep(|| {
        let admission = ReadAdmission::new(ReadLimits { reads: 1, bytes: 100 }, Waker::noop().clone(), None);
        let permit = admission.try_now(1);
        let reads = {
            let admission = Arc::clone(&admission);
            loom::thread::spawn(move || {
                drop(permit);
                admission.begin(|_, _permit| Err(Waiter::of_nothing()));
                admission.close();
            })
        };
        let (woken, mut queued) = (Arc::new(Event::new()), None);
        loop {
            let seen = woken.seen();
            match poll(&admission, &mut queued, &woken.waker()) {
                Poll::Ready(turn) => break drop(turn),
                Poll::Pending => woken.block(seen, None),
            }
        }
        reads.join().expect("it ends");
        assert_eq!(admission.counts(), (ReadLimits::default(), 0));
    });
}
