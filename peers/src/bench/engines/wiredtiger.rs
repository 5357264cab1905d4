//! WiredTiger: a B-tree with a log, and with a cache of its own above the page cache.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Found, Look, Reader, Sees, Settings, Values,
};
use crate::engines::{Answer, Until, told};
use crate::wiredtiger::{Connection, LOG_BYTES, Session, TABLE_BYTES};

pub(super) const CONTENDER: Contender = Contender {
    name: "wiredtiger",
    label: "WiredTiger",
    peer: "wiredtiger",
    settings: "`cache_size` of M; a table of `type=file`, keys and values of format `u`, pages of the \
               default sizes, no compression; the log on, `transaction_sync` with `method=none`, which \
               writes each commit to the system, and with `method=fsync` in synced rows; a checkpoint \
               every 60 s or 2 GB of log, as in MongoDB; snapshot isolation; `statistics=(fast)`; a \
               session per thread, and one transaction for all requests of a row without writers. The \
               page cache and the allocator's overhead of the cache come on top of M; under a limit of \
               total memory it has 192 MiB on top of M",
    tables: "table",
    batch: 1,
    uses_page_cache: true,
    beside_bytes: 3 * BESIDE_BYTES,
    has_order: true,
    has_owned_iterator: false,
    has_futures: false,
    open,
    open_keyspaces: None,
    open_partitions: None,
};

struct WiredTiger {
    connection: Arc<Connection>,
    /// Sessions of writers, while they write nothing.
    idle: Mutex<Vec<Session>>,
}

fn open(directory: &Path, settings: &Settings) -> Answer<Box<dyn Engine>> {
    std::fs::create_dir_all(directory).map_err(told)?;
    let method = match settings.until {
        Until::Synced => "fsync",
        Until::Buffered => "none",
    };
    let config = format!(
        "create,cache_size={},log=(enabled),transaction_sync=(enabled,method={method}),\
         checkpoint=(wait=60,log_size=2GB),statistics=(fast)",
        settings.memory_bytes
    );
    let connection = Connection::open(directory, &config)?;
    connection.make_table()?;
    Ok(Box::new(WiredTiger { connection, idle: Mutex::new(Vec::new()) }))
}

impl WiredTiger {
    /// Calls `ask` with a session that no other thread uses meanwhile.
    fn with<R>(&self, ask: impl FnOnce(&mut Session) -> Answer<R>) -> Answer<R> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let one = idle().pop();
        let mut session = one.map_or_else(|| self.connection.session(), Ok)?;
        let answer = ask(&mut session);
        idle().push(session);
        answer
    }
}

impl Engine for WiredTiger {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        self.with(|session| session.put(key, value).map_err(told))
    }

    fn write(&self, changes: &Changes) -> Answer<()> {
        self.with(|session| {
            let changed = session.transact(c"", |session| {
                changes.iter().try_for_each(|(key, value)| match value {
                    Some(value) => session.put(key, value),
                    None => session.delete(key),
                })
            });
            changed.map_err(told)
        })
    }

    fn reader(&self, sees: Sees) -> Answer<Box<dyn Reader + '_>> {
        let mut session = self.connection.session()?;
        if sees == Sees::Still {
            session.hold().map_err(told)?;
        }
        Ok(Box::new(WiredTigerReader { session }))
    }

    fn settle(&self) -> Answer<()> {
        self.with(|session| session.checkpoint().map_err(told))
    }

    fn compact(&mut self) -> Answer<Compacted> {
        self.with(|session| session.compact().map_err(told))?;
        Ok(Compacted::InPlace)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        None
    }

    fn counts(&self) -> Counts {
        let counted = self.with(|session| session.statistics([TABLE_BYTES, LOG_BYTES]).map_err(told));
        let [table_bytes, log_bytes] = counted.map_or([None; 2], |counted| counted.map(Some));
        Counts { log_bytes, table_bytes, ..Counts::default() }
    }

    fn close(self: Box<Self>) -> Answer<()> {
        drop(self.idle);
        self.connection.close()
    }
}

struct WiredTigerReader {
    session: Session,
}

impl WiredTigerReader {
    /// Gives items to `look` from the cursor on, if the cursor is at an item.
    fn walk(&mut self, mut is_there: bool, items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let mut count = 0;
        while is_there && count < items_max {
            let (key, value) = self.session.item().map_err(told)?;
            look(key, value);
            count += 1;
            is_there = count < items_max && self.session.next().map_err(told)?;
        }
        self.session.reset().map_err(told)?;
        Ok(Some(count))
    }
}

impl Reader for WiredTigerReader {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        value.clear();
        let found = self.session.get(key).map_err(told)?;
        value.extend_from_slice(found.unwrap_or_default());
        let found = if found.is_some() { Found::Value } else { Found::Nothing };
        // A cursor that keeps its position keeps the page, and the state of the store that it reads.
        self.session.reset().map_err(told)?;
        Ok(found)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        for key in keys {
            values.push(self.session.get(key).map_err(told)?);
        }
        self.session.reset().map_err(told)
    }

    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let is_there = self.session.seek(from).map_err(told)?;
        self.walk(is_there, items_max, look)
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.scan(from, items_max, look)
    }

    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let is_there = self.session.next().map_err(told)?;
        self.walk(is_there, u64::MAX, look)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Regime;
    use super::*;

    /// Written bytes are counted: to the log at each commit, to the table when it is settled.
    #[test]
    fn writes_are_counted() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (until, regime) = (Until::Buffered, Regime::Cached);
        let settings = Settings { memory_bytes: 32 << 20, until, regime, value_bytes: 100 };
        let engine = open(directory.path(), &settings).expect("it opens");
        let counts = || engine.counts().log_bytes.zip(engine.counts().table_bytes).expect("they are counted");
        let before = counts();
        let mut changes = Changes::default();
        (0..1000_u32).for_each(|key| changes.put(&key.to_be_bytes(), &[7; 100]));
        engine.write(&changes).expect("it writes");
        let written = counts();
        assert!(written.0 >= before.0 + 100_000, "{before:?} {written:?}");
        engine.settle().expect("it settles");
        assert!(counts().1 >= written.1 + 100_000, "{written:?} {:?}", counts());
        engine.close().expect("it closes");
    }
}
