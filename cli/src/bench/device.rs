//! The workload device: measures the device without the store, and reports it.
//!
//! All figures come from blocking requests; depth is the number of threads, each with one request. A device
//! that needs the ring to reach its limit shows less here: the report names the read method.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use trine_workload::direct::Mode;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Bars, Chart, Series};
use trine_workload::probe::{self, Device, Probe, Random};
use trine_workload::progress;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{bytes, count, nanoseconds};

use super::stop_if_asked;
use crate::arguments::Bench;

/// The seconds of a measurement by default.
const SECONDS: u64 = 2;

pub(super) fn measure(arguments: &Bench, directory: &Path) -> Result<Device, Failure> {
    let bar = progress::endless();
    let probe = Probe {
        bytes: arguments.device_bytes,
        time: Duration::from_secs(arguments.seconds.unwrap_or(SECONDS)),
        operations_max: arguments.operations.unwrap_or(u64::MAX),
        seed: arguments.seed,
    };
    let device = probe::measure(&probe, directory, |what| {
        stop_if_asked()?;
        bar.set_message(what);
        bar.tick();
        Ok::<(), Failure>(())
    });
    bar.finish_and_clear();
    device
}

pub(super) fn to_json(device: &Device) -> Value {
    let random = |random: &Random| {
        json!({
            "depth": random.depth,
            "reads": random.reads,
            "seconds": random.seconds,
            "reads_a_second": random.a_second(),
            "mean_ns": random.ns(),
        })
    };
    json!({
        "name": "device",
        "file_bytes": device.file_bytes,
        "direct_io": device.mode == Mode::Direct,
        "sequential_write_bytes_a_second": device.write_bytes_a_second,
        "sequential_read_bytes_a_second": device.read_bytes_a_second,
        "random_reads": device.random.iter().map(random).collect::<Vec<Value>>(),
        "syncs_a_second": device.syncs_a_second,
        "remarks": device.remarks(),
    })
}

pub(super) fn print(device: &Device, screen: &mut Screen) -> Result<(), Failure> {
    screen.line(format_args!("Device, a file of {}", bytes(device.file_bytes)))?;
    let mut table = table(["measured", "a second", "one takes"]);
    let rate = |rate: f64| format!("{}/s", bytes(rate as u64));
    let row = |name: &str, rate: String| [name.to_string(), rate, String::new()];
    table.add_row(row("sequential writes of 1 MiB", rate(device.write_bytes_a_second)));
    table.add_row(row("sequential reads of 1 MiB", rate(device.read_bytes_a_second)));
    for random in &device.random {
        let name = format!("random reads of 4 KiB, {} in flight", random.depth);
        table.add_row([name, count(random.a_second() as u64), nanoseconds(random.ns())]);
    }
    let sync_ns = (1e9 / device.syncs_a_second) as u64;
    let syncs = count(device.syncs_a_second as u64);
    table.add_row(["synced writes of 4 KiB".to_string(), syncs, nanoseconds(sync_ns)]);
    screen.line(table)?;
    for remark in device.remarks() {
        screen.line(format_args!("Note: {remark}."))?;
    }
    screen.line("")
}

/// `device-random` and `device-sequential`, SVG and CSV: a line, or a bar, for each measurement.
pub(super) fn plot(measured: &[Device], directory: &Path) -> Result<(), Failure> {
    if measured.is_empty() {
        return Ok(());
    }
    let series = |(index, device): (usize, &Device)| Series {
        name: run_name(index),
        points: device.random.iter().map(|random| (random.depth as f64, random.a_second())).collect(),
    };
    let chart = Chart {
        title: "Random reads of 4 KiB".to_string(),
        x: Axis::logarithmic("reads in flight"),
        y: Axis::linear("reads a second"),
        series: measured.iter().enumerate().map(series).collect(),
    };
    chart.write_svg(&directory.join("device-random.svg"))?;
    chart.write_csv(&directory.join("device-random.csv"))?;
    let rates = |(index, device): (usize, &Device)| {
        let rates = [device.write_bytes_a_second, device.read_bytes_a_second];
        (run_name(index), rates.map(|rate| Some(rate / 1e6)).to_vec())
    };
    let bars = Bars {
        title: "Sequential requests of 1 MiB".to_string(),
        y: Axis::linear("MB/s"),
        groups: vec!["write".to_string(), "read".to_string()],
        series: measured.iter().enumerate().map(rates).collect(),
    };
    bars.write_svg(&directory.join("device-sequential.svg"))?;
    bars.write_csv(&directory.join("device-sequential.csv"))
}

fn run_name(index: usize) -> String {
    format!("run {}", index + 1)
}
