//! Ingests: the API to load sorted items.

use crate::base::error::Result;
use crate::base::sync::Arc;
use crate::engine::ingest;
use crate::engine::publish::keyspace;

use super::handle::Handle;

/// A bulk load of items into a keyspace, in ascending order of their keys, each key once.
///
/// [`Keyspace::ingest`](super::Keyspace::ingest) begins an ingest, and [`put`](Ingest::put) adds items.
/// [`finish`](Ingest::finish) makes all items visible and durable at one moment: after a crash all of them
/// exist or none. An ingest dropped before that is aborted and leaves nothing, so a source that may fail
/// needs only `?`.
///
/// Each item is written once, directly to a table: not to the log, not to a write buffer, and by no merge
/// again as long as no other table overlaps its range. The keyspace may already have items, also with the
/// same keys: the ingested values win over all writes before `finish`, range deletes included. Reads and
/// writes may continue all along: a write during `finish` is ordered before or after the whole ingest. Older
/// snapshots and iterators do not see it.
///
/// Where keys divide the keyspace into partitions, an ingest may span any number of them. Missing partitions
/// are made with their first item, and stay if the ingest is aborted. If a partition of the ingest is dropped
/// meanwhile, the ingest fails with `Dropped`.
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
    // Declared before the handle, so that an aborted ingest removes its files while the store is open.
    ingest: ingest::IngestWriter,
    _handle: Arc<Handle>,
}

impl Ingest {
    pub(crate) fn begin(handle: &Arc<Handle>, keyspace: &Arc<keyspace::KeyspaceState>) -> Result<Ingest> {
        Ok(Ingest { ingest: ingest::IngestWriter::begin(handle, keyspace)?, _handle: Arc::clone(handle) })
    }

    /// Adds `value` under `key`, which must be greater than all keys so far, compared as unsigned bytes.
    ///
    /// # Errors
    /// `TooLarge` for a key or value over its limit; the item is then left out and the ingest can continue.
    /// Any other error aborts the ingest, which leaves nothing: `NotAscending` for a key not greater than the
    /// previous one, `Full` while the disk is full, `Memory` if the memory budget has no room for one more
    /// partition, `Io`, `Dropped`, `Latched`, `Closed`.
    ///
    /// # Cost
    /// No allocation per item. Two syncs for the first item of a new partition. Memory for a table's filter
    /// and fences and a buffer, taken from the cache.
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

    /// Makes all items visible in the keyspace at one moment. When the call returns they are durable, and so
    /// is every write acknowledged before.
    ///
    /// # Errors
    /// `Full`, `Io`, `Dropped`, `Latched`, `Closed`; the error that aborted the ingest before, if there was
    /// one. After an error no item is visible. If the error latched the store, all items may be visible after
    /// the store is reopened.
    ///
    /// # Cost
    /// A few syncs. If write buffers have items in the ingest's key range, they are flushed first. The call
    /// waits for a running merge of the keyspace. Writers wait for a sync of the log and one of the manifest.
    /// If they write within the ingest's key range, they also wait for the flush of the writes made
    /// meanwhile.
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

    /// Number of items put so far.
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

    /// Total bytes of their keys and values.
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
