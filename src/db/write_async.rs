//! Writes that do not block the caller's thread.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::sync::Arc;
use crate::engine::Until;
use crate::engine::commit::async_writes::{AsyncItems, AsyncWrite, WriteStart};
use crate::engine::commit::routing::Unrouted;
use crate::write::batch::{BatchItems, Keyspaces};

use super::handle::Handle;
use super::{Batch, Db, Durability, Keyspace};

impl<K> Keyspace<K> {
    /// Writes `value` under `key`, without blocking the caller's thread. The write begins when the future is
    /// first polled. Any executor may poll it, or [`block_on`](super::block_on).
    ///
    /// Dropping the future while the write is queued cancels the write. Once the store has begun the write,
    /// it is written whole or refused whole, even if the future is dropped.
    ///
    /// # Errors
    /// As [`Keyspace::put`], and `Closed` if the store is closed before the write is done, or perhaps right
    /// after.
    ///
    /// # Cost
    /// A few allocations. If a write needs no sync and has room, the polling thread writes it, as
    /// [`Keyspace::put`] does. Other writes are handed to a thread of the store, which commits queued writes
    /// together in one group. The first write to a partition of a keyspace that is divided by its keys makes
    /// the partition: the polling thread then waits while an edit of the manifest is under way. For one in 64
    /// such writes, or in fewer where names are longer than 16 bytes, it waits for two syncs.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// trine::block_on(async {
    ///     users.put_async(b"ann", b"1").await?;
    ///     users.put_async(b"bob", b"2").durability(trine::Durability::Sync).await
    /// })?;
    /// assert_eq!(users.get(b"bob")?.as_deref(), Some(&b"2"[..]));
    /// # Ok(()) }
    /// ```
    pub fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> WriteAsync {
        WriteAsync::one(self, ItemKind::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes `key`, in the way of [`Keyspace::put_async`].
    ///
    /// # Errors
    /// As [`Keyspace::put_async`].
    ///
    /// # Cost
    /// As [`Keyspace::put_async`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// trine::block_on(users.delete_async(b"ann"))?;
    /// assert!(!users.contains(b"ann")?);
    /// # Ok(()) }
    /// ```
    pub fn delete_async(&self, key: impl AsRef<[u8]>) -> WriteAsync {
        WriteAsync::one(self, ItemKind::Delete, key.as_ref(), &[])
    }
}

impl Batch {
    /// Writes the batch without blocking the caller's thread, in the way of [`Keyspace::put_async`].
    ///
    /// # Errors
    /// As [`Batch::commit`], and `Closed`.
    ///
    /// # Cost
    /// As [`Keyspace::put_async`], without a copy.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let mut batch = db.batch();
    /// batch.put(&users, b"ann", b"1")?;
    /// batch.put(&users, b"bob", b"2")?;
    /// trine::block_on(batch.commit_async())?;
    /// assert_eq!(users.iter().count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn commit_async(self) -> WriteAsync {
        let (handle, what) = self.into_parts();
        WriteAsync::new(handle, Stage::New(what))
    }
}

impl Db {
    /// Makes every write acknowledged before durable, without blocking the caller's thread.
    ///
    /// # Errors
    /// As [`Db::sync`], and `Closed`.
    ///
    /// # Cost
    /// As [`Db::sync`], and the hand-over to a thread of the store.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// db.ordered("users").open()?.put(b"ann", b"1")?;
    /// trine::block_on(db.sync_async())?;
    /// # Ok(()) }
    /// ```
    pub fn sync_async(&self) -> WriteAsync {
        let write = WriteAsync::new(Arc::clone(&self.handle), Stage::New(AsyncItems::default()));
        write.durability(Durability::Sync)
    }
}

/// A write under way; see [`Keyspace::put_async`], [`Batch::commit_async`] and [`Db::sync_async`].
///
/// # Panics
/// If it is polled after it was ready.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let write: trine::WriteAsync = users.put_async(b"ann", b"1");
/// drop(write);
/// assert!(!users.contains(b"ann")?, "it was never polled");
/// # Ok(()) }
/// ```
#[must_use = "a future does nothing until it is polled"]
pub struct WriteAsync {
    handle: Arc<Handle>,
    until: Option<Until>,
    /// The write before its items were routed to partitions, if they were: the items may have to be routed
    /// again.
    unrouted: Option<AsyncItems>,
    stage: Stage,
}

enum Stage {
    New(AsyncItems),
    /// The write was invalid from the start.
    Refused(Error),
    UnderWay(Arc<AsyncWrite>),
    Over,
}

impl WriteAsync {
    fn new(handle: Arc<Handle>, stage: Stage) -> WriteAsync {
        WriteAsync { handle, until: None, unrouted: None, stage }
    }

    fn one<K>(keyspace: &Keyspace<K>, kind: ItemKind, key: &[u8], value: &[u8]) -> WriteAsync {
        let (mut items, mut keyspaces) = (BatchItems::default(), Keyspaces::default());
        let stored = keyspace.stored_to_write(kind, key);
        let (handle, keyspace) = keyspace.parts();
        let added = stored.and_then(|key| items.push(keyspace.tree, kind, &key, value));
        let divided = if keyspace.is_divided_by_keys() { vec![Arc::clone(&keyspace)] } else { Vec::new() };
        keyspaces.add(keyspace);
        let what = AsyncItems { items: Arc::new(items), keyspaces, divided };
        WriteAsync::new(handle, added.map_or_else(Stage::Refused, |()| Stage::New(what)))
    }

    /// Sets the durability at which the future is ready, in place of the store's setting. Call it before the
    /// first poll.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let before = db.stats().io.syncs;
    /// trine::block_on(users.put_async(b"ann", b"1").durability(trine::Durability::Sync))?;
    /// assert!(db.stats().io.syncs > before);
    /// # Ok(()) }
    /// ```
    pub fn durability(mut self, durability: Durability) -> WriteAsync {
        self.until = Some(durability.until());
        self
    }
}

impl Future for WriteAsync {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let own = self.get_mut();
        loop {
            let polled = own.poll_once(context);
            let (Some(unrouted), Poll::Ready(Err(error))) = (&own.unrouted, &polled) else { return polled };
            if !own.handle.is_to_be_routed_anew(&unrouted.keyspaces, error) {
                return polled;
            }
            own.stage = Stage::New(unrouted.clone());
        }
    }
}

impl WriteAsync {
    /// The write with its items routed to partitions.
    fn routed(&mut self, what: AsyncItems) -> Result<AsyncItems> {
        if what.divided.is_empty() {
            return Ok(what);
        }
        let AsyncItems { items, keyspaces, divided } = &what;
        let (items, keyspaces) = self.handle.route(&Unrouted { items, keyspaces, divided })?;
        self.unrouted = Some(what);
        Ok(AsyncItems { items, keyspaces, divided: Vec::new() })
    }

    fn poll_once(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let waker = context.waker();
        let stage = mem::replace(&mut self.stage, Stage::Over);
        let stage = match stage {
            Stage::New(what) => Stage::New(self.routed(what)?),
            other => other,
        };
        let WriteAsync { handle, until, .. } = self;
        let under_way = match stage {
            Stage::New(what) => match handle.begin_write(what, *until, waker) {
                WriteStart::Done(result) => return Poll::Ready(result),
                WriteStart::Queued(write) => write,
            },
            Stage::UnderWay(write) => match handle.poll_write(&write, waker) {
                Poll::Ready(Err(Error::Forked)) => {
                    // The write's waker belongs to the parent process.
                    mem::forget(write);
                    return Poll::Ready(Err(Error::Forked));
                }
                Poll::Ready(result) => return Poll::Ready(result),
                Poll::Pending => write,
            },
            Stage::Refused(error) => return Poll::Ready(Err(error)),
            Stage::Over => panic!("it was polled after it was ready"),
        };
        self.stage = Stage::UnderWay(under_way);
        Poll::Pending
    }
}

impl Drop for WriteAsync {
    fn drop(&mut self) {
        if let Stage::UnderWay(write) = mem::replace(&mut self.stage, Stage::Over) {
            if self.handle.is_forked() {
                mem::forget(write);
            } else {
                self.handle.give_write_up(&write);
            }
        }
    }
}

impl fmt::Debug for WriteAsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteAsync").finish_non_exhaustive()
    }
}
