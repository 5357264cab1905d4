//! LSM-trie's experiments with puts: the cost of a load in a trie and in trees, beside the paper's figures.
//!
//! A load of random keys of 16 bytes with values of 100 bytes goes into a hashed keyspace, a leveled tree and
//! a tiered one. Tables and write buffers have 256 KiB. The paper's rival is LevelDB; here Trine's own
//! leveled tree replaces it. The spread of keys over nodes and the paper's limits are figures of
//! `lsmtrie_keys`.

use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Bars, Chart, Series};
use trine_workload::text::{bytes, count, nanoseconds, ratio};

use super::lsmtrie_keys;
use super::lsmtrie_load::{Load, PARTS, Store, Structure, TABLE_BYTES};
use super::throttle::{Limit, Throttle};
use super::{Claim, Figure, Job, Picture, Verdict, a_second};

/// Gives as many tables of 256 KiB as the paper's 2 billion items have of 32 MiB.
const ITEMS: u64 = 2_000_000_000 / 128;
/// Enough for a push.
const ITEMS_MIN: u64 = 60_000;
pub(super) const SCALE: f64 = 0.08;
/// The part of the items that is loaded on the slow device.
const SLOW_PART: u64 = 8;
/// The write rate of the slow device in bytes a second.
const SLOW_BYTES: u64 = 40_000_000;
/// The most tables of a node in the paper's code.
const PILE_MAX: u64 = 20;
/// A rate counts as kept if its end has at least this part of its beginning.
const KEPT: f64 = 0.7;

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let items = job.scaled(ITEMS, ITEMS_MIN);
    job.steps(2 * Structure::ALL.len() + lsmtrie_keys::STEPS);
    let mut findings = 0;
    let mut loads = Vec::new();
    for structure in Structure::ALL {
        job.step(format!("{}: {} items", structure.name(), count(items)));
        let store = Store::make(job, structure)?;
        loads.push(Load::run(job, &store, structure, items)?);
        if structure == Structure::Trie {
            findings = store.db.verify(|_| {})?.findings.len();
        }
        let place = store.close()?;
        job.workshop.clear(&place)?;
    }
    let slow = slow_loads(job, items / SLOW_PART)?;
    let mut figures = vec![lsmtrie_keys::spread(job)?, shape(&loads[0], findings)];
    figures.extend([merges(&loads), amplification(&loads), rates(&loads), slow_rates(&slow)]);
    figures.push(lsmtrie_keys::limits(job)?);
    Ok(figures)
}

/// Loads on a throttled device, or the reason why it cannot be throttled.
fn slow_loads(job: &mut Job, items: u64) -> Result<Result<Vec<Load>, String>, Failure> {
    let mut loads = Vec::new();
    for structure in Structure::ALL {
        job.step(format!("{}: {} items on a slow device", structure.name(), count(items)));
        let store = Store::make(job, structure)?;
        let throttle = match Throttle::of(&store.place, Limit::WriteBytesASecond(SLOW_BYTES)) {
            Ok(throttle) => throttle,
            Err(why) => return Ok(Err(why)),
        };
        loads.push(Load::run(job, &store, structure, items)?);
        drop(throttle);
        let place = store.close()?;
        job.workshop.clear(&place)?;
    }
    Ok(Ok(loads))
}

/// The trie by height, and its piles.
fn shape(load: &Load, findings: usize) -> Figure {
    let levels = &load.keyspace().levels;
    let row = |level: &trine::LevelStats| {
        vec![
            level.level.to_string(),
            count(level.nodes),
            count(level.tables),
            format!("{:.1}", level.table_bytes as f64 / TABLE_BYTES as f64 / level.nodes.max(1) as f64),
            count(level.node_runs_max),
            count(level.items),
            bytes(level.table_bytes),
        ]
    };
    let [root, below] = load.longest_piles;
    let is_eightfold = levels.iter().all(|level| level.nodes <= 1 << (3 * level.level));
    let claims = vec![
        Claim {
            paper:
                "nodes of one depth are a level, each with eight children; its tables have keys of the node \
                    alone"
                    .to_string(),
            ours: format!(
                "{} heights; verify, which compares keys with nodes, finds {findings} faults",
                load.depth()
            ),
            verdict: Verdict::of(is_eightfold && findings == 0),
            reason: "a node begins to exist with its first table, so the last height may have fewer nodes"
                .to_string(),
        },
        Claim {
            paper: "tables grow linearly at each node: 8 sub-levels, 20 tables at most".to_string(),
            ours: format!("the longest piles that were seen have {root} runs in the root, {below} below it"),
            verdict: Verdict::of(root.max(below) <= PILE_MAX),
            reason:
                "a node is due at 7.2 to 12.8 tables by its bytes, and at more than 16 runs; writers are \
                     slowed from 12 runs of the root on and wait at 24"
                    .to_string(),
        },
    ];
    let values =
        |value: fn(&trine::LevelStats) -> u64| levels.iter().map(|one| Some(value(one) as f64)).collect();
    let bars = Bars {
        title: "The trie after the load".to_string(),
        y: Axis::logarithmic("number"),
        groups: levels.iter().map(|level| format!("height {}", level.level)).collect(),
        series: vec![
            ("nodes".to_string(), values(|level| level.nodes)),
            ("tables".to_string(), values(|level| level.tables)),
            ("longest pile".to_string(), values(|level| level.node_runs_max)),
        ],
    };
    let header = ["height", "nodes", "tables", "full tables a node", "longest pile", "items", "bytes"];
    Figure {
        name: "lsmtrie-shape",
        title: format!("The trie after {} items, settled", count(load.keyspace().items)),
        header: header.map(str::to_string).to_vec(),
        rows: levels.iter().map(row).collect(),
        picture: Picture::Bars(bars),
        claims,
    }
}

/// Bars for each structure.
fn by_structure(title: &str, y: &str, loads: &[Load], series: Vec<(String, Vec<Option<f64>>)>) -> Picture {
    let groups = loads.iter().map(|load| load.structure.name().to_string()).collect();
    Picture::Bars(Bars { title: title.to_string(), y: Axis::linear(y), groups, series })
}

/// The tables read and written by a merge.
fn merges(loads: &[Load]) -> Figure {
    let tables = |bytes: u64, load: &Load| ratio(bytes, load.stats.background.merges) / TABLE_BYTES as f64;
    let read = |load: &Load| tables(load.stats.write.merge_read_bytes, load);
    let written = |load: &Load| tables(load.stats.write.merge_write_bytes, load);
    let row = |load: &Load| {
        vec![
            load.structure.name().to_string(),
            count(load.stats.background.merges),
            format!("{:.1}", read(load)),
            format!("{:.1}", written(load)),
            format!("{:.2}", load.written_per_descent()),
        ]
    };
    let (trie, leveled) = (&loads[0], &loads[1]);
    let claims = vec![
        Claim {
            paper: "a compaction of a trie reads 8 tables, writes 8 and adds 8 to the lower level"
                .to_string(),
            ours: format!(
                "{:.1} read, {:.1} written; {:.2} written for each that goes one level down",
                read(trie),
                written(trie),
                trie.written_per_descent()
            ),
            verdict: Verdict::of(trie.written_per_descent() < 1.2),
            reason: "no run of a child is rewritten; a pile of small runs may be merged in its node"
                .to_string(),
        },
        Claim {
            paper: "LevelDB's (1:10) reads 11 tables, writes 11 and adds 1".to_string(),
            ours: format!("{:.2} written for each that goes one level down", leveled.written_per_descent()),
            verdict: Verdict::of(leveled.written_per_descent() > 2.0 * trie.written_per_descent()),
            reason:
                "11 is the worst case of a full level; this store merges whole runs of the level above, into \
                     levels that are half full on average"
                    .to_string(),
        },
    ];
    let values = |value: &dyn Fn(&Load) -> f64| loads.iter().map(|load| Some(value(load))).collect();
    let series = vec![
        ("read by a merge".to_string(), values(&read)),
        ("written by a merge".to_string(), values(&written)),
        ("written for one taken down".to_string(), values(&Load::written_per_descent)),
    ];
    let title = "Tables of 256 KiB that merges read and write";
    let header =
        ["structure", "merges", "tables read by one", "written by one", "written for one taken down"];
    Figure {
        name: "lsmtrie-merges",
        title: title.to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: loads.iter().map(row).collect(),
        picture: by_structure(title, "tables", loads, series),
        claims,
    }
}

/// A chart over the parts of loads.
fn over_parts(
    title: &str,
    y: Axis,
    loads: &[Load],
    value: impl Fn(&super::lsmtrie_load::Part) -> f64,
) -> Picture {
    let series = |load: &Load| Series {
        name: load.structure.name().to_string(),
        points: (1..).zip(&load.parts).map(|(part, one)| (f64::from(part), value(one))).collect(),
    };
    let series = loads.iter().map(series).collect();
    Picture::Lines(Chart { title: title.to_string(), x: Axis::linear("tenth of the load"), y, series })
}

/// A table with a row for each part and a column for each load.
fn rows_of_parts(
    loads: &[Load],
    cell: impl Fn(&super::lsmtrie_load::Part) -> String,
) -> (Vec<String>, Vec<Vec<String>>) {
    let mut header = vec!["tenth".to_string()];
    header.extend(loads.iter().map(|load| load.structure.name().to_string()));
    let row = |part: usize| {
        let mut row = vec![(part + 1).to_string()];
        row.extend(loads.iter().map(|load| cell(&load.parts[part])));
        row
    };
    (header, (0..PARTS as usize).map(row).collect())
}

/// Bytes written to tables for each byte put.
fn amplification(loads: &[Load]) -> Figure {
    let (header, mut rows) = rows_of_parts(loads, |part| format!("{:.2}", part.amplification));
    let mut settled = vec!["settled".to_string()];
    settled.extend(loads.iter().map(|load| format!("{:.2}", load.amplification())));
    let mut levels = vec!["levels".to_string()];
    levels.extend(loads.iter().map(|load| load.depth().to_string()));
    rows.extend([settled, levels]);
    let (trie, leveled) = (&loads[0], &loads[1]);
    let (own, rival) = (trie.amplification(), leveled.amplification());
    let claims = vec![
        Claim {
            paper: "5 bytes written for each in a trie of 5 levels: once a level".to_string(),
            ours: format!("{own:.2} in {} levels", trie.depth()),
            verdict: Verdict::of(own <= trie.depth() as f64 + 0.2),
            reason: "tables have fences, filters and a place of 11 bytes before each key, all counted"
                .to_string(),
        },
        Claim {
            paper: "45 in LevelDB's 5 levels, 9 times as much".to_string(),
            ours: format!(
                "{rival:.2} in the {} levels of the leveled tree, {:.1} times as much",
                leveled.depth(),
                rival / own
            ),
            verdict: Verdict::of(rival > 1.5 * own),
            reason:
                "the direction is what is compared: 45 is the sum of worst cases, and grows with the levels"
                    .to_string(),
        },
    ];
    let title = "Bytes written to tables for each byte put, without the log";
    Figure {
        name: "lsmtrie-write",
        title: title.to_string(),
        header,
        rows,
        picture: over_parts(title, Axis::linear("bytes a byte"), loads, |part| part.amplification),
        claims,
    }
}

/// The rate at the end of each load relative to its beginning.
fn ends_of(loads: &[Load]) -> String {
    let one = |load: &Load| {
        let (first, last) = load.ends();
        format!("{} {:.0} %", load.structure.name(), 100.0 * last / first.max(1e-9))
    };
    format!("the last tenth has of the first: {}", loads.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn is_kept(load: &Load) -> bool {
    let (first, last) = load.ends();
    last >= KEPT * first
}

/// Puts a second by tenth of the load.
fn rates(loads: &[Load]) -> Figure {
    let (header, mut rows) = rows_of_parts(loads, |part| a_second(part.rate));
    let mut longest = vec!["longest put".to_string()];
    longest.extend(loads.iter().map(|load| nanoseconds(load.longest_put.as_nanos() as u64)));
    let mut settle = vec!["then to settle".to_string()];
    settle.extend(loads.iter().map(|load| nanoseconds(load.settle.as_nanos() as u64)));
    rows.extend([longest, settle]);
    let claims = vec![Claim {
        paper: "the rate of puts is kept while the store grows; LevelDB falls to 18 K a second, 2 MB/s"
            .to_string(),
        ours: ends_of(loads),
        verdict: Verdict::of(is_kept(&loads[0])),
        reason: "the verdict is about the trie: 70 % of the first tenth; trees of this size are not deep yet"
            .to_string(),
    }];
    let title = "Puts a second of one thread, by tenth of the load";
    Figure {
        name: "lsmtrie-rate",
        title: title.to_string(),
        header,
        rows,
        picture: over_parts(title, Axis::linear("puts a second"), loads, |part| part.rate),
        claims,
    }
}

/// The same on a throttled device.
fn slow_rates(slow: &Result<Vec<Load>, String>) -> Figure {
    let title = format!("Puts a second on a device held to {} a second written", bytes(SLOW_BYTES));
    let claim = |ours: String, verdict: Verdict, reason: String| Claim {
        paper: "on a hard disk a trie takes 2 to 3 times the puts of the others, at an even rate".to_string(),
        ours,
        verdict,
        reason,
    };
    let name = "lsmtrie-slow";
    let loads = match slow {
        Ok(loads) => loads,
        Err(why) => {
            let claims = vec![claim("nothing".to_string(), Verdict::Untestable, why.clone())];
            let rows = vec![vec![why.clone()]];
            let bars = Bars {
                title: title.clone(),
                y: Axis::linear("puts a second"),
                groups: Structure::ALL.map(|one| one.name().to_string()).to_vec(),
                series: vec![("last tenth".to_string(), vec![None; Structure::ALL.len()])],
            };
            let header = vec!["not measured".to_string()];
            return Figure { name, title, header, rows, picture: Picture::Bars(bars), claims };
        }
    };
    let (header, rows) = rows_of_parts(loads, |part| a_second(part.rate));
    let gain = loads[0].ends().1 / loads[1].ends().1.max(1e-9);
    let ours = format!("{gain:.1} times the leveled tree's in the last tenth; {}", ends_of(loads));
    let reason = "syncs and direct writes are held down, the log is not; what counts is what each item costs \
                  the device";
    let claims = vec![claim(ours, Verdict::of(gain > 1.2), reason.to_string())];
    let picture = over_parts(&title, Axis::linear("puts a second"), loads, |part| part.rate);
    Figure { name, title, header, rows, picture, claims }
}
