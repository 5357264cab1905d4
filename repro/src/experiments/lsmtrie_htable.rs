//! LSM-trie's HTable: reads of a get, memory for HashMarks, and the fills and item sizes that buckets accept.
//!
//! Each table is built from one list of items at one fill. The fill is the part of all buckets' 4082 bytes
//! that items take, with their lengths. Every item is then got once from the opened table, and the lab counts
//! the pages it reads from the file. The store gets the same items in a hashed keyspace, whose tables are
//! sorted by hash. Its statistics have the bytes of data and fences, and traces of gets count data blocks.

use std::path::Path;

use trine::lab::{CachedMarks, HTable, HTableItem, HTableStats, order_of};
use trine::{Db, Error};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::keys::Shape;
use trine_workload::plot::{Axis, Bars, Chart, Series};
use trine_workload::text::{count, ratio};

use super::{Claim, Figure, Job, Picture, Verdict};
use crate::lab::stop_if_asked;

pub(super) const SCALE: f64 = 1.0;
/// Buckets of the paper's table of 32 MiB.
const BUCKETS: u64 = 8192;
/// As many as in a table of 256 KiB.
const BUCKETS_MIN: u64 = 64;
const KEY_BYTES: usize = 16;
/// Fills of the tables, in parts of 10,000. The released code fills tables of level 0 to 0.75, others to
/// 0.9375.
const FILLS: [u64; 8] = [5000, 6250, 7500, 8000, 8500, 9000, 9375, 9700];
/// The fill of tables in the paper's lower levels.
const PAPERS_FILL: u64 = 9375;
/// The paper's reads a get, and its memory for marks.
const READS_MAX: f64 = 1.01;
const MARKS_MB_A_TB_MAX: f64 = 400.0;
/// The percentage of gets that need no second page.
const COVERED: CachedMarks = CachedMarks::Percent(99);
/// Traced gets in the store.
const TRACED: usize = 20_000;
/// The items of the store, in HTables: at scale 1 its tables then have the default size of 64 MiB. Fences are
/// whole pages, and few pages of a small table are full.
const STORE_TABLES: u64 = 16;
/// Memory of the store, and its table size: compaction makes one run of a node's items.
const MEMORY_BYTES: u64 = 1 << 30;
const STORE_TABLE_BYTES: u64 = 1 << 30;

/// Sizes of items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mix {
    /// The paper's keys and values.
    Small,
    Middle,
    LogUniform,
    SomeLarge,
}

impl Mix {
    const ALL: [Mix; 4] = [Mix::Small, Mix::Middle, Mix::LogUniform, Mix::SomeLarge];

    fn name(self) -> &'static str {
        match self {
            Mix::Small => "16 + 100 bytes",
            Mix::Middle => "400 bytes",
            Mix::LogUniform => "50 to 1,500 bytes, log-uniform",
            Mix::SomeLarge => "16 + 100, each 50th 2,000 to 3,900",
        }
    }

    fn value_bytes(self, dice: &mut Dice) -> usize {
        let item_bytes = match self {
            Mix::Small => KEY_BYTES + 100,
            Mix::Middle => 400,
            Mix::LogUniform => {
                let part = dice.below(1 << 32) as f64 / (1u64 << 32) as f64;
                (50.0 * 30_f64.powf(part)) as usize
            }
            Mix::SomeLarge if dice.below(50) == 0 => 2000 + dice.below(1901) as usize,
            Mix::SomeLarge => KEY_BYTES + 100,
        };
        item_bytes - KEY_BYTES
    }

    /// Items that fill the buckets to `fill`, the same for the same seed.
    fn items(self, seed: u64, buckets: u64, fill: u64) -> impl Iterator<Item = HTableItem> {
        let shape = Shape { key_bytes: KEY_BYTES, compressible_percent: 0 };
        let wanted = buckets * HTable::BUCKET_BYTES as u64 * fill / 10_000;
        let (mut dice, mut item_bytes) = (Dice::new(seed), 0);
        std::iter::from_fn(move || {
            // Random keys, because the shape's keys have zeros, which blocks of the store omit. A built
            // table, with the pages read for each get, over gets of all items.
            let (key, mut value) = (random_key(&mut dice), Vec::new());
            shape.value(&key, self.value_bytes(&mut dice), &mut value);
            item_bytes += HTable::item_bytes(&key, &value) as u64;
            let item = HTableItem { order: order_of(&key), key, value };
            (item_bytes <= wanted).then_some(item)
        })
    }
}

fn random_key(dice: &mut Dice) -> Vec<u8> {
    [dice.next().to_le_bytes(), dice.next().to_le_bytes()].concat()
}

/// A built table, and the mean pages read by a get, over gets of all items.
struct Built {
    /// With the marks for 99 percent of gets in memory.
    stats: HTableStats,
    reads_without_marks: f64,
    reads: f64,
    reads_with_all: f64,
}

impl Built {
    /// Marks in memory, in MB a TB of buckets.
    fn marks_mb_a_tb(&self) -> f64 {
        ratio(self.stats.cached_mark_bytes, self.stats.page_bytes) * 1e6
    }

    fn payload(&self) -> f64 {
        ratio(self.stats.key_value_bytes, self.stats.page_bytes)
    }
}

/// One mix at one fill: a table, or the reason why there is none.
struct Trial {
    mix: Mix,
    fill: u64,
    built: Result<Built, String>,
}

/// Gets every item; returns the pages read for each.
fn get_all(place: &Path, items: &[HTableItem], cached: CachedMarks) -> Result<(f64, HTableStats), Failure> {
    let table = HTable::open(place, cached)?;
    for (number, item) in items.iter().enumerate() {
        if table.get(&item.key, item.order)?.value.as_ref() != Some(&item.value) {
            return Err(Failure::Other(format!("item {number} is not as it was put")));
        }
    }
    stop_if_asked()?;
    let stats = table.stats();
    Ok((ratio(stats.page_reads, items.len() as u64), stats))
}

impl Trial {
    fn run(job: &mut Job, buckets: u64, mix: Mix, fill: u64) -> Result<Trial, Failure> {
        job.step(format!("{}, fill {}", mix.name(), part(fill)));
        let items: Vec<HTableItem> = mix.items(job.seed, buckets, fill).collect();
        let place = job.workshop.place();
        match HTable::create(&place, buckets.ilog2(), &items) {
            Ok(()) => {}
            Err(Error::Invalid { faults }) => {
                return Ok(Trial {
                    mix,
                    fill,
                    built: Err(faults.join("; ").replace("the buckets cannot be balanced: ", "")),
                });
            }
            Err(other) => return Err(other.into()),
        }
        let (reads_without_marks, _) = get_all(&place, &items, CachedMarks::None)?;
        let (reads_with_all, _) = get_all(&place, &items, CachedMarks::All)?;
        let (reads, stats) = get_all(&place, &items, COVERED)?;
        job.workshop.clear(&place)?;
        Ok(Trial { mix, fill, built: Ok(Built { stats, reads_without_marks, reads, reads_with_all }) })
    }
}

/// The same items in the store.
struct Beside {
    mix: Mix,
    /// The bytes of keys and values as a part of the tables' bytes without filters and fences.
    payload: f64,
    fences_mb_a_tb: f64,
    blocks_a_hit: f64,
    runs: u64,
    tables: u64,
}

impl Beside {
    fn run(job: &mut Job, buckets: u64, mix: Mix) -> Result<Beside, Failure> {
        job.step(format!("the store, {}", mix.name()));
        let items = || mix.items(job.seed, STORE_TABLES * buckets, PAPERS_FILL);
        let place = job.workshop.place();
        let db = Db::builder(&place).memory_bytes(MEMORY_BYTES).open()?;
        let keyspace = db.hashed("items").set("table_bytes", STORE_TABLE_BYTES).open()?;
        let (mut items_put, mut key_value_bytes) = (0_usize, 0);
        for item in items() {
            keyspace.put(&item.key, &item.value)?;
            items_put += 1;
            key_value_bytes += (item.key.len() + item.value.len()) as u64;
        }
        stop_if_asked()?;
        db.flush()?;
        db.compact()?;
        db.settle()?;
        let (mut hits, mut blocks) = (0, 0);
        for item in items().step_by(items_put.max(1).div_ceil(TRACED)) {
            let (value, trace) = keyspace.trace(&item.key)?;
            if value.as_deref() != Some(&item.value[..]) {
                return Err(Failure::Other("the store has another value than was put".to_string()));
            }
            hits += 1;
            blocks +=
                trace.steps.iter().filter(|step| step.name == "DBSeek").map(|step| step.count).sum::<u64>();
        }
        let stats = keyspace.stats()?;
        let sum = |value: fn(&trine::LevelStats) -> u64| stats.levels.iter().map(value).sum::<u64>();
        let data = sum(|level| level.table_bytes - level.filters.bytes - level.fences.bytes);
        let beside = Beside {
            mix,
            payload: ratio(key_value_bytes, data),
            fences_mb_a_tb: ratio(sum(|level| level.fences.bytes), data) * 1e6,
            blocks_a_hit: ratio(blocks, hits),
            runs: sum(|level| level.runs),
            tables: sum(|level| level.tables),
        };
        drop(keyspace);
        db.close()?;
        job.workshop.clear(&place)?;
        Ok(beside)
    }
}

pub(super) fn run(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let buckets = 1 << job.scaled(BUCKETS, BUCKETS_MIN).min(BUCKETS).ilog2();
    job.steps(Mix::ALL.len() * (FILLS.len() + 1));
    let mut trials = Vec::new();
    for mix in Mix::ALL {
        for fill in FILLS {
            trials.push(Trial::run(job, buckets, mix, fill)?);
        }
    }
    let mut besides = Vec::new();
    for mix in Mix::ALL {
        besides.push(Beside::run(job, buckets, mix)?);
    }
    Ok(vec![marks(buckets, &trials), mixes(buckets, &trials), beside(&trials, &besides)])
}

fn part(fill: u64) -> String {
    format!("{}", fill as f64 / 10_000.0)
}

fn percent_of(some: u64, all: u64) -> String {
    format!("{:.1} %", 100.0 * ratio(some, all))
}

/// The paper's items by fill: marks and reads.
fn marks(buckets: u64, trials: &[Trial]) -> Figure {
    let small: Vec<&Trial> = trials.iter().filter(|trial| trial.mix == Mix::Small).collect();
    let line = |name: &str, value: fn(&Built) -> f64| {
        let point = |trial: &&Trial| {
            let built = trial.built.as_ref().ok()?;
            Some((trial.fill as f64 / 10_000.0, value(built)))
        };
        Series { name: name.to_string(), points: small.iter().filter_map(point).collect() }
    };
    let title = format!("HTable of {} buckets, items of 16 and 100 bytes", count(buckets));
    Figure {
        name: "lsmtrie-marks",
        title: title.clone(),
        header: header(&["fill"]),
        rows: small.iter().map(|trial| [vec![part(trial.fill)], cells(trial)].concat()).collect(),
        picture: Picture::Lines(Chart {
            title,
            x: Axis::linear("fill of buckets"),
            y: Axis::linear("pages read a get"),
            series: vec![
                line("no marks in memory", |built| built.reads_without_marks),
                line("marks of 99 %", |built| built.reads),
                line("all marks", |built| built.reads_with_all),
            ],
        }),
        claims: claims_of_marks(&small),
    }
}

fn claims_of_marks(small: &[&Trial]) -> Vec<Claim> {
    let upper: Vec<(u64, &Built)> = small
        .iter()
        .filter(|trial| trial.fill >= PAPERS_FILL)
        .filter_map(|trial| Some((trial.fill, trial.built.as_ref().ok()?)))
        .collect();
    let told = |value: &dyn Fn(&Built) -> String| {
        let one = |(fill, built): &(u64, &Built)| format!("{} at fill {}", value(built), part(*fill));
        upper.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let papers = upper.iter().find(|(fill, _)| *fill == PAPERS_FILL).map(|(_, built)| *built);
    let holds = |test: fn(&Built) -> bool| papers.map_or(Verdict::Differs, |built| Verdict::of(test(built)));
    vec![
        Claim {
            paper: "marks of the most overloaded buckets in memory: 1.01 reads a get".to_string(),
            ours: told(&|built| format!("{:.4}", built.reads)),
            verdict: holds(|built| built.reads <= READS_MAX),
            reason: "the verdict is about fill 0.9375; every item is got once and pages read are counted"
                .to_string(),
        },
        Claim {
            paper: "some 400 MB of marks in memory for a store of 1 TB".to_string(),
            ours: told(&|built| format!("{:.0} MB a TB", built.marks_mb_a_tb())),
            verdict: holds(|built| built.marks_mb_a_tb() <= MARKS_MB_A_TB_MAX),
            reason: "8 bytes a mark, beside the bytes of all buckets; the verdict is about fill 0.9375"
                .to_string(),
        },
        Claim {
            paper: "an item that migrated is found by its mark: no mark in memory, a second read".to_string(),
            ours: told(&|built| {
                format!(
                    "{:.4} reads with no mark and {:.4} with all",
                    built.reads_without_marks, built.reads_with_all
                )
            }),
            verdict: holds(|built| built.reads_with_all == 1.0 && built.reads_without_marks > 1.0),
            reason: "items of equal order stay together, so a mark never leaves a doubt".to_string(),
        },
    ]
}

fn header(first: &[&str]) -> Vec<String> {
    let rest = [
        "payload of pages",
        "overloaded",
        "with a mark",
        "items away",
        "most hops",
        "rounds",
        "marks in memory",
        "MB a TB",
        "reads without",
        "reads, 99 %",
        "reads, all",
    ];
    first.iter().chain(&rest).map(|name| (*name).to_string()).collect()
}

/// The cells of a trial under [`header`].
fn cells(trial: &Trial) -> Vec<String> {
    let built = match &trial.built {
        Ok(built) => built,
        Err(reason) => {
            let mut cells = vec![format!("fails: {reason}")];
            cells.resize(header(&[]).len(), String::new());
            return cells;
        }
    };
    let stats = &built.stats;
    vec![
        format!("{:.3}", built.payload()),
        percent_of(stats.overloaded, stats.buckets),
        percent_of(stats.marks, stats.buckets),
        percent_of(stats.items_away, stats.items),
        stats.hops_max.to_string(),
        stats.rounds.to_string(),
        percent_of(stats.cached_marks, stats.buckets),
        format!("{:.0}", built.marks_mb_a_tb()),
        format!("{:.4}", built.reads_without_marks),
        format!("{:.4}", built.reads),
        format!("{:.4}", built.reads_with_all),
    ]
}

/// The greatest of the tried fills at which a mix balances, together with every lesser fill.
fn fill_max(trials: &[Trial], mix: Mix) -> Option<u64> {
    let of_mix = trials.iter().filter(|trial| trial.mix == mix);
    of_mix.take_while(|trial| trial.built.is_ok()).last().map(|trial| trial.fill)
}

/// All mixes by fill.
fn mixes(buckets: u64, trials: &[Trial]) -> Figure {
    let row = |trial: &Trial| [vec![trial.mix.name().to_string(), part(trial.fill)], cells(trial)].concat();
    let told = Mix::ALL.map(|mix| {
        let fill = fill_max(trials, mix).map_or("none".to_string(), part);
        format!("{}: {fill}", mix.name())
    });
    let is_any_fill = Mix::ALL.iter().all(|mix| fill_max(trials, *mix) >= Some(PAPERS_FILL));
    let worst = trials
        .iter()
        .filter(|trial| trial.fill == PAPERS_FILL)
        .filter_map(|trial| Some((trial.mix, trial.built.as_ref().ok()?)))
        .max_by(|(_, a), (_, b)| a.reads.total_cmp(&b.reads));
    let mut claims = vec![Claim {
        paper: "items that overflow a bucket migrate; no size or fill is named at which this fails"
            .to_string(),
        ours: format!("greatest fill that balances, of {}: {}", FILLS.map(part).join(", "), told.join("; ")),
        verdict: Verdict::of(is_any_fill),
        reason: "migration ends without balance when every bucket that could receive has given items away; \
                 the verdict is about fill 0.9375 and all mixes"
            .to_string(),
    }];
    if let Some((mix, built)) = worst {
        claims.push(Claim {
            paper: "1.01 reads a get".to_string(),
            ours: format!(
                "{:.4} for {} at fill 0.9375, with {:.0} MB a TB: the most of all mixes that balance",
                built.reads,
                mix.name(),
                built.marks_mb_a_tb()
            ),
            verdict: Verdict::of(built.reads <= READS_MAX),
            reason:
                "larger items move in larger parts; a table keeps a mark for every fourth bucket at most, \
                     as in the released code"
                    .to_string(),
        });
    }
    Figure {
        name: "lsmtrie-mixes",
        title: format!("HTable of {} buckets by sizes of items and fill", count(buckets)),
        header: header(&["items", "fill"]),
        rows: trials.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title: "Greatest fill that balances".to_string(),
            y: Axis::linear("fill of buckets"),
            groups: Mix::ALL.map(|mix| mix.name().to_string()).to_vec(),
            series: vec![(
                "HTable".to_string(),
                Mix::ALL.map(|mix| fill_max(trials, mix).map(|fill| fill as f64 / 10_000.0)).to_vec(),
            )],
        }),
        claims,
    }
}

/// The store's tables of the same items, beside the fullest HTable of each mix.
fn beside(trials: &[Trial], besides: &[Beside]) -> Figure {
    let fullest = |mix: Mix| {
        let fill = fill_max(trials, mix)?;
        let found = trials.iter().find(|trial| (trial.mix, trial.fill) == (mix, fill))?;
        found.built.as_ref().ok().map(|built| (fill, built))
    };
    let row = |one: &Beside| {
        let table = fullest(one.mix);
        let cell =
            |value: &dyn Fn(&(u64, &Built)) -> String| table.as_ref().map_or("none".to_string(), value);
        vec![
            one.mix.name().to_string(),
            cell(&|(fill, _)| part(*fill)),
            cell(&|(_, built)| format!("{:.3}", built.payload())),
            format!("{:.3}", one.payload),
            cell(&|(_, built)| format!("{:.0}", built.marks_mb_a_tb())),
            format!("{:.0}", one.fences_mb_a_tb),
            cell(&|(_, built)| format!("{:.4}", built.reads)),
            format!("{:.4}", one.blocks_a_hit),
            one.runs.to_string(),
            one.tables.to_string(),
        ]
    };
    let header = [
        "items",
        "greatest fill, HTable",
        "payload, HTable",
        "payload, sorted",
        "MB a TB, marks",
        "MB a TB, fences",
        "reads, HTable",
        "blocks a hit, sorted",
        "runs",
        "tables",
    ];
    let payloads = |value: &dyn Fn(&Beside) -> Option<f64>| besides.iter().map(value).collect();
    Figure {
        name: "lsmtrie-sorted",
        title: "The store's tables, sorted by hash, beside the fullest HTable of each mix".to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: besides.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title: "Keys and values in a byte of pages or blocks".to_string(),
            y: Axis::linear("part of bytes"),
            groups: besides.iter().map(|one| one.mix.name().to_string()).collect(),
            series: vec![
                ("HTable".to_string(), payloads(&|one| fullest(one.mix).map(|(_, built)| built.payload()))),
                ("sorted by hash".to_string(), payloads(&|one| Some(one.payload))),
            ],
        }),
        claims: vec![claim_of_sorted(besides)],
    }
}

fn claim_of_sorted(besides: &[Beside]) -> Claim {
    let most = |value: fn(&Beside) -> f64| besides.iter().map(value).fold(0.0, f64::max);
    let (blocks, fences) = (most(|one| one.blocks_a_hit), most(|one| one.fences_mb_a_tb));
    let small = besides.iter().find(|one| one.mix == Mix::Small).map_or(0.0, |one| one.fences_mb_a_tb);
    Claim {
        paper: "1.01 reads a get for 400 MB of memory a TB".to_string(),
        ours: format!(
            "the store's tables: at most {blocks:.4} blocks a hit over all mixes, {small:.0} MB of fences \
             a TB for items of 16 and 100 bytes, at most {fences:.0} MB"
        ),
        verdict: Verdict::of(blocks <= READS_MAX && small <= MARKS_MB_A_TB_MAX),
        reason:
            "blocks are cut where they are full, so every mix is built; the verdict is about blocks of all \
                 mixes and fences of 16 and 100 bytes; the payload is of table files without filters and \
                 fences, and a block counts whether the cache has it or not"
                .to_string(),
    }
}
