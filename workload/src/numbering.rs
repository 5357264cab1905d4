//! Maps the items of a load, numbered in the order of puts, to the numbers of their keys.

use crate::keys::Permutation;
use crate::ycsb;

/// A mapping from an item to the number of its key.
#[derive(Clone, Copy, Debug)]
pub enum Numbering {
    /// Ascending keys.
    Sequential,
    /// Keys in the order of a permutation.
    Random(Permutation),
    /// YCSB's order: keys spread by a hash.
    Scattered,
}

impl Numbering {
    /// The number of the key of `item`.
    pub fn number(&self, item: u64) -> u64 {
        match self {
            Numbering::Sequential => item,
            Numbering::Random(order) => order.of(item),
            Numbering::Scattered => ycsb::key_number(item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each mapping gives every item a key of its own.
    #[test]
    fn items_share_no_key() {
        let random = Numbering::Random(Permutation::new(1000, 3));
        for numbering in [Numbering::Sequential, random, Numbering::Scattered] {
            let mut numbers: Vec<u64> = (0..1000).map(|item| numbering.number(item)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 1000, "{numbering:?}");
        }
        assert_eq!(Numbering::Sequential.number(7), 7);
    }
}
