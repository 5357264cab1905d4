//! The Bloom filter of Lemur and Drizard, whose numbers of bits and hashes are settings.
//!
//! Two hashes make all probes, h1 + j h2 (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006).
//! Lemur took them from MurmurHash; here both are halves of one XXH3. The store's filter is another one. A
//! plain value.
//!
//! Invariant: the filter admits every key that was added; no key is ever removed.

use super::knobs::{Knob, Knobs};

/// The filter; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bloom {
    words: Vec<u64>,
    bits: u64,
    hashes: u64,
}

/// The hash of a key, computed once a get and used with every filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterHash {
    first: u64,
    step: u64,
}

impl FilterHash {
    pub(super) fn of(key: &[u8]) -> FilterHash {
        let hash = xxhash_rust::xxh3::xxh3_128(key);
        // An odd step makes the probes differ.
        FilterHash { first: hash as u64, step: (hash >> 64) as u64 | 1 }
    }
}

impl Bloom {
    /// An empty filter with the size that the knobs set.
    pub(super) fn new(knobs: &Knobs) -> Bloom {
        let bits = knobs.number(Knob::FilterBits);
        let words = vec![0; bits.div_ceil(64) as usize];
        Bloom { words, bits, hashes: knobs.number(Knob::FilterHashes) }
    }

    pub(super) fn add(&mut self, key: FilterHash) {
        for probe in 0..self.hashes {
            let bit = self.bit(key, probe);
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// False if the key was never added.
    pub(super) fn admits(&self, key: FilterHash) -> bool {
        (0..self.hashes).all(|probe| {
            let bit = self.bit(key, probe);
            self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
        })
    }

    /// Adds the keys of `other`, a filter of the same size.
    pub(super) fn unite(&mut self, other: &Bloom) {
        assert_eq!((self.bits, self.hashes), (other.bits, other.hashes), "filters of one store are alike");
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    pub(super) fn hashes(&self) -> u64 {
        self.hashes
    }

    /// Number of bits that are set.
    pub(super) fn ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The bit of a probe, by a multiplication instead of a remainder.
    fn bit(&self, key: FilterHash, probe: u64) -> u64 {
        let hash = key.first.wrapping_add(probe.wrapping_mul(key.step));
        ((u128::from(hash) * u128::from(self.bits)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Preset;

    /// The filter admits every key that was added, and a union admits the keys of both sides. The rate of
    /// false positives is (1 - e^(-kn/m))^k, within 15 %.
    #[test]
    fn false_positives_are_as_the_formula_has_them() {
        for (bits_per_key, hashes) in [(2u64, 1u64), (5, 3), (8, 6), (10, 7), (16, 11)] {
            let mut knobs = Preset::Drizard.knobs();
            let count = 20_000u32;
            let bits = bits_per_key * u64::from(count);
            knobs.set("filter_bits", &bits.to_string()).expect("in range");
            knobs.set("filter_hashes", &hashes.to_string()).expect("in range");
            let (mut even, mut odd) = (Bloom::new(&knobs), Bloom::new(&knobs));
            for key in 0..count {
                let half = if key % 2 == 0 { &mut even } else { &mut odd };
                half.add(FilterHash::of(&key.to_be_bytes()));
            }
            even.unite(&odd);
            let admits = |key: u32| even.admits(FilterHash::of(&key.to_be_bytes()));
            assert!((0..count).all(admits));
            let strangers = 400_000;
            let admitted = (count..count + strangers).filter(|key| admits(*key)).count();
            let rate = admitted as f64 / f64::from(strangers);
            let share = (hashes * u64::from(count)) as f64 / bits as f64;
            let expected = (1.0 - (-share).exp()).powi(hashes as i32);
            assert!(rate < expected * 1.15 + 5e-5 && rate > expected * 0.85 - 5e-5, "{rate} for {expected}");
            assert!(even.ones() <= hashes * u64::from(count));
        }
    }
}
