//! The bench's report: tables for people, JSON for programs, charts and the time series.

use std::fmt::Write;
use std::path::Path;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use trine_workload::failure::Failure;
use trine_workload::mixgraph::KEY_BYTES;
use trine_workload::plot::{Axis, Bars, Chart, Series, row};
use trine_workload::screen::{Screen, table};
use trine_workload::text::{bytes, count, nanoseconds};

use super::measure::Outcome;
use super::record::{Record, Times};
use crate::arguments::{Bench, EngineName, Global, Workload};

/// The configuration of the run, for both kinds of report.
pub(super) fn configuration(global: &Global, arguments: &Bench) -> Value {
    let settings: Map<String, Value> =
        arguments.settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "engine": if arguments.engine == EngineName::Null { "null" } else { "trine" },
        "version": env!("CARGO_PKG_VERSION"),
        "items": arguments.items,
        "key_bytes": arguments.key_bytes.unwrap_or(16),
        "value_bytes": arguments.value_bytes,
        "compressible_percent": arguments.compressible.unwrap_or(0),
        "threads": arguments.threads,
        "batch": arguments.batch,
        "scan_items": arguments.scan_items,
        "multi_keys": arguments.multi_keys,
        "sync": arguments.sync,
        "seed": arguments.seed,
        "memory_bytes": global.memory,
        "settings": settings,
        "processors": std::thread::available_parallelism().map(usize::from).ok(),
    })
}

/// Remarks that the figures of a row do not show.
fn remarks(outcome: &Outcome, arguments: &Bench) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut say = |remark: &str| remarks.push(remark.to_string());
    let cost = &outcome.cost;
    if arguments.engine == EngineName::Null {
        say("no store was asked: this is the cost of the driver");
    } else {
        if cost.device.as_ref().is_some_and(|device| !device.is_direct) {
            say("tables are read through the page cache, whose memory and hits are not counted");
        }
        if cost.kernel_reads.is_none() {
            say("the kernel does not report device reads (/proc/self/io)");
        }
        if cost.resident_bytes.is_none() {
            say("the kernel does not tell the resident memory (/proc/self/status)");
        }
        if !outcome.is_settled {
            say("flushes or merges were still due at the end; settle between two workloads waits for them");
        }
    }
    if outcome.workload == Workload::Mixgraph {
        say("requests come as fast as they are answered, not in the published sine");
        if outcome.key_bytes != KEY_BYTES {
            say(&format!("the published keys have {KEY_BYTES} bytes, these {}", outcome.key_bytes));
        }
    }
    if outcome.record.operations == 0 {
        say("nothing was done");
    }
    if outcome.batch > 1 {
        say(&format!("a latency is that of {} operations together", outcome.batch));
    }
    if let Some(error) = &cost.background_error {
        say(&format!("background work fails: {error}"));
    }
    remarks
}

fn latency_to_json(latency: &Histogram<u64>) -> Value {
    let at = |quantile| latency.value_at_quantile(quantile);
    json!({
        "mean": latency.mean(),
        "p50": at(0.5),
        "p95": at(0.95),
        "p99": at(0.99),
        "p999": at(0.999),
        "p9999": at(0.9999),
        "max": latency.max(),
    })
}

fn kinds_to_json(record: &Record) -> Value {
    let kind = |times: &Times| {
        let latency = latency_to_json(&times.latency);
        json!({"operations": times.operations, "latency_ns": latency})
    };
    Value::Object(record.times().map(|(name, times)| (name.name().to_string(), kind(times))).collect())
}

fn per(whole: u64, operations: u64) -> f64 {
    whole as f64 / operations.max(1) as f64
}

pub(super) fn to_json(outcome: &Outcome, arguments: &Bench) -> Value {
    let (record, cost) = (&outcome.record, &outcome.cost);
    let operations = record.operations;
    let mut all = json!({
        "name": outcome.workload.name(),
        "keyspace_kind": if outcome.kind == trine::Kind::Hashed { "hashed" } else { "ordered" },
        "items": outcome.loaded,
        "key_bytes": outcome.key_bytes,
        "threads": outcome.threads,
        "distribution": outcome.distribution.map(|distribution| distribution.name()),
        "seconds": cost.seconds,
        "operations": operations,
        "operations_a_second": outcome.a_second(),
        "operations_a_latency": outcome.batch,
        "latency_ns": latency_to_json(&outcome.latency),
        "kinds": kinds_to_json(record),
        "found": record.answers.found,
        "absent": record.answers.absent,
        "scanned": record.answers.scanned,
        "wrong": record.answers.wrong,
        "first_wrong": record.answers.first_wrong,
        "cpu_seconds_per_million_operations": cost.cpu_seconds * 1e6 / operations.max(1) as f64,
        "resident_bytes": cost.resident_bytes,
        "memory_budget_bytes": cost.memory_budget_bytes,
        "memory_used_bytes": cost.memory_used_bytes,
        "live_bytes": outcome.live_bytes,
        "live_bytes_per_memory_byte": data_to_memory(outcome),
        "disk_bytes": cost.disk_bytes,
        "space_amplification": cost.space_amplification(outcome.live_bytes),
        "kernel_reads_of_4096_per_operation":
            cost.kernel_reads.map(|reads| reads / operations.max(1) as f64),
        "is_settled": outcome.is_settled,
        "remarks": remarks(outcome, arguments),
    });
    if let Some(device) = &cost.device {
        all["device_reads"] = json!(device.reads);
        all["device_reads_per_operation"] = json!(per(device.reads, operations));
        all["device_read_bytes_per_operation"] = json!(per(device.read_bytes, operations));
    }
    if let Some(write) = &cost.write {
        all["key_value_bytes_written"] = json!(write.key_value_bytes);
        all["write_amplification_with_log"] = json!(write.amplification_with_log);
        all["write_amplification_without_log"] = json!(write.amplification_without_log);
        all["delayed_ns"] = json!(write.delayed_ns);
        all["pressure"] = json!(write.pressure);
        all["syncs"] = json!(write.syncs);
    }
    if let Some(writer) = &outcome.writer {
        all["writer"] = json!({
            "operations": writer.operations,
            "operations_a_second": writer.operations as f64 / cost.seconds.max(1e-9),
            "kinds": kinds_to_json(writer),
        });
    }
    all
}

/// Live bytes of keys and values for each byte of the memory budget.
fn data_to_memory(outcome: &Outcome) -> Option<f64> {
    Some(outcome.live_bytes? as f64 / outcome.cost.memory_budget_bytes? as f64)
}

pub(super) fn print(outcomes: &[Outcome], arguments: &Bench, screen: &mut Screen) -> Result<(), Failure> {
    if outcomes.is_empty() {
        return Ok(());
    }
    let threads = if arguments.threads == 1 {
        "1 thread".to_string()
    } else {
        format!("{} threads", arguments.threads)
    };
    screen.line(format_args!("Rates and latencies, {threads}"))?;
    screen.line(rates(outcomes))?;
    screen.line("\nWhat an operation cost")?;
    screen.line(costs(outcomes))?;
    screen.line("\nResults and costs")?;
    screen.line(holdings(outcomes))?;
    let mut told = Vec::new();
    for outcome in outcomes {
        for remark in remarks(outcome, arguments) {
            let line = format!("{}: {remark}.", outcome.name());
            if !told.contains(&line) {
                screen.line(&line)?;
                told.push(line);
            }
        }
        if let Some(writer) = &outcome.writer {
            let rate = count((writer.operations as f64 / outcome.cost.seconds.max(1e-9)) as u64);
            screen.line(format_args!("{}: the writer put {rate} a second.", outcome.name()))?;
        }
        if let Some(first) = &outcome.record.answers.first_wrong {
            let wrong = count(outcome.record.answers.wrong);
            screen.line(format_args!("{}: {wrong} answers were WRONG: {first}.", outcome.name()))?;
        }
    }
    Ok(())
}

fn rates(outcomes: &[Outcome]) -> comfy_table::Table {
    let mut table = table([
        "workload",
        "items",
        "operations",
        "a second",
        "mean",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "p99.99",
        "max",
    ]);
    for outcome in outcomes {
        let latency = &outcome.latency;
        let at = |quantile| nanoseconds(latency.value_at_quantile(quantile));
        table.add_row([
            outcome.name(),
            count(outcome.loaded),
            count(outcome.record.operations),
            count(outcome.a_second() as u64),
            nanoseconds(latency.mean() as u64),
            at(0.5),
            at(0.95),
            at(0.99),
            at(0.999),
            at(0.9999),
            nanoseconds(latency.max()),
        ]);
    }
    table
}

/// A figure, or a dash if there is none.
fn known(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| "-".to_string())
}

fn costs(outcomes: &[Outcome]) -> comfy_table::Table {
    let mut table = table([
        "workload",
        "device reads",
        "their bytes",
        "kernel's 4 KiB",
        "written, log counted",
        "without log",
        "CPU s per million",
    ]);
    for outcome in outcomes {
        let (operations, cost) = (outcome.record.operations, &outcome.cost);
        let device = cost.device.as_ref();
        let write = cost.write.as_ref().filter(|write| write.key_value_bytes > 0);
        table.add_row([
            outcome.name(),
            known(device.map(|device| format!("{:.3}", per(device.reads, operations)))),
            known(device.map(|device| format!("{:.0}", per(device.read_bytes, operations)))),
            known(cost.kernel_reads.map(|reads| format!("{:.3}", reads / operations.max(1) as f64))),
            known(write.map(|write| format!("{:.2} x", write.amplification_with_log))),
            known(write.map(|write| format!("{:.2} x", write.amplification_without_log))),
            format!("{:.2}", cost.cpu_seconds * 1e6 / operations.max(1) as f64),
        ]);
    }
    table
}

fn holdings(outcomes: &[Outcome]) -> comfy_table::Table {
    let mut table = table([
        "workload",
        "found",
        "absent",
        "scanned",
        "wrong",
        "resident",
        "budget",
        "data : memory",
        "on disk",
        "over live",
    ]);
    for outcome in outcomes {
        let (answers, cost) = (&outcome.record.answers, &outcome.cost);
        let space = cost.space_amplification(outcome.live_bytes);
        table.add_row([
            outcome.name(),
            count(answers.found),
            count(answers.absent),
            count(answers.scanned),
            count(answers.wrong),
            known(cost.resident_bytes.map(bytes)),
            known(cost.memory_budget_bytes.map(bytes)),
            known(data_to_memory(outcome).map(|ratio| format!("{ratio:.2}"))),
            known(cost.disk_bytes.map(bytes)),
            known(space.map(|space| format!("{space:.2} x"))),
        ]);
    }
    table
}

/// The time series of all workloads, one row a second.
pub(super) fn write_series(outcomes: &[Outcome], path: &Path) -> Result<(), Failure> {
    let mut out = row(["step", "workload", "second", "operations", "p99_ns", "device_reads", "pressure"]);
    let number = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    for (step, outcome) in outcomes.iter().enumerate() {
        for one in &outcome.rows {
            let second = &one.second;
            let fields = [
                (step + 1).to_string(),
                outcome.name(),
                second.second.to_string(),
                second.operations.to_string(),
                second.p99_ns.to_string(),
                number(one.device_reads),
                number(one.pressure),
            ];
            write!(out, "{}", row(fields.iter().map(String::as_str))).expect("a String takes every write");
        }
    }
    std::fs::write(path, out).map_err(|source| Failure::file("write", path, source))
}

/// `throughput`, `latency`, `series` and, for a staged run, `stages`: SVG and CSV.
pub(super) fn plot(outcomes: &[Outcome], directory: &Path) -> Result<(), Failure> {
    let measured: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.latency.len() > 1).collect();
    if measured.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = measured.iter().map(|outcome| outcome.name()).collect();
    let values = |value: fn(&Outcome) -> f64| measured.iter().map(|outcome| Some(value(outcome))).collect();
    let throughput = Bars {
        title: "Throughput".to_string(),
        y: Axis::linear("operations a second"),
        groups: groups.clone(),
        series: vec![("operations a second".to_string(), values(Outcome::a_second))],
    };
    throughput.write_svg(&directory.join("throughput.svg"))?;
    throughput.write_csv(&directory.join("throughput.csv"))?;
    let p50 = |outcome: &Outcome| outcome.latency.value_at_quantile(0.5) as f64 / 1e3;
    let p99 = |outcome: &Outcome| outcome.latency.value_at_quantile(0.99) as f64 / 1e3;
    let p999 = |outcome: &Outcome| outcome.latency.value_at_quantile(0.999) as f64 / 1e3;
    let latency = Bars {
        title: "Latency".to_string(),
        y: Axis::logarithmic("microseconds"),
        groups,
        series: vec![
            ("p50".to_string(), values(p50)),
            ("p99".to_string(), values(p99)),
            ("p99.9".to_string(), values(p999)),
        ],
    };
    latency.write_svg(&directory.join("latency.svg"))?;
    latency.write_csv(&directory.join("latency.csv"))?;
    write_chart(&series_chart(&measured), directory, "series")?;
    write_chart(&stages_chart(&measured), directory, "stages")
}

/// A chart without two points in any line is not written.
fn write_chart(chart: &Chart, directory: &Path, name: &str) -> Result<(), Failure> {
    if chart.series.iter().all(|series| series.points.len() < 2) {
        return Ok(());
    }
    chart.write_svg(&directory.join(name).with_extension("svg"))?;
    chart.write_csv(&directory.join(name).with_extension("csv"))
}

fn series_chart(outcomes: &[&Outcome]) -> Chart {
    let series = |(index, outcome): (usize, &&Outcome)| Series {
        name: format!("{} {}", index + 1, outcome.name()),
        points: outcome
            .rows
            .iter()
            .map(|row| (row.second.second as f64, row.second.operations as f64))
            .collect(),
    };
    Chart {
        title: "Operations in each second".to_string(),
        x: Axis::linear("second"),
        y: Axis::linear("operations"),
        series: outcomes.iter().enumerate().map(series).collect(),
    }
}

fn stages_chart(outcomes: &[&Outcome]) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for outcome in outcomes {
        let name = outcome.name();
        let point = (outcome.loaded as f64, outcome.a_second());
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: name.to_string(), points: vec![point] }),
        }
    }
    Chart {
        title: "Throughput as the store grows".to_string(),
        x: Axis::linear("items"),
        y: Axis::logarithmic("operations a second"),
        series,
    }
}
