//! The demo's report: tables with one line of conclusion each, or one JSON object.

use std::fmt::Display;

use serde_json::{Value, json};
use trine_workload::failure::Failure;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{bytes, count, nanoseconds, ratio};

use super::check::Check;
use super::crash::{Killed, Load};
use super::records::{FILES, Sources, WORDS};
use super::{ReadReport, Run, WARM_MEMORY_BYTES};
use crate::stats::{memory, memory_to_json};

pub(crate) struct Report<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) load: Load,
    pub(crate) reads: ReadReport,
    pub(crate) checks: Vec<Check>,
    pub(crate) seconds: f64,
}

impl Report<'_> {
    /// The number of checks with wrong answers.
    pub(crate) fn failed_count(&self) -> usize {
        self.checks.iter().filter(|check| check.wrong > 0).count()
    }

    fn data_bytes(&self) -> u64 {
        self.run.expectation.key_value_bytes
    }

    /// Bytes of keys and values for each byte of the reader's budget.
    fn data_to_memory(&self) -> f64 {
        ratio(self.data_bytes(), self.run.read_memory_bytes)
    }

    fn amplification_with_log(&self) -> f64 {
        let written = &self.load.written;
        self.amplification_without_log() + ratio(written.log_bytes, written.key_value_bytes)
    }

    fn amplification_without_log(&self) -> f64 {
        let written = &self.load.written;
        ratio(written.flush_bytes + written.merge_write_bytes, written.key_value_bytes)
    }

    fn space_amplification(&self) -> f64 {
        ratio(self.load.disk_bytes, self.data_bytes())
    }

    fn loaded_a_second(&self) -> u64 {
        (self.run.expectation.records() as f64 / self.load.seconds.max(1e-9)) as u64
    }

    /// The growth of resident memory by the store: after the reads, less that before the open and that of the
    /// order.
    fn resident_growth_bytes(&self) -> Option<u64> {
        let before = self.reads.resident_before_bytes? + self.run.expectation.order_bytes();
        Some(self.reads.resident_bytes?.saturating_sub(before))
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut page = Page { screen: Screen::new() };
        self.print_input(&mut page)?;
        self.print_load(&mut page)?;
        self.print_kill(&mut page)?;
        self.print_reads(&mut page)?;
        self.print_memory(&mut page)?;
        self.print_trace(&mut page)?;
        self.print_checks(&mut page)?;
        page.screen.finish()
    }

    fn print_input(&self, page: &mut Page) -> Result<(), Failure> {
        let expectation = &self.run.expectation;
        page.title("Records")?;
        let mut rows = table(["keyspace", "records", "key → value"]);
        rows.add_row(["files", &count(expectation.counts[FILES]), "path → size, hash, first line"]);
        rows.add_row(["words", &count(expectation.counts[WORDS]), "word ␟ path ␟ line:column → the line"]);
        page.line(rows)?;
        let size = bytes(self.data_bytes());
        match &self.run.sources {
            Sources::Generated => page.conclusion(format_args!(
                "{size} of keys and values, generated from seed {} (no sources found, or --generate given).",
                self.run.arguments.seed
            )),
            Sources::Files(files) => {
                let roots = self.run.roots.iter().map(|root| trine_workload::text::path(root));
                let roots: Vec<String> = roots.collect();
                page.conclusion(format_args!(
                    "{size} of keys and values, made from {} of the {} sources in {}.",
                    count(expectation.counts[FILES]),
                    count(files.len() as u64),
                    roots.join(", ")
                ))
            }
        }
    }

    fn print_load(&self, page: &mut Page) -> Result<(), Failure> {
        let (load, written) = (&self.load, &self.load.written);
        page.title("Load")?;
        let mut rows = table(["written", "bytes", "for each byte of keys and values"]);
        let all = written.log_bytes + written.flush_bytes + written.merge_write_bytes;
        for (name, size) in [
            ("log", written.log_bytes),
            ("flushes", written.flush_bytes),
            ("merges", written.merge_write_bytes),
            ("all", all),
        ] {
            rows.add_row([name, &bytes(size), &format!("{:.2}", ratio(size, written.key_value_bytes))]);
        }
        page.line(rows)?;
        page.conclusion(format_args!(
            "{} records a second with {} of memory; writers were slowed for {}; settling took {}.",
            count(self.loaded_a_second()),
            bytes(self.run.load_memory_bytes),
            nanoseconds(written.delayed_ns),
            nanoseconds(load.done.settle_ns),
        ))?;
        page.conclusion(format_args!(
            "Write amplification {:.2} with the log, {:.2} without; on disk {} for {} of data: {:.2} times.",
            self.amplification_with_log(),
            self.amplification_without_log(),
            bytes(load.disk_bytes),
            bytes(self.data_bytes()),
            self.space_amplification(),
        ))
    }

    fn print_kill(&self, page: &mut Page) -> Result<(), Failure> {
        let load = &self.load;
        page.title("Kill and recovery")?;
        let mut rows = table(["after the kill", "value"]);
        for (name, value) in [
            ("records acknowledged before it", count(load.acknowledged_at_kill)),
            ("records found", count(load.found)),
            ("items replayed from the log", count(load.replayed_items)),
            ("log replayed", bytes(load.replayed_bytes)),
            ("log discarded", bytes(load.discarded_bytes)),
            ("time to open", nanoseconds(load.reopen_ns)),
        ] {
            rows.add_row([name.to_string(), value]);
        }
        page.line(rows)?;
        let lost = load.acknowledged_at_kill.saturating_sub(load.found);
        let when = match load.was_killed {
            Killed::InTheMiddle => "The loading process was killed in the middle",
            Killed::AtTheEnd => "The loading process was done before the kill reached it",
        };
        page.conclusion(format_args!("{when}; {} acknowledged records were lost.", count(lost)))
    }

    fn print_reads(&self, page: &mut Page) -> Result<(), Failure> {
        page.title("Reads")?;
        let header = [
            "operation",
            "count",
            "p50",
            "p95",
            "p99",
            "p99.9",
            "a second",
            "device reads each",
            "bytes each",
        ];
        let mut rows = table(header);
        for cost in &self.reads.costs {
            let a_second = 1_000_000_000 / cost.mean_ns.max(1);
            rows.add_row([
                cost.name,
                &count(cost.operations),
                &nanoseconds(cost.p50_ns),
                &nanoseconds(cost.p95_ns),
                &nanoseconds(cost.p99_ns),
                &nanoseconds(cost.p999_ns),
                &count(a_second),
                &format!("{:.2}", ratio(cost.device_reads, cost.operations)),
                &bytes(cost.device_read_bytes / cost.operations.max(1)),
            ]);
        }
        page.line(rows)?;
        for scan in &self.reads.scans {
            let a_second = (scan.items as f64 / scan.seconds.max(1e-9)) as u64;
            page.conclusion(format_args!(
                "Scan {}: {} items at {} a second, each checked.",
                scan.name,
                count(scan.items),
                count(a_second)
            ))?;
        }
        let cold = if self.data_to_memory() > 1.0 {
            "not all of it fits"
        } else {
            "all of it fits: these reads are warm"
        };
        let path = if self.reads.stats.io.direct_io { "past" } else { "through" };
        page.conclusion(format_args!(
            "One thread, data : memory {:.1} : 1 ({cold}), tables read {path} the kernel's page cache.",
            self.data_to_memory()
        ))?;
        page.conclusion(format_args!(
            "The last row is with {} of memory, data : memory {:.1} : 1, after each key was read once.",
            bytes(WARM_MEMORY_BYTES),
            ratio(self.data_bytes(), WARM_MEMORY_BYTES)
        ))
    }

    fn print_memory(&self, page: &mut Page) -> Result<(), Failure> {
        let stats = &self.reads.stats.memory;
        page.title("Memory while reading")?;
        page.line(memory(stats))?;
        let verdict = if stats.used_bytes <= stats.budget_bytes { "within" } else { "over" };
        page.conclusion(format_args!(
            "{} used, {verdict} the budget of {}.",
            bytes(stats.used_bytes),
            bytes(stats.budget_bytes)
        ))?;
        if let (Some(resident), Some(growth)) = (self.reads.resident_bytes, self.resident_growth_bytes()) {
            page.conclusion(format_args!(
                "Resident: {} in all; the store's part is {}, the demo's own record takes {}.",
                bytes(resident),
                bytes(growth),
                bytes(self.run.expectation.memory_bytes()),
            ))?;
        }
        if let Some(peak) = self.load.done.resident_peak_bytes {
            let budget = bytes(self.run.load_memory_bytes);
            page.conclusion(format_args!(
                "The loading process had at most {} resident, its budget was {budget}.",
                bytes(peak)
            ))?;
        }
        Ok(())
    }

    fn print_trace(&self, page: &mut Page) -> Result<(), Failure> {
        page.title("One get, step by step")?;
        let mut rows = table(["step", "time", "bytes", "times"]);
        for step in &self.reads.trace.steps {
            rows.add_row([step.name, &nanoseconds(step.ns), &count(step.bytes), &count(step.count)]);
        }
        page.line(rows)?;
        let all = self.reads.trace.steps.iter().map(|step| step.ns).sum();
        let longest =
            self.reads.trace.steps.iter().max_by_key(|step| step.ns).map_or("none", |step| step.name);
        page.conclusion(format_args!("{} in all; the longest step is {longest}.", nanoseconds(all)))
    }

    fn print_checks(&self, page: &mut Page) -> Result<(), Failure> {
        page.title("Checks")?;
        let mut rows = table(["every answer against the records made anew", "checked", "wrong"]);
        for check in &self.checks {
            rows.add_row([check.name, &count(check.checked), &count(check.wrong)]);
        }
        page.line(rows)?;
        for check in &self.checks {
            if let Some(first) = &check.first_wrong {
                page.conclusion(format_args!("WRONG: {}: {first}", check.name))?;
            }
        }
        let checked = count(self.checks.iter().map(|check| check.checked).sum());
        let seconds = self.seconds;
        match self.failed_count() {
            0 => page.conclusion(format_args!(
                "All {checked} answers were right. The demo took {seconds:.0} s."
            ))?,
            failed => page.conclusion(format_args!(
                "{failed} kinds of answers were wrong. The demo took {seconds:.0} s."
            ))?,
        }
        if self.is_kept() {
            page.conclusion(format_args!(
                "The store is kept: trine stats {}",
                trine_workload::text::path(&self.run.store())
            ))?;
        }
        Ok(())
    }

    fn is_kept(&self) -> bool {
        self.run.arguments.dir.is_some() || self.run.arguments.keep
    }

    pub(crate) fn print_json(&self) -> Result<(), Failure> {
        let (run, load, reads) = (self.run, &self.load, &self.reads);
        let trace: Vec<Value> = reads
            .trace
            .steps
            .iter()
            .map(|step| json!({"name": step.name, "ns": step.ns, "bytes": step.bytes, "count": step.count}))
            .collect();
        let report = json!({
            "input": {
                "generated": matches!(run.sources, Sources::Generated),
                "roots": run.roots,
                "seed": run.arguments.seed,
                "records": run.expectation.records(),
                "files": run.expectation.counts[FILES],
                "words": run.expectation.counts[WORDS],
                "key_value_bytes": self.data_bytes(),
            },
            "load": {
                "seconds": load.seconds,
                "records_per_second": self.loaded_a_second(),
                "memory_bytes": run.load_memory_bytes,
                "written": load.written,
                "write_amplification_with_log": self.amplification_with_log(),
                "write_amplification_without_log": self.amplification_without_log(),
                "settle_ns": load.done.settle_ns,
                "resident_peak_bytes": load.done.resident_peak_bytes,
                "disk_bytes": load.disk_bytes,
                "space_amplification": self.space_amplification(),
            },
            "kill": {
                "in_the_middle": load.was_killed == Killed::InTheMiddle,
                "acknowledged": load.acknowledged_at_kill,
                "found": load.found,
                "open_ns": load.reopen_ns,
                "recovery": load.recovery,
            },
            "reads": {
                "memory_bytes": run.read_memory_bytes,
                "much_memory_bytes": WARM_MEMORY_BYTES,
                "data_to_memory": self.data_to_memory(),
                "direct_io": reads.stats.io.direct_io,
                "operations": reads.costs,
                "scans": reads.scans,
                "trace": trace,
            },
            "memory": {
                "store": memory_to_json(&reads.stats.memory),
                "resident_bytes": reads.resident_bytes,
                "resident_growth_bytes": self.resident_growth_bytes(),
                "expectation_bytes": run.expectation.memory_bytes(),
            },
            "checks": self.checks,
            "failed": self.failed_count(),
            "seconds": self.seconds,
            "store": self.is_kept().then(|| run.store()),
        });
        let mut screen = Screen::new();
        screen.json(&report)?;
        screen.finish()
    }
}

/// The formatting of the report.
struct Page {
    screen: Screen,
}

impl Page {
    fn title(&mut self, title: &str) -> Result<(), Failure> {
        self.screen.line(format_args!("\n{title}"))
    }

    fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        self.screen.line(line)
    }

    fn conclusion(&mut self, line: impl Display) -> Result<(), Failure> {
        self.screen.line(format_args!("→ {line}"))
    }
}
