//! Charts: points or bars with names, drawn as SVG and written as CSV.
//!
//! What it is: the one look of every picture the program makes. What it is not: a general plotter; it draws
//! lines over numbers ([`Chart`]) and bars over names ([`Bars`]), each axis linear or logarithmic. Who calls
//! it: the commands that measure. Nothing is shared between threads.
//!
//! 1. No font is read: text widths are guessed, and whoever shows the SVG has the fonts.
//! 2. The same data gives the same bytes.
//! 3. What a logarithmic axis cannot show (zero, less, not a number) is left out of the picture, never of the
//!    CSV.

mod chart;
#[cfg(feature = "rows")]
mod files;
#[cfg(all(test, feature = "rows"))]
mod tests;

pub use chart::{Axis, Bars, Chart, Scale, Series};
#[cfg(feature = "rows")]
pub use files::row;
