//! The process that loads the demo's records, and that the demo kills.
//!
//! It reports on standard output, one word and its object a line: `acknowledged 4000` after a commit,
//! `written {..}` with the bytes written so far, `done {..}` at the end. Each batch stores the number of
//! records that are in, so that the next process continues there.

use serde::{Deserialize, Serialize};
use trine::{Db, Keyspace, Ordered};
use trine_workload::failure::Failure;
use trine_workload::screen::Screen;
use trine_workload::text::json_escaped;

use super::records::{KEYSPACES, Record, Sources};
use crate::arguments::DemoLoad;

/// The keyspace and key of the number of loaded records.
pub(crate) const POSITION_KEYSPACE: &str = ".demo";
pub(crate) const POSITION_KEY: &[u8] = b"records";

const BATCH_RECORDS: usize = 500;
const BATCHES_A_TALE: u64 = 8;

/// Bytes written for the records, by one process or by several.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) key_value_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) flush_bytes: u64,
    pub(crate) merge_write_bytes: u64,
    pub(crate) delayed_ns: u64,
}

impl Written {
    pub(crate) fn of(stats: &trine::WriteStats) -> Written {
        Written {
            key_value_bytes: stats.key_value_bytes,
            log_bytes: stats.log_bytes,
            flush_bytes: stats.flush_bytes,
            merge_write_bytes: stats.merge_write_bytes,
            delayed_ns: stats.delayed_ns,
        }
    }

    pub(crate) fn add(&mut self, other: Written) {
        self.key_value_bytes += other.key_value_bytes;
        self.log_bytes += other.log_bytes;
        self.flush_bytes += other.flush_bytes;
        self.merge_write_bytes += other.merge_write_bytes;
        self.delayed_ns += other.delayed_ns;
    }
}

/// The last report of a finished load.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) written: Written,
    pub(crate) settle_ns: u64,
    pub(crate) resident_peak_bytes: Option<u64>,
}

/// The number of loaded records, as stored in the store.
pub(crate) fn position(db: &Db) -> Result<u64, Failure> {
    let value = db.ordered(POSITION_KEYSPACE).open()?.get(POSITION_KEY)?;
    let Some(value) = value else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Failure::Other("the demo's position in its store is no number".to_string()))
}

/// Opens the keyspaces of the records, creating them if needed.
pub(crate) fn keyspaces(db: &Db) -> Result<Vec<Keyspace<Ordered>>, Failure> {
    KEYSPACES.iter().map(|name| Ok(db.ordered(name).open()?)).collect()
}

pub(crate) fn run(load: DemoLoad) -> Result<(), Failure> {
    let sources = Sources::find(&load.root, load.seed);
    let db = Db::builder(&load.store).memory_bytes(load.memory_bytes).open()?;
    let mut loader = Loader {
        keyspaces: keyspaces(&db)?,
        own: db.ordered(POSITION_KEYSPACE).open()?,
        loaded: position(&db)?,
        batches: 0,
        screen: Screen::new(),
        db,
    };
    let mut pending = Vec::with_capacity(BATCH_RECORDS);
    let skipped = usize::try_from(loader.loaded).unwrap_or(usize::MAX);
    for record in sources.records(load.seed, load.records).skip(skipped) {
        pending.push(record);
        if pending.len() == BATCH_RECORDS {
            loader.commit(&mut pending)?;
        }
    }
    loader.commit(&mut pending)?;
    loader.finish()
}

struct Loader {
    db: Db,
    keyspaces: Vec<Keyspace<Ordered>>,
    own: Keyspace<Ordered>,
    loaded: u64,
    batches: u64,
    screen: Screen,
}

impl Loader {
    fn commit(&mut self, pending: &mut Vec<Record>) -> Result<(), Failure> {
        let mut batch = self.db.batch();
        for record in pending.iter() {
            batch.put(&self.keyspaces[record.keyspace], &record.key, &record.value)?;
        }
        let loaded = self.loaded + pending.len() as u64;
        batch.put(&self.own, POSITION_KEY, loaded.to_string())?;
        batch.commit()?;
        pending.clear();
        self.loaded = loaded;
        self.batches += 1;
        self.screen.line(format_args!("acknowledged {loaded}"))?;
        if self.batches.is_multiple_of(BATCHES_A_TALE) {
            self.tell("written", &Written::of(&self.db.stats().write))?;
        }
        self.screen.flush()
    }

    /// Flushes all items into tables and waits until the store has settled.
    fn finish(mut self) -> Result<(), Failure> {
        let started = std::time::Instant::now();
        self.db.flush()?;
        self.db.settle()?;
        self.db.sync()?;
        let done = Done {
            written: Written::of(&self.db.stats().write),
            settle_ns: started.elapsed().as_nanos() as u64,
            resident_peak_bytes: trine_workload::system::resident_peak_bytes(),
        };
        self.tell("done", &done)?;
        self.screen.flush()?;
        let Loader { db, keyspaces, own, screen, .. } = self;
        drop((keyspaces, own));
        db.close()?;
        screen.finish()
    }

    fn tell(&mut self, word: &str, object: &impl Serialize) -> Result<(), Failure> {
        let object = serde_json::to_string(object).map_err(|error| Failure::Other(error.to_string()))?;
        self.screen.line(format_args!("{word} {}", json_escaped(&object)))
    }
}
