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

mod draw;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::path::Path;

use crate::failure::Failure;
use crate::rows::write_csv_field;

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
    pub(crate) fn svg(&self) -> Result<String, Failure> {
        draw::lines(self).map_err(|error| not_drawn(&self.title, &error))
    }

    pub(crate) fn write_svg(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.svg()?)
    }

    /// A line a point: series, x, y.
    pub(crate) fn csv(&self) -> String {
        let mut out = row(["series", &self.x.name, &self.y.name]);
        for series in &self.series {
            for (x, y) in &series.points {
                out += &row([series.name.as_str(), &x.to_string(), &y.to_string()]);
            }
        }
        out
    }

    pub(crate) fn write_csv(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.csv())
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
    pub(crate) fn svg(&self) -> Result<String, Failure> {
        draw::bars(self).map_err(|error| not_drawn(&self.title, &error))
    }

    pub(crate) fn write_svg(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.svg()?)
    }

    /// A line a bar: group, series, value.
    pub(crate) fn csv(&self) -> String {
        let mut out = row(["group", "series", &self.y.name]);
        for (name, values) in &self.series {
            for (group, value) in self.groups.iter().zip(values) {
                let value = value.map_or(String::new(), |value| value.to_string());
                out += &row([group.as_str(), name, &value]);
            }
        }
        out
    }

    pub(crate) fn write_csv(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.csv())
    }
}

/// One line of CSV; fields are quoted where they must be.
pub(crate) fn row<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = Vec::new();
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        write_csv_field(field.as_bytes(), &mut line);
    }
    line.push(b'\n');
    String::from_utf8(line).expect("fields are text, and what is between them too")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|source| Failure::file("write", path, source))
}

fn not_drawn(title: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Other(format!("could not draw the chart {title:?}: {error}"))
}

/// A number as an axis shows it: 25, 1.5k, 3M, 0.01.
fn tick(value: f64) -> String {
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
