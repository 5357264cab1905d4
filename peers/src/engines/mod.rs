//! The stores that are compared, behind one trait, and what each says of itself.
//!
//! An adapter chooses nothing for its store but where it is and how strict it is: all else is the store's own
//! default. An adapter is opened once in a process.

mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod trine;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

use std::path::Path;

/// An error is told by the text that a user of the store would see.
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
    /// Once the store says that it survives a power cut.
    Synced,
    /// As early as the store offers.
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

/// An open store of bytes to bytes.
pub(crate) trait Engine {
    /// All of the changes or none.
    fn write(&mut self, changes: &[Change], until: Until) -> Answer<()>;

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// Every item in the order of keys.
    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()>;

    /// Writes what is only in a log to tables, if the store has both.
    fn flush(&mut self) -> Answer<()>;

    fn close(self: Box<Self>) -> Answer<()>;
}

/// What a store is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A new store of some hundred keys.
    Make,
    /// A store of some hundred keys that must be there, if the store can be told so.
    Check,
    /// Writes until it is killed, acknowledged so; new or not.
    Load(Until),
}

/// How well acknowledged writes survive the end of the process, by the store's own documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// All of them.
    All,
    /// None since the store was opened: only that what is left is the state after some write.
    SinceOpen,
}

/// What a store promises, in its own documentation's sense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    pub(crate) damage: &'static str,
    pub(crate) synced: &'static str,
    pub(crate) buffered: &'static str,
    /// Of buffered writes when the process is killed.
    pub(crate) buffered_kept: Kept,
}

/// One row of the tables: a store with settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// As given to `--store`; those of one store begin alike.
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// Packages whose versions are told.
    pub(crate) packages: &'static [&'static str],
    /// The version of a library of the system, which is no package.
    pub(crate) library: Option<fn() -> String>,
    pub(crate) settings: &'static str,
    pub(crate) promises: Promises,
    /// Whether its settings make a difference to a store that is killed.
    pub(crate) is_killed: bool,
    /// The class of a file by its path in the store's directory; `None` for files that hold nothing of the
    /// store, such as locks and reports.
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

/// The row of that name.
pub(crate) fn peer(name: &str) -> Answer<Peer> {
    let found = peers().into_iter().find(|peer| peer.name == name);
    found.ok_or_else(|| format!("no store is named {name}; there are {}", names().join(", ")))
}

pub(crate) fn names() -> Vec<&'static str> {
    peers().iter().map(|peer| peer.name).collect()
}

/// Versions of the row's packages, as this program was built with, and of its library, as it runs with.
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

    /// What is written comes back from every store, by get and in order, also after it was closed.
    #[test]
    fn adapters_keep_what_they_are_given() {
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

    /// Each row's versions are told, and no two rows have one name.
    #[test]
    fn rows_are_told_apart() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), peers().len());
        assert!(peers().iter().all(|peer| !versions(peer).is_empty()));
    }
}
