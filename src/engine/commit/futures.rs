//! Writes of futures, begun on the thread that polls them (`async_writes`).

use std::task::{Poll, Waker};

use crate::base::error::Result;
use crate::base::step::MachineStep;
use crate::write::commit::{Commit, CommitOp};
use crate::write::writer::Until;

use super::Committer;
use super::async_writes::{AsyncItems, AsyncWrite, WriteStart, WriteState, op};
use crate::engine::budget::BatchRoom;
use crate::engine::reads::local;

impl Committer {
    /// Commits a write if that needs no wait. Else it queues the write for the worker, which `start_worker`
    /// starts.
    pub(in crate::engine) fn begin_write_with(
        &self,
        what: AsyncItems,
        until: Option<Until>,
        waker: &Waker,
        start_worker: impl FnOnce() -> Result<()>,
    ) -> WriteStart {
        let items = &what.items;
        let found = match self.check_writable().and_then(|()| self.check_batch(items)) {
            Ok(found) => found,
            Err(error) => return WriteStart::Done(Err(error)),
        };
        let until = until.unwrap_or_else(|| self.default_until());
        if items.count() == 0 && until == Until::Written {
            return WriteStart::Done(Ok(()));
        }
        if found == BatchRoom::AnyGeneration
            && let Some(done) = self.write_now(&op(&what, until))
        {
            return WriteStart::Done(done);
        }
        let queued =
            self.start_once(start_worker).and_then(|()| self.async_writes.push(what, (found, until), waker));
        match queued {
            Ok(write) => {
                local::note(&self.blocks);
                WriteStart::Queued(write)
            }
            Err(error) => WriteStart::Done(Err(error)),
        }
    }

    /// The answer to a write under way, if there is one; else registers the waker.
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
        // The waker's drop may run a program's own code, so it runs outside the lock.
        drop(before);
        Poll::Pending
    }

    /// Drops a write: if it is still in the queue, it is never written.
    pub(crate) fn give_write_up(&self, write: &AsyncWrite) {
        let removed = self.async_writes.queue.lock().waiting.remove(&write.number);
        drop(removed);
    }

    /// Commits on this thread if no wait is needed; else returns `None`.
    fn write_now(&self, op: &CommitOp<'_>) -> Option<Result<()>> {
        let (mut commit, mut step) = Commit::start_alone(op, &self.writer)?;
        loop {
            match step {
                MachineStep::Done(result) => return Some(result),
                MachineStep::Ask(ask) => {
                    let answer = self.answer(&commit, ask);
                    step = commit.resume(op, answer);
                }
                MachineStep::Wait | MachineStep::Touch => unreachable!("single writes take no others along"),
            }
        }
    }

    fn start_once(&self, start_worker: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut started = self.async_writes.started.lock();
        if !*started {
            start_worker()?;
            *started = true;
        }
        Ok(())
    }
}
