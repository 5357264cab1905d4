//! LSM-trie's spread of keys over nodes and buckets, and the limits that its authors state.
//!
//! [`Unordered::position`](trine::Unordered::position) has the location of a key: it begins with the key's
//! place, 36 bits of route and 48 of order. A node of height h has the keys whose routes begin with its 3 h
//! bits. A bucket is a range of the order here, and a residue in the paper; tables of this store have blocks
//! instead, cut when they are full.

use std::path::Path;

use trine::{Error, Hashed, Keyspace, inspect};
use trine_workload::dice::Dice;
use trine_workload::distribution::Zipf;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Bars};
use trine_workload::text::count;

use super::lsmtrie_load::{Items, Maker, Store, Structure};
use super::{Claim, Figure, Job, Picture, Verdict};

/// Steps of the progress bar.
pub(super) const STEPS: usize = Pattern::ALL.len() + 1;
/// Keys of each pattern at scale 1.
const KEYS: u64 = 4_000_000;
const KEYS_MIN: u64 = 20_000;
/// The most standard deviations of chi-square from its mean.
const DEVIATIONS_MAX: f64 = 5.0;
/// Bits of the route in a place.
const ROUTE_BITS: u32 = 36;
/// Bits of a table's bucket: the paper has 8,191 buckets in 32 MiB.
const BUCKET_BITS: u32 = 13;
/// Items of the store for the tests of limits.
const LIMIT_ITEMS: u64 = 20_000;
/// Items that are put after the last flush.
const LOGGED_ITEMS: u64 = 500;
/// A value larger than a page of 4 KiB.
const LARGE_BYTES: usize = 10_000;

/// The pattern of keys.
#[derive(Clone, Copy)]
enum Pattern {
    /// 0, 1, 2, .. as numbers.
    Sequential,
    /// One prefix of 32 bytes, and a number in decimal digits.
    SharedPrefix,
    /// Numbers drawn from a Zipf distribution: all small ones, few large ones.
    Zipf,
}

impl Pattern {
    const ALL: [Pattern; 3] = [Pattern::Sequential, Pattern::SharedPrefix, Pattern::Zipf];

    fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::SharedPrefix => "shared prefix",
            Pattern::Zipf => "drawn by Zipf 0.99",
        }
    }
}

/// The bits of a place that select a bin.
#[derive(Clone, Copy)]
struct Bins {
    name: &'static str,
    first_bit: u32,
    bits: u32,
}

const BINS: [Bins; 4] = [
    Bins { name: "nodes of height 1", first_bit: 0, bits: 3 },
    Bins { name: "nodes of height 2", first_bit: 0, bits: 6 },
    Bins { name: "nodes of height 3", first_bit: 0, bits: 9 },
    Bins { name: "buckets", first_bit: ROUTE_BITS, bits: BUCKET_BITS },
];

impl Bins {
    /// The bin of a stored key.
    fn of(self, position: &[u8]) -> usize {
        let mut bytes = [0; 16];
        let length = position.len().min(16);
        bytes[..length].copy_from_slice(&position[..length]);
        let shifted = u128::from_be_bytes(bytes) << self.first_bit;
        (shifted >> (128 - self.bits)) as usize
    }
}

/// The distribution of keys over bins.
struct Spread {
    keys: u64,
    chi_square: f64,
    /// The distance of chi-square from its mean, in standard deviations.
    deviations: f64,
    /// The fullest bin's keys over the mean.
    fullest: f64,
}

impl Spread {
    fn of(counts: &[u64]) -> Spread {
        let keys: u64 = counts.iter().sum();
        let expected = keys as f64 / counts.len() as f64;
        let chi_square =
            counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum::<f64>();
        let degrees = (counts.len() - 1) as f64;
        let deviations = (chi_square - degrees) / (2.0 * degrees).sqrt();
        let fullest = counts.iter().max().map_or(0.0, |most| *most as f64 / expected);
        Spread { keys, chi_square, deviations, fullest }
    }

    fn is_even(&self) -> bool {
        self.deviations.abs() < DEVIATIONS_MAX
    }
}

fn put_pattern(job: &Job, items: &Keyspace<Hashed>, pattern: Pattern, keys: u64) -> Result<(), Failure> {
    let (zipf, mut dice) = (Zipf::new(16 * keys, 0.99), Dice::new(job.seed));
    for number in 0..keys {
        match pattern {
            Pattern::Sequential => items.put(number.to_be_bytes(), [])?,
            Pattern::SharedPrefix => items.put(format!("https://an.example/of/a/prefix/{number:08}"), [])?,
            Pattern::Zipf => items.put(zipf.rank(&mut dice).to_be_bytes(), [])?,
        }
    }
    Ok(())
}

fn spread_of(job: &mut Job, pattern: Pattern) -> Result<Vec<Spread>, Failure> {
    let keys = job.scaled(KEYS, KEYS_MIN);
    job.step(format!("keys over nodes, {}", pattern.name()));
    let store = Store::make(job, Structure::Trie)?;
    let Items::Hashed(items) = &store.items else { unreachable!("a trie is hashed") };
    put_pattern(job, items, pattern, keys)?;
    let mut counts = BINS.map(|bins| vec![0; 1 << bins.bits]);
    let mut walk = items.iter_unordered();
    while let Some(item) = walk.next() {
        item?;
        let position = walk.position().unwrap_or_default();
        for (counts, bins) in counts.iter_mut().zip(BINS) {
            counts[bins.of(&position)] += 1;
        }
    }
    drop(walk);
    let place = store.close()?;
    job.workshop.clear(&place)?;
    Ok(counts.iter().map(|counts| Spread::of(counts)).collect())
}

/// The spread of keys over nodes and buckets, for every pattern of keys.
pub(super) fn spread(job: &mut Job) -> Result<Figure, Failure> {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    let (mut worst, mut is_even) = (0.0_f64, true);
    for pattern in Pattern::ALL {
        let spreads = spread_of(job, pattern)?;
        for (spread, bins) in spreads.iter().zip(BINS) {
            rows.push(vec![
                pattern.name().to_string(),
                bins.name.to_string(),
                count(1 << bins.bits),
                count(spread.keys),
                format!("{:.0}", spread.chi_square),
                format!("{:+.2}", spread.deviations),
                format!("{:.3}", spread.fullest),
            ]);
            worst = worst.max(spread.deviations.abs());
            is_even &= spread.is_even();
        }
        let values = spreads.iter().map(|spread| Some(spread.deviations)).collect();
        series.push((pattern.name().to_string(), values));
    }
    let claim = Claim {
        paper: "hashed keys load nodes and buckets evenly, whatever the keys are".to_string(),
        ours: format!("chi-square is {worst:.2} standard deviations from its mean at most"),
        verdict: Verdict::of(is_even),
        reason: "the hash is XXH3 with the store's secret instead of SHA-1; 5 deviations are allowed"
            .to_string(),
    };
    let header =
        ["keys", "bins", "bins in all", "keys in all", "chi-square", "deviations", "fullest over mean"];
    let title = "Distinct keys over nodes and buckets";
    Ok(Figure {
        name: "lsmtrie-spread",
        title: title.to_string(),
        header: header.map(str::to_string).to_vec(),
        rows,
        picture: Picture::Bars(Bars {
            title: title.to_string(),
            y: Axis::linear("deviations of chi-square"),
            groups: BINS.map(|bins| bins.name.to_string()).to_vec(),
            series,
        }),
        claims: vec![claim],
    })
}

/// A limit stated by the paper, and its result here.
struct Tried {
    limit: &'static str,
    ours: String,
    is_lifted: bool,
}

/// Copies the files that the process would leave if it were killed now.
pub(super) fn copy_store(from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::file("copy", &path, source)
    };
    std::fs::create_dir_all(to).map_err(failed(to))?;
    for entry in std::fs::read_dir(from).map_err(failed(from))? {
        let file = entry.map_err(failed(from))?.path();
        let name = file.file_name().unwrap_or_default();
        std::fs::copy(&file, to.join(name)).map_err(failed(&file))?;
    }
    Ok(())
}

/// Changes a byte of the first table in a directory; `false` if there is none.
fn damage_table(place: &Path) -> Result<bool, Failure> {
    let failed = |source| Failure::file("change a table in", place, source);
    for entry in std::fs::read_dir(place).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("table-")) {
            let mut bytes = std::fs::read(&file).map_err(failed)?;
            if let Some(byte) = bytes.get_mut(4096 + 100) {
                *byte ^= 1;
                std::fs::write(&file, bytes).map_err(failed)?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Tests on an open store: scans, deletes, large values.
fn try_items(store: &Store, items: &Keyspace<Hashed>) -> Result<Vec<Tried>, Failure> {
    let mut maker = Maker::new();
    for number in 0..LIMIT_ITEMS {
        maker.make(number);
        items.put(&maker.key, &maker.value)?;
    }
    let scanned = items.exact_len(|_| {})?;
    let is_refused = matches!(store.db.keyspace("items")?.ordered(), Err(Error::Unordered { .. }));
    maker.make(0);
    items.delete(&maker.key)?;
    store.db.flush()?;
    store.db.settle()?;
    let is_gone = items.get(&maker.key)?.is_none() && items.exact_len(|_| {})? == LIMIT_ITEMS - 1;
    items.put("large", vec![7; LARGE_BYTES])?;
    store.db.flush()?;
    let large = items.get("large")?.map_or(0, |value| value.len());
    let (walked, of) = (count(scanned), count(LIMIT_ITEMS));
    let refused = if is_refused { "refused" } else { "not refused" };
    let gone = if is_gone { "is gone" } else { "is back" };
    let (put, read) = (count(LARGE_BYTES as u64), count(large as u64));
    Ok(vec![
        Tried {
            limit: "no scan",
            ours: format!("a walk in no order has {walked} of {of} items; ranges are {refused}"),
            is_lifted: scanned == LIMIT_ITEMS && is_refused,
        },
        Tried {
            limit: "no delete",
            ours: format!("a deleted item {gone} after flush and merges"),
            is_lifted: is_gone,
        },
        Tried {
            limit: "items below 4 KiB",
            ours: format!("of a value of {put} bytes {read} are read back"),
            is_lifted: large == LARGE_BYTES,
        },
    ])
}

/// Tests the limits that the paper states.
pub(super) fn limits(job: &mut Job) -> Result<Figure, Failure> {
    job.step("limits".to_string());
    let store = Store::make(job, Structure::Trie)?;
    let Items::Hashed(items) = &store.items else { unreachable!("a trie is hashed") };
    let mut tried = try_items(&store, items)?;
    // Items that are only in memory and in the log.
    let mut maker = Maker::new();
    for number in LIMIT_ITEMS..LIMIT_ITEMS + LOGGED_ITEMS {
        maker.make(number);
        items.put(&maker.key, &maker.value)?;
    }
    let (expected, image) = (items.exact_len(|_| {})?, job.workshop.place());
    store.db.settle()?;
    copy_store(&store.place, &image)?;
    let place = store.close()?;
    job.workshop.clear(&place)?;
    let copy = Store::open(image, Structure::Trie)?;
    let Items::Hashed(items) = &copy.items else { unreachable!("a trie is hashed") };
    let found = items.exact_len(|_| {})?;
    let image = copy.close()?;
    tried.push(Tried {
        limit: "no log: a snapshot of metadata every 10 minutes",
        ours: format!("files copied without closing have {} of {} items", count(found), count(expected)),
        is_lifted: found == expected,
    });
    let is_damaged = damage_table(&image)?;
    let findings = inspect::verify(&image, |_| {})?.findings.len();
    job.workshop.clear(&image)?;
    tried.push(Tried {
        limit: "no checksums",
        ours: format!("verify has {findings} findings after a byte of a table was changed"),
        is_lifted: is_damaged && findings > 0,
    });
    Ok(figure_of_limits(&tried))
}

fn figure_of_limits(tried: &[Tried]) -> Figure {
    let lifted = tried.iter().filter(|one| one.is_lifted).count();
    let claims = vec![Claim {
        paper: "no scan, no delete, items below 4 KiB, no log, no checksums".to_string(),
        ours: format!("{lifted} of {} limits are lifted", tried.len()),
        verdict: Verdict::of(lifted == 0),
        reason: "a hashed keyspace has the log, deletes and checksums of its store; it has no ranges"
            .to_string(),
    }];
    let title = "The paper's limits, tried here";
    let height = |one: &Tried| Some(f64::from(u8::from(one.is_lifted)));
    let bars = Bars {
        title: title.to_string(),
        y: Axis::linear("lifted"),
        groups: tried.iter().map(|one| one.limit.to_string()).collect(),
        series: vec![("lifted".to_string(), tried.iter().map(height).collect())],
    };
    let row = |one: &Tried| vec![one.limit.to_string(), one.ours.clone()];
    Figure {
        name: "lsmtrie-limits",
        title: title.to_string(),
        header: vec!["limit of the paper's".to_string(), "here".to_string()],
        rows: tried.iter().map(row).collect(),
        picture: Picture::Bars(bars),
        claims,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal counts have chi-square 0, counts in a single bin a very large one; bins follow the bits of a
    /// place.
    #[test]
    fn spreads_and_bins() {
        let even = Spread::of(&[10; 64]);
        assert!(even.chi_square == 0.0 && (even.fullest - 1.0).abs() < 1e-9);
        assert!(!even.is_even(), "random keys are never so even");
        let mut all_in_one = [0; 64];
        all_in_one[7] = 640;
        assert!(!Spread::of(&all_in_one).is_even());
        let position = [0b1011_1001, 0b0111_1111, 0, 0, 0x0f, 0xff, 0x80, 0, 0, 0, 0, b'k'];
        assert_eq!(BINS.map(|bins| bins.of(&position)), [0b101, 0b10_1110, 0b1_0111_0010, 0x1fff]);
        assert_eq!(BINS[3].of(&[]), 0);
    }
}
