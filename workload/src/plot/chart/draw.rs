//! Draws charts with plotters' SVG backend.

use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::{
    Circle, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoLogRange, LineSeries, PathElement,
    Rectangle, SVGBackend,
};
use plotters::style::{Color, RGBColor, ShapeStyle};

use super::{Axis, Bars, Chart, Scale, tick};

const SIZE: (u32, u32) = (960, 540);
const FONT: &str = "sans-serif";
const BLACK: RGBColor = RGBColor(0, 0, 0);
const WHITE: RGBColor = RGBColor(255, 255, 255);

/// Colours that colour-blind readers can also distinguish (after Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(160, 150, 20),
];

/// The bars' share of the width of a group.
const GROUP_WIDTH: f64 = 0.8;

type Error = DrawingAreaErrorKind<std::io::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

pub(super) fn lines(chart: &Chart) -> Result<String, Error> {
    let visible: Vec<Vec<(f64, f64)>> = chart
        .series
        .iter()
        .map(|series| {
            let points = series.points.iter().copied();
            points.filter(|(x, y)| shows(&chart.x, *x) && shows(&chart.y, *y)).collect()
        })
        .collect();
    let points = || visible.iter().flatten();
    let x = span(&chart.x, points().map(|point| point.0), Floor::OfValues);
    let y = span(&chart.y, points().map(|point| point.1), Floor::Zero);
    let draw = |area: &Area<'_>| match (chart.x.scale, chart.y.scale) {
        (Scale::Linear, Scale::Linear) => lines_on(chart, &visible, area, x, y),
        (Scale::Linear, Scale::Logarithmic) => lines_on(chart, &visible, area, x, y.log_scale()),
        (Scale::Logarithmic, Scale::Linear) => lines_on(chart, &visible, area, x.log_scale(), y),
        (Scale::Logarithmic, Scale::Logarithmic) => {
            lines_on(chart, &visible, area, x.log_scale(), y.log_scale())
        }
    };
    on_area(draw)
}

pub(super) fn bars(bars: &Bars) -> Result<String, Error> {
    let values = bars.series.iter().flat_map(|(_, values)| values).flatten().copied();
    let y = span(&bars.y, values.filter(|value| shows(&bars.y, *value)), Floor::Zero);
    let floor = y.start;
    let draw = |area: &Area<'_>| match bars.y.scale {
        Scale::Linear => bars_on(bars, area, y, floor),
        Scale::Logarithmic => bars_on(bars, area, y.log_scale(), floor),
    };
    on_area(draw)
}

fn on_area(draw: impl FnOnce(&Area<'_>) -> Result<(), Error>) -> Result<String, Error> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    Ok(svg)
}

fn lines_on<X, Y>(
    chart: &Chart,
    visible: &[Vec<(f64, f64)>],
    area: &Area<'_>,
    x: X,
    y: Y,
) -> Result<(), Error>
where
    X: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
{
    let mut drawn = framed(&chart.title, area, x, y)?;
    drawn
        .configure_mesh()
        .x_desc(&chart.x.name)
        .y_desc(&chart.y.name)
        .x_label_formatter(&|value| tick(*value))
        .y_label_formatter(&|value| tick(*value))
        .draw()?;
    for (index, points) in visible.iter().enumerate() {
        let style = style(index);
        drawn
            .draw_series(LineSeries::new(points.iter().copied(), style.stroke_width(2)))?
            .label(&chart.series[index].name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style.stroke_width(2)));
        drawn.draw_series(points.iter().map(|point| Circle::new(*point, 3, style)))?;
    }
    legend(&mut drawn, chart.series.len())
}

fn bars_on<Y>(bars: &Bars, area: &Area<'_>, y: Y, floor: f64) -> Result<(), Error>
where
    Y: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
{
    let groups = bars.groups.len();
    let mut drawn = framed(&bars.title, area, 0.0..groups.max(1) as f64, y)?;
    // The name of a group is below its middle: only labels at halves show.
    let name = |x: &f64| match (x - 0.5).round() {
        at if at >= 0.0 && (x - 0.5 - at).abs() < 1e-6 => {
            bars.groups.get(at as usize).cloned().unwrap_or_default()
        }
        _ => String::new(),
    };
    drawn
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * groups + 1)
        .x_label_formatter(&name)
        .y_desc(&bars.y.name)
        .y_label_formatter(&|value| tick(*value))
        .draw()?;
    let width = GROUP_WIDTH / bars.series.len().max(1) as f64;
    for (index, (name, values)) in bars.series.iter().enumerate() {
        let style = style(index);
        let left = |group: usize| group as f64 + (1.0 - GROUP_WIDTH) / 2.0 + width * index as f64;
        let bar = |(group, value): (usize, &Option<f64>)| {
            let value = value.filter(|value| shows(&bars.y, *value))?;
            Some(Rectangle::new([(left(group), floor), (left(group) + width * 0.95, value)], style))
        };
        drawn
            .draw_series(values.iter().take(groups).enumerate().filter_map(bar))?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x + 4, y - 5), (x + 14, y + 5)], style));
    }
    legend(&mut drawn, bars.series.len())
}

fn framed<'a, 'b, X, Y>(
    title: &str,
    area: &'a Area<'b>,
    x: X,
    y: Y,
) -> Result<Drawn<'a, 'b, X::CoordDescType, Y::CoordDescType>, Error>
where
    X: AsRangedCoord,
    Y: AsRangedCoord,
{
    ChartBuilder::on(area)
        .caption(title, (FONT, 22))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)
}

/// Names the series, if there is more than one.
fn legend<'a, 'b: 'a, X, Y>(drawn: &mut Drawn<'a, 'b, X, Y>, series_count: usize) -> Result<(), Error>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    if series_count < 2 {
        return Ok(());
    }
    drawn
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 14))
        .draw()
}

fn style(index: usize) -> ShapeStyle {
    COLOURS[index % COLOURS.len()].filled()
}

fn shows(axis: &Axis, value: f64) -> bool {
    value.is_finite() && (axis.scale == Scale::Linear || value > 0.0)
}

/// Start of a linear axis without negative values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Floor {
    OfValues,
    Zero,
}

/// The range of an axis: never empty, with a little room above.
fn span(axis: &Axis, values: impl Iterator<Item = f64>, floor: Floor) -> Range<f64> {
    let (mut low, mut high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        (low, high) = (1.0, 10.0);
    }
    match axis.scale {
        Scale::Logarithmic if floor == Floor::Zero => 10_f64.powf(low.log10().floor())..high * 1.2,
        Scale::Logarithmic if low == high => low / 2.0..high * 2.0,
        Scale::Logarithmic => low..high,
        Scale::Linear => {
            if floor == Floor::Zero && low > 0.0 {
                low = 0.0;
            }
            let room = if high > low { (high - low) * 0.05 } else { high.abs().max(1.0) * 0.05 };
            let above = if floor == Floor::Zero || high == low { room } else { 0.0 };
            let below = if high == low { room } else { 0.0 };
            low - below..high + above
        }
    }
}
