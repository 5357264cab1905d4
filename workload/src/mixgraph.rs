//! The workload mixgraph: gets, puts and scans modelled on Facebook's social graph (Cao et al.,
//! "Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook", FAST 2020), with the
//! parameters that db_bench's wiki gives for `Prefix_dist`.
//!
//! Taken: the hotness of key ranges (a sum of two exponentials over 30 ranges), of keys within a range (a
//! power law), sizes of values and lengths of scans (generalized Pareto), the shares of the operations.
//! Changed: a permutation instead of a hash gives the position of a range's keys, so that no two share a
//! position. Left out: the sine of the request rate; each request follows the answer to the last one.

use crate::dice::Dice;
use crate::distribution::unit;
use crate::keys::Permutation;

/// Length of the paper's keys.
pub const KEY_BYTES: usize = 48;

/// Shares of the operations, in percent; the rest are scans.
const GETS_PERCENT: u64 = 83;
const PUTS_PERCENT: u64 = 14;

const RANGES: usize = 30;
const RANGE_A: f64 = 14.18;
const RANGE_B: f64 = -2.917;
const RANGE_C: f64 = 0.0164;
const RANGE_D: f64 = -0.08082;

const KEY_A: f64 = 0.002312;
const KEY_B: f64 = 0.3467;

const VALUE_K: f64 = 0.2615;
const VALUE_SIGMA: f64 = 25.45;
const VALUE_BYTES_MIN: u64 = 10;
const VALUE_BYTES_MAX: u64 = 1024;

const SCAN_K: f64 = 2.517;
const SCAN_SIGMA: f64 = 14.236;
const SCAN_ITEMS_MAX: u64 = 10_000;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// A get of a present key.
    Get,
    /// A put of a present key, with a new value.
    Put {
        /// Length of the value.
        value_bytes: u64,
    },
    /// A scan from a key on.
    Scan {
        /// Limit of items to read.
        items: u64,
    },
}

/// Draws requests and their keys.
#[derive(Clone, Debug)]
pub struct Mixgraph {
    /// For each range, hottest first: the cumulative probability of it and all hotter ones.
    hotness: Vec<f64>,
    /// Maps the hotness rank of a range to its position among the keys.
    ranges: Permutation,
    keys_of_range: u64,
    keys: u64,
    places: Permutation,
}

impl Mixgraph {
    /// A workload over the keys with numbers below `keys`.
    pub fn new(keys: u64, seed: u64) -> Mixgraph {
        let weights: Vec<f64> = (1..=RANGES).map(|range| range_weight(range as f64)).collect();
        let sum: f64 = weights.iter().sum();
        let hotness = weights
            .iter()
            .scan(0.0, |below, weight| {
                *below += weight / sum;
                Some(*below)
            })
            .collect();
        let keys_of_range = (keys / RANGES as u64).max(1);
        Mixgraph {
            hotness,
            ranges: Permutation::new(RANGES as u64, seed),
            keys_of_range,
            keys: keys.max(1),
            places: Permutation::new(keys_of_range, seed ^ 1),
        }
    }

    /// Draws the number of a key.
    pub fn key(&self, dice: &mut Dice) -> u64 {
        let drawn = unit(dice);
        let hotter = self.hotness.partition_point(|below| *below <= drawn).min(RANGES - 1);
        let rank = (power_inverse(unit(dice)) as u64).min(u64::MAX / 2) % self.keys_of_range;
        (self.ranges.of(hotter as u64) * self.keys_of_range + self.places.of(rank)) % self.keys
    }

    /// Draws a request.
    pub fn request(&self, dice: &mut Dice) -> Request {
        match dice.below(100) {
            drawn if drawn < GETS_PERCENT => Request::Get,
            drawn if drawn < GETS_PERCENT + PUTS_PERCENT => Request::Put { value_bytes: value_bytes(dice) },
            _ => Request::Scan { items: scan_items(dice) },
        }
    }
}

fn range_weight(range: f64) -> f64 {
    RANGE_A * (RANGE_B * range).exp() + RANGE_C * (RANGE_D * range).exp()
}

/// The rank below which the share `u` of the accesses falls, by the fitted power law.
fn power_inverse(u: f64) -> f64 {
    (u / KEY_A).powf(1.0 / KEY_B)
}

fn value_bytes(dice: &mut Dice) -> u64 {
    let drawn = pareto(dice, VALUE_K, VALUE_SIGMA);
    match drawn.ceil() as u64 {
        small if small < VALUE_BYTES_MIN => VALUE_BYTES_MIN,
        large if large > VALUE_BYTES_MAX => large % VALUE_BYTES_MAX,
        fits => fits,
    }
}

fn scan_items(dice: &mut Dice) -> u64 {
    pareto(dice, SCAN_K, SCAN_SIGMA).ceil() as u64 % SCAN_ITEMS_MAX
}

/// A draw from the generalized Pareto distribution that starts at 0.
fn pareto(dice: &mut Dice, k: f64, sigma: f64) -> f64 {
    let u = 1.0 - unit(dice);
    sigma * (u.powf(-k) - 1.0) / k
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    fn share(count: u64) -> f64 {
        count as f64 / DRAWS as f64
    }

    /// Requests have the published shares.
    #[test]
    fn the_mix_is_83_14_3() {
        let (mix, mut dice) = (Mixgraph::new(1000, 1), Dice::new(1));
        let (mut gets, mut puts, mut scans) = (0, 0, 0);
        for _ in 0..DRAWS {
            match mix.request(&mut dice) {
                Request::Get => gets += 1,
                Request::Put { .. } => puts += 1,
                Request::Scan { .. } => scans += 1,
            }
        }
        assert!((share(gets) - 0.83).abs() < 0.005, "{gets}");
        assert!((share(puts) - 0.14).abs() < 0.005 && (share(scans) - 0.03).abs() < 0.003, "{puts} {scans}");
    }

    /// Values have from 1 to 1024 bytes. Half of them are below the distribution's median, and the mean is
    /// about 35 bytes, as others measured of db_bench.
    #[test]
    fn values_are_small() {
        let mut dice = Dice::new(2);
        let mut sizes: Vec<u64> = (0..DRAWS).map(|_| value_bytes(&mut dice)).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / DRAWS as f64;
        assert!((33.0..38.0).contains(&mean), "{mean}");
        sizes.sort_unstable();
        assert!(sizes[0] >= 1 && sizes[sizes.len() - 1] <= VALUE_BYTES_MAX);
        let median = VALUE_SIGMA * (2_f64.powf(VALUE_K) - 1.0) / VALUE_K;
        assert!((sizes[sizes.len() / 2] as f64 - median).abs() <= 1.5, "{median}");
    }

    /// Half of the scans are below the distribution's median, none above the limit.
    #[test]
    fn scans_have_a_long_tail() {
        let mut dice = Dice::new(3);
        let mut lengths: Vec<u64> =
            (0..DRAWS).map(|_| pareto(&mut dice, SCAN_K, SCAN_SIGMA) as u64).collect();
        lengths.sort_unstable();
        let median = SCAN_SIGMA * (2_f64.powf(SCAN_K) - 1.0) / SCAN_K;
        assert!((lengths[lengths.len() / 2] as f64 - median).abs() <= 2.0, "{median}");
        assert!((0..DRAWS).all(|_| scan_items(&mut dice) < SCAN_ITEMS_MAX));
    }

    /// The hotness of ranges follows the two exponentials: the hottest has the published lead, and no key is
    /// outside.
    #[test]
    fn ranges_are_hot_as_fitted() {
        let keys = 30_000;
        let (mix, mut dice) = (Mixgraph::new(keys, 4), Dice::new(5));
        let mut counts = vec![0_u64; RANGES];
        for _ in 0..DRAWS {
            counts[(mix.key(&mut dice) / (keys / RANGES as u64)) as usize] += 1;
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let weights: Vec<f64> = (1..=RANGES).map(|range| range_weight(range as f64)).collect();
        let sum: f64 = weights.iter().sum();
        for (count, weight) in counts.iter().zip(weights).take(3) {
            assert!((share(*count) - weight / sum).abs() < 0.005, "{count}");
        }
    }

    /// The same seed draws the same requests; a small number of keys works.
    #[test]
    fn requests_are_seeded() {
        let draw = |keys| {
            let (mix, mut dice) = (Mixgraph::new(keys, 4), Dice::new(5));
            (0..100).map(|_| (mix.key(&mut dice), mix.request(&mut dice))).collect::<Vec<_>>()
        };
        assert_eq!(draw(1000), draw(1000));
        assert!(draw(7).iter().all(|(key, _)| *key < 7));
    }
}
