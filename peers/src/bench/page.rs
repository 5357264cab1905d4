//! The command `results`: what was measured as tables of a page, between its markers.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::bars::{self, Judged, NULL, OURS, Side, Verdict};
use super::device::moved;
use super::pictures;
use super::plan::Group;
use super::results::{self, Begun, Calibration, Line, Measured};
use super::rows::{Flight, NOT_HELD, SIZES, all_rows, peers_row, standard_rows};
use super::table::{HEAD, cells, count, median, rate};
use crate::engines::{Answer, told};
use crate::markdown::table;

const BEGIN: &str = "<!-- peers: begin; written by `peers results` -->";
const END: &str = "<!-- peers: end -->";

/// Runs of one session are told apart from those of the next by this.
const RUNS_OF_SESSION: u64 = 1000;

/// The lines of several files. Sessions number their runs alike, and a file may have several sessions: no two
/// of their runs are one afterwards.
pub(super) fn read(files: &[PathBuf]) -> Answer<Vec<Line>> {
    let (mut all, mut session) = (Vec::new(), 0);
    for path in files {
        session += 1;
        for (index, mut line) in results::read(path)?.into_iter().enumerate() {
            let run = match &mut line {
                Line::Begun(_) => {
                    session += u64::from(index > 0);
                    None
                }
                Line::Device(one) => Some(&mut one.run),
                Line::Measured(one) => Some(&mut one.run),
                Line::Failed(one) => Some(&mut one.run),
            };
            if let Some(run) = run {
                *run += session * RUNS_OF_SESSION;
            }
            all.push(line);
        }
    }
    Ok(all)
}

/// Writes the tables between the page's markers.
pub(crate) fn page(page: &Path, files: &[PathBuf]) -> Answer<()> {
    let text = std::fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let markers = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        markers.ok_or_else(|| format!("{} has no lines {BEGIN} and {END}", page.display()))?;
    let lines = read(files)?;
    let tables = tables(&lines, &pictures::draw(&lines, &stores_of(&lines), page)?);
    std::fs::write(page, format!("{before}{BEGIN}\n\n{tables}\n{END}{after}")).map_err(told)
}

fn tables(lines: &[Line], pictures: &str) -> String {
    let judged = bars::judge(lines);
    let parts = [
        losing(lines, &judged),
        bars_table(&judged),
        rates(lines),
        sizes(lines),
        pictures.to_owned(),
        details(lines),
        stores(lines),
        runs(lines),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<String>>().join("\n")
}

/// Stores in the order they were measured in, ours first.
fn stores_of(lines: &[Line]) -> Vec<&str> {
    let mut stores: Vec<&str> = Vec::new();
    for one in bars::measured(lines) {
        if !stores.contains(&one.store.as_str()) {
            stores.push(&one.store);
        }
    }
    stores.sort_by_key(|store| (*store != OURS, *store == NULL, *store != "rocksdb"));
    stores
}

/// Of each run, our rate in a row over that of another store, or of the best of all others, in theirs.
fn ratios(lines: &[Line], (our_row, their_row): (&str, &str), other: Option<&str>) -> Vec<f64> {
    let of = |run: u64| {
        let ours = bars::find(lines, run, our_row, OURS)?.rate();
        let others = stores_of(lines).into_iter().filter(|store| match other {
            Some(other) => *store == other,
            None => *store != OURS && *store != NULL,
        });
        let others = others.filter_map(|store| bars::find(lines, run, their_row, store));
        Some(ours / others.map(Measured::rate).reduce(f64::max)?)
    };
    bars::runs(lines).into_iter().filter_map(of).collect()
}

/// The rows in which a peer is ahead or a bar is not reached, before anything else.
fn losing(lines: &[Line], judged: &[Judged]) -> String {
    let mut text = "### Where Trine is behind or falls short\n\n".to_owned();
    let mut is_any = false;
    let mut say = |line: String| {
        is_any = true;
        // Writing to a string does not fail.
        let _ = writeln!(text, "- {line}");
    };
    for row in all_rows() {
        let rows = (row, peers_row(row));
        let Some(ratio) = median(&mut ratios(lines, rows, None)).filter(|ratio| *ratio < 1.0) else {
            continue;
        };
        let ahead = stores_of(lines).into_iter().filter(|store| *store != OURS && *store != NULL);
        let ahead = ahead
            .filter(|store| median(&mut ratios(lines, rows, Some(store))).is_some_and(|ratio| ratio < 1.0));
        let ahead: Vec<&str> = ahead.collect();
        let is_free =
            |one: &Measured| one.row == rows.1 && one.remarks.iter().any(|remark| remark == NOT_HELD);
        let free = ahead
            .iter()
            .copied()
            .filter(|store| bars::measured(lines).any(|one| one.store == *store && is_free(one)));
        let free: Vec<&str> = free.collect();
        let but = if free.is_empty() {
            String::new()
        } else {
            format!("; not held to the memory of the row: {}", free.join(", "))
        };
        say(format!("{row}: {ratio:.2} of the best peer; ahead: {}{but}.", ahead.join(", ")));
    }
    for one in judged {
        let ratio = median(&mut one.ratios.clone());
        match one.verdict {
            Verdict::Missed => say(format!(
                "{}: {} is the bar, {} was measured.",
                one.bar.row,
                one.bar.told(),
                figure(one, ratio)
            )),
            Verdict::TooClose => say(format!(
                "{}: {} is the bar, {} was measured: too close to say in {} runs.",
                one.bar.row,
                one.bar.told(),
                figure(one, ratio),
                one.ratios.len()
            )),
            Verdict::Met | Verdict::NotMeasured => {}
        }
    }
    let wrong: u64 = bars::measured(lines).map(|one| one.wrong).sum();
    for one in bars::measured(lines).filter(|one| one.wrong > 0) {
        let first = one.first_wrong.as_deref().unwrap_or_default();
        say(format!("{}, {}: **{} WRONG ANSWERS**: {first}.", one.row, one.store, one.wrong));
    }
    let not_measured = judged.iter().filter(|one| one.verdict == Verdict::NotMeasured).count();
    if !is_any {
        text.push_str("Nowhere in what was measured.\n");
    }
    if not_measured > 0 {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\nNot measured here: {not_measured} of {} bars.", judged.len());
    }
    if wrong == 0 {
        text.push_str("\nEvery value that was read was checked; none was wrong.\n");
    }
    text
}

/// A measured figure as its bar is told: a number that is a bar by itself, or a factor.
fn figure(one: &Judged, ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else { return "nothing".to_owned() };
    let is_time = matches!(one.bar.figure, bars::Figure::P9999 | bars::Figure::Longest);
    match one.bar.against {
        bars::Against::One if is_time => format!("{:.1} ms", ratio / 1e6),
        bars::Against::One => format!("{ratio:.3}"),
        _ => format!("{ratio:.2} ×"),
    }
}

fn bars_table(judged: &[Judged]) -> String {
    let rows = judged.iter().map(|one| {
        let spread = match (one.ratios.first(), one.ratios.last()) {
            (Some(low), Some(high)) if one.ratios.len() > 1 => {
                format!("{} to {}", figure(one, Some(*low)), figure(one, Some(*high)))
            }
            _ => "–".to_owned(),
        };
        let side = if one.bar.side == Side::AtLeast { "≥" } else { "≤" };
        let middle = figure(one, median(&mut one.ratios.clone()));
        let bar = one.bar.told().replace(" at least ", " ≥ ").replace(" at most ", " ≤ ");
        debug_assert!(bar.contains(side));
        vec![one.bar.row.to_owned(), bar, middle, spread, one.verdict.name().to_owned()]
    });
    let head = ["row", "bar", "measured, median", "least to most", "verdict"];
    format!("### The bars\n\n{}", table(&head, rows))
}

fn rates(lines: &[Line]) -> String {
    let stores = stores_of(lines);
    let rows = standard_rows().filter_map(|row| {
        let over = |other| factor(&mut ratios(lines, (row, row), other));
        let told = [row.to_owned()].into_iter().chain(rates_of(lines, &stores, row)?);
        Some(told.chain([over(None), over(Some("rocksdb"))]).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["operations a second"];
    head.extend(&stores);
    head.extend(["Trine over the best peer", "over RocksDB"]);
    format!(
        "### Rates, medians\n\nA factor is the median of those of the runs, and need not be that of the \
         medians beside it.\n\n{}",
        table(&head, rows)
    )
}

/// What each store does in a row, if any was measured.
fn rates_of(lines: &[Line], stores: &[&str], row: &str) -> Option<Vec<String>> {
    let rates: Vec<Option<f64>> = stores.iter().map(|store| rate(lines, row, store)).collect();
    let told = || rates.iter().map(|rate| rate.map_or("–".to_owned(), count)).collect();
    rates.iter().any(Option::is_some).then(told)
}

fn factor(ratios: &mut [f64]) -> String {
    median(ratios).map_or("–".to_owned(), |ratio| format!("{ratio:.2} ×"))
}

/// Gets by value size: of each memory, size and way.
fn sizes(lines: &[Line]) -> String {
    let stores = stores_of(lines);
    let mut rows = Vec::new();
    for (cached, is_half) in [("5 %", false), ("50 %", true)] {
        let row = |one: &Flight| if is_half { one.half } else { one.cold };
        for size in &SIZES {
            for one in &size.gets {
                let Some(rates) = rates_of(lines, &stores, row(one)) else { continue };
                let over = factor(&mut ratios(lines, (row(one), peers_row(row(one))), None));
                let told = [format!("{} B", size.value_bytes), cached.to_owned(), one.told.to_owned()];
                rows.push(told.into_iter().chain(rates).chain([over]).collect::<Vec<String>>());
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["value", "memory", "gets a second"];
    head.extend(&stores);
    head.push("Trine over the best peer");
    format!(
        "### Value sizes\n\nMedians of random gets, with memory of 5 % and of 50 % of keys and \
         values, for all that a store keeps there.\nFutures, which no peer has, stand beside the peers' \
         keys together: as many requests in flight.\n\n{}",
        table(&head, rows)
    )
}

fn details(lines: &[Line]) -> String {
    let mut text = "### Everything, by group\n".to_owned();
    for group in Group::all() {
        let of_group: Vec<&Measured> =
            bars::measured(lines).filter(|one| one.group == group.name()).collect();
        let mut rows = Vec::new();
        for row in all_rows() {
            for store in stores_of(lines) {
                let all: Vec<&Measured> =
                    of_group.iter().copied().filter(|one| one.row == row && one.store == store).collect();
                if let Some(first) = all.first() {
                    let mut cells = cells(store, &all);
                    cells.insert(0, row.to_owned());
                    cells.push(more(&all, first));
                    rows.push(cells);
                }
            }
        }
        if !rows.is_empty() {
            let mut head = vec!["row"];
            head.extend(HEAD);
            head.push("more");
            // Writing to a string does not fail.
            let _ = write!(text, "\n#### {}\n\n{}", group.name(), table(&head, rows));
        }
    }
    text
}

/// Figures that only some rows have, and what was remarked.
fn more(all: &[&Measured], first: &Measured) -> String {
    let names: BTreeSet<&String> = all.iter().flat_map(|one| one.more.keys()).collect();
    let mut told: Vec<String> = names
        .into_iter()
        .filter_map(|name| {
            let figures = all.iter().filter_map(|one| one.more.get(name).copied());
            let middle = median(&mut figures.collect::<Vec<f64>>())?;
            Some(format!("{} {middle:.3}", name.replace('_', " ")))
        })
        .collect();
    if first.operations_a_latency > 1 {
        told.push(format!("a latency is of {} together", first.operations_a_latency));
    }
    let remarks: BTreeSet<&String> = all.iter().flat_map(|one| &one.remarks).collect();
    told.extend(remarks.into_iter().cloned());
    told.join("; ")
}

fn stores(lines: &[Line]) -> String {
    let begun = lines.iter().filter_map(|line| if let Line::Begun(one) = line { Some(one) } else { None });
    let mut seen: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for store in begun.flat_map(|one| &one.stores) {
        if !seen.contains(&store.name.as_str()) {
            seen.push(&store.name);
            rows.push(vec![store.label.clone(), store.versions.clone(), store.settings.clone()]);
        }
    }
    let head = ["store", "versions", "settings; M is the total of memory"];
    format!("### How each is set\n\n{}", table(&head, rows))
}

fn runs(lines: &[Line]) -> String {
    let mut text = "### The runs\n\n".to_owned();
    let mut begun: Option<&Calibration> = None;
    for line in lines {
        let written = match line {
            Line::Begun(Begun { date, machine, command, seed, scale, remarks, .. }) => {
                let remarks: String = remarks.iter().map(|remark| format!(" {remark}.")).collect();
                writeln!(text, "- `{command}`, scale {scale}, seed {seed}, on {date}, {machine}.{remarks}")
            }
            Line::Device(one) if !one.is_after => {
                begun = Some(one);
                writeln!(text, "  - the device before: {}", device(one))
            }
            Line::Device(one) => {
                let moved = begun.filter(|before| before.run == one.run).map(|before| moved(before, one));
                let moved = moved.filter(|moved| !moved.is_empty());
                let moved =
                    moved.map_or(String::new(), |moved| format!("; **it moved**: {}", moved.join(", ")));
                writeln!(text, "  - and after: {}{moved}", device(one))
            }
            Line::Failed(one) => {
                writeln!(text, "  - **failed**: {}, {}, run {}: {}", one.store, one.group, one.run, one.why)
            }
            Line::Measured(_) => Ok(()),
        };
        written.expect("a string takes every write");
    }
    text
}

fn device(one: &Calibration) -> String {
    let random = one.random_reads.iter().map(|(depth, reads)| format!("{} at depth {depth}", count(*reads)));
    let direct = if one.direct_io { "" } else { "; through the page cache" };
    format!(
        "random reads of 4 KiB a second {}; {:.2} GB/s read and {:.2} GB/s written in order; {} \
         overwrites of 4 KiB with fdatasync a second{direct}",
        random.collect::<Vec<String>>().join(", "),
        one.sequential_read_bytes / 1e9,
        one.sequential_write_bytes / 1e9,
        count(one.syncs)
    )
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;

    fn line(run: u64, row: &str, store: &str, operations: u64) -> Line {
        let (row, store, group) = (row.to_owned(), store.to_owned(), "cached".to_owned());
        let measured = Measured { run, row, store, group, operations, seconds: 1.0, ..Measured::default() };
        Line::Measured(Box::new(measured))
    }

    /// What is lost stands first: rows a peer leads, bars that are missed, wrong answers; `null` leads
    /// nothing.
    #[test]
    fn what_is_lost_stands_first() {
        let mut lines = vec![
            line(1, rows::SCAN, OURS, 100),
            line(1, rows::SCAN, "rocksdb", 50),
            line(1, rows::SCAN, "lmdb", 200),
            line(1, rows::SCAN, NULL, 9000),
            line(1, rows::GET, OURS, 400),
            line(1, rows::GET, "rocksdb", 100),
        ];
        let text = tables(&lines, "");
        let (first, rest) = text.split_once("### The bars").expect("the bars follow");
        assert!(first.starts_with("### Where Trine is behind"), "{first}");
        assert!(first.contains("- cached scan of 100: 0.50 of the best peer; ahead: lmdb.\n"), "{first}");
        assert!(first.contains("cached scan of 100: operations a second at least 3 × rocksdb"), "{first}");
        assert!(!first.contains(rows::GET) && first.contains("none was wrong"), "{first}");
        assert!(rest.contains("| 4.00 × | – | met |") && rest.contains("| **missed** |"), "{rest}");
        if let Some(Line::Measured(one)) = lines.get_mut(2) {
            one.remarks.push(NOT_HELD.to_owned());
        }
        assert!(tables(&lines, "").contains("ahead: lmdb; not held to the memory of the row: lmdb.\n"));
        if let Some(Line::Measured(one)) = lines.last_mut() {
            (one.wrong, one.first_wrong) = (2, Some("key 00 is missing".into()));
        }
        let text = tables(&lines, "");
        assert!(
            text.contains("cached get, uniform, rocksdb: **2 WRONG ANSWERS**: key 00 is missing."),
            "{text}"
        );
        assert!(!text.contains("none was wrong"), "{text}");
    }

    /// Rows by value size stand in a table of their own; futures stand beside the peers' keys together.
    #[test]
    fn sizes_have_a_table() {
        let [.., together, futures] = SIZES[0].gets;
        let lines = [
            line(1, rows::GET, OURS, 100),
            line(1, together.half, OURS, 300),
            line(1, together.half, "rocksdb", 150),
            line(1, futures.half, OURS, 600),
        ];
        let text = tables(&lines, "");
        let (rates, sizes) = text.split_once("### Value sizes").expect("there is such a heading");
        assert!(rates.contains(rows::GET) && !rates.contains(together.half), "{rates}");
        assert!(sizes.contains("| 16 B | 50 % | 64 keys together | 300 | 150 | 2.00 × |"), "{sizes}");
        assert!(sizes.contains("| 16 B | 50 % | 64 futures, block_on | 600 | – | 4.00 × |"), "{sizes}");
        assert!(!tables(&lines[..1], "").contains("### Value sizes"));
    }

    /// Only what is between the markers changes, and runs of two files are never one run.
    #[test]
    fn pages_keep_the_rest() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let files = [path("a.json"), path("b.json")];
        let pairs = [(line(1, rows::GET, OURS, 100), 0), (line(1, rows::GET, "rocksdb", 400), 1)];
        for (line, file) in pairs {
            results::Sink::new(Some(&files[file]))
                .and_then(|mut sink| sink.push(line))
                .expect("it is written");
        }
        assert_eq!(bars::runs(&read(&files).expect("they are read")), [1001, 2001]);
        let mut sink = results::Sink::new(Some(&files[1])).expect("it opens");
        for line in [Line::Begun(Begun::default()), line(1, rows::GET, "rocksdb", 200)] {
            sink.push(line).expect("it is written");
        }
        assert_eq!(bars::runs(&read(&files).expect("they are read")), [1001, 2001, 3001]);
        let file = path("page.md");
        std::fs::write(&file, format!("before\n{BEGIN}\nof before\n{END}\nafter\n")).expect("writes");
        page(&file, &files).expect("writes the page");
        let text = std::fs::read_to_string(&file).expect("reads");
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n") && !text.contains("of before"));
        assert!(text.contains("| cached get, uniform | 100 | 300 | – | – |"), "{text}");
        std::fs::write(&file, "no markers").expect("writes");
        assert!(page(&file, &[]).is_err());
    }
}
