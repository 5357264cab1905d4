//! The command `results`: writes the measurements into the pages of the project.

use std::path::{Path, PathBuf};

use super::results::{self, Line};
use super::{latest, verdicts};
use crate::engines::Answer;

/// Markers in the page of bars and in the README; the text between them is replaced.
const BEGIN: &str = "<!-- peers: begin; written by `peers results` -->";
const END: &str = "<!-- peers: end -->";

/// The pages, by their path from the root of the project.
const README: &str = "README.md";
const BARS: &str = "docs/RESULTS.md";
const LATEST: &str = "docs/results/latest.md";
const FIGURES: &str = "docs/results/latest.csv";

/// Added to the numbers of runs once per session, so that runs of two sessions differ.
const RUNS_OF_SESSION: u64 = 1000;

/// The lines of several files. Sessions number their runs alike, and a file may have several sessions; here
/// all runs get different numbers.
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
                Line::Doing(_) => None,
            };
            if let Some(run) = run {
                *run += session * RUNS_OF_SESSION;
            }
            all.push(line);
        }
    }
    Ok(all)
}

/// Writes the bars and the rows of the README between the markers of their pages, all other tables into a
/// page of their own, and every figure into a file beside that page.
pub(crate) fn pages(root: &Path, files: &[PathBuf]) -> Answer<()> {
    let lines = read(files)?;
    let bars = between_markers(&root.join(BARS), &verdicts::bars_table(&lines))?;
    let readme = between_markers(&root.join(README), &verdicts::shown(&lines))?;
    let (latest, figures) = (latest::page(&lines), latest::all_figures(&lines)?);
    for (page, text) in [(BARS, bars), (README, readme), (LATEST, latest), (FIGURES, figures)] {
        std::fs::write(root.join(page), text).map_err(|error| format!("{page}: {error}"))?;
    }
    Ok(())
}

/// The page with new text between its markers.
fn between_markers(page: &Path, tables: &str) -> Answer<String> {
    let text = std::fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let markers = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        markers.ok_or_else(|| format!("{} has no lines {BEGIN} and {END}", page.display()))?;
    Ok(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::bars::{self, OURS};
    use super::super::results::{Begun, Measured};
    use super::super::rows;
    use super::*;

    fn line(row: &str, store: &str, operations: u64) -> Line {
        let (row, store, group) = (row.to_owned(), store.to_owned(), "cached".to_owned());
        let measured =
            Measured { run: 1, row, store, group, operations, seconds: 1.0, ..Measured::default() };
        Line::Measured(Box::new(measured))
    }

    /// Only the text between the markers changes, the page of all rows is written whole, and runs of two
    /// files stay different.
    #[test]
    fn pages_keep_the_rest() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(path("docs/results")).expect("folders");
        let files = [path("a.json"), path("b.json")];
        let pairs = [(line(rows::GET, OURS, 100), 0), (line(rows::GET, "rocksdb", 400), 1)];
        for (line, file) in pairs {
            results::Sink::new(Some(&files[file]))
                .and_then(|mut sink| sink.push(line))
                .expect("it is written");
        }
        assert_eq!(bars::runs(&read(&files).expect("they are read")), [1001, 2001]);
        let mut sink = results::Sink::new(Some(&files[1])).expect("it opens");
        for line in [Line::Begun(Begun::default()), line(rows::GET, "rocksdb", 200)] {
            sink.push(line).expect("it is written");
        }
        assert_eq!(bars::runs(&read(&files).expect("they are read")), [1001, 2001, 3001]);
        for page in [README, BARS] {
            std::fs::write(path(page), format!("before\n{BEGIN}\nof before\n{END}\nafter\n"))
                .expect("writes");
        }
        pages(directory.path(), &files).expect("writes the pages");
        for page in [README, BARS] {
            let text = std::fs::read_to_string(path(page)).expect("reads");
            assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"), "{text}");
            assert!(text.contains("|---|"), "{text}");
            assert!(!text.contains("of before"), "{text}");
        }
        let text = std::fs::read_to_string(path(LATEST)).expect("reads");
        assert!(text.contains("| cached get, uniform | 100 | 300 | – | – |"), "{text}");
        let figures = std::fs::read_to_string(path(FIGURES)).expect("reads");
        assert!(figures.starts_with("group,row,store,a second,"), "{figures}");
        assert!(figures.contains("\ncached,\"cached get, uniform\",trine,100,"), "{figures}");
        std::fs::write(path(BARS), "no markers").expect("writes");
        assert!(pages(directory.path(), &[]).is_err());
    }
}
