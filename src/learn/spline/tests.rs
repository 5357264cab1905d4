//! Tests of splines: bounded errors, monotone predictions, arbitrary knots.

use proptest::prelude::*;

use super::*;
use crate::base::key::head_after;
use crate::lab::KeyFamily;

/// Points with ascending codes and positions that do not descend.
fn points() -> impl Strategy<Value = Vec<Knot>> {
    let gap = prop_oneof![3 => 1..50u64, 2 => 1..1u64 << 40, 1 => 1..1u64 << 56];
    let step = prop_oneof![6 => 0..40u32, 1 => 0..5000u32];
    proptest::collection::vec((gap, step), 1..120).prop_map(|gaps| {
        let (mut code, mut position) = (0u64, 0u32);
        let next = |(gap, step)| {
            code = code.saturating_add(gap);
            position += step;
            Knot { code, position }
        };
        let mut points: Vec<Knot> = gaps.into_iter().map(next).collect();
        points.dedup_by_key(|point| point.code);
        points
    })
}

/// Codes at and next to each point, and the extremes.
fn near(points: &[Knot]) -> Vec<u64> {
    let around = |point: &Knot| [point.code.saturating_sub(1), point.code, point.code.saturating_add(1)];
    let mut codes: Vec<u64> = points.iter().flat_map(around).chain([0, u64::MAX]).collect();
    codes.sort_unstable();
    codes
}

fn check_bound(points: &[Knot], knots: &[Knot], error: u32) {
    for point in points {
        let predicted = predict(knots, point.code);
        assert!(predicted.abs_diff(point.position) <= error + 1, "{point:?} {predicted} {knots:?}");
    }
    assert!(knots.iter().all(|knot| points.contains(knot)), "knots are points");
}

proptest! {
    /// Every trained point is within the error, knots are exact, and predictions ascend with codes.
    #[test]
    fn errors_are_bounded(points in points(), error in 0..300u32, codes: Vec<u64>) {
        let knots = train(&points, error);
        check_bound(&points, &knots, error);
        for knot in &knots {
            prop_assert_eq!(predict(&knots[..], knot.code), knot.position);
        }
        let mut codes = [codes, near(&points)].concat();
        codes.sort_unstable();
        let predicted: Vec<u32> = codes.iter().map(|code| predict(&knots[..], *code)).collect();
        prop_assert!(predicted.is_sorted());
    }

    /// With knots in any order, prediction does not panic and never exceeds the greatest position.
    #[test]
    fn any_knots_predict(knots: Vec<(u64, u32)>, codes: Vec<u64>) {
        let knots: Vec<Knot> = knots.into_iter().map(|(code, position)| Knot { code, position }).collect();
        let most = knots.iter().map(|knot| knot.position).max().unwrap_or(0);
        for code in codes.into_iter().chain([0, u64::MAX]).chain(near(&knots)) {
            prop_assert!(predict(&knots[..], code) <= most);
        }
    }
}

/// A line has two knots and a single point one, for any error.
#[test]
fn lines_have_two_knots() {
    for error in [0, 1, 100] {
        let line: Vec<Knot> = (0..1000).map(|i| Knot { code: i * 7, position: i as u32 * 3 }).collect();
        assert_eq!(train(&line, error), [line[0], line[999]]);
        assert_eq!(train(&line[..1], error), [line[0]]);
        assert_eq!(train(&[], error), []);
    }
}

/// Keys of ten families by the eight bytes behind their first four, with cumulative lengths as positions: the
/// error bound holds, and a greater bound needs no more knots.
#[test]
fn families_are_within_the_error() {
    for family in KeyFamily::ALL {
        let mut points: Vec<Knot> = Vec::new();
        let mut position = 0;
        for key in family.keys(4000, 3) {
            let code = head_after(&key, 4);
            if points.last().is_none_or(|last| last.code < code) {
                points.push(Knot { code, position });
            }
            position += key.len() as u32 + 100;
        }
        let counts = [0u32, 64, 1024, 8192].map(|error| {
            let knots = train(&points, error);
            check_bound(&points, &knots, error);
            knots.len()
        });
        assert!(counts.is_sorted_by(|a, b| a >= b), "{} {counts:?}", family.name());
    }
}
