//! Gets in flight as pictures: how many a second by how many are in flight, by each way of a store.

use std::path::Path;

use super::bars::{NULL, measured};
use super::chart::{Axis, Chart, Series};
use super::results::{Line, Measured};
use super::rows::{FLIGHT, Flight, Way};
use super::table::median;
use crate::engines::{Answer, told};

/// A folder beside the page.
const FOLDER: &str = "results";

/// Stores that have more to ask for keys together with than a loop.
const TOGETHER: [&str; 2] = [super::bars::OURS, "rocksdb"];

/// A picture: its file, and what it shows.
struct Picture {
    file: &'static str,
    title: &'static str,
    row: fn(&Flight) -> &'static str,
}

const PICTURES: [Picture; 2] = [
    Picture {
        file: "peers-flight.svg",
        title: "Random gets by how many are in flight; data 18 times the memory",
        row: |one| one.cold,
    },
    Picture {
        file: "peers-flight-half.svg",
        title: "Random gets by how many are in flight; memory for half of the data",
        row: |one| one.half,
    },
];

fn kind(way: Way) -> (&'static str, u64) {
    match way {
        Way::Threads(count) => ("threads", count),
        Way::Together(count) => ("keys together", count),
        Way::BlockOn(count) => ("futures under block_on", count),
        Way::Tokio(count) => ("futures under tokio", count),
    }
}

fn chart(lines: &[Line], stores: &[&str], picture: &Picture) -> Chart {
    let rate = |row: &str, store: &str| {
        let all = measured(lines).filter(|one| one.row == row && one.store == store);
        median(&mut all.map(Measured::rate).collect::<Vec<f64>>())
    };
    let mut series: Vec<Series> = Vec::new();
    for store in stores.iter().filter(|store| **store != NULL) {
        for one in
            FLIGHT.iter().filter(|one| !matches!(one.way, Way::Together(_)) || TOGETHER.contains(store))
        {
            let Some(rate) = rate((picture.row)(one), store) else { continue };
            let (kind, count) = kind(one.way);
            let (name, point) = (format!("{store}, {kind}"), (count as f64, rate));
            match series.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => series.push(Series { name, points: vec![point] }),
            }
        }
    }
    Chart {
        title: picture.title.to_owned(),
        x: Axis::logarithmic("gets in flight"),
        y: Axis::linear("gets a second"),
        series,
    }
}

/// Draws what was measured of it into the folder beside the page; the links to the pictures.
pub(super) fn draw(lines: &[Line], stores: &[&str], page: &Path) -> Answer<String> {
    let mut links = String::new();
    for picture in &PICTURES {
        let chart = chart(lines, stores, picture);
        if chart.series.is_empty() {
            continue;
        }
        let folder = page.parent().unwrap_or(Path::new(".")).join(FOLDER);
        std::fs::create_dir_all(&folder).map_err(told)?;
        std::fs::write(folder.join(picture.file), chart.svg()?).map_err(told)?;
        links += &format!("\n![{}]({FOLDER}/{})\n", picture.title, picture.file);
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::super::results::Measured;
    use super::*;

    /// A line for each way of a store, a point for each number; nothing is drawn of what was not measured.
    #[test]
    fn ways_are_lines() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let page = directory.path().join("page.md");
        let line = |one: &Flight, store: &str| {
            let (row, store) = (one.cold.to_owned(), store.to_owned());
            let measured = Measured { row, store, operations: 10, seconds: 1.0, ..Measured::default() };
            Line::Measured(Box::new(measured))
        };
        let stores = ["trine", "lmdb", "null"];
        assert_eq!(draw(&[], &stores, &page).expect("nothing to do"), "");
        let lines: Vec<Line> = FLIGHT.iter().flat_map(|one| stores.map(|store| line(one, store))).collect();
        let chart = chart(&lines, &stores, &PICTURES[0]);
        let named: Vec<(&str, usize)> =
            chart.series.iter().map(|line| (line.name.as_str(), line.points.len())).collect();
        let expected = [
            ("trine, threads", 6),
            ("trine, futures under block_on", 5),
            ("trine, futures under tokio", 5),
            ("trine, keys together", 3),
            ("lmdb, threads", 6),
            ("lmdb, futures under block_on", 5),
            ("lmdb, futures under tokio", 5),
        ];
        assert_eq!(named, expected);
        let links = draw(&lines, &stores, &page).expect("it is drawn");
        assert_eq!(links.matches("![").count(), 1);
        assert!(directory.path().join("results/peers-flight.svg").exists());
    }
}
