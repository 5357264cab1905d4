//! TridentKV's learned index blocks: index bytes for each data block and time of a lookup, beside fences and
//! strings.
//!
//! Each family of keys is laid out twice. Blocks cut by size have fence pages and a string index block as
//! indexes; blocks cut by models have learned pages. Every item is then looked up in every index, and its
//! block compared with the layout. All data is in memory, in one thread. The families are synthetic.

use std::hint::black_box;
use std::time::Instant;

use trine::lab::{BlockIndexKind, BlockIndexOptions, BlockIndexStats, BlockIndexes, KeyFamily};
use trine::lab::{TwoLayerStats, two_layer_stats};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Bars};
use trine_workload::text::{count, ratio};

use super::{Claim, Figure, Job, Picture, Verdict};
use crate::lab::stop_if_asked;

pub(super) const SCALE: f64 = 1.0;
/// Bytes of keys and values of a family: a table of the store's default size.
const TABLE_BYTES: u64 = 64 << 20;
const TABLE_BYTES_MIN: u64 = 1 << 20;
/// The approximate bytes of a key and a value of 100 bytes.
const ITEM_BYTES: u64 = 120;
/// Lookups of a round, and rounds. The fastest round counts.
const LOOKUPS: usize = 100_000;
const ROUNDS: usize = 5;
/// Allowed errors of models, in 32nds of a block.
const ERRORS: [u16; 5] = [4, 8, 12, 16, 24];
/// Keys for training the paper's model. Its greedy grouping takes quadratic time.
const TWO_LAYER_KEYS: u64 = 20_000;
const KINDS: [BlockIndexKind; 3] = [BlockIndexKind::Strings, BlockIndexKind::Fences, BlockIndexKind::Learned];
/// The targets of learned pages: their bytes over those of strings on seven families, over those of fences on
/// five.
const OF_STRINGS_MAX: f64 = 0.4;
const OF_FENCES_MAX: f64 = 0.65;

/// The indexes of one family.
struct Trial {
    family: KeyFamily,
    items: u64,
    /// By kind.
    stats: [BlockIndexStats; 3],
    nanoseconds: [f64; 3],
    build_nanoseconds: f64,
    two_layers: [TwoLayerStats; 2],
}

impl Trial {
    fn run(job: &mut Job, family: KeyFamily) -> Result<Trial, Failure> {
        job.step(family.name().to_string());
        let items = job.scaled(TABLE_BYTES, TABLE_BYTES_MIN) / ITEM_BYTES;
        let keys = family.keys(items as usize, job.seed);
        stop_if_asked()?;
        let started = Instant::now();
        let indexes = BlockIndexes::build(&keys, BlockIndexOptions::default());
        let build_nanoseconds = started.elapsed().as_nanos() as f64 / items as f64;
        check(&indexes, &keys)?;
        stop_if_asked()?;
        let nanoseconds = KINDS.map(|kind| time(&indexes, kind, &keys, job.seed));
        let some = family.keys(items.min(TWO_LAYER_KEYS) as usize, job.seed);
        let two_layers =
            [false, true].map(|is_truncated| two_layer_stats(&some, ITEM_BYTES as u32, is_truncated));
        stop_if_asked()?;
        let stats = KINDS.map(|kind| indexes.stats(kind));
        Ok(Trial { family, items, stats, nanoseconds, build_nanoseconds, two_layers })
    }

    /// Index bytes of a kind for each block cut by size.
    fn bytes_a_block(&self, kind: usize) -> f64 {
        ratio(self.stats[kind].index_bytes, self.stats[0].blocks)
    }

    fn of_strings(&self) -> f64 {
        ratio(self.stats[2].index_bytes, self.stats[0].index_bytes)
    }

    fn of_fences(&self) -> f64 {
        ratio(self.stats[2].index_bytes, self.stats[1].index_bytes)
    }

    fn space(&self) -> f64 {
        ratio(self.stats[2].data_bytes, self.stats[1].data_bytes)
    }
}

/// Looks up every item in every index.
fn check(indexes: &BlockIndexes, keys: &[Vec<u8>]) -> Result<(), Failure> {
    for kind in KINDS {
        for (number, key) in keys.iter().enumerate() {
            if indexes.find(kind, key) != Some(indexes.block_of(kind, number)) {
                return Err(Failure::Other(format!("{kind:?}: item {number} is in another block")));
            }
        }
    }
    Ok(())
}

/// Nanoseconds of a lookup of a random item.
fn time(indexes: &BlockIndexes, kind: BlockIndexKind, keys: &[Vec<u8>], seed: u64) -> f64 {
    let mut dice = Dice::new(seed);
    // The keys are stored in order of use, so that fetching them is not part of a lookup.
    let chosen: Vec<Vec<u8>> =
        (0..LOOKUPS).map(|_| keys[dice.below(keys.len() as u64) as usize].clone()).collect();
    let round = || {
        let started = Instant::now();
        for key in &chosen {
            black_box(indexes.find(kind, black_box(key)));
        }
        started.elapsed().as_nanos() as f64 / LOOKUPS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// A family with one allowed error of models.
struct Swept {
    family: KeyFamily,
    error: u16,
    stats: BlockIndexStats,
    fences: BlockIndexStats,
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    job.steps(KeyFamily::ALL.len() * (1 + ERRORS.len()));
    let mut trials = Vec::new();
    for family in KeyFamily::ALL {
        trials.push(Trial::run(job, family)?);
    }
    let mut swept = Vec::new();
    for family in KeyFamily::ALL {
        let items = job.scaled(TABLE_BYTES / 4, TABLE_BYTES_MIN) / ITEM_BYTES;
        let keys = family.keys(items as usize, job.seed);
        for error in ERRORS {
            job.step(format!("{}, error {error}", family.name()));
            let options = BlockIndexOptions { model_error: error, ..BlockIndexOptions::default() };
            let indexes = BlockIndexes::build(&keys, options);
            let [stats, fences] =
                [BlockIndexKind::Learned, BlockIndexKind::Fences].map(|kind| indexes.stats(kind));
            swept.push(Swept { family, error, stats, fences });
            stop_if_asked()?;
        }
    }
    Ok(vec![sizes(&trials), lookups(&trials), errors(&swept), two_layers(&trials)])
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn names(trials: &[Trial]) -> Vec<String> {
    trials.iter().map(|trial| trial.family.name().to_string()).collect()
}

fn sizes(trials: &[Trial]) -> Figure {
    let row = |trial: &Trial| {
        let learned = &trial.stats[2];
        let [ties, long, empty, no_gain] = learned.refused;
        vec![
            trial.family.name().to_string(),
            count(trial.items),
            count(trial.stats[0].blocks),
            format!("{:.2}", trial.bytes_a_block(0)),
            format!("{:.2}", trial.bytes_a_block(1)),
            format!("{:.2}", trial.bytes_a_block(2)),
            format!("{:.3}", trial.of_strings()),
            format!("{:.3}", trial.of_fences()),
            format!("{} of {}", learned.learned_pages, learned.pages),
            format!("{:.3}", ratio(learned.knots, learned.learned_blocks)),
            format!("{:?}", learned.codes),
            learned.positions_max.to_string(),
            format!("{:.3}", trial.space()),
            learned.block_bytes_max.to_string(),
            format!("{}", learned.empty_blocks),
            format!("{ties}, {long}, {empty}, {no_gain}"),
        ]
    };
    let series = |name: &str, kind: usize| {
        let values = trials.iter().map(|trial| Some(trial.bytes_a_block(kind))).collect();
        (name.to_string(), values)
    };
    let title = "Index bytes a data block, by family of keys".to_string();
    Figure {
        name: "trident-index-bytes",
        title: title.clone(),
        header: header(&[
            "keys",
            "items",
            "blocks",
            "strings",
            "fences",
            "learned",
            "of strings",
            "of fences",
            "learned pages",
            "knots a block",
            "codes",
            "positions",
            "space",
            "longest block",
            "empty blocks",
            "refused",
        ]),
        rows: trials.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title,
            y: Axis::linear("bytes a data block"),
            groups: names(trials),
            series: vec![series("strings", 0), series("fences", 1), series("learned", 2)],
        }),
        claims: claims_of_sizes(trials),
    }
}

fn claims_of_sizes(trials: &[Trial]) -> Vec<Claim> {
    let few = trials.iter().filter(|trial| trial.of_strings() <= OF_STRINGS_MAX).count();
    let few_of_fences = trials.iter().filter(|trial| trial.of_fences() <= OF_FENCES_MAX).count();
    let range = |value: fn(&Trial) -> f64| {
        let values: Vec<f64> = trials.iter().map(value).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (least, values.iter().copied().fold(0.0, f64::max))
    };
    let (least, most) = range(Trial::of_strings);
    let (space_least, space_most) = range(Trial::space);
    vec![
        Claim {
            paper: "a learned index block has less than 8 KB, where an index block has 1 MB".to_string(),
            ours: format!(
                "{least:.2} to {most:.2} of a string index block; at most {OF_STRINGS_MAX} on {few} of ten \
                 families, at most {OF_FENCES_MAX} of fences on {few_of_fences}"
            ),
            verdict: Verdict::of(most <= 0.01),
            reason: "the paper counts the model alone and a key for each item in the index block; an index \
                     block has a separator for each data block, and a learned one the lengths of blocks"
                .to_string(),
        },
        Claim {
            paper: "with training while writing a prediction is always right".to_string(),
            ours: "every item of every family was found in the block that was predicted".to_string(),
            verdict: Verdict::Agrees,
            reason: "an item in another block ends the experiment".to_string(),
        },
        Claim {
            paper: "blocks vary in size with the error of the model".to_string(),
            ours: format!("data takes {space_least:.3} to {space_most:.3} of that in blocks cut by size"),
            verdict: Verdict::of(space_most > 1.0),
            reason: "blocks are whole units of 512 bytes, half of one is lost on average".to_string(),
        },
    ]
}

fn lookups(trials: &[Trial]) -> Figure {
    let row = |trial: &Trial| {
        let [strings, fences, learned] = trial.nanoseconds;
        vec![
            trial.family.name().to_string(),
            format!("{strings:.0}"),
            format!("{fences:.0}"),
            format!("{learned:.0}"),
            format!("{:.2}", learned / fences),
            format!("{:.2}", learned / strings),
            format!("{:.0}", trial.build_nanoseconds),
        ]
    };
    let series = |name: &str, kind: usize| {
        (name.to_string(), trials.iter().map(|trial| Some(trial.nanoseconds[kind])).collect())
    };
    let faster = trials.iter().filter(|trial| trial.nanoseconds[2] < trial.nanoseconds[0]).count();
    let near = trials.iter().filter(|trial| trial.nanoseconds[2] <= 1.1 * trial.nanoseconds[1]).count();
    let title = "Lookup of a random item's block, all in memory".to_string();
    Figure {
        name: "trident-index-lookups",
        title: title.clone(),
        header: header(&[
            "keys",
            "strings",
            "fences",
            "learned",
            "of fences",
            "of strings",
            "build, ns an item",
        ]),
        rows: trials.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title,
            y: Axis::linear("nanoseconds"),
            groups: names(trials),
            series: vec![series("strings", 0), series("fences", 1), series("learned", 2)],
        }),
        claims: vec![Claim {
            paper: "a model is faster than the binary search of an index block".to_string(),
            ours: format!(
                "faster than strings on {faster} of ten families, at most 1.1 times fences on {near}"
            ),
            verdict: Verdict::of(faster == trials.len()),
            reason: "the string index block is not in the cache of blocks: it is searched in place"
                .to_string(),
        }],
    }
}

fn errors(swept: &[Swept]) -> Figure {
    let of_fences = |one: &Swept| ratio(one.stats.index_bytes, one.fences.index_bytes);
    let row = |one: &Swept| {
        vec![
            one.family.name().to_string(),
            one.error.to_string(),
            format!("{:.2}", ratio(one.stats.index_bytes, one.fences.blocks)),
            format!("{:.3}", of_fences(one)),
            format!("{} of {}", one.stats.learned_pages, one.stats.pages),
            format!("{:.3}", ratio(one.stats.knots, one.stats.learned_blocks)),
            format!("{:.3}", ratio(one.stats.data_bytes, one.fences.data_bytes)),
            one.stats.block_bytes_max.to_string(),
            format!("{:.0}", ratio(one.stats.data_bytes, one.stats.blocks)),
            one.stats.empty_blocks.to_string(),
        ]
    };
    let series = |error: &u16| {
        let of_error = swept.iter().filter(|one| one.error == *error);
        (format!("error {error}"), of_error.map(|one| Some(of_fences(one))).collect())
    };
    let title = "Learned pages by the error of models, in 32nds of a block".to_string();
    Figure {
        name: "trident-index-errors",
        title: title.clone(),
        header: header(&[
            "keys",
            "error",
            "bytes a block",
            "of fences",
            "learned pages",
            "knots a block",
            "space",
            "longest block",
            "mean block",
            "empty blocks",
        ]),
        rows: swept.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title,
            y: Axis::linear("of the bytes of fences"),
            groups: KeyFamily::ALL.map(|family| family.name().to_string()).to_vec(),
            series: ERRORS.iter().map(series).collect(),
        }),
        claims: Vec::new(),
    }
}

fn two_layers(trials: &[Trial]) -> Figure {
    let row = |trial: &Trial| {
        let [cut, truncated] = &trial.two_layers;
        vec![
            trial.family.name().to_string(),
            count(cut.groups),
            count(cut.parameter_bytes),
            count(truncated.groups),
            count(truncated.parameter_bytes),
            format!("{:.2}", truncated.error_mean_blocks),
            truncated.error_max_blocks.to_string(),
        ]
    };
    let series = |name: &str, kind: usize| {
        (name.to_string(), trials.iter().map(|trial| Some(trial.two_layers[kind].groups as f64)).collect())
    };
    let small = trials.iter().filter(|trial| trial.two_layers[0].parameter_bytes < 8192).count();
    let title = format!("The paper's two layers over {} keys", count(TWO_LAYER_KEYS));
    Figure {
        name: "trident-two-layers",
        title: title.clone(),
        header: header(&[
            "keys",
            "groups, paper",
            "bytes, paper",
            "groups, truncated",
            "bytes, truncated",
            "mean error in blocks",
            "largest error",
        ]),
        rows: trials.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title,
            y: Axis::logarithmic("groups"),
            groups: names(trials),
            series: vec![series("paper", 0), series("truncated", 1)],
        }),
        claims: vec![Claim {
            paper: "greedy grouping keeps codes below a limit; the model has less than 8 KB".to_string(),
            ours: format!("less than 8 KB on {small} of ten families, for {} keys", count(TWO_LAYER_KEYS)),
            verdict: Verdict::of(small == trials.len()),
            reason: "SNBC of whole keys overflows 63 bits within a few keys; the paper names no family \
                     where it does"
                .to_string(),
        }],
    }
}
