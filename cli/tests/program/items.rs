//! get, put, delete, clear, scan and stats; errors and exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Place, of_output, ran, trine, words};

/// A put item is found, and a deleted one is gone. Exit codes distinguish an absent key from a failure.
#[test]
fn put_get_delete() {
    let place = Place::new();
    assert_eq!(place.run("put", ["users", "ann", "one\ntwo", "--sync"]).ok(), "");
    assert_eq!(place.run("get", ["users", "ann"]).ok(), "one\ntwo\n");
    assert_eq!(place.run("get", ["users", "ann", "--raw"]).ok(), "one\ntwo");
    let object = json!({"key": "ann", "value": "one\ntwo"});
    assert_eq!(
        serde_json::from_str::<Value>(&place.run("get", ["users", "ann", "--json"]).ok()).ok(),
        Some(object)
    );
    assert_eq!(place.run("put", ["users", "minus", "-5"]).ok(), "");
    assert_eq!(place.run("get", ["users", "minus"]).ok(), "-5\n");
    assert_eq!(place.run("delete", ["users", "ann"]).ok(), "");
    assert_eq!(place.run("get", ["users", "ann"]).failed(1), "there is no key \"ann\" in \"users\"");
    assert_eq!(place.run("get", ["users", "ann", "--json"]).failed_json(1), "not_found");
}

/// A cleared keyspace is empty and takes no space; it still exists, and others are unchanged.
#[test]
fn clear() {
    let place = Place::new();
    let tsv: String = (0..20_000).map(|number| format!("key {number:08}\tsome value\n")).collect();
    let file = place.with_file("many.tsv", tsv);
    place.run("import", ["k", words(&file), "--no-header"]).ok();
    place.run("put", ["other", "a", "1"]).ok();
    assert_eq!(place.run("clear", ["k"]).ok(), "");
    assert_eq!(place.run("scan", ["k"]).ok(), "");
    assert_eq!(place.run("get", ["other", "a"]).ok(), "1\n");
    let all: Value = serde_json::from_str(&place.run("stats", ["--json"]).ok()).expect("it is JSON");
    let keyspaces = all["keyspaces"].as_array().expect("an array");
    let k = keyspaces.iter().find(|one| one["name"] == "k").expect("it is still there");
    assert_eq!(k["table_bytes"].as_u64(), Some(0), "{k}");
    place.run("put", ["k", "new", "2"]).ok();
    let cleared: Value = serde_json::from_str(&place.run("clear", ["k", "--json"]).ok()).expect("it is JSON");
    assert_eq!(cleared, json!({"cleared": "k"}));
    assert_eq!(place.run("get", ["k", "new"]).failed(1), "there is no key \"new\" in \"k\"");
    assert_eq!(place.run("clear", ["absent", "--json"]).failed_json(3), "no_keyspace");
    assert_eq!(place.run("clear", ["k", "--read-only", "--json"]).failed_json(2), "usage");
    assert!(place.run("clear", [".import"]).failed(2).contains("the program's own"));
}

/// Binary keys and values are given and printed as digits; without --hex they are escaped, in JSON they are
/// marked.
#[test]
fn binary_items() {
    let place = Place::new();
    place.run("put", ["index", "00ff", "cafe0a", "--hex"]).ok();
    assert_eq!(place.run("get", ["index", "00ff", "--hex"]).ok(), "cafe0a\n");
    assert_eq!(place.run("scan", ["index"]).ok(), "\\x00\\xff\t\\xca\\xfe\\n\n");
    assert_eq!(place.all("index"), [json!({"key_hex": "00ff", "value_hex": "cafe0a"})]);
    let error = place.run("get", ["index", "0g", "--hex"]).failed(2);
    assert!(error.contains("not hexadecimal"), "{error}");
}

/// Ranges, prefixes, limits and directions list the requested items, in key order.
#[test]
fn scans() {
    let place = Place::new();
    let csv: String = ["a", "ab", "abc", "b", "c"].map(|key| format!("{key},{key}{key}\n")).concat();
    let file = place.with_file("items.csv", csv);
    place.run("import", ["letters", words(&file), "--no-header"]).ok();
    let keys = |options: &[&str]| {
        let options = ["letters", "--keys-only"].iter().chain(options);
        place.run("scan", options).ok().lines().map(str::to_string).collect::<Vec<String>>().join(" ")
    };
    assert_eq!(keys(&[]), "a ab abc b c");
    assert_eq!(keys(&["--reverse"]), "c b abc ab a");
    assert_eq!(keys(&["--prefix", "ab"]), "ab abc");
    assert_eq!(keys(&["--prefix", "ab", "--reverse", "--limit", "1"]), "abc");
    assert_eq!(keys(&["--from", "ab", "--to", "b"]), "ab abc");
    assert_eq!(keys(&["--from", "abd", "--limit", "1"]), "b");
    assert_eq!(keys(&["--from", "b", "--to", "b"]), "");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(place.run("scan", ["letters", "--limit", "1"]).ok(), "a\taa\n");
    assert!(place.run("scan", ["letters", "--from", "b", "--to", "a"]).failed(2).contains("--reverse"));
}

/// The store may be named by --store, before or after the command.
#[test]
fn store_as_an_option() {
    let place = Place::new();
    let store = place.store();
    ran(trine().arg("--store").arg(&store).args(["put", "k", "a", "1"])).ok();
    assert_eq!(ran(trine().args(["get", "k", "a", "--store"]).arg(&store)).ok(), "1\n");
}

/// Each fault has its line, its kind and its exit code, and a command that reads creates nothing.
#[test]
fn faults_are_told() {
    let place = Place::new();
    assert_eq!(place.run("get", ["k", "a", "--json"]).failed_json(3), "missing");
    assert!(!place.store().exists());
    assert_eq!(place.run("delete", ["k", "a", "--json"]).failed_json(3), "missing");
    assert!(!place.store().exists());
    place.run("put", ["k", "a", "1"]).ok();
    assert_eq!(place.run("scan", ["other", "--json"]).failed_json(3), "no_keyspace");
    assert!(place.run("get", ["other", "a"]).failed(3).contains("other"));
    assert!(place.run("put", [".import", "a", "1"]).failed(2).contains("the program's own"));
    assert_eq!(place.run("put", ["k", "a", "2", "--read-only", "--json"]).failed_json(2), "usage");
    let large = "x".repeat(100_000);
    assert_eq!(place.run("put", ["k", &large, "1", "--json"]).failed_json(3), "too_large");
    assert_eq!(place.run("get", ["k", "a", "--memory", "1K", "--json"]).failed_json(3), "invalid");
    assert_eq!(place.run("get", ["k", "a"]).ok(), "1\n");
    let foreign = place.with_file("letter.txt", "dear");
    let opened =
        ran(trine().args(["put", words(foreign.parent().expect("it is in a directory")), "k", "a", "1"]));
    let error = opened.failed(3);
    assert!(error.contains("not a store"), "{error}");
}

/// Wrong usage has exit code 2, for people and for programs; help and version are not faults.
#[test]
fn usage() {
    let wrong = ran(trine().args(["get", "only-a-store"]));
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.error.contains("Usage"), "{wrong:?}");
    assert_eq!(ran(trine().args(["--json", "no-such-command"])).failed_json(2), "usage");
    assert_eq!(ran(trine().args(["scan", "s", "k", "--memory", "much", "--json"])).failed_json(2), "usage");
    for command in ["get", "put", "delete", "clear", "scan", "import", "export", "stats", "demo"] {
        assert!(ran(trine().args(["help", command])).ok().contains("Example"), "{command}");
    }
    assert!(ran(trine().arg("--version")).ok().starts_with("trine "));
}

/// A second writer is refused with a reason while the first one runs, and no data is lost.
#[test]
fn a_second_writer_is_refused() {
    let place = Place::new();
    let mut command = place
        .command("import", ["k", "-", "--format", "tsv", "--batch", "1", "--acknowledge", "--no-header"]);
    let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = first.stdin.take().expect("a pipe");
    let mut output = BufReader::new(first.stdout.take().expect("a pipe"));
    input.write_all(b"a\t1\n").expect("it reads");
    let mut line = String::new();
    output.read_line(&mut line).expect("it acknowledges");
    assert_eq!(line, "1\n");
    assert_eq!(place.run("put", ["k", "b", "2", "--json"]).failed_json(3), "locked");
    drop(input);
    output.read_to_string(&mut line).expect("it ends");
    assert!(first.wait().expect("it ends").success());
    assert_eq!(place.run("get", ["k", "a"]).ok(), "1\n");
}

/// A listing whose reader closes the pipe ends without an error.
#[test]
fn a_broken_pipe_is_quiet() {
    let place = Place::new();
    let tsv: String = (0..20_000).map(|number| format!("key {number:08}\tsome value\n")).collect();
    let file = place.with_file("many.tsv", tsv);
    place.run("import", ["k", words(&file), "--no-header"]).ok();
    for command in ["scan", "export"] {
        let mut command = place.command(command, ["k"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut first = [0; 8];
        child.stdout.take().expect("a pipe").read_exact(&mut first).expect("it writes");
        let ended = of_output(child.wait_with_output().expect("it ends"));
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""));
    }
}

/// Statistics are tables for people and one JSON document for programs.
#[test]
fn stats() {
    let place = Place::new();
    place.run("put", ["users", "a", "1"]).ok();
    let text = place.run("stats", [] as [&str; 0]).ok();
    for word in ["Keyspaces", "users", "Memory", "tables read past the page cache"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let all: Value = serde_json::from_str(&place.run("stats", ["--json"]).ok()).expect("it is JSON");
    let users = &all["keyspaces"].as_array().expect("an array")[0];
    assert_eq!(users["name"].as_str(), Some("users"));
    assert!(users["items"].is_u64() && users["levels"].is_array());
    assert!(all["memory"]["budget_bytes"].as_u64().is_some_and(|bytes| bytes >= 1 << 20));
    assert!(all["settings"].as_array().is_some_and(|settings| !settings.is_empty()));
    assert!(users.get("keys").is_none(), "nobody asked for the count");
}

/// With --exact, keys are counted: not their versions, nor deleted keys.
#[test]
fn stats_count_keys() {
    let place = Place::new();
    for [key, value] in [["a", "1"], ["a", "2"], ["b", "3"], ["c", "4"]] {
        place.run("put", ["users", key, value]).ok();
    }
    place.run("delete", ["users", "c"]).ok();
    place.run("put", ["more", "a", "1"]).ok();
    let all: Value =
        serde_json::from_str(&place.run("stats", ["--json", "--exact"]).ok()).expect("it is JSON");
    let keyspaces = all["keyspaces"].as_array().expect("an array");
    let mut keys: Vec<_> = keyspaces.iter().map(|one| (one["name"].as_str(), one["keys"].as_u64())).collect();
    keys.sort_unstable();
    assert_eq!(keys, [(Some("more"), Some(1)), (Some("users"), Some(2))]);
    let text = place.run("stats", ["--exact"]).ok();
    let lines = text.lines().skip_while(|line| *line != "Keys");
    let users = lines.into_iter().find(|line| line.contains("users"));
    assert!(users.is_some_and(|line| line.contains('2')), "{text}");
}

/// `verify` finds nothing in an undamaged store, and reports place and effect of damage in another; `salvage`
/// makes a new store of the rest.
#[test]
fn verify() {
    let place = Place::new();
    place.run("put", ["users", "a", "1"]).ok();
    assert!(place.run("verify", [] as [&str; 0]).ok().contains("no damage found"));
    let sound: Value = serde_json::from_str(&place.run("verify", ["--json"]).ok()).expect("it is JSON");
    assert_eq!(sound["findings"].as_array().map(Vec::len), Some(0));
    let items = sound["items"].as_u64().zip(sound["log_items"].as_u64()).map(|(tables, logs)| tables + logs);
    assert_eq!(items, Some(1));

    let files = std::fs::read_dir(place.store()).expect("a directory");
    let name_of = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").path();
    let is_manifest = |path: &std::path::PathBuf| path.to_string_lossy().contains("manifest-");
    let file = files.map(name_of).find(is_manifest).expect("there is one");
    let mut bytes = std::fs::read(&file).expect("reads");
    bytes[12_288 + 30] ^= 1;
    std::fs::write(&file, bytes).expect("writes");
    let checked = place.run("verify", [] as [&str; 0]);
    assert!(checked.out.contains("manifest-") && checked.out.contains("everything: the store does not open"));
    assert!(checked.failed(1).contains("one check failed"));
    let checked = place.run("verify", ["--json"]);
    let found: Value = serde_json::from_str(&checked.out).expect("it is JSON");
    assert_eq!(found["findings"][0]["at_risk"].as_str(), Some("store"));

    let target = place.file("salvaged");
    let text = ran(trine().arg("salvage").arg(place.store()).arg(&target)).ok();
    assert!(text.contains("1 writes were made again") && text.contains("manifest is damaged"), "{text}");
    assert!(!text.contains("doubtful"), "{text}");
    let again = ran(trine().arg("salvage").arg(place.store()).arg(&target));
    assert!(again.failed(3).contains("Choose an empty or new directory"));
    assert_eq!(checked.code, Some(1));

    // Without the manifest the keyspace has no name.
    std::fs::remove_file(&file).expect("removes");
    let target = place.file("salvaged without the manifest");
    let text = ran(trine().arg("salvage").arg(place.store()).arg(&target)).ok();
    assert!(text.contains("1 keyspaces hold all doubtful data"), "{text}");
    assert!(text.contains("salvaged-unknown-log-1") && text.contains("name is lost"), "{text}");
    let target_json = place.file("salvaged as JSON");
    let text = ran(trine().arg("salvage").arg(place.store()).arg(&target_json).arg("--json")).ok();
    let told: Value = serde_json::from_str(&text).expect("it is JSON");
    let doubtful = &told["doubtful"][0];
    assert_eq!((doubtful["doubt"].as_str(), doubtful["writes"].as_u64()), (Some("unknown"), Some(1)));
    assert!(
        doubtful["of"].is_null() && doubtful["files"][0].as_str().is_some_and(|file| file.contains("log-"))
    );
}

/// `explain` lists the places that a get searched, and their answers.
#[test]
fn explain() {
    let place = Place::new();
    place.run("put", ["users", "a", "1"]).ok();
    let text = place.run("explain", ["users", "a"]).ok();
    assert!(text.contains("MtGet") && text.contains("found: a value of 1 B"), "{text}");
    let all: Value =
        serde_json::from_str(&place.run("explain", ["users", "b", "--json"]).ok()).expect("it is JSON");
    assert_eq!(all["found"].as_bool(), Some(false));
    assert_eq!(all["steps"][0]["step"].as_str(), Some("MtGet"));
}

/// `dump` shows the parts of a file, for people and for programs.
#[test]
fn dump() {
    let place = Place::new();
    place.run("put", ["users", "a", "1"]).ok();
    let store = place.store().join("STORE");
    let text = ran(trine().arg("dump").arg(&store)).ok();
    assert!(text.contains("slot 1") && text.contains("manifest-"), "{text}");
    let lines = ran(trine().arg("dump").arg(&store).arg("--json")).ok();
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("it is JSON");
    assert_eq!(first["name"].as_str(), Some("header"));
    assert!(ran(trine().arg("dump").arg(place.store().join("LOCK"))).failed(3).contains("LOCK"));
}
