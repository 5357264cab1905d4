//! Iterators and cursors over items in order.

use std::fmt;
use std::ops::Bound;

use crate::base::error::{Error, Result};
use crate::base::id::KEY_BYTES_MAX;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::engine::catalog;
use crate::engine::snapshot::Point;
use crate::read::scan::{self, Scan};

use super::key_range::KeyRange;
use super::{Handle, Value};

pub(crate) fn all() -> scan::Range {
    (Bound::Unbounded, Bound::Unbounded)
}

/// The keys of a range from the first on to before what comes after the last, which is empty if nothing does;
/// `None` if there is none.
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

/// The key that comes next after `key`; `None` after the last one there may be.
fn next_key(mut key: Vec<u8>) -> Option<Vec<u8>> {
    if key.len() < KEY_BYTES_MAX {
        key.push(0);
        return Some(key);
    }
    after_prefix(key)
}

/// The first key that is greater than all that begin with `prefix`; `None` if there is none.
fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while prefix.last() == Some(&u8::MAX) {
        prefix.pop();
    }
    *prefix.last_mut()? += 1;
    Some(prefix)
}

/// Every key that begins with `prefix`.
pub(crate) fn of_prefix(prefix: &[u8]) -> scan::Range {
    let end = after_prefix(prefix.to_vec()).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), end)
}

/// A scan that is opened when it is first needed.
struct Side {
    scan: Option<Scan>,
    direction: Direction,
}

/// Items in key order, from either end; each is read when it is asked for. After an error it ends.
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
    keyspace: Arc<catalog::Keyspace>,
    point: Arc<Point>,
    range: scan::Range,
    front: Side,
    back: Side,
    is_over: bool,
}

impl Range {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        keyspace: &Arc<catalog::Keyspace>,
        at: Option<&Arc<Point>>,
        range: scan::Range,
    ) -> Range {
        Range {
            handle: Arc::clone(handle),
            keyspace: Arc::clone(keyspace),
            point: at.map_or_else(|| handle.point(), Arc::clone),
            range,
            front: Side { scan: None, direction: Direction::Forward },
            back: Side { scan: None, direction: Direction::Backward },
            is_over: false,
        }
    }

    fn step(&mut self, direction: Direction) -> Option<Result<(Value, Value)>> {
        if self.is_over {
            return None;
        }
        let moved = self.advance(direction);
        match moved {
            Ok(Some(item)) => Some(Ok(item)),
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }

    fn advance(&mut self, direction: Direction) -> Result<Option<(Value, Value)>> {
        live_at(&self.handle, &self.keyspace, &self.point)?;
        let (side, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
        let scan = side
            .scan
            .get_or_insert_with(|| scan(&self.keyspace, &self.point, self.range.clone(), side.direction));
        if !self.handle.advance(&self.point, scan)? {
            return Ok(None);
        }
        let key = scan.key();
        // The two ends must not pass each other.
        let has_met = other.scan.as_ref().is_some_and(|other| match direction {
            Direction::Forward => key >= other.key(),
            Direction::Backward => key <= other.key(),
        });
        let item = (!has_met).then(|| (Value::copy(key), Value::copy(scan.value())));
        scan.forget_value();
        Ok(item)
    }
}

pub(crate) fn scan(
    keyspace: &catalog::Keyspace,
    point: &Point,
    range: scan::Range,
    direction: Direction,
) -> Scan {
    Scan::new(point.sight(keyspace.tree), range, direction)
}

/// A dropped keyspace is seen by views from before the drop, and by no other.
pub(crate) fn live_at(handle: &Handle, keyspace: &catalog::Keyspace, point: &Point) -> Result<()> {
    if handle.is_closed() {
        return Err(Error::Closed);
    }
    keyspace.check_live_at(|| handle.view_of(point).version.tree(keyspace.tree).is_some())
}

/// Keeps a point from being dropped in a forked process, where the locks of what it holds may never be given
/// back.
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
    /// In a forked process what it reads from is left as it is.
    fn drop(&mut self) {
        if self.handle.is_forked() {
            leave_point(&self.point);
            std::mem::forget((self.front.scan.take(), self.back.scan.take()));
        }
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("keyspace", &self.keyspace.name).finish_non_exhaustive()
    }
}

/// A position among the items of a range: it lends what it stands at, goes both ways, seeks, and allocates
/// nothing an item.
///
/// It begins before the first item; `prev` from there goes to the last.
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
    keyspace: Arc<catalog::Keyspace>,
    point: Arc<Point>,
    range: scan::Range,
    /// Opened when it is first needed.
    scan: Option<Scan>,
    place: Place,
    direction: Direction,
}

/// Where a cursor stands.
enum Place {
    /// Nowhere yet.
    Start,
    /// Between items: the scan, going in this direction, has not been moved since a seek.
    Before(Vec<u8>),
    At,
    /// Past the last item, going in the cursor's direction.
    End,
}

impl Cursor {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        keyspace: &Arc<catalog::Keyspace>,
        at: Option<&Arc<Point>>,
        range: scan::Range,
    ) -> Cursor {
        let point = at.map_or_else(|| handle.point(), Arc::clone);
        Cursor {
            handle: Arc::clone(handle),
            keyspace: Arc::clone(keyspace),
            range,
            scan: None,
            point,
            place: Place::Start,
            direction: Direction::Forward,
        }
    }

    /// Stands before the first item at or after `key`: `next` yields that one, `prev` the one before it.
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
        self.scan().seek(Bound::Included(key.as_ref()), Direction::Forward);
        self.direction = Direction::Forward;
        self.place = Place::Before(key.as_ref().to_vec());
        Ok(())
    }

    /// The next item; `None` past the last one.
    ///
    /// # Errors
    /// `Corrupt` if a block is damaged, `Io` if one cannot be read, `Dropped`, `Closed`. Seek before going
    /// on.
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

    /// The item before; `None` before the first one.
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
        if direction != self.direction {
            self.turn(direction);
        } else if matches!(self.place, Place::End) {
            return Ok(None);
        }
        let Cursor { handle, keyspace, point, range, scan, place, .. } = self;
        let scan = opened(scan, (keyspace, point), range);
        let moved = handle.advance(point, scan);
        *place = if matches!(moved, Ok(true)) { Place::At } else { Place::End };
        Ok(moved?.then(|| (scan.key(), scan.value())))
    }

    fn scan(&mut self) -> &mut Scan {
        let Cursor { keyspace, point, range, scan, .. } = self;
        opened(scan, (keyspace, point), range)
    }

    /// Goes the other way from where it stands.
    fn turn(&mut self, direction: Direction) {
        self.direction = direction;
        match std::mem::replace(&mut self.place, Place::Start) {
            Place::Start | Place::End => self.scan().seek(Bound::Unbounded, direction),
            // Only a seek leaves this, and it goes forward: what lies before its key comes next.
            Place::Before(key) => self.scan().seek(Bound::Excluded(&key), direction),
            Place::At => {
                let key = self.scan().key().to_vec();
                self.scan().seek(Bound::Excluded(&key), direction);
            }
        }
    }
}

/// A cursor's scan, opened if it is not yet.
fn opened<'s>(
    scan: &'s mut Option<Scan>,
    (keyspace, point): (&catalog::Keyspace, &Point),
    range: &mut scan::Range,
) -> &'s mut Scan {
    scan.get_or_insert_with(|| {
        let range = std::mem::replace(range, all());
        self::scan(keyspace, point, range, Direction::Forward)
    })
}

impl Drop for Cursor {
    /// In a forked process what it reads from is left as it is.
    fn drop(&mut self) {
        if self.handle.is_forked() {
            leave_point(&self.point);
            std::mem::forget(self.scan.take());
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("keyspace", &self.keyspace.name).finish_non_exhaustive()
    }
}

/// Keys that are told at once, when all are counted.
const KEYS_PER_PROGRESS: u64 = 1 << 16;

/// How many items a cursor meets.
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

    /// The end of a prefix is the next key that does not begin with it, also past bytes of 255.
    #[test]
    fn prefixes_end_where_they_should() {
        assert_eq!(of_prefix(b"ab").1, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(of_prefix(b"a\xff\xff").1, Bound::Excluded(b"b".to_vec()));
        assert_eq!(of_prefix(b"\xff").1, Bound::Unbounded);
        assert_eq!(of_prefix(b""), (Bound::Included(Vec::new()), Bound::Unbounded));
    }

    /// Every kind of bound is turned into the keys it means; what has no key is nothing.
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
