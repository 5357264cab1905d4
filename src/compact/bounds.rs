//! Bounds of tables around a merge: they tell which keys may have older versions, and where to cut output
//! tables.
//!
//! Both types advance with the merge: callers ask in ascending order of keys, and each bound is passed once.
//! Called by `job`.
//!
//! Invariant: bounds are inclusive at both ends.

use crate::base::id::KEY_BYTES_MAX;

/// Keys of which tables outside a merge may hold older versions, by their bounds.
#[derive(Debug)]
pub(crate) struct OlderKeys {
    /// Least and greatest key of each range; ascending and disjoint.
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    at: usize,
}

impl OlderKeys {
    /// Takes bounds of tables in any order, overlapping or not.
    pub(crate) fn new(mut bounds: Vec<(Vec<u8>, Vec<u8>)>) -> OlderKeys {
        bounds.sort_unstable();
        let mut ranges: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(bounds.len());
        for (min, max) in bounds {
            match ranges.last_mut() {
                Some((_, last_max)) if min <= *last_max => {
                    if max > *last_max {
                        *last_max = max;
                    }
                }
                _ => ranges.push((min, max)),
            }
        }
        OlderKeys { ranges, at: 0 }
    }

    /// Clips a range, from `start` to before `end` (empty: no end), to the keys that the tables may hold:
    /// from the first such key to just behind the last. `None` if there is none.
    pub(crate) fn clip(&self, start: &[u8], end: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let first = self.ranges.partition_point(|(_, max)| max.as_slice() < start);
        let behind = self.ranges.partition_point(|(min, _)| end.is_empty() || min.as_slice() < end);
        let (min, _) = self.ranges.get(first..behind)?.first()?;
        let (_, max) = &self.ranges[behind - 1];
        let mut clipped_end = end.to_vec();
        if (end.is_empty() || max.as_slice() < end) && max.len() < KEY_BYTES_MAX {
            clipped_end = [max, &b"\0"[..]].concat();
        }
        Some((start.max(min).to_vec(), clipped_end))
    }

    /// Whether a table may hold `key`; callers ask in ascending order.
    pub(crate) fn may_contain(&mut self, key: &[u8]) -> bool {
        while let Some((min, max)) = self.ranges.get(self.at) {
            if key <= max.as_slice() {
                return key >= min.as_slice();
            }
            self.at += 1;
        }
        false
    }
}

/// The most bytes of a table with target `table_bytes`: a quarter more, if the table then ends at a bound of
/// the next run.
pub(crate) fn most_bytes(table_bytes: u64) -> u64 {
    table_bytes.saturating_add(table_bytes / 4)
}

/// Chooses where one output table ends and the next begins.
///
/// A table ends at a bound of the run that the outputs are merged with next; otherwise it would overlap one
/// table more than necessary. Without such a bound it ends at its target length. It also ends before it
/// overlaps too much of that run.
#[derive(Debug)]
pub(crate) struct Cuts {
    /// Greatest key and bytes of the tables of that run; ascending.
    next: Vec<(Vec<u8>, u64)>,
    at: usize,
    /// Bytes of those tables passed since the last cut.
    passed_bytes: u64,
    table_bytes: u64,
    next_bytes_max: u64,
}

impl Cuts {
    pub(crate) fn new(next: Vec<(Vec<u8>, u64)>, table_bytes: u64, next_bytes_max: u64) -> Cuts {
        Cuts { next, at: 0, passed_bytes: 0, table_bytes, next_bytes_max }
    }

    pub(crate) fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Whether a table of length `file_bytes` ends before `key`; asked for each written key, ascending.
    /// `None` for `file_bytes`: no table is being built, and there is nothing to cut.
    pub(crate) fn is_due(&mut self, key: &[u8], file_bytes: Option<u64>) -> bool {
        let mut is_at_bound = false;
        while let Some((_, bytes)) = self.next.get(self.at).filter(|(max, _)| key > max.as_slice()) {
            self.passed_bytes = self.passed_bytes.saturating_add(*bytes);
            self.at += 1;
            is_at_bound = true;
        }
        // A bound counts from five eighths of the target length. So bounds no farther apart than that are met
        // before the full length.
        let enough_bytes = match self.next.get(self.at) {
            Some(_) if is_at_bound => most_bytes(self.table_bytes) / 2,
            Some(_) => most_bytes(self.table_bytes),
            None => self.table_bytes,
        };
        let is_due = match file_bytes {
            None => true,
            Some(bytes) => bytes >= enough_bytes || self.passed_bytes > self.next_bytes_max,
        };
        if is_due {
            self.passed_bytes = 0;
        }
        is_due && file_bytes.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::KEY_GREATEST;

    fn bounds(pairs: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs.iter().map(|(min, max)| (min.as_bytes().to_vec(), max.as_bytes().to_vec())).collect()
    }

    /// Bounds in any order, nested, touching or apart, are inclusive and passed once each.
    #[test]
    fn older_keys_are_those_within_bounds() {
        let mut older = OlderKeys::new(bounds(&[("m", "p"), ("b", "d"), ("d", "e"), ("n", "o"), ("x", "x")]));
        let expected = [
            ("a", false),
            ("b", true),
            ("d", true),
            ("dz", true),
            ("e", true),
            ("e0", false),
            ("m", true),
            ("oz", true),
            ("p", true),
            ("q", false),
            ("x", true),
            ("y", false),
        ];
        for (key, held) in expected {
            assert_eq!(older.may_contain(key.as_bytes()), held, "{key}");
        }
        assert!(!OlderKeys::new(Vec::new()).may_contain(b"a"));
    }

    /// A range is clipped to the keys that tables may hold, as a whole; a range without such keys is dropped.
    #[test]
    fn ranges_are_clipped_to_older_keys() {
        let older = OlderKeys::new(bounds(&[("b", "d"), ("m", "p")]));
        let clip = |start: &str, end: &str| {
            let clipped = older.clip(start.as_bytes(), end.as_bytes());
            clipped.map(|(start, end)| [start, end].map(|key| String::from_utf8(key).expect("text")))
        };
        let some = |start: &str, end: &str| Some([start.to_owned(), end.to_owned()]);
        assert_eq!(clip("", "b"), None);
        assert_eq!(clip("", "b\0"), some("b", "b\0"));
        assert_eq!(clip("c", "cc"), some("c", "cc"));
        assert_eq!(clip("d", ""), some("d", "p\0"));
        assert_eq!(clip("d\0", "m"), None);
        assert_eq!(clip("a", "z"), some("b", "p\0"));
        assert_eq!(clip("p\0", ""), None);
        let endless = OlderKeys::new(vec![(b"x".to_vec(), KEY_GREATEST.to_vec())]);
        assert_eq!(endless.clip(b"a", b""), Some((b"x".to_vec(), Vec::new())));
        assert_eq!(OlderKeys::new(Vec::new()).clip(b"", b""), None);
    }

    /// A table ends at a bound of the next run, at its length, or once it has passed too much of that run;
    /// then the count restarts.
    #[test]
    fn tables_are_cut_at_bounds_at_their_length_and_above_many_tables() {
        let below = [("c", 10), ("f", 10), ("i", 10), ("l", 10)];
        let below = below.iter().map(|(max, bytes)| (max.as_bytes().to_vec(), *bytes)).collect();
        let mut cuts = Cuts::new(below, 100, 15);
        for (key, file_bytes, due) in [
            ("a", None, false),
            ("c", Some(50), false),
            ("d", Some(61), false),
            ("e", Some(124), false),
            ("e1", Some(125), true),
            ("f", None, false),
            ("g", Some(62), true),
            ("h", None, false),
            ("i", Some(120), false),
            ("j", Some(1), false),
            ("m", Some(2), true),
            ("n", None, false),
            ("y", Some(99), false),
            ("z", Some(100), true),
        ] {
            assert_eq!(cuts.is_due(key.as_bytes(), file_bytes), due, "{key}");
        }
    }
}
