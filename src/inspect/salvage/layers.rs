//! Layers of tables of unknown age. A table is in a higher layer than every earlier table whose key range
//! overlaps its own.
//!
//! So the tables of one layer have disjoint key ranges, and none of their items hides another. Stacked in
//! order, the layers show for each key the item of the last table. Pure.
//!
//! Cost of a table: O(log n), amortized over the tables of a tree.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// The layers of one tree so far.
#[derive(Debug, Default)]
pub(super) struct LayerMap {
    /// The highest layer from each key up to the next key; 0 before the first key.
    tops: BTreeMap<Vec<u8>, u32>,
}

impl LayerMap {
    /// Adds the next table, with keys from `min` to `max`, and returns its layer. The lowest layer is 1.
    pub(super) fn place(&mut self, min: &[u8], max: &[u8]) -> u32 {
        // The least key greater than both `max` and `min`.
        let end = [max.max(min), &[0]].concat();
        let before = |key: &[u8]| self.tops.range::<[u8], _>((Unbounded, Included(key))).next_back();
        let top_of = |found: Option<(&Vec<u8>, &u32)>| found.map_or(0, |(_, top)| *top);
        let (at_min, at_end) = (top_of(before(min)), top_of(before(&end)));
        let inside = self.tops.range::<[u8], _>((Excluded(min), Excluded(&end[..])));
        let inside: Vec<(Vec<u8>, u32)> = inside.map(|(key, top)| (key.clone(), *top)).collect();
        let highest = inside.iter().map(|(_, top)| *top).fold(at_min, u32::max);
        inside.iter().for_each(|(key, _)| _ = self.tops.remove(key));
        self.tops.insert(min.to_vec(), highest + 1);
        self.tops.insert(end, at_end);
        highest + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Overlapping tables are in ascending layers; disjoint tables share a layer.
    #[test]
    fn later_tables_lie_above_those_they_overlap() {
        let mut layers = LayerMap::default();
        let mut place = |min: &str, max: &str| layers.place(min.as_bytes(), max.as_bytes());
        assert_eq!(place("b", "d"), 1);
        assert_eq!(place("e", "f"), 1, "beside it");
        assert_eq!(place("d", "d"), 2, "its last key");
        assert_eq!(place("a", "b"), 2, "its first key");
        assert_eq!(place("c", "c"), 2, "within it");
        assert_eq!(place("a", "z"), 3, "all of them");
        assert_eq!(place("f\0", "f\0"), 4);
        assert_eq!(place("zz", "zz"), 1);
        assert_eq!(place("", "a"), 4);
    }

    /// Layers equal those computed by comparing each table with all earlier ones.
    #[test]
    fn layers_are_as_by_comparing_all() {
        let mut state = 1u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) % below) as u8
        };
        let mut layers = LayerMap::default();
        let mut placed: Vec<(u8, u8, u32)> = Vec::new();
        for _ in 0..500 {
            let min = random(200);
            let max = min.saturating_add(random(30));
            let below = placed.iter().filter(|(first, last, _)| *first <= max && min <= *last);
            let expected = 1 + below.map(|(_, _, layer)| *layer).max().unwrap_or(0);
            assert_eq!(layers.place(&[min], &[max]), expected, "{min} to {max}");
            placed.push((min, max, expected));
        }
    }
}
