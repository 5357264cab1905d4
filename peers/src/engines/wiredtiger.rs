//! WiredTiger: a B-tree with a log, which the configuration has to enable.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use super::{Answer, Change, Engine, Kept, Peer, Promises, Purpose, Until, told};
use crate::wiredtiger::{self, Connection, Session};

pub(super) const PEER: Peer = Peer {
    name: "wiredtiger",
    label: "WiredTiger",
    packages: &[],
    library: Some(wiredtiger::version),
    settings: "default, but for `log=(enabled)`, without which commits are durable only at a checkpoint",
    promises: Promises {
        damage: "an error when corruption is detected; blocks and the log's records have checksums",
        synced: "`sync=on`: on the storage device when the commit returns",
        buffered: "`sync=off`: in a buffer of the process, which other commits or a checkpoint write",
        buffered_kept: Kept::SinceOpen,
    },
    is_killed: true,
    class,
    open,
};

struct WiredTiger {
    session: RefCell<Session>,
    connection: Arc<Connection>,
}

fn class(file: &str) -> Option<&'static str> {
    match file {
        "WiredTiger.lock" => None,
        "WiredTiger" | "WiredTiger.basecfg" | "WiredTiger.turtle" => Some("WiredTiger, basecfg, turtle"),
        _ if file.starts_with("WiredTigerLog.") || file.starts_with("WiredTigerPreplog.") => Some("log"),
        "WiredTiger.wt" => Some("metadata"),
        // Updates that the cache had no room for; no opening reads this file.
        "WiredTigerLAS.wt" => Some("look-aside"),
        _ if file.ends_with(".wt") => Some("table"),
        _ => None,
    }
}

fn open(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let create = if purpose == Purpose::Check { "" } else { "create," };
    let connection = Connection::open(directory, &format!("{create}log=(enabled)"))?;
    if purpose != Purpose::Check {
        connection.make_table()?;
    }
    Ok(Box::new(WiredTiger { session: RefCell::new(connection.session()?), connection }))
}

impl Engine for WiredTiger {
    fn write(&mut self, changes: &[Change], until: Until) -> Answer<()> {
        let commit = match until {
            Until::Synced => c"sync=on",
            Until::Buffered => c"sync=off",
        };
        let changed = self.session.get_mut().transact(commit, |session| {
            changes.iter().try_for_each(|change| match change {
                Change::Put(key, value) => session.put(key, value),
                Change::Delete(key) => session.delete(key),
            })
        });
        changed.map_err(told)
    }

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let mut session = self.session.borrow_mut();
        let value = session.get(key).map_err(told)?.map(<[u8]>::to_vec);
        session.reset().map_err(told)?;
        Ok(value)
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()> {
        let mut session = self.session.borrow_mut();
        session.reset().map_err(told)?;
        while session.next().map_err(told)? {
            let (key, value) = session.item().map_err(told)?;
            each(key, value);
        }
        Ok(())
    }

    fn flush(&mut self) -> Answer<()> {
        self.session.get_mut().checkpoint().map_err(told)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        drop(self.session);
        self.connection.close()
    }
}
