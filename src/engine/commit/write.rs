//! Writes on the caller's thread.

use std::ops::Deref;

use crate::base::error::Result;
use crate::base::step::MachineStep;
use crate::base::sync::{Arc, Event};
use crate::write::batch::{BatchItems, Keyspaces};
use crate::write::commit::{Commit, CommitOp, WriteAsk};
use crate::write::writer::{Seals, Until, Writer};

use super::Committer;
use crate::engine::budget::BatchRoom;

impl Committer {
    /// Commits items. `until` sets the moment of acknowledgement; by default the store's settings do.
    pub(crate) fn write(&self, items: &BatchItems, until: Option<Until>) -> Result<()> {
        self.write_items(items, None, Keyspaces::NONE, until)
    }

    /// As [`Self::write`], for a batch, which is refused if one of its keyspaces was dropped.
    pub(crate) fn write_batch(
        &self,
        items: &Arc<BatchItems>,
        keyspaces: &Keyspaces,
        until: Option<Until>,
    ) -> Result<()> {
        self.write_items(items, Some(items), keyspaces, until)
    }

    /// The write buffer that has room for these items; refuses items that exceed the largest one.
    pub(crate) fn check_batch(&self, items: &BatchItems) -> Result<BatchRoom> {
        self.budget.check_batch(&items.size())
    }

    fn write_items(
        &self,
        items: &BatchItems,
        shared: Option<&Arc<BatchItems>>,
        keyspaces: &Keyspaces,
        until: Option<Until>,
    ) -> Result<()> {
        let found = self.check_batch(items)?;
        if items.count() == 0 {
            return self.check_writable();
        }
        let room = match found {
            BatchRoom::AnyGeneration => None,
            BatchRoom::OwnGeneration { region_bytes } => Some(self.wait_for_large_room(items, region_bytes)?),
        };
        let written = self.commit(&CommitOp {
            payload: items.payload(),
            shared,
            items: items.count(),
            key_value_bytes: items.key_value_bytes(),
            keyspaces,
            until: until.unwrap_or_else(|| self.default_until()),
            seals: Seals::No,
            frees: items.frees(),
            queues: None,
            room: room.as_ref(),
        });
        if let Some(room) = room {
            self.end_large_room(room);
        }
        written
    }

    pub(super) fn default_until(&self) -> Until {
        if self.settings.sync_every_commit == 1 { Until::Synced } else { Until::Written }
    }

    /// Makes everything acknowledged durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.commit(&CommitOp::empty(Until::Synced, Seals::No))
    }

    /// Takes a batch through log and memtable.
    pub(crate) fn commit(&self, op: &CommitOp<'_>) -> Result<()> {
        self.check_process()?;
        let (mut commit, mut step) = Commit::start(op, &self.writer);
        loop {
            let answer = match step {
                MachineStep::Done(result) => return result,
                MachineStep::Touch => unreachable!("a commit takes no turns with others"),
                MachineStep::Wait => {
                    let (event, seen) = commit.waits_for().expect("a waiting commit names its event");
                    self.env.threads.wait(event, seen, None);
                    Ok(())
                }
                MachineStep::Ask(ask) => self.answer(&commit, ask),
            };
            step = commit.resume(op, answer);
        }
    }

    pub(in crate::engine) fn answer<W: Deref<Target = Writer>>(
        &self,
        commit: &Commit<W>,
        ask: WriteAsk,
    ) -> Result<()> {
        let storage = &self.env.storage;
        match ask {
            WriteAsk::Append { file, offset, writeback } => {
                storage.write(file, offset, commit.bytes())?;
                if let Some((from, bytes)) = writeback {
                    storage.start_writeback(file, from, bytes);
                }
            }
            WriteAsk::Sync { file } => storage.sync(file)?,
            WriteAsk::Room { seen } => self.env.threads.wait(&self.writer.changed, seen, None),
            WriteAsk::Pause { ns } => {
                let never = Event::new();
                self.env.threads.wait(&never, never.seen(), Some(ns));
            }
        }
        Ok(())
    }
}
