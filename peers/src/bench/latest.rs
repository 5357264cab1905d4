//! The page `docs/results/latest.md`: rates, gets by value size, settings and runs. Beside it `latest.csv`
//! has every figure of every row.

use std::collections::BTreeSet;

use super::bars;
use super::compare::{factor, rates_of, ratios, stores_of};
use super::device::moved;
use super::plan::Group;
use super::record::Latency;
use super::results::{Begun, Calibration, Failed, Line, Measured};
use super::rows::{
    FREED_S, Flight, KEYSPACES, SETTLE_S, SIZES, all_rows, over_one, partition_rows, peers_row, standard_rows,
};
use super::table::{HEAD, cells, count, median, rate, time};
use crate::engines::{Answer, told};
use crate::markdown::table;

const TITLE: &str = "\
# The last runs

Written by `peers results`; do not edit. [RESULTS](../RESULTS.md) has the bars and how they were measured,
[peers](../../peers/README.md#what-is-measured) the meaning of each row and column, [alone](alone.md) the
figures of Trine without peers. Rates are operations a second.
";

const FIGURES: &str = "\
Every row of every group, with latencies, reads, bytes written, processor time and memory: \
[latest.csv](latest.csv).
";

/// The whole page.
pub(super) fn page(lines: &[Line]) -> String {
    let parts = [
        TITLE.to_owned(),
        rates(lines),
        keyspaces(lines),
        partitions(lines),
        sizes(lines),
        FIGURES.to_owned(),
        stores(lines),
        runs(lines),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<String>>().join("\n")
}

fn rates(lines: &[Line]) -> String {
    let stores = stores_of(lines);
    let rows = standard_rows().filter_map(|row| {
        let over = |other| factor(&mut ratios(lines, (row, row), other));
        let told = [row.to_owned()].into_iter().chain(rates_of(lines, &stores, row)?);
        Some(told.chain([over(None), over(Some("rocksdb"))]).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["operations a second"];
    head.extend(&stores);
    head.extend(["Trine over the best peer", "over RocksDB"]);
    format!(
        "## Rates, medians\n\nA factor is the median of those of the runs, and need not be that of the \
         medians beside it.\n\n{}",
        table(&head, rows)
    )
}

/// Rows of many keyspaces, beside the rate of the same store with one; rows of one operation as times.
fn keyspaces(lines: &[Line]) -> String {
    let all: Vec<&Measured> =
        bars::measured(lines).filter(|one| KEYSPACES.contains(&one.row.as_str())).collect();
    let stores: Vec<&str> =
        stores_of(lines).into_iter().filter(|store| all.iter().any(|one| one.store == *store)).collect();
    let cell = |row: &str, store: &str| {
        let of_row = |row: &str| {
            all.iter().filter(|one| one.row == row && one.store == store).copied().collect::<Vec<_>>()
        };
        let (own, one) = (of_row(row), over_one(row).map(of_row).unwrap_or_default());
        let Some(rate) = rate(lines, row, store) else {
            return if own.is_empty() { "–" } else { "not done" }.to_owned();
        };
        if own.iter().any(|one| one.operations == 1) {
            return time((1e9 / rate) as u64);
        }
        let over = |own: &&Measured| {
            let one = one.iter().find(|one| one.run == own.run && one.is_done())?;
            own.is_done().then(|| own.rate() / one.rate())
        };
        let mut over: Vec<f64> = own.iter().filter_map(over).collect();
        let settle = own.iter().filter_map(|one| one.more.get(SETTLE_S).copied());
        let settle = median(&mut settle.collect::<Vec<f64>>());
        let settle = settle.map_or_else(String::new, |settle| format!("; settle {settle:.1} s"));
        if over.is_empty() {
            count(rate) + &settle
        } else {
            format!("{}, {}{settle}", count(rate), factor(&mut over))
        }
    };
    let rows = KEYSPACES.iter().filter(|row| all.iter().any(|one| one.row == **row));
    let rows: Vec<Vec<String>> = rows
        .map(|row| {
            let over = factor(&mut ratios(lines, (row, row), None));
            let cells = stores.iter().map(|store| cell(row, store));
            std::iter::once((*row).to_owned()).chain(cells).chain([over]).collect()
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["operations a second, or the time of one"];
    head.extend(&stores);
    head.push("Trine over the best peer");
    format!(
        "## Many keyspaces\n\nMedians; the factor in a cell is that of the rate to the store's own over one \
         keyspace. Why a row was not done\nstands in its group below.\n\n{}",
        table(&head, rows)
    )
}

/// Rows of partitions: rates of loads; for other rows the median and the 99th percentile of a call.
fn partitions(lines: &[Line]) -> String {
    let of = |row: &str, store: &str, figure: &dyn Fn(&Measured) -> Option<f64>| {
        let all = bars::measured(lines).filter(|one| one.row == row && one.store == store && one.is_done());
        median(&mut all.filter_map(figure).collect::<Vec<f64>>())
    };
    let cell = |row: &str, store: &str| {
        let rate_of = rate(lines, row, store)?;
        let call = |of_latency: fn(&Latency) -> u64| {
            of(row, store, &|one| one.latency_ns.as_ref().map(|latency| of_latency(latency) as f64))
        };
        if over_one(row).is_some() || row.contains(": load") {
            return Some(count(rate_of));
        }
        let (p50, p99) = (call(|latency| latency.p50)?, call(|latency| latency.p99)?);
        let freed = of(row, store, &|one| one.more.get(FREED_S).copied());
        let freed = freed.map_or_else(String::new, |seconds| format!("; freed in {seconds:.2} s"));
        Some(format!("{}, {}{freed}", time(p50 as u64), time(p99 as u64)))
    };
    let is_measured = |row: &&str| bars::measured(lines).any(|one| one.row == **row);
    let measured: Vec<&str> = partition_rows().filter(is_measured).collect();
    let has = |store: &&str| measured.iter().any(|row| cell(row, store).is_some());
    let stores: Vec<&str> = stores_of(lines).into_iter().filter(has).collect();
    let cells = |row: &&str| {
        let cells = stores.iter().map(|store| cell(row, store).unwrap_or_else(|| "–".to_owned()));
        std::iter::once((*row).to_owned()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = measured.iter().map(cells).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head: Vec<&str> =
        ["p50 and p99 of a call; loads: items a second"].into_iter().chain(stores.clone()).collect();
    format!("## Partitions\n\nMedians of the runs.\n\n{}", table(&head, rows))
}

/// Gets by value size, for each memory, size and way.
fn sizes(lines: &[Line]) -> String {
    let stores = stores_of(lines);
    let mut rows = Vec::new();
    for (cached, is_half) in [("5 %", false), ("50 %", true)] {
        let row = |one: &Flight| if is_half { one.half } else { one.cold };
        for size in &SIZES {
            for one in &size.gets {
                let Some(rates) = rates_of(lines, &stores, row(one)) else { continue };
                let over = factor(&mut ratios(lines, (row(one), peers_row(row(one))), None));
                let told = [format!("{} B", size.value_bytes), cached.to_owned(), one.told.to_owned()];
                rows.push(told.into_iter().chain(rates).chain([over]).collect::<Vec<String>>());
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["value", "memory", "gets a second"];
    head.extend(&stores);
    head.push("Trine over the best peer");
    format!(
        "## Value sizes\n\nMedians of random gets, with memory of 5 % and of 50 % of keys and \
         values, for all that a store keeps there.\nFutures, which no peer has, stand beside the peers' \
         keys together: as many requests in flight.\n\n{}",
        table(&head, rows)
    )
}

/// Every row of every store by group, as comma-separated values with a header line.
pub(super) fn all_figures(lines: &[Line]) -> Answer<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["group", "row"].into_iter().chain(HEAD).chain(["more"])).map_err(told)?;
    for group in Group::all().iter().map(|group| group.name()) {
        let of_group: Vec<&Measured> = bars::measured(lines).filter(|one| one.group == group).collect();
        for row in all_rows() {
            for store in stores_of(lines) {
                let all: Vec<&Measured> =
                    of_group.iter().copied().filter(|one| one.row == row && one.store == store).collect();
                if let Some(first) = all.first() {
                    let names = [group.clone(), row.to_owned()];
                    let figures = cells(store, &all).into_iter().chain([more(&all, first)]);
                    writer.write_record(names.into_iter().chain(figures)).map_err(told)?;
                }
            }
        }
    }
    String::from_utf8(writer.into_inner().map_err(told)?).map_err(told)
}

/// Figures of some rows only, and the remarks.
fn more(all: &[&Measured], first: &Measured) -> String {
    let names: BTreeSet<&String> = all.iter().flat_map(|one| one.more.keys()).collect();
    let mut told: Vec<String> = names
        .into_iter()
        .filter_map(|name| {
            let figures = all.iter().filter_map(|one| one.more.get(name).copied());
            let middle = median(&mut figures.collect::<Vec<f64>>())?;
            Some(format!("{} {middle:.3}", name.replace('_', " ")))
        })
        .collect();
    if first.operations_a_latency > 1 {
        told.push(format!("a latency is of {} together", first.operations_a_latency));
    }
    let remarks: BTreeSet<&String> = all.iter().flat_map(|one| &one.remarks).collect();
    told.extend(remarks.into_iter().cloned());
    told.join("; ")
}

fn stores(lines: &[Line]) -> String {
    let begun = lines.iter().filter_map(|line| if let Line::Begun(one) = line { Some(one) } else { None });
    let mut seen: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for store in begun.flat_map(|one| &one.stores) {
        if !seen.contains(&store.name.as_str()) {
            seen.push(&store.name);
            rows.push(vec![store.label.clone(), store.versions.clone(), store.settings.clone()]);
        }
    }
    let head = ["store", "versions", "settings; M is the total of memory"];
    format!("## How each is set\n\n{}", table(&head, rows))
}

/// The commands, with the range of the device's figures in all runs of each, before and after.
fn runs(lines: &[Line]) -> String {
    let mut text = "## The runs\n\n".to_owned();
    let mut sessions: Vec<Session<'_>> = Vec::new();
    for line in lines {
        if let Line::Begun(begun) = line {
            sessions.push(Session { begun, devices: Vec::new(), failed: Vec::new() });
        }
        let Some(session) = sessions.last_mut() else { continue };
        match line {
            Line::Device(one) => session.devices.push(one),
            Line::Failed(one) => session.failed.push(one),
            Line::Begun(_) | Line::Measured(_) | Line::Doing(_) => {}
        }
    }
    sessions.iter().for_each(|session| text += &session.told());
    text
}

/// One command of `bench`, with the calibrations and the failures of its runs.
struct Session<'a> {
    begun: &'a Begun,
    devices: Vec<&'a Calibration>,
    failed: Vec<&'a Failed>,
}

impl Session<'_> {
    fn told(&self) -> String {
        let Begun { date, machine, command, seed, scale, remarks, .. } = self.begun;
        let remarks: String = remarks.iter().map(|remark| format!(" {remark}.")).collect();
        let mut text = format!("- `{command}`, scale {scale}, seed {seed}, on {date}, {machine}.{remarks}\n");
        if !self.devices.is_empty() {
            text += &format!("  - the device: {}\n", self.device());
        }
        for one in &self.failed {
            text += &format!("  - **failed**: {}, {}, run {}: {}\n", one.store, one.group, one.run, one.why);
        }
        text
    }

    /// The range of each figure of the device.
    fn device(&self) -> String {
        let range = |of: &dyn Fn(&Calibration) -> Option<f64>, told: fn(f64) -> String| {
            let all = || self.devices.iter().filter_map(|one| of(one));
            let (low, high) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
            let (low, high) = (told(low), told(high));
            Some(if low == high { low } else { format!("{low} to {high}") })
        };
        let depths: BTreeSet<u64> =
            self.devices.iter().flat_map(|one| one.random_reads.keys().copied()).collect();
        let random = depths.into_iter().filter_map(|depth| {
            let reads = range(&|one| one.random_reads.get(&depth).copied(), count)?;
            Some(format!("{reads} at depth {depth}"))
        });
        let random = random.collect::<Vec<String>>().join(", ");
        let bytes = |bytes: f64| format!("{:.2}", bytes / 1e9);
        let read = range(&|one| Some(one.sequential_read_bytes), bytes).unwrap_or_default();
        let written = range(&|one| Some(one.sequential_write_bytes), bytes).unwrap_or_default();
        let syncs = range(&|one| Some(one.syncs), count).unwrap_or_default();
        let before = |after: &Calibration| {
            self.devices.iter().copied().find(|one| one.run == after.run && !one.is_after)
        };
        let pairs = self.devices.iter().filter(|one| one.is_after);
        let pairs: Vec<_> = pairs.filter_map(|after| Some((before(after)?, *after))).collect();
        let moves = pairs.iter().filter(|(before, after)| !moved(before, after).is_empty()).count();
        let moved = match moves {
            0 => String::new(),
            moves => format!("; **it moved** by more than a tenth in {moves} of {} runs", pairs.len()),
        };
        let is_cached = self.devices.iter().any(|one| !one.direct_io);
        let cached = if is_cached { "; through the page cache" } else { "" };
        format!(
            "random reads of 4 KiB a second {random}; {read} GB/s read and {written} GB/s written in order; \
             {syncs} overwrites of 4 KiB with fdatasync a second{cached}{moved}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::bars::OURS;
    use super::super::rows;
    use super::*;

    fn line(row: &str, store: &str, operations: u64) -> Line {
        let (row, store, group) = (row.to_owned(), store.to_owned(), "cached".to_owned());
        let measured =
            Measured { run: 1, row, store, group, operations, seconds: 1.0, ..Measured::default() };
        Line::Measured(Box::new(measured))
    }

    /// Rows by value size stand in a table of their own; futures stand beside the peers' multi-gets.
    #[test]
    fn sizes_have_a_table() {
        let [.., together, futures] = SIZES[0].gets;
        let lines = [
            line(rows::GET, OURS, 100),
            line(together.half, OURS, 300),
            line(together.half, "rocksdb", 150),
            line(futures.half, OURS, 600),
        ];
        let text = page(&lines);
        let (rates, sizes) = text.split_once("## Value sizes").expect("there is such a heading");
        assert!(rates.contains(rows::GET) && !rates.contains(together.half), "{rates}");
        assert!(sizes.contains("| 16 B | 50 % | 64 keys together | 300 | 150 | 2.00 × |"), "{sizes}");
        assert!(sizes.contains("| 16 B | 50 % | 64 futures, block_on | 600 | – | 4.00 × |"), "{sizes}");
        assert!(!page(&lines[..1]).contains("## Value sizes"));
    }

    /// Rows of many keyspaces stand beside the same store's row of one, and a row that was not done says so.
    #[test]
    fn keyspaces_have_a_table() {
        let failed = Failed { store: "fjall".into(), why: "ended after 9 s".into(), ..Failed::default() };
        let (one, many) = (rows::KEYSPACES_LOAD_ONE, rows::KEYSPACES_LOAD_MANY);
        let lines = [
            line(one, OURS, 500),
            line(many, OURS, 250),
            line(one, "fjall", 400),
            Line::Measured(Box::new(Measured { run: 1, ..Measured::not_done(many, &failed) })),
            line(rows::KEYSPACES_REOPEN_1_KB, OURS, 1),
        ];
        let text = page(&lines);
        assert!(text.contains(&format!("| {many} | 250, 0.50 × | not done | – |")), "{text}");
        assert!(text.contains(&format!("| {one} | 500 | 400 | 1.25 × |")), "{text}");
        assert!(text.contains("| 1.00 s | – | – |"), "{text}");
        assert!(!page(&[line(rows::GET, OURS, 100)]).contains("## Many keyspaces"));
    }

    /// Each command shows the device once, by its range over the runs, with the number of runs in which it
    /// moved.
    #[test]
    fn the_device_is_told_by_its_range() {
        let device = |run, is_after, syncs| {
            let random_reads = [(1, 100.0), (128, 1000.0)].into();
            Line::Device(Calibration {
                run,
                is_after,
                syncs,
                random_reads,
                direct_io: true,
                sequential_read_bytes: 2e9,
                ..Calibration::default()
            })
        };
        let begun = |command: &str| Line::Begun(Begun { command: command.to_owned(), ..Begun::default() });
        let lines = [
            begun("one"),
            device(1, false, 200.0),
            device(1, true, 205.0),
            device(2, false, 200.0),
            device(2, true, 300.0),
            begun("two"),
            device(3, false, 200.0),
            Line::Failed(Failed { why: "it died".into(), ..Failed::default() }),
        ];
        let text = page(&lines);
        let (one, two) = text.split_once("`two`").expect("both commands are told");
        assert!(
            one.contains("100 at depth 1, 1.0 K at depth 128; ") && one.contains("200 to 300 over"),
            "{one}"
        );
        assert!(one.contains("**it moved** by more than a tenth in 1 of 2 runs"), "{one}");
        assert!(
            two.contains("; 200 overwrites") && !two.contains("moved") && two.contains("it died"),
            "{two}"
        );
    }
}
