//! An item, its order and its home bucket. Pure.

use crate::base::hash::KeyHash;

/// Bits of the order field.
const ORDER_BITS: u32 = 48;
/// Most buckets of a table, as a power of two: 32 MiB, as in the paper.
pub(super) const BUCKET_BITS_MAX: u32 = 13;

/// An item, and its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HTableItem {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Its order, from [`order_of`] or another hash: 48 bits, the highest of which choose the bucket.
    pub order: u64,
}

/// The order field of a key's hash: 48 bits at the same position as in the store's own hash, which has a
/// secret.
pub fn order_of(key: &[u8]) -> u64 {
    KeyHash(xxhash_rust::xxh3::xxh3_128(key)).order()
}

/// The home bucket of an order.
pub(super) fn home(order: u64, bucket_bits: u32) -> u16 {
    let field = order & ((1 << ORDER_BITS) - 1);
    (field >> (ORDER_BITS - bucket_bits)) as u16
}

/// The sort key of an order in one bucket. The rotation differs by bucket. Without it the same items would be
/// the greatest in every bucket, and would migrate from each.
pub(super) fn order_in(bucket: u16, order: u64) -> u32 {
    (order as u32).rotate_left(u32::from(bucket) % 32)
}
