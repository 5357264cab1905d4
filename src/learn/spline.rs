//! A monotone piecewise linear function from codes to positions, with a bounded error.
//!
//! Training takes points in ascending order and keeps some of them as knots, by a greedy spline corridor
//! (RadixSpline). It takes one pass and compares slopes exactly, as fractions. [`predict`] is the only
//! expression that evaluates a model, for writers and readers.
//!
//! Invariants: 1. the prediction of every trained point is off by at most the error, plus 1 for rounding;
//! 2. predictions ascend with codes, if positions of knots do; 3. prediction never panics, for any knots and
//! any code.
//!
//! Pure. One thread trains; any thread predicts.

/// A code and its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Knot {
    pub(crate) code: u64,
    pub(crate) position: u32,
}

/// Knots of a model, with ascending codes, in any representation.
pub(crate) trait Knots {
    fn count(&self) -> usize;

    /// The knot at `index`, which must be below the count.
    fn knot(&self, index: usize) -> Knot;

    /// The number of knots with at most this code.
    fn not_after(&self, code: u64) -> usize;
}

impl Knots for [Knot] {
    fn count(&self) -> usize {
        self.len()
    }

    fn knot(&self, index: usize) -> Knot {
        self[index]
    }

    fn not_after(&self, code: u64) -> usize {
        self.partition_point(|knot| knot.code <= code)
    }
}

/// The predicted position of a code. Before the first knot it is that knot's position, behind the last knot
/// the last one's; 0 without knots.
#[inline]
pub(crate) fn predict<K: Knots + ?Sized>(knots: &K, code: u64) -> u32 {
    let count = knots.count();
    if count == 0 {
        return 0;
    }
    match knots.not_after(code) {
        0 => knots.knot(0).position,
        after if after >= count => knots.knot(count - 1).position,
        after => between(knots.knot(after - 1), knots.knot(after), code),
    }
}

/// The predicted position of a code between two knots.
// Each operation is monotone in the code: the conversion, which rounds; the product with a slope that is not
// negative; the conversion back, which rounds down and maps NaN to 0; the minimum. Rust does not fuse a
// product with a sum, so every machine computes the same bits.
#[inline]
fn between(from: Knot, to: Knot, code: u64) -> u32 {
    let rise = to.position.saturating_sub(from.position);
    let slope = f64::from(rise) / to.code.saturating_sub(from.code) as f64;
    let step = (code.saturating_sub(from.code) as f64 * slope) as u32;
    from.position.saturating_add(step.min(rise))
}

/// A slope as a fraction.
#[derive(Clone, Copy, Debug)]
struct Slope {
    rise: i64,
    run: u64,
}

impl Slope {
    fn new(from: Knot, to: Knot, offset: i64) -> Slope {
        let rise = i64::from(to.position) - i64::from(from.position) + offset;
        Slope { rise, run: to.code - from.code }
    }

    fn is_above(self, other: Slope) -> bool {
        i128::from(self.rise) * i128::from(other.run) > i128::from(other.rise) * i128::from(self.run)
    }
}

/// Trains a spline, point by point.
#[derive(Debug)]
pub(crate) struct SplineTrainer {
    error: i64,
    knot: Option<Knot>,
    last: Option<Knot>,
    /// The least and the greatest slope from the knot that stay within the error of every point behind it.
    corridor: Option<(Slope, Slope)>,
}

impl SplineTrainer {
    /// A trainer of a spline whose predictions are within `error` of every point.
    pub(crate) fn new(error: u32) -> SplineTrainer {
        SplineTrainer { error: i64::from(error), knot: None, last: None, corridor: None }
    }

    /// Adds the next point. Returns the next knot, if the point determines it.
    ///
    /// # Panics
    /// If codes do not ascend.
    pub(crate) fn add(&mut self, point: Knot) -> Option<Knot> {
        let (Some(knot), Some(last)) = (self.knot, self.last.replace(point)) else {
            self.knot = Some(point);
            return Some(point);
        };
        assert!(last.code < point.code, "codes ascend");
        debug_assert!(last.position <= point.position, "positions ascend");
        if let Some((least, greatest)) = self.corridor {
            let slope = Slope::new(knot, point, 0);
            if !least.is_above(slope) && !slope.is_above(greatest) {
                let (least_here, greatest_here) = self.corridor_of(knot, point);
                let least = if least_here.is_above(least) { least_here } else { least };
                let greatest = if greatest.is_above(greatest_here) { greatest_here } else { greatest };
                self.corridor = Some((least, greatest));
                return None;
            }
            self.knot = Some(last);
            self.corridor = Some(self.corridor_of(last, point));
            return Some(last);
        }
        self.corridor = Some(self.corridor_of(knot, point));
        None
    }

    /// The last knot, if it was not returned before.
    #[cfg(any(test, feature = "lab"))]
    pub(crate) fn finish(self) -> Option<Knot> {
        self.last.filter(|last| self.knot != Some(*last))
    }

    fn corridor_of(&self, from: Knot, to: Knot) -> (Slope, Slope) {
        (Slope::new(from, to, -self.error), Slope::new(from, to, self.error))
    }
}

/// The knots of a spline over points with ascending codes.
#[cfg(test)]
pub(crate) fn train(points: &[Knot], error: u32) -> Vec<Knot> {
    let mut trainer = SplineTrainer::new(error);
    let mut knots: Vec<Knot> = points.iter().filter_map(|point| trainer.add(*point)).collect();
    knots.extend(trainer.finish());
    knots
}

#[cfg(all(test, not(loom)))]
#[path = "spline/tests.rs"]
mod tests;
