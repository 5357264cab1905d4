//! The command stats: all statistics of the store, as tables or as JSON; also for import and demo.

mod partitions;

use comfy_table::Table;
use serde_json::{Value, json};
use trine::Db;
use trine_workload::failure::Failure;
use trine_workload::progress;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{bytes, count, nanoseconds, ratio};

use crate::arguments::{self, Global};
use crate::items::open_to_read;
use crate::listing::kind;
use crate::named;
use crate::upkeep::{OWN, setting_to_json};
use partitions::{Extent, KeyspacePartitions};

pub(crate) fn run(global: &Global, arguments: arguments::Stats) -> Result<(), Failure> {
    let db = open_to_read(global, &arguments.store)?;
    // First, so that the reads of the count are in the device statistics.
    let is_shown = |name: &str| arguments.all || !name.starts_with(OWN);
    let keys = if arguments.exact { Some(counted(&db, is_shown)?) } else { None };
    let mut stats = db.stats();
    stats.keyspaces.retain(|keyspace| is_shown(&keyspace.name));
    let extent = if arguments.partitions { Extent::All } else { Extent::Largest };
    let partitions = KeyspacePartitions::of_all(&db, &stats.keyspaces, extent)?;
    let mut screen = Screen::new();
    if global.json {
        let mut all = to_json(&stats);
        for (index, (_, keys)) in keys.iter().flatten().enumerate() {
            all["keyspaces"][index]["keys"] = (*keys).into();
        }
        for (index, of) in partitions.iter().enumerate() {
            of.iter().for_each(|of| of.add_to(&mut all["keyspaces"][index], extent));
        }
        all["settings"] = db.settings().iter().map(setting_to_json).collect();
        screen.json(&all)?;
    } else {
        let keys = keys.map(|keys| ("Keys", keys_table(&keys)));
        for (title, table) in keys.into_iter().chain(tables(&stats, &partitions, extent)) {
            screen.heading(title)?;
            screen.line(format_args!("{table}\n"))?;
        }
        screen.line(
            "Device traffic and write amplification are counted since this command opened the store.",
        )?;
    }
    screen.finish()?;
    Ok(db.close()?)
}

/// The keys of each keyspace, in the order of the statistics.
fn counted(db: &Db, is_shown: impl Fn(&str) -> bool) -> Result<Vec<(String, u64)>, Failure> {
    let mut keys = Vec::new();
    for keyspace in db.keyspaces().into_iter().filter(|one| is_shown(&one.name)) {
        let maps = named::maps_of(db, &keyspace.name, keyspace.is_partitioned)?;
        let about = maps.iter().map(|map| map.approximate_len()).sum::<trine::Result<u64>>()?;
        let (bar, mut count) = (progress::over_items(about, "counting"), 0);
        for map in maps {
            count += map.exact_len(|counted| bar.set_position(count + counted))?;
        }
        bar.finish_and_clear();
        keys.push((keyspace.name, count));
    }
    Ok(keys)
}

fn keys_table(keys: &[(String, u64)]) -> Table {
    let mut table = table(["keyspace", "keys"]);
    for (name, keys) in keys {
        table.add_row([trine_workload::text::escaped(name.as_bytes()), count(*keys)]);
    }
    table
}

fn tables(
    stats: &trine::Stats,
    partitions: &[Option<KeyspacePartitions>],
    extent: Extent,
) -> Vec<(&'static str, Table)> {
    let mut tables = vec![("Keyspaces", keyspaces(stats, partitions))];
    tables.extend(partitions::partitions(&stats.keyspaces, partitions, extent));
    tables.extend(levels(stats));
    tables.extend(tries(stats));
    tables.extend([
        ("Memory", memory(&stats.memory)),
        ("Space", space(&stats.space)),
        ("Device", device(&stats.io)),
        ("Recovery at open", recovery(&stats.recovery)),
    ]);
    if !stats.space.obsolete_files.is_empty() {
        tables.push(("Obsolete files", obsolete_files(&stats.space)));
    }
    tables
}

fn keyspaces(stats: &trine::Stats, partitions: &[Option<KeyspacePartitions>]) -> Table {
    let heads =
        ["keyspace", "kind", "items", "keys and values", "in tables", "tables", "levels", "partitions"];
    let mut table = table(heads);
    for (keyspace, partitions) in stats.keyspaces.iter().zip(partitions) {
        table.add_row([
            trine_workload::text::escaped(keyspace.name.as_bytes()),
            kind(keyspace).to_owned(),
            count(keyspace.items),
            bytes(keyspace.key_value_bytes),
            bytes(keyspace.table_bytes),
            count(keyspace.tables),
            keyspace.levels.len().to_string(),
            partitions.as_ref().map_or_else(String::new, KeyspacePartitions::cell),
        ]);
    }
    table
}

/// The levels of ordered keyspaces; `None` if all keyspaces are hashed.
fn levels(stats: &trine::Stats) -> Option<(&'static str, Table)> {
    let mut table =
        table(["keyspace", "level", "runs", "tables", "items", "deletions", "bytes", "filters", "fences"]);
    let is_shown = stats.keyspaces.iter().any(|one| !one.is_hashed) || stats.keyspaces.is_empty();
    for keyspace in stats.keyspaces.iter().filter(|one| !one.is_hashed) {
        for level in &keyspace.levels {
            table.add_row([
                trine_workload::text::escaped(keyspace.name.as_bytes()),
                level.level.to_string(),
                count(level.runs),
                count(level.tables),
                count(level.items),
                count(level.tombstones),
                bytes(level.table_bytes),
                pinned(&level.filters),
                fences(level),
            ]);
        }
    }
    is_shown.then_some(("Levels", table))
}

/// The shapes of hashed keyspaces, a row for each height of their nodes.
fn tries(stats: &trine::Stats) -> Option<(&'static str, Table)> {
    let heads = [
        "keyspace",
        "height",
        "nodes",
        "tables",
        "longest pile",
        "items",
        "deletions",
        "bytes",
        "filters",
        "fences",
    ];
    let mut table = table(heads);
    for keyspace in stats.keyspaces.iter().filter(|one| one.is_hashed) {
        for level in &keyspace.levels {
            table.add_row([
                trine_workload::text::escaped(keyspace.name.as_bytes()),
                level.level.to_string(),
                count(level.nodes),
                count(level.tables),
                count(level.node_runs_max),
                count(level.items),
                count(level.tombstones),
                bytes(level.table_bytes),
                pinned(&level.filters),
                pinned(&level.fences),
            ]);
        }
    }
    stats.keyspaces.iter().any(|one| one.is_hashed).then_some(("Tries", table))
}

/// The size of pages, and the reason if not all of them are in memory.
fn pinned(pages: &trine::PageStats) -> String {
    if pages.bytes == pages.pinned_bytes {
        return bytes(pages.bytes);
    }
    format!("{}, in memory {}: {}", bytes(pages.bytes), bytes(pages.pinned_bytes), pages.reason)
}

/// As `pinned`, for fences: with the bytes of learned models, and of sketches that replace fences without
/// room.
fn fences(level: &trine::LevelStats) -> String {
    let mut text = pinned(&level.fences);
    if level.models_bytes > 0 {
        text.push_str(&format!(", of models {}", bytes(level.models_bytes)));
    }
    if level.sketches_bytes > 0 {
        text.push_str(&format!(", sketches {}", bytes(level.sketches_bytes)));
    }
    text
}

/// Memory by role, and the budget.
pub(crate) fn memory(memory: &trine::MemoryStats) -> Table {
    let mut table = table(["memory", "used", "limit", "waits", "refusals"]);
    for role in &memory.roles {
        table.add_row([
            role.name.to_string(),
            bytes(role.bytes),
            bytes(role.limit_bytes),
            count(role.waits),
            count(role.refusals),
        ]);
    }
    let (used, budget) = (bytes(memory.used_bytes), bytes(memory.budget_bytes));
    table.add_row(["all, of the budget".to_string(), used, budget, String::new(), String::new()]);
    table
}

/// Each role of files: its name in JSON, its name for people, its bytes.
fn space_by_role(space: &trine::SpaceStats) -> [(&'static str, &'static str, u64); 10] {
    [
        ("table_bytes", "tables", space.table_bytes),
        ("obsolete_table_bytes", "obsolete tables, kept for readers", space.obsolete_table_bytes),
        ("history_bytes", "tables that only snapshots see", space.history_bytes),
        ("new_table_bytes", "tables being written", space.new_table_bytes),
        ("log_bytes", "logs", space.log_bytes),
        ("standby_log_bytes", "log made ready", space.standby_log_bytes),
        ("recycled_log_bytes", "log to be used again", space.recycled_log_bytes),
        ("manifest_bytes", "manifest", space.manifest_bytes),
        ("store_bytes", "STORE and LOCK", space.store_bytes),
        ("unnamed_bytes", "files that nothing names", space.unnamed_bytes),
    ]
}

fn space(space: &trine::SpaceStats) -> Table {
    let mut table = table(["files", "bytes"]);
    for (_, name, size) in space_by_role(space) {
        table.add_row([name.to_string(), bytes(size)]);
    }
    table.add_row(["all".to_string(), bytes(space.total_bytes)]);
    if space.hole_bytes > 0 {
        table.add_row(["not in them: holes in tables".to_string(), bytes(space.hole_bytes)]);
    }
    table
}

/// Obsolete files that readers keep.
fn obsolete_files(space: &trine::SpaceStats) -> Table {
    let mut table = table(["file", "bytes", "readers"]);
    for file in &space.obsolete_files {
        let readers = file.readers.iter().map(|one| format!("{} {}", one.count, one.kind.name()));
        let readers = readers.collect::<Vec<String>>().join(", ");
        table.add_row([file.name.clone(), bytes(file.bytes), readers]);
    }
    table
}

fn space_to_json(space: &trine::SpaceStats) -> Value {
    let reader = |one: &trine::FileReader| json!({"kind": one.kind.name(), "count": one.count});
    let file = |file: &trine::ObsoleteFile| {
        let readers = file.readers.iter().map(reader).collect::<Vec<Value>>();
        json!({"name": file.name, "bytes": file.bytes, "readers": readers})
    };
    let mut all = json!({"total_bytes": space.total_bytes, "hole_bytes": space.hole_bytes});
    for (name, _, size) in space_by_role(space) {
        all[name] = size.into();
    }
    all["obsolete_files"] = space.obsolete_files.iter().map(file).collect();
    all
}

/// Device traffic of opening and reading; a store opened for reading writes nothing.
fn device(io: &trine::IoStats) -> Table {
    let mut table = table(["device", "value"]);
    let rows = [
        ("reads of blocks", count(io.device_reads)),
        ("their bytes", bytes(io.device_read_bytes)),
        ("all reads, opening included", count(io.reads)),
        ("their bytes", bytes(io.read_bytes)),
        ("reads of futures in flight", count(io.reads_in_flight)),
        ("reads of futures that wait", count(io.reads_waiting)),
        ("several reads at once by", io.reads_with.to_owned()),
        ("open files", count(io.open_files)),
        ("tables read past the page cache", if io.direct_io { "yes" } else { "no" }.to_string()),
    ];
    for (name, value) in rows {
        table.add_row([name.to_string(), value]);
    }
    table
}

fn recovery(recovery: &trine::RecoveryStats) -> Table {
    let mut table = table(["recovery", "value"]);
    let rows = [
        ("items replayed from the log", count(recovery.replayed_items)),
        ("log replayed", bytes(recovery.replayed_bytes)),
        ("log discarded", bytes(recovery.discarded_bytes)),
        ("time to open", nanoseconds(recovery.open_ns)),
    ];
    for (name, value) in rows {
        table.add_row([name.to_string(), value]);
    }
    table
}

/// Whether the log's bytes count as writing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    Counted,
    Left,
}

/// Bytes written to the device for each byte of keys and values given.
pub(crate) fn amplification(write: &trine::WriteStats, log: Log) -> f64 {
    let log_bytes = if log == Log::Counted { write.log_bytes } else { 0 };
    ratio(log_bytes + write.flush_bytes + write.merge_write_bytes, write.key_value_bytes)
}

/// All statistics, as JSON.
pub(crate) fn to_json(stats: &trine::Stats) -> Value {
    json!({
        "keyspaces": stats.keyspaces.iter().map(keyspace_to_json).collect::<Vec<Value>>(),
        "memory": memory_to_json(&stats.memory),
        "io": {
            "device_reads": stats.io.device_reads,
            "device_read_bytes": stats.io.device_read_bytes,
            "reads": stats.io.reads,
            "read_bytes": stats.io.read_bytes,
            "writes": stats.io.writes,
            "write_bytes": stats.io.write_bytes,
            "syncs": stats.io.syncs,
            "open_files": stats.io.open_files,
            "direct_io": stats.io.direct_io,
            "reads_with": stats.io.reads_with,
            "reads_with_why": stats.io.reads_with_why,
            "reads_in_flight": stats.io.reads_in_flight,
            "reads_waiting": stats.io.reads_waiting,
            "requests_now": stats.io.requests_now,
            "merge_requests_now": stats.io.merge_requests_now,
        },
        "write": write_to_json(&stats.write),
        "space": space_to_json(&stats.space),
        "recovery": recovery_to_json(&stats.recovery),
        "snapshots": {
            "alive": stats.snapshots.alive,
            "generations": stats.snapshots.generations,
            "generation_bytes": stats.snapshots.generation_bytes,
        },
        "background": {
            "sealed": stats.background.sealed,
            "flushes": stats.background.flushes,
            "merges": stats.background.merges,
            "paced_bytes": stats.background.paced_bytes,
            "bytes_per_second": stats.background.bytes_per_second,
            "error": stats.background.error,
        },
        "batch_bytes_max": stats.batch_bytes_max,
    })
}

fn keyspace_to_json(keyspace: &trine::KeyspaceStats) -> Value {
    let pages = |pages: &trine::PageStats| {
        let (bytes, pinned_bytes, reason) = (pages.bytes, pages.pinned_bytes, pages.reason);
        json!({"bytes": bytes, "pinned_bytes": pinned_bytes, "reason": reason})
    };
    let level = |level: &trine::LevelStats| {
        json!({
            "level": level.level,
            "nodes": level.nodes,
            "runs": level.runs,
            "node_runs_max": level.node_runs_max,
            "tables": level.tables,
            "items": level.items,
            "tombstones": level.tombstones,
            "table_bytes": level.table_bytes,
            "filters": pages(&level.filters),
            "fences": pages(&level.fences),
            "models_bytes": level.models_bytes,
            "sketches_bytes": level.sketches_bytes,
        })
    };
    json!({
        "name": keyspace.name,
        "kind": kind(keyspace),
        "items": keyspace.items,
        "key_value_bytes": keyspace.key_value_bytes,
        "table_bytes": keyspace.table_bytes,
        "tables": keyspace.tables,
        "pressure": keyspace.pressure,
        "levels": keyspace.levels.iter().map(level).collect::<Vec<Value>>(),
    })
}

pub(crate) fn memory_to_json(memory: &trine::MemoryStats) -> Value {
    let role = |role: &trine::MemoryRole| {
        json!({
            "name": role.name,
            "bytes": role.bytes,
            "limit_bytes": role.limit_bytes,
            "waits": role.waits,
            "refusals": role.refusals,
        })
    };
    json!({
        "budget_bytes": memory.budget_bytes,
        "used_bytes": memory.used_bytes,
        "roles": memory.roles.iter().map(role).collect::<Vec<Value>>(),
    })
}

/// The cost of writes, with write amplification.
pub(crate) fn write_to_json(write: &trine::WriteStats) -> Value {
    json!({
        "commits": write.commits,
        "items": write.items,
        "key_value_bytes": write.key_value_bytes,
        "log_bytes": write.log_bytes,
        "flush_bytes": write.flush_bytes,
        "merge_read_bytes": write.merge_read_bytes,
        "merge_write_bytes": write.merge_write_bytes,
        "delayed_ns": write.delayed_ns,
        "pressure": write.pressure,
        "write_amplification_with_log": amplification(write, Log::Counted),
        "write_amplification_without_log": amplification(write, Log::Left),
    })
}

pub(crate) fn recovery_to_json(recovery: &trine::RecoveryStats) -> Value {
    json!({
        "replayed_items": recovery.replayed_items,
        "replayed_bytes": recovery.replayed_bytes,
        "discarded_bytes": recovery.discarded_bytes,
        "open_ns": recovery.open_ns,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;

    /// Space is shown by role, with the files that readers keep and the kinds of these readers.
    #[test]
    fn space_is_told_by_role_and_reader() {
        let directory = tempfile::tempdir().unwrap();
        let db = trine::Db::open(directory.path().join("store")).unwrap();
        let items = db.ordered("k").open().unwrap();
        items.put("a", "1").unwrap();
        db.flush().unwrap();
        let snapshot = db.snapshot();
        items.put("a", "2").unwrap();
        db.compact().unwrap();
        let stats = db.stats();
        let all = &to_json(&stats)["space"];
        let roles = space_by_role(&stats.space).map(|(name, ..)| all[name].as_u64().unwrap());
        assert_eq!(roles.iter().sum::<u64>(), all["total_bytes"].as_u64().unwrap());
        let file = &all["obsolete_files"][0];
        assert_eq!(file["readers"], json!([{"kind": "snapshot", "count": 1}]));
        let tables = |stats: &trine::Stats| tables(stats, &[None], Extent::Largest);
        let text: String =
            tables(&stats).iter().map(|(title, table)| format!("{title}\n{table}\n")).collect();
        assert!(text.contains(file["name"].as_str().unwrap()) && text.contains("1 snapshot"), "{text}");
        drop(snapshot);
        db.settle().unwrap();
        assert!(!tables(&db.stats()).iter().any(|(title, _)| *title == "Obsolete files"));
    }
}
