//! The bench at tiny sizes: its counts add up, and impossible requests are reported.

use serde_json::Value;

use super::{Place, ran, trine};

/// The device is measured and drawn, its file is removed afterwards, and the limit on operations holds.
#[test]
fn the_device_is_measured() {
    let place = Place::new();
    let (directory, plots) = (place.file("device"), place.file("plots"));
    let mut bench = trine();
    bench.args(["bench", "device,device", "--device-bytes", "4M", "--operations", "300", "--seconds", "1"]);
    bench.arg("--dir").arg(&directory).arg("--plot").arg(&plots).arg("--json");
    let report: Value = serde_json::from_str(&ran(&mut bench).ok()).expect("the report is JSON");
    let runs = report["workloads"].as_array().expect("an array");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["name"], "device");
        assert_eq!(run["file_bytes"], 4 << 20);
        assert!(run["syncs_a_second"].as_f64().is_some_and(|rate| rate > 0.0));
        let depths: Vec<_> = run["random_reads"].as_array().expect("an array").iter().collect();
        assert_eq!(
            depths.iter().map(|at| at["depth"].as_u64()).collect::<Vec<_>>(),
            [1, 16, 64, 128].map(Some)
        );
        assert!(depths.iter().all(|at| at["reads"].as_u64().is_some_and(|reads| (1..=300).contains(&reads))));
    }
    assert_eq!(std::fs::read_dir(&directory).expect("it was made").count(), 0);
    for name in ["device-random", "device-sequential"] {
        let svg = std::fs::read_to_string(plots.join(name).with_extension("svg")).expect("it is drawn");
        assert!(svg.contains("run 1") && svg.contains("run 2"), "{svg}");
        assert!(plots.join(name).with_extension("csv").exists());
    }
}

/// An unknown workload is refused before anything is made.
#[test]
fn unknown_workloads_are_refused() {
    let place = Place::new();
    let directory = place.file("bench");
    let error = ran(trine().args(["bench", "device,fillnothing", "--dir"]).arg(&directory));
    assert_eq!(error.code, Some(2));
    assert!(error.error.contains("fillnothing"), "{}", error.error);
    assert!(!directory.exists());
}

/// Runs the bench in `directory` and returns its report.
fn bench(place: &Place, workloads: &str, arguments: &[&str]) -> Value {
    let mut bench = trine();
    bench.args(["bench", workloads, "--json", "--dir"]).arg(place.file("bench")).args(arguments);
    serde_json::from_str(&ran(&mut bench).ok()).expect("the report is JSON")
}

fn rows(report: &Value) -> &[Value] {
    report["workloads"].as_array().expect("an array")
}

#[track_caller]
fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field} in {row}"))
}

/// Checks that hold for every workload: no wrong answer, kinds add up to the operations, percentiles ascend.
#[track_caller]
fn check_row(row: &Value) {
    assert_eq!(number(row, "wrong"), 0, "{row}");
    let kinds = row["kinds"].as_object().expect("an object");
    let sum: u64 = kinds.values().map(|kind| number(kind, "operations")).sum();
    assert_eq!(sum, number(row, "operations"), "{row}");
    let latency = &row["latency_ns"];
    let percentiles = ["p50", "p95", "p99", "p999", "p9999", "max"].map(|name| number(latency, name));
    assert!(percentiles.is_sorted(), "{latency}");
    assert!(row["remarks"].is_array());
}

/// The operations of a kind in a row.
fn of_kind(row: &Value, kind: &str) -> u64 {
    row["kinds"][kind]["operations"].as_u64().unwrap_or(0)
}

/// Every workload of db_bench: the requested operations, reads found or absent as expected, scans whole.
#[test]
fn the_workloads_of_db_bench_add_up() {
    let place = Place::new();
    let names = "fillseq,readseq,fillrandom,flush,settle,reopen,readrandom,readmissing,multireadrandom,seekrandom,\
                 readseq,overwrite,readwhilewriting,mixgraph,deleterandom,readrandom,compact";
    let arguments = ["--items", "3000", "--operations", "1000", "--threads", "3", "--scan-items", "10"];
    let report = bench(&place, names, &arguments);
    let rows = rows(&report);
    assert_eq!(
        rows.iter().map(|row| row["name"].as_str().expect("a name")).collect::<Vec<_>>().join(","),
        names
    );
    for row in rows {
        check_row(row);
        let (operations, found, absent) =
            (number(row, "operations"), number(row, "found"), number(row, "absent"));
        match row["name"].as_str().expect("a name") {
            "fillseq" | "fillrandom" => assert_eq!((operations, number(row, "items")), (3000, 3000)),
            "readrandom" | "readmissing" | "multireadrandom" | "readwhilewriting" => {
                assert_eq!(found + absent, 1000, "{row}")
            }
            "seekrandom" => assert!((9000..=10_000).contains(&number(row, "scanned")), "{row}"),
            "readseq" => assert_eq!((operations, number(row, "scanned")), (1000, 1000)),
            "mixgraph" => {
                assert_eq!(of_kind(row, "get"), found);
                assert!(of_kind(row, "get") > 700 && of_kind(row, "put") > 80 && of_kind(row, "scan") > 5);
            }
            "overwrite" | "deleterandom" => assert_eq!(operations, 1000),
            _ => assert_eq!(operations, 1),
        }
    }
    let of = |name| rows.iter().find(|row| row["name"] == name).expect("it ran");
    assert_eq!(number(of("readrandom"), "found"), 1000);
    assert_eq!(number(of("multireadrandom"), "found"), 1000);
    assert_eq!(number(of("readmissing"), "absent"), 1000);
    assert!(number(&of("readwhilewriting")["writer"], "operations") > 0);
    assert!(number(&rows[15], "absent") > 0, "some were deleted: {}", rows[15]);
    assert!(of("fillrandom")["write_amplification_with_log"].as_f64().is_some_and(|times| times > 1.0));
    assert!(of("reopen")["memory_budget_bytes"].as_u64() >= Some(32 << 20));
}

/// Workloads over a hashed keyspace find the expected items, alone and beside the ordered one, whose rows
/// come first. Workloads that need ordered keys are refused before anything is made.
#[test]
fn hashed_keyspaces_are_measured() {
    let place = Place::new();
    let names = "fillrandom,settle,reopen,readrandom,readmissing,multireadrandom,overwrite,deleterandom";
    let arguments = ["--items", "3000", "--operations", "1000", "--threads", "2"];
    let report = bench(&place, names, &[&arguments[..], &["--hashed=beside"]].concat());
    let kinds: Vec<&str> =
        rows(&report).iter().map(|row| row["keyspace_kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, [["ordered"; 8], ["hashed"; 8]].concat());
    for row in rows(&report) {
        check_row(row);
        match row["name"].as_str().expect("a name") {
            "readrandom" | "multireadrandom" => assert_eq!(number(row, "found"), 1000, "{row}"),
            "readmissing" => assert_eq!(number(row, "absent"), 1000, "{row}"),
            _ => {}
        }
    }
    // The store is used again.
    let report = bench(&place, "fillrandom,ycsb-load,ycsb-a,ycsb-d", &["--items", "500", "--hashed"]);
    rows(&report).iter().for_each(check_row);
    let told = ran(trine().args(["bench", "readrandom", "--hashed", "--dir"]).arg(place.file("bench"))).ok();
    assert!(told.contains("readrandom, hashed"), "{told}");
    let keyspaces =
        ran(trine().args(["keyspaces", "--all", "--json"]).arg(place.file("bench").join("hashed-store")));
    assert_eq!(keyspaces.json()[1]["kind"], "hashed");
    for refused in ["readseq", "seekrandom", "mixgraph", "ycsb-e", "partitions"] {
        let directory = place.file("refused");
        let error = ran(trine().args(["bench", "--hashed", refused, "--dir"]).arg(&directory)).failed(2);
        assert!(error.contains(refused) && !directory.exists(), "{error}");
    }
}

/// YCSB's workloads: reads always find their key, inserts grow the store, and mixes have their ratios, in
/// every distribution.
#[test]
fn the_workloads_of_ycsb_add_up() {
    let place = Place::new();
    let names = "ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f";
    let arguments = ["--items", "2000", "--operations", "1000", "--threads", "2", "--batch", "10"];
    let report = bench(&place, names, &arguments);
    let all = rows(&report);
    for row in all {
        check_row(row);
        assert_eq!(number(row, "absent"), 0, "{row}");
    }
    assert_eq!(of_kind(&all[0], "put"), 2000);
    assert!((400..600).contains(&of_kind(&all[1], "put")), "{}", all[1]);
    assert_eq!(
        (all[1]["distribution"].as_str(), all[4]["distribution"].as_str()),
        (Some("zipf"), Some("latest"))
    );
    assert_eq!(number(&all[3], "found"), 1000);
    let inserted = of_kind(&all[4], "put");
    assert_eq!(number(&all[4], "items"), 2000 + inserted);
    assert_eq!(number(&all[5], "items"), 2000 + inserted + of_kind(&all[5], "put"));
    assert!(of_kind(&all[5], "scan") > 900 && number(&all[5], "scanned") > 20_000);
    assert!((400..600).contains(&of_kind(&all[6], "read-modify-write")));
    for distribution in ["uniform", "hotspot", "latest"] {
        let more = ["--operations", "500", "--distribution", distribution];
        let report = bench(&place, "ycsb-c", &more);
        assert_eq!(number(&rows(&report)[0], "found"), 500);
    }
}

/// A staged load grows step by step with its reads after each; the series and the charts are written.
#[test]
fn a_staged_load_is_read_at_each_step() {
    let place = Place::new();
    let (series, plots) = (place.file("series.csv"), place.file("plots"));
    let mut arguments =
        vec!["--items", "2500", "--stage-every", "1000", "--operations", "200", "--batch", "100"];
    arguments.extend(["--series", super::words(&series), "--plot", super::words(&plots)]);
    let report = bench(&place, "fillrandom,readrandom,readmissing,overwrite", &arguments);
    let names: Vec<_> = rows(&report).iter().map(|row| row["name"].as_str().expect("a name")).collect();
    let stage = ["fillrandom", "readrandom", "readmissing"];
    assert_eq!(names, [&stage[..], &stage[..], &stage[..], &["overwrite"]].concat());
    let items: Vec<_> = rows(&report).iter().map(|row| number(row, "items")).collect();
    assert_eq!(items, [1000, 1000, 1000, 2000, 2000, 2000, 2500, 2500, 2500, 2500]);
    rows(&report).iter().for_each(check_row);
    assert_eq!(number(&rows(&report)[4], "found"), 200);
    let series = std::fs::read_to_string(series).expect("it is written");
    assert!(series.starts_with("step,workload,second,operations,p99_ns,device_reads,pressure\n"));
    let operations = series.lines().skip(1).filter_map(|line| line.split(',').nth(3)?.parse::<u64>().ok());
    assert_eq!(operations.sum::<u64>(), 2500 + 7 * 200);
    for name in ["throughput", "latency", "stages"] {
        assert!(plots.join(name).with_extension("svg").exists(), "{name}");
    }
}

/// The engine null runs the same operations without store and device.
#[test]
fn null_is_the_driver_alone() {
    let place = Place::new();
    let names = "fillrandom,readrandom,readmissing,multireadrandom,seekrandom,readseq,deleterandom,mixgraph,\
                 ycsb-load,ycsb-d";
    let report = bench(&place, names, &["--engine", "null", "--items", "1000", "--threads", "2"]);
    for row in rows(&report) {
        check_row(row);
        assert_eq!(number(row, "operations"), 1000, "{row}");
        assert!(row["device_reads"].is_null() && row["disk_bytes"].is_null());
    }
    assert_eq!(number(&rows(&report)[1], "found"), 1000);
    assert!(!place.file("bench").join("store").exists());
}

/// The same seed gives the same keys: a second run checks the items loaded by the first, key by key and in
/// order.
#[test]
fn a_kept_store_is_worked_on_again() {
    let place = Place::new();
    let load = ["--items", "500", "--key-bytes", "24", "--value-bytes", "43", "--compressible", "50"];
    bench(&place, "fillrandom", &[&load[..], &["--set", "block_bytes=8K", "--set", "direct_io=0"]].concat());
    let report = bench(&place, "readseq,readrandom", &["--sync"]);
    assert_eq!(number(&rows(&report)[0], "scanned"), 500);
    assert_eq!(number(&rows(&report)[1], "found"), 500);
    assert_eq!(number(&rows(&report)[1], "key_bytes"), 24);
    let mut other = trine();
    other.args(["bench", "readrandom", "--key-bytes", "16", "--dir"]).arg(place.file("bench"));
    assert!(ran(&mut other).failed(2).contains("--key-bytes 24"));
}

/// A wrong value, written by another program, is found: exit code 1, and the report says where.
#[test]
fn wrong_values_are_told() {
    let place = Place::new();
    bench(&place, "fillseq", &["--items", "100"]);
    let store = place.file("bench").join("store");
    let key = format!("{:016x}{}", 7 << 1, "30".repeat(8));
    let db = trine::Db::open(&store).expect("it opens");
    let item = [&(7_u64 << 1).to_be_bytes()[..], b"00000000"].concat();
    db.keyspace(".bench.items").and_then(|items| items.put(item, "0")).expect("it takes the item");
    db.close().expect("it closes");
    let told = ran(trine().args(["bench", "readseq", "--json", "--dir"]).arg(place.file("bench")));
    assert_eq!(told.code, Some(1), "{told:?}");
    let report: Value = serde_json::from_str(&told.out).expect("the report is JSON");
    assert_eq!(number(&rows(&report)[0], "wrong"), 1);
    assert!(rows(&report)[0]["first_wrong"].as_str().is_some_and(|first| first.contains(&key)));
}

/// Foreign stores are not touched unless requested; wrong names and reads of an empty store are one clear
/// line.
#[test]
fn foreign_stores_and_wrong_names_are_refused() {
    let place = Place::new();
    let refused = |arguments: &[&str]| {
        ran(trine().args(["bench", "--dir"]).arg(place.file("bench")).args(arguments)).failed(2)
    };
    assert!(refused(&["readrandom"]).contains("run fillseq or fillrandom"));
    assert!(refused(&["ycsb-a"]).contains("run ycsb-load"));
    assert!(refused(&["fillseq", "--set", "no_such=1"]).contains("no_such"));
    assert_eq!(ran(trine().args(["bench", "fillseq", "--set", "size_ratio"])).code, Some(2));
    assert!(refused(&["fillseq", "--read-only"]).contains("--read-only"));
    let (store, directory) = (place.file("other").join("store"), place.file("other"));
    std::fs::create_dir(&directory).expect("a new directory");
    ran(trine().arg("put").arg(&store).args(["users", "42", "Ann"])).ok();
    for directory in [&directory, &store] {
        let error = ran(trine().args(["bench", "fillseq", "--dir"]).arg(directory)).failed(2);
        assert!(error.contains("did not make") && error.contains("--any-store"), "{error}");
    }
    let told = ["bench", "fillseq", "--items", "10", "--any-store", "--dir"];
    ran(trine().args(told).arg(&directory)).ok();
    assert_eq!(ran(trine().arg("get").arg(&store).args(["users", "42"])).ok(), "Ann\n");
}

/// The report for people has every workload, its costs and its remarks, and the temporary directory is left
/// empty.
#[test]
fn the_tables_are_for_people() {
    let place = Place::new();
    let mut bench = trine();
    bench.args(["bench", "fillrandom,readrandom", "--items", "1000"]).env("TMPDIR", place.directory.path());
    let report = ran(&mut bench).ok();
    for word in ["fillrandom", "readrandom", "p99.99", "device reads", "over live", "data : memory"] {
        assert!(report.contains(word), "{word} in {report}");
    }
    assert_eq!(std::fs::read_dir(place.directory.path()).expect("it is there").count(), 0);
}

/// Partitions are made and dropped, with the store measured at ten points. The requested number of partitions
/// is kept, and every answer is right.
#[test]
fn partitions_are_made_and_dropped() {
    let place = Place::new();
    let arguments = ["--partitions", "500", "--live", "70", "--group", "20", "--partition-items", "2"];
    let report = bench(&place, "partitions,partitions", &arguments);
    for row in rows(&report) {
        assert_eq!((row["name"].as_str(), number(row, "wrong")), (Some("partitions"), 0));
        let points = row["points"].as_array().expect("an array");
        let made: Vec<u64> = points.iter().map(|point| number(point, "made")).collect();
        assert_eq!(made, (1..=10).map(|point| 50 * point).collect::<Vec<u64>>());
        let live: Vec<u64> = points.iter().map(|point| number(point, "live")).collect();
        assert_eq!((live[0], &live[1..]), (50, &[70; 9][..]));
        for point in points {
            assert!(number(point, "manifest_bytes") > 0 && number(point, "open_ns") > 0, "{point}");
            assert!(point["memory"]["manifest"].is_u64() && point["memory"]["cache"].is_null(), "{point}");
        }
        assert!(points[9]["drops_a_second"].as_f64().is_some_and(|rate| rate > 0.0));
    }
    let mut text = trine();
    text.args(["bench", "partitions", "--partitions", "30", "--live", "10", "--group", "10"]);
    let text = ran(&mut text).ok();
    assert!(text.contains("10 kept") && text.contains("drops a second"), "{text}");
    assert!(text.contains("write buffers") && !text.contains("WRONG"), "{text}");
}

/// The workload partitions needs a store, and at least one partition.
#[test]
fn partitions_of_nothing_are_refused() {
    let place = Place::new();
    let directory = place.file("bench");
    let refused = |arguments: &[&str]| {
        let ran = ran(trine().args(["bench", "partitions"]).args(arguments).arg("--dir").arg(&directory));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(!directory.exists());
        ran.error
    };
    assert!(refused(&["--engine", "null"]).contains("--engine null"));
    for option in ["--partitions", "--live", "--group", "--partition-items"] {
        assert!(refused(&[option, "0"]).contains(option));
    }
}
