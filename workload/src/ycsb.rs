//! YCSB's core workloads A to F (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010):
//! their mixes, their choice of items, and their keys, whose order is not that of insertion.
//!
//! Changed: an item is one value of the requested length, where YCSB has ten fields of 100 bytes; an update
//! writes the whole value.

use crate::dice::Dice;
use crate::distribution::Distribution;

/// The longest scan of workload E; lengths are uniform from 1 to this.
const SCAN_ITEMS_MAX: u64 = 100;

/// One of the core workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Core {
    /// Half reads, half updates.
    A,
    /// Mostly reads, few updates.
    B,
    /// Reads only.
    C,
    /// Reads of the latest items, few inserts.
    D,
    /// Short scans, few inserts.
    E,
    /// Half reads, half reads followed by a write of the same item.
    F,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// A read of one item.
    Read,
    /// A new value for an existing item.
    Update,
    /// A new item.
    Insert,
    /// A scan from an item on.
    Scan {
        /// Items to read.
        items: u64,
    },
    /// A read of one item, then a new value for it.
    ReadModifyWrite,
}

/// Shares in percent; the rest are reads.
struct Mix {
    update: u64,
    insert: u64,
    scan: u64,
    read_modify_write: u64,
}

impl Core {
    fn mix(self) -> Mix {
        let none = Mix { update: 0, insert: 0, scan: 0, read_modify_write: 0 };
        match self {
            Core::A => Mix { update: 50, ..none },
            Core::B => Mix { update: 5, ..none },
            Core::C => none,
            Core::D => Mix { insert: 5, ..none },
            Core::E => Mix { insert: 5, scan: 95, ..none },
            Core::F => Mix { read_modify_write: 50, ..none },
        }
    }

    /// The workload's default distribution of items.
    pub fn distribution(self) -> Distribution {
        if self == Core::D { Distribution::Latest } else { Distribution::Zipf }
    }

    /// Draws a request.
    pub fn request(self, dice: &mut Dice) -> Request {
        let Mix { update, insert, scan, read_modify_write } = self.mix();
        let drawn = dice.below(100);
        let mut below = 0;
        let mut falls = |share: u64| {
            below += share;
            drawn < below
        };
        if falls(update) {
            Request::Update
        } else if falls(insert) {
            Request::Insert
        } else if falls(scan) {
            Request::Scan { items: 1 + dice.below(SCAN_ITEMS_MAX) }
        } else if falls(read_modify_write) {
            Request::ReadModifyWrite
        } else {
            Request::Read
        }
    }
}

/// The number of an item's key, different for each item. Consecutive items have scattered keys.
pub fn key_number(item: u64) -> u64 {
    // A bijection on 63 bits: an odd factor, and invertible shifts.
    let mask = (1_u64 << 63) - 1;
    let mut mixed = item.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) & mask;
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const DRAWS: u64 = 100_000;

    /// Each workload's requests have the standard's shares; scans have 1 to 100 items.
    #[test]
    fn mixes_are_the_standards() {
        let shares: [(Core, &[(&str, f64)]); 6] = [
            (Core::A, &[("read", 0.5), ("update", 0.5)]),
            (Core::B, &[("read", 0.95), ("update", 0.05)]),
            (Core::C, &[("read", 1.0)]),
            (Core::D, &[("insert", 0.05), ("read", 0.95)]),
            (Core::E, &[("insert", 0.05), ("scan", 0.95)]),
            (Core::F, &[("read", 0.5), ("read-modify-write", 0.5)]),
        ];
        for (core, expected) in shares {
            let mut dice = Dice::new(1);
            let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
            for _ in 0..DRAWS {
                let name = match core.request(&mut dice) {
                    Request::Read => "read",
                    Request::Update => "update",
                    Request::Insert => "insert",
                    Request::ReadModifyWrite => "read-modify-write",
                    Request::Scan { items } => {
                        assert!((1..=SCAN_ITEMS_MAX).contains(&items));
                        "scan"
                    }
                };
                *counts.entry(name).or_default() += 1;
            }
            assert_eq!(counts.len(), expected.len(), "{core:?} {counts:?}");
            for (name, share) in expected {
                let found = counts[name] as f64 / DRAWS as f64;
                assert!((found - share).abs() < 0.01, "{core:?} {name} {found}");
            }
        }
    }

    /// Only workload D reads the latest items.
    #[test]
    fn only_workload_d_reads_the_latest_items() {
        let all = [Core::A, Core::B, Core::C, Core::D, Core::E, Core::F];
        let latest = all.into_iter().filter(|core| core.distribution() == Distribution::Latest);
        assert_eq!(latest.collect::<Vec<Core>>(), [Core::D]);
    }

    /// Keys of items are distinct, below 2^63, and not in the order of the items.
    #[test]
    fn keys_are_scattered() {
        let keys: Vec<u64> = (0..10_000).map(key_number).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert!(sorted != keys && sorted.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(sorted[9_999] < 1 << 63 && sorted[5_000] > 1 << 61);
    }
}
