//! The command run: repeats a paper's experiment and compares its claims with measurements here.
//!
//! It is not a benchmark of the store against rivals. Each experiment is a function from a [`Job`] to
//! [`Figure`]s; a figure has measured rows, a chart, and claims with verdicts. The papers used other
//! machines, so a verdict is about a claim's direction, or its factor if the paper gives one; absolute
//! numbers are shown side by side.

mod deletion;
mod drizard;
mod drizard_parts;
mod lemur;
mod lsmtrie;
mod lsmtrie_cold;
mod lsmtrie_htable;
mod lsmtrie_keys;
mod lsmtrie_load;
mod lsmtrie_metadata;
mod lsmtrie_read;
mod objects;
mod parallel_figures;
mod parallel_load;
mod parallel_search;
mod parallel_threads;
mod report;
mod scheduler_load;
mod throttle;
mod trident;
mod trident_ablation;
mod trident_delete;
mod trident_divided;
mod trident_learned;
mod trident_load;
mod trident_objects;
mod trident_scheduler;
mod trident_store;
mod trident_write;
mod trident_ycsb;
mod windows;

use std::time::Instant;

use serde_json::json;
use trine_workload::failure::Failure;
use trine_workload::plot::{Bars, Chart};
use trine_workload::progress;
use trine_workload::screen::{Screen, table};

use crate::arguments::{self, Global};
use crate::lab::{Subject, Workshop, search};

/// An experiment, with the scale at which it takes less than ten minutes.
struct Experiment {
    name: &'static str,
    figures: &'static str,
    shows: &'static str,
    scale: f64,
    run: fn(&mut Job) -> Result<Vec<Figure>, Failure>,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "drizard-architectures",
        figures: "Drizard, figures 3 and 4",
        shows: "sizes of the memory component and ratios, reads and updates under three skews",
        scale: 1.0,
        run: drizard::architectures,
    },
    Experiment {
        name: "drizard-bloom",
        figures: "Drizard, figure 5",
        shows: "a Bloom filter of the whole store: reads of which half are missing, bits and hashes",
        scale: 0.1,
        run: drizard_parts::bloom,
    },
    Experiment {
        name: "drizard-bounds",
        figures: "Drizard, figure 6",
        shows: "a check of each component's smallest and largest key, sorted and unsorted loads",
        scale: 1.0,
        run: drizard_parts::bounds,
    },
    Experiment {
        name: "drizard-parallel",
        figures: "Drizard, section 2.6",
        shows: "several components looked into at a time",
        scale: 1.0,
        run: drizard_parts::parallel,
    },
    Experiment {
        name: "lemur-levels",
        figures: "Lemur, figures 1 and 2",
        shows: "size of the memory level and ratio, leveling and appending",
        scale: 1.0,
        run: lemur::levels,
    },
    Experiment {
        name: "lemur-bloom",
        figures: "Lemur, figures 3 and 4",
        shows: "bits and hashes of each level's Bloom filter",
        scale: 1.0,
        run: lemur::bloom,
    },
    Experiment {
        name: "lsmtrie-put",
        figures: "LSM-trie, its trie, compactions and puts",
        shows: "a load into a trie and into trees: nodes, piles, what merges write, the rate of puts",
        scale: lsmtrie::SCALE,
        run: lsmtrie::run,
    },
    Experiment {
        name: "lsmtrie-htable",
        figures: "LSM-trie, its HTable and HashMarks",
        shows: "buckets that overflow: marks, second reads and mixes of sizes, beside tables sorted by hash",
        scale: lsmtrie_htable::SCALE,
        run: lsmtrie_htable::run,
    },
    Experiment {
        name: "lsmtrie-read",
        figures: "LSM-trie, its reads with 4 GB of memory",
        shows: "device reads of a get while a store grows and at rest, with memory of 0.4 % and less",
        scale: lsmtrie_read::SCALE,
        run: lsmtrie_read::run,
    },
    Experiment {
        name: "lsmtrie-metadata",
        figures: "LSM-trie, its arithmetic of metadata",
        shows: "bytes of filters, fences and structures an item, and the time from open to the full rate",
        scale: lsmtrie_metadata::SCALE,
        run: lsmtrie_metadata::run,
    },
    Experiment {
        name: "parallel-search",
        figures: "Parallel search, figures 2, 3 and 5 to 8, tables 3 to 5",
        shows: "gets that search one node after another or several at once, and two threads a get",
        scale: parallel_search::SCALE,
        run: parallel_search::run,
    },
    Experiment {
        name: "trident-threads",
        figures: "TridentKV, figure 18",
        shows: "threads that wait for their gets, and threads with many in flight",
        scale: trident::SCALE,
        run: trident::threads,
    },
    Experiment {
        name: "trident-read",
        figures: "TridentKV, figures 2, 10, 11 and 13",
        shows: "value sizes, scans, slower devices, the steps of a get",
        scale: trident::SCALE,
        run: trident::read,
    },
    Experiment {
        name: "trident-delete",
        figures: "TridentKV, figures 4, 21, 22 and 23",
        shows: "partitions deleted one by one: reads, space; memory and write amplification by partitions",
        scale: trident_delete::SCALE,
        run: trident_delete::run,
    },
    Experiment {
        name: "trident-objectstore",
        figures: "TridentKV, figure 24, as a trace",
        shows: "an object store's metadata: placement groups that are filled, read and migrated away",
        scale: trident_delete::SCALE,
        run: trident_objects::run,
    },
    Experiment {
        name: "trident-scheduler",
        figures: "TridentKV, section 3.3 and figure 23",
        shows: "the partition scheduler beside slices: flushes, memory, logs pinned, the index of level 0",
        scale: trident_scheduler::SCALE,
        run: trident_scheduler::run,
    },
    Experiment {
        name: "trident-learned",
        figures: "TridentKV, section 3.2",
        shows: "learned index pages beside fences and strings: bytes a block, lookups, errors of models",
        scale: trident_learned::SCALE,
        run: trident_learned::run,
    },
    Experiment {
        name: "trident-write",
        figures: "TridentKV, figures 12 and 19",
        shows: "loads with index pages of each kind: value sizes, orders, writers and sets of keys",
        scale: trident_write::SCALE,
        run: trident_write::run,
    },
    Experiment {
        name: "trident-ycsb",
        figures: "TridentKV, figure 14",
        shows: "YCSB's load and A to F: gets that wait or not, index pages of fences or models",
        scale: trident_ycsb::SCALE,
        run: trident_ycsb::run,
    },
    Experiment {
        name: "trident-ablation",
        figures: "TridentKV, figure 15",
        shows: "asynchronous reads, learned index and partitions one by one, small and large cache",
        scale: trident_ablation::SCALE,
        run: trident_ablation::run,
    },
];

/// Experiments that take the option `--partitions`.
const OF_PARTITIONS: [&str; 2] = ["trident-delete", "trident-objectstore"];

/// The parameters of an experiment.
struct Job {
    /// The size relative to the paper's, which is 1.
    scale: f64,
    seed: u64,
    /// The number of partitions in the experiments on deletion, if given.
    partitions: Option<u32>,
    workshop: Workshop,
    bar: indicatif::ProgressBar,
}

impl Job {
    /// A count of the paper at this scale, at least `least`.
    fn scaled(&self, count: u64, least: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(least)
    }

    /// Announces the number of steps.
    fn steps(&self, count: usize) {
        self.bar.set_length(count as u64);
    }

    fn step(&self, what: String) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }
}

/// The verdict on a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Agrees,
    Differs,
    Untestable,
}

impl Verdict {
    fn of(agrees: bool) -> Verdict {
        if agrees { Verdict::Agrees } else { Verdict::Differs }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
            Verdict::Untestable => "cannot be tested here",
        }
    }
}

/// A claim of the paper beside the measured result.
struct Claim {
    paper: String,
    ours: String,
    verdict: Verdict,
    reason: String,
}

/// A chart.
enum Picture {
    Lines(Chart),
    Bars(Bars),
}

/// One figure of the paper, measured again.
struct Figure {
    /// The name of the files, without extension.
    name: &'static str,
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    picture: Picture,
    claims: Vec<Claim>,
}

pub(crate) fn run(global: &Global, arguments: arguments::Run) -> Result<(), Failure> {
    let Some(name) = &arguments.name else { return list(global) };
    let Some(experiment) = EXPERIMENTS.iter().find(|one| one.name == name) else {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|one| one.name).collect();
        return Err(Failure::Usage(format!(
            "there is no experiment {name:?}; there are {}",
            names.join(", ")
        )));
    };
    if arguments.partitions.is_some() && !OF_PARTITIONS.contains(&experiment.name) {
        let names = OF_PARTITIONS.join(" and ");
        return Err(Failure::Usage(format!("{name} has no partitions to set; --partitions is of {names}")));
    }
    let mut job = Job {
        scale: arguments.scale.unwrap_or(experiment.scale),
        seed: arguments.seed,
        partitions: arguments.partitions,
        workshop: Workshop::make(arguments.dir.as_deref())?,
        bar: progress::over_items(1, experiment.name),
    };
    let started = Instant::now();
    let figures = (experiment.run)(&mut job)?;
    job.bar.finish_and_clear();
    if let Some(out) = &arguments.out {
        report::write_pictures(&figures, out)?;
    }
    let heading = report::Heading {
        name: experiment.name,
        figures: experiment.figures,
        scale: job.scale,
        seconds: started.elapsed().as_secs_f64(),
    };
    if global.json { report::print_json(&heading, &figures) } else { report::print(&heading, &figures) }
}

fn list(global: &Global) -> Result<(), Failure> {
    let mut screen = Screen::new();
    if global.json {
        let one = |one: &Experiment| {
            let (name, figures, shows, scale) = (one.name, one.figures, one.shows, one.scale);
            json!({"name": name, "figures": figures, "shows": shows, "scale": scale})
        };
        screen.json(&EXPERIMENTS.iter().map(one).collect())?;
    } else {
        let mut rows = table(["experiment", "of", "shows", "scale"]);
        for one in EXPERIMENTS {
            rows.add_row([one.name, one.figures, one.shows, &one.scale.to_string()]);
        }
        screen.line(rows)?;
    }
    screen.finish()
}

/// Rounds of reads, of which the fastest counts, because it was disturbed least.
const ROUNDS: usize = 5;

/// The rate of reads of present and absent keys, and the number found.
fn read_rounds(subject: &Subject, keys: &[u32]) -> Result<(f64, u64), Failure> {
    let (mut fastest, mut found) = (0.0_f64, 0);
    for round in keys.chunks(keys.len().div_ceil(ROUNDS).max(1)) {
        let (rate, there) = search(subject, round.iter().copied())?;
        fastest = fastest.max(rate);
        found += there;
    }
    Ok((fastest, found))
}

/// The median of some values, the upper one of two; 0 of none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The increase from `old` to `new`, in percent.
fn percent(new: f64, old: f64) -> f64 {
    (new / old - 1.0) * 100.0
}

/// The percentage with its sign.
fn signed(percent: f64) -> String {
    format!("{percent:+.0} %")
}

fn a_second(rate: f64) -> String {
    trine_workload::text::count(rate as u64)
}
