//! A small demo, from start to end: load, kill, recovery, reads, checks, report.

use serde_json::Value;

use super::{Place, ran, trine};

/// With generated records: every check passes, the report is JSON, and --dir keeps a store that opens.
#[test]
fn a_small_demo_passes() {
    let place = Place::new();
    let directory = place.file("try");
    let mut demo = trine();
    demo.args(["demo", "--generate", "--records", "5000", "--seconds", "1", "--json", "--dir"])
        .arg(&directory);
    let report: Value = serde_json::from_str(&ran(&mut demo).ok()).expect("the report is JSON");
    assert_eq!(report["failed"].as_u64(), Some(0));
    assert_eq!(report["input"]["records"].as_u64(), Some(5000));
    assert_eq!(report["input"]["generated"].as_bool(), Some(true));
    assert!(report["checks"].as_array().is_some_and(|checks| checks.len() >= 10));
    let steps = report["reads"]["trace"].as_array().expect("an array");
    let names: Vec<&str> = steps.iter().filter_map(|step| step["name"].as_str()).collect();
    assert_eq!(names, ["MtGet", "FileFind", "FBLoad", "FBMatch", "IBLoad", "IBSeek", "DBLoad", "DBSeek"]);
    assert!(ran(trine().arg("stats").arg(directory.join("store"))).ok().contains("words"));
    let again = ran(trine().args(["demo", "--dir"]).arg(&directory)).failed(2);
    assert!(again.contains("is not empty"), "{again}");
}

/// With the sources of this machine: the report for people ends with its verdict, and no directory is left.
#[test]
fn the_report_is_for_people() {
    let place = Place::new();
    let mut demo = trine();
    demo.args(["demo", "--records", "5000", "--seconds", "1"]).env("TMPDIR", place.directory.path());
    let report = ran(&mut demo).ok();
    for title in
        ["Records", "Load", "Kill and recovery", "Reads", "Memory while reading", "One get", "Checks"]
    {
        assert!(report.contains(&format!("\n{title}")), "{title} in {report}");
    }
    assert!(report.contains("answers were right"), "{report}");
    assert_eq!(std::fs::read_dir(place.directory.path()).expect("it is there").count(), 0);
}
