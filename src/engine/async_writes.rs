//! Writes of futures: nobody waits on the thread that polls.
//!
//! A write that has nothing to wait for is done where it is polled. Others queue here for the commit worker,
//! which starts with the first of them: it has them commit together, waits for room, memory and pace, and
//! syncs, while their futures hold no thread.
//!
//! 1. A write that is given up while it is in the queue was never begun: nothing of it is written. Once the
//!    worker has taken it, it is written whole or refused whole, whoever waits for it.
//! 2. The worker never waits within a turn but for the device.
//! 3. Every write in the queue is answered, also when the store closes or its thread could not be started.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::task::{Poll, Waker};

use crate::base::error::{Error, Result};
use crate::base::step::Step;
use crate::base::sync::{Arc, Event, Mutex, wake_all};
use crate::io::env::Turn;
use crate::write::batch::{Items, Keyspaces};
use crate::write::commit::{Commit, CommitOp, GROUP_BYTES_MAX, WriteAsk};
use crate::write::large::LargeRoom;
use crate::write::writer::{Seals, Until, Writer};

use super::Store;
use super::budget::BatchRoom;
use super::drive::local;
use super::work::Job;
use super::workers;

/// Writes that the worker has under way, at most.
const UNDER_WAY_MAX: usize = 1024;

/// What a future writes; without items, it syncs what is written.
#[derive(Debug, Default)]
pub(crate) struct AsyncItems {
    pub(crate) items: Arc<Items>,
    pub(crate) keyspaces: Keyspaces,
}

/// A write in the queue, or taken from it.
pub(crate) struct AsyncWrite {
    what: AsyncItems,
    found: BatchRoom,
    until: Until,
    number: u64,
    state: Mutex<WriteState>,
}

/// What came of beginning a write.
pub(crate) enum Begun {
    Done(Result<()>),
    Queued(Arc<AsyncWrite>),
}

enum WriteState {
    Queued(Waker),
    /// The worker has it.
    Taken(Waker),
    Done(Result<()>),
}

impl AsyncWrite {
    fn op<'a>(&'a self, event: &'a Arc<Event>) -> CommitOp<'a> {
        CommitOp { queues: Some(event), ..op(&self.what, self.until) }
    }

    fn set_done(&self, result: Result<()>) {
        let before = std::mem::replace(&mut *self.state.lock(), WriteState::Done(result));
        if let WriteState::Queued(waker) | WriteState::Taken(waker) = before {
            wake_all([waker]);
        }
    }
}

fn op(what: &AsyncItems, until: Until) -> CommitOp<'_> {
    let AsyncItems { items, keyspaces } = what;
    CommitOp {
        payload: items.payload(),
        shared: Some(items),
        items: items.count(),
        key_value_bytes: items.key_value_bytes(),
        keyspaces,
        until,
        seals: Seals::No,
        frees: items.frees(),
        queues: None,
        room: None,
    }
}

/// The queue.
#[derive(Default)]
pub(super) struct AsyncWrites {
    queue: Mutex<Queue>,
    /// Whether the worker has been started. Held while it is.
    started: Mutex<bool>,
    /// Moves when the worker has something to look at.
    event: Arc<Event>,
}

#[derive(Default)]
struct Queue {
    waiting: BTreeMap<u64, Arc<AsyncWrite>>,
    next: u64,
    is_closed: bool,
}

impl AsyncWrites {
    /// Has the worker look whether it is to end.
    pub(super) fn wake(&self) {
        self.event.notify();
    }

    /// Answers what is in the queue, and what comes later, with an error.
    pub(super) fn close(&self, error: &Error) {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.waiting)
        };
        waiting.into_values().for_each(|write| write.set_done(Err(error.clone())));
    }

    fn push(
        &self,
        what: AsyncItems,
        (found, until): (BatchRoom, Until),
        waker: &Waker,
    ) -> Result<Arc<AsyncWrite>> {
        let own = waker.clone();
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(Error::Closed);
        }
        let number = queue.next;
        queue.next += 1;
        let state = Mutex::new(WriteState::Queued(own));
        let write = Arc::new(AsyncWrite { what, found, until, number, state });
        queue.waiting.insert(number, Arc::clone(&write));
        drop(queue);
        self.event.notify();
        Ok(write)
    }

    fn pop(&self) -> Option<Arc<AsyncWrite>> {
        let (_, write) = self.queue.lock().waiting.pop_first()?;
        let mut state = write.state.lock();
        if let WriteState::Queued(waker) = &*state {
            let waker = waker.clone();
            *state = WriteState::Taken(waker);
        }
        drop(state);
        Some(write)
    }
}

impl Store {
    /// Does a write, if there is nothing to wait for, or queues it.
    pub(crate) fn begin_write(
        self: &Arc<Store>,
        what: AsyncItems,
        until: Option<Until>,
        waker: &Waker,
    ) -> Begun {
        let items = &what.items;
        let found = match self.check_writable().and_then(|()| self.check_batch(items)) {
            Ok(found) => found,
            Err(error) => return Begun::Done(Err(error)),
        };
        let until = until.unwrap_or_else(|| self.default_until());
        if items.count() == 0 && until == Until::Written {
            return Begun::Done(Ok(()));
        }
        if found == BatchRoom::AnyGeneration
            && let Some(done) = self.write_now(&op(&what, until))
        {
            return Begun::Done(done);
        }
        let queued =
            self.start_commit_worker().and_then(|()| self.async_writes.push(what, (found, until), waker));
        match queued {
            Ok(write) => {
                local::note(self);
                Begun::Queued(write)
            }
            Err(error) => Begun::Done(Err(error)),
        }
    }

    /// The answer to a write that is under way, if there is one; else the waker is woken when there is.
    pub(crate) fn poll_write(&self, write: &AsyncWrite, waker: &Waker) -> Poll<Result<()>> {
        if let Err(error) = self.check_process() {
            return Poll::Ready(Err(error));
        }
        let own = waker.clone();
        let mut state = write.state.lock();
        let before = match &mut *state {
            WriteState::Done(result) => return Poll::Ready(result.clone()),
            WriteState::Queued(before) | WriteState::Taken(before) => std::mem::replace(before, own),
        };
        drop(state);
        // It may be a program's own code.
        drop(before);
        Poll::Pending
    }

    /// Gives a write up: if it is still in the queue, it is not made.
    pub(crate) fn give_write_up(&self, write: &AsyncWrite) {
        let removed = self.async_writes.queue.lock().waiting.remove(&write.number);
        drop(removed);
    }

    /// Commits on this thread, if that needs no wait.
    fn write_now(&self, op: &CommitOp<'_>) -> Option<Result<()>> {
        let (mut commit, mut step) = Commit::start_alone(op, &self.writer)?;
        loop {
            match step {
                Step::Done(result) => return Some(result),
                Step::Ask(ask) => {
                    let answer = self.answer(&commit, ask);
                    step = commit.resume(op, answer);
                }
                Step::Wait | Step::Touch => unreachable!("it takes nobody along"),
            }
        }
    }

    fn start_commit_worker(self: &Arc<Store>) -> Result<()> {
        let mut started = self.async_writes.started.lock();
        if !*started {
            workers::spawn(self, "trine-commit", CommitWork::default())?;
            *started = true;
        }
        Ok(())
    }
}

/// A store as the writer it has.
struct OfStore(Arc<Store>);

impl Deref for OfStore {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.0.writer
    }
}

/// The worker.
#[derive(Default)]
pub(super) struct CommitWork {
    under_way: VecDeque<UnderWay>,
    /// A large one that there was no memory for.
    next: Option<Arc<AsyncWrite>>,
}

struct UnderWay {
    write: Arc<AsyncWrite>,
    /// For a large one.
    room: Option<LargeRoom>,
    commit: Commit<OfStore>,
    step: Step<WriteAsk, Result<()>>,
    /// Until when it pauses, once that is known.
    paused_to_ns: Option<u64>,
}

/// How far a write has come.
enum Progress {
    Done(Result<()>),
    /// It waits for its ticket, for memory, for a log or memtable, or until a time.
    Ticket,
    Memory(u64),
    Room(u64),
    Until(u64),
}

impl CommitWork {
    /// Takes what fits one group from the queue.
    fn take(&mut self, store: &Arc<Store>) {
        let mut bytes: usize = self.under_way.iter().map(|one| one.write.what.items.payload().len()).sum();
        while self.under_way.len() < UNDER_WAY_MAX && bytes < GROUP_BYTES_MAX {
            let Some(write) = self.next.take().or_else(|| store.async_writes.pop()) else { break };
            let room = match write.found {
                BatchRoom::AnyGeneration => None,
                BatchRoom::OwnGeneration { region_bytes } => {
                    match store.try_large_room(&write.what.items, region_bytes) {
                        Ok(Some(room)) => Some(room),
                        Ok(None) => {
                            self.next = Some(write);
                            break;
                        }
                        Err(error) => {
                            write.set_done(Err(error));
                            continue;
                        }
                    }
                }
            };
            bytes += write.what.items.payload().len();
            let op = CommitOp { room: room.as_ref(), ..write.op(&store.async_writes.event) };
            let (commit, step) = Commit::start(&op, OfStore(Arc::clone(store)));
            self.under_way.push_back(UnderWay { write, room, commit, step, paused_to_ns: None });
        }
    }
}

impl UnderWay {
    /// Goes as far as it can without a wait.
    fn go_on(&mut self, store: &Store) -> Progress {
        loop {
            let answer = match &self.step {
                Step::Done(result) => return Progress::Done(result.clone()),
                Step::Touch => unreachable!("a commit takes no turns with others"),
                Step::Wait => {
                    let (event, seen) = self.commit.waits_for().expect("a commit that waits says for what");
                    if event.seen() == seen {
                        let is_ticket = std::ptr::eq(event, &*store.async_writes.event);
                        return if is_ticket { Progress::Ticket } else { Progress::Memory(seen) };
                    }
                    Ok(())
                }
                Step::Ask(WriteAsk::Room { seen }) if store.writer.changed.seen() == *seen => {
                    return Progress::Room(*seen);
                }
                Step::Ask(WriteAsk::Room { .. }) => Ok(()),
                Step::Ask(WriteAsk::Pause { ns }) => {
                    let now_ns = store.env.clock.now_ns();
                    let until_ns = *self.paused_to_ns.get_or_insert(now_ns.saturating_add(*ns));
                    if now_ns < until_ns {
                        return Progress::Until(until_ns);
                    }
                    Ok(())
                }
                Step::Ask(ask) => store.answer(&self.commit, *ask),
            };
            let op = CommitOp { room: self.room.as_ref(), ..self.write.op(&store.async_writes.event) };
            self.step = self.commit.resume(&op, answer);
        }
    }
}

impl Job for CommitWork {
    const HOLDS_TABLES: bool = false;

    fn turn(&mut self, store: &Arc<Store>) -> Turn {
        let event = &store.async_writes.event;
        let (seen, seen_changed) = (event.seen(), store.writer.changed.seen());
        self.take(store);
        store.writer.lead_next();
        let (mut has_moved, mut has_ticket) = (false, false);
        let (mut room, mut memory, mut until_ns) = (None, None, None::<u64>);
        self.under_way.retain_mut(|one| {
            match one.go_on(store) {
                Progress::Done(result) => {
                    one.room.take().into_iter().for_each(|room| store.end_large_room(room));
                    one.write.set_done(result);
                    has_moved = true;
                    return false;
                }
                Progress::Ticket => has_ticket = true,
                Progress::Memory(seen) => memory = Some(seen),
                Progress::Room(seen) => room = Some(seen),
                Progress::Until(ns) => until_ns = Some(until_ns.map_or(ns, |other| other.min(ns))),
            }
            true
        });
        // Those that paused, or had no memory, have queued up since.
        store.writer.lead_next();
        if has_moved || event.seen() != seen {
            return Turn::Again;
        }
        let timeout_ns = until_ns.map(|ns| ns.saturating_sub(store.env.clock.now_ns()));
        if self.next.is_some() && self.under_way.is_empty() {
            room = Some(seen_changed);
        }
        match (room, memory) {
            // It leads, or is alone: nothing else goes on before there is room.
            (Some(seen), _) => Turn::Idle { event: Arc::clone(&store.writer.changed), seen, timeout_ns },
            (None, Some(seen)) if !has_ticket => {
                Turn::Idle { event: Arc::clone(store.cache.reserve().freed()), seen, timeout_ns }
            }
            // One that waits for memory has it when others are answered.
            _ => Turn::Idle { event: Arc::clone(event), seen, timeout_ns },
        }
    }

    fn stop(&mut self, store: &Store) {
        let error = store.writer.latched().cloned().unwrap_or(Error::Closed);
        for UnderWay { write, room, commit, .. } in self.under_way.drain(..) {
            drop(commit);
            room.into_iter().for_each(|room| store.end_large_room(room));
            write.set_done(Err(error.clone()));
        }
        self.next.take().into_iter().for_each(|write| write.set_done(Err(error.clone())));
        store.async_writes.close(&error);
    }
}
