//! Keyspaces of Trine.

use std::path::Path;
use std::time::Duration;

use trine::{Db, Keyspace, Ordered};

use super::super::trine::{counts, open_db};
use super::super::{Counts, Found, Settings};
use super::{Handles, Keyspaces, count, name};
use crate::engines::{Answer, told};

struct Trine {
    db: Db,
    keyspaces: Vec<Keyspace<Ordered>>,
}

pub(in super::super) fn open(
    directory: &Path,
    settings: &Settings,
    keyspaces: u64,
) -> Answer<Box<dyn Keyspaces>> {
    let mut store = Trine { db: open_db(directory, settings)?, keyspaces: Vec::new() };
    while store.keyspaces.len() < count(keyspaces) {
        store.create()?;
    }
    Ok(Box::new(store))
}

impl Keyspaces for Trine {
    fn create(&mut self) -> Answer<()> {
        let keyspace = self.db.ordered(&name(self.keyspaces.len())).open().map_err(told)?;
        self.keyspaces.push(keyspace);
        Ok(())
    }

    fn drop_last(&mut self) -> Answer<()> {
        self.keyspaces.pop();
        self.db.drop_keyspace(&name(self.keyspaces.len())).map_err(told)
    }

    fn handles(&self) -> Answer<Box<dyn Handles + '_>> {
        Ok(Box::new(self.keyspaces.as_slice()))
    }

    fn settle(&self) -> Answer<Duration> {
        self.db.flush().map_err(told)?;
        self.db.settle().map_err(told)?;
        Ok(Duration::ZERO)
    }

    fn counts(&self) -> Counts {
        counts(&self.db)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        let Trine { db, keyspaces } = *self;
        drop(keyspaces);
        db.close().map_err(told)
    }
}

impl Handles for &[Keyspace<Ordered>] {
    fn put(&self, keyspace: usize, key: &[u8], value: &[u8]) -> Answer<()> {
        self[keyspace].put(key, value).map_err(told)
    }

    fn get(&self, keyspace: usize, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self[keyspace].get_into(key, value).map_err(told)?;
        Ok(if found { Found::Value } else { Found::Nothing })
    }
}
