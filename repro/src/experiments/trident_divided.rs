//! The same load over increasing numbers of partitions (TridentKV, figure 23 and section 3.3).
//!
//! It shows memory outside the block cache, levels and write amplification with one tree and with 1 to 1,000
//! partitions. Items are put in a random order of all keys, so each write buffer has items of all partitions.

use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Chart, Series};
use trine_workload::text::{bytes, count, ratio};

use super::deletion::{Depth, Divided, Sizes, Way, memory_outside_cache};
use super::trident_store::MEMORY_BYTES_MIN;
use super::{Claim, Figure, Job, Picture, Verdict, percent, signed};

/// The numbers of partitions.
const PARTITIONS: [u32; 4] = [1, 10, 100, 1000];
/// Steps of the experiment: each number of partitions, and the keyspace without partitions.
pub(super) const STEPS: usize = PARTITIONS.len() + 1;
const VALUE_BYTES: usize = 1000;
/// How often each item is put: overwrites give merges items to drop.
const ROUNDS: u64 = 2;

/// A store after the load.
struct Loaded {
    name: String,
    /// 0 if the keyspace is not partitioned.
    partitions: u32,
    /// The peak of memory outside the block cache while the store was filled.
    peak_bytes: u64,
    /// The same memory at rest.
    memory_bytes: u64,
    depth: Depth,
    tables: u64,
    amplification: f64,
    load_seconds: f64,
}

pub(super) fn run(job: &mut Job, data_bytes: u64) -> Result<Vec<Figure>, Failure> {
    let mut all = Vec::new();
    for (way, partitions) in
        std::iter::once((Way::DeleteRange, 1)).chain(PARTITIONS.map(|count| (Way::DropPartition, count)))
    {
        let is_divided = way == Way::DropPartition;
        let name = if is_divided { count(u64::from(partitions)) } else { "one tree".to_string() };
        job.step(format!("partitions: {name}"));
        let items = (data_bytes / (16 + VALUE_BYTES as u64) / u64::from(partitions)).max(4);
        let sizes = Sizes {
            partitions,
            items,
            value_bytes: VALUE_BYTES,
            memory_bytes: MEMORY_BYTES_MIN,
            rounds: ROUNDS,
        };
        let store = Divided::fill(job, way, sizes)?;
        let stats = store.db.stats();
        let written = stats.write.flush_bytes + stats.write.merge_write_bytes;
        all.push(Loaded {
            name,
            partitions: if is_divided { partitions } else { 0 },
            peak_bytes: store.peak_bytes,
            memory_bytes: memory_outside_cache(&store.db),
            depth: store.depth()?,
            tables: store.items.stats()?.tables,
            amplification: ratio(written, stats.write.key_value_bytes),
            load_seconds: store.fill_seconds,
        });
        store.remove(job)?;
    }
    let [one_tree, divided @ ..] = &all[..] else { return Ok(Vec::new()) };
    Ok(vec![memory(one_tree, divided), writing(one_tree, divided)])
}

/// A figure with a point for each number of partitions, beside the keyspace of one tree.
fn by_partitions(
    (name, title): (&'static str, &str),
    (header, row): (&[&str], impl Fn(&Loaded) -> Vec<String>),
    (y, height): (Axis, impl Fn(&Loaded) -> f64),
    (one_tree, divided): (&Loaded, &[Loaded]),
    claims: Vec<Claim>,
) -> Figure {
    let line = |name: &str, height: &dyn Fn(&Loaded) -> f64| Series {
        name: name.to_string(),
        points: divided.iter().map(|one| (f64::from(one.partitions), height(one))).collect(),
    };
    let flat = height(one_tree);
    let series = vec![line("divided by prefix", &height), line("one tree", &|_| flat)];
    let chart = Chart { title: title.to_string(), x: Axis::logarithmic("partitions"), y, series };
    let rows = std::iter::once(one_tree).chain(divided);
    Figure {
        name,
        title: title.to_string(),
        header: std::iter::once(&"partitions").chain(header).map(ToString::to_string).collect(),
        rows: rows.map(|one| [vec![one.name.clone()], row(one)].concat()).collect(),
        picture: Picture::Lines(chart),
        claims,
    }
}

fn memory(one_tree: &Loaded, divided: &[Loaded]) -> Figure {
    let more = |one: &Loaded| percent(one.peak_bytes as f64, one_tree.peak_bytes as f64);
    let each = |one: &Loaded| {
        one.memory_bytes.saturating_sub(one_tree.memory_bytes) / u64::from(one.partitions.max(1))
    };
    let words = |one: &Loaded| format!("{} with {}", signed(more(one)), one.name);
    let most = divided.iter().map(more).fold(f64::MIN, f64::max);
    let claims = vec![Claim {
        paper: "memory grows by 6 % with the number of partitions and then no more".to_string(),
        ours: format!("at the peak {}", divided.iter().map(words).collect::<Vec<_>>().join(", ")),
        verdict: Verdict::of(most <= 6.0),
        reason: "no partition has a buffer of its own; tables and slices have structures".to_string(),
    }];
    let row = |one: &Loaded| {
        vec![bytes(one.peak_bytes), signed(more(one)), bytes(one.memory_bytes), bytes(each(one))]
    };
    by_partitions(
        ("trident-fig23", "Memory outside the block cache: peak while filling, and at rest"),
        (&["peak", "against one tree", "at rest", "more at rest, each partition"], row),
        (Axis::linear("bytes"), |one| one.peak_bytes as f64),
        (one_tree, divided),
        claims,
    )
}

fn writing(one_tree: &Loaded, divided: &[Loaded]) -> Figure {
    let words = |one: &Loaded| format!("{} {:.2}", one.name, one.amplification);
    let least = divided.iter().map(|one| one.amplification).fold(f64::MAX, f64::min);
    let levels = divided.iter().map(|one| one.depth.levels).min().unwrap_or(0);
    let claims = vec![Claim {
        paper: "partitions have fewer levels and a lower write amplification".to_string(),
        ours: std::iter::once(one_tree).chain(divided).map(words).collect::<Vec<_>>().join(", "),
        verdict: Verdict::of(least < one_tree.amplification && levels < one_tree.depth.levels),
        reason: "a tree that grows is merged by tiers, so its depth costs little; small merges are many"
            .to_string(),
    }];
    let row = |one: &Loaded| {
        vec![
            format!("{:.2}", one.amplification),
            one.depth.levels.to_string(),
            one.depth.runs.to_string(),
            count(one.tables),
            format!("{:.1} s", one.load_seconds),
        ]
    };
    by_partitions(
        ("trident-write-amplification", "Bytes of flushes and merges for each byte put, and depth at rest"),
        (&["write amplification", "levels", "runs", "tables", "load"], row),
        (Axis::linear("write amplification"), |one| one.amplification),
        (one_tree, divided),
        claims,
    )
}
