//! The stores that are compared, behind one trait, each tuned as its users would tune it.
//!
//! 1. One total of memory is all that a store is given; how it is divided is the adapter's choice, told
//!    beside the results.
//! 2. A value that is got is copied out to the caller, by every store alike; a scan lends its items.
//! 3. A directory is opened once at a time.

mod fjall;
pub(super) mod keyspaces;
mod lmdb;
mod null;
pub(super) mod partitions;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod trine;
mod trine_hashed;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::engines::{Answer, Peer, Until, peer, versions};
use keyspaces::OpenKeyspaces;
use partitions::OpenPartitions;

/// Beside the total, as the bar of resident memory allows.
const BESIDE_BYTES: u64 = 64 << 20;

/// What a store is opened with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Write buffers, cache, filters and index together.
    pub(super) memory_bytes: u64,
    /// When a write is acknowledged.
    pub(super) until: Until,
    pub(super) regime: Regime,
    /// Of most values; for `null`, which makes its own.
    pub(super) value_bytes: usize,
}

/// What is known of the requests that come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Regime {
    /// The data fits the memory.
    Cached,
    /// The data is larger than the memory.
    Cold,
    /// It is, and is read in order.
    ColdInOrder,
}

/// Whether a reader has to see what was written since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sees {
    /// Nobody writes: one view may serve all requests.
    Still,
    Latest,
}

/// What a request came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Value,
    Nothing,
    /// Nobody was asked.
    Unasked,
}

/// Given each item of a scan, in order.
pub(super) type Look<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// An open store, shared by the threads that ask it.
pub(super) trait Engine: Sync {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()>;

    /// All of the changes or none.
    fn write(&self, changes: &Changes) -> Answer<()>;

    fn reader(&self, sees: Sees) -> Answer<Box<dyn Reader + '_>>;

    /// Writes what is in write buffers to tables and waits until background work is finished; compacts
    /// nothing that the store would not.
    fn settle(&self) -> Answer<()>;

    /// Makes the store as small as the store can.
    fn compact(&mut self) -> Answer<Compacted>;

    /// Of one full write buffer, if the store has such.
    fn write_buffer_bytes(&self) -> Option<u64>;

    /// Since it was opened, as far as the store tells.
    fn counts(&self) -> Counts;

    /// What it was told to use and does not have here. `_has_read_together`: it has just read from the
    /// device for keys that were asked for together.
    fn lacks(&self, _has_read_together: bool) -> Vec<String> {
        Vec::new()
    }

    fn close(self: Box<Self>) -> Answer<()>;
}

/// One thread's way to ask.
pub(super) trait Reader {
    /// Copies what is found into `value`.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found>;

    /// Asks for all keys together, if the store has a way to, and one after the other if not.
    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()>;

    /// Asks for keys without waiting for any, so many in flight at any time; only of stores with futures.
    fn in_flight(&mut self, executor: Executor, depth: u64, asker: &mut dyn Asker) -> Answer<()> {
        let (_, _) = (depth, asker);
        Err(format!("the store has no futures for {executor:?}"))
    }

    /// Up to `items_max` items from `from` on, which is no shorter than a key; `None` if nobody was asked.
    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>>;

    /// The same through the iterator of owned pairs, where the store has one beside what `scan` uses.
    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>>;

    /// Everything in order.
    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>>;
}

/// Who polls futures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Executor {
    /// The store's own.
    BlockOn,
    /// Tokio's, of one thread.
    Tokio,
}

/// A get that is in flight: of which item, since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) started: Instant,
}

/// Who has keys to ask for.
pub(super) trait Asker {
    /// The next, its key put into the buffer; `None` once it is enough.
    fn next(&mut self, key: &mut Vec<u8>) -> Option<Asked>;

    /// What one came to.
    fn answer(&mut self, asked: Asked, found: Found, value: &[u8]);
}

/// Where a compacted store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Compacted {
    InPlace,
    /// The store only makes a smaller copy.
    Copy(PathBuf),
    No,
}

/// What a store counts.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) log_bytes: Option<u64>,
    /// Bytes written to everything but the log.
    pub(super) table_bytes: Option<u64>,
    /// Requests of reads that reached the device, and their bytes.
    pub(super) reads: Option<(u64, u64)>,
    pub(super) delayed_ns: Option<u64>,
    /// What its write buffers hold now.
    pub(super) buffered_bytes: Option<u64>,
}

/// One store in the tables.
#[derive(Clone, Copy)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    /// Its row of `faults`, which knows its files; empty for `null`.
    pub(super) peer: &'static str,
    /// How it is tuned; `M` is the total of memory.
    pub(super) settings: &'static str,
    /// What its table files are, by their path in its directory: the class that its faults are counted by.
    pub(super) tables: &'static str,
    /// Puts of a load that are committed together.
    pub(super) batch: u64,
    /// Whether its cache, or a part of it, is the page cache of the kernel.
    pub(super) uses_page_cache: bool,
    /// What it may have beside the total where it is held to that: the program itself among it.
    pub(super) beside_bytes: u64,
    /// Whether its keys have an order; rows that need one are left out otherwise.
    pub(super) has_order: bool,
    pub(super) has_owned_iterator: bool,
    pub(super) has_futures: bool,
    pub(super) open: fn(&Path, &Settings) -> Answer<Box<dyn Engine>>,
    /// Of stores that have keyspaces and are measured with many.
    pub(super) open_keyspaces: Option<OpenKeyspaces>,
    /// Of stores that drop groups of items.
    pub(super) open_partitions: Option<OpenPartitions>,
}

impl Contender {
    /// What `faults` knows of it; nothing of `null`.
    pub(super) fn peer(&self) -> Option<Peer> {
        peer(self.peer).ok()
    }

    pub(super) fn versions(&self) -> String {
        self.peer().map_or_else(String::new, |peer| versions(&peer))
    }
}

/// Every store of this build, in the order of the tables.
pub(super) fn contenders() -> Vec<Contender> {
    let mut all = vec![trine::CONTENDER, trine_hashed::CONTENDER];
    #[cfg(feature = "rocksdb")]
    all.push(rocksdb::CONTENDER);
    all.extend([fjall::CONTENDER, lmdb::CONTENDER, redb::CONTENDER]);
    #[cfg(feature = "wiredtiger")]
    all.push(wiredtiger::CONTENDER);
    all.push(null::CONTENDER);
    all
}

pub(super) fn contender(name: &str) -> Answer<Contender> {
    let all = contenders();
    let names: Vec<&str> = all.iter().map(|one| one.name).collect();
    let found = all.iter().find(|one| one.name == name).copied();
    found.ok_or_else(|| format!("no store is named {name}; this build has {}", names.join(", ")))
}

/// Changes that go in together, in one buffer.
#[derive(Default, Debug)]
pub(super) struct Changes {
    bytes: Vec<u8>,
    /// Of each: where its key ends, and where its value does, if it is a put.
    ends: Vec<(usize, Option<usize>)>,
}

impl Changes {
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, Some(self.bytes.len())));
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push((self.bytes.len(), None));
    }

    pub(super) fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Keys, with values where they are puts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, value_end)| {
            let key = &self.bytes[start..key_end];
            start = value_end.unwrap_or(key_end);
            (key, value_end.map(|end| &self.bytes[key_end..end]))
        })
    }
}

/// Answers to keys that were asked for together, in one buffer.
#[derive(Default, Debug)]
pub(super) struct Values {
    bytes: Vec<u8>,
    /// Of each key, in their order: what was found, and where it is.
    places: Vec<(Found, Range<usize>)>,
}

impl Values {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    pub(super) fn push(&mut self, value: Option<&[u8]>) {
        let place = self.copied(value);
        self.places.push(place);
    }

    pub(super) fn push_unasked(&mut self) {
        self.places.push((Found::Unasked, 0..0));
    }

    /// So many answers, to be set in any order: nothing until then.
    pub(super) fn resize(&mut self, count: usize) {
        self.places.resize(count, (Found::Nothing, 0..0));
    }

    pub(super) fn set(&mut self, index: usize, value: Option<&[u8]>) {
        self.places[index] = self.copied(value);
    }

    fn copied(&mut self, value: Option<&[u8]>) -> (Found, Range<usize>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let found = if value.is_some() { Found::Value } else { Found::Nothing };
        (found, start..self.bytes.len())
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Found, &[u8])> {
        self.places.iter().map(|(found, place)| (*found, &self.bytes[place.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes and answers come out as they went in, empty values and deletions among them.
    #[test]
    fn buffers_keep_what_they_are_given() {
        let mut changes = Changes::default();
        for round in 0..2 {
            changes.clear();
            changes.put(b"a", b"one");
            changes.delete(b"bb");
            changes.put(b"c", b"");
            let all: Vec<_> = changes.iter().collect();
            let expected: [(&[u8], Option<&[u8]>); 3] =
                [(b"a", Some(b"one")), (b"bb", None), (b"c", Some(b""))];
            assert_eq!(all, expected, "{round}");
            assert_eq!(changes.len(), 3);
        }
        let mut values = Values::default();
        values.push(Some(b"one"));
        values.push(None);
        values.push(Some(b""));
        values.push_unasked();
        let all: Vec<_> = values.iter().collect();
        let expected: [(Found, &[u8]); 4] =
            [(Found::Value, b"one"), (Found::Nothing, b""), (Found::Value, b""), (Found::Unasked, b"")];
        assert_eq!(all, expected);
        values.clear();
        values.resize(3);
        values.set(2, Some(b"two"));
        values.set(0, Some(b"null"));
        let all: Vec<_> = values.iter().collect();
        let expected: [(Found, &[u8]); 3] =
            [(Found::Value, b"null"), (Found::Nothing, b""), (Found::Value, b"two")];
        assert_eq!(all, expected);
    }

    /// No two stores have one name, and each but `null` is one whose files `faults` knows.
    #[test]
    fn stores_are_told_apart() {
        let mut names: Vec<&str> = contenders().iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), contenders().len());
        for one in contenders() {
            assert_eq!(one.peer().is_none(), one.name == "null");
            assert_eq!(one.versions().is_empty(), one.name == "null");
        }
    }
}
