//! The generator of every choice in the simulator. Tests may use it too. Not for secrets.
//!
//! xoshiro256** seeded by SplitMix64 (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
//! 2021), as published: small, and the same on every machine.

use crate::base::sync::Mutex;

use super::super::env::Random;

/// A random stream determined by its seed.
#[derive(Clone, Debug)]
pub(crate) struct SimRng {
    state: [u64; 4],
}

impl SimRng {
    pub(crate) fn new(seed: u64) -> SimRng {
        let mut mix = seed;
        SimRng { state: std::array::from_fn(|_| split_mix(&mut mix)) }
    }

    pub(crate) fn u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in `0..bound`; its bias of at most `bound` / 2^64 does not matter here.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A random index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// True with probability 1 / `count`.
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// [`Random`] from a seed.
#[derive(Debug)]
pub(crate) struct SimRandom(Mutex<SimRng>);

impl SimRandom {
    pub(crate) fn new(seed: u64) -> SimRandom {
        SimRandom(Mutex::new(SimRng::new(seed)))
    }
}

impl Random for SimRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed determines all numbers, and two seeds give different numbers.
    #[test]
    fn seeds_decide() {
        let stream = |seed| {
            let random = SimRandom::new(seed);
            let mut bytes = [0; 13];
            random.fill(&mut bytes);
            (bytes, random.u64())
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    /// The state steps as published: from the state 1, 2, 3, 4 the first numbers are known.
    #[test]
    fn numbers_are_the_published_ones() {
        let mut rng = SimRng { state: [1, 2, 3, 4] };
        let numbers = [rng.u64(), rng.u64(), rng.u64(), rng.u64()];
        assert_eq!(numbers, [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    /// Every number below a bound comes up about as often as the others.
    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut rng = SimRng::new(3);
        let mut counts = [0; 7];
        for _ in 0..7000 {
            counts[rng.index(7)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        let ones = (0..1000).filter(|_| rng.one_in(4)).count();
        assert!((180..320).contains(&ones), "{ones}");
    }
}
