//! redb: one file, a copy-on-write tree.

use std::path::Path;

use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Answer, Change, Engine, Kept, Peer, Promises, Purpose, Until, told};

const ITEMS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("items");

const DEFAULT: Peer = Peer {
    name: "redb",
    label: "redb",
    packages: &["redb"],
    library: None,
    settings: "default",
    promises: Promises {
        damage: "none: rot is outside its assumptions, reads verify no checksums, an opening may panic",
        synced: "`Durability::Immediate`: persistent when the commit returns",
        buffered: "`Durability::None`: not persistent until a commit that is; consistent",
        buffered_kept: Kept::SinceOpen,
    },
    is_killed: true,
    class,
    open: open_default,
};

pub(super) const PEERS: [Peer; 2] = [
    DEFAULT,
    Peer {
        name: "redb-checked",
        label: "redb, `set_check_integrity_on_open`",
        settings: "each opening verifies every page",
        promises: Promises {
            damage: "a file that was altered since redb last wrote it fails to open",
            ..DEFAULT.promises
        },
        is_killed: false,
        open: open_checked,
        ..DEFAULT
    },
];

struct Redb {
    db: Database,
}

fn class(_: &str) -> Option<&'static str> {
    Some("the file")
}

fn open_default(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    open(Builder::new(), directory, purpose)
}

fn open_checked(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let mut builder = Builder::new();
    builder.set_check_integrity_on_open(true);
    open(builder, directory, purpose)
}

fn open(builder: Builder, directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let file = directory.join("data.redb");
    let db = if purpose == Purpose::Check { builder.open(file) } else { builder.create(file) };
    let db = db.map_err(told)?;
    if purpose != Purpose::Check {
        let transaction = db.begin_write().map_err(told)?;
        transaction.open_table(ITEMS).map_err(told)?;
        transaction.commit().map_err(told)?;
    }
    Ok(Box::new(Redb { db }))
}

impl Engine for Redb {
    fn write(&mut self, changes: &[Change], until: Until) -> Answer<()> {
        let mut transaction = self.db.begin_write().map_err(told)?;
        let durability = match until {
            Until::Synced => Durability::Immediate,
            Until::Buffered => Durability::None,
        };
        transaction.set_durability(durability).map_err(told)?;
        {
            let mut items = transaction.open_table(ITEMS).map_err(told)?;
            for change in changes {
                match change {
                    Change::Put(key, value) => items.insert(key.as_slice(), value.as_slice()),
                    Change::Delete(key) => items.remove(key.as_slice()),
                }
                .map_err(told)?;
            }
        }
        transaction.commit().map_err(told)
    }

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let items = self.db.begin_read().map_err(told)?.open_table(ITEMS).map_err(told)?;
        Ok(items.get(key).map_err(told)?.map(|value| value.value().to_vec()))
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()> {
        let items = self.db.begin_read().map_err(told)?.open_table(ITEMS).map_err(told)?;
        for item in items.iter().map_err(told)? {
            let (key, value) = item.map_err(told)?;
            each(key.value(), value.value());
        }
        Ok(())
    }

    fn flush(&mut self) -> Answer<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.close().map_err(told)
    }
}
