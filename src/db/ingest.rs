//! Ingests: the face of loading sorted items.

use crate::base::error::Result;
use crate::base::sync::Arc;
use crate::engine::ingest;
use crate::engine::publish::keyspace;

use super::handle::Handle;

/// Items on their way into a keyspace, in ascending order of their keys, each key once.
///
/// [`Keyspace::ingest`](super::Keyspace::ingest) begins one; [`put`](Ingest::put) adds to it and
/// [`finish`](Ingest::finish) makes all of it part of the store, at one moment and durable: after a crash all
/// of it is there or none. Dropped before that it is given up, and leaves nothing; so a source that may fail
/// needs no more than `?`.
///
/// Each item is written once, and by no merge again as long as nothing overlaps it: neither to the log nor to
/// a write buffer. The keyspace may hold anything before, also the same keys: the ingested values win over
/// whatever was written before `finish`, range deletes included. It may be read and written all along: what
/// is written while `finish` runs is ordered before or after the whole of the ingest. Snapshots and iterators
/// that were begun before do not see it.
///
/// Where keys divide the keyspace into partitions, an ingest may go over any number of them. Those that are
/// missing are made as their first items come, and stay if it is given up; if one is dropped meanwhile, the
/// ingest answers `Dropped`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let squares = db.ordered("squares").open()?;
/// let load = |lines: &str| -> Result<(), Box<dyn std::error::Error>> {
///     let mut ingest = squares.ingest()?;
///     for line in lines.lines() {
///         let number: u64 = line.parse()?;
///         ingest.put(number.to_be_bytes(), (number * number).to_string())?;
///     }
///     Ok(ingest.finish()?)
/// };
/// assert!(load("1\n2\nthree").is_err());
/// assert!(squares.iter().next().is_none());
/// load("1\n2\n3")?;
/// assert_eq!(squares.get(3u64.to_be_bytes())?.as_deref(), Some(&b"9"[..]));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Ingest {
    // Before the handle: what it gives up is removed while the store is open.
    ingest: ingest::Ingest,
    _handle: Arc<Handle>,
}

impl Ingest {
    pub(crate) fn begin(handle: &Arc<Handle>, keyspace: &Arc<keyspace::Keyspace>) -> Result<Ingest> {
        Ok(Ingest { ingest: ingest::Ingest::begin(handle, keyspace)?, _handle: Arc::clone(handle) })
    }

    /// Adds `value` under `key`, which must come after all keys so far by the order of unsigned bytes.
    ///
    /// # Errors
    /// `TooLarge` for a key or value over its limit, which is then left out: the ingest can go on. After any
    /// other error it is over and nothing is left of it: `NotAscending` for a key that does not come after
    /// the one before, `Full` while the disk is full, `Memory` if the memory budget has no room for one more
    /// partition, `Io`, `Dropped`, `Latched`, `Closed`.
    ///
    /// # Cost
    /// No allocation an item. Two syncs for the first item of a partition that is to be made. Memory of a
    /// table's filter and fences and a buffer, which the cache leaves.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut ingest = users.ingest()?;
    /// ingest.put("bob", "1")?;
    /// assert!(matches!(ingest.put("bob", "2"), Err(trine::Error::NotAscending { items: 1, .. })));
    /// assert!(ingest.finish().is_err());
    /// assert!(!users.contains("bob")?);
    /// # Ok(()) }
    /// ```
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.ingest.put(key.as_ref(), value.as_ref())
    }

    /// Makes all items part of the keyspace, at one moment. When it returns they are durable, and so is every
    /// write acknowledged before.
    ///
    /// # Errors
    /// `Full`, `Io`, `Dropped`, `Latched`, `Closed`; what ended the ingest before, if something did. Nothing
    /// is there then; after an error that latched the store all of it may be, once that is opened again.
    ///
    /// # Cost
    /// A few syncs. If write buffers hold something between its keys, they are flushed first; it waits for
    /// the merge of the keyspace that is under way. Writers wait for a sync of the log and one of the
    /// manifest, and if they write between its keys for the flush of what they wrote meanwhile.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let before = db.snapshot();
    /// let mut ingest = users.ingest()?;
    /// ingest.put("ann", "1")?;
    /// ingest.finish()?;
    /// assert!(users.contains("ann")? && !users.at(&before).contains("ann")?);
    /// assert_eq!((db.stats().write.log_bytes, db.stats().background.ingests), (0, 1));
    /// # Ok(()) }
    /// ```
    pub fn finish(self) -> Result<()> {
        self.ingest.finish()
    }

    /// Items put so far.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut ingest = users.ingest()?;
    /// ingest.put("ann", "1")?;
    /// assert_eq!(ingest.items(), 1);
    /// # Ok(()) }
    /// ```
    pub fn items(&self) -> u64 {
        self.ingest.items()
    }

    /// Bytes of their keys and values.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut ingest = users.ingest()?;
    /// ingest.put("ann", "12")?;
    /// assert_eq!(ingest.key_value_bytes(), 5);
    /// # Ok(()) }
    /// ```
    pub fn key_value_bytes(&self) -> u64 {
        self.ingest.key_value_bytes()
    }
}
