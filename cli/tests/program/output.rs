//! Printed keys, values, names and paths contain no character that a terminal interprets or hides. Also the
//! files that export replaces.

use serde_json::{Value, json};

use super::{Place, ran, trine, words};

/// A color, a C1 control, a bidirectional override, a tag character and DEL.
const HIDDEN: &str = "a\u{1b}[31m\u{9b}31m\u{202e}gnp\u{e0041}\u{7f}";

#[track_caller]
fn assert_safe(text: &str) {
    let is_safe = |character: char| {
        matches!(character, '\n' | '\t')
            || !(character.is_control() || "\u{202e}\u{e0041}\u{feff}".contains(character))
    };
    assert!(text.chars().all(is_safe), "{text:?}");
}

/// Answers for people and for programs have no raw control or format character, and JSON still represents the
/// same text. Before, such characters were printed raw.
#[test]
fn answers_hide_nothing() {
    let place = Place::new();
    place.run("put", [HIDDEN, HIDDEN, HIDDEN]).ok();
    let commands: [&[&str]; 6] = [
        &["get", HIDDEN, HIDDEN],
        &["scan", HIDDEN],
        &["explain", HIDDEN, HIDDEN],
        &["stats"],
        &["verify"],
        &["export", HIDDEN],
    ];
    for command in commands {
        for json in [false, true] {
            let more = json.then_some("--json");
            let out = place.run(command[0], command[1..].iter().copied().chain(more)).ok();
            assert_safe(&out);
        }
    }
    let item: Value =
        serde_json::from_str(&place.run("get", [HIDDEN, HIDDEN, "--json"]).ok()).expect("it is JSON");
    assert_eq!(item, json!({"key": HIDDEN, "value": HIDDEN}));
    assert_eq!(place.all(HIDDEN), [item]);
    let escaped = "a\\x1b[31m\\xc2\\x9b31m\\xe2\\x80\\xaegnp\\xf3\\xa0\\x81\\x81\\x7f\n";
    assert_eq!(place.run("get", [HIDDEN, HIDDEN]).ok(), escaped);
    assert_eq!(place.run("get", [HIDDEN, HIDDEN, "--raw"]).ok(), HIDDEN);
    let lines = place.run("export", [HIDDEN]).ok();
    let file = place.with_file("items.jsonl", &lines);
    place.run("import", ["again", words(&file)]).ok();
    assert_eq!(place.run("get", ["again", HIDDEN, "--raw"]).ok(), HIDDEN);
    let cleared = place.run("clear", [HIDDEN, "--json"]).ok();
    assert_safe(&cleared);
    assert_eq!(serde_json::from_str::<Value>(&cleared).ok(), Some(json!({"cleared": HIDDEN})));
}

/// Errors name paths, keys, keyspaces and arguments in one safe line, or in JSON. Before, escape bytes of
/// paths reached the terminal.
#[test]
fn errors_hide_nothing() {
    let place = Place::new();
    let path = place.file(HIDDEN);
    let path = words(&path);
    let (two_lines, missing) = (format!("{path}\nb"), format!("{path}/none.csv"));
    let store = place.store();
    let store = words(&store);
    place.run("put", ["k", "a", "1"]).ok();
    let commands: [(&[&str], i32); 9] = [
        (&["scan", path, "k"], 3),
        (&["scan", &two_lines, "k"], 3),
        (&["dump", path], 3),
        (&["verify", path], 3),
        (&["get", store, "k", HIDDEN], 1),
        (&["get", store, HIDDEN, "a"], 3),
        (&["import", path, "k", path, "--format", "csv"], 3),
        (&["import", path, "k", path], 2),
        (&["export", store, "k", &missing], 3),
    ];
    for (command, code) in commands {
        let error = ran(trine().args(command)).failed(code);
        assert_safe(&error);
        let told = ran(trine().args(command).arg("--json"));
        assert_safe(&told.error);
        told.failed_json(code);
    }
    let wrong = ran(trine().arg(HIDDEN));
    assert_eq!(wrong.code, Some(2));
    assert_safe(&wrong.error);
    assert!(wrong.error.contains("\\xc2\\x9b31m") && wrong.error.contains("Usage"), "{wrong:?}");
}

/// Bytes of a path that are not text are printed as digits. Before, all were printed as one replacement
/// character.
#[cfg(unix)]
#[test]
fn paths_are_told_apart() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let mut path = place.file("").into_os_string();
    path.push(std::ffi::OsStr::from_bytes(b"\xff.csv"));
    let mut command = place.command("import", ["k"]);
    let error = ran(command.arg(&path)).failed(3);
    assert!(error.contains("\\xff.csv"), "{error}");
}

/// An export does not replace an existing file, also behind a symbolic link, without --force. With it a link
/// stays and its target is replaced. Before, both were replaced without a warning.
#[cfg(unix)]
#[test]
fn export_replaces_nothing_unasked() {
    let place = Place::new();
    place.run("put", ["k", "a", "1"]).ok();
    let file = place.with_file("precious.csv", "precious");
    let link = place.file("link.csv");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let dangling = place.file("dangling.csv");
    std::os::unix::fs::symlink("nowhere.csv", &dangling).expect("a link");
    for path in [&file, &link, &dangling] {
        let error = place.run("export", ["k", words(path)]).failed(3);
        assert!(error.contains("--force replaces"), "{error}");
    }
    assert_eq!(std::fs::read(&file).expect("it is there"), b"precious");
    assert!(place.run("export", ["k", words(&dangling), "--force"]).failed(3).contains("dangling.csv"));
    assert!(dangling.is_symlink() && !place.file("nowhere.csv").exists());
    place.run("export", ["k", words(&link), "--force"]).ok();
    assert!(link.is_symlink());
    assert_eq!(std::fs::read(&file).expect("it is there"), b"key,value,hex\na,1,\n");
    place.run("export", ["k", words(&file), "--force"]).ok();
    place.run("export", ["k", "/dev/null", "--format", "csv"]).ok();
}
