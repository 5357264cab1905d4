//! The compared stores behind one trait, with the settings and promises of each.
//!
//! An adapter chooses only the directory and the durability of its store; everything else is the store's
//! default. A store is open once at a time in a process.

mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod trine;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

use std::path::Path;

/// An error is the text that a user of the store would see.
pub(crate) type Answer<T> = Result<T, String>;

/// One change of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

/// When a batch is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// Once the store claims that the batch survives a power cut.
    Synced,
    /// As early as the store allows.
    Buffered,
}

impl Until {
    pub(crate) const BOTH: [Until; 2] = [Until::Synced, Until::Buffered];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Until::Synced => "synced",
            Until::Buffered => "buffered",
        }
    }

    pub(crate) fn named(name: &str) -> Answer<Until> {
        let found = Until::BOTH.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| format!("writes are synced or buffered, not {name}"))
    }
}

/// An open store that maps bytes to bytes.
pub(crate) trait Engine {
    /// Applies all of the changes or none.
    fn write(&mut self, changes: &[Change], until: Until) -> Answer<()>;

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// Gives every item to `each`, in the order of keys.
    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()>;

    /// Writes items that are only in a log to tables, if the store has both.
    fn flush(&mut self) -> Answer<()>;

    fn close(self: Box<Self>) -> Answer<()>;
}

/// The use of a store after its opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A new store of some hundred keys.
    Make,
    /// A store of some hundred keys, which must exist if the store's interface can demand that.
    Check,
    /// A store, new or not, that is written until the process is killed, with batches acknowledged this way.
    Load(Until),
}

/// How well acknowledged writes survive the end of the process, by the store's own documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// All of them.
    All,
    /// None since the opening; the remaining state is the one after some write.
    SinceOpen,
}

/// The promises of a store, in the sense of its own documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    pub(crate) damage: &'static str,
    pub(crate) synced: &'static str,
    pub(crate) buffered: &'static str,
    /// Acknowledged buffered writes that survive a kill of the process.
    pub(crate) buffered_kept: Kept,
}

/// One row of the tables: a store with settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// As given to `--store`; the names of one store's rows begin alike.
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// Packages whose versions stand in the tables.
    pub(crate) packages: &'static [&'static str],
    /// The version of a system library, which is no package.
    pub(crate) library: Option<fn() -> String>,
    pub(crate) settings: &'static str,
    pub(crate) promises: Promises,
    /// Whether the row is also tried with kills: only if its settings make a difference to them.
    pub(crate) is_killed: bool,
    /// The class of a file, by its path in the store's directory; `None` for files without the store's data,
    /// such as locks and reports.
    pub(crate) class: fn(&str) -> Option<&'static str>,
    pub(crate) open: fn(&Path, Purpose) -> Answer<Box<dyn Engine>>,
}

/// Every row, in the order of the tables.
pub(crate) fn peers() -> Vec<Peer> {
    let mut all = vec![trine::PEER];
    #[cfg(feature = "rocksdb")]
    all.extend(rocksdb::PEERS);
    all.push(fjall::PEER);
    all.extend(redb::PEERS);
    all.push(lmdb::PEER);
    #[cfg(feature = "wiredtiger")]
    all.push(wiredtiger::PEER);
    all
}

/// The row with this name.
pub(crate) fn peer(name: &str) -> Answer<Peer> {
    let found = peers().into_iter().find(|peer| peer.name == name);
    found.ok_or_else(|| format!("no store is named {name}; there are {}", names().join(", ")))
}

pub(crate) fn names() -> Vec<&'static str> {
    peers().iter().map(|peer| peer.name).collect()
}

/// Versions of the row's packages, as built into this program, and of its system library, as loaded now.
pub(crate) fn versions(peer: &Peer) -> String {
    let version = |package: &&str| {
        let begins = format!("name = \"{package}\"\nversion = \"");
        let (_, rest) = include_str!("../../Cargo.lock").split_once(&begins)?;
        Some(format!("{package} {}", rest.split('"').next()?))
    };
    let library = peer.library.map(|told| told());
    peer.packages.iter().filter_map(version).chain(library).collect::<Vec<String>>().join(", ")
}

/// An error of a store as its users would see it.
pub(crate) fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written items come back from every store, by get and in key order, also after a close.
    #[test]
    fn adapters_keep_written_items() {
        for peer in peers() {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let mut engine = (peer.open)(directory.path(), Purpose::Make).expect(peer.name);
            let put = |key: &str| Change::Put(key.into(), b"value".to_vec());
            engine.write(&[put("b"), put("a"), put("c")], Until::Synced).expect(peer.name);
            engine.flush().expect(peer.name);
            engine.write(&[Change::Delete(b"b".to_vec())], Until::Buffered).expect(peer.name);
            engine.close().expect(peer.name);
            let engine = (peer.open)(directory.path(), Purpose::Check).expect(peer.name);
            assert_eq!(engine.get(b"a").expect(peer.name).as_deref(), Some(&b"value"[..]));
            assert_eq!(engine.get(b"b").expect(peer.name), None);
            let mut keys = Vec::new();
            engine.scan(&mut |key, _| keys.push(key.to_vec())).expect(peer.name);
            assert_eq!(keys, [b"a", b"c"], "{}", peer.name);
        }
    }

    /// Each row has versions, and no two rows share a name.
    #[test]
    fn rows_are_told_apart() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), peers().len());
        assert!(peers().iter().all(|peer| !versions(peer).is_empty()));
    }
}
