//! The queue compared with a model of it, and a long queue.

use std::collections::BTreeMap;

use super::*;
use crate::base::id::{FileKind, FileName};
use crate::base::step::BlockKind;
use crate::base::sync::Event;
use crate::io::sim::SimRng;

const LIMITS: ReadLimits = ReadLimits { reads: 4, bytes: 100 };

/// A block of `bytes` bytes whose offset encodes its owner's number.
fn block(number: usize, bytes: u64) -> BlockAddress {
    let (file, offset) = (FileName::new(FileKind::Table, 1), 512 * number as u64);
    BlockAddress { file, file_uid: 1, offset, bytes: bytes as u32, kind: BlockKind::Data }
}

fn number(address: &BlockAddress) -> usize {
    address.offset as usize / 512
}

/// An admission, the event that wakes its reader, and the permits of admitted reads.
struct Line {
    admission: Arc<ReadAdmission>,
    reader: Arc<Event>,
    permits: BTreeMap<usize, Permit>,
}

impl Line {
    fn new(limits: ReadLimits) -> Line {
        let reader: Arc<Event> = Arc::default();
        let admission = ReadAdmission::new(limits, reader.waker(), None);
        Line { admission, reader, permits: BTreeMap::new() }
    }

    /// Polls a read; `true` if its turn has come.
    fn poll(&mut self, queued: &mut Option<QueuedRead>, of: (usize, u64, bool), waker: &Waker) -> bool {
        let (who, bytes, has_begun) = of;
        match self.admission.poll(queued, (&block(who, bytes), has_begun), waker) {
            Poll::Pending => false,
            Poll::Ready(ReadTurn::Begun(_)) => true,
            Poll::Ready(ReadTurn::Own(permit)) => {
                self.permits.insert(who, permit);
                true
            }
        }
    }

    /// Begins the reads that have room; returns their owners.
    fn begin(&mut self) -> Vec<usize> {
        let mut begun = Vec::new();
        self.admission.begin(|address, permit| {
            begun.push(number(address));
            self.permits.insert(number(address), permit);
            Err(Waiter::of_nothing())
        });
        begun
    }

    fn end(&mut self, who: usize) {
        assert!(self.permits.remove(&who).is_some());
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turned {
    InLine,
    /// The read was begun, and its owner has not polled since.
    Untold,
    Told,
}

/// The owner of a read, as the model sees it.
struct Client {
    bytes: u64,
    has_begun: bool,
    queued: Option<QueuedRead>,
    /// Woken by the waker of the last poll.
    woken: Arc<Event>,
    turned: Turned,
}

/// The model: clients by number, their reads in flight, and the queue as a list.
struct Twin {
    line: Line,
    clients: BTreeMap<usize, Client>,
    reading: BTreeMap<usize, u64>,
    waiting: Vec<usize>,
    next: usize,
    /// The count of the reader's event when it last began reads.
    seen: u64,
}

impl Twin {
    fn new() -> Twin {
        Twin {
            line: Line::new(LIMITS),
            clients: BTreeMap::new(),
            reading: BTreeMap::new(),
            waiting: Vec::new(),
            next: 0,
            seen: 0,
        }
    }

    fn admitted(&self) -> ReadLimits {
        ReadLimits { reads: self.reading.len() as u64, bytes: self.reading.values().sum() }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let ReadLimits { reads, bytes: all } = self.admitted();
        reads == 0 || (reads < LIMITS.reads && all + bytes <= LIMITS.bytes)
    }

    /// Adds a client.
    fn arrive(&mut self, bytes: u64, has_begun: bool) {
        let begun = |number: &&usize| self.clients[number].has_begun;
        let ahead = if has_begun { self.waiting.iter().filter(begun).count() } else { self.waiting.len() };
        let number = self.next;
        self.next += 1;
        let turned = if ahead == 0 && self.has_room(bytes) {
            self.reading.insert(number, bytes);
            Turned::Untold
        } else {
            self.waiting.insert(ahead, number);
            Turned::InLine
        };
        let client = Client { bytes, has_begun, queued: None, woken: Arc::default(), turned };
        self.clients.insert(number, client);
        self.poll(number);
    }

    /// Polls a client with a new waker.
    fn poll(&mut self, number: usize) {
        let client = self.clients.get_mut(&number).expect("it is there");
        client.woken = Arc::default();
        let of = (number, client.bytes, client.has_begun);
        let is_told = self.line.poll(&mut client.queued, of, &client.woken.waker());
        assert_eq!(is_told, client.turned == Turned::Untold, "client {number}");
        assert_eq!(client.queued.is_none(), is_told);
        if is_told {
            client.turned = Turned::Told;
        }
    }

    fn begin(&mut self) {
        self.seen = self.line.reader.seen();
        let mut begun = Vec::new();
        while let Some(first) = self.waiting.first().copied() {
            let bytes = self.clients[&first].bytes;
            if !self.has_room(bytes) {
                break;
            }
            self.waiting.remove(0);
            self.reading.insert(first, bytes);
            self.clients.get_mut(&first).expect("it waits").turned = Turned::Untold;
            begun.push(first);
        }
        assert_eq!(self.line.begin(), begun);
    }

    /// Drops a client; its read, if there is one, goes on.
    fn leave(&mut self, number: usize) {
        self.waiting.retain(|other| *other != number);
        drop(self.clients.remove(&number));
    }

    fn end(&mut self, number: usize) {
        self.reading.remove(&number);
        self.line.end(number);
    }

    fn check(&self) {
        let admitted = self.admitted();
        assert_eq!(self.line.admission.counts(), (admitted, self.waiting.len() as u64));
        assert!(admitted.reads <= LIMITS.reads && (admitted.bytes <= LIMITS.bytes || admitted.reads == 1));
        for (number, client) in &self.clients {
            let is_woken = client.turned == Turned::Untold;
            assert_eq!(client.woken.seen(), u64::from(is_woken), "client {number}");
        }
        if let Some(first) = self.waiting.first() {
            let is_told = self.line.reader.seen() > self.seen;
            assert!(is_told || !self.has_room(self.clients[first].bytes), "there is room for {first}");
        }
    }

    fn one(&self, rng: &mut SimRng, of: impl Iterator<Item = usize>) -> Option<usize> {
        let of: Vec<usize> = of.collect();
        (!of.is_empty()).then(|| of[rng.index(of.len())])
    }

    fn with_a_place(&self, rng: &mut SimRng) -> Option<usize> {
        let of = self.clients.iter().filter(|(_, client)| client.queued.is_some());
        self.one(rng, of.map(|(number, _)| *number))
    }
}

/// Reads of any size arrive, are polled, dropped and ended at random. The queue equals the model's at each
/// step. The owner of a begun read is woken once. The reader is woken whenever it could begin a read. Every
/// read is begun in the end, polled or not.
#[test]
fn the_line_is_the_models() {
    for seed in 0..if cfg!(miri) { 2 } else { 200 } {
        let (mut twin, mut rng) = (Twin::new(), SimRng::new(seed));
        for _ in 0..200 {
            match rng.below(9) {
                0..3 => {
                    let bytes = if rng.one_in(10) { 150 } else { 1 + rng.below(60) };
                    twin.arrive(bytes, rng.one_in(3));
                }
                3 => twin.with_a_place(&mut rng).into_iter().for_each(|number| twin.poll(number)),
                4 => twin.with_a_place(&mut rng).into_iter().for_each(|number| twin.leave(number)),
                5..7 => {
                    let ended = twin.one(&mut rng, twin.reading.keys().copied());
                    ended.into_iter().for_each(|number| twin.end(number));
                }
                _ => twin.begin(),
            }
            twin.check();
        }
        while !twin.waiting.is_empty() || !twin.reading.is_empty() {
            twin.begin();
            twin.check();
            let ended = twin.one(&mut rng, twin.reading.keys().copied());
            twin.end(ended.expect("somebody is always begun"));
        }
        let places = || twin.clients.iter().filter(|(_, client)| client.queued.is_some());
        let untold: Vec<usize> = places().map(|(number, _)| *number).collect();
        untold.into_iter().for_each(|number| twin.poll(number));
        assert_eq!(twin.line.admission.counts(), (ReadLimits::default(), 0));
        assert!(twin.line.admission.state.lock().begun.is_empty());
    }
}

/// A read larger than the whole limit is begun alone, at its turn; later reads wait for it.
#[test]
fn a_large_read_is_alone() {
    let mut line = Line::new(LIMITS);
    let (mut large, mut small) = (None, None);
    assert!(line.poll(&mut None, (0, 1, false), Waker::noop()));
    assert!(!line.poll(&mut large, (1, 1000, false), Waker::noop()));
    assert!(!line.poll(&mut small, (2, 1, false), Waker::noop()), "nobody overtakes");
    assert!(line.begin().is_empty());
    line.end(0);
    assert_eq!((line.reader.seen(), line.begin()), (1, vec![1]));
    assert_eq!(line.admission.counts(), (ReadLimits { reads: 1, bytes: 1000 }, 1));
    line.end(1);
    assert_eq!(line.begin(), [2]);
    assert!(line.poll(&mut small, (2, 1, false), Waker::noop()));
    assert!(line.poll(&mut large, (1, 1000, false), Waker::noop()));
}

/// Owners whose turn has come delay no others, polled or not: the next reads are begun when theirs end.
#[test]
fn unpolled_owners_delay_no_reads() {
    let mut line = Line::new(ReadLimits { reads: 1, bytes: 100 });
    let woken: [Arc<Event>; 2] = Default::default();
    let (mut forgotten, mut next) = (None, None);
    assert!(line.poll(&mut None, (0, 1, false), Waker::noop()));
    assert!(!line.poll(&mut forgotten, (1, 1, false), &woken[0].waker()));
    assert!(!line.poll(&mut next, (2, 1, false), &woken[1].waker()));
    line.end(0);
    assert_eq!(line.begin(), [1]);
    std::mem::forget(forgotten);
    line.end(1);
    assert_eq!((line.begin(), woken.map(|woken| woken.seen())), (vec![2], [1, 1]));
}

/// An owner that is dropped while its read is being begun leaves nothing behind.
#[test]
fn an_owner_may_go_meanwhile() {
    let line = Line::new(ReadLimits { reads: 1, bytes: 100 });
    let (permit, mut queued) = (line.admission.try_now(1), None);
    let poll = |queued: &mut Option<QueuedRead>| {
        line.admission.poll(queued, (&block(1, 1), false), Waker::noop()).is_pending()
    };
    assert!(poll(&mut queued) && line.admission.try_now(1).is_none());
    drop(permit);
    line.admission.begin(|_, _permit| {
        assert!(poll(&mut queued), "it is being begun");
        queued = None;
        Err(Waiter::of_nothing())
    });
    assert!(line.admission.state.lock().begun.is_empty());
    assert_eq!(line.admission.counts(), (ReadLimits::default(), 0));
}

/// Once the queue is closed, waiting owners are woken and have turns of their own, as have later ones.
#[test]
fn the_end_admits_all() {
    let mut line = Line::new(ReadLimits { reads: 1, bytes: 100 });
    let (woken, mut queued): (Arc<Event>, _) = (Arc::default(), None);
    assert!(line.poll(&mut None, (0, 1, false), Waker::noop()));
    assert!(!line.poll(&mut queued, (1, 1, false), &woken.waker()));
    line.admission.close();
    assert_eq!(woken.seen(), 1);
    assert!(line.poll(&mut queued, (1, 1, false), Waker::noop()) && queued.is_none());
    assert!(line.poll(&mut None, (2, 1000, false), Waker::noop()));
    assert_eq!(line.permits.len(), 3);
}

/// A caller of `begin` that panics leaves a read unbegun: closing wakes its owner, which begins it.
#[test]
fn the_end_wakes_the_owner_that_a_panic_left() {
    let mut line = Line::new(ReadLimits { reads: 1, bytes: 100 });
    let (woken, mut queued): (Arc<Event>, _) = (Arc::default(), None);
    assert!(line.poll(&mut None, (0, 1, false), Waker::noop()));
    assert!(!line.poll(&mut queued, (1, 1, false), &woken.waker()));
    line.permits.clear();
    let panicking = || line.admission.begin(|_, _permit| panic!("planned"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
    assert_eq!(woken.seen(), 0);
    line.admission.close();
    assert_eq!(woken.seen(), 1);
    assert!(line.poll(&mut queued, (1, 1, false), Waker::noop()) && queued.is_none());
}

/// A replaced waker may be the last reference to its task, which may hold a place in the same queue.
#[test]
fn a_replaced_waker_may_hold_a_place() {
    #[expect(dead_code, reason = "it is kept to be dropped")]
    struct Task(Mutex<Option<QueuedRead>>);
    impl std::task::Wake for Task {
        fn wake(self: Arc<Task>) {}
    }
    let mut line = Line::new(ReadLimits { reads: 1, bytes: 100 });
    assert!(line.poll(&mut None, (0, 1, false), Waker::noop()));
    let (mut first, mut held) = (None, None);
    assert!(!line.poll(&mut held, (1, 1, false), Waker::noop()));
    let task: Waker = Arc::new(Task(Mutex::new(held))).into();
    assert!(!line.poll(&mut first, (2, 1, false), &task));
    drop(task);
    assert!(!line.poll(&mut first, (2, 1, false), Waker::noop()));
    assert_eq!(line.admission.counts().1, 1);
}

/// Of 100,000 queued reads, every third is dropped. The others are begun one by one in the order of arrival,
/// and none is left.
#[test]
fn a_long_line_moves_up() {
    const COUNT: usize = if cfg!(miri) { 100 } else { 100_000 };
    let mut line = Line::new(ReadLimits { reads: 1, bytes: 100 });
    assert!(line.poll(&mut None, (COUNT, 1, false), Waker::noop()));
    let woken: Vec<Arc<Event>> = (0..COUNT).map(|_| Arc::default()).collect();
    let arrive = |(number, woken): (usize, &Arc<Event>)| {
        let mut queued = None;
        assert!(!line.poll(&mut queued, (number, 1, false), &woken.waker()));
        queued
    };
    let mut places: Vec<Option<QueuedRead>> = woken.iter().enumerate().map(arrive).collect();
    places.iter_mut().step_by(3).for_each(|queued| drop(queued.take()));
    let waiting = |number: &usize| !number.is_multiple_of(3);
    let mut waiting_count = (0..COUNT).filter(waiting).count() as u64;
    let mut before = COUNT;
    for number in (0..COUNT).filter(waiting) {
        assert_eq!(line.admission.counts(), (ReadLimits { reads: 1, bytes: 1 }, waiting_count));
        assert_eq!(woken[number].seen(), 0, "it is not its turn");
        line.end(before);
        assert_eq!((line.begin(), woken[number].seen()), (vec![number], 1), "it is the next");
        (before, waiting_count) = (number, waiting_count - 1);
    }
    line.end(before);
    assert_eq!(line.admission.counts(), (ReadLimits::default(), 0));
    let is_woken = |(number, woken): (usize, &Arc<Event>)| woken.seen() == u64::from(waiting(&number));
    assert!(woken.iter().enumerate().all(is_woken));
}
