//! The output of run: rows, claims and verdicts as tables or JSON, pictures as SVG and CSV.

use std::path::Path;

use serde_json::{Value, json};
use trine_workload::failure::Failure;
use trine_workload::screen::{Screen, table};

use super::{Claim, Figure, Picture};

pub(super) struct Heading {
    pub(super) name: &'static str,
    pub(super) figures: &'static str,
    pub(super) scale: f64,
    pub(super) seconds: f64,
}

pub(super) fn write_pictures(figures: &[Figure], out: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(out).map_err(|source| Failure::file("create", out, source))?;
    for figure in figures {
        let (svg, csv) = (out.join(format!("{}.svg", figure.name)), out.join(format!("{}.csv", figure.name)));
        match &figure.picture {
            Picture::Lines(chart) => {
                chart.write_svg(&svg)?;
                chart.write_csv(&csv)?;
            }
            Picture::Bars(bars) => {
                bars.write_svg(&svg)?;
                bars.write_csv(&csv)?;
            }
        }
    }
    Ok(())
}

pub(super) fn print(heading: &Heading, figures: &[Figure]) -> Result<(), Failure> {
    let mut screen = Screen::new();
    screen.line(format_args!(
        "{}: {}, at scale {} (1 is the paper's size), in {:.0} s.",
        heading.name, heading.figures, heading.scale, heading.seconds
    ))?;
    for figure in figures {
        screen.line(format_args!("\n{}", figure.title))?;
        let mut rows = table(figure.header.clone());
        rows.add_rows(figure.rows.iter().cloned());
        screen.line(rows)?;
        for claim in &figure.claims {
            screen.line(format_args!("→ paper: {}", claim.paper))?;
            screen.line(format_args!("  ours:  {}", claim.ours))?;
            screen.line(format_args!("  {}: {}", claim.verdict.words(), claim.reason))?;
        }
    }
    screen.finish()
}

pub(super) fn print_json(heading: &Heading, figures: &[Figure]) -> Result<(), Failure> {
    let claim = |claim: &Claim| {
        json!({
            "paper": claim.paper,
            "ours": claim.ours,
            "verdict": claim.verdict.words(),
            "reason": claim.reason,
        })
    };
    let figure = |figure: &Figure| {
        json!({
            "name": figure.name,
            "title": figure.title,
            "header": figure.header,
            "rows": figure.rows,
            "claims": figure.claims.iter().map(claim).collect::<Vec<Value>>(),
        })
    };
    let mut screen = Screen::new();
    screen.json(&json!({
        "experiment": heading.name,
        "of": heading.figures,
        "scale": heading.scale,
        "seconds": heading.seconds,
        "figures": figures.iter().map(figure).collect::<Vec<Value>>(),
    }))?;
    screen.finish()
}
