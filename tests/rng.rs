//! Random choices from a seed, and reports of failing seeds. SplitMix64 (Steele, Lea and Flood, 2014).

/// A stream of numbers decided by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x5bf0_3635)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.u64()) * bound as u128) >> 64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Runs `test` with `count` seeds, or with those set in the environment.
pub(crate) fn with_seeds(name: &str, count: u64, test: impl Fn(u64)) {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let [one, some] = ["TRINE_SEED", "TRINE_SEEDS"].map(|name| std::env::var(name).ok());
    let seeds = match (&one, &some) {
        (Some(seed), _) => number(seed)..number(seed) + 1,
        (None, Some(text)) => match text.split_once("..") {
            Some((start, end)) => number(start)..number(end),
            None => 0..number(text),
        },
        (None, None) => 0..count,
    };
    for seed in seeds {
        let _told = Told { name, seed };
        test(seed);
    }
}

/// Reports the seed of a test that panics.
struct Told<'n> {
    name: &'n str,
    seed: u64,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay it with: TRINE_SEED={} cargo test --test main {}", self.seed, self.name);
        }
    }
}
