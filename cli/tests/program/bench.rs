//! The bench at tiny sizes: what it counts adds up, and what it cannot do is said.

use serde_json::Value;

use super::{Place, ran, trine};

/// The device is measured and drawn, its file is gone afterwards, and a limit on operations holds.
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

/// A workload that there is not is refused before anything is made.
#[test]
fn unknown_workloads_are_refused() {
    let place = Place::new();
    let directory = place.file("bench");
    let error = ran(trine().args(["bench", "device,fillnothing", "--dir"]).arg(&directory));
    assert_eq!(error.code, Some(2));
    assert!(error.error.contains("fillnothing"), "{}", error.error);
    assert!(!directory.exists());
}
