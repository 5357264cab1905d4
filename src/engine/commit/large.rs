//! Room for batches that exceed the usual write buffer. Each gets a generation of its own, made by the
//! committing thread in memory of the reserve (`write::large`).
//!
//! The memory is granted before the batch queues up. A thread without a grant waits outside the queue until
//! the large batch before it is flushed, or a flush has failed.

use crate::base::error::Result;
use crate::base::reserve::{Grant, Role};
use crate::memtable;
use crate::write::batch::BatchItems;
use crate::write::large::{LargeRoom, order_bytes};
use crate::write::writer::StandbyMemtable;

use super::Committer;

impl Committer {
    /// Waits for memory and returns a generation for the batch.
    ///
    /// # Errors
    /// The error that latched the store or stopped flushes: no memory will come free.
    pub(in crate::engine) fn wait_for_large_room(
        &self,
        items: &BatchItems,
        region_bytes: usize,
    ) -> Result<LargeRoom> {
        self.check_process()?;
        loop {
            let seen = self.writer.changed.seen();
            if let Some(room) = self.try_large_room(items, region_bytes)? {
                return Ok(room);
            }
            self.env.threads.wait(&self.writer.changed, seen, None);
        }
    }

    /// As [`Self::wait_for_large_room`], without the wait. `None` if there is no memory until the writer's
    /// `changed` event moves.
    pub(in crate::engine) fn try_large_room(
        &self,
        items: &BatchItems,
        region_bytes: usize,
    ) -> Result<Option<LargeRoom>> {
        if let Some(grant) = self.grant_large_room(items, region_bytes) {
            return self.large_room(items, region_bytes, grant).map(Some);
        }
        match self.writer.latched().cloned().or_else(|| self.writer.stuck()) {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    /// Memory for a generation and for the sort order of its items; `None` if other large batches use it.
    pub(in crate::engine) fn grant_large_room(
        &self,
        items: &BatchItems,
        region_bytes: usize,
    ) -> Option<Grant> {
        let bytes = region_bytes + order_bytes(items.count());
        self.cache.reserve().grant_or_wait(Role::LargeBatches, bytes as u64).ok()
    }

    pub(in crate::engine) fn large_room(
        &self,
        items: &BatchItems,
        region_bytes: usize,
        grant: Grant,
    ) -> Result<LargeRoom> {
        let region = self.env.memory.region_for("a generation for a large batch", region_bytes)?;
        let (generation, inserter) = memtable::generation(region);
        Ok(LargeRoom::new(items.size(), StandbyMemtable { generation, inserter, grant: Some(grant) }))
    }

    /// Ends a large batch that was written or refused. The store lists its generation if it is still alive.
    pub(in crate::engine) fn end_large_room(&self, room: LargeRoom) {
        let generation = room.generation.clone();
        drop(room);
        if generation.strong_count() > 0 {
            self.generations.lock().push(generation);
        }
        // Other large batches may wait for the memory.
        self.writer.changed.notify();
    }
}
