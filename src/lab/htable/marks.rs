//! HashMarks: which items left a bucket and where they went, and which marks are in memory.
//!
//! A mark has 2 bytes of source, 2 of target and 4 of order, as in the paper. The paper keeps the marks of
//! the most overloaded buckets in memory, as many as leave 1.01 reads a get. Plain values.

use super::item::order_in;

/// Marks in memory under a percentage, at most, of so many buckets: the released code keeps 2048 of 8192.
const BUCKETS_A_CACHED_MARK: usize = 4;

/// A bucket's mark: items of the order `least` and above are in the bucket `target`, or further on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) source: u16,
    pub(super) target: u16,
    /// The least order that left, as the source sorts orders.
    pub(super) least: u32,
}

impl Mark {
    /// Bytes in memory.
    pub(super) const BYTES: usize = size_of::<Mark>();

    /// The bucket that an order went to, if it left.
    pub(super) fn target_of(self, order: u64) -> Option<u16> {
        (order_in(self.source, order) >= self.least).then_some(self.target)
    }
}

/// A mark, and how many items went past it when the table was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CountedMark {
    pub(super) mark: Mark,
    pub(super) moved: u32,
}

/// Which HashMarks a table keeps in memory; the others are read with their bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachedMarks {
    /// None: a get of a migrated item reads its home bucket first.
    None,
    /// Those of the most overloaded buckets, so many that of 100 gets of items, each item once, at least so
    /// many read no second page; at most a mark for every fourth bucket. The paper's choice is 99.
    Percent(u8),
    /// All: each get reads one page.
    All,
}

/// The marks in memory, by source.
#[derive(Clone, Debug)]
pub(super) struct MarkIndex {
    marks: Vec<Mark>,
}

impl MarkIndex {
    /// Chooses marks of a table with so many items and buckets.
    ///
    /// The released code allows a percent of items and hops together; here the percentage is of items, so
    /// that 99 means 1.01 reads and not 1.0104.
    pub(super) fn choose(all: &[CountedMark], items: u64, buckets: usize, rule: CachedMarks) -> MarkIndex {
        let mut by_moved = all.to_vec();
        by_moved.sort_unstable_by_key(|one| (std::cmp::Reverse(one.moved), one.mark.source));
        let count = match rule {
            CachedMarks::None => 0,
            CachedMarks::All => by_moved.len(),
            CachedMarks::Percent(percent) => {
                let allowed = items * u64::from(100 - percent.min(100));
                let mut second_reads: u64 = all.iter().map(|one| u64::from(one.moved)).sum();
                let mut count = 0;
                while 100 * second_reads > allowed && count < buckets / BUCKETS_A_CACHED_MARK {
                    second_reads -= u64::from(by_moved[count].moved);
                    count += 1;
                }
                count
            }
        };
        let mut marks: Vec<Mark> = by_moved[..count].iter().map(|one| one.mark).collect();
        marks.sort_unstable_by_key(|mark| mark.source);
        MarkIndex { marks }
    }

    /// The bucket that an order went to, if its mark is in memory and the order left.
    pub(super) fn target_of(&self, bucket: u16, order: u64) -> Option<u16> {
        let found = self.marks.binary_search_by_key(&bucket, |mark| mark.source).ok()?;
        self.marks[found].target_of(order)
    }

    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(moved: &[u32]) -> Vec<CountedMark> {
        let one = |(source, moved): (usize, &u32)| CountedMark {
            mark: Mark { source: source as u16, target: 99, least: 7 },
            moved: *moved,
        };
        moved.iter().enumerate().map(one).collect()
    }

    /// The shortest list of the most overloaded sources is chosen that leaves a percent of second reads.
    #[test]
    fn the_most_overloaded_are_chosen() {
        let all = marks(&[3, 20, 1, 8, 2, 6]);
        let sources = |items, buckets, rule| -> Vec<u16> {
            MarkIndex::choose(&all, items, buckets, rule).marks.iter().map(|mark| mark.source).collect()
        };
        assert_eq!(sources(1000, 64, CachedMarks::Percent(99)), [1, 3, 5]);
        assert_eq!(sources(600, 64, CachedMarks::Percent(99)), [1, 3, 5]);
        assert_eq!(sources(599, 64, CachedMarks::Percent(99)), [0, 1, 3, 5]);
        assert_eq!(sources(4000, 64, CachedMarks::Percent(99)), [0; 0]);
        assert_eq!(sources(1000, 64, CachedMarks::Percent(100)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(sources(1000, 64, CachedMarks::Percent(0)), [0; 0]);
        assert_eq!(sources(599, 8, CachedMarks::Percent(99)), [1, 3], "a quarter of the buckets at most");
        assert_eq!(sources(1000, 8, CachedMarks::All), [0, 1, 2, 3, 4, 5]);
        assert_eq!(sources(1000, 64, CachedMarks::None), [0; 0]);
        assert_eq!(Mark::BYTES, 8);
    }
}
