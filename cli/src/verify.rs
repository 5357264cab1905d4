//! The commands verify, which reports damage of a store, and salvage, which makes a new store of the
//! undamaged items; as tables or as JSON.

use std::ops::Bound;

use indicatif::ProgressBar;
use serde_json::{Value, json};
use trine::inspect::{self, AtRisk, Doubt, Doubtful, Finding, Progress, Report};
use trine_workload::failure::Failure;
use trine_workload::progress;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{bytes, count, escaped, one_line, path};

use crate::arguments::{self, Global};

pub(crate) fn run(global: &Global, arguments: arguments::Verify) -> Result<(), Failure> {
    let bar = progress::over_bytes(0);
    let report = inspect::verify(&arguments.store, |now| show(&bar, now))?;
    bar.finish_and_clear();
    let mut screen = Screen::new();
    if global.json {
        screen.json(&to_json(&report))?;
    } else {
        tell(&report, &mut screen)?;
    }
    screen.finish()?;
    match report.findings.len() {
        0 => Ok(()),
        findings => Err(Failure::Check(findings)),
    }
}

pub(crate) fn salvage(global: &Global, arguments: arguments::Salvage) -> Result<(), Failure> {
    if global.read_only {
        return Err(Failure::Usage("this command writes; it cannot be --read-only".to_string()));
    }
    let bar = progress::over_bytes(0);
    let salvaged = inspect::salvage(&arguments.store, &arguments.target, |now| show(&bar, now))?;
    bar.finish_and_clear();
    let mut screen = Screen::new();
    if global.json {
        screen.json(&json!({
            "writes": salvaged.writes, "order_known": salvaged.is_order_known,
            "unplaced": salvaged.unplaced, "unused": salvaged.unused,
            "doubtful": salvaged.doubtful.iter().map(doubtful_to_json).collect::<Vec<_>>(),
            "findings": salvaged.report.findings.iter().map(finding_to_json).collect::<Vec<_>>(),
        }))?;
        return screen.finish();
    }
    tell(&salvaged.report, &mut screen)?;
    let target = path(&arguments.target);
    screen.line(format_args!("{} writes were made again in {target}", count(salvaged.writes)))?;
    if !salvaged.is_order_known {
        screen.line(
            "the manifest is damaged or an older one: where versions of a key compete an older one may have \
             won",
        )?;
    }
    tell_doubtful(&salvaged.doubtful, &mut screen)?;
    for (what, files) in [("not named", &salvaged.unplaced), ("not used", &salvaged.unused)] {
        if !files.is_empty() {
            screen.line(format_args!("{what}: {}", files.join(", ")))?;
        }
    }
    screen.finish()
}

/// Prints each keyspace with doubtful items; it holds no others.
fn tell_doubtful(doubtful: &[Doubtful], screen: &mut Screen) -> Result<(), Failure> {
    if doubtful.is_empty() {
        return Ok(());
    }
    screen.line(format_args!("{} keyspaces hold all doubtful data:", doubtful.len()))?;
    let mut found = table(["keyspace", "of", "writes", "files", "its items"]);
    for one in doubtful {
        found.add_row([
            escaped(one.keyspace.as_bytes()),
            one.of.as_ref().map_or_else(|| "unknown".to_string(), |of| escaped(of.as_bytes())),
            count(one.writes),
            one.files.join(", "),
            one.doubt.to_string(),
        ]);
    }
    screen.line(found)
}

fn doubtful_to_json(doubtful: &Doubtful) -> Value {
    let doubt = match doubtful.doubt {
        Doubt::Older => "older",
        Doubt::Unnamed => "unnamed",
        Doubt::Log => "log",
        _ => "unknown",
    };
    json!({
        "keyspace": doubtful.keyspace, "of": doubtful.of, "doubt": doubt, "files": doubtful.files,
        "writes": doubtful.writes,
    })
}

fn show(bar: &ProgressBar, now: &Progress) {
    bar.set_length(now.total_bytes);
    bar.set_position(now.done_bytes);
    bar.set_message(one_line(&now.file).into_owned());
}

fn tell(report: &Report, screen: &mut Screen) -> Result<(), Failure> {
    screen.line(format_args!(
        "{} read: {} tables with {} blocks and {} items, {} logs with {} items",
        bytes(report.bytes),
        count(report.tables),
        count(report.blocks),
        count(report.items),
        count(report.logs),
        count(report.log_items),
    ))?;
    if report.findings.is_empty() {
        return screen.line("no damage found");
    }
    let mut found = table(["file", "offset", "what", "expected", "found", "at risk"]);
    for Finding { damage, at_risk, .. } in &report.findings {
        found.add_row([
            escaped(damage.file.as_bytes()),
            damage.offset.to_string(),
            damage.what.to_string(),
            damage.expected.clone(),
            damage.found.clone(),
            risk(at_risk),
        ]);
    }
    screen.line(found)
}

fn risk(at_risk: &AtRisk) -> String {
    match at_risk {
        AtRisk::Nothing => "nothing: no read looks there".to_string(),
        AtRisk::Keys { keyspace, from, to } => {
            let from = match from {
                Bound::Included(key) => format!("from {}", escaped(key)),
                Bound::Excluded(key) => format!("after {}", escaped(key)),
                Bound::Unbounded => "from the first".to_string(),
            };
            let to = match to {
                Bound::Included(key) => format!("to {}", escaped(key)),
                Bound::Excluded(key) => format!("before {}", escaped(key)),
                Bound::Unbounded => "to the last".to_string(),
            };
            format!("keys of {}, {from}, {to}", escaped(keyspace.as_bytes()))
        }
        AtRisk::HashedKeys { keyspace, per_million } => {
            let percent = *per_million as f64 / 10_000.0;
            format!("about {percent} % of the keys of {}", escaped(keyspace.as_bytes()))
        }
        AtRisk::Writes { after } => format!("writes after number {after}"),
        _ => "everything: the store does not open".to_string(),
    }
}

fn to_json(report: &Report) -> Value {
    let findings: Vec<Value> = report.findings.iter().map(finding_to_json).collect();
    json!({
        "bytes": report.bytes, "tables": report.tables, "blocks": report.blocks, "items": report.items,
        "logs": report.logs, "log_items": report.log_items, "findings": findings,
    })
}

fn finding_to_json(finding: &Finding) -> Value {
    let damage = &finding.damage;
    let (kind, more) = match &finding.at_risk {
        AtRisk::Nothing => ("nothing", Value::Null),
        AtRisk::Keys { keyspace, from, to } => {
            ("keys", json!({"keyspace": keyspace, "from": bound(from), "to": bound(to)}))
        }
        AtRisk::HashedKeys { keyspace, per_million } => {
            ("hashed_keys", json!({"keyspace": keyspace, "per_million": per_million}))
        }
        AtRisk::Writes { after } => ("writes", json!({"after": after})),
        _ => ("store", Value::Null),
    };
    json!({
        "file": damage.file, "offset": damage.offset, "what": damage.what, "expected": damage.expected,
        "found": damage.found, "at_risk": kind, "range": more,
    })
}

fn bound(bound: &Bound<Vec<u8>>) -> Value {
    let hex = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match bound {
        Bound::Included(key) => json!({"key_hex": hex(key), "included": true}),
        Bound::Excluded(key) => json!({"key_hex": hex(key), "included": false}),
        Bound::Unbounded => Value::Null,
    }
}
