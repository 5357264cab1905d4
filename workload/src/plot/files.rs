//! Charts as files: the picture as SVG, and the numbers as CSV.

use std::path::Path;

use super::{Bars, Chart};
use crate::failure::Failure;
use crate::rows::write_csv_field;

impl Chart {
    /// Writes the picture into the file.
    pub fn write_svg(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.svg().map_err(Failure::Other)?)
    }

    /// One CSV line for each point: series, x, y.
    pub fn csv(&self) -> String {
        let mut out = row(["series", &self.x.name, &self.y.name]);
        for series in &self.series {
            for (x, y) in &series.points {
                out += &row([series.name.as_str(), &x.to_string(), &y.to_string()]);
            }
        }
        out
    }

    /// Writes the numbers into the file.
    pub fn write_csv(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.csv())
    }
}

impl Bars {
    /// Writes the picture into the file.
    pub fn write_svg(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.svg().map_err(Failure::Other)?)
    }

    /// One CSV line for each bar: group, series, value.
    pub fn csv(&self) -> String {
        let mut out = row(["group", "series", &self.y.name]);
        for (name, values) in &self.series {
            for (group, value) in self.groups.iter().zip(values) {
                let value = value.map_or(String::new(), |value| value.to_string());
                out += &row([group.as_str(), name, &value]);
            }
        }
        out
    }

    /// Writes the numbers into the file.
    pub fn write_csv(&self, path: &Path) -> Result<(), Failure> {
        write(path, &self.csv())
    }
}

/// One line of CSV; fields are quoted if they must be.
pub fn row<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
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
