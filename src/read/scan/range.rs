//! The range of a scan: its start and end in either direction, and the rest of it past a hidden stretch.
//! Plain values; the scan's alone.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::base::key::common_prefix;
use crate::base::step::Direction;
use crate::merge::Stretch;

/// Start and end of a scan, as owned keys.
pub(crate) type ScanRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The position to which a source with a hidden item moves.
#[derive(Default)]
pub(super) struct SkipTo {
    key: Vec<u8>,
    /// The source has no items left within the scan's range.
    is_end: bool,
}

impl SkipTo {
    /// Sets the position past the stretch, in that direction.
    pub(super) fn set(&mut self, stretch: &Stretch, range: &ScanRange, direction: Direction) {
        let beyond = stretch.beyond(direction);
        self.is_end = beyond.is_none_or(|key| match (direction, &range.0) {
            (Direction::Forward, _) => is_past(key, range, direction),
            // The remaining keys are before `key`.
            (Direction::Backward, Bound::Included(start) | Bound::Excluded(start)) => key <= start.as_slice(),
            (Direction::Backward, Bound::Unbounded) => false,
        });
        self.key.clear();
        self.key.extend_from_slice(beyond.unwrap_or_default());
    }

    /// The bound to seek to; `None` if no items are left.
    pub(super) fn from(&self, direction: Direction) -> Option<Bound<&[u8]>> {
        match direction {
            _ if self.is_end => None,
            Direction::Forward => Some(Bound::Included(&self.key)),
            Direction::Backward => Some(Bound::Excluded(&self.key)),
        }
    }
}

/// The start of the range in that direction.
pub(crate) fn start_of(range: &ScanRange, direction: Direction) -> Bound<&[u8]> {
    let start = match direction {
        Direction::Forward => &range.0,
        Direction::Backward => &range.1,
    };
    start.as_ref().map(Vec::as_slice)
}

/// `from`, or the range's own start in that direction if `from` lies before it.
pub(crate) fn tighter<'b>(
    from: Bound<&'b [u8]>,
    range: &'b ScanRange,
    direction: Direction,
) -> Bound<&'b [u8]> {
    let own = start_of(range, direction);
    let (Bound::Included(own_key) | Bound::Excluded(own_key)) = own else {
        return from;
    };
    let (Bound::Included(key) | Bound::Excluded(key)) = from else {
        return own;
    };
    let inside = match direction {
        Direction::Forward => key.cmp(own_key),
        Direction::Backward => own_key.cmp(key),
    };
    match (inside, own) {
        (Ordering::Greater, _) | (Ordering::Equal, Bound::Included(_)) => from,
        _ => own,
    }
}

/// The prefix that most keys of a scan share: the range's, if that is longer than the tree's. If all keys
/// have `key_bytes` bytes, eight of them remain behind the prefix, and decide alone.
pub(super) fn expected_prefix<'a>(of_tree: &'a [u8], key_bytes: usize, range: &'a ScanRange) -> &'a [u8] {
    let of_range = prefix_of(range);
    let longer = if of_range.len() > of_tree.len() { of_range } else { of_tree };
    &longer[..longer.len().min(key_bytes.saturating_sub(8))]
}

/// The common prefix of all keys of a range, or a part of it; empty if the range has fewer than two bounds.
fn prefix_of(range: &ScanRange) -> &[u8] {
    match range {
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            &start[..common_prefix(start, end)]
        }
        _ => &[],
    }
}

/// Whether `key` lies past the range's end in that direction.
pub(super) fn is_past(key: &[u8], range: &ScanRange, direction: Direction) -> bool {
    let end = match direction {
        Direction::Forward => &range.1,
        Direction::Backward => &range.0,
    };
    match (end, direction) {
        (Bound::Unbounded, _) => false,
        (Bound::Included(end), Direction::Forward) => key > end.as_slice(),
        (Bound::Excluded(end), Direction::Forward) => key >= end.as_slice(),
        (Bound::Included(end), Direction::Backward) => key < end.as_slice(),
        (Bound::Excluded(end), Direction::Backward) => key <= end.as_slice(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two bounds give the common prefix of the keys between them, one bound gives none.
    #[test]
    fn bounds_give_the_common_prefix_of_their_keys() {
        let key = |key: &str| key.as_bytes().to_vec();
        let of = |start: Bound<&str>, end: Bound<&str>| {
            String::from_utf8(prefix_of(&(start.map(key), end.map(key))).to_vec()).expect("text")
        };
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(of(Included("user:17/"), Excluded("user:170")), "user:17");
        assert_eq!(of(Excluded("a"), Included("a")), "a");
        assert_eq!(of(Included("a"), Excluded("b")), "");
        assert_eq!(of(Included(""), Excluded("b")), "");
        assert_eq!(of(Included("ab"), Unbounded), "");
        assert_eq!(of(Unbounded, Included("ab")), "");
    }

    /// The longer of the two prefixes, without a key's last eight bytes.
    #[test]
    fn eight_bytes_are_left_behind_a_prefix() {
        let range = (Bound::Included(b"user:17/".to_vec()), Bound::Excluded(b"user:170".to_vec()));
        assert_eq!(expected_prefix(b"user:", 20, &range), b"user:17");
        assert_eq!(expected_prefix(b"user:17/item/", 30, &range), b"user:17/item/");
        assert_eq!(expected_prefix(b"user:", 13, &range), b"user:");
        assert_eq!(expected_prefix(b"user:", 8, &range), b"");
        assert_eq!(expected_prefix(b"", 0, &range), b"");
    }
}
