//! The compared stores behind one trait, each tuned as its users would tune it.
//!
//! 1. A store gets one total of memory. The adapter divides it, and the division stands beside the results.
//! 2. Every store copies the value of a get out to the caller; a scan lends its items.
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

/// Memory allowed beside the total, as in the bar of resident memory.
const BESIDE_BYTES: u64 = 64 << 20;

/// The settings of an opening.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The total of write buffers, cache, filters and index.
    pub(super) memory_bytes: u64,
    /// When a write is acknowledged.
    pub(super) until: Until,
    pub(super) regime: Regime,
    /// The length of most values; for `null`, which makes its own.
    pub(super) value_bytes: usize,
}

/// The size of the data beside the memory, and the order of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Regime {
    /// The data fits the memory.
    Cached,
    /// The data is larger than the memory.
    Cold,
    /// The data is larger than the memory, and is read in order.
    ColdInOrder,
}

/// Whether a reader has to see writes that are later than the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sees {
    /// No thread writes: one view may serve all requests.
    Still,
    Latest,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Value,
    Nothing,
    /// No store was asked.
    Unasked,
}

/// Called with each item of a scan, in order.
pub(super) type Look<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// An open store, shared by the threads of a row.
pub(super) trait Engine: Sync {
    fn put(&self, key: &[u8], value: &[u8]) -> Answer<()>;

    /// Applies all of the changes or none.
    fn write(&self, changes: &Changes) -> Answer<()>;

    fn reader(&self, sees: Sees) -> Answer<Box<dyn Reader + '_>>;

    /// Flushes write buffers to tables and waits until background work is finished. Requests no compaction
    /// that the store would not run by itself.
    fn settle(&self) -> Answer<()>;

    /// Makes the store as small as the store can.
    fn compact(&mut self) -> Answer<Compacted>;

    /// The size of one full write buffer, if the store has write buffers.
    fn write_buffer_bytes(&self) -> Option<u64>;

    /// Counters since the opening, as far as the store has them.
    fn counts(&self) -> Counts;

    /// Requested features that the store does not have here. `_has_read_together`: the store has just read
    /// from the device for the keys of a multi-get.
    fn lacks(&self, _has_read_together: bool) -> Vec<String> {
        Vec::new()
    }

    fn close(self: Box<Self>) -> Answer<()>;
}

/// One thread's access to a store.
pub(super) trait Reader {
    /// Copies the found value into `value`.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Answer<Found>;

    /// Gets all keys together if the store has a multi-get, otherwise one after the other.
    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()>;

    /// Keeps `depth` gets in flight and waits for no single one; only for stores with futures.
    fn in_flight(&mut self, executor: Executor, depth: u64, asker: &mut dyn Asker) -> Answer<()> {
        let (_, _) = (depth, asker);
        Err(format!("the store has no futures for {executor:?}"))
    }

    /// Scans up to `items_max` items from `from` on, which is no shorter than a key; `None` if no store was
    /// asked.
    fn scan(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>>;

    /// The same through the iterator of owned pairs, if the store has one beside that of `scan`.
    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>>;

    /// Scans everything in order.
    fn all(&mut self, look: &mut Look<'_>) -> Answer<Option<u64>>;
}

/// The executor that polls futures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Executor {
    /// The store's own.
    BlockOn,
    /// Tokio's single-threaded executor.
    Tokio,
}

/// A get in flight: the number of its item, and its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) started: Instant,
}

/// The source of keys for gets in flight, and the receiver of their answers.
pub(super) trait Asker {
    /// The next get, with its key in the buffer; `None` once there are enough.
    fn next(&mut self, key: &mut Vec<u8>) -> Option<Asked>;

    /// Takes the answer of a get.
    fn answer(&mut self, asked: Asked, found: Found, value: &[u8]);
}

/// The place of a compacted store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Compacted {
    InPlace,
    /// The store can only write a smaller copy.
    Copy(PathBuf),
    No,
}

/// Counters of a store.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) log_bytes: Option<u64>,
    /// Bytes written to everything but the log.
    pub(super) table_bytes: Option<u64>,
    /// Read requests that reached the device, and their bytes.
    pub(super) reads: Option<(u64, u64)>,
    pub(super) delayed_ns: Option<u64>,
    /// Bytes in its write buffers now.
    pub(super) buffered_bytes: Option<u64>,
}

/// One store in the tables.
#[derive(Clone, Copy)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    /// Its row of `faults`, which knows the classes of its files; empty for `null`.
    pub(super) peer: &'static str,
    /// How it is tuned; `M` is the total of memory.
    pub(super) settings: &'static str,
    /// The class of its table files, as its row of `faults` has it.
    pub(super) tables: &'static str,
    /// Puts of a load that are committed together.
    pub(super) batch: u64,
    /// Whether its cache, or a part of it, is the page cache of the kernel.
    pub(super) uses_page_cache: bool,
    /// Memory allowed beside the total where the store is held to that, with the program itself.
    pub(super) beside_bytes: u64,
    /// Whether its keys have an order; otherwise rows that need one are left out.
    pub(super) has_order: bool,
    pub(super) has_owned_iterator: bool,
    pub(super) has_futures: bool,
    pub(super) open: fn(&Path, &Settings) -> Answer<Box<dyn Engine>>,
    /// For stores that have keyspaces and are measured with many.
    pub(super) open_keyspaces: Option<OpenKeyspaces>,
    /// For stores that drop groups of items.
    pub(super) open_partitions: Option<OpenPartitions>,
}

impl Contender {
    /// Its row of `faults`; none for `null`.
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

/// Changes of one batch, in one buffer.
#[derive(Default, Debug)]
pub(super) struct Changes {
    bytes: Vec<u8>,
    /// For each change: the end of its key, and the end of its value if it is a put.
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

    /// Keys, with values if they are puts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, value_end)| {
            let key = &self.bytes[start..key_end];
            start = value_end.unwrap_or(key_end);
            (key, value_end.map(|end| &self.bytes[key_end..end]))
        })
    }
}

/// Answers of a multi-get, in one buffer.
#[derive(Default, Debug)]
pub(super) struct Values {
    bytes: Vec<u8>,
    /// For each key, in order: the outcome, and the place of the value.
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

    /// Makes room for `count` answers, to be set in any order; `Found::Nothing` until then.
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

    /// Changes and answers come out as they went in, also empty values and deletions.
    #[test]
    fn buffers_keep_changes_and_answers() {
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

    /// No two stores share a name, and `faults` knows the files of each but `null`.
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
