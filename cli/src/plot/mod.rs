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
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::failure::Failure;
use crate::rows::write_csv_field;

#[cfg(test)]
pub(crate) use chart::Scale;
pub(crate) use chart::{Axis, Bars, Chart, Series};

impl Chart {
    pub(crate) fn write_svg(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.svg().map_err(Failure::Other)?)
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

impl Bars {
    pub(crate) fn write_svg(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.svg().map_err(Failure::Other)?)
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
