//! Distribution of range tombstones to the tables that a merge writes. Plain values of one thread.

use crate::base::id::KEY_BYTES_MAX;
use crate::format::table::ranges::Ranges;
use crate::table::TableBuilder;

/// Range tombstones that are still to be written to output tables.
pub(super) struct RangesLeft {
    pub(super) ranges: Ranges,
    /// Index of the first range left, and the start of its rest if a part of it was written.
    next: usize,
    start: Option<Vec<u8>>,
}

/// The ranges that a table gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Upto {
    /// All ranges that begin at or before its last item; the last of them is cut behind that item.
    LastKey,
    End,
}

impl RangesLeft {
    pub(super) fn of(ranges: Ranges) -> RangesLeft {
        RangesLeft { ranges, next: 0, start: None }
    }

    /// The start of the next range.
    pub(super) fn first(&self) -> Option<&[u8]> {
        if self.next == self.ranges.count() {
            return None;
        }
        Some(self.start.as_deref().unwrap_or(self.ranges.get(self.next).0))
    }

    /// Adds its ranges to the table. `false` if a range cannot be cut behind the last item, because that key
    /// has the maximum length and no key follows it directly. The table then continues.
    pub(super) fn give(&mut self, builder: &mut TableBuilder, upto: Upto) -> bool {
        let last = match upto {
            Upto::LastKey => builder.last_key().to_vec(),
            Upto::End => Vec::new(),
        };
        let just_behind = [&last[..], b"\0"].concat();
        while let Some(start) = self.first() {
            let (_, end) = self.ranges.get(self.next);
            let is_whole = upto == Upto::End || (!end.is_empty() && end <= just_behind.as_slice());
            if upto == Upto::LastKey && start > last.as_slice() {
                break;
            }
            if !is_whole && last.len() == KEY_BYTES_MAX {
                return false;
            }
            if !is_whole {
                builder.add_range(start, &just_behind);
                self.start = Some(just_behind);
                break;
            }
            builder.add_range(start, end);
            (self.next, self.start) = (self.next + 1, None);
        }
        true
    }
}
