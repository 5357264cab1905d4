//! The built program, run as by its users: arguments in; standard output, standard error and exit code out.

#![expect(clippy::disallowed_methods, reason = "tests of the program, not of the library")]

use std::process::{Command, Stdio};

use serde_json::Value;

const PRESETS: [&str; 4] = ["drizard", "lemur-leveling", "lemur-tiering", "default"];
const EXPERIMENTS: [&str; 20] = [
    "drizard-architectures",
    "drizard-bloom",
    "drizard-bounds",
    "drizard-parallel",
    "lemur-levels",
    "lemur-bloom",
    "lsmtrie-put",
    "lsmtrie-htable",
    "lsmtrie-read",
    "lsmtrie-metadata",
    "parallel-search",
    "trident-threads",
    "trident-read",
    "trident-delete",
    "trident-objectstore",
    "trident-scheduler",
    "trident-learned",
    "trident-write",
    "trident-ycsb",
    "trident-ablation",
];

/// The result of a run of the program.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Ran {
    /// Its standard output, if it succeeded.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }
}

fn run(words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trine-repro"));
    let output = command.args(words).stdin(Stdio::null()).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes text");
    Ran { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&run(words).ok()).expect("it answers in JSON")
}

/// Every preset answers as a map, over reopens, also with other knobs; so does the store itself.
#[test]
fn presets_are_verified() {
    for preset in PRESETS {
        let report = json(&["verify-random", preset, "--operations", "6000", "--keys", "900", "--json"]);
        assert_eq!(report["wrong"], 0, "{report}");
        assert!(report["answers"].as_u64().expect("a number") > 2000, "{report}");
        assert_eq!(report["target"]["preset"], preset);
    }
    let small = ["--set", "memory_items=50", "--set", "ratio=2", "--set", "filter=global"];
    let words = ["verify-random", "drizard", "--operations", "4000", "--keys", "500"];
    let told = run(&[&words[..], &small[..]].concat()).ok();
    assert!(told.contains("0 wrong"), "{told}");
}

/// Rates are reported with their interval, for people and for programs, and every knob is reported.
#[test]
fn rates_are_told() {
    for preset in PRESETS {
        let words = ["time", preset, "--inserts", "3000", "--searches", "100", "--runs", "2"];
        let told = run(&words).ok();
        assert!(told.contains("inserts") && told.contains("searches") && told.contains("95 %"), "{told}");
    }
    let words = ["time", "drizard", "--inserts", "500", "--searches", "50", "--runs", "2", "--json"];
    let report = json(&[&words[..], &["--set", "ratio=7"]].concat());
    assert_eq!(report["target"]["knobs"]["ratio"], "7");
    assert_eq!(report["rates"]["inserts"]["runs"].as_array().map(Vec::len), Some(2));
    assert!(report["rates"]["searches"]["interval_95"].is_number());
}

/// An unknown preset, knob, value of a knob or experiment is wrong usage and reported by its name.
#[test]
fn unknown_names_are_wrong_usage() {
    for (words, named) in [
        (&["time", "lizard"][..], "lizard"),
        (&["time", "drizard", "--set", "colour=red"], "colour"),
        (&["time", "drizard", "--set", "ratio=1"], "ratio"),
        (&["time", "drizard", "--set", "ratio"], "NAME=VALUE"),
        (&["verify-random", "drizard", "--set", "key_bytes=8"], "key_bytes"),
        (&["run", "lizard-levels"], "lizard-levels"),
        (&["run", "lemur-bloom", "--partitions", "3"], "trident-delete"),
        (&["run", "lemur-bloom", "--scale", "0"], "scale"),
    ] {
        let ran = run(words);
        assert_eq!(ran.code, Some(2), "{words:?}: {ran:?}");
        assert!(ran.error.contains(named), "{ran:?}");
    }
    let told = run(&["run", "lizard-levels", "--json"]).error;
    let error: Value = serde_json::from_str(&told).expect("the error is JSON");
    assert_eq!(error["error"]["kind"], "usage");
    assert!(run(&["time", "lizard"]).error.starts_with("trine-repro: "));
}

/// Each experiment is listed, runs at a small scale, and has figures with claims, verdicts, reasons, a
/// picture and its numbers.
#[test]
fn experiments_give_figures() {
    let listed = json(&["run", "--list", "--json"]);
    let names: Vec<&str> =
        listed.as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, EXPERIMENTS);
    let place = tempfile::tempdir().expect("a temporary directory");
    for name in EXPERIMENTS {
        let out = place.path().join(name);
        let out = out.to_str().expect("a path of text");
        let report = json(&["run", name, "--scale", "0.0005", "--out", out, "--json"]);
        assert_eq!(report["experiment"], name);
        let figures = report["figures"].as_array().expect("a list");
        assert!(!figures.is_empty());
        for figure in figures {
            let file = |extension: &str| {
                let name = figure["name"].as_str().expect("a name");
                std::fs::read_to_string(format!("{out}/{name}.{extension}")).expect("it was written")
            };
            assert!(file("svg").starts_with("<svg") && file("csv").lines().count() > 2);
            assert!(figure["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
            for claim in figure["claims"].as_array().expect("a list") {
                let verdict = claim["verdict"].as_str().expect("a verdict");
                assert!(["agrees", "differs", "cannot be tested here"].contains(&verdict));
                assert!(claim["reason"].as_str().is_some_and(|reason| reason.len() > 10));
            }
        }
    }
    let figures = json(&["run", "trident-delete", "--scale", "0.0005", "--partitions", "3", "--json"]);
    let rows = figures["figures"][0]["rows"].as_array().map(Vec::len);
    assert_eq!(rows, Some(3), "a row before the first deletion and one after each of two");
    let told = run(&["run", "drizard-bounds", "--scale", "0.0005"]).ok();
    assert!(told.contains("→ paper: +20 %") && told.contains("ours:"), "{told}");
}
