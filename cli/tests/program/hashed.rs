//! Every command over a hashed keyspace.

use serde_json::{Value, json};

use super::{Place, Ran, ran, trine, words};

/// A store with the keys 00 to 99 in a hashed keyspace, and one key in an ordered one.
fn filled() -> Place {
    let place = Place::new();
    let tsv: String = (0..100).map(|number| format!("{number:02}\tvalue {number}\n")).collect();
    let file = place.with_file("items.tsv", tsv);
    place.run("import", ["sessions", words(&file), "--no-header", "--hashed"]).ok();
    place.run("put", ["users", "ann", "1"]).ok();
    place
}

/// Single items are put, found and deleted as in ordered keyspaces; later commands need no --hashed.
#[test]
fn single_items() {
    let place = Place::new();
    assert_eq!(place.run("put", ["sessions", "b7f1", "ann", "--hashed", "--json"]).json(), json!({"put": 1}));
    place.run("put", ["sessions", "00ff", "cafe", "--hex", "--sync"]).ok();
    assert_eq!(place.run("get", ["sessions", "b7f1"]).ok(), "ann\n");
    assert_eq!(place.run("get", ["sessions", "00ff", "--hex"]).ok(), "cafe\n");
    assert_eq!(place.run("delete", ["sessions", "b7f1", "--json"]).json(), json!({"deleted": 1}));
    assert_eq!(place.run("get", ["sessions", "b7f1"]).failed(1), "there is no key \"b7f1\" in \"sessions\"");
    assert_eq!(place.run("count", ["sessions"]).ok(), "1\n");
    place.run("clear", ["sessions"]).ok();
    assert_eq!(place.run("scan", ["sessions"]).ok(), "");
}

/// A keyspace keeps its kind, and range rules are refused with --hashed.
#[test]
fn kinds_are_kept() {
    let place = filled();
    let mismatch = |ran: Ran| assert_eq!(ran.failed_json(3), "mismatch");
    mismatch(place.run("put", ["users", "a", "1", "--hashed", "--json"]));
    mismatch(place.run("put", ["sessions", "a", "1", "--partition-by", "prefix:1", "--json"]));
    let error = place.run("put", ["users", "a", "1", "--hashed"]).failed(3);
    assert!(error.contains("this one is ordered, not hashed"), "{error}");
    let both = place.run("put", ["new", "a", "1", "--hashed", "--partition-by", "ranges:g", "--json"]);
    assert_eq!(both.failed_json(3), "invalid");
    let explicit = place.run("put", ["new", "a", "1", "--hashed", "--partition-by", "explicit"]);
    assert!(explicit.failed(2).contains("new/PARTITION"));
    mismatch(place.run("put", ["sessions", "a", "1", "--hashed", "--partition-by", "prefix:1", "--json"]));
    mismatch(place.run("put", ["users", "a", "1", "--hashed", "--partition-by", "prefix:1", "--json"]));
    place.run("partitions", ["tenants", "--make", "a"]).ok();
    let error = place.run("put", ["tenants/b", "k", "1", "--hashed"]).failed(2);
    assert!(error.contains("partition"), "{error}");
    mismatch(place.run("partitions", ["tenants", "--make", "b", "--hashed", "--json"]));
    assert_eq!(place.run("partitions", ["sessions", "--json"]).failed_json(2), "usage");
    place.run("put", ["sessions", "100", "1", "--hashed"]).ok();
    assert_eq!(place.run("count", ["sessions"]).ok(), "101\n");
}

/// A scan returns every item and notes that they have no order; commands that need ordered keys are refused.
#[test]
fn scans_have_no_order() {
    let place = filled();
    let scan = place.run("scan", ["sessions"]);
    assert_eq!(scan.error, "sessions is hashed: its items come in no order\n");
    let mut lines: Vec<String> = scan.ok().lines().map(str::to_owned).collect();
    lines.sort();
    let expected: Vec<String> = (0..100).map(|number| format!("{number:02}\tvalue {number}")).collect();
    assert_eq!(lines, expected);
    assert_eq!(place.run("scan", ["sessions", "--limit", "7", "--keys-only"]).ok().lines().count(), 7);
    let told = place.run("scan", ["sessions", "--json"]);
    assert_eq!((told.error.as_str(), place.all("sessions").len()), ("", 100));
    for refused in [
        &["scan", "--prefix", "1"][..],
        &["scan", "--from", "1"],
        &["scan", "--to", "1"],
        &["scan", "--reverse"],
        &["count", "--prefix", "1"],
        &["delete-range", "--prefix", "1"],
    ] {
        let words = || ["sessions"].into_iter().chain(refused[1..].iter().copied());
        let error = place.run(refused[0], words()).failed(3);
        assert!(error.contains("\"sessions\" is hashed") && error.contains("--prefix"), "{error}");
        assert_eq!(place.run(refused[0], words().chain(["--json"])).failed_json(3), "unordered");
    }
    assert_eq!(place.run("count", ["sessions"]).ok(), "100\n");
}

/// Kinds are listed, and the shape of the trie by height, for people and for programs.
#[test]
fn shapes_are_shown() {
    let place = filled();
    let listed = place.run("keyspaces", ["--json"]).json();
    assert_eq!((&listed[0]["kind"], &listed[1]["kind"]), (&json!("hashed"), &json!("ordered")));
    assert!(place.run("keyspaces", [""; 0]).ok().contains("hashed"));
    place.run("settings", ["sessions", "table_bytes=64K"]).ok();
    let tsv: String = (0..90_000).map(|number| format!("{number:08}\t{}\n", "value ".repeat(10))).collect();
    let file = place.with_file("many.tsv", tsv);
    place.run("import", ["sessions", words(&file), "--no-header"]).ok();
    // The end of the log is flushed, and then pushed down.
    place.run("compact", ["sessions"]).ok();
    let text = place.run("stats", [""; 0]).ok();
    assert!(text.contains("Tries") && text.contains("longest pile") && text.contains("Levels"), "{text}");
    let stats = place.run("stats", ["--exact", "--json"]).json();
    let sessions = &stats["keyspaces"][0];
    assert_eq!((&sessions["kind"], &sessions["keys"]), (&json!("hashed"), &json!(90_100)));
    let levels = sessions["levels"].as_array().expect("an array");
    let number = |level: &Value, name: &str| level[name].as_u64().expect("a number");
    let deepest = levels.iter().find(|level| number(level, "level") > 0).expect("items were pushed down");
    assert!((2..=8).contains(&number(deepest, "nodes")), "{levels:?}");
    assert!(levels.iter().all(|level| number(level, "node_runs_max") <= number(level, "runs")), "{levels:?}");
    let text = place.run("explain", ["sessions", "00000007"]).ok();
    assert!(text.contains("height ") && !text.contains("level "), "{text}");
    let told = place.run("explain", ["sessions", "00000007", "--json"]).json();
    assert_eq!(told["found"], json!(true));
}

/// Rows are exported in no order, and imported into either kind of keyspace.
#[test]
fn rows_go_out_and_in() {
    let place = filled();
    let (file, again) = (place.file("sessions.csv"), place.file("again.csv"));
    place.run("export", ["sessions", words(&file)]).ok();
    assert_eq!(
        place.run("import", ["copy", words(&file), "--hashed", "--json"]).json()["imported"],
        json!(100)
    );
    place.run("import", ["sorted", words(&file)]).ok();
    assert_eq!(place.run("scan", ["sorted", "--limit", "1"]).ok(), "00\tvalue 0\n");
    place.run("export", ["copy", words(&again)]).ok();
    let content = |file| std::fs::read_to_string(file).expect("it was written");
    assert_eq!(content(&file), content(&again), "both lie in the order of the same hashes");
    assert_eq!(place.run("export", ["sessions"]).ok().lines().count(), 100);
}

/// Damage is reported as a share of the keys, a dump shows places except in blocks, and a salvaged copy is
/// hashed again.
#[test]
fn damage_is_told_and_salvaged() {
    let place = filled();
    place.run("compact", [""; 0]).ok();
    place.run("put", ["sessions", "new", "1"]).ok();
    place.run("verify", [""; 0]).ok();
    let file = |prefix: &str, has: &str| {
        let files =
            std::fs::read_dir(place.store()).expect("a store").map(|entry| entry.expect("a file").path());
        let named = files
            .filter(|file| file.file_name().is_some_and(|name| words(name.as_ref()).starts_with(prefix)));
        let dump = |file: &std::path::Path| ran(trine().arg("dump").arg(file)).ok();
        named.map(|file| (dump(&file), file)).find(|(dump, _)| dump.contains(has)).expect("there is one")
    };
    assert!(file("log-", "/new, a value of 1 bytes").0.contains("item"));
    assert!(file("manifest-", "height 0 run").0.contains("Slice"));
    let is_of_sessions = |line: &&str| line.contains("data block") && !line.contains("ann");
    let (dump, table) = file("table-", "items from");
    let block = dump.lines().find(is_of_sessions).and_then(|line| line.split_whitespace().next());
    let offset: usize = block.and_then(|offset| offset.parse().ok()).expect("a block");
    let mut bytes = std::fs::read(&table).expect("reads");
    bytes[offset + 20] ^= 1;
    std::fs::write(&table, bytes).expect("writes");
    let found = place.run("verify", [""; 0]);
    assert!(found.out.contains("% of the keys of sessions"), "{found:?}");
    let found = place.run("verify", ["--json"]);
    let finding = &serde_json::from_str::<Value>(&found.out).expect("it is JSON")["findings"][0];
    assert_eq!(
        (&finding["at_risk"], &finding["range"]["keyspace"]),
        (&json!("hashed_keys"), &json!("sessions"))
    );
    assert!(finding["range"]["per_million"].as_u64().is_some_and(|part| (1..=1_000_000).contains(&part)));
    let target = place.file("salvaged");
    ran(trine().arg("salvage").arg(place.store()).arg(&target)).ok();
    let listed = ran(trine().arg("keyspaces").arg(&target).arg("--json")).json();
    let kinds = listed.as_array().expect("an array").iter().find(|one| one["name"] == "sessions");
    assert_eq!(kinds.expect("it is there")["kind"], json!("hashed"));
    assert_eq!(ran(trine().arg("get").arg(&target).args(["sessions", "new"])).ok(), "1\n");
}

/// Partitions of a hashed keyspace are made, written, listed and dropped; commands accept their names.
#[test]
fn partitions_are_hashed() {
    let place = Place::new();
    place.run("partitions", ["months", "--make", "2026-10", "2026-11", "--hashed"]).ok();
    place.run("put", ["months/2026-11", "b7f1", "ann", "--hashed"]).ok();
    place.run("put", ["months/2026-12", "b7f1", "bob"]).ok();
    assert_eq!(place.run("get", ["months/2026-12", "b7f1"]).ok(), "bob\n");
    let scan = place.run("scan", ["months/2026-11"]);
    assert!(scan.error.contains("is hashed"), "{}", scan.error);
    assert_eq!(scan.ok(), "b7f1\tann\n");
    let ordered = place.run("scan", ["months/2026-11", "--prefix", "b", "--json"]);
    assert_eq!(ordered.failed_json(3), "unordered");
    place.run("settings", ["months", "filter_bits_per_key=12"]).ok();
    let listed = place.run("partitions", ["months", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(3), "{listed}");
    assert_eq!(
        place.run("partitions", ["months", "--drop", "2026-10", "--json"]).json(),
        json!({"dropped": 1})
    );
    place.run("compact", ["months"]).ok();
    place.run("stats", ["--json"]).json();
    place.run("put", ["weeks/48", "b7f1", "ann", "--hashed", "--partition-by", "explicit"]).ok();
    assert!(place.run("scan", ["weeks/48"]).error.contains("is hashed"));
    let both = place.run("partitions", ["others", "--partition-by", "ranges:g", "--hashed", "--json"]);
    assert_eq!(both.failed_json(3), "invalid");
    place.run("verify", [""; 0]).ok();
}

/// Keys name the partitions of a hashed keyspace: rows are imported, and each command reads and writes them
/// under the keyspace's name. Partitions are listed, made, dropped and kept from a bound on.
#[test]
fn keys_name_partitions() {
    let place = Place::new();
    let row = |number: usize| format!("{}/{number:03}\tvalue {number}\n", 2024 + number % 3);
    let file = place.with_file("items.tsv", (0..90).map(row).collect::<String>());
    let by = ["--no-header", "--hashed", "--partition-by", "prefix:4"];
    place.run("import", ["visits", words(&file)].into_iter().chain(by)).ok();
    let rows = |keyspace: &str| {
        let listed = place.run("partitions", [keyspace, "--json"]).json();
        let all = listed.as_array().expect("an array").iter();
        let row = |one: &Value| (one["name"].clone(), one["approximate_keys"].clone());
        all.map(row).collect::<Vec<_>>()
    };
    let of = |year: &str, keys: u64| (json!(year), json!(keys));
    assert_eq!(rows("visits"), [of("2024", 30), of("2025", 30), of("2026", 30)]);
    assert!(place.run("partitions", ["visits"]).ok().starts_with("partitions by prefix:4: 3\n"));
    place.run("put", ["visits", "2027/000", "new"]).ok();
    place.run("put", ["visits", "2027/001", "new", "--hashed", "--partition-by", "prefix:4"]).ok();
    assert_eq!(place.run("get", ["visits", "2027/000"]).ok(), "new\n");
    place.run("delete", ["visits", "2027/001"]).ok();
    assert_eq!(place.run("count", ["visits"]).ok(), "91\n");
    assert_eq!(place.run("count", ["visits", "--approximate"]).ok(), "91\n");
    let scan = place.run("scan", ["visits", "--keys-only"]);
    assert!(scan.error.contains("is hashed"), "{}", scan.error);
    assert_eq!(scan.ok().lines().count(), 91);
    assert_eq!(
        place.run("scan", ["visits", "--prefix", "2027", "--json"]).failed_json(3),
        "unordered",
        "a partition has no order either"
    );
    let error = place.run("get", ["visits/2027", "2027/000"]).failed(2);
    assert!(error.contains("give visits without a partition") && !error.contains("--prefix"), "{error}");
    assert!(place.run("explain", ["visits", "2025/001"]).ok().starts_with("partition: 2025\n"));
    let stats = place.run("stats", ["--partitions", "--json"]).json();
    let visits = &stats["keyspaces"][0];
    assert_eq!((&visits["kind"], &visits["partitions"]), (&json!("hashed"), &json!(4)));
    assert_eq!(visits["partition_stats"].as_array().map(Vec::len), Some(4));
    place.run("partitions", ["visits", "--make", "2028", "--hashed"]).ok();
    assert!(place.run("partitions", ["visits", "--make", "2028/1"]).failed(3).contains("the first 4 bytes"));
    assert_eq!(place.run("partitions", ["visits", "--drop", "2028", "--json"]).json(), json!({"dropped": 1}));
    assert_eq!(place.run("partitions", ["visits", "--retain", "2026/5", "--json"]).json()["dropped"], 2);
    assert!(place.run("partitions", ["visits"]).ok().contains("prefix:4, from 2026 on: 2"));
    let copy = place.file("visits.jsonl");
    place.run("export", ["visits", words(&copy)]).ok();
    place.run("import", ["copy", words(&copy)].into_iter().chain(by.into_iter().skip(1))).ok();
    assert_eq!(rows("copy"), [of("2026", 30), of("2027", 1)]);
    place.run("compact", ["visits"]).ok();
    place.run("verify", [""; 0]).ok();
    place.run("clear", ["visits"]).ok();
    assert_eq!(rows("visits"), [of("2026", 0), of("2027", 0)]);
    let target = place.file("salvaged");
    ran(trine().arg("salvage").arg(place.store()).arg(&target)).ok();
    let listed = ran(trine().arg("partitions").arg(&target).args(["copy", "--json"])).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    assert_eq!(ran(trine().arg("get").arg(&target).args(["copy", "2027/000"])).ok(), "new\n");
    mismatch_of(place.run("partitions", ["visits", "--partition-by", "prefix:2"]));
    place.run("partitions", ["sorted", "--partition-by", "prefix:2"]).ok();
    mismatch_of(place.run("partitions", ["sorted", "--make", "ab", "--hashed"]));
}

#[track_caller]
fn mismatch_of(ran: Ran) {
    let error = ran.failed(3);
    assert!(error.contains("this one"), "{error}");
}
