//! Charts: points or bars with names, drawn as SVG and written as CSV.
//!
//! All pictures of the program come from this module, in one style. It is not a general plotter: it draws
//! lines over numbers ([`Chart`]) and bars over names ([`Bars`]), each axis linear or logarithmic. Callers
//! are the commands that measure. Threads share nothing here.
//!
//! 1. Drawing reads no font: text widths are estimates, and the viewer of the SVG supplies the fonts.
//! 2. The same data gives the same bytes.
//! 3. Values that a logarithmic axis cannot show (zero, less, not a number) are left out of the picture,
//!    but not of the CSV.

mod chart;
#[cfg(feature = "rows")]
mod files;
#[cfg(all(test, feature = "rows"))]
mod tests;

pub use chart::{Axis, Bars, Chart, Scale, Series};
#[cfg(feature = "rows")]
pub use files::row;
