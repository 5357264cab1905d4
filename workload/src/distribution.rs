//! Distributions that choose the next item: uniform, Zipf, latest, hotspot. Deterministic for a seed.
//!
//! Zipf draws ranks by rejection-inversion (Hörmann and Derflinger, 1996). It is exact for any count and
//! exponent in constant memory; YCSB's own generator approximates all but the first two ranks. The exponent,
//! the scrambling (popular items are spread over the keys), latest and hotspot are YCSB's (Cooper et al.,
//! 2010).

use clap::ValueEnum;

use crate::dice::Dice;
use crate::keys::Permutation;

/// YCSB's exponent.
pub const ZIPF_EXPONENT: f64 = 0.99;

/// YCSB's hotspot: this percentage of the items ...
const HOT_ITEMS_PERCENT: u64 = 20;

/// ... gets this percentage of the operations.
const HOT_OPERATIONS_PERCENT: u64 = 80;

/// How items are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Distribution {
    /// Every item alike.
    Uniform,
    /// Zipf with exponent 0.99, popular items scattered over the keys.
    Zipf,
    /// Zipf, the newest item the most popular.
    Latest,
    /// 80 % of the operations on 20 % of the items, those with the lowest numbers.
    Hotspot,
}

impl Distribution {
    /// The name in arguments and results.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipf => "zipf",
            Distribution::Latest => "latest",
            Distribution::Hotspot => "hotspot",
        }
    }
}

/// Chooses among items numbered in the order they were loaded.
#[derive(Clone, Debug)]
pub struct Chooser {
    distribution: Distribution,
    zipf: Zipf,
    scramble: Permutation,
}

impl Chooser {
    /// Chooses among `count` items; with [`Distribution::Latest`], among the `count` newest.
    pub fn new(distribution: Distribution, count: u64, seed: u64) -> Chooser {
        let zipf = Zipf::new(count, ZIPF_EXPONENT);
        Chooser { distribution, zipf, scramble: Permutation::new(count, seed) }
    }

    /// Chooses an item; `now` is the current number of items.
    pub fn choose(&self, now: u64, dice: &mut Dice) -> u64 {
        let count = self.zipf.count;
        match self.distribution {
            Distribution::Uniform => dice.below(count),
            Distribution::Zipf => self.scramble.of(self.zipf.rank(dice)),
            Distribution::Latest => now.max(count) - 1 - self.zipf.rank(dice),
            Distribution::Hotspot => {
                let hot = (count * HOT_ITEMS_PERCENT / 100).clamp(1, count);
                if dice.below(100) < HOT_OPERATIONS_PERCENT || hot == count {
                    dice.below(hot)
                } else {
                    hot + dice.below(count - hot)
                }
            }
        }
    }
}

/// Ranks from 0 on; the probability of rank r is proportional to 1 / (r + 1) ^ exponent.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    /// A draw within this distance of a rank is never rejected.
    sure: f64,
}

impl Zipf {
    /// A distribution over `count` ranks.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf =
            Zipf { count: count.max(1), exponent, integral_first: 0.0, integral_last: 0.0, sure: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(zipf.count as f64 + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// Draws a rank.
    pub fn rank(&self, dice: &mut Dice) -> u64 {
        loop {
            let drawn = self.integral_last + unit(dice) * (self.integral_first - self.integral_last);
            let x = self.inverse(drawn);
            let rank = ((x + 0.5) as u64).clamp(1, self.count);
            let at = rank as f64;
            if at - x <= self.sure || drawn >= self.integral(at + 0.5) - self.density(at) {
                return rank - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        let factor = if scaled.abs() > 1e-8 { scaled.exp_m1() / scaled } else { 1.0 + scaled / 2.0 };
        factor * log
    }

    fn inverse(&self, y: f64) -> f64 {
        let scaled = (y * (1.0 - self.exponent)).max(-1.0);
        let factor = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (factor * y).exp()
    }
}

/// A random number in [0, 1).
pub fn unit(dice: &mut Dice) -> f64 {
    (dice.next() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 400_000;

    fn counts(distribution: Distribution, count: u64, now: u64) -> Vec<u64> {
        let (chooser, mut dice) = (Chooser::new(distribution, count, 7), Dice::new(1));
        let mut counts = vec![0; now as usize];
        for _ in 0..DRAWS {
            counts[chooser.choose(now, &mut dice) as usize] += 1;
        }
        counts
    }

    /// Asserts that the count is within five standard deviations of the expected one.
    #[track_caller]
    fn is_near(found: u64, probability: f64) {
        let expected = probability * DRAWS as f64;
        let deviation = (expected * (1.0 - probability)).sqrt();
        assert!((found as f64 - expected).abs() <= 5.0 * deviation + 1.0, "{found} for {expected}");
    }

    /// Rank frequencies follow the formula, for few items and many, and for an exponent of 1.
    #[test]
    fn zipf_ranks_follow_the_formula() {
        for (count, exponent) in [(1, 0.99), (2, 0.99), (1000, 0.99), (100_000, 0.99), (1000, 1.0), (50, 2.5)]
        {
            let (zipf, mut dice) = (Zipf::new(count, exponent), Dice::new(3));
            let mut counts = vec![0_u64; count as usize];
            for _ in 0..DRAWS {
                counts[zipf.rank(&mut dice) as usize] += 1;
            }
            let weight = |rank: u64| ((rank + 1) as f64).powf(-exponent);
            let sum: f64 = (0..count).map(weight).sum();
            for rank in (0..count).take(30) {
                is_near(counts[rank as usize], weight(rank) / sum);
            }
            let (half, above) = (count / 2, counts[(count / 2) as usize..].iter().sum());
            is_near(above, (half..count).map(weight).sum::<f64>() / sum);
        }
    }

    /// Scrambled Zipf has the same frequencies, and the popular items are not the first ones.
    #[test]
    fn scrambling_keeps_the_frequencies() {
        let mut counts = counts(Distribution::Zipf, 1000, 1000);
        assert!(counts[0] != *counts.iter().max().expect("not empty"));
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-ZIPF_EXPONENT)).sum();
        is_near(counts[0], 1.0 / sum);
        is_near(counts[1], 2_f64.powf(-ZIPF_EXPONENT) / sum);
    }

    /// Latest prefers the newest item, also after inserts.
    #[test]
    fn latest_follows_the_newest() {
        let counts = counts(Distribution::Latest, 1000, 1500);
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-ZIPF_EXPONENT)).sum();
        is_near(counts[1499], 1.0 / sum);
        assert_eq!(counts[..500].iter().sum::<u64>(), 0);
    }

    /// A fifth of the items gets four fifths of the draws; within each part all items are equally likely.
    #[test]
    fn hotspot_is_eighty_twenty() {
        let counts = counts(Distribution::Hotspot, 100, 100);
        is_near(counts[..20].iter().sum(), 0.8);
        is_near(counts[0], 0.04);
        is_near(counts[99], 0.0025);
        assert_eq!(super::Chooser::new(Distribution::Hotspot, 1, 1).choose(1, &mut Dice::new(1)), 0);
    }

    /// Uniform draws every item equally often; the same seed draws the same items.
    #[test]
    fn uniform_is_uniform_and_seeded() {
        let once = counts(Distribution::Uniform, 50, 50);
        for found in &once {
            is_near(*found, 0.02);
        }
        assert_eq!(once, counts(Distribution::Uniform, 50, 50));
    }
}
