//! Gets as pictures: how many a second by how many are in flight, by each way of a store, and by the size of
//! values, by most.

use std::path::Path;

use trine_workload::plot::{Axis, Chart, Series};

use super::bars::NULL;
use super::results::Line;
use super::rows::{FLIGHT, Flight, SIZES, ValueSize, Way};
use super::table::rate;
use crate::engines::{Answer, told};

/// A folder beside the page.
const FOLDER: &str = "results";

/// Stores that have more to ask for keys together with than a loop.
const TOGETHER: [&str; 2] = [super::bars::OURS, "rocksdb"];

/// A picture: its file, what it shows, its axes, and the points of a store's lines.
struct Picture {
    file: &'static str,
    title: &'static str,
    x: &'static str,
    y: fn(&'static str) -> Axis,
    points: fn() -> Vec<Point>,
}

/// A row in a picture: on which of a store's lines, and where.
struct Point {
    row: &'static str,
    way: Way,
    line: &'static str,
    x: f64,
}

const PICTURES: [Picture; 4] = [
    Picture {
        file: "peers-flight.svg",
        title: "Random gets by how many are in flight; data 18 times the memory",
        x: "gets in flight",
        y: Axis::linear,
        points: || flight(|one| one.cold),
    },
    Picture {
        file: "peers-flight-half.svg",
        title: "Random gets by how many are in flight; memory for half of the data",
        x: "gets in flight",
        y: Axis::linear,
        points: || flight(|one| one.half),
    },
    Picture {
        file: "peers-sizes.svg",
        title: "Random gets by value size; memory for 5 % of the data",
        x: "bytes of a value",
        y: Axis::logarithmic,
        points: || sizes(|one| one.cold),
    },
    Picture {
        file: "peers-sizes-half.svg",
        title: "Random gets by value size; memory for 50 % of the data",
        x: "bytes of a value",
        y: Axis::logarithmic,
        points: || sizes(|one| one.half),
    },
];

fn flight(row: fn(&Flight) -> &'static str) -> Vec<Point> {
    let point = |one: &Flight| {
        let (line, count) = match one.way {
            Way::Threads(count) => ("threads", count),
            Way::Together(count) => ("keys together", count),
            Way::BlockOn(count) => ("futures under block_on", count),
            Way::Tokio(count) => ("futures under tokio", count),
        };
        Point { row: row(one), way: one.way, line, x: count as f64 }
    };
    FLIGHT.iter().map(point).collect()
}

fn sizes(row: fn(&Flight) -> &'static str) -> Vec<Point> {
    let of_size = |size: &'static ValueSize| {
        let x = size.value_bytes as f64;
        // Few and many threads: those between would hide the rest, and are in the table.
        let drawn = size.gets.iter().filter(|one| !matches!(one.way, Way::Threads(2..=8)));
        drawn.map(move |one| Point { row: row(one), way: one.way, line: one.told, x })
    };
    SIZES.iter().flat_map(of_size).collect()
}

fn chart(lines: &[Line], stores: &[&str], picture: &Picture) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for store in stores.iter().filter(|store| **store != NULL) {
        let asks = |way| !matches!(way, Way::Together(_)) || TOGETHER.contains(store);
        for Point { row, line, x, .. } in (picture.points)().into_iter().filter(|one| asks(one.way)) {
            let Some(rate) = rate(lines, row, store) else { continue };
            let (name, point) = (format!("{store}, {line}"), (x, rate));
            match series.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => series.push(Series { name, points: vec![point] }),
            }
        }
    }
    Chart {
        title: picture.title.to_owned(),
        x: Axis::logarithmic(picture.x),
        y: (picture.y)("gets a second"),
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

    fn line(row: &str, store: &str) -> Line {
        let (row, store) = (row.to_owned(), store.to_owned());
        let measured = Measured { row, store, operations: 10, seconds: 1.0, ..Measured::default() };
        Line::Measured(Box::new(measured))
    }

    /// Names of a chart's lines, and how many points each has.
    fn named(chart: &Chart) -> Vec<(&str, usize)> {
        chart.series.iter().map(|line| (line.name.as_str(), line.points.len())).collect()
    }

    /// A line for each way of a store, a point for each number; nothing is drawn of what was not measured.
    #[test]
    fn ways_are_lines() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let page = directory.path().join("page.md");
        let stores = ["trine", "lmdb", "null"];
        assert_eq!(draw(&[], &stores, &page).expect("nothing to do"), "");
        let lines: Vec<Line> =
            FLIGHT.iter().flat_map(|one| stores.map(|store| line(one.cold, store))).collect();
        let expected = [
            ("trine, threads", 6),
            ("trine, futures under block_on", 5),
            ("trine, futures under tokio", 5),
            ("trine, keys together", 3),
            ("lmdb, threads", 6),
            ("lmdb, futures under block_on", 5),
            ("lmdb, futures under tokio", 5),
        ];
        assert_eq!(named(&chart(&lines, &stores, &PICTURES[0])), expected);
        let links = draw(&lines, &stores, &page).expect("it is drawn");
        assert_eq!(links.matches("![").count(), 1);
        assert!(directory.path().join("results/peers-flight.svg").exists());
    }

    /// By value size a line has one way of a store and a point for each size, and each memory its picture.
    #[test]
    fn sizes_are_points() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stores = ["trine", "lmdb"];
        let gets = || SIZES.iter().flat_map(|size| size.gets);
        let lines: Vec<Line> = gets()
            .filter(|one| !matches!(one.way, Way::BlockOn(_)))
            .flat_map(|one| stores.map(|store| line(one.half, store)))
            .chain(gets().map(|one| line(one.cold, "trine")))
            .collect();
        let few = chart(&lines, &stores, &PICTURES[2]);
        let ways = ["one thread", "16 threads", "64 keys together", "64 futures, block_on"];
        let ways = ways.map(|way| format!("trine, {way}"));
        assert_eq!(named(&few), ways.each_ref().map(|way| (way.as_str(), 6)));
        assert_eq!(few.series[0].points[5], (16384.0, 10.0));
        let half = chart(&lines, &stores, &PICTURES[3]);
        let theirs = ["lmdb, one thread", "lmdb, 16 threads"];
        let all = ways[..3].iter().map(String::as_str).chain(theirs);
        assert_eq!(named(&half), all.map(|line| (line, 6)).collect::<Vec<_>>());
        let links = draw(&lines, &stores, &directory.path().join("page.md")).expect("it is drawn");
        assert_eq!(links.matches("results/peers-sizes").count(), 2, "{links}");
    }
}
