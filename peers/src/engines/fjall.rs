//! fjall.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Answer, Change, Engine, Kept, Peer, Promises, Purpose, Until, told};

pub(super) const PEER: Peer = Peer {
    name: "fjall",
    label: "fjall",
    packages: &["fjall", "lsm-tree"],
    library: None,
    settings: "default; its API has nothing stricter",
    promises: Promises {
        damage: "checksums in blocks and in the batches of the journal; damage is not spoken of beyond that",
        synced: "`PersistMode::SyncAll`: survive application and power failure",
        buffered: "flushed to the buffers of the system, not to disk: as RocksDB's default",
        buffered_kept: Kept::All,
    },
    is_killed: true,
    class,
    open,
};

struct Fjall {
    db: Database,
    items: Keyspace,
}

/// fjall's first keyspace is its own list of keyspaces, ours is the last; tables of both are one class.
fn class(file: &str) -> Option<&'static str> {
    let name = file.rsplit('/').next()?;
    let is_version =
        name.strip_prefix('v').is_some_and(|rest| rest.parse::<u64>().is_ok()) || name == "current";
    if name == "lock" {
        None
    } else if name.ends_with(".jnl") {
        Some("journal")
    } else if file.contains("/tables/") {
        Some("table")
    } else if is_version {
        Some("version files")
    } else {
        Some("other")
    }
}

fn open(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let db = Database::builder(directory).open().map_err(told)?;
    if purpose == Purpose::Check && !db.keyspace_exists("items") {
        return Err("there is no keyspace of that name".to_owned());
    }
    let items = db.keyspace("items", KeyspaceCreateOptions::default).map_err(told)?;
    Ok(Box::new(Fjall { db, items }))
}

impl Engine for Fjall {
    fn write(&mut self, changes: &[Change], until: Until) -> Answer<()> {
        let mut batch = self.db.batch();
        if until == Until::Synced {
            batch = batch.durability(Some(PersistMode::SyncAll));
        }
        for change in changes {
            match change {
                Change::Put(key, value) => batch.insert(&self.items, key.as_slice(), value.as_slice()),
                Change::Delete(key) => batch.remove(&self.items, key.as_slice()),
            }
        }
        batch.commit().map_err(told)
    }

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        Ok(self.items.get(key).map_err(told)?.map(|value| value.to_vec()))
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()> {
        for item in self.items.iter() {
            let (key, value) = item.into_inner().map_err(told)?;
            each(&key, &value);
        }
        Ok(())
    }

    fn flush(&mut self) -> Answer<()> {
        self.items.rotate_memtable_and_wait().map_err(told)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}
