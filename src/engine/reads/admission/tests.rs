//! The line beside a model of it, and a long one.

use std::collections::BTreeMap;

use super::*;
use crate::base::sync::Event;
use crate::io::sim::SimRng;

const LIMITS: Limits = Limits { reads: 4, bytes: 100 };

fn admission(limits: Limits) -> Arc<Admission> {
    let admission = Arc::new(Admission::default());
    admission.set_limits(limits);
    admission
}

/// Who wants a read, as the model sees it: `Some(woken)` beside a place that was admitted.
struct Client {
    bytes: u64,
    has_begun: bool,
    place: Option<Place>,
    permit: Option<Permit>,
    /// Of the last poll.
    woken: Arc<Event>,
    is_admitted: bool,
}

/// Clients by number, and the line as a list.
struct Twin {
    admission: Arc<Admission>,
    clients: BTreeMap<usize, Client>,
    line: Vec<usize>,
    next: usize,
}

impl Twin {
    fn new() -> Twin {
        Twin { admission: admission(LIMITS), clients: BTreeMap::new(), line: Vec::new(), next: 0 }
    }

    fn admitted(&self) -> Limits {
        let admitted = self.clients.values().filter(|client| client.is_admitted);
        admitted.fold(Limits::default(), |Limits { reads, bytes }, client| Limits {
            reads: reads + 1,
            bytes: bytes + client.bytes,
        })
    }

    fn has_room(&self, bytes: u64) -> bool {
        let Limits { reads, bytes: all } = self.admitted();
        reads == 0 || (reads < LIMITS.reads && all + bytes <= LIMITS.bytes)
    }

    fn admit_waiting(&mut self) {
        while let Some(first) = self.line.first().copied() {
            if !self.has_room(self.clients[&first].bytes) {
                return;
            }
            self.line.remove(0);
            self.clients.get_mut(&first).expect("it waits").is_admitted = true;
        }
    }

    /// One more comes.
    fn arrive(&mut self, bytes: u64, has_begun: bool) {
        let begun = |number: &&usize| self.clients[number].has_begun;
        let ahead = if has_begun { self.line.iter().filter(begun).count() } else { self.line.len() };
        let is_admitted = ahead == 0 && self.has_room(bytes);
        let number = self.next;
        self.next += 1;
        if !is_admitted {
            self.line.insert(ahead, number);
        }
        let client =
            Client { bytes, has_begun, place: None, permit: None, woken: Arc::default(), is_admitted };
        self.clients.insert(number, client);
        self.poll(number);
        assert_eq!(self.clients[&number].permit.is_some(), is_admitted);
    }

    /// With another waker than before.
    fn poll(&mut self, number: usize) {
        let client = self.clients.get_mut(&number).expect("it is there");
        client.woken = Arc::default();
        let wants = (client.bytes, client.has_begun);
        match self.admission.poll(&mut client.place, wants, &client.woken.waker()) {
            Poll::Ready(permit) => client.permit = Some(permit),
            Poll::Pending => assert!(client.place.is_some()),
        }
        assert_eq!(client.permit.is_some(), client.is_admitted, "client {number}");
        assert_eq!(client.permit.is_none(), client.place.is_some());
    }

    /// Somebody who waits, was admitted, or reads gives it up.
    fn leave(&mut self, number: usize) {
        let client = self.clients.remove(&number).expect("it is there");
        self.line.retain(|other| *other != number);
        self.admit_waiting();
        drop(client);
    }

    fn check(&self) {
        let admitted = self.admitted();
        assert_eq!(self.admission.counts(), (admitted, self.line.len() as u64));
        assert!(admitted.reads <= LIMITS.reads && (admitted.bytes <= LIMITS.bytes || admitted.reads == 1));
        for (number, client) in &self.clients {
            let is_told = client.permit.is_none() && client.is_admitted;
            assert_eq!(client.woken.seen(), u64::from(is_told), "client {number}");
        }
    }

    fn one(&self, rng: &mut SimRng, which: impl Fn(&Client) -> bool) -> Option<usize> {
        let of: Vec<usize> =
            self.clients.iter().filter(|(_, client)| which(client)).map(|(number, _)| *number).collect();
        (!of.is_empty()).then(|| of[rng.index(of.len())])
    }
}

/// Reads of any size come, look again, give up and end at random: the line is the model's at each step, who
/// is admitted is woken once, and all are admitted in the end.
#[test]
fn the_line_is_the_models() {
    for seed in 0..if cfg!(miri) { 2 } else { 200 } {
        let (mut twin, mut rng) = (Twin::new(), SimRng::new(seed));
        for _ in 0..200 {
            let chosen = match rng.below(8) {
                0..3 => {
                    let bytes = if rng.one_in(10) { 150 } else { 1 + rng.below(60) };
                    twin.arrive(bytes, rng.one_in(3));
                    None
                }
                3 => twin.one(&mut rng, |client| client.place.is_some()).map(|number| (number, true)),
                4 => twin.one(&mut rng, |client| client.place.is_some()).map(|number| (number, false)),
                5 => {
                    let untold = |client: &Client| client.place.is_some() && client.is_admitted;
                    twin.one(&mut rng, untold).map(|number| (number, false))
                }
                _ => twin.one(&mut rng, |client| client.permit.is_some()).map(|number| (number, false)),
            };
            match chosen {
                Some((number, true)) => twin.poll(number),
                Some((number, false)) => twin.leave(number),
                None => {}
            }
            twin.check();
        }
        while !twin.clients.is_empty() {
            let told = twin.clients.iter().find(|(_, client)| client.is_admitted && client.place.is_some());
            if let Some(number) = told.map(|(number, _)| *number) {
                twin.poll(number);
            }
            let reading = twin.one(&mut rng, |client| client.permit.is_some());
            twin.leave(reading.expect("somebody is always admitted"));
            twin.check();
        }
        assert_eq!(twin.admission.counts(), (Limits::default(), 0));
    }
}

/// A read larger than all may be alone is admitted alone, when its turn comes; those behind it wait for it.
#[test]
fn a_large_read_is_alone() {
    let admission = admission(LIMITS);
    let (mut large, mut small) = (None, None);
    let woken: [Arc<Event>; 2] = Default::default();
    let Poll::Ready(first) = admission.poll(&mut None, (1, false), Waker::noop()) else { panic!("room") };
    assert!(admission.poll(&mut large, (1000, false), &woken[0].waker()).is_pending());
    assert!(admission.poll(&mut small, (1, false), &woken[1].waker()).is_pending(), "nobody overtakes");
    drop(first);
    assert_eq!(woken.each_ref().map(|woken| woken.seen()), [1, 0]);
    let Poll::Ready(permit) = admission.poll(&mut large, (1000, false), Waker::noop()) else {
        panic!("told")
    };
    assert_eq!(admission.counts(), (Limits { reads: 1, bytes: 1000 }, 1));
    drop(permit);
    assert_eq!(woken.each_ref().map(|woken| woken.seen()), [1, 1]);
}

/// A place that was admitted and is dropped before its owner hears of it passes its turn on.
#[test]
fn an_untold_place_passes_its_turn_on() {
    let admission = admission(Limits { reads: 1, bytes: 100 });
    let (mut untold, mut next) = (None, None);
    let woken: [Arc<Event>; 2] = Default::default();
    let permit = admission.poll(&mut None, (1, false), Waker::noop());
    assert!(admission.poll(&mut untold, (1, false), &woken[0].waker()).is_pending());
    assert!(admission.poll(&mut next, (1, false), &woken[1].waker()).is_pending());
    drop(permit);
    assert_eq!(woken.each_ref().map(|woken| woken.seen()), [1, 0]);
    drop(untold);
    assert_eq!(woken.each_ref().map(|woken| woken.seen()), [1, 1]);
    assert!(admission.poll(&mut next, (1, false), Waker::noop()).is_ready());
    assert_eq!(admission.counts(), (Limits::default(), 0));
}

/// A waker that is replaced may be the last to hold its task, and that a place in the same line.
#[test]
fn a_replaced_waker_may_hold_a_place() {
    #[expect(dead_code, reason = "it is kept to be dropped")]
    struct Task(Mutex<Option<Place>>);
    impl std::task::Wake for Task {
        fn wake(self: Arc<Task>) {}
    }
    let admission = admission(Limits { reads: 1, bytes: 100 });
    let _permit = admission.poll(&mut None, (1, false), Waker::noop());
    let (mut first, mut held) = (None, None);
    assert!(admission.poll(&mut held, (1, false), Waker::noop()).is_pending());
    let task: Waker = Arc::new(Task(Mutex::new(held))).into();
    assert!(admission.poll(&mut first, (1, false), &task).is_pending());
    drop(task);
    assert!(admission.poll(&mut first, (1, false), Waker::noop()).is_pending());
    assert_eq!(admission.counts().1, 1);
}

/// Of 100,000 in line, every third gives up; the others are admitted one by one in the order in which they
/// came, and nobody is left.
#[test]
fn a_long_line_moves_up() {
    const COUNT: usize = if cfg!(miri) { 100 } else { 100_000 };
    let admission = admission(Limits { reads: 1, bytes: 100 });
    let mut permit = admission.poll(&mut None, (1, false), Waker::noop());
    let woken: Vec<Arc<Event>> = (0..COUNT).map(|_| Arc::default()).collect();
    let arrive = |woken: &Arc<Event>| {
        let mut place = None;
        assert!(admission.poll(&mut place, (1, false), &woken.waker()).is_pending());
        place
    };
    let mut places: Vec<Option<Place>> = woken.iter().map(arrive).collect();
    places.iter_mut().step_by(3).for_each(|place| drop(place.take()));
    let waiting = |number: usize| !number.is_multiple_of(3);
    let mut waiting_count = (0..COUNT).filter(|number| waiting(*number)).count() as u64;
    for number in (0..COUNT).filter(|number| waiting(*number)) {
        assert_eq!(admission.counts(), (Limits { reads: 1, bytes: 1 }, waiting_count));
        assert_eq!(woken[number].seen(), 0, "it is not its turn");
        drop(permit);
        assert_eq!(woken[number].seen(), 1, "it is the next");
        permit = admission.poll(&mut places[number], (1, false), Waker::noop());
        assert!(permit.is_ready());
        waiting_count -= 1;
    }
    drop(permit);
    assert_eq!(admission.counts(), (Limits::default(), 0));
    assert!(woken.iter().enumerate().all(|(number, woken)| woken.seen() == u64::from(waiting(number))));
}
