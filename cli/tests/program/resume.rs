//! Killed imports, and their resumption.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use super::{Place, words};

const ROWS: u64 = 20_000;

/// Far more acknowledgements than a pipe holds: the program cannot finish before it is killed.
const BATCH_ROWS: &str = "2";

fn csv(first_name: &str) -> String {
    let rows = (1..ROWS).map(|number| format!("{number},\"name\n{number}\"\n"));
    std::iter::once(format!("id,name\n0,{first_name}\n")).chain(rows).collect()
}

/// Starts an import and kills it after some commits; returns the acknowledged rows.
fn killed_import(place: &Place, file: &str) -> u64 {
    let arguments = ["k", file, "--key", "id", "--value", "name", "--batch", BATCH_ROWS, "--acknowledge"];
    let mut child = place.command("import", arguments).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut acknowledged = 0;
    for line in lines.by_ref().take(50) {
        acknowledged = line.expect("it acknowledges").parse().expect("a number");
    }
    child.kill().expect("it can be killed");
    for line in lines.map_while(Result::ok) {
        acknowledged = line.parse().unwrap_or(acknowledged).max(acknowledged);
    }
    assert!(!child.wait().expect("it ends").success());
    assert!((50..ROWS).contains(&acknowledged));
    acknowledged
}

fn half_imported() -> (Place, PathBuf, u64) {
    let place = Place::new();
    let file = place.with_file("rows.csv", csv("zero"));
    let acknowledged = killed_import(&place, words(&file));
    (place, file, acknowledged)
}

fn position(place: &Place) -> Option<Value> {
    let value = place.all(".import").first()?["value"].as_str().expect("text").to_string();
    Some(serde_json::from_str(&value).expect("the position is JSON"))
}

/// A killed import keeps every acknowledged row, resumes exactly at its position, and ends with the same
/// items as an uninterrupted one.
#[test]
fn a_killed_import_goes_on_where_it_was() {
    let (place, file, acknowledged) = half_imported();
    let in_before = place.all("k").len() as u64;
    assert!(in_before >= acknowledged);
    assert_eq!(position(&place).expect("a position")["items"].as_u64(), Some(in_before));
    let report = place.run("import", ["k", words(&file), "--key", "id", "--value", "name", "--json"]).ok();
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!(report["imported"].as_u64(), Some(ROWS - in_before));
    assert_eq!(report["imported_in_all"].as_u64(), Some(ROWS));
    place.run("import", ["unbroken", words(&file), "--key", "id", "--value", "name"]).ok();
    assert_eq!(place.run("scan", ["k"]).ok(), place.run("scan", ["unbroken"]).ok());
    assert_eq!(position(&place), None);
}

/// A file that changed, in length or in imported rows, is refused; --restart imports it from the beginning.
#[test]
fn a_changed_file_is_refused() {
    let (place, file, _) = half_imported();
    let import = ["k", words(&file), "--key", "id", "--value", "name"];
    place.with_file("rows.csv", csv("zer0"));
    let error = place.run("import", import).failed(3);
    assert!(error.contains("have changed since") && error.contains("--restart"), "{error}");
    place.with_file("rows.csv", csv("nought"));
    let error = place.run("import", import).failed(3);
    assert!(error.contains("bytes then and has") && error.contains("--restart"), "{error}");
    assert_eq!(place.run("import", import.iter().chain(&["--json"])).failed_json(3), "changed_import");
    place.run("import", import.iter().chain(&["--restart"])).ok();
    assert_eq!(place.run("get", ["k", "0"]).ok(), "nought\n");
    assert_eq!(place.all("k").len() as u64, ROWS);
}

/// Other options read rows differently, so an import with them cannot resume; other keyspaces have their own
/// positions.
#[test]
fn other_options_are_refused() {
    let (place, file, _) = half_imported();
    let error = place.run("import", ["k", words(&file), "--key", "name"]).failed(3);
    assert!(error.contains("it was begun with --format csv --key \"id\" --value \"name\""), "{error}");
    let report = place.run("import", ["other", words(&file), "--key", "id", "--json"]).ok();
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!(report["imported"].as_u64(), Some(ROWS));
    assert!(position(&place).is_some());
}

/// Files of any layout can be resumed: without a header, with a separator named in the first line, with a
/// byte order mark, with CR line ends. The columns are those of the first row, also when another row comes
/// first.
#[test]
fn other_layouts_go_on() {
    let place = Place::new();
    let rows = |line_break: &str| -> String {
        (0..200).map(|row| format!("{row:03};\"v{line_break}{row}\"{line_break}")).collect()
    };
    let bad = |line_break: &str| format!("a;b;c{line_break}");
    let cases = [
        ("bare.csv", String::new(), "\n", vec!["--no-header", "--separator", ";"]),
        ("said.csv", "\u{feff}sep=;\r\nkey;value\r\n".to_string(), "\r\n", vec![]),
        ("mac.csv", "\u{feff}key;value\r".to_string(), "\r", vec!["--separator", ";"]),
    ];
    for (name, first, line_break, options) in cases {
        let text = format!("{first}{}{}{}", rows(line_break), bad(line_break), "zz;last");
        let file = place.with_file(name, &text);
        let import = || [name, words(&file), "--batch", "7"].into_iter().chain(options.clone());
        let error = place.run("import", import()).failed(3);
        assert!(
            error.contains("3 fields, where 2 are expected; the first too many begins at column 5"),
            "{error}"
        );
        assert_eq!(position(&place).expect("a position")["items"].as_u64(), Some(200));
        let report = place.run("import", import().chain(["--skip-bad", "--json"])).ok();
        let report: Value = serde_json::from_str(&report).expect("it is JSON");
        assert_eq!((report["imported"].as_u64(), report["skipped"].as_u64()), (Some(1), Some(1)));
        let all = place.all(name);
        assert_eq!(all.len(), 201);
        assert_eq!(all[7]["value"].as_str(), Some(format!("v{line_break}7").as_str()));
        assert_eq!(position(&place), None);
    }
}
