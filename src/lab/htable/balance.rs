//! Overflow migration: overloaded buckets give items to underloaded ones until all fit.
//!
//! A round sorts buckets by volume and pairs the most loaded with the least loaded, the second with the
//! second, and so on. A source gives away its greatest orders, as few as needed to fit. Its target may
//! overflow and be a source of the next round. Migration works on sizes and orders and reads no key. Pure.
//!
//! Invariants: 1. a bucket with a mark receives nothing; 2. each bucket is a source at most once; 3. all
//! residents of a bucket with a mark have orders below it.

use std::fmt;

use super::bucket::CAPACITY_BYTES;
use super::item::order_in;
use super::marks::{BucketMark, CountedMark};

/// Rounds after which migration gives up, as in the released code.
const ROUNDS_MAX: u32 = 100;

/// The size and order of an item, for migration.
#[derive(Clone, Copy, Debug)]
pub(super) struct BalanceItem {
    /// 48 bits of the key's hash.
    pub(super) order: u64,
    /// Bytes in a page, with lengths.
    pub(super) bytes: u32,
    /// Its index in the caller's list.
    pub(super) item: u32,
    /// Migrations so far.
    pub(super) hops: u32,
}

/// A bucket and its mark.
#[derive(Clone, Default, Debug)]
pub(super) struct Bucket {
    pub(super) residents: Vec<BalanceItem>,
    pub(super) bytes: u64,
    pub(super) mark: Option<CountedMark>,
}

impl Bucket {
    pub(super) fn push(&mut self, resident: BalanceItem) {
        self.bytes += u64::from(resident.bytes);
        self.residents.push(resident);
    }

    pub(super) fn is_overloaded(&self) -> bool {
        self.bytes > CAPACITY_BYTES as u64
    }
}

/// The result of migration.
#[derive(Debug)]
pub(super) struct Balanced {
    /// Residents are sorted by their order in the bucket.
    pub(super) buckets: Vec<Bucket>,
    /// Buckets that were overloaded at first.
    pub(super) overloaded: u32,
    pub(super) rounds: u32,
}

/// The reason for which migration found no balance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Imbalance {
    /// The items have more bytes than all buckets.
    Volume { bytes: u64, capacity_bytes: u64 },
    /// Items of one order, which cannot be separated, have more bytes than a bucket.
    EqualOrders { bucket: u16, bytes: u64 },
    /// Buckets are overloaded, and every other bucket has given items away.
    NoTarget { rounds: u32, overloaded: u64, sources: u64, buckets: u64 },
    /// Buckets are overloaded after the last round.
    Rounds { overloaded: u64, sources: u64, buckets: u64 },
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Imbalance::Volume { bytes, capacity_bytes } => {
                write!(f, "the items have {bytes} bytes, and all buckets together {capacity_bytes}")
            }
            Imbalance::EqualOrders { bucket, bytes } => {
                write!(f, "bucket {bucket} has items of one order with {bytes} bytes, which cannot part")
            }
            Imbalance::NoTarget { rounds, overloaded, sources, buckets } => write!(
                f,
                "after {rounds} rounds {overloaded} of {buckets} buckets are overloaded and no bucket may \
                 receive; {sources} are sources"
            ),
            Imbalance::Rounds { overloaded, sources, buckets } => write!(
                f,
                "after {ROUNDS_MAX} rounds {overloaded} of {buckets} buckets are overloaded; {sources} are \
                 sources"
            ),
        }
    }
}

/// Migrates items until no bucket is overloaded.
///
/// # Errors
/// The reason if migration cannot reach such a state.
pub(super) fn balance(mut buckets: Vec<Bucket>) -> Result<Balanced, Imbalance> {
    let bytes = buckets.iter().map(|bucket| bucket.bytes).sum();
    let capacity_bytes = (buckets.len() * CAPACITY_BYTES) as u64;
    if bytes > capacity_bytes {
        return Err(Imbalance::Volume { bytes, capacity_bytes });
    }
    for (number, bucket) in buckets.iter_mut().enumerate() {
        sort(number as u16, bucket);
        check_equal_orders(number as u16, bucket)?;
    }
    let overloaded_now = |buckets: &[Bucket]| buckets.iter().filter(|one| one.is_overloaded()).count() as u64;
    let overloaded = overloaded_now(&buckets) as u32;
    let mut by_volume: Vec<u16> = (0..buckets.len()).map(|number| number as u16).collect();
    let mut rounds = 0;
    while buckets.iter().any(Bucket::is_overloaded) {
        let sources = buckets.iter().filter(|bucket| bucket.mark.is_some()).count() as u64;
        let (left, count) = (overloaded_now(&buckets), buckets.len() as u64);
        if rounds == ROUNDS_MAX {
            return Err(Imbalance::Rounds { overloaded: left, sources, buckets: count });
        }
        rounds += 1;
        if run_round(&mut buckets, &mut by_volume) == 0 {
            return Err(Imbalance::NoTarget { rounds, overloaded: left, sources, buckets: count });
        }
    }
    for (number, bucket) in buckets.iter_mut().enumerate() {
        sort(number as u16, bucket);
    }
    Ok(Balanced { buckets, overloaded, rounds })
}

/// Pairs overloaded buckets with underloaded ones once; returns the number of buckets that gave items away.
pub(super) fn run_round(buckets: &mut [Bucket], by_volume: &mut [u16]) -> u32 {
    by_volume.sort_unstable_by_key(|number| (buckets[usize::from(*number)].bytes, *number));
    let (mut low, mut high) = (0, by_volume.len() - 1);
    let mut sources = 0;
    while low < high && buckets[usize::from(by_volume[high])].is_overloaded() {
        while low < high && buckets[usize::from(by_volume[low])].mark.is_some() {
            low += 1;
        }
        if low == high {
            break;
        }
        migrate(buckets, by_volume[high], by_volume[low]);
        sources += 1;
        high -= 1;
        low += 1;
    }
    sources
}

/// Moves the greatest orders of a bucket to another until the source fits. Items of equal order go together.
fn migrate(buckets: &mut [Bucket], source: u16, target: u16) {
    let from = &mut buckets[usize::from(source)];
    sort(source, from);
    let (mut kept, mut kept_bytes) = (from.residents.len(), from.bytes);
    let order_at = |index: usize| order_in(source, from.residents[index].order);
    while kept_bytes > CAPACITY_BYTES as u64 || is_amid_equals(kept, from.residents.len(), order_at) {
        kept -= 1;
        kept_bytes -= u64::from(from.residents[kept].bytes);
    }
    let least = order_at(kept);
    let moved = from.residents.split_off(kept);
    from.bytes = kept_bytes;
    from.mark = Some(CountedMark { mark: BucketMark { source, target, least }, moved: moved.len() as u32 });
    let to = &mut buckets[usize::from(target)];
    for resident in moved {
        to.push(BalanceItem { hops: resident.hops + 1, ..resident });
    }
}

/// Whether a cut at `index` would separate items of equal order.
fn is_amid_equals(index: usize, count: usize, order_at: impl Fn(usize) -> u32) -> bool {
    index > 0 && index < count && order_at(index - 1) == order_at(index)
}

fn sort(number: u16, bucket: &mut Bucket) {
    bucket.residents.sort_unstable_by_key(|resident| (order_in(number, resident.order), resident.item));
}

fn check_equal_orders(number: u16, bucket: &Bucket) -> Result<(), Imbalance> {
    for equals in bucket.residents.chunk_by(|a, b| a.order as u32 == b.order as u32) {
        let bytes: u64 = equals.iter().map(|resident| u64::from(resident.bytes)).sum();
        if bytes > CAPACITY_BYTES as u64 {
            return Err(Imbalance::EqualOrders { bucket: number, bytes });
        }
    }
    Ok(())
}
