//! A monotone piecewise linear function from codes to positions, with a bounded error.
//!
//! Training takes points in ascending order and keeps some of them as knots: a greedy spline corridor
//! (RadixSpline). It takes one pass and decides exactly, on fractions. [`predict`] is the only expression
//! that evaluates a model, for writers and readers.
//!
//! Invariants: 1. for every trained point the prediction is at most the error, and 1 for rounding, away;
//! 2. predictions ascend with codes, if positions of knots do; 3. predictions of any knots panic for no code.
//!
//! Pure. One thread trains; any thread predicts.

/// A code and its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Knot {
    pub(crate) code: u64,
    pub(crate) position: u32,
}

/// Knots of a model, with ascending codes, wherever they lie.
pub(crate) trait Knots {
    fn count(&self) -> usize;

    /// Knot `index`, which is below the count.
    fn knot(&self, index: usize) -> Knot;

    /// How many knots have at most this code.
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

/// The position of a code: that of the first knot before it, of the last knot behind it. 0 without knots.
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

/// The position of a code between two knots.
// Each operation ascends with the code: the conversion, which rounds; the product with a slope that is not
// negative; the conversion back, which rounds down and takes 0 for no number; the minimum. Rust does not fuse
// a product with a sum, so every machine computes the same bits.
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

/// Trains a spline, one point after another.
#[derive(Debug)]
pub(crate) struct SplineTrainer {
    error: i64,
    knot: Option<Knot>,
    last: Option<Knot>,
    /// Slopes from the knot that are near enough to every point behind it: the least and the greatest.
    corridor: Option<(Slope, Slope)>,
}

impl SplineTrainer {
    /// For predictions at most so far from every point.
    pub(crate) fn new(error: u32) -> SplineTrainer {
        SplineTrainer { error: i64::from(error), knot: None, last: None, corridor: None }
    }

    /// Takes the next point. Returns the next knot, if the point decides it.
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

    /// The last knot, if it is not the one returned before.
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
