//! The data of a chart, and its drawing.
//!
//! The module does not depend on the rest of the program: `peers` uses it too.

mod draw;

use std::fmt::Write;

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Equal steps are equal differences.
    Linear,
    /// Equal steps are equal factors.
    Logarithmic,
}

/// An axis: its name with the unit, and its scale.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The name, with the unit.
    pub name: String,
    /// The scale.
    pub scale: Scale,
}

impl Axis {
    /// A linear axis.
    pub fn linear(name: impl Into<String>) -> Axis {
        Axis { name: name.into(), scale: Scale::Linear }
    }

    /// A logarithmic axis.
    pub fn logarithmic(name: impl Into<String>) -> Axis {
        Axis { name: name.into(), scale: Scale::Logarithmic }
    }
}

/// A named line, which joins its points in their order.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points, x and y.
    pub points: Vec<(f64, f64)>,
}

/// Lines over a numeric axis.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title above the picture.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart {
    /// The picture as SVG, or the error of drawing it.
    pub fn svg(&self) -> Result<String, String> {
        draw::lines(self).map_err(|error| format!("could not draw the chart {:?}: {error}", self.title))
    }
}

/// A bar chart: each group (a name under the axis) has one bar of each series.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title above the picture.
    pub title: String,
    /// The vertical axis.
    pub y: Axis,
    /// Names under the axis.
    pub groups: Vec<String>,
    /// A name, and a value for each group; `None` if there is no value.
    pub series: Vec<(String, Vec<Option<f64>>)>,
}

impl Bars {
    /// The picture as SVG, or the error of drawing it.
    pub fn svg(&self) -> Result<String, String> {
        draw::bars(self).map_err(|error| format!("could not draw the chart {:?}: {error}", self.title))
    }
}

/// A number in the form for axes: 25, 1.5k, 3M, 0.01.
pub(super) fn tick(value: f64) -> String {
    let (shown, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let mut text = String::new();
    let digits = if shown == 0.0 { 0 } else { (2 - shown.abs().log10().floor() as i32).clamp(0, 6) as usize };
    write!(text, "{shown:.digits$}").expect("a String takes every write");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text + unit
}
