//! Iterators and cursors over items in order.

use std::fmt;
use std::ops::Bound;

use crate::base::error::{Error, Result};
use crate::base::id::{KEY_BYTES_MAX, TreeId};
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::engine::NeedsPoint;
use crate::engine::publish::keyspace;
use crate::engine::publish::snapshot::Point;
use crate::read::scan::{self, ITEMS_MAX, ItemBatch, ScanMachine};

use super::Value;
use super::handle::Handle;
use super::key_range::KeyRange;
use super::side::Side;
use super::walk::RangeArgs;

pub(crate) fn all() -> scan::ScanRange {
    (Bound::Unbounded, Bound::Unbounded)
}

/// The range as an inclusive start and an exclusive end. An empty end means that the range is unbounded.
/// `None` if the range is empty.
///
/// # Errors
/// `TooLarge` for a bound longer than a key may be.
pub(crate) fn half_open(range: impl KeyRange) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (start, end) = range.into_bounds();
    for bound in [&start, &end] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound
            && key.len() > KEY_BYTES_MAX
        {
            let (limit, given) = (KEY_BYTES_MAX as u64, key.len() as u64);
            return Err(Error::TooLarge { what: "key", limit, given });
        }
    }
    let start = match start {
        Bound::Unbounded => Some(Vec::new()),
        Bound::Included(key) => Some(key),
        Bound::Excluded(key) => next_key(key),
    };
    let end = match end {
        Bound::Excluded(key) if key.is_empty() => return Ok(None),
        Bound::Excluded(key) => key,
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => next_key(key).unwrap_or_default(),
    };
    Ok(start.filter(|start| end.is_empty() || *start < end).map(|start| (start, end)))
}

/// The successor of `key`; `None` for the greatest possible key.
fn next_key(mut key: Vec<u8>) -> Option<Vec<u8>> {
    if key.len() < KEY_BYTES_MAX {
        key.push(0);
        return Some(key);
    }
    after_prefix(key)
}

/// The first key that is greater than all keys with `prefix`; `None` if there is none.
fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while prefix.last() == Some(&u8::MAX) {
        prefix.pop();
    }
    *prefix.last_mut()? += 1;
    Some(prefix)
}

/// Every key that begins with `prefix`.
pub(crate) fn of_prefix(prefix: &[u8]) -> scan::ScanRange {
    let end = after_prefix(prefix.to_vec()).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), end)
}

fn copied((key, value): (&[u8], &[u8])) -> (Value, Value) {
    (Value::copy(key), Value::copy(value))
}

/// An iterator over items in key order, from either end. Each item is read on demand. The iterator ends after
/// an error.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// for name in ["ann", "bob", "eve"] {
///     users.put(name, b"")?;
/// }
/// let mut range: trine::Range = users.iter();
/// assert_eq!(range.next().unwrap()?.0, b"ann"[..]);
/// assert_eq!(range.next_back().unwrap()?.0, b"eve"[..]);
/// assert_eq!(range.count(), 1);
/// # Ok(()) }
/// ```
pub struct Range {
    handle: Arc<Handle>,
    keyspace: Arc<keyspace::KeyspaceState>,
    range: scan::ScanRange,
    /// The end in the usual direction of this keyspace's scans.
    side: Side,
    /// The other end, once a caller reads from there.
    reverse: Option<Box<Side>>,
    /// `None`: the first batch has all items.
    point: Option<Arc<Point>>,
    is_over: bool,
}

impl Range {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        keyspace: &Arc<keyspace::KeyspaceState>,
        at: Option<&Arc<Point>>,
        range: scan::ScanRange,
    ) -> Range {
        let (direction, is_long) = (keyspace.usual.direction(), keyspace.usual.is_long());
        let mut side = Side::new(direction, is_long);
        let point = if side.prepare_batch(handle) {
            let wanted = (&range, direction, ITEMS_MAX);
            let needs = (at, NeedsPoint::ForMore);
            let (filled, point) = handle.begin_range(keyspace, needs, wanted, &mut side.batch);
            filled.into_iter().for_each(|filled| side.set_filled(filled));
            point
        } else {
            Some(at.map_or_else(|| handle.point(), Arc::clone))
        };
        let (handle, keyspace) = (Arc::clone(handle), Arc::clone(keyspace));
        Range { handle, keyspace, range, side, reverse: None, point, is_over: false }
    }

    fn step(&mut self, direction: Direction) -> Option<Result<(Value, Value)>> {
        if self.is_over {
            return None;
        }
        let item = self.advance(direction).transpose();
        self.is_over = !matches!(item, Some(Ok(_)));
        item
    }

    fn advance(&mut self, direction: Direction) -> Result<Option<(Value, Value)>> {
        let Range { handle, keyspace, range, side, reverse, point, .. } = self;
        let Some(point) = point else {
            check_open(handle)?;
            // The keyspace existed when the batch was read.
            keyspace.check_live_at(|| true)?;
            return Ok(side.take_read(direction).map(copied));
        };
        live_at(handle, keyspace, point)?;
        let reading = RangeArgs { handle, keyspace, point, range };
        let (side, other) = if direction == side.direction {
            (side, reverse.as_deref())
        } else {
            (&mut **reverse.get_or_insert_with(|| Box::new(Side::new(direction, true))), Some(&*side))
        };
        if !side.advance(&reading)? {
            return Ok(None);
        }
        let item = side.item();
        // The two ends must not cross.
        let has_met = other.and_then(Side::last).is_some_and(|other| match direction {
            Direction::Forward => item.0 >= other,
            Direction::Backward => item.0 <= other,
        });
        let item = (!has_met).then(|| copied(item));
        side.forget_value();
        Ok(item)
    }
}

/// The first item of the keyspace in that direction, as of the point or of now.
pub(crate) fn first_item(
    handle: &Arc<Handle>,
    keyspace: &Arc<keyspace::KeyspaceState>,
    at: Option<&Arc<Point>>,
    direction: Direction,
) -> Result<Option<(Value, Value)>> {
    let range = all();
    if keyspace.is_divided_by_keys() {
        let mut cursor = Cursor::new(handle, keyspace, at, range);
        return Ok(cursor.step(direction)?.map(copied));
    }
    let mut batch = ItemBatch::default();
    batch.begin();
    let needs = (at, NeedsPoint::ForOne);
    let (_, point) = handle.begin_range(keyspace, needs, (&range, direction, 1), &mut batch);
    let Some(point) = point else {
        return Ok(batch.take_first().map(|number| copied(batch.item(number))));
    };
    let mut scan = ScanMachine::new(point.sight(keyspace.tree), range, direction);
    live_at(handle, keyspace, &point)?;
    let moved = handle.advance(&point, &mut scan)?;
    Ok(moved.then(|| copied((scan.key(), scan.value()))))
}

fn check_open(handle: &Handle) -> Result<()> {
    if handle.is_closed() { Err(Error::Closed) } else { Ok(()) }
}

/// Checks that the store is open and that the point's view has the keyspace. Only views from before a drop
/// see a dropped keyspace.
pub(crate) fn live_at(handle: &Handle, keyspace: &keyspace::KeyspaceState, point: &Point) -> Result<()> {
    check_open(handle)?;
    keyspace.check_live_at(|| keyspace.is_in(&handle.view_of(point).version))
}

/// Leaks a reference to the point in a forked process. Dropping the point would take locks that may never be
/// released there.
pub(crate) fn leave_point(point: &Arc<Point>) {
    std::mem::forget(Arc::clone(point));
}

impl Iterator for Range {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Backward)
    }
}

impl std::iter::FusedIterator for Range {}

impl Drop for Range {
    /// In a forked process the point and both sides are leaked.
    fn drop(&mut self) {
        if self.handle.is_forked() {
            self.point.iter().for_each(leave_point);
            self.side.leave();
            self.reverse.iter_mut().for_each(|side| side.leave());
            return;
        }
        let reverse = self.reverse.as_deref().filter(|side| side.has_begun());
        let used = reverse.filter(|_| !self.side.has_begun()).unwrap_or(&self.side);
        if used.has_begun() {
            self.keyspace.usual.learn(used.was_long(), used.direction);
        }
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("keyspace", &self.keyspace.name).finish_non_exhaustive()
    }
}

/// A cursor over the items of a range. It lends the current item, moves in both directions, seeks, and makes
/// no allocation per item.
///
/// A new cursor is before the first item; `prev` from there moves to the last.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put("ann", "1")?;
/// users.put("bob", "2")?;
/// let mut cursor: trine::Cursor = users.cursor(..);
/// assert_eq!(cursor.prev()?, Some((&b"bob"[..], &b"2"[..])));
/// assert_eq!(cursor.prev()?, Some((&b"ann"[..], &b"1"[..])));
/// # Ok(()) }
/// ```
pub struct Cursor {
    handle: Arc<Handle>,
    keyspace: Arc<keyspace::KeyspaceState>,
    point: Arc<Point>,
    range: scan::ScanRange,
    side: Side,
    stand: Stand,
}

/// The position of a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    /// Not positioned yet.
    Start,
    /// Between items after a seek: before the first item of its side.
    Before,
    At,
    /// Past the last item in its side's direction.
    End,
}

impl Cursor {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        keyspace: &Arc<keyspace::KeyspaceState>,
        at: Option<&Arc<Point>>,
        range: scan::ScanRange,
    ) -> Cursor {
        Cursor {
            handle: Arc::clone(handle),
            keyspace: Arc::clone(keyspace),
            point: at.map_or_else(|| handle.point(), Arc::clone),
            range,
            side: Side::new(Direction::Forward, keyspace.usual.is_long()),
            stand: Stand::Start,
        }
    }

    pub(super) fn tree(&self) -> TreeId {
        self.keyspace.tree
    }

    /// Positions a new cursor behind a key of the named partition or, if there is no such partition, before
    /// the items of the next one. The name is used only if keys divide the keyspace.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub(super) fn begin_behind(&mut self, position: (&[u8], &[u8])) -> Result<()> {
        let Cursor { handle, keyspace, point, range, side, .. } = self;
        live_at(handle, keyspace, point)?;
        side.begin_behind(&RangeArgs { handle, keyspace, point, range }, position);
        Ok(())
    }

    /// The name of the current item's partition, and the item. The name is empty unless keys divide the
    /// keyspace.
    pub(super) fn item_in_partition(&self) -> (&[u8], (&[u8], &[u8])) {
        (self.side.partition_name(), self.side.item())
    }

    /// Moves before the first item at or after `key`: `next` then yields that item, `prev` the preceding one.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// users.put("eve", "2")?;
    /// let mut cursor = users.cursor(..);
    /// cursor.seek("bob")?;
    /// assert_eq!(cursor.next()?, Some((&b"eve"[..], &b"2"[..])));
    /// cursor.seek("bob")?;
    /// assert_eq!(cursor.prev()?, Some((&b"ann"[..], &b"1"[..])));
    /// # Ok(()) }
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        live_at(&self.handle, &self.keyspace, &self.point)?;
        self.side.restart(Bound::Included(key.as_ref()), Direction::Forward);
        self.stand = Stand::Before;
        Ok(())
    }

    /// The next item; `None` past the last one.
    ///
    /// # Errors
    /// `Corrupt` if a block is damaged, `Io` if one cannot be read, `Dropped`, `Closed`. After an error, seek
    /// before the next step.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// users.put("bob", "2")?;
    /// let (mut cursor, mut count) = (users.cursor("b"..), 0);
    /// while let Some((key, value)) = cursor.next()? {
    ///     assert_eq!((key, value), (&b"bob"[..], &b"2"[..]));
    ///     count += 1;
    /// }
    /// assert_eq!(count, 1);
    /// # Ok(()) }
    /// ```
    #[expect(clippy::should_implement_trait, reason = "it lends, which an Iterator cannot")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.step(Direction::Forward)
    }

    /// The previous item; `None` before the first one.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// users.put("bob", "2")?;
    /// let mut cursor = users.cursor(.."b");
    /// assert_eq!(cursor.prev()?, Some((&b"ann"[..], &b"1"[..])));
    /// assert_eq!(cursor.prev()?, None);
    /// # Ok(()) }
    /// ```
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.step(Direction::Backward)
    }

    fn step(&mut self, direction: Direction) -> Result<Option<(&[u8], &[u8])>> {
        live_at(&self.handle, &self.keyspace, &self.point)?;
        if direction != self.side.direction {
            self.turn(direction);
        } else if self.stand == Stand::End {
            return Ok(None);
        }
        let Cursor { handle, keyspace, point, range, side, stand } = self;
        let moved = side.advance(&RangeArgs { handle, keyspace, point, range });
        *stand = if matches!(moved, Ok(true)) { Stand::At } else { Stand::End };
        Ok(moved?.then(|| side.item()))
    }

    /// Reverses the direction at the current position.
    fn turn(&mut self, direction: Direction) {
        match self.stand {
            Stand::Start | Stand::End => self.side.restart(Bound::Unbounded, direction),
            // Only a seek leaves the cursor so, in forward direction: the items before the seek's key are
            // next.
            Stand::Before => self.side.turn_at_start(direction),
            Stand::At => {
                let key = self.side.item().0.to_vec();
                self.side.restart(Bound::Excluded(&key), direction);
            }
        }
        self.stand = Stand::Start;
    }
}

impl Drop for Cursor {
    /// In a forked process the point and the side are leaked.
    fn drop(&mut self) {
        if self.handle.is_forked() {
            leave_point(&self.point);
            self.side.leave();
        } else if self.side.has_begun() {
            self.keyspace.usual.learn(self.side.was_long(), self.keyspace.usual.direction());
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("keyspace", &self.keyspace.name).finish_non_exhaustive()
    }
}

/// Keys between two calls of `progress` while counting.
const KEYS_PER_PROGRESS: u64 = 1 << 16;

/// The number of items that a cursor yields.
pub(super) fn counted(mut cursor: Cursor, mut progress: impl FnMut(u64)) -> Result<u64> {
    let mut count = 0;
    while cursor.next()?.is_some() {
        count += 1;
        if count % KEYS_PER_PROGRESS == 0 {
            progress(count);
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a prefix is the next key without this prefix, also after bytes of 255.
    #[test]
    fn prefixes_end_where_they_should() {
        assert_eq!(of_prefix(b"ab").1, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(of_prefix(b"a\xff\xff").1, Bound::Excluded(b"b".to_vec()));
        assert_eq!(of_prefix(b"\xff").1, Bound::Unbounded);
        assert_eq!(of_prefix(b""), (Bound::Included(Vec::new()), Bound::Unbounded));
    }

    /// Every kind of bound is converted to a half-open range; a range without keys becomes `None`.
    #[test]
    fn ranges_begin_at_a_key_and_end_before_one() {
        use Bound::{Excluded, Included, Unbounded};
        let half_open = |start, end| half_open((start, end)).expect("short keys");
        let keys = |start: &[u8], end: &[u8]| Some((start.to_vec(), end.to_vec()));
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        assert_eq!(half_open(Unbounded, Unbounded), keys(b"", b""));
        assert_eq!(half_open(Included(a), Excluded(b)), keys(b"a", b"b"));
        assert_eq!(half_open(Excluded(a), Included(b)), keys(b"a\0", b"b\0"));
        assert_eq!(half_open(Included(a), Included(a)), keys(b"a", b"a\0"));
        assert_eq!(half_open(Unbounded, Included(b"")), keys(b"", b"\0"));
        assert_eq!(half_open(Unbounded, Excluded(b"")), None);
        assert_eq!(half_open(Excluded(a), Included(a)), None);
        assert_eq!(half_open(Included(a), Excluded(a)), None);
        assert_eq!(half_open(Excluded(a), Excluded(b"a\0")), None);
        assert_eq!(half_open(Included(b), Included(a)), None);
        let (last, mut long) = (vec![u8::MAX; KEY_BYTES_MAX], vec![7; KEY_BYTES_MAX]);
        assert_eq!(half_open(Included(a), Included(&last)), keys(b"a", b""));
        assert_eq!(half_open(Excluded(&last), Unbounded), None);
        let next = [&long[1..], &[8]].concat();
        assert_eq!(half_open(Excluded(&long), Unbounded), keys(&next, b""));
        long.push(0);
        let refused = super::half_open((Included(long.as_slice()), Unbounded));
        assert!(matches!(refused, Err(Error::TooLarge { .. })));
    }
}
