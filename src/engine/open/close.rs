//! Closing a store.
//!
//! One thread closes the store; every other thread that calls waits for it and gets its result. A closed
//! store is small. Long logs are flushed and followed by a short one. A log that was prepared and not used is
//! removed, and so is every file that nothing names.
//!
//! A full disk does not fail the closing: the logs hold every write.

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Ordering};
use crate::write::writer::MemtableAndLog;

use crate::engine::background::flush_work::FlushWork;
use crate::engine::closing::CloseProgress;
use crate::engine::options::OpenMode;
use crate::engine::publish::catalog::log_bytes;
use crate::engine::store::Store;

/// Publishes the result to every closing thread, also after a panic.
struct Ending<'s> {
    store: &'s Store,
    result: Result<()>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.store.close.state.lock() = CloseProgress::Closed(self.result.clone());
        self.store.close.ended.notify();
    }
}

impl Store {
    /// Stops background work, makes the log durable and releases the lock. Every caller waits for the end and
    /// gets the same result.
    ///
    /// # Errors
    /// The first failure of the closing. `Closed` on a thread of the store itself (a callback) while another
    /// thread closes, because the closing thread waits for this thread to end.
    pub(crate) fn close(self: &Arc<Store>) -> Result<()> {
        loop {
            let seen = self.close.ended.seen();
            match &mut *self.close.state.lock() {
                open @ CloseProgress::Open => {
                    *open = CloseProgress::UnderWay;
                    break;
                }
                CloseProgress::Closed(result) => return result.clone(),
                CloseProgress::UnderWay if self.env.threads.is_worker() => return Err(Error::Closed),
                CloseProgress::UnderWay => {}
            }
            self.env.threads.wait(&self.close.ended, seen, None);
        }
        let mut ending = Ending { store: self, result: Err(Error::Closed) };
        ending.result = self.close_once();
        ending.result.clone()
    }

    fn close_once(self: &Arc<Store>) -> Result<()> {
        self.is_closed.store(true, Ordering::Release);
        self.blocks.close();
        let is_writable = self.mode != OpenMode::ReadOnly;
        let synced = if is_writable { self.sync_log() } else { Ok(()) };
        // Workers stop first: their edits must not meet a closed writer.
        self.stop_workers();
        self.async_writes.wake();
        self.cache.reserve().freed().notify();
        self.env.threads.join();
        self.async_writes.close(&Error::Closed);
        let shortened = if is_writable && synced.is_ok() { self.shorten_logs() } else { Ok(()) };
        self.writer.begin_close();
        let ends = loop {
            let seen = self.writer.changed.seen();
            if let Some(ends) = self.writer.try_close() {
                break ends;
            }
            self.env.threads.wait(&self.writer.changed, seen, None);
        };
        // Wake the waiters: background work has stopped. Pending catalog changes go first.
        self.work.moved.notify();
        let mut catalog = self.catalog.take(&*self.env.threads);
        if synced.is_ok() && is_writable {
            // The edit only repeats known log ends: the store is whole without it.
            let _ = self.record_log_ends(&mut catalog, &ends);
        }
        drop(catalog);
        self.close_keyspaces();
        self.remove_last();
        self.env.storage.unlock();
        let failed = self.work.error(0, |_| true).filter(|error| !matches!(error, Error::Full { .. }));
        synced.and(shortened).and(failed.map_or(Ok(()), Err))
    }

    /// Flushes the contents of long logs and goes on with a short log. No worker runs any more.
    fn shorten_logs(self: &Arc<Store>) -> Result<()> {
        let bytes: u64 = {
            let catalog = self.catalog.take(&*self.env.threads);
            log_bytes(&catalog.state)
        };
        if bytes <= self.budget.closed_logs_bytes_max {
            return Ok(());
        }
        let mut work = FlushWork::default();
        let shortened = self.flush_behind_short_log(&mut work);
        work.end(self);
        match shortened {
            Err(Error::Full { .. }) => Ok(()),
            shortened => shortened,
        }
    }

    fn flush_behind_short_log(self: &Arc<Store>, work: &mut FlushWork) -> Result<()> {
        let mut turn = self.take_order_turn()?;
        turn.make_durable()?;
        let log = self.make_log(None, self.budget.log_bytes_min)?;
        let (generation, inserter) = self.new_generation(self.budget.generation_bytes as usize)?;
        turn.seal_into(MemtableAndLog { log, generation, inserter });
        drop(turn);
        while let Some(sealed) = self.writer.oldest_sealed() {
            work.flush_whole(self, &sealed)?;
        }
        Ok(())
    }
}
