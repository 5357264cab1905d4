//! The commit worker: commits the writes that futures have queued (`async_writes`).

use std::collections::VecDeque;
use std::ops::Deref;

use crate::base::error::{Error, Result};
use crate::base::step::MachineStep;
use crate::base::sync::Arc;
use crate::io::env::Turn;
use crate::write::commit::{Commit, CommitOp, WriteAsk};
use crate::write::large::LargeRoom;
use crate::write::lengths::GROUP_BYTES_MAX;
use crate::write::writer::Writer;

use super::Committer;
use super::async_writes::AsyncWrite;
use crate::engine::budget::BatchRoom;
use crate::engine::job::Job;

/// Most writes that the worker has under way.
const UNDER_WAY_MAX: usize = 1024;

/// The writer of a store.
struct WriterOf<C>(C);

impl<C: Deref<Target = Committer>> Deref for WriterOf<C> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.0.writer
    }
}

/// The worker.
pub(in crate::engine) struct CommitWork<C: Deref<Target = Committer>> {
    of: C,
    under_way: VecDeque<UnderWay<C>>,
    /// A large write that waits for memory.
    next: Option<Arc<AsyncWrite>>,
}

struct UnderWay<C: Deref<Target = Committer>> {
    write: Arc<AsyncWrite>,
    /// For a large write.
    room: Option<LargeRoom>,
    commit: Commit<WriterOf<C>>,
    step: MachineStep<WriteAsk, Result<()>>,
    /// The end of its pause, once that is known.
    paused_to_ns: Option<u64>,
}

/// The progress of a write.
enum Progress {
    Done(Result<()>),
    /// The write waits for its ticket, for memory, for a log or memtable, or until a time.
    Ticket,
    Memory(u64),
    Room(u64),
    Until(u64),
}

impl<C: Deref<Target = Committer> + Clone> CommitWork<C> {
    pub(in crate::engine) fn new(of: C) -> CommitWork<C> {
        CommitWork { of, under_way: VecDeque::new(), next: None }
    }

    /// Takes writes from the queue, up to one group.
    fn take(&mut self, store: &Committer) {
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
            let (commit, step) = Commit::start(&op, WriterOf(self.of.clone()));
            self.under_way.push_back(UnderWay { write, room, commit, step, paused_to_ns: None });
        }
    }
}

impl<C: Deref<Target = Committer>> UnderWay<C> {
    /// Advances the write as far as possible without a wait.
    fn go_on(&mut self, store: &Committer) -> Progress {
        loop {
            let answer = match &self.step {
                MachineStep::Done(result) => return Progress::Done(result.clone()),
                MachineStep::Touch => unreachable!("a commit takes no turns with others"),
                MachineStep::Wait => {
                    let (event, seen) = self.commit.waits_for().expect("a waiting commit names its event");
                    if event.seen() == seen {
                        let is_ticket = std::ptr::eq(event, &*store.async_writes.event);
                        return if is_ticket { Progress::Ticket } else { Progress::Memory(seen) };
                    }
                    Ok(())
                }
                MachineStep::Ask(WriteAsk::Room { seen }) if store.writer.changed.seen() == *seen => {
                    return Progress::Room(*seen);
                }
                MachineStep::Ask(WriteAsk::Room { .. }) => Ok(()),
                MachineStep::Ask(WriteAsk::Pause { ns }) => {
                    let now_ns = store.env.clock.now_ns();
                    let until_ns = *self.paused_to_ns.get_or_insert(now_ns.saturating_add(*ns));
                    if now_ns < until_ns {
                        return Progress::Until(until_ns);
                    }
                    Ok(())
                }
                MachineStep::Ask(ask) => store.answer(&self.commit, *ask),
            };
            let op = CommitOp { room: self.room.as_ref(), ..self.write.op(&store.async_writes.event) };
            self.step = self.commit.resume(&op, answer);
        }
    }
}

impl<C: Deref<Target = Committer> + Clone + Send> Job<Committer> for CommitWork<C> {
    const HOLDS_TABLES: bool = false;

    fn turn(&mut self, store: &Committer) -> Turn {
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
        // Writes that paused, or had no memory, have queued up since.
        store.writer.lead_next();
        if has_moved || event.seen() != seen {
            return Turn::Again;
        }
        let timeout_ns = until_ns.map(|ns| ns.saturating_sub(store.env.clock.now_ns()));
        if self.next.is_some() && self.under_way.is_empty() {
            room = Some(seen_changed);
        }
        match (room, memory) {
            // This write leads or is alone: no other write goes on before there is room.
            (Some(seen), _) => Turn::Idle { event: Arc::clone(&store.writer.changed), seen, timeout_ns },
            (None, Some(seen)) if !has_ticket => {
                Turn::Idle { event: Arc::clone(store.cache.reserve().freed()), seen, timeout_ns }
            }
            // A write that waits for memory gets it when others are answered.
            _ => Turn::Idle { event: Arc::clone(event), seen, timeout_ns },
        }
    }

    fn stop(&mut self, store: &Committer) {
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
