//! Keyspaces of fjall, one per partition.

use std::collections::HashMap;
use std::path::Path;
use std::sync::RwLock;

use fjall::{Database, Keyspace, PersistMode};

use super::super::fjall::{buffer_bytes, counts, keyspace_options, open_db, rest};
use super::super::{Counts, Found, Look, Settings};
use super::{DropBy, Partitions};
use crate::engines::{Answer, told};

struct Fjall {
    db: Database,
    keyspaces: RwLock<HashMap<u64, Keyspace>>,
    buffer_bytes: u64,
}

pub(in super::super) fn open(
    directory: &Path,
    settings: &Settings,
    by: DropBy,
    count: u64,
) -> Answer<Option<Box<dyn Partitions>>> {
    if by != DropBy::Whole {
        return Ok(None);
    }
    let db = open_db(directory, settings)?;
    let store = Fjall { db, keyspaces: RwLock::default(), buffer_bytes: buffer_bytes(settings) };
    (0..count).try_for_each(|partition| store.make(partition))?;
    Ok(Some(Box::new(store)))
}

impl Fjall {
    fn keyspace(&self, partition: u64) -> Answer<Keyspace> {
        let keyspaces = self.keyspaces.read().map_err(told)?;
        keyspaces.get(&partition).cloned().ok_or("there is no such keyspace".to_owned())
    }
}

impl Partitions for Fjall {
    fn make(&self, partition: u64) -> Answer<()> {
        let keyspace = self.db.keyspace(&partition.to_string(), || keyspace_options(self.buffer_bytes));
        self.keyspaces.write().map_err(told)?.insert(partition, keyspace.map_err(told)?);
        Ok(())
    }

    fn put(&self, partition: u64, key: &[u8], value: &[u8]) -> Answer<()> {
        self.keyspace(partition)?.insert(key, value).map_err(told)
    }

    fn get(&self, partition: u64, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self.keyspace(partition)?.get(key).map_err(told)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(if found.is_some() { Found::Value } else { Found::Nothing })
    }

    fn scan(&self, partition: u64, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<u64> {
        let mut count = 0;
        let items = self.keyspace(partition)?.range(from..);
        for item in items.take(usize::try_from(items_max).unwrap_or(usize::MAX)) {
            let (key, value) = item.into_inner().map_err(told)?;
            look(&key, &value);
            count += 1;
        }
        Ok(count)
    }

    fn drop_partition(&self, partition: u64) -> Answer<()> {
        let keyspace = self.keyspaces.write().map_err(told)?.remove(&partition);
        self.db.delete_keyspace(keyspace.ok_or("there is no such keyspace")?).map_err(told)?;
        self.db.persist(PersistMode::SyncData).map_err(told)
    }

    fn settle(&self) -> Answer<()> {
        let keyspaces: Vec<Keyspace> = self.keyspaces.read().map_err(told)?.values().cloned().collect();
        keyspaces.iter().try_for_each(|one| one.rotate_memtable().map(drop).map_err(told))?;
        rest(&self.db, || keyspaces.iter().any(|one| one.sealed_memtable_count() > 0));
        Ok(())
    }

    fn counts(&self) -> Counts {
        counts(&self.db)
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}
