//! Trine with its items in a hashed keyspace: loads and gets, beside the ordered keyspace.

use std::path::Path;

use trine::{Db, Hashed, Keyspace};

use super::trine::{in_flight, lacks, open_db, settle, write, write_buffer_bytes};
use super::{
    Asker, BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Executor, Found, Look, Reader, Sees,
    Settings, Values,
};
use crate::engines::{Answer, told};

pub(super) const CONTENDER: Contender = Contender {
    name: "trine-hashed",
    label: "Trine, hashed",
    peer: "trine",
    settings: "a hashed keyspace; otherwise as Trine",
    tables: "table",
    batch: 1,
    uses_page_cache: false,
    beside_bytes: BESIDE_BYTES,
    has_order: false,
    has_owned_iterator: false,
    has_futures: true,
    open,
    open_keyspaces: None,
    open_partitions: None,
};

struct TrineHashed {
    db: Db,
    items: Keyspace<Hashed>,
}

fn open(directory: &Path, settings: &Settings) -> Answer<Box<dyn Engine>> {
    let db = open_db(directory, settings)?;
    let items = db.hashed("items").open().map_err(told)?;
    Ok(Box::new(TrineHashed { db, items }))
}

impl Engine for TrineHashed {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        self.items.put(key, value).map_err(told)
    }

    fn write(&self, changes: &Changes) -> Answer<()> {
        write(&self.db, &self.items, changes)
    }

    fn reader(&self, _: Sees) -> Answer<Box<dyn Reader + '_>> {
        Ok(Box::new(HashedReader { items: &self.items }))
    }

    fn settle(&self) -> Answer<()> {
        settle(&self.db)
    }

    fn compact(&mut self) -> Answer<Compacted> {
        self.db.compact().map_err(told)?;
        Ok(Compacted::InPlace)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        write_buffer_bytes(&self.db)
    }

    fn counts(&self) -> Counts {
        super::trine::counts(&self.db)
    }

    fn lacks(&self, _has_read_together: bool) -> Vec<String> {
        lacks(&self.db)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.close().map_err(told)
    }
}

struct HashedReader<'a> {
    items: &'a Keyspace<Hashed>,
}

/// Refuses a scan: rows of scans leave out stores without an order.
fn unordered<T>() -> Answer<T> {
    Err("a hashed keyspace has no order to scan in".to_owned())
}

impl Reader for HashedReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self.items.get_into(key, value).map_err(told)?;
        Ok(if found { Found::Value } else { Found::Nothing })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        values.resize(keys.len());
        self.items.multi_get_with(keys, |index, value| values.set(index, value)).map_err(told)
    }

    fn in_flight(&mut self, executor: Executor, depth: u64, asker: &mut dyn Asker) -> Answer<()> {
        in_flight(self.items, executor, depth, asker)
    }

    fn scan(&mut self, _: &[u8], _: u64, _: &mut Look<'_>) -> Answer<Option<u64>> {
        unordered()
    }

    fn scan_owned(&mut self, _: &[u8], _: u64, _: &mut Look<'_>) -> Answer<Option<u64>> {
        unordered()
    }

    fn all(&mut self, _: &mut Look<'_>) -> Answer<Option<u64>> {
        unordered()
    }
}
