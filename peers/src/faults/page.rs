//! The tables of a page, from the results of runs of `faults`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::damage::{KINDS, OLDER};
use super::outcome::Outcome;
use super::results::{Count, Results, Row, Run};
use crate::engines::{Answer, told};
use crate::markdown::table;

const BEGIN: &str = "<!-- rivals: begin; written by `peers page` -->";
const END: &str = "<!-- rivals: end -->";

/// The command `page`: writes the tables between the page's markers.
pub(crate) fn page(page: &Path, results: &[PathBuf]) -> Answer<()> {
    let text = super::read(page)?;
    let markers = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        markers.ok_or_else(|| format!("{} has no lines {BEGIN} and {END}", page.display()))?;
    let results = results.iter().map(|path| serde_json::from_str(&super::read(path)?).map_err(told));
    let results = results.collect::<Answer<Vec<Results>>>()?;
    std::fs::write(page, format!("{before}{BEGIN}\n\n{}\n{END}{after}", tables(&results))).map_err(told)
}

/// All tables. If a row is in several results, damage and kills each come from the last result that has them.
pub(super) fn tables(results: &[Results]) -> String {
    let rows = merged(results);
    let parts = [promises(&rows), damage(&rows), places(&rows), kills(&rows), runs(results)];
    let mut text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<String>>().join("\n");
    if !rows.iter().any(|row| row.name.starts_with("rocksdb")) {
        text.push_str(
            "\nRocksDB: not measured; its adapter is there, its library was not built for this run.\n",
        );
    }
    text
}

fn merged(results: &[Results]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for new in results.iter().flat_map(|one| &one.rows) {
        let Some(old) = rows.iter_mut().find(|old| old.name == new.name) else {
            rows.push(new.clone());
            continue;
        };
        let kept = old.clone();
        *old = new.clone();
        if old.damage.is_empty() {
            old.damage = kept.damage;
        }
        if old.kills.is_empty() {
            old.kills = kept.kills;
        }
    }
    rows
}

fn promises(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.label.clone(),
            row.versions.clone(),
            row.settings.clone(),
            row.promise_of_damage.clone(),
            row.promise_synced.clone(),
            row.promise_buffered.clone(),
        ]
    });
    let head = [
        "store",
        "versions",
        "settings",
        "promise of damage",
        "promise of synced writes",
        "promise of buffered writes",
    ];
    format!("### What each promises\n\n{}", table(&head, cells))
}

/// Sums all faults but older copies: of a store with one file, that copy is an older store, and no check can
/// tell.
fn sum(row: &Row, of: impl Fn(&Count) -> u64) -> u64 {
    row.damage.iter().filter(|count| count.fault != OLDER).map(of).sum()
}

/// A number, in bold unless it is 0.
fn loud(number: u64) -> String {
    if number == 0 { "0".to_owned() } else { format!("**{number}**") }
}

fn damage(rows: &[Row]) -> String {
    let tried: Vec<&Row> = rows.iter().filter(|row| !row.damage.is_empty()).collect();
    if tried.is_empty() {
        return String::new();
    }
    let cells = tried.iter().map(|row| {
        let of = |outcome: Outcome| sum(row, |count| count.of(outcome));
        vec![
            row.label.clone(),
            sum(row, Count::tried).to_string(),
            of(Outcome::Right).to_string(),
            of(Outcome::Refused).to_string(),
            of(Outcome::Partly).to_string(),
            loud(of(Outcome::Died)),
            loud(of(Outcome::Hung)),
            loud(of(Outcome::WrongBesideAnError)),
            loud(of(Outcome::Silent)),
        ]
    });
    let head = [
        "store",
        "faults",
        "all right",
        "refused when opened",
        "reads refused",
        "died",
        "hung",
        "wrong beside an error",
        "silent",
    ];
    format!("### Damage at rest, but for older copies\n\n{}", table(&head, cells))
}

fn places(rows: &[Row]) -> String {
    let mut cells = Vec::new();
    for row in rows {
        let mut classes: Vec<&str> = row.damage.iter().map(|count| count.class.as_str()).collect();
        classes.dedup();
        for class in classes {
            let cell = |kind: &&str| {
                let found = row.damage.iter().find(|count| count.class == class && count.fault == **kind);
                found.map_or("–".to_owned(), |count| {
                    let silent = count.of(Outcome::Silent);
                    let cell = format!("{} of {}", loud(silent), count.tried());
                    match count.altered {
                        0 => cell,
                        _ if silent == 0 => cell,
                        altered => format!("{cell}, {altered} altered"),
                    }
                })
            };
            cells.push(
                [row.label.clone(), class.to_owned()].into_iter().chain(KINDS.iter().map(cell)).collect(),
            );
        }
    }
    if cells.is_empty() {
        return String::new();
    }
    let head: Vec<&str> = ["store", "files"].into_iter().chain(KINDS).collect();
    format!("### Where wrong answers came without an error\n\n{}", table(&head, cells))
}

fn kills(rows: &[Row]) -> String {
    let mut cells = Vec::new();
    for row in rows {
        for kills in &row.kills {
            cells.push(vec![
                row.label.clone(),
                kills.writes.clone(),
                kills.cycles.to_string(),
                kills.while_opening.to_string(),
                kills.acknowledged.to_string(),
                kills.gone.to_string(),
                loud(kills.violations),
                loud(kills.unmade),
            ]);
        }
    }
    if cells.is_empty() {
        return String::new();
    }
    let head = [
        "store",
        "writes",
        "kills",
        "of these while opening",
        "batches acknowledged",
        "times acknowledged ones were gone",
        "promise broken",
        "killed while it was made, then refused",
    ];
    format!("### Killed under load\n\n{}", table(&head, cells))
}

fn runs(results: &[Results]) -> String {
    let mut text = "### The runs\n\n".to_owned();
    for one in results {
        let Run { date, machine, command, seed } = &one.run;
        let seconds: u64 = one.rows.iter().map(|row| row.seconds).sum();
        // Writing to a string does not fail.
        let _ = writeln!(text, "- `{command}`, seed {seed}, on {date}, {seconds} s, {machine}.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(name: &str, silent: u64) -> Results {
        let outcomes = [(Outcome::Right, 3), (Outcome::Silent, silent)].into();
        let count = Count { class: "log".into(), fault: KINDS[0].into(), outcomes, ..Count::default() };
        let row = Row { name: name.into(), label: name.into(), damage: vec![count], ..Row::default() };
        let run = Run { date: "2026-01-01".into(), machine: "m".into(), command: "peers".into(), seed: 1 };
        Results { run, rows: vec![row] }
    }

    /// Later results of a row replace earlier ones, and silent outcomes are in bold.
    #[test]
    fn tables_show_the_last_results() {
        let text = tables(&[results("a", 5), results("b", 0), results("a", 2)]);
        assert!(text.contains("| a | log | **2** of 5 |"), "{text}");
        assert!(text.contains("| b | log | 0 of 3 |"), "{text}");
        assert!(!text.contains("**5**") && text.contains("RocksDB: not measured"), "{text}");
    }

    /// Only the text between the markers changes.
    #[test]
    fn pages_keep_the_rest() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (file, json) = (directory.path().join("page.md"), directory.path().join("a.json"));
        std::fs::write(&file, format!("before\n{BEGIN}\nof before\n{END}\nafter\n")).expect("writes");
        let text = serde_json::to_string(&results("a", 1)).expect("it is a struct");
        std::fs::write(&json, text).expect("writes");
        page(&file, &[json]).expect("writes the page");
        let text = std::fs::read_to_string(&file).expect("reads");
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n") && !text.contains("of before"));
        std::fs::write(&file, "no markers").expect("writes");
        assert!(page(&file, &[]).is_err());
    }
}
