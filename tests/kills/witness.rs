//! The witness: a record of the child's submitted and acknowledged operations, in memory that outlives the
//! child.
//!
//! It is a mapped file of words. The child counts an operation as submitted before it makes the call and as
//! acknowledged after the call returned. Both also take a ticket from one counter, so that operations of
//! different threads can be ordered. The parent maps the same file and reads it when the child has ended.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::raw::SharedWords;

/// The writing threads of the child.
pub(crate) const THREADS: usize = 3;
/// The most operations of one thread in one life of the child.
pub(crate) const OPS_MAX: usize = 20_000;
/// The most checkpoints in one life of the child.
pub(crate) const COPIES_MAX: usize = 2;

const PHASE_AT: usize = 0;
const TICKET_AT: usize = 1;
const SEED_AT: usize = 2;
const CYCLE_AT: usize = 3;
const CLOSES_AFTER_AT: usize = 4;
const THREADS_AT: usize = 16;
const THREAD_WORDS: usize = 8;
const COPIES_AT: usize = 64;
const COPY_WORDS: usize = 16;
const TICKETS_AT: usize = 512;
const WORDS: usize = TICKETS_AT + THREADS * OPS_MAX * 2;

const SUBMITTED: usize = 0;
const ACKNOWLEDGED: usize = 1;
const SYNCED: usize = 2;
const OWN: usize = 3;
const NEXT_OWN: usize = 4;
const NO_OWN: u64 = u64::MAX;

/// The progress of the child.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    Started,
    Opening,
    Loading,
    Closing,
    Closed,
}

const PHASES: [Phase; 5] = [Phase::Started, Phase::Opening, Phase::Loading, Phase::Closing, Phase::Closed];

/// The orders for a life of the child, besides its seed's plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    pub(crate) seed: u64,
    pub(crate) cycle: u64,
    /// The operations after which each thread ends and the store is closed.
    pub(crate) closes_after: usize,
    pub(crate) owns: [Own; THREADS],
}

/// The thread's own keyspace, which it makes and drops; each one has a new name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Own {
    pub(crate) present: Option<u32>,
    pub(crate) next: u32,
}

/// The numbers of a thread's operations by status.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) submitted: usize,
    pub(crate) acknowledged: usize,
    /// The acknowledged ones that survive a power cut.
    pub(crate) synced: usize,
}

/// The progress of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copy {
    pub(crate) is_done: bool,
    /// For each thread, the operations acknowledged before it began.
    pub(crate) from: [usize; THREADS],
    /// For each thread, the operations submitted when it had returned.
    pub(crate) to: [usize; THREADS],
}

pub(crate) struct Witness {
    shared: SharedWords,
}

impl Witness {
    /// Makes a new file.
    pub(crate) fn new(path: &Path, orders: &Orders) -> Witness {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).read(true).write(true).open(path).unwrap();
        file.set_len(WORDS as u64 * 8).unwrap();
        let witness = Witness { shared: SharedWords::map(&file, WORDS) };
        let set = |at: usize, value: u64| witness.word(at).store(value, Ordering::SeqCst);
        set(SEED_AT, orders.seed);
        set(CYCLE_AT, orders.cycle);
        set(CLOSES_AFTER_AT, orders.closes_after as u64);
        for (thread, own) in orders.owns.iter().enumerate() {
            witness.of(thread, OWN).store(own.present.map_or(NO_OWN, u64::from), Ordering::SeqCst);
            witness.of(thread, NEXT_OWN).store(own.next.into(), Ordering::SeqCst);
        }
        witness
    }

    /// Opens an existing file.
    pub(crate) fn open(path: &Path) -> Witness {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        Witness { shared: SharedWords::map(&file, WORDS) }
    }

    pub(crate) fn orders(&self) -> Orders {
        let get = |at: usize| self.word(at).load(Ordering::SeqCst);
        let own = |thread: usize| {
            let present = self.of(thread, OWN).load(Ordering::SeqCst);
            let next = self.of(thread, NEXT_OWN).load(Ordering::SeqCst) as u32;
            Own { present: (present != NO_OWN).then_some(present as u32), next }
        };
        Orders {
            seed: get(SEED_AT),
            cycle: get(CYCLE_AT),
            closes_after: get(CLOSES_AFTER_AT) as usize,
            owns: std::array::from_fn(own),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.word(PHASE_AT).store(phase as u64, Ordering::SeqCst);
    }

    pub(crate) fn phase(&self) -> Phase {
        PHASES[self.word(PHASE_AT).load(Ordering::SeqCst) as usize]
    }

    /// Records that the thread is about to make this operation.
    pub(crate) fn submit(&self, thread: usize, op: usize) {
        self.ticket_word(thread, op, 0).store(self.next_ticket(), Ordering::SeqCst);
        self.of(thread, SUBMITTED).store(op as u64 + 1, Ordering::SeqCst);
    }

    /// Records that the operation has returned.
    pub(crate) fn acknowledge(&self, thread: usize, op: usize) {
        self.ticket_word(thread, op, 1).store(self.next_ticket(), Ordering::SeqCst);
        self.of(thread, ACKNOWLEDGED).store(op as u64 + 1, Ordering::SeqCst);
    }

    /// Records that these acknowledged operations survive a power cut.
    pub(crate) fn synced(&self, counts: [usize; THREADS]) {
        for (thread, count) in counts.into_iter().enumerate() {
            self.of(thread, SYNCED).fetch_max(count as u64, Ordering::SeqCst);
        }
    }

    pub(crate) fn counts(&self, thread: usize) -> Counts {
        let get = |what: usize| self.of(thread, what).load(Ordering::SeqCst) as usize;
        // In this order, because another thread continues to count.
        let (synced, acknowledged) = (get(SYNCED), get(ACKNOWLEDGED));
        Counts { submitted: get(SUBMITTED), acknowledged, synced }
    }

    pub(crate) fn acknowledged(&self) -> [usize; THREADS] {
        std::array::from_fn(|thread| self.counts(thread).acknowledged)
    }

    pub(crate) fn submitted(&self) -> [usize; THREADS] {
        std::array::from_fn(|thread| self.counts(thread).submitted)
    }

    /// The tickets of an operation: of its submission, and of its acknowledgement if there is one.
    pub(crate) fn tickets(&self, thread: usize, op: usize) -> (u64, Option<u64>) {
        let get = |which| self.ticket_word(thread, op, which).load(Ordering::SeqCst);
        (get(0), (op < self.counts(thread).acknowledged).then(|| get(1)))
    }

    pub(crate) fn begin_copy(&self, copy: usize) {
        for (thread, from) in self.acknowledged().into_iter().enumerate() {
            self.copy_word(copy, 1 + thread).store(from as u64, Ordering::SeqCst);
        }
        self.copy_word(copy, 0).store(1, Ordering::SeqCst);
    }

    pub(crate) fn end_copy(&self, copy: usize) {
        for (thread, to) in self.submitted().into_iter().enumerate() {
            self.copy_word(copy, 1 + THREADS + thread).store(to as u64, Ordering::SeqCst);
        }
        self.copy_word(copy, 0).store(2, Ordering::SeqCst);
    }

    /// A checkpoint, if it was begun.
    pub(crate) fn copy(&self, copy: usize) -> Option<Copy> {
        let get = |at: usize| self.copy_word(copy, at).load(Ordering::SeqCst) as usize;
        let from = std::array::from_fn(|thread| get(1 + thread));
        match get(0) {
            0 => None,
            1 => Some(Copy { is_done: false, from, to: self.submitted() }),
            _ => {
                let to = std::array::from_fn(|thread| get(1 + THREADS + thread));
                Some(Copy { is_done: true, from, to })
            }
        }
    }

    fn next_ticket(&self) -> u64 {
        self.word(TICKET_AT).fetch_add(1, Ordering::SeqCst)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.shared.words()[at]
    }

    fn of(&self, thread: usize, what: usize) -> &AtomicU64 {
        self.word(THREADS_AT + thread * THREAD_WORDS + what)
    }

    fn copy_word(&self, copy: usize, at: usize) -> &AtomicU64 {
        self.word(COPIES_AT + copy * COPY_WORDS + at)
    }

    fn ticket_word(&self, thread: usize, op: usize, which: usize) -> &AtomicU64 {
        self.word(TICKETS_AT + (thread * OPS_MAX + op) * 2 + which)
    }
}
