//! Charts, as far as the SVG text shows them.

use super::chart::tick;
use super::*;

fn chart(x: Axis, y: Axis) -> Chart {
    let points = vec![(1.0, 13_600.0), (16.0, 45_000.0), (128.0, 80_000.0)];
    let (title, name) = ("Reads & writes".to_string(), "a,b".to_string());
    Chart { title, x, y, series: vec![Series { name, points }] }
}

/// Charts with every pair of scales draw a line, and a dot for each point, and name the axes.
#[test]
fn lines_on_every_scale() {
    for x in [Axis::linear("depth"), Axis::logarithmic("depth")] {
        for y in [Axis::linear("reads a second"), Axis::logarithmic("reads a second")] {
            let svg = chart(x.clone(), y).svg().expect("it draws");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert_eq!(svg.matches("<circle").count(), 3);
            assert!(svg.contains("depth") && svg.contains("reads a second") && svg.contains("Reads &amp;"));
        }
    }
}

/// Values without a position on an axis are left out of the picture and stay in the CSV; an empty chart
/// draws.
#[test]
fn values_without_a_position_are_left_out() {
    let mut chart = chart(Axis::logarithmic("x"), Axis::logarithmic("y"));
    chart.series[0].points.extend([(0.0, 1.0), (1.0, -1.0), (f64::NAN, 1.0)]);
    assert_eq!(chart.svg().expect("it draws").matches("<circle").count(), 3);
    assert_eq!(chart.csv().lines().count(), 7);
    chart.series.clear();
    assert!(chart.svg().is_ok());
}

/// A single point, and values that are all equal, get an axis of some length.
#[test]
fn one_value_has_a_span() {
    for scale in [Scale::Linear, Scale::Logarithmic] {
        let axis = |name: &str| Axis { name: name.to_string(), scale };
        let mut chart = chart(axis("x"), axis("y"));
        chart.series[0].points.truncate(1);
        assert_eq!(chart.svg().expect("it draws").matches("<circle").count(), 1);
    }
}

/// Bars are above the name of their group; a missing value leaves a gap.
#[test]
fn bars_over_names() {
    let series =
        vec![("ours".to_string(), vec![Some(3.0), Some(5.0)]), ("theirs".to_string(), vec![Some(2.0), None])];
    let groups = vec!["fillrandom".to_string(), "readrandom".to_string()];
    for y in [Axis::linear("operations a second"), Axis::logarithmic("operations a second")] {
        let bars = Bars { title: "t".to_string(), y, groups: groups.clone(), series: series.clone() };
        let svg = bars.svg().expect("it draws");
        assert_eq!(svg.matches("fillrandom").count(), 1, "{svg}");
        assert_eq!(svg.matches("readrandom").count(), 1);
        for colour in ["#0072B2", "#D55E00"] {
            assert!(svg.contains(colour), "{colour}");
        }
        let expected = "group,series,operations a second\nfillrandom,ours,3\nreadrandom,ours,5\n\
                        fillrandom,theirs,2\nreadrandom,theirs,\n";
        assert_eq!(bars.csv(), expected);
    }
}

/// The CSV has every point; fields with a comma are quoted.
#[test]
fn csv_has_every_point() {
    let chart = chart(Axis::linear("depth"), Axis::linear("reads"));
    assert_eq!(chart.csv(), "series,depth,reads\n\"a,b\",1,13600\n\"a,b\",16,45000\n\"a,b\",128,80000\n");
}

/// The same chart gives the same bytes.
#[test]
fn drawing_is_deterministic() {
    let chart = chart(Axis::logarithmic("x"), Axis::linear("y"));
    assert_eq!(chart.svg().expect("it draws"), chart.svg().expect("it draws"));
}

/// Numbers on axes are short.
#[test]
fn ticks_are_short() {
    let shown = [0.0, 0.01, 1.5, 25.0, 950.0, 1500.0, 80_000.0, 3e6, 2e9, -4000.0].map(tick);
    assert_eq!(shown, ["0", "0.01", "1.5", "25", "950", "1.5k", "80k", "3M", "2G", "-4k"]);
}
