//! Random numbers from a seed by splitmix64, so that a run can be repeated.

#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// A sequence of its own for each seed and name.
    pub(super) fn new(seed: u64, name: &str) -> Random {
        let mut random = Random { state: seed };
        for byte in name.bytes() {
            random.state = random.next() ^ u64::from(byte);
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// `count` different numbers below `bound`, in random order; all of them, ascending, if there are no
    /// more.
    pub(super) fn some_below(&mut self, bound: u64, count: usize) -> Vec<u64> {
        if bound <= count as u64 {
            return (0..bound).collect();
        }
        let mut chosen = Vec::with_capacity(count);
        let mut seen = std::collections::BTreeSet::new();
        while chosen.len() < count {
            let one = self.below(bound);
            if seen.insert(one) {
                chosen.push(one);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same seed and name give the same numbers, others do not; the numbers of a set differ.
    #[test]
    fn sequences_come_again() {
        let of = |seed, name| Random::new(seed, name).some_below(1000, 50);
        assert_eq!(of(1, "a"), of(1, "a"));
        assert_ne!(of(1, "a"), of(2, "a"));
        assert_ne!(of(1, "a"), of(1, "b"));
        let mut all = of(1, "a");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 50);
        assert_eq!(Random::new(1, "a").some_below(3, 50), [0, 1, 2]);
    }
}
