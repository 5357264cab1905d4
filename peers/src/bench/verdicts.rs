//! The table of bars, with rows in which a peer is ahead and missed bars before the rest, and a few rows for
//! the README.

use super::bars::{self, Bar, Judged, Verdict};
use super::compare::{Behind, behind, factor, rates_of, ratios, stores_of};
use super::results::{Begun, Line, Measured};
use super::rows::{self, peers_row};
use super::table::median;
use crate::markdown::table;

/// Rows of the README, after those in which a peer is ahead.
const SHOWN: [&str; 10] = [
    rows::YCSB_D,
    rows::LOAD,
    rows::SYNCED,
    rows::GET,
    rows::MULTI,
    rows::SCAN,
    rows::COLD_GET,
    rows::YCSB_A,
    rows::BESIDE,
    rows::COLD_SCAN,
];

const SHOWN_MAX: usize = 10;

/// The most rows of the README in which a peer is ahead; the worst ones are taken.
const SHOWN_BEHIND_MAX: usize = 5;

/// Every row in which a peer is ahead, then every bar: missed, short, too close to say, not measured, met.
pub(super) fn bars_table(lines: &[Line]) -> String {
    let mut judged = bars::judge(lines);
    judged.sort_by_key(|one| match one.verdict {
        Verdict::Missed => 0,
        Verdict::Met | Verdict::TooClose if one.is_short() => 1,
        Verdict::TooClose => 2,
        Verdict::NotMeasured => 3,
        Verdict::Met => 4,
    });
    let rows = behind(lines).iter().map(behind_row).chain(judged.iter().map(bar_row)).collect::<Vec<_>>();
    let head = ["row", "bar", "measured, median", "least to most", "runs", "verdict"];
    format!("{}\n{}", table(&head, rows), wrong(lines))
}

fn behind_row(one: &Behind<'_>) -> Vec<String> {
    let but = if one.free.is_empty() {
        String::new()
    } else {
        format!("; not held to the memory of the row: {}", one.free.join(", "))
    };
    vec![
        one.row.to_owned(),
        "operations a second, beside the best peer".to_owned(),
        factor(&mut one.ratios.clone()),
        spread(&one.ratios, |ratio| format!("{ratio:.2} ×")),
        one.ratios.len().to_string(),
        format!("**behind** {}{but}", one.ahead.join(", ")),
    ]
}

fn bar_row(one: &Judged) -> Vec<String> {
    vec![
        one.bar.row.to_owned(),
        one.bar.told().replace(" at least ", " ≥ ").replace(" at most ", " ≤ "),
        median(&mut one.ratios.clone()).map_or_else(|| "–".to_owned(), |ratio| figure(&one.bar, ratio)),
        spread(&one.ratios, |ratio| figure(&one.bar, ratio)),
        one.ratios.len().to_string(),
        match one.verdict {
            Verdict::Met if one.is_short() => "**short**, by less than its 95 % interval".to_owned(),
            verdict => verdict.name().to_owned(),
        },
    ]
}

/// The range of sorted figures, if there are several.
fn spread(sorted: &[f64], told: impl Fn(f64) -> String) -> String {
    match (sorted.first(), sorted.last()) {
        (Some(low), Some(high)) if sorted.len() > 1 => format!("{} to {}", told(*low), told(*high)),
        _ => "–".to_owned(),
    }
}

/// A measured figure in the form of its bar: a number for a bar that is one, otherwise a factor.
fn figure(bar: &Bar, ratio: f64) -> String {
    use bars::Figure::{Longest, P50, P99, P9999};
    let is_time = matches!(bar.figure, P50 | P99 | P9999 | Longest);
    match bar.against {
        bars::Against::One if is_time => format!("{:.1} ms", ratio / 1e6),
        bars::Against::One => format!("{ratio:.3}"),
        _ => format!("{ratio:.2} ×"),
    }
}

/// The wrong answers of all rows.
fn wrong(lines: &[Line]) -> String {
    let told = |one: &Measured| {
        let first = one.first_wrong.as_deref().unwrap_or_default();
        format!("{}, {}: **{} WRONG ANSWERS**: {first}.\n", one.row, one.store, one.wrong)
    };
    let told: String = bars::measured(lines).filter(|one| one.wrong > 0).map(told).collect();
    if told.is_empty() { "Every value that was read was checked; none was wrong.\n".to_owned() } else { told }
}

/// A few rows with the rates of each store, those in which a peer is ahead first, then dates and machines.
pub(super) fn shown(lines: &[Line]) -> String {
    let is_shown = |store: &&str| *store == bars::OURS || bars::is_peer(store);
    let stores: Vec<&str> = stores_of(lines).into_iter().filter(is_shown).collect();
    let lost: Vec<&str> = behind(lines).iter().take(SHOWN_BEHIND_MAX).map(|one| one.row).collect();
    let rest = SHOWN.into_iter().filter(|row| !lost.contains(row));
    let rows = lost.iter().copied().chain(rest).filter_map(|row| {
        let mut over = ratios(lines, (row, peers_row(row)), None);
        let over = if over.is_empty() { return None } else { factor(&mut over) };
        let over = if lost.contains(&row) { format!("**{over}**") } else { over };
        Some([row.to_owned()].into_iter().chain(rates_of(lines, &stores, row)?).chain([over]).collect())
    });
    let rows: Vec<Vec<String>> = rows.take(SHOWN_MAX).collect();
    let mut head = vec!["operations a second"];
    head.extend(&stores);
    head.push("Trine over the best peer");
    format!("{}\n{}", table(&head, rows), places(lines))
}

/// The dates and machines of all runs.
fn places(lines: &[Line]) -> String {
    let mut places: Vec<String> = Vec::new();
    for line in lines {
        if let Line::Begun(Begun { date, machine, .. }) = line {
            let place = format!("{date}, {machine}");
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    format!("Medians of the runs of {}; `–`: not measured.\n", places.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::super::bars::{NULL, OURS};
    use super::super::rows::NOT_HELD;
    use super::*;

    fn line(row: &str, store: &str, operations: u64) -> Line {
        let (row, store) = (row.to_owned(), store.to_owned());
        let measured = Measured { run: 1, row, store, operations, seconds: 1.0, ..Measured::default() };
        Line::Measured(Box::new(measured))
    }

    fn lines() -> Vec<Line> {
        vec![
            line(rows::SCAN, OURS, 100),
            line(rows::SCAN, "rocksdb", 50),
            line(rows::SCAN, "lmdb", 200),
            line(rows::SCAN, NULL, 9000),
            line(rows::GET, OURS, 400),
            line(rows::GET, "rocksdb", 100),
            line(rows::SEEK, OURS, 300),
            line(rows::SEEK, "rocksdb", 1000),
        ]
    }

    /// Lost rows stand first, the worst before the rest; then missed bars; `null` leads no row.
    #[test]
    fn losses_stand_first() {
        let mut lines = lines();
        let text = bars_table(&lines);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        let ours = "operations a second, beside the best peer";
        assert_eq!(rows[0], format!("| cached seek | {ours} | 0.30 × | – | 1 | **behind** rocksdb |"));
        assert_eq!(rows[1], format!("| cached scan of 100 | {ours} | 0.50 × | – | 1 | **behind** lmdb |"));
        assert!(rows[2].starts_with("| cached scan of 100 | operations a second ≥ 3 × rocksdb | 2.00 × |"));
        assert!(rows[2].ends_with("| **missed** |") && text.contains("| 4.00 × | – | 1 | met |"), "{text}");
        assert!(text.contains("none was wrong"), "{text}");
        if let Some(Line::Measured(one)) = lines.get_mut(2) {
            one.remarks.push(NOT_HELD.to_owned());
        }
        assert!(bars_table(&lines).contains("**behind** lmdb; not held to the memory of the row: lmdb |"));
        if let Some(Line::Measured(one)) = lines.last_mut() {
            (one.wrong, one.first_wrong) = (2, Some("key 00 is missing".into()));
        }
        let text = bars_table(&lines);
        assert!(text.contains("cached seek, rocksdb: **2 WRONG ANSWERS**: key 00 is missing."), "{text}");
        assert!(!text.contains("none was wrong"), "{text}");
    }

    /// The README shows lost rows before chosen ones, each once, with the rate of every store.
    #[test]
    fn the_readme_shows_losses() {
        let text = shown(&lines());
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "| operations a second | trine | rocksdb | lmdb | Trine over the best peer |");
        assert_eq!(rows[2], "| cached seek | 300 | 1.0 K | – | **0.30 ×** |");
        assert_eq!(rows[3], "| cached scan of 100 | 100 | 50.0 | 200 | **0.50 ×** |");
        assert_eq!(rows[4], "| cached get, uniform | 400 | 100 | – | 4.00 × |");
        assert_eq!(rows[5], "");
    }
}
