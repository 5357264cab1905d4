//! Learned indexes: keys as numbers, and functions from these numbers to positions. Pure.
//!
//! The module knows no format and no block. `format::table` lays out pages with it; the lab compares its
//! models. Sources: TridentKV (section 3.2) for the two layers, SNBC ("segmented numeric base conversion")
//! for string keys, RadixSpline for the spline.
//!
//! - `alphabet`: the symbols of each position of a group of keys, and SNBC with them.
//! - `code`: the number computed from a key of a page.
//! - `spline`: a monotone piecewise linear function with a bounded error.
//! - `two_layer`: the paper's model, for comparison.
//!
//! Invariants, for any bytes a caller passes: 1. codes and predictions never contradict the order of keys;
//! 2. one expression predicts, for writers and readers; 3. numbers from disk cause no panic, no allocation
//! and no endless loop.

pub(crate) mod alphabet;
pub(crate) mod code;
pub(crate) mod spline;
#[cfg(any(test, feature = "lab"))]
pub(crate) mod two_layer;
