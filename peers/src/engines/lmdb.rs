//! LMDB: a copy-on-write tree without checksums, in one memory-mapped file.
#![expect(
    unsafe_code,
    reason = "heed leaves it to its caller that nobody changes the file while it is mapped"
)]

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};

use super::{Answer, Change, Engine, Kept, Peer, Promises, Purpose, Until, told};

/// The map size of a store under load; a store of some hundred keys has LMDB's default, 1 MiB.
const LOAD_MAP_BYTES: usize = 1 << 30;

pub(super) const PEER: Peer = Peer {
    name: "lmdb",
    label: "LMDB",
    packages: &["heed", "lmdb-master-sys"],
    library: None,
    settings: "default; there is nothing stricter. Buffered: `MDB_NOSYNC`",
    promises: Promises {
        damage: "none: it has no checksums",
        synced: "durable when the commit returns",
        buffered: "`MDB_NOSYNC`: a crash of the system may lose or damage; that of a process is not named",
        buffered_kept: Kept::All,
    },
    is_killed: true,
    class,
    open,
};

struct Lmdb {
    env: Env,
    items: Database<'static, Bytes, Bytes>,
}

fn class(file: &str) -> Option<&'static str> {
    (file == "data.mdb").then_some("the file")
}

fn open(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let mut options = EnvOpenOptions::new();
    if let Purpose::Load(until) = purpose {
        options.map_size(LOAD_MAP_BYTES);
        if until == Until::Buffered {
            // SAFETY: this flag gives up durability in a system crash, as the caller asks; the map is not
            // written through.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
    }
    // SAFETY: only this process has the directory, and changes its files only through this environment.
    let env = unsafe { options.open(directory) }.map_err(told)?;
    let transaction = env.read_txn().map_err(told)?;
    let items = env.open_databases_and_commit(transaction, |opener, transaction| {
        opener.open_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    });
    let items = items.map_err(|error: heed::Error| told(error))?.unwrap_commit();
    let items = items.ok_or("there is no database without a name")?;
    Ok(Box::new(Lmdb { env, items }))
}

impl Engine for Lmdb {
    fn write(&mut self, changes: &[Change], _: Until) -> Answer<()> {
        let mut transaction = self.env.write_txn().map_err(told)?;
        for change in changes {
            match change {
                Change::Put(key, value) => self.items.put(&mut transaction, key, value).map_err(told)?,
                Change::Delete(key) => drop(self.items.delete(&mut transaction, key).map_err(told)?),
            }
        }
        transaction.commit().map_err(told)
    }

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let transaction = self.env.read_txn().map_err(told)?;
        Ok(self.items.get(&transaction, key).map_err(told)?.map(<[u8]>::to_vec))
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()> {
        let transaction = self.env.read_txn().map_err(told)?;
        for item in self.items.iter(&transaction).map_err(told)? {
            let (key, value) = item.map_err(told)?;
            each(key, value);
        }
        Ok(())
    }

    fn flush(&mut self) -> Answer<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Answer<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
