//! Partitioned keyspaces: made, listed, read and exported, and their errors.

use serde_json::{Value, json};

use super::{Place, Ran, ran, trine, words};

/// A store with a keyspace of each rule, and one that is not partitioned.
fn divided() -> Place {
    let place = Place::new();
    place.run("partitions", ["events", "--partition-by", "prefix:4"]).ok();
    for (key, value) in [("2025/a", "1"), ("2026/a", "2"), ("2026/b", "3")] {
        place.run("put", ["events", key, value]).ok();
    }
    place.run("put", ["users", "ann", "1", "--partition-by", "ranges:g,m"]).ok();
    place.run("put", ["users", "zoe", "2"]).ok();
    place.run("put", ["tenants/t1", "a", "1", "--partition-by", "explicit"]).ok();
    place.run("put", ["plain", "a", "1"]).ok();
    place
}

/// The name and the keys of a row.
fn row(one: &Value) -> (&str, u64) {
    (one["name"].as_str().expect("a name"), one["approximate_keys"].as_u64().expect("a number"))
}

fn rows(listed: &Value) -> Vec<(&str, u64)> {
    listed.as_array().expect("an array").iter().map(row).collect()
}

/// Partitions of each rule are listed with their number of keys, below the rule; deleted keys do not count.
#[test]
fn partitions_of_each_rule_are_listed() {
    let place = divided();
    place.run("delete", ["events", "2026/b"]).ok();
    let list = |keyspace: &str| place.run("partitions", [keyspace, "--json"]).json();
    assert_eq!(rows(&list("events")), [("2025", 1), ("2026", 1)]);
    assert_eq!(rows(&list("users")), [("", 1), ("m", 1)]);
    assert_eq!(rows(&list("tenants")), [("t1", 1)]);
    let text = place.run("partitions", ["events"]).ok();
    assert!(text.starts_with("partitions by prefix:4: 2\n") && text.contains("2026"), "{text}");
    let text = place.run("partitions", ["users"]).ok();
    assert!(text.starts_with("partitions by ranges:g,m: 2\n") && text.contains("\"\""), "{text}");
    place.run("partitions", ["none", "--partition-by", "prefix:4"]).ok();
    assert_eq!(place.run("partitions", ["none"]).ok(), "partitions by prefix:4: 0\n");
    place.run("verify", [""; 0]).ok();
}

/// Partitions by key are made in advance and dropped; a name that no key can have is refused.
#[test]
fn partitions_by_keys_are_made_and_dropped() {
    let place = divided();
    let made = place.run("partitions", ["events", "--make", "2027", "2026", "--json"]).json();
    assert_eq!(made, json!({"partitions": 2}));
    let error = place.run("partitions", ["events", "--make", "2027/a"]).failed(3);
    assert!(error.contains("the first 4 bytes"), "{error}");
    let dropped = place.run("partitions", ["events", "--drop", "2026", "2020", "--json"]).json();
    assert_eq!(dropped, json!({"dropped": 1}));
    let ran = place.run("partitions", ["events", "--drop", "2020"]);
    assert_eq!((ran.code, ran.error.as_str()), (Some(0), "1 of 1 were not there\n"));
    assert_eq!(rows(&place.run("partitions", ["events", "--json"]).json()), [("2025", 1), ("2027", 0)]);
    assert_eq!(place.run("scan", ["events"]).ok(), "2025/a\t1\n");
    place.run("partitions", ["users", "--drop", ""]).ok();
    assert_eq!(place.run("scan", ["users", "--keys-only"]).ok(), "zoe\n");
}

/// Partitions before a bound are dropped; a later one before it is dropped when the next partition is made.
#[test]
fn partitions_are_kept_from_a_bound_on() {
    let place = divided();
    let retained = place.run("partitions", ["events", "--retain", "2026-06", "--json"]).json();
    assert_eq!(retained, json!({"dropped": 1}));
    assert!(place.run("partitions", ["events"]).ok().contains("prefix:4, from 2026 on: 1"));
    place.run("put", ["events", "2025/late", "1"]).ok();
    place.run("put", ["events", "2027/a", "1"]).ok();
    assert_eq!(rows(&place.run("partitions", ["events", "--json"]).json()), [("2026", 2), ("2027", 1)]);
    let ran = place.run("partitions", ["events", "--retain", "2026"]);
    assert_eq!((ran.code, ran.error.as_str()), (Some(0), "0 dropped\n"));
    let both = place.run("partitions", ["events", "--retain", "2026", "--drop", "2026"]);
    assert_eq!(both.code, Some(2));
}

/// Names that are not text are printed escaped, and given as digits.
#[test]
fn names_are_bytes() {
    let place = Place::new();
    place.run("put", ["k", "00ff01", "aa", "--hex", "--partition-by", "prefix:2"]).ok();
    assert!(place.run("partitions", ["k"]).ok().contains("\\x00\\xff"));
    assert_eq!(place.run("partitions", ["k", "--json"]).json()[0]["name_hex"], json!("00ff"));
    assert!(place.run("explain", ["k", "00ff01", "--hex"]).ok().starts_with("partition: 00ff\n"));
    let explained = place.run("explain", ["k", "00ff01", "--hex", "--json"]).json();
    assert_eq!(explained["partition_hex"], json!("00ff"));
    assert_eq!(place.run("partitions", ["k", "--hex", "--drop", "00ff", "--json"]).json()["dropped"], 1);
    place.run("put", ["r", "b", "1", "--partition-by", "ranges-hex:00,612c"]).ok();
    assert_eq!(
        place.run("keyspaces", ["--json"]).json()[1]["partition_by"],
        json!("ranges-hex:00,612c"),
        "the rule can be given as it is shown"
    );
}

/// keyspaces and stats show rules and numbers of partitions; stats shows the largest partitions, or all.
#[test]
fn rules_are_told() {
    let place = divided();
    let keyspaces = place.run("keyspaces", ["--json"]).json();
    let rules = |all: &Value| {
        let all = all.as_array().expect("an array").iter();
        all.map(|one| (one["partition_by"].clone(), one["partitions"].clone())).collect::<Vec<_>>()
    };
    let expected = [
        (json!("prefix:4"), json!(2)),
        (Value::Null, Value::Null),
        (json!("explicit"), json!(1)),
        (json!("ranges:g,m"), json!(2)),
    ];
    assert_eq!(rules(&keyspaces), expected);
    assert!(place.run("keyspaces", [""; 0]).ok().contains("2, prefix:4"));
    let stats = place.run("stats", ["--json"]).json();
    assert_eq!(rules(&stats["keyspaces"]), expected);
    assert_eq!(stats["keyspaces"][0]["partition_stats"], Value::Null);
    let stats = place.run("stats", ["--partitions", "--json"]).json();
    let all = &stats["keyspaces"][0]["partition_stats"];
    assert_eq!(rows(all), [("2025", 1), ("2026", 2)]);
    assert_eq!(all[1]["items"], json!(2));
    assert_eq!(stats["keyspaces"][1]["partition_stats"], Value::Null, "it is not divided");
    assert_eq!(place.run("stats", ["--exact", "--json"]).json()["keyspaces"][0]["keys"], json!(3));
}

/// For many partitions stats shows the five largest, and all on request.
#[test]
fn the_largest_partitions_are_shown() {
    let place = Place::new();
    let row = |number: usize| format!("p{number}\t{}\n", "v".repeat(10 * number));
    let rows: String = (1..=8).map(row).collect();
    let file = place.with_file("rows.tsv", rows);
    place.run("import", ["k", words(&file), "--no-header", "--partition-by", "prefix:2"]).ok();
    let text = place.run("stats", [""; 0]).ok();
    assert!(text.contains("Largest partitions") && text.contains("p8") && text.contains("p4"), "{text}");
    assert!(!text.contains("p3") && text.contains("8, prefix:2"), "{text}");
    let text = place.run("stats", ["--partitions"]).ok();
    assert!(!text.contains("Largest") && text.contains("p1") && text.contains("p8"), "{text}");
}

/// explain names the partition of a key, also one that does not exist.
#[test]
fn explain_names_the_partition() {
    let place = divided();
    let explain = |arguments: [&str; 2]| place.run("explain", arguments).ok();
    assert!(explain(["events", "2026/a"]).starts_with("partition: 2026\n"));
    assert!(explain(["events", "2020/a"]).starts_with("partition: 2020, which does not exist\n"));
    assert!(explain(["users", "ann"]).starts_with("partition: \"\"\n"));
    assert!(explain(["tenants/t1", "a"]).starts_with("partition: t1\n"));
    assert!(!explain(["plain", "a"]).contains("partition"));
    let explained = place.run("explain", ["users", "zoe", "--json"]).json();
    assert_eq!((&explained["partition"], &explained["found"]), (&json!("m"), &json!(true)));
    assert_eq!(place.run("explain", ["plain", "a", "--json"]).json()["partition"], Value::Null);
}

#[track_caller]
fn is_mismatch(ran: Ran, stored: &str, given: &str) {
    let error = ran.failed(3);
    let expected = format!("this one has {stored}, not {given}");
    assert!(error.contains(&expected) && error.contains("--partition-by"), "{error}");
}

/// A keyspace keeps its rule; the same rule may be given again.
#[test]
fn rules_stay() {
    let place = divided();
    let put = |keyspace: &str, rule: &str| place.run("put", [keyspace, "2028", "1", "--partition-by", rule]);
    is_mismatch(put("events", "prefix:5"), "prefix:4", "prefix:5");
    is_mismatch(put("events", "explicit"), "prefix:4", "explicit");
    is_mismatch(put("plain", "prefix:5"), "none", "prefix:5");
    is_mismatch(put("plain/x", "explicit"), "none", "explicit");
    is_mismatch(put("tenants", "prefix:4"), "explicit", "prefix:4");
    is_mismatch(put("tenants/t2", "prefix:4"), "explicit", "prefix:4");
    let make = place.run("partitions", ["plain", "--make", "a", "--partition-by", "explicit"]);
    is_mismatch(make, "none", "explicit");
    let make = place.run("partitions", ["users", "--partition-by", "ranges:g"]);
    is_mismatch(make, "ranges:g,m", "ranges:g");
    put("events", "prefix:4").ok();
    put("tenants/t2", "explicit").ok();
    let json = place.run("put", ["events", "a", "1", "--partition-by", "prefix:5", "--json"]);
    assert_eq!(json.failed_json(3), "mismatch");
}

/// Invalid rules, and names that do not fit a rule, are refused with advice.
#[test]
fn wrong_rules_and_names_are_refused() {
    let place = divided();
    let put = |keyspace: &str, rule: &str| place.run("put", [keyspace, "a", "1", "--partition-by", rule]);
    let ran = put("new", "hash:3");
    assert_eq!((ran.code, ran.error.contains("prefix:N")), (Some(2), true), "{ran:?}");
    assert!(put("new", "prefix:0").failed(3).contains("1 to 255 bytes"));
    assert!(put("new", "ranges:m,g").failed(3).contains("ascend"));
    assert!(put("new", "explicit").failed(2).contains("new/PARTITION"));
    let error = place.run("put", ["events/2026", "a", "1"]).failed(2);
    assert!(error.contains("give events without a partition"), "{error}");
    assert!(place.run("scan", ["events/2026"]).failed(2).contains("--prefix"));
    assert!(place.run("partitions", ["plain"]).failed(2).contains("not divided"));
    assert!(place.run("partitions", ["plain", "--drop", "a"]).failed(2).contains("not divided"));
    assert_eq!(place.run("partitions", ["absent", "--drop", "a", "--json"]).failed_json(3), "no_keyspace");
    let both = place.run("partitions", ["events", "--drop", "2026", "--partition-by", "prefix:4"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    assert!(place.run("partitions", [".import", "--partition-by", "prefix:4"]).failed(2).contains("own"));
}

/// An export of a partitioned keyspace can be imported again: items, partitions and rule.
#[test]
fn export_and_import_keep_partitions() {
    let (place, copy) = (divided(), Place::new());
    for (keyspace, rule) in [("events", "prefix:4"), ("users", "ranges:g,m"), ("tenants/t1", "explicit")] {
        let file = place.file("items.jsonl");
        place.run("export", [keyspace, words(&file), "--force"]).ok();
        copy.run("import", [keyspace, words(&file), "--partition-by", rule]).ok();
        assert_eq!(copy.all(keyspace), place.all(keyspace));
        assert!(!copy.all(keyspace).is_empty());
        let keyspace = keyspace.split('/').next().expect("a name");
        let list = |place: &Place| place.run("partitions", [keyspace]).ok();
        assert_eq!(list(&copy).lines().next(), list(&place).lines().next());
        let names = |place: &Place| {
            let listed = place.run("partitions", [keyspace, "--json"]).json();
            rows(&listed).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&copy), names(&place));
    }
    assert!(place.run("export", ["tenants"]).failed(2).contains("tenants/PARTITION"));
    let file = place.file("items.jsonl");
    let import = copy.run("import", ["users", words(&file), "--partition-by", "prefix:1"]);
    is_mismatch(import, "ranges:g,m", "prefix:1");
    copy.run("import", ["users", words(&file)]).ok();
    copy.run("verify", [""; 0]).ok();
}

/// Commands on items and ranges treat a keyspace partitioned by key as any other.
#[test]
fn items_of_partitions_are_read_and_written() {
    let place = divided();
    assert_eq!(place.run("get", ["events", "2026/a"]).ok(), "2\n");
    assert_eq!(place.run("get", ["events", "2020/a"]).code, Some(1));
    place.run("delete", ["events", "2020/a"]).ok();
    assert_eq!(place.run("scan", ["events", "--reverse", "--keys-only"]).ok(), "2026/b\n2026/a\n2025/a\n");
    assert_eq!(place.run("count", ["events", "--from", "2025/b"]).ok(), "2\n");
    assert_eq!(place.run("count", ["events", "--approximate"]).ok(), "3\n");
    place.run("delete-range", ["events", "--to", "2026/b"]).ok();
    assert_eq!(place.run("scan", ["events"]).ok(), "2026/b\t3\n");
    for keyspace in ["events", "tenants", "tenants/t1"] {
        place.run("compact", [keyspace]).ok();
    }
    assert_eq!(place.run("compact", ["tenants/none", "--json"]).failed_json(3), "no_keyspace");
    assert_eq!(place.run("get", ["tenants/t1", "a"]).ok(), "1\n");
    place.run("settings", ["events", "size_ratio=4"]).ok();
    place.run("clear", ["events"]).ok();
    assert_eq!(place.run("count", ["events"]).ok(), "0\n");
    place.run("drop", ["events"]).ok();
    place.run("put", ["events", "2026/a", "1", "--partition-by", "prefix:2"]).ok();
    place.run("verify", [""; 0]).ok();
}

/// A dump of the manifest names rules and partitions as text.
#[test]
fn dump_names_partitions() {
    let place = divided();
    let entries = std::fs::read_dir(place.store()).expect("it is a directory");
    let names = entries.map(|entry| entry.expect("an entry").path());
    let manifest = names.filter(|path| words(path).contains("manifest-")).max().expect("there is one");
    let text = ran(trine().arg("dump").arg(&manifest)).ok();
    for line in ["PartitionRule of keyspace", ": prefix of 4", ": ranges from g m", ": 2026"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
