//! Partitions of Trine by a prefix of the key, and the same keys in a keyspace without partitions.

use std::path::Path;

use trine::{Db, Keyspace, Ordered, Partitioning};

use super::super::trine::{counts, open_db, settle};
use super::super::{Counts, Found, Look, Settings};
use super::{BATCH_KEYS, DropBy, PREFIX_BYTES, Partitions, prefix, prefixed};
use crate::engines::{Answer, told};

struct Trine {
    db: Db,
    items: Keyspace<Ordered>,
    by: DropBy,
}

pub(in super::super) fn open(
    directory: &Path,
    settings: &Settings,
    by: DropBy,
    count: u64,
) -> Answer<Option<Box<dyn Partitions>>> {
    let db = open_db(directory, settings)?;
    let builder = db.ordered("items");
    let items = match by {
        DropBy::Whole => builder.partition_by(Partitioning::prefix(PREFIX_BYTES)).open(),
        DropBy::Range | DropBy::Keys => builder.open(),
    };
    let store = Trine { db, items: items.map_err(told)?, by };
    if by == DropBy::Whole {
        store.items.create_partitions((0..count).map(prefix)).map_err(told)?;
    }
    Ok(Some(Box::new(store)))
}

impl Trine {
    fn delete_keys(&self, partition: u64) -> Answer<()> {
        let mut batch = self.db.batch();
        for item in self.items.prefix(prefix(partition)) {
            let (key, _) = item.map_err(told)?;
            batch.delete(&self.items, key).map_err(told)?;
            if batch.len() >= BATCH_KEYS {
                std::mem::replace(&mut batch, self.db.batch()).commit().map_err(told)?;
            }
        }
        batch.commit().map_err(told)
    }
}

impl Partitions for Trine {
    fn make(&self, _partition: u64) -> Answer<()> {
        Ok(())
    }

    fn put(&self, partition: u64, key: &[u8], value: &[u8]) -> Answer<()> {
        self.items.put(prefixed(partition, key), value).map_err(told)
    }

    fn get(&self, partition: u64, key: &[u8], value: &mut Vec<u8>) -> Answer<Found> {
        let found = self.items.get_into(prefixed(partition, key), value).map_err(told)?;
        Ok(if found { Found::Value } else { Found::Nothing })
    }

    fn scan(&self, partition: u64, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<u64> {
        let (from, end) = (prefixed(partition, from), prefix(partition + 1).to_vec());
        let mut cursor = self.items.cursor(from..end);
        let mut count = 0;
        while count < items_max
            && let Some((key, value)) = cursor.next().map_err(told)?
        {
            look(&key[PREFIX_BYTES..], value);
            count += 1;
        }
        Ok(count)
    }

    fn drop_partition(&self, partition: u64) -> Answer<()> {
        match self.by {
            DropBy::Whole => return self.items.drop_partition(prefix(partition)).map(drop).map_err(told),
            DropBy::Range => {
                let range = prefix(partition).to_vec()..prefix(partition + 1).to_vec();
                self.items.delete_range(range).map_err(told)?;
            }
            DropBy::Keys => self.delete_keys(partition)?,
        }
        self.db.sync().map_err(told)
    }

    fn settle(&self) -> Answer<()> {
        settle(&self.db)
    }

    fn counts(&self) -> Counts {
        counts(&self.db)
    }

    fn memory_bytes(&self) -> Option<u64> {
        let roles = self.db.stats().memory.roles;
        Some(roles.iter().filter(|role| role.name != "cache").map(|role| role.bytes).sum())
    }

    fn close(self: Box<Self>) -> Answer<()> {
        let Trine { db, items, .. } = *self;
        drop(items);
        db.close().map_err(told)
    }
}
