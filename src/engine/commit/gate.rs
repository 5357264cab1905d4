//! The gate before the write leader's place. Catalog changes and checkpoints pass it one at a time, in the
//! order of arrival (`order`).

use std::collections::VecDeque;

use crate::base::sync::{Event, Mutex};

/// Lets catalog changes and checkpoints pass one at a time, in FIFO order.
#[derive(Debug, Default)]
pub(in crate::engine) struct OrderGate {
    queue: Mutex<GateQueue>,
    pub(super) moved: Event,
}

#[derive(Debug, Default)]
struct GateQueue {
    next_ticket: u64,
    /// Tickets in FIFO order: the first has passed, the others wait.
    tickets: VecDeque<u64>,
}

/// A place in the gate's queue, released on drop.
pub(in crate::engine) struct GateTicket<'s> {
    gate: &'s OrderGate,
    ticket: u64,
}

impl OrderGate {
    pub(super) fn enter(&self) -> GateTicket<'_> {
        let mut queue = self.queue.lock();
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.tickets.push_back(ticket);
        GateTicket { gate: self, ticket }
    }
}

impl GateTicket<'_> {
    pub(super) fn has_passed(&self) -> bool {
        self.gate.queue.lock().tickets.front() == Some(&self.ticket)
    }
}

impl Drop for GateTicket<'_> {
    fn drop(&mut self) {
        self.gate.queue.lock().tickets.retain(|one| *one != self.ticket);
        self.gate.moved.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places are given in the order of arrival, and a released place is skipped.
    #[test]
    fn the_gate_is_passed_in_order() {
        let gate = OrderGate::default();
        let (first, second, third) = (gate.enter(), gate.enter(), gate.enter());
        assert!(first.has_passed() && !second.has_passed() && !third.has_passed());
        let seen = gate.moved.seen();
        drop(second);
        assert!(first.has_passed() && !third.has_passed() && gate.moved.seen() != seen);
        drop(first);
        assert!(third.has_passed());
        let fourth = gate.enter();
        assert!(!fourth.has_passed());
        drop(third);
        assert!(fourth.has_passed());
    }
}
