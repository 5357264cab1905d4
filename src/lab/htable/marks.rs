//! HashMarks: the items that left a bucket, the bucket they went to, and the marks to keep in memory.
//!
//! A mark has 2 bytes of source, 2 of target and 4 of order, as in the paper. The paper keeps marks of the
//! most overloaded buckets in memory, enough of them for 1.01 reads a get. Plain values.

use super::item::order_in;

/// With a percentage, at most one mark for this many buckets is in memory; the released code keeps 2048 of
/// 8192.
const BUCKETS_A_CACHED_MARK: usize = 4;

/// A bucket's mark: items of the order `least` and above are in the bucket `target`, or in one that its mark
/// names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BucketMark {
    pub(super) source: u16,
    pub(super) target: u16,
    /// The least order that left, as the source sorts orders.
    pub(super) least: u32,
}

impl BucketMark {
    /// Size in memory, in bytes.
    pub(super) const BYTES: usize = size_of::<BucketMark>();

    /// The bucket that an order migrated to, if it did.
    pub(super) fn target_of(self, order: u64) -> Option<u16> {
        (order_in(self.source, order) >= self.least).then_some(self.target)
    }
}

/// A mark, and the number of items that migrated past it when the table was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CountedMark {
    pub(super) mark: BucketMark,
    pub(super) moved: u32,
}

/// The HashMarks that a table keeps in memory; the others are read with their bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachedMarks {
    /// None: a get of a migrated item reads its home bucket first.
    None,
    /// Marks of the most overloaded buckets, until this percentage of gets reads one page only, if each item
    /// is read once. At most one mark for every fourth bucket. The paper's choice is 99.
    Percent(u8),
    /// All: each get reads one page only.
    All,
}

/// The marks in memory, sorted by source.
#[derive(Clone, Debug)]
pub(super) struct MarkIndex {
    marks: Vec<BucketMark>,
}

impl MarkIndex {
    /// Chooses the marks of a table with `items` items and `buckets` buckets.
    ///
    /// The released code allows a percentage of items and hops together. Here the percentage is of items, so
    /// 99 means 1.01 reads a get and not 1.0104.
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
        let mut marks: Vec<BucketMark> = by_moved[..count].iter().map(|one| one.mark).collect();
        marks.sort_unstable_by_key(|mark| mark.source);
        MarkIndex { marks }
    }

    /// The bucket that an order migrated to, if the bucket's mark is in memory and the order left.
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
            mark: BucketMark { source: source as u16, target: 99, least: 7 },
            moved: *moved,
        };
        moved.iter().enumerate().map(one).collect()
    }

    /// The choice is the shortest list of the most overloaded sources that leaves one percent of second
    /// reads.
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
        assert_eq!(BucketMark::BYTES, 8);
    }
}
