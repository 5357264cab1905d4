//! A Bloom filter whose bits and hashes are given, not derived: Lemur's and Drizard's.
//!
//! Two hashes make all probes, h1 + j h2 (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006);
//! Lemur took them from MurmurHash, here both are halves of one XXH3. It is not the store's filter. A plain
//! value.
//!
//! Invariant: a key that was added is always admitted; nothing is ever taken out.

use super::knobs::{Knob, Knobs};

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bloom {
    words: Vec<u64>,
    bits: u64,
    hashes: u64,
}

/// What a key is in every filter: computed once a get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed {
    first: u64,
    step: u64,
}

impl Hashed {
    pub(super) fn of(key: &[u8]) -> Hashed {
        let hash = xxhash_rust::xxh3::xxh3_128(key);
        // Odd, so that the probes do not stay in one place.
        Hashed { first: hash as u64, step: (hash >> 64) as u64 | 1 }
    }
}

impl Bloom {
    /// An empty filter of the knobs' size.
    pub(super) fn new(knobs: &Knobs) -> Bloom {
        let bits = knobs.number(Knob::FilterBits);
        let words = vec![0; bits.div_ceil(64) as usize];
        Bloom { words, bits, hashes: knobs.number(Knob::FilterHashes) }
    }

    pub(super) fn add(&mut self, key: Hashed) {
        for probe in 0..self.hashes {
            let bit = self.bit(key, probe);
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// False: the key was never added.
    pub(super) fn admits(&self, key: Hashed) -> bool {
        (0..self.hashes).all(|probe| {
            let bit = self.bit(key, probe);
            self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
        })
    }

    /// Takes in what `other`, of the same size, has.
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

    /// How many bits are set.
    pub(super) fn ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The place of a probe, by a multiplication instead of a remainder.
    fn bit(&self, key: Hashed, probe: u64) -> u64 {
        let hash = key.first.wrapping_add(probe.wrapping_mul(key.step));
        ((u128::from(hash) * u128::from(self.bits)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Preset;

    /// No key that was added is refused, a union has both sides' keys, and the share of strangers admitted is
    /// what (1 - e^(-kn/m))^k says, within 15 %.
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
                half.add(Hashed::of(&key.to_be_bytes()));
            }
            even.unite(&odd);
            let admits = |key: u32| even.admits(Hashed::of(&key.to_be_bytes()));
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
