//! Bits of filter by level: which filter a new table gets, from the settings and the sizes of the levels.
//!
//! Every get that reaches a level asks the level's filter, for any size of the level, but the filter's memory
//! grows with the level. So the same memory avoids more reads in a small level than in a large one. For a
//! given memory the sum of the rates p is least if they fall geometrically towards the top: p_i = p_L / T^(L
//! - i) (Dayan, Athanassoulis, Idreos, "Monkey: Optimal navigable key-value store", 2017). In bits:
//! ```text
//! bits_i = clamp(b_L + (L - i) × ln T / ln² 2, 0, 20), b_L so that Σ items_i × bits_i = budget
//! ```
//! A level that would get less than one bit gets none, and its bits go to the others. Levels without items do
//! not count: L - i is the number of levels with items below. All arithmetic is in integers, so the result is
//! the same on every machine. Pure functions.

use crate::base::settings::KeyspaceSettings;
use crate::format::table::filter::{FUSE_MILLIBITS, FilterKind, FilterPlan, MILLI};

/// The most bits of a level, unless the average is higher.
const MILLIBITS_MAX: i64 = 20 * MILLI as i64;
/// With more bits, a cache-line Bloom filter has fewer false positives than a binary fuse.
const FUSE_MILLIBITS_MAX: u32 = 12_500;

/// The setting `filter_kind` for filters by column.
const COLUMN: u64 = 5;

/// The filter of a new table of `level`. `items`: the items of each level, including the new table's.
pub(crate) fn plan(settings: &KeyspaceSettings, items: &[u64], level: usize) -> FilterPlan {
    let average = settings.filter_bits_per_key as u32 * MILLI;
    let millibits_per_key = match settings.filter_allocation {
        0 => average,
        _ => by_level(items, settings.size_ratio, average).get(level).copied().unwrap_or(average),
    };
    let is_last = items.iter().skip(level + 1).all(|items| *items == 0);
    let is_fuse_best = (FUSE_MILLIBITS..=FUSE_MILLIBITS_MAX).contains(&millibits_per_key);
    let kind = match settings.filter_kind {
        0 if is_last && is_fuse_best => FilterKind::Fuse,
        0 | 3 | COLUMN => FilterKind::Line,
        2 => FilterKind::Bloom,
        4 => FilterKind::Fuse,
        _ => return FilterPlan::NONE,
    };
    FilterPlan { kind, millibits_per_key, probes: settings.filter_probes as u8 }
}

/// Whether filters of a trie's nodes are by column for any amount of memory.
pub(crate) fn is_by_column(settings: &KeyspaceSettings) -> bool {
    settings.filter_kind == COLUMN
}

/// Thousandths of a bit for each key, by level; the average over all keys is `average`.
fn by_level(items: &[u64], size_ratio: u64, average: u32) -> Vec<u32> {
    let step = step_millibits(size_ratio);
    let budget: u128 = items.iter().map(|items| u128::from(*items)).sum::<u128>() * u128::from(average);
    let highest = MILLIBITS_MAX.max(i64::from(average));
    // For each level, the number of levels with items below it; `None` for a level without items.
    let mut below = 0;
    let mut depths: Vec<Option<i64>> = items
        .iter()
        .rev()
        .map(|items| {
            let depth = (*items > 0).then_some(below);
            below += i64::from(*items > 0);
            depth
        })
        .collect();
    depths.reverse();
    let bits = |base: i64, depth: i64| (base + depth * step).clamp(0, highest);
    let cost = |base: i64, depths: &[Option<i64>]| -> u128 {
        let of_level = |(items, depth): (&u64, &Option<i64>)| {
            u128::from(*items) * depth.map_or(0, |depth| bits(base, depth) as u128)
        };
        items.iter().zip(depths).map(of_level).sum()
    };
    loop {
        // The largest base within the budget: at the low end all levels get nothing, at the high end the
        // most.
        let (mut low, mut high) = (-below * step, highest + 1);
        while high - low > 1 {
            let middle = low + (high - low).div_euclid(2);
            if cost(middle, &depths) <= budget { low = middle } else { high = middle }
        }
        let poor =
            depths.iter().rposition(|depth| depth.is_some_and(|depth| bits(low, depth) < i64::from(MILLI)));
        match poor {
            Some(level) => depths[level] = None,
            None => {
                return depths.iter().map(|depth| depth.map_or(0, |depth| bits(low, depth) as u32)).collect();
            }
        }
    }
}

/// ln T / ln² 2 in thousandths, as log₂ T / ln 2, with a logarithm of twelve binary places.
fn step_millibits(size_ratio: u64) -> i64 {
    const PLACES: u32 = 12;
    const ONE: u128 = 1 << 32;
    let whole = size_ratio.max(2).ilog2();
    let mut value = (u128::from(size_ratio.max(2)) << 32) >> whole;
    let mut logarithm = i64::from(whole);
    for _ in 0..PLACES {
        value = (value * value) >> 32;
        let bit = value >= 2 * ONE;
        value >>= u32::from(bit);
        logarithm = logarithm << 1 | i64::from(bit);
    }
    (logarithm * 1_442_695 / 1000) >> PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected reads for an absent key, with one run a level, at the false positive rate of a Bloom filter.
    fn false_reads(bits: &[u32], items: &[u64]) -> f64 {
        let rate = |bits: u32| (-f64::from(bits) / 1000.0 * std::f64::consts::LN_2.powi(2)).exp();
        bits.iter().zip(items).filter(|(_, items)| **items > 0).map(|(bits, _)| rate(*bits)).sum()
    }

    fn spent(bits: &[u32], items: &[u64]) -> u128 {
        bits.iter().zip(items).map(|(bits, items)| u128::from(*bits) * u128::from(*items)).sum()
    }

    /// The bits are within the budget, and less than a thousandth of a bit a key is unspent. Four and more
    /// levels cost clearly fewer false reads than equal bits: for T = 8 and five levels about 3.25 times
    /// fewer.
    #[test]
    fn monkey_spends_the_budget_better() {
        for (ratio, levels, gain) in [(8, 5, 3.0), (4, 4, 1.8), (10, 4, 2.4), (2, 8, 1.9)] {
            let items: Vec<u64> = (0..levels).map(|level| 100_000 * u64::pow(ratio, level)).collect();
            let average = 10_000;
            let bits = by_level(&items, ratio, average);
            let all: u64 = items.iter().sum();
            let budget = u128::from(all) * u128::from(average);
            assert!(spent(&bits, &items) <= budget, "{bits:?}");
            assert!(spent(&bits, &items) + u128::from(all) > budget, "{bits:?} leave bits unused");
            let uniform = false_reads(&vec![average; items.len()], &items);
            let found = uniform / false_reads(&bits, &items);
            assert!(found > gain, "T {ratio}, {levels} levels: {found}");
        }
    }

    /// Steps match the formula: 1.44 bits for T = 2, 2.89 for 4, 4.33 for 8, 4.79 for 10.
    #[test]
    fn steps_are_as_stated() {
        for (ratio, step) in [(2, 1442), (4, 2885), (8, 4328), (10, 4792), (64, 8656)] {
            assert!((step_millibits(ratio) - step).abs() <= 1, "{ratio}: {}", step_millibits(ratio));
        }
    }

    /// A small budget goes to the upper levels only, a large one equally to all; a single level has the
    /// average; levels without items have none and do not count.
    #[test]
    fn edges() {
        assert_eq!(by_level(&[10, 100, 0, 1000], 10, 0), [0; 4]);
        let few = by_level(&[100, 1000, 10_000], 10, 1000);
        assert!(few[2] == 0 && few[1] > 7000 && few[0] > few[1], "{few:?}");
        assert_eq!(by_level(&[1, 8, 64], 8, 24_000), [24_000; 3]);
        assert_eq!(by_level(&[70], 8, 10_000), [10_000]);
        assert_eq!(by_level(&[], 8, 10_000), [0; 0]);
        let gap = by_level(&[100, 0, 800, 6400], 8, 10_000);
        assert_eq!((gap[1], gap[0] - gap[2]), (0, gap[2] - gap[3]), "{gap:?}");
        for average in 0..=24 {
            for items in [vec![1, 1, 1], vec![1_000_000, 1, 10], vec![u64::MAX / 4, u64::MAX / 4]] {
                let bits = by_level(&items, 2, average * 1000);
                let budget = items.iter().map(|items| u128::from(*items)).sum::<u128>() * u128::from(average);
                assert!(spent(&bits, &items) <= budget * 1000, "{items:?} {average}: {bits:?}");
            }
        }
    }

    /// Settings choose the kind. The default is a fuse if its bits fit, in the last level only.
    #[test]
    fn settings_choose_the_kind() {
        let items = [1000, 10_000, 100_000, 0];
        let kind = |name: &str, bits: u64, level: usize| {
            let mut settings = KeyspaceSettings { filter_bits_per_key: bits, ..KeyspaceSettings::default() };
            settings.filter_kind = KeyspaceSettings::number("filter_kind", name.into()).expect("a name");
            plan(&settings, &items, level).kind
        };
        let found =
            ["auto", "none", "bloom", "cache_line_bloom", "binary_fuse"].map(|name| kind(name, 10, 2));
        let (line, fuse) = (FilterKind::Line, FilterKind::Fuse);
        assert_eq!(found, [line, FilterKind::None, FilterKind::Bloom, line, fuse]);
        assert_eq!([kind("auto", 12, 2), kind("auto", 12, 1), kind("auto", 16, 2)], [fuse, line, line]);
        let uniform = KeyspaceSettings { filter_allocation: 0, ..KeyspaceSettings::default() };
        assert!((0..4).all(|level| plan(&uniform, &items, level) == FilterPlan::of_bits(10)));
        let monkey = KeyspaceSettings { filter_probes: 3, ..KeyspaceSettings::default() };
        assert!(plan(&monkey, &items, 0).millibits_per_key > 17_000);
        assert_eq!(plan(&monkey, &items, 0).probes, 3);
    }
}
