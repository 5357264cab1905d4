//! Blocks that are read together. They are claimed in the table of reads in flight, neighbours share one
//! request, and answers come in the order in which the device completes them.
//!
//! It has no lookup logic: an asker is a number, and gets its block or its error. One thread uses it, for one
//! call of a driver; it reads no more once it is dropped.
//!
//! 1. It waits for another caller's read only while none of its own is in flight. So two callers that wait
//!    for each other's blocks both go on.
//! 2. If a request for several blocks fails, each block is read again by itself. So a block fails only for
//!    its own fault.

use std::collections::VecDeque;
use std::task::Waker;

use crate::base::few::Few;
use crate::base::step::BlockAddress;
use crate::base::sync::{Arc, Event};
use crate::cache::{Claim, Waiter};
use crate::io::reader::{Completed, Reader, Request, perform};

use super::blocks::BlockReader;
use super::request::{Answered, Claimed, REQUEST_BYTES_MAX, requests};

/// See the module.
pub(super) struct Fetches<'s> {
    blocks: &'s BlockReader,
    reader: Option<Box<dyn Reader>>,
    /// Not sent yet.
    claimed: Vec<Claimed>,
    /// Requests to send as soon as there is room.
    backlog: VecDeque<Request>,
    in_flight: usize,
    /// Askers that wait for reads of other callers.
    waiting: Vec<(usize, BlockAddress, Waiter)>,
    /// Moves when one of those reads ends.
    ended: Arc<Event>,
    completed: Vec<Completed>,
}

impl<'s> Fetches<'s> {
    pub(super) fn new(blocks: &'s BlockReader) -> Fetches<'s> {
        Fetches {
            blocks,
            reader: None,
            claimed: Vec::new(),
            backlog: VecDeque::new(),
            in_flight: 0,
            waiting: Vec::new(),
            ended: Arc::default(),
            completed: Vec::new(),
        }
    }

    /// Asks for a block; a cached block is in `answered` at once.
    pub(super) fn ask(&mut self, who: usize, address: &BlockAddress, answered: &mut Vec<Answered>) {
        match self.blocks.cache.claim(address) {
            Claim::Ready(block) => answered.push((who, Ok(block))),
            Claim::Wait(waiter) => self.waiting.push((who, *address, waiter)),
            Claim::Read(slot) => {
                self.claimed.push(Claimed { who: Some(who), ..Claimed::new(slot) });
            }
        }
    }

    /// Asks for a block without a waiter; the block goes to the cache.
    pub(super) fn ask_ahead(&mut self, address: &BlockAddress) {
        if self.blocks.cache.holds(address) {
            return;
        }
        if let Claim::Read(slot) = self.blocks.cache.claim(address) {
            self.claimed.push(Claimed::new(slot));
        }
    }

    /// Whether every requested block has come. Until then only the store's own code may run: other code might
    /// wait for a thread that waits for these reads.
    pub(super) fn is_idle(&self) -> bool {
        self.claimed.is_empty() && self.backlog.is_empty() && self.in_flight == 0 && self.waiting.is_empty()
    }

    /// Completes the reads that others may wait for; answers no asker.
    pub(super) fn finish(&mut self) {
        let mut answered = Vec::new();
        while self.in_flight > 0 || !self.backlog.is_empty() {
            self.reap(&mut answered);
        }
    }

    /// Queues requests for all claimed blocks, in file order, neighbours together.
    pub(super) fn send(&mut self) {
        let (claimed, load) = (&mut self.claimed, &self.blocks.load);
        requests(claimed, REQUEST_BYTES_MAX, load, |one| self.backlog.push_back(one));
    }

    /// Waits until an asker can be answered; returns at once if none waits.
    pub(super) fn wait(&mut self, answered: &mut Vec<Answered>) {
        let before = answered.len();
        let waker = self.ended.waker();
        loop {
            let seen = self.ended.seen();
            let gone = self.take_ended(&waker, answered);
            if !gone.is_empty() {
                gone.iter().for_each(|(who, address)| self.ask(*who, address, answered));
                self.send();
                // A new waiter is polled before this thread waits for it.
                if answered.len() == before {
                    continue;
                }
            }
            let is_reading = self.in_flight > 0 || !self.backlog.is_empty();
            if answered.len() > before || (!is_reading && self.waiting.is_empty()) {
                return;
            }
            if is_reading {
                self.reap(answered);
            } else {
                self.blocks.env.threads.wait(&self.ended, seen, None);
            }
        }
    }

    /// Takes the blocks that other callers have read. Returns the asks whose block was evicted, to be asked
    /// again.
    fn take_ended(&mut self, waker: &Waker, answered: &mut Vec<Answered>) -> Few<(usize, BlockAddress)> {
        let mut gone = Few::new();
        self.waiting.retain_mut(|(who, address, waiter)| match waiter.poll(waker) {
            Some(result) => {
                answered.push((*who, result));
                false
            }
            None if waiter.is_gone() => {
                gone.push((*who, *address));
                false
            }
            None => true,
        });
        gone
    }

    /// Sends requests while there is room, and takes completed ones.
    fn reap(&mut self, answered: &mut Vec<Answered>) {
        // A single read needs no reader: this thread performs it.
        if self.reader.is_none() && self.backlog.len() == 1 {
            let request = self.backlog.pop_front().expect("there is one");
            let completed = perform(&*self.blocks.env.storage, request);
            return self.settle(completed, answered);
        }
        let storage = &self.blocks.env.storage;
        let reader = self.reader.get_or_insert_with(|| Arc::clone(storage).reader());
        while reader.room() > 0 {
            let Some(request) = self.backlog.pop_front() else { break };
            reader.push(request);
            self.in_flight += 1;
        }
        reader.reap(&mut self.completed);
        self.in_flight -= self.completed.len();
        for completed in std::mem::take(&mut self.completed) {
            self.settle(completed, answered);
        }
    }

    fn settle(&mut self, completed: Completed, answered: &mut Vec<Answered>) {
        self.blocks.settle_read(completed, |who, ended| answered.push((who, ended)));
    }
}

#[cfg(test)]
mod tests;
