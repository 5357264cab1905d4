//! The joint order of commits and catalog changes.
//!
//! The write leader gives each commit its place in that order. A catalog change is a keyspace created,
//! dropped or configured, or an ingest published. It takes the leader's place for a few device calls: it
//! makes every earlier write durable, appends its edit to the manifest and lets writers go on. Flushes,
//! merges and edits about logs move data without changing the store's contents; they stay outside this order.
//!
//! A checkpoint also takes a place in the order. It seals the write buffer there, gives the leader's place
//! back and keeps the gate closed until that buffer is flushed. So no catalog change lies between the writes
//! in the checkpoint's tables and the catalog that it copies, while writers go on. Partitions that writes
//! make take no turn: their place is that of the log records that make them.
//!
//! Locks are taken in this order: gate, leader's place, catalog. A thread that holds the catalog never waits
//! for one of the other two. Any thread may ask for a turn.
//!
//! Invariants:
//! 1. One thread at a time has passed the gate, in the order of arrival.
//! 2. An edit made in a turn is durable after every write before it, and before every write after it.

use crate::base::error::{Error, Result};
use crate::base::id::Sequence;
use crate::base::sync::Event;
use crate::write::hold::Hold;
use crate::write::writer::{MemtableAndLog, Sealing};

use super::Committer;
use super::gate::GateTicket;

/// A turn in the joint order: requested, then held until it is dropped.
pub(in crate::engine) struct OrderTurn<'s> {
    store: &'s Committer,
    stage: Stage<'s>,
    // Dropped after the stage, so that the next ticket finds the leader's place free.
    ticket: GateTicket<'s>,
}

enum Stage<'s> {
    /// Waits for the gate. The count is that of the gate's event at the last look.
    Gate(u64),
    /// Waits for the write leader's place, or holds it.
    Lead(Hold<'s>),
}

impl<'s> OrderTurn<'s> {
    /// Requests a turn.
    pub(in crate::engine) fn start(store: &'s Committer) -> OrderTurn<'s> {
        let seen = store.gate.moved.seen();
        OrderTurn { store, stage: Stage::Gate(seen), ticket: store.gate.enter() }
    }

    /// Whether the turn has come. From then on no commit is under way.
    ///
    /// # Errors
    /// The error that has latched the store, or `Closed`.
    pub(in crate::engine) fn poll(&mut self) -> Result<bool> {
        if let Stage::Gate(last_seen) = &mut self.stage {
            *last_seen = self.store.gate.moved.seen();
            if !self.ticket.has_passed() {
                return Ok(false);
            }
            self.stage = Stage::Lead(Hold::start(&self.store.writer)?);
        }
        let is_held = self.hold().poll();
        if is_held {
            // After a failed append the end of the log is unknown, so no edit may record it.
            self.store.check_writable()?;
        }
        Ok(is_held)
    }

    /// The event that ends a wait for the turn, and its count while the turn has not come.
    pub(in crate::engine) fn waits_for(&self) -> (&Event, u64) {
        match &self.stage {
            Stage::Gate(seen) => (&self.store.gate.moved, *seen),
            Stage::Lead(hold) => hold.waits_for().expect("asked for only while it waits"),
        }
    }

    fn hold(&mut self) -> &mut Hold<'s> {
        match &mut self.stage {
            Stage::Lead(hold) => hold,
            Stage::Gate(_) => unreachable!("used only once `poll` has said that the turn has come"),
        }
    }

    /// The last sequence number given out.
    pub(in crate::engine) fn last_sequence(&mut self) -> Sequence {
        self.hold().last_sequence()
    }

    /// Whether the active write buffer holds nothing.
    pub(in crate::engine) fn is_buffer_empty(&mut self) -> bool {
        self.hold().is_buffer_empty()
    }

    /// Seals the active write buffer.
    ///
    /// # Errors
    /// The reason why no room will come free, or a failed write over records that a full disk refused.
    pub(in crate::engine) fn seal(&mut self) -> Result<Sealing> {
        self.cover_failed_tail()?;
        self.hold().seal()
    }

    /// Seals the active write buffer, which must be durable, and continues with `next`. This ignores the
    /// limit on buffers that wait for a flush.
    pub(in crate::engine) fn seal_into(&mut self, next: MemtableAndLog) {
        self.hold().seal_into(next);
    }

    /// Makes every write before the turn durable.
    ///
    /// # Errors
    /// A failed write or sync of a log, which latches the store unless the disk is full.
    pub(in crate::engine) fn make_durable(&mut self) -> Result<()> {
        self.cover_failed_tail()?;
        let (storage, writer) = (&self.store.env.storage, &self.store.writer);
        while let Some(file) = self.hold().unsynced() {
            let synced = storage.sync(file);
            if self.hold().is_durable_since() {
                continue;
            }
            synced.inspect_err(|error| writer.latch(error))?;
            if let Some((file, offset, page)) = self.hold().synced() {
                match storage.write(file, offset, &page) {
                    // The sync has made the log durable, even if there was no space to record that.
                    Ok(()) | Err(Error::Full { .. }) => {}
                    Err(error) => {
                        writer.latch(&error);
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes zeros over records that a full disk refused. A recovery must not read them behind the records
    /// that become durable now.
    fn cover_failed_tail(&mut self) -> Result<()> {
        let (storage, writer) = (&self.store.env.storage, &self.store.writer);
        while let Some((file, offset, zeros)) = self.hold().failed_tail() {
            storage.write(file, offset, zeros).inspect_err(|error| {
                if !matches!(error, Error::Full { .. }) {
                    writer.latch(error);
                }
            })?;
            self.hold().covered_failed_tail();
        }
        Ok(())
    }

    /// Lets commits go on, and keeps the gate closed to catalog changes.
    pub(in crate::engine) fn release_lead(self) -> GateTicket<'s> {
        let OrderTurn { stage, ticket, .. } = self;
        drop(stage);
        ticket
    }
}

impl Committer {
    /// Waits for a turn in the joint order.
    pub(in crate::engine) fn take_order_turn(&self) -> Result<OrderTurn<'_>> {
        let mut turn = OrderTurn::start(self);
        while !turn.poll()? {
            let (event, seen) = turn.waits_for();
            self.env.threads.wait(event, seen, None);
        }
        Ok(turn)
    }
}
