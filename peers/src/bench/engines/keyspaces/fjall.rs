//! Keyspaces of fjall.

use std::path::Path;
use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::super::fjall::{QUIET, buffer_bytes, counts, keyspace_options, open_db, rest};
use super::super::{Counts, Found, Settings};
use super::{Handles, Keyspaces, count, name};
use crate::engines::{Answer, told};

struct Fjall {
    db: Database,
    keyspaces: Vec<Keyspace>,
    buffer_bytes: u64,
}

pub(in super::super) fn open(
    directory: &Path,
    settings: &Settings,
    keyspaces: u64,
) -> Answer<Box<dyn Keyspaces>> {
    let db = open_db(directory, settings)?;
    let mut store = Fjall { db, keyspaces: Vec::new(), buffer_bytes: buffer_bytes(settings) };
    while store.keyspaces.len() < count(keyspaces) {
        store.create()?;
    }
    Ok(Box::new(store))
}

impl Keyspaces for Fjall {
    fn create(&mut self) -> Answer<()> {
        let options = || -> KeyspaceCreateOptions { keyspace_options(self.buffer_bytes) };
        let keyspace = self.db.keyspace(&name(self.keyspaces.len()), options).map_err(told)?;
        self.keyspaces.push(keyspace);
        Ok(())
    }

    fn drop_last(&mut self) -> Answer<()> {
        let keyspace = self.keyspaces.pop().ok_or("there is no keyspace")?;
        self.db.delete_keyspace(keyspace).map_err(told)
    }

    fn handles(&self) -> Answer<Box<dyn Handles + '_>> {
        Ok(Box::new(self.keyspaces.as_slice()))
    }

    fn settle(&self) -> Answer<Duration> {
        for keyspace in &self.keyspaces {
            keyspace.rotate_memtable().map_err(told)?;
        }
        rest(&self.db, || self.keyspaces.iter().any(|one| one.sealed_memtable_count() > 0));
        Ok(QUIET)
    }

    fn counts(&self) -> Counts {
        counts(&self.db)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}

impl Handles for &[Keyspace] {
    fn put(&self, keyspace: usize, key: &[u8], value: &[u8]) -> Answer<()> {
        self[keyspace].insert(key, value).map_err(told)
    }

    fn get(&self, keyspace: usize, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self[keyspace].get(key).map_err(told)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(if found.is_some() { Found::Value } else { Found::Nothing })
    }
}
