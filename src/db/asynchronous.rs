//! Reads that do not block the caller's thread: futures and callbacks. `completions` has completion queues.
//!
//! Futures keep the store open. They do not depend on an executor: the thread that has read a future's block
//! wakes it.

use std::fmt;
use std::ops::Bound;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::engine::GetMode;
use crate::engine::publish::keyspace;
use crate::engine::publish::snapshot::Point;
use crate::engine::reads::callback;
use crate::engine::reads::later::{Asks, LaterGet, LaterKey, LaterMany, Patience};
use crate::engine::reads::local;
use crate::read::scan::{self, ScanMachine};

use super::completions::Completions;
use super::handle::Handle;
use super::key_range::KeyRange;
use super::merging::Merging;
use super::range::{self, live_at};
use super::walk::{RangeArgs, Walk};
use super::{Keyspace, KeyspaceAt, Ordered, Value};

/// Polls a future until it is ready, and sleeps while it is not.
///
/// While it waits, this thread reads the missing blocks of store operations through a ring of its own. This
/// is the fastest way for a single future. Several futures that are polled together have their reads in
/// flight together. Any other executor works too, with the store's driver thread.
///
/// Other threads that work for the future must not depend on progress of this thread during a poll.
///
/// # Panics
/// In a callback of [`Keyspace::get_callback`]: it could wait for a read of its own thread.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// let value = trine::block_on(async { users.get_async(b"ann").await })?;
/// assert_eq!(value.as_deref(), Some(&b"1"[..]));
/// # Ok(()) }
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    local::block_on(future)
}

impl<K> Keyspace<K> {
    /// The value under `key`, copied, without blocking the caller's thread. The get begins at the first poll
    /// and sees all writes made by then. Any executor may poll the future, on another thread each time, or
    /// [`block_on`](super::block_on). Dropping it cancels the get.
    ///
    /// When `reads_in_flight` reads are in flight, further reads queue in FIFO order.
    ///
    /// # Errors
    /// As [`Keyspace::get`], and `Closed`.
    ///
    /// # Cost
    /// One allocation for the key, and two reference counts. Beyond that, a get from memory costs as much as
    /// [`Keyspace::get`]. A get that needs a device read is also handed to the store's driver thread, except
    /// under [`block_on`](super::block_on).
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let get = users.get_async(b"ann");
    /// assert_eq!(trine::block_on(get)?.as_deref(), Some(&b"1"[..]));
    /// # Ok(()) }
    /// ```
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> GetAsync {
        GetAsync::new(self, None, key.as_ref())
    }

    /// As [`Keyspace::get_async`], but fails with `WouldBlock` instead of queuing for its turn.
    ///
    /// # Errors
    /// `WouldBlock`, and as [`Keyspace::get_async`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// assert_eq!(trine::block_on(users.try_get_async(b"ann"))?, None);
    /// # Ok(()) }
    /// ```
    pub fn try_get_async(&self, key: impl AsRef<[u8]>) -> GetAsync {
        self.get_async(key).refused()
    }

    /// The values under `keys`, in the order of `keys`, without blocking the caller's thread. All values are
    /// as of the first poll. Blocks that are not in memory are read in parallel. See [`Keyspace::get_async`].
    ///
    /// # Errors
    /// As [`Keyspace::get_async`], for the first key that could not be looked up.
    ///
    /// # Cost
    /// A copy of each key, and the cost of [`Keyspace::multi_get`]. One poll begins at most 1,024 keys.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let values = trine::block_on(users.multi_get_async(&["ann", "bob"]))?;
    /// assert_eq!((values[0].as_deref(), &values[1]), (Some(&b"1"[..]), &None));
    /// # Ok(()) }
    /// ```
    pub fn multi_get_async<Q: AsRef<[u8]>>(&self, keys: &[Q]) -> MultiGetAsync {
        MultiGetAsync::new(self, None, keys)
    }

    /// Looks up `key` and runs `callback` with the result. If memory has the answer, the callback runs before
    /// this call returns. Otherwise it runs on a thread that reads for the store or for another get, and
    /// blocks that thread meanwhile. So a callback must be short and must not wait. A get that a callback
    /// begins continues after the callback has returned. A panic of a callback that runs later than this call
    /// is logged, and has no other effect.
    ///
    /// # Errors
    /// Passed to the callback: as [`Keyspace::get_async`].
    ///
    /// # Cost
    /// As [`Keyspace::get_async`], and two allocations.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// users.get_callback(b"ann", move |found| sender.send(found).unwrap());
    /// assert_eq!(receiver.recv().unwrap()?.as_deref(), Some(&b"1"[..]));
    /// # Ok(()) }
    /// ```
    pub fn get_callback(
        &self,
        key: impl AsRef<[u8]>,
        callback: impl FnOnce(Result<Option<Value>>) + Send + 'static,
    ) {
        callback::run(self.get_async(key), callback);
    }

    /// Looks up `key` and puts the result into `queue`, with `number`.
    ///
    /// # Errors
    /// Passed through the queue: as [`Keyspace::get_async`].
    ///
    /// # Cost
    /// As [`Keyspace::get_callback`], and a short lock of the queue.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// let (queue, mut answers) = (trine::Completions::default(), Vec::new());
    /// users.get_queued(b"ann", 7, &queue);
    /// assert!(queue.wait(&mut answers) && answers[0].number == 7);
    /// # Ok(()) }
    /// ```
    pub fn get_queued(&self, key: impl AsRef<[u8]>, number: u64, queue: &Completions) {
        queue.ask(self.get_async(key), number);
    }
}

impl Keyspace<Ordered> {
    /// Items in key order, without blocking the caller's thread, as of the moment of this call. Each item is
    /// read on demand; following blocks are read ahead as the scan proceeds.
    ///
    /// # Errors
    /// Of an item: as [`RangeAsync::next`].
    ///
    /// # Cost
    /// As [`Keyspace::range`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", b"1")?;
    /// users.put("bob", b"2")?;
    /// let (mut range, mut count) = (users.range_async("a".."b"), 0);
    /// trine::block_on(async {
    ///     while let Some(item) = range.next().await {
    ///         assert_eq!(item?.0, b"ann"[..]);
    ///         count += 1;
    ///     }
    ///     trine::Result::Ok(())
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok(()) }
    /// ```
    pub fn range_async(&self, range: impl KeyRange) -> RangeAsync {
        RangeAsync::new(self, None, range.into_bounds())
    }

    /// Items whose keys begin with `prefix`, as [`Keyspace::range_async`] reads a range.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("user/ann", b"1")?;
    /// users.put("zone/eu", b"2")?;
    /// let mut range = users.prefix_async("user/");
    /// assert_eq!(trine::block_on(range.next()).unwrap()?.0, "user/ann");
    /// assert!(trine::block_on(range.next()).is_none());
    /// # Ok(()) }
    /// ```
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> RangeAsync {
        RangeAsync::new(self, None, range::of_prefix(prefix.as_ref()))
    }
}

impl<K> KeyspaceAt<K> {
    /// As [`Keyspace::get_async`], as of the snapshot.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", b"1")?;
    /// let before = users.at(&db.snapshot());
    /// users.delete("ann")?;
    /// assert_eq!(trine::block_on(before.get_async("ann"))?.as_deref(), Some(&b"1"[..]));
    /// # Ok(()) }
    /// ```
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> GetAsync {
        let (keyspace, point) = self.parts();
        GetAsync::new(keyspace, Some(point), key.as_ref())
    }

    /// As [`Keyspace::multi_get_async`], as of the snapshot.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", b"1")?;
    /// let before = users.at(&db.snapshot());
    /// users.clear()?;
    /// assert!(trine::block_on(before.multi_get_async(&["ann"]))?[0].is_some());
    /// # Ok(()) }
    /// ```
    pub fn multi_get_async<Q: AsRef<[u8]>>(&self, keys: &[Q]) -> MultiGetAsync {
        let (keyspace, point) = self.parts();
        MultiGetAsync::new(keyspace, Some(point), keys)
    }
}

impl KeyspaceAt<Ordered> {
    /// As [`Keyspace::range_async`], as of the snapshot.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", b"1")?;
    /// let before = users.at(&db.snapshot());
    /// users.clear()?;
    /// let mut range = before.range_async(..);
    /// assert!(trine::block_on(range.next()).is_some());
    /// # Ok(()) }
    /// ```
    pub fn range_async(&self, range: impl KeyRange) -> RangeAsync {
        let (keyspace, point) = self.parts();
        RangeAsync::new(keyspace, Some(point), range.into_bounds())
    }

    /// Items whose keys begin with `prefix`, as [`KeyspaceAt::range_async`] reads a range.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("user/ann", b"1")?;
    /// users.put("zone/eu", b"2")?;
    /// let before = users.at(&db.snapshot());
    /// users.clear()?;
    /// let mut range = before.prefix_async("user/");
    /// assert_eq!(trine::block_on(range.next()).unwrap()?.0, "user/ann");
    /// assert!(trine::block_on(range.next()).is_none());
    /// # Ok(()) }
    /// ```
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> RangeAsync {
        let (keyspace, point) = self.parts();
        RangeAsync::new(keyspace, Some(point), range::of_prefix(prefix.as_ref()))
    }
}

/// The keyspace to read, and the point as of which it is read; `None`: as of the first poll.
#[derive(Clone)]
struct ReadPoint {
    handle: Arc<Handle>,
    keyspace: Arc<keyspace::KeyspaceState>,
    point: Option<Arc<Point>>,
}

impl ReadPoint {
    fn check(&self) -> Result<()> {
        match &self.point {
            Some(point) => live_at(&self.handle, &self.keyspace, point),
            None if self.handle.is_closed() => Err(Error::Closed),
            None => self.keyspace.check_live(),
        }
    }

    /// In a forked process, leaks the point.
    fn leave(&self) {
        if let Some(point) = &self.point {
            range::leave_point(point);
        }
    }

    fn patience(&self, within: Option<Duration>, is_refused: bool) -> Patience {
        let ns = |within: Duration| u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = within.map(|within| self.handle.clock().now_ns().saturating_add(ns(within)));
        Patience { is_refused, until_ns }
    }
}

/// A get under way; see [`Keyspace::get_async`].
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let get: trine::GetAsync = users.get_async(b"ann");
/// assert_eq!(trine::block_on(get)?, None);
/// # Ok(()) }
/// ```
#[must_use = "a future does nothing until it is polled"]
pub struct GetAsync {
    read_point: ReadPoint,
    key: Box<[u8]>,
    patience: Patience,
    later: Option<Box<LaterGet>>,
}

impl GetAsync {
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.read_point.handle
    }

    pub(crate) fn new<K>(keyspace: &Keyspace<K>, point: Option<&Arc<Point>>, key: &[u8]) -> GetAsync {
        let key = (*keyspace.stored(key)).into();
        let (handle, keyspace) = keyspace.parts();
        let read_point = ReadPoint { handle, keyspace, point: point.map(Arc::clone) };
        GetAsync { read_point, key, patience: Patience::default(), later: None }
    }

    pub(crate) fn refused(mut self) -> GetAsync {
        self.patience.is_refused = true;
        self
    }

    /// Makes the get fail with `TimedOut` if it is not done within `time` from now. Its reads in flight still
    /// go to the cache.
    ///
    /// # Errors
    /// Of the future: `TimedOut`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// use std::time::Duration;
    /// let get = users.get_async(b"ann").within(Duration::from_secs(1));
    /// assert_eq!(trine::block_on(get)?, None);
    /// # Ok(()) }
    /// ```
    pub fn within(mut self, time: Duration) -> GetAsync {
        self.patience = self.read_point.patience(Some(time), self.patience.is_refused);
        self
    }
}

impl Future for GetAsync {
    type Output = Result<Option<Value>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let GetAsync { read_point, key, patience, later } = self.get_mut();
        let of = LaterKey { keyspace: &read_point.keyspace, key, mode: GetMode::Value };
        let copy = |value: Option<&[u8]>| value.map(Value::copy);
        let polled = match read_point.check() {
            Ok(()) => {
                read_point.handle.poll_get(later, of, (read_point.point.as_deref(), *patience), context, copy)
            }
            Err(error) => Poll::Ready(Err(error)),
        };
        if polled.is_ready() {
            let done = later.take();
            if matches!(polled, Poll::Ready(Err(Error::Forked))) {
                std::mem::forget(done);
            }
        }
        polled
    }
}

impl Drop for GetAsync {
    /// In a forked process the pending reads and the point are leaked.
    fn drop(&mut self) {
        if (self.later.is_some() || self.read_point.point.is_some()) && self.read_point.handle.is_forked() {
            std::mem::forget(self.later.take());
            self.read_point.leave();
        }
    }
}

impl fmt::Debug for GetAsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetAsync").field("keyspace", &self.read_point.keyspace.name).finish_non_exhaustive()
    }
}

/// Gets of many keys under way; see [`Keyspace::multi_get_async`].
///
/// # Panics
/// If it is polled after it was ready.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let gets: trine::MultiGetAsync = users.multi_get_async(&["ann", "bob"]);
/// assert_eq!(trine::block_on(gets)?, [None, None]);
/// # Ok(()) }
/// ```
#[must_use = "a future does nothing until it is polled"]
pub struct MultiGetAsync {
    read_point: ReadPoint,
    /// The keys, until the first poll.
    keys: Vec<Box<[u8]>>,
    patience: Patience,
    later: Option<LaterMany>,
    values: Vec<Option<Value>>,
    is_over: bool,
}

impl MultiGetAsync {
    pub(crate) fn new<K, Q: AsRef<[u8]>>(
        keyspace: &Keyspace<K>,
        point: Option<&Arc<Point>>,
        keys: &[Q],
    ) -> MultiGetAsync {
        let stored = keys.iter().map(|key| (*keyspace.stored(key.as_ref())).into()).collect();
        let (handle, keyspace) = keyspace.parts();
        let read_point = ReadPoint { handle, keyspace, point: point.map(Arc::clone) };
        MultiGetAsync {
            read_point,
            keys: stored,
            patience: Patience::default(),
            later: None,
            values: vec![None; keys.len()],
            is_over: false,
        }
    }

    /// As [`GetAsync::within`], for all keys together.
    ///
    /// # Errors
    /// Of the future: `TimedOut`.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// use std::time::Duration;
    /// let gets = users.multi_get_async(&["ann", "bob"]).within(Duration::from_secs(1));
    /// assert_eq!(trine::block_on(gets)?.len(), 2);
    /// # Ok(()) }
    /// ```
    pub fn within(mut self, time: Duration) -> MultiGetAsync {
        self.patience = self.read_point.patience(Some(time), false);
        self
    }
}

impl MultiGetAsync {
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let MultiGetAsync { read_point, keys, patience, later, values, .. } = self;
        read_point.check()?;
        let mut take = |index: usize, value: Option<&[u8]>| values[index] = value.map(Value::copy);
        let later = later.get_or_insert_with(|| {
            let (keys, at) = (std::mem::take(keys), (read_point.point.as_deref(), *patience));
            read_point.handle.later_many(keys, at)
        });
        read_point.handle.poll_many((later, &read_point.keyspace), context, &mut take)
    }
}

impl Future for MultiGetAsync {
    type Output = Result<Vec<Option<Value>>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let own = self.get_mut();
        assert!(!own.is_over, "it was polled after it was ready");
        let polled = own.go_on(context);
        if polled.is_ready() {
            own.is_over = true;
            let done = own.later.take();
            if matches!(polled, Poll::Ready(Err(Error::Forked))) {
                std::mem::forget(done);
            }
        }
        polled.map_ok(|()| std::mem::take(&mut own.values))
    }
}

impl Drop for MultiGetAsync {
    /// In a forked process the pending reads and the point are leaked.
    fn drop(&mut self) {
        if self.read_point.handle.is_forked() {
            std::mem::forget(self.later.take());
            self.read_point.leave();
        }
    }
}

impl fmt::Debug for MultiGetAsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGetAsync")
            .field("keyspace", &self.read_point.keyspace.name)
            .finish_non_exhaustive()
    }
}

/// Items in key order, from either end, without blocking the caller's thread; see
/// [`Keyspace::range_async`](Keyspace::range_async). The range ends after an error.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// for name in ["ann", "bob", "eve"] {
///     users.put(name, b"")?;
/// }
/// let mut range: trine::RangeAsync = users.range_async("b"..);
/// trine::block_on(async {
///     assert_eq!(range.next().await.unwrap()?.0, b"bob"[..]);
///     assert_eq!(range.next_back().await.unwrap()?.0, b"eve"[..]);
///     assert!(range.next().await.is_none());
///     trine::Result::Ok(())
/// })?;
/// # Ok(()) }
/// ```
pub struct RangeAsync {
    read_point: ReadPoint,
    point: Arc<Point>,
    range: scan::ScanRange,
    front: Side,
    back: Side,
    is_over: bool,
}

/// One end of the range, whose scan is opened on first use.
#[derive(Default)]
struct Side {
    scan: Option<ScanMachine>,
    asks: Asks,
    is_moving: bool,
    walk: Walk,
    /// Replaces the scan where partitions are not in key order.
    merged: Option<Box<Merging>>,
    /// The key of the last yielded item: a scan that is being moved has no current item.
    last: Option<Vec<u8>>,
}

impl RangeAsync {
    pub(crate) fn new<K>(
        keyspace: &Keyspace<K>,
        at: Option<&Arc<Point>>,
        range: scan::ScanRange,
    ) -> RangeAsync {
        let (handle, keyspace) = keyspace.parts();
        let point = at.map_or_else(|| handle.point(), Arc::clone);
        let read_point = ReadPoint { handle, keyspace, point: Some(Arc::clone(&point)) };
        RangeAsync { read_point, point, range, front: Side::default(), back: Side::default(), is_over: false }
    }

    /// The next item from the front; `None` past the last one. If the future is dropped, the next one
    /// continues its step.
    ///
    /// # Errors
    /// `Corrupt` if a block is damaged, `Io` if one cannot be read, `Dropped`, `Closed`. The range then ends.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let mut range = users.range_async(..);
    /// let (key, value) = trine::block_on(range.next()).unwrap()?;
    /// assert_eq!((&key[..], &value[..]), (&b"ann"[..], &b"1"[..]));
    /// # Ok(()) }
    /// ```
    #[expect(clippy::should_implement_trait, reason = "it does not wait, which an Iterator does")]
    pub fn next(&mut self) -> NextAsync<'_> {
        NextAsync { range: self, direction: Direction::Forward }
    }

    /// The next item from the back.
    ///
    /// # Errors
    /// As [`RangeAsync::next`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// users.put(b"bob", b"2")?;
    /// let mut range = users.range_async(..);
    /// assert_eq!(trine::block_on(range.next_back()).unwrap()?.0, b"bob"[..]);
    /// # Ok(()) }
    /// ```
    pub fn next_back(&mut self) -> NextAsync<'_> {
        NextAsync { range: self, direction: Direction::Backward }
    }

    /// As [`RangeAsync::next`], for wrappers that implement a stream.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put(b"ann", b"1")?;
    /// let mut range = users.range_async(..);
    /// let next = std::future::poll_fn(|context| range.poll_next(context));
    /// assert_eq!(trine::block_on(next).unwrap()?.0, b"ann"[..]);
    /// # Ok(()) }
    /// ```
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<(Value, Value)>>> {
        self.poll_step(Direction::Forward, context)
    }

    fn poll_step(
        &mut self,
        direction: Direction,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(Value, Value)>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let step = std::task::ready!(self.poll_advance(direction, context)).transpose();
        self.is_over = !matches!(step, Some(Ok(_)));
        if self.is_over {
            self.end();
        }
        Poll::Ready(step)
    }

    /// Drops both sides; in a forked process, leaks them.
    fn end(&mut self) {
        let sides = (std::mem::take(&mut self.front), std::mem::take(&mut self.back));
        if self.read_point.handle.is_forked() {
            std::mem::forget(sides);
        }
    }

    fn poll_advance(
        &mut self,
        direction: Direction,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<(Value, Value)>>> {
        let RangeAsync { read_point, point, range, front, back, .. } = self;
        read_point.check()?;
        let (side, other) = match direction {
            Direction::Forward => (front, back),
            Direction::Backward => (back, front),
        };
        let Side { scan, asks, is_moving, walk, merged, last } = side;
        let of = RangeArgs { handle: &read_point.handle, keyspace: &read_point.keyspace, point, range };
        if read_point.keyspace.is_scattered() {
            if merged.is_none() {
                *merged = Some(Box::new(Merging::begin(&of, Bound::Unbounded, direction)?));
            }
            let merged = merged.as_mut().expect("made above");
            if !std::task::ready!(merged.poll_advance(&of, context))? {
                return Poll::Ready(Ok(None));
            }
            let (key, value) = merged.item().expect("it stands at one");
            let item = take_item((key, value), direction, (last, other));
            merged.forget_value();
            return Poll::Ready(Ok(item));
        }
        let scan = loop {
            let own = scan.get_or_insert_with(|| {
                let tree = walk.tree(&of, (Bound::Unbounded, direction));
                ScanMachine::new(point.sight(tree), range.clone(), direction)
            });
            if std::task::ready!(read_point.handle.poll_advance(point, (own, asks, is_moving), context))? {
                break scan.as_mut().expect("it was made");
            }
            if !walk.go_on(&of, direction) {
                return Poll::Ready(Ok(None));
            }
            *scan = None;
        };
        let item = take_item((scan.key(), scan.value()), direction, (last, other));
        scan.forget_value();
        Poll::Ready(Ok(item))
    }
}

/// The item, unless the other end has already yielded it: the two ends must not cross.
fn take_item(
    (key, value): (&[u8], &[u8]),
    direction: Direction,
    (last, other): (&mut Option<Vec<u8>>, &Side),
) -> Option<(Value, Value)> {
    let has_met = other.last.as_deref().is_some_and(|other| match direction {
        Direction::Forward => key >= other,
        Direction::Backward => key <= other,
    });
    let last = last.get_or_insert_default();
    last.clear();
    last.extend_from_slice(key);
    (!has_met).then(|| (Value::copy(key), Value::copy(value)))
}

/// Items from the front.
#[cfg(feature = "stream")]
impl futures_core::Stream for RangeAsync {
    type Item = Result<(Value, Value)>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        RangeAsync::poll_next(self.get_mut(), context)
    }
}

impl Drop for RangeAsync {
    fn drop(&mut self) {
        self.end();
        if self.read_point.handle.is_forked() {
            range::leave_point(&self.point);
        }
    }
}

impl fmt::Debug for RangeAsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeAsync").field("keyspace", &self.read_point.keyspace.name).finish_non_exhaustive()
    }
}

/// The next item of a [`RangeAsync`].
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let mut range = users.range_async(..);
/// let next: trine::NextAsync = range.next();
/// assert!(trine::block_on(next).is_none());
/// # Ok(()) }
/// ```
#[must_use = "a future does nothing until it is polled"]
#[derive(Debug)]
pub struct NextAsync<'r> {
    range: &'r mut RangeAsync,
    direction: Direction,
}

impl Drop for NextAsync<'_> {
    /// Reads in flight complete. The place in the read queue is given up until the next poll.
    fn drop(&mut self) {
        if self.range.read_point.handle.is_forked() {
            return;
        }
        for side in [&mut self.range.front, &mut self.range.back] {
            side.asks.step_aside();
            side.merged.iter_mut().for_each(|merged| merged.step_aside());
        }
    }
}

impl Future for NextAsync<'_> {
    type Output = Option<Result<(Value, Value)>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let NextAsync { range, direction } = self.get_mut();
        range.poll_step(*direction, context)
    }
}
