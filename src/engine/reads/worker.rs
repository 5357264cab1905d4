//! The driver thread: reads the queued blocks, as many at once as its reader has room for; it alone submits
//! and reaps.

use std::collections::VecDeque;

use crate::base::sync::Arc;
use crate::io::env::Turn;
use crate::io::reader::{Completed, Reader, Request};

use super::blocks::BlockReader;
use super::queue::ReadQueue;
use super::request::{Claimed, REQUEST_BYTES_MAX, requests};
use crate::engine::job::Job;

/// Read-ahead begins while fewer reads than this are in flight,
const AHEAD_FLIGHTS_MAX: usize = 8;
/// and in any case after this many reads with waiters, because a scan may wait for the read-ahead by now.
const ASKED_AT_ONCE: usize = 32;

/// The worker.
#[derive(Default)]
pub(in crate::engine) struct ReadsWork {
    /// Present while reads are in flight.
    reader: Option<Box<dyn Reader>>,
    /// Requests that wait for room.
    backlog: VecDeque<Request>,
    in_flight: usize,
    /// Claimed blocks. Between two turns it is empty, and only keeps its memory.
    asked: Vec<Claimed>,
    /// Reads with waiters sent since the last read-ahead.
    asked_count: usize,
    completed: Vec<Completed>,
}

impl ReadsWork {
    /// Sends requests while there is room; returns whether any read is in flight.
    fn send(&mut self, blocks: &BlockReader) -> bool {
        let reads = &blocks.queue;
        let asked = &mut self.asked;
        std::mem::swap(&mut reads.queue.lock().asked, asked);
        reads.admission.begin(|address, permit| Claimed::begin(blocks.cache.claim(address), permit, asked));
        requests(asked, REQUEST_BYTES_MAX, &blocks.load, |request| self.backlog.push_back(request));
        while self.reader.as_ref().is_none_or(|reader| reader.room() > 0) {
            let Some(request) = self.next(reads) else { break };
            let storage = &blocks.env.storage;
            self.reader.get_or_insert_with(|| Arc::clone(storage).reader()).push(request);
            self.in_flight += 1;
        }
        self.in_flight > 0
    }

    fn next(&mut self, reads: &ReadQueue) -> Option<Request> {
        let is_due = self.asked_count >= ASKED_AT_ONCE;
        if is_due || (self.backlog.is_empty() && self.in_flight < AHEAD_FLIGHTS_MAX) {
            self.asked_count = 0;
            let ahead = reads.queue.lock().ahead.pop_front();
            if ahead.is_some() {
                return ahead;
            }
        }
        self.asked_count += 1;
        self.backlog.pop_front()
    }

    /// Takes completed reads; waits for one unless blocks are queued meanwhile.
    fn reap(&mut self, blocks: &BlockReader) {
        let Some(reader) = &mut self.reader else { return };
        let reads = &blocks.queue;
        let timeout_ns = reads.listen(reader.bell(), blocks.env.clock.now_ns());
        reader.reap_or_bell(&mut self.completed, timeout_ns);
        reads.queue.lock().bell = None;
        self.settle(blocks);
    }

    fn settle(&mut self, blocks: &BlockReader) {
        self.in_flight -= self.completed.len();
        self.completed.drain(..).for_each(|completed| blocks.settle_unasked(completed));
        if self.in_flight == 0 {
            self.reader = None;
        }
    }
}

impl Job<BlockReader> for ReadsWork {
    /// Callbacks that run in its turns are readers.
    const HOLDS_TABLES: bool = false;

    fn turn(&mut self, blocks: &BlockReader) -> Turn {
        let reads = &blocks.queue;
        let seen = reads.pushed.seen();
        if !self.send(blocks) {
            let timeout_ns = reads.timers.wake_due(blocks.env.clock.now_ns());
            return Turn::Idle { event: Arc::clone(&reads.pushed), seen, timeout_ns };
        }
        self.reap(blocks);
        Turn::Again
    }

    fn stop(&mut self, blocks: &BlockReader) {
        let reads = &blocks.queue;
        let mut queue = reads.queue.lock();
        queue.is_closed = true;
        let (mut asked, ahead) = (std::mem::take(&mut queue.asked), std::mem::take(&mut queue.ahead));
        drop(queue);
        reads.admission.close();
        requests(&mut asked, REQUEST_BYTES_MAX, &blocks.load, |request| self.backlog.push_back(request));
        self.backlog.drain(..).chain(ahead).for_each(|request| blocks.read_unasked(request));
        while let Some(reader) = &mut self.reader {
            reader.reap(&mut self.completed);
            self.settle(blocks);
        }
        reads.timers.close();
    }
}

#[cfg(test)]
mod tests;
