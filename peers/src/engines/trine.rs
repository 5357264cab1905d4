//! Trine.

use std::path::Path;

use trine::{Create, Db, Durability, Keyspace, Ordered};

use super::{Answer, Change, Engine, Kept, Peer, Promises, Purpose, Until, told};

pub(super) const PEER: Peer = Peer {
    name: "trine",
    label: "Trine",
    packages: &["trine"],
    library: None,
    settings: "default; there is nothing stricter",
    promises: Promises {
        damage: "an error or no harm; docs/LIMITS.md names what is not told, such as an older copy of the \
                 newest log of a store that was not closed",
        synced: "survive the process and a power cut",
        buffered: "survive the process; a power cut may take the latest",
        buffered_kept: Kept::All,
    },
    is_killed: true,
    class,
    open,
};

struct Trine {
    db: Db,
    items: Keyspace<Ordered>,
}

fn class(file: &str) -> Option<&'static str> {
    match file.split('-').next() {
        Some("log") => Some("log"),
        Some("table") => Some("table"),
        Some("manifest") => Some("manifest"),
        Some("STORE") => Some("STORE"),
        _ => None,
    }
}

fn open(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let create = if purpose == Purpose::Check { Create::Never } else { Create::IfMissing };
    let db = Db::builder(directory).create(create).open().map_err(told)?;
    let items = match purpose {
        Purpose::Check => db.keyspace("items").and_then(|items| items.ordered()),
        _ => db.ordered("items").open(),
    };
    Ok(Box::new(Trine { items: items.map_err(told)?, db }))
}

impl Engine for Trine {
    fn write(&mut self, changes: &[Change], until: Until) -> Answer<()> {
        let mut batch = self.db.batch();
        for change in changes {
            match change {
                Change::Put(key, value) => batch.put(&self.items, key, value),
                Change::Delete(key) => batch.delete(&self.items, key),
            }
            .map_err(told)?;
        }
        let durability = match until {
            Until::Synced => Durability::Sync,
            Until::Buffered => Durability::Buffered,
        };
        batch.commit_with(durability).map_err(told)
    }

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        Ok(self.items.get(key).map_err(told)?.map(Vec::from))
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()> {
        for item in self.items.iter() {
            let (key, value) = item.map_err(told)?;
            each(&key, &value);
        }
        Ok(())
    }

    fn flush(&mut self) -> Answer<()> {
        self.db.flush().map_err(told)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.db.close().map_err(told)
    }
}
