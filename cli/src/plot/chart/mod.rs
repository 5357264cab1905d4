//! The data of a chart, and its drawing.
//!
//! It knows nothing of the rest of the program: `peers` draws with it too.

mod draw;

use std::fmt::Write;

/// How an axis counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
}

/// An axis: its name with the unit, and how it counts.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) scale: Scale,
}

impl Axis {
    pub(crate) fn linear(name: impl Into<String>) -> Axis {
        Axis { name: name.into(), scale: Scale::Linear }
    }

    pub(crate) fn logarithmic(name: impl Into<String>) -> Axis {
        Axis { name: name.into(), scale: Scale::Logarithmic }
    }
}

/// A named line; its points are joined in the order they stand.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over a numeric axis.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

impl Chart {
    /// The picture, or why there is none.
    pub(crate) fn svg(&self) -> Result<String, String> {
        draw::lines(self).map_err(|error| format!("could not draw the chart {:?}: {error}", self.title))
    }
}

/// Bars: for each group (a name under the axis) one bar of each series.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) y: Axis,
    pub(crate) groups: Vec<String>,
    /// A name, and a value for each group; `None` where there is none.
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
}

impl Bars {
    /// The picture, or why there is none.
    pub(crate) fn svg(&self) -> Result<String, String> {
        draw::bars(self).map_err(|error| format!("could not draw the chart {:?}: {error}", self.title))
    }
}

/// A number as an axis shows it: 25, 1.5k, 3M, 0.01.
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
