//! keyspaces, drop, delete-range, count, settings, compact, checkpoint, completions and man.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Place, Ran, of_output, ran, trine, words};

impl Ran {
    #[track_caller]
    pub(super) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("it is JSON")
    }
}

/// A store with the keys 00 to 99 in a keyspace, and one more keyspace.
fn filled() -> Place {
    let place = Place::new();
    let tsv: String = (0..100).map(|number| format!("{number:02}\tvalue {number}\n")).collect();
    let file = place.with_file("items.tsv", tsv);
    place.run("import", ["numbers", words(&file), "--no-header"]).ok();
    place.run("put", ["other", "a", "1"]).ok();
    place
}

/// Keyspaces are listed with their keys, also those that are only in the log; the program's own only on
/// request.
#[test]
fn keyspaces() {
    let place = filled();
    let names = |all: &Value| {
        let names = all.as_array().expect("an array").iter().map(|one| one["name"].clone());
        names.collect::<Vec<Value>>()
    };
    let all = place.run("keyspaces", ["--json"]).json();
    assert_eq!(names(&all), ["numbers", "other"]);
    assert_eq!((&all[0]["approximate_keys"], &all[1]["approximate_keys"]), (&json!(100), &json!(1)));
    assert_eq!(names(&place.run("keyspaces", ["--all", "--json"]).json()), [".import", "numbers", "other"]);
    let text = place.run("keyspaces", [""; 0]).ok();
    assert!(text.contains("numbers") && !text.contains(".import"), "{text}");
    let stats = place.run("stats", ["--json"]).json();
    assert_eq!(names(&stats["keyspaces"]), ["numbers", "other"]);
    assert_eq!(stats["keyspaces"][1]["items"], json!(1), "what is in the log counts");
    assert_eq!(names(&place.run("stats", ["--all", "--json"]).json()["keyspaces"]).len(), 3);
    let empty = Place::new();
    empty.run("put", ["k", "a", "1"]).ok();
    empty.run("drop", ["k"]).ok();
    assert_eq!(empty.run("keyspaces", [""; 0]).ok(), "no keyspaces\n");
}

/// Partitions are made, listed and dropped; every command accepts one as a keyspace.
#[test]
fn partitions() {
    let place = Place::new();
    assert_eq!(
        place.run("partitions", ["events", "--make", "b", "a", "--json"]).json(),
        json!({"partitions": 2})
    );
    place.run("put", ["events/a", "1", "login"]).ok();
    place.run("put", ["events/new", "1", "x"]).ok();
    assert_eq!(place.run("get", ["events/a", "1"]).ok(), "login\n");
    assert_eq!(place.run("count", ["events/a"]).ok(), "1\n");
    assert!(place.run("get", ["events/none", "1"]).failed(3).contains("events/none"));
    let error = place.run("get", ["events", "1"]).failed(2);
    assert!(error.contains("events/PARTITION") && error.contains("trine partitions"), "{error}");
    let names = |all: &Value| {
        let all = all.as_array().expect("an array").iter();
        all.map(|one| (one["name"].clone(), one["approximate_keys"].clone())).collect::<Vec<_>>()
    };
    let listed = place.run("partitions", ["events", "--json"]).json();
    let expected = [("a", 1), ("b", 0), ("new", 1)].map(|(name, keys)| (json!(name), json!(keys)));
    assert_eq!(names(&listed), expected);
    assert!(place.run("partitions", ["events"]).ok().contains("new"));
    let keyspaces = place.run("keyspaces", ["--json"]).json();
    assert_eq!((&keyspaces[0]["partitions"], &keyspaces[0]["approximate_keys"]), (&json!(3), &json!(2)));
    assert_eq!(place.run("stats", ["--exact", "--json"]).json()["keyspaces"][0]["name"], json!("events"));
    let settings = place.run("settings", ["events", "size_ratio=4", "--json"]).json();
    let ratio = settings.as_array().expect("an array").iter().find(|one| one["name"] == "size_ratio");
    assert_eq!(ratio.expect("it is listed")["value"], json!(4));
    let dropped = place.run("partitions", ["events", "--drop", "a", "none", "--json"]).json();
    assert_eq!(dropped, json!({"dropped": 1}));
    assert_eq!(names(&place.run("partitions", ["events", "--json"]).json()), expected[1..]);
    assert_eq!(place.run("partitions", ["none", "--json"]).failed_json(3), "no_keyspace");
    place.run("verify", [""; 0]).ok();
}

/// A dropped keyspace is gone; a new one of its name is empty.
#[test]
fn drop_keyspace() {
    let place = filled();
    assert_eq!(place.run("drop", ["numbers", "--json"]).json(), json!({"dropped": "numbers"}));
    let error = place.run("scan", ["numbers"]).failed(3);
    assert!(error.contains("trine keyspaces"), "{error}");
    assert_eq!(place.run("drop", ["numbers", "--json"]).failed_json(3), "no_keyspace");
    assert!(place.run("drop", [".import"]).failed(2).contains("the program's own"));
    place.run("put", ["numbers", "00", "new"]).ok();
    assert_eq!(place.run("scan", ["numbers"]).ok(), "00\tnew\n");
    assert_eq!(place.run("get", ["other", "a"]).ok(), "1\n");
}

/// Ranges and prefixes are deleted and counted as they are scanned; without a bound nothing is deleted.
#[test]
fn ranges_are_deleted_and_counted() {
    let place = filled();
    let count = |bounds: &[&str]| {
        place.run("count", ["numbers"].iter().chain(bounds)).ok().trim().parse::<u64>().expect("a number")
    };
    assert_eq!((count(&[]), count(&["--approximate"]), count(&["--prefix", "4"])), (100, 100, 10));
    assert_eq!((count(&["--from", "90"]), count(&["--from", "10", "--to", "15"])), (10, 5));
    assert_eq!(place.run("delete-range", ["numbers", "--prefix", "4", "--sync"]).ok(), "");
    assert_eq!((count(&[]), count(&["--prefix", "4"])), (90, 0));
    place.run("delete-range", ["numbers", "--from", "3339", "--to", "333a", "--hex"]).ok();
    assert_eq!((count(&[]), count(&["--from", "39", "--to", "50"])), (89, 0));
    let deleted = place.run("delete-range", ["numbers", "--to", "05", "--json"]).json();
    assert_eq!((deleted, count(&[])), (json!({"deleted_range": "numbers"}), 84));
    assert!(place.run("delete-range", ["numbers"]).failed(2).contains("trine clear"));
    assert_eq!(place.run("delete-range", ["absent", "--to", "5", "--json"]).failed_json(3), "no_keyspace");
    assert_eq!(place.run("count", ["numbers", "--json"]).json(), json!({"keys": 84, "exact": true}));
}

/// Settings are shown with their defaults; those of a keyspace can be changed, and persist.
#[test]
fn settings() {
    let place = filled();
    let value = |options: &[&str]| {
        let all = place.run("settings", ["numbers", "--json"].iter().chain(options)).json();
        let all = all.as_array().expect("an array").clone();
        all.into_iter().find(|one| one["name"] == "block_bytes").expect("it is one")["value"].clone()
    };
    let default = value(&[]);
    assert_ne!(default, json!(16 << 10));
    assert_eq!(value(&["block_bytes=16K", "size_ratio=10"]), json!(16 << 10));
    assert_eq!(value(&[]), json!(16 << 10), "it stays");
    let text = place.run("settings", ["numbers"]).ok();
    assert!(text.contains("block_bytes = 16.0 KiB") && text.contains("the default is "), "{text}");
    assert!(place.run("settings", [""; 0]).ok().contains("memory_bytes = "));
    assert_eq!(place.run("settings", ["numbers", "size_ratio=1", "--json"]).failed_json(3), "invalid");
    assert_eq!(place.run("settings", ["numbers", "sise_ratio=4", "--json"]).failed_json(3), "invalid");
    let no_change = place.run("settings", ["numbers", "size_ratio"]);
    assert_eq!((no_change.code, no_change.error.contains("NAME=VALUE")), (Some(2), true), "{no_change:?}");
    assert_eq!(place.run("settings", ["absent", "size_ratio=4", "--json"]).failed_json(3), "no_keyspace");
    assert_eq!(place.run("keyspaces", ["--json"]).json().as_array().map(Vec::len), Some(2), "none was made");
}

/// Compaction leaves one table of the live items; a single keyspace can be compacted.
#[test]
fn compact() {
    let place = filled();
    place.run("delete-range", ["numbers", "--from", "10"]).ok();
    place.run("compact", ["other"]).ok();
    let items = |index: usize| {
        place.run("stats", ["--json"]).json()["keyspaces"][index]["items"].as_u64().expect("a number")
    };
    assert_eq!(items(1), 1);
    let told = place.run("compact", ["--json"]).json();
    assert!(told["table_bytes"].as_u64() > Some(0) && told["table_bytes_before"].is_u64(), "{told}");
    assert_eq!(items(0), 10);
    assert!(place.run("compact", [""; 0]).ok().contains("tables took"));
    assert_eq!(place.run("compact", ["absent", "--json"]).failed_json(3), "no_keyspace");
    assert_eq!(place.run("compact", ["--read-only", "--json"]).failed_json(2), "usage");
}

/// A checkpoint is an independent store.
#[test]
fn checkpoint() {
    let place = filled();
    let target = place.file("copy");
    place.run("checkpoint", [words(&target)]).ok();
    place.run("put", ["other", "a", "2"]).ok();
    let of_copy = |command: &str| ran(trine().args([command, words(&target), "other"])).ok();
    assert_eq!(of_copy("scan"), "a\t1\n");
    place.run("checkpoint", [words(&target)]).failed(3);
    assert_eq!(of_copy("scan"), "a\t1\n");
}

/// A value is read from standard input byte for byte, and a scan can print the exact bytes.
#[test]
fn bytes_come_and_go_as_they_are() {
    let place = Place::new();
    let put = |options: &[&str], input: &[u8]| {
        let mut command = place.command("put", ["k", "6b", "-"].iter().chain(options));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        child.stdin.take().expect("it is piped").write_all(input).expect("it reads");
        of_output(child.wait_with_output().expect("it ends"))
    };
    put(&[], b"a\n\tb\0\xff").ok();
    let raw = |command: &mut std::process::Command| command.output().expect("the program starts").stdout;
    assert_eq!(raw(&mut place.command("get", ["k", "6b", "--raw"])), b"a\n\tb\0\xff");
    assert_eq!(raw(&mut place.command("scan", ["k", "--raw"])), b"6b\ta\n\tb\0\xff\n");
    assert_eq!(raw(&mut place.command("scan", ["k", "--raw", "--keys-only"])), b"6b\n");
    put(&["--hex"], b" cafe\n").ok();
    assert_eq!(place.run("get", ["k", "6b", "--hex"]).ok(), "cafe\n");
    assert!(put(&["--hex"], b"cafz").failed(2).contains("not hexadecimal"));
    assert_eq!(place.run("scan", ["k", "--raw", "--json"]).code, Some(2));
}

/// Completions and manual pages cover every command; hidden ones are in no page.
#[test]
fn completions_and_manual() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ran(trine().args(["completions", shell])).ok();
        assert!(script.contains("delete-range") && script.contains("salvage"), "{shell}");
    }
    let page = ran(trine().arg("man")).ok();
    assert!(page.starts_with(".ie") && page.contains(".TH trine 1") && page.contains("checkpoint"), "{page}");
    let directory = place.file("man1");
    ran(trine().arg("man").arg("--dir").arg(&directory)).ok();
    let page = std::fs::read_to_string(directory.join("trine-delete-range.1")).expect("it was written");
    assert!(page.contains(".TH trine-delete-range 1") && page.contains("prefix"), "{page}");
    assert!(directory.join("trine.1").exists() && !directory.join("trine-demo-load.1").exists());
}

/// Colours only where intended: none in pipes, some if forced, none with `NO_COLOR`.
#[test]
fn colours() {
    let place = filled();
    let stats = |variables: &[(&str, &str)]| {
        ran(place.command("stats", [""; 0]).envs(variables.iter().copied())).ok().contains('\x1b')
    };
    assert_eq!((stats(&[]), stats(&[("CLICOLOR_FORCE", "1")])), (false, true));
    assert!(!stats(&[("NO_COLOR", "1")]));
    let error = ran(place.command("get", ["absent", "a"]).env("CLICOLOR_FORCE", "1"));
    assert!(error.error.starts_with("\x1b[1;31mtrine:\x1b[0m "), "{error:?}");
}
