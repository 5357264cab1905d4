//! TridentKV's model of two layers (section 3.2): a piecewise linear function over groups of keys, and a line
//! in each group.
//!
//! Groups are built greedily. A group takes keys in batches (the paper's A_s) while the mean error of its
//! line is below a limit (E_t) and its codes fit (Max_t). The last batch is undone if it breaks a limit.
//!
//! The paper leaves some points open. Added here:
//! - The first keys of groups route a key exactly.
//! - Slopes are not negative and predictions stay within the positions of their group, so the model is
//!   monotone.
//! - Codes that do not fit may drop positions instead of ending the group.
//!
//! The store does not use this model: its lines have no bounded error. The lab compares it. Any thread.

use crate::base::key::{common_prefix, head_after};

use super::alphabet::{POSITIONS_MAX, Symbols, TrainedAlphabets};
use super::code::{CodeDigits, KeyCode};
use super::spline::{Knot, SplineTrainer, predict};

/// How a group whose codes would be too large is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overflow {
    /// The group ends, as in the paper.
    CutGroup,
    /// Codes omit the last positions.
    Truncate,
}

/// Limits of groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoLayerOptions {
    /// Keys that a group takes in one batch.
    pub(crate) batch_keys: usize,
    /// Maximum mean error of a group's line.
    pub(crate) error_mean_max: f64,
    pub(crate) overflow: Overflow,
}

/// Maximum error of the first layer, in groups.
const ROUTE_ERROR: u32 = 1;

/// A trained model.
#[derive(Debug)]
pub(crate) struct TwoLayerModel {
    prefix_bytes: usize,
    /// Maps the heads of groups' first keys to group numbers.
    route: Vec<Knot>,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    first: Box<[u8]>,
    prefix_bytes: usize,
    alphabets: TrainedAlphabets,
    least: u64,
    slope: f64,
    base: f64,
    /// Positions of this group's first key and of the next group's.
    from: u32,
    to: u32,
}

impl TwoLayerModel {
    /// Trains on ascending keys, with positions that do not descend.
    pub(crate) fn train(keys: &[&[u8]], positions: &[u32], options: TwoLayerOptions) -> TwoLayerModel {
        assert_eq!(keys.len(), positions.len(), "each key has a position");
        let (mut groups, mut start): (Vec<Group>, usize) = (Vec::new(), 0);
        while start < keys.len() {
            let (mut group, end) = grow(&keys[start..], &positions[start..], options);
            start += end;
            group.to = positions.get(start).copied().unwrap_or(positions[start - 1]);
            groups.push(group);
        }
        let prefix_bytes = match (groups.first(), groups.last()) {
            (Some(first), Some(last)) => common_prefix(&first.first, &last.first),
            _ => 0,
        };
        let mut model = TwoLayerModel { prefix_bytes, route: Vec::new(), groups };
        model.route = model.train_route();
        model
    }

    fn train_route(&self) -> Vec<Knot> {
        let mut trainer = SplineTrainer::new(ROUTE_ERROR);
        let mut heads: Vec<Knot> = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            heads.push(Knot { code: head_after(&group.first, self.prefix_bytes), position: number as u32 });
        }
        heads.dedup_by_key(|knot| knot.code);
        let mut route: Vec<Knot> = heads.into_iter().filter_map(|head| trainer.add(head)).collect();
        route.extend(trainer.finish());
        route
    }

    /// The predicted position of any key. A greater key has no lesser position.
    pub(crate) fn predict(&self, key: &[u8]) -> u32 {
        let Some(group) = self.group_of(key).and_then(|number| self.groups.get(number)) else { return 0 };
        let code = group.code().of(key);
        // Each operation is monotone in the code.
        let position = (group.base + group.slope * code as f64) as u32;
        position.clamp(group.from, group.to)
    }

    /// The last group whose first key is not greater than `key`; the first group if there is none.
    fn group_of(&self, key: &[u8]) -> Option<usize> {
        let near = predict(&self.route[..], head_after(key, self.prefix_bytes)) as usize;
        let reach = ROUTE_ERROR as usize + 2;
        let window = near.saturating_sub(reach)..(near + reach).min(self.groups.len());
        let is_not_after = |group: &Group| *group.first <= *key;
        let groups = self.groups.get(window.clone())?;
        let before = groups.partition_point(is_not_after);
        let is_exact =
            (before > 0 || window.start == 0) && (before < groups.len() || window.end == self.groups.len());
        let before = if is_exact { window.start + before } else { self.groups.partition_point(is_not_after) };
        Some(before.saturating_sub(1))
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Size of the parameters: 12 bytes a knot; for each group its first key, alphabets of two bytes a
    /// position, and 30 bytes.
    pub(crate) fn parameter_bytes(&self) -> usize {
        let of_group = |group: &Group| group.first.len() + 2 * group.alphabets.positions() + 30;
        self.route.len() * 12 + self.groups.iter().map(of_group).sum::<usize>()
    }
}

/// The longest group at the beginning of these keys, and its number of keys.
fn grow(keys: &[&[u8]], positions: &[u32], options: TwoLayerOptions) -> (Group, usize) {
    let fit = |count: usize| Group::fit(&keys[..count], &positions[..count], options);
    let mut batch = options.batch_keys.clamp(1, keys.len());
    let mut best = loop {
        match fit(batch) {
            Some(group) => break (group, batch),
            // One key always fits.
            None => batch = (batch / 2).max(1),
        }
    };
    while best.1 < keys.len() {
        let count = (best.1 + options.batch_keys.max(1)).min(keys.len());
        match fit(count) {
            Some(group) => best = (group, count),
            None => break,
        }
    }
    best
}

impl Group {
    /// A group with a line through these points, if its error is within the limit.
    fn fit(keys: &[&[u8]], positions: &[u32], options: TwoLayerOptions) -> Option<Group> {
        let (first, last) = (keys.first()?, keys.last()?);
        let prefix_bytes = common_prefix(first, last);
        let rests = || keys.iter().map(|key| &key[prefix_bytes..]);
        let alphabets = TrainedAlphabets::train(rests(), Symbols::Span, POSITIONS_MAX);
        let longest = rests().map(<[u8]>::len).max().unwrap_or(0);
        if options.overflow == Overflow::CutGroup && alphabets.positions() < longest && keys.len() > 1 {
            return None;
        }
        let mut group = Group {
            first: (*first).into(),
            prefix_bytes,
            alphabets,
            least: 0,
            slope: 0.0,
            base: f64::from(positions[0]),
            from: positions[0],
            to: positions[positions.len() - 1],
        };
        group.least = group.code().number(first);
        let codes: Vec<f64> = keys.iter().map(|key| group.code().of(key) as f64).collect();
        (group.slope, group.base) = least_squares(&codes, positions);
        let error =
            |(code, position): (&f64, &u32)| (group.base + group.slope * code - f64::from(*position)).abs();
        let errors: f64 = codes.iter().zip(positions).map(error).sum();
        (keys.len() == 1 || errors <= options.error_mean_max * keys.len() as f64).then_some(group)
    }

    fn code(&self) -> KeyCode<'_> {
        KeyCode {
            prefix: &self.first[..self.prefix_bytes],
            digits: CodeDigits::Alphabets(self.alphabets.view()),
            least: self.least,
            shift: 0,
        }
    }
}

/// Slope, which is not negative, and base of the least-squares line.
fn least_squares(codes: &[f64], positions: &[u32]) -> (f64, f64) {
    let count = codes.len() as f64;
    let code_mean = codes.iter().sum::<f64>() / count;
    let position_mean = positions.iter().map(|position| f64::from(*position)).sum::<f64>() / count;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (code, position) in codes.iter().zip(positions) {
        covariance += (code - code_mean) * (f64::from(*position) - position_mean);
        variance += (code - code_mean) * (code - code_mean);
    }
    // Equal codes have no slope.
    let slope = if variance > 0.0 { (covariance / variance).max(0.0) } else { 0.0 };
    (slope, position_mean - slope * code_mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::KeyFamily;

    fn model(keys: &[Vec<u8>], overflow: Overflow) -> TwoLayerModel {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let positions: Vec<u32> = (0..keys.len() as u32).map(|index| index * 116).collect();
        let options = TwoLayerOptions { batch_keys: 64, error_mean_max: 2048.0, overflow };
        TwoLayerModel::train(&keys, &positions, options)
    }

    /// Predictions never contradict the order of keys, trained or not. They stay near the positions of
    /// trained keys: each group's mean error is below the limit.
    #[test]
    fn predictions_ascend_and_are_near() {
        for family in KeyFamily::ALL {
            let keys = family.keys(2000, 11);
            for overflow in [Overflow::CutGroup, Overflow::Truncate] {
                let model = model(&keys, overflow);
                let cut = keys.iter().map(|key| key[..key.len() / 2].to_vec());
                let longer = keys.iter().map(|key| [key.as_slice(), &b"~"[..]].concat());
                let mut probes: Vec<Vec<u8>> = keys.iter().cloned().chain(cut).chain(longer).collect();
                probes.extend([vec![], vec![0xff; 60]]);
                probes.sort_unstable();
                let predicted: Vec<u32> = probes.iter().map(|key| model.predict(key)).collect();
                assert!(predicted.is_sorted(), "{} {overflow:?}", family.name());
                let errors = keys
                    .iter()
                    .enumerate()
                    .map(|(index, key)| u64::from(model.predict(key).abs_diff(index as u32 * 116)));
                assert!(errors.sum::<u64>() <= 2049 * keys.len() as u64, "{} {overflow:?}", family.name());
            }
        }
    }

    /// Without truncation the paper's codes overflow: a group has two or three hexadecimal keys. With
    /// truncation a few groups are enough.
    #[test]
    fn codes_overflow_without_truncation() {
        let keys = KeyFamily::Hex.keys(2000, 1);
        let groups = [Overflow::CutGroup, Overflow::Truncate].map(|how| model(&keys, how).groups());
        assert!(groups[0] > 500 && groups[1] < 100, "{groups:?}");
    }

    /// A model of keys on a line has one group. A model without keys predicts 0.
    #[test]
    fn few_groups() {
        let keys: Vec<Vec<u8>> = (1000..2000).map(|number| format!("{number}").into_bytes()).collect();
        let model_of_line = model(&keys, Overflow::CutGroup);
        assert_eq!(model_of_line.groups(), 1);
        assert!(model_of_line.parameter_bytes() < 100);
        assert_eq!(model(&[], Overflow::CutGroup).predict(b"x"), 0);
    }
}
