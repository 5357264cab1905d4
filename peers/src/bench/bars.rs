//! The bars that Trine has to reach beside the other stores, as data, and their verdicts.
//!
//! 1. Figures are compared within one run only; the median over the runs is judged.
//! 2. A ratio of two measurements within a tenth of its bar needs ten runs at least. It misses the bar only
//!    if the whole 95 % interval of the median does.

use super::results::{Calibration, Line, Measured};
use super::rows;
use super::table::median;

/// The store that is judged.
pub(super) const OURS: &str = "trine";

/// The same store with a hashed keyspace.
pub(super) const HASHED: &str = "trine-hashed";

/// The driver without a store.
pub(super) const NULL: &str = "null";

/// The fastest row of one executor.
const BEST_BLOCK_ON: &str = "in flight: block_on, best depth";
const BEST_TOKIO: &str = "in flight: tokio, best depth";

/// Every row.
const ANY_ROW: &str = "every row";

/// A ratio this close to its bar is too close for few runs.
const CLOSE: f64 = 0.1;

/// The least number of runs for a verdict on a close ratio.
const RUNS_MIN: usize = 10;

/// Resident memory that is allowed beside the total.
const BESIDE_BYTES: f64 = (64_u64 << 20) as f64;

/// The rate at which an opening replays a log.
const REPLAY_BYTES_A_SECOND: f64 = 150e6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Figure {
    Rate,
    /// Bytes of keys and values a second.
    Bytes,
    Seconds,
    P50,
    P99,
    P9999,
    Longest,
    WrittenWithoutLog,
    /// Device reads per operation.
    Reads,
    Anonymous,
    /// Processor time per million operations.
    Cpu,
    More(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    AtLeast,
    AtMost,
}

/// The figure that the factor multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Against {
    /// None: the factor is the bar.
    One,
    /// The same figure of another store.
    Store(&'static str),
    /// The same figure of another store in another row.
    Other(&'static str, &'static str),
    /// The best of the same figures of all other stores.
    Peers,
    /// The same figure of another store, in its fastest row of this kind.
    Best(&'static str, Kind),
    /// The same figure of Trine in another row.
    Own(&'static str),
    /// Random reads of the device, with so many in flight.
    DeviceReads(u64),
    DeviceSequential,
    DeviceSyncs,
    /// The total of memory, and the memory allowed beside it.
    Memory,
    /// One second, and the replay of the log.
    Replay,
}

/// Ways to have several gets in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Threads,
    Together,
    BlockOn,
    Tokio,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    pub(super) row: &'static str,
    pub(super) figure: Figure,
    pub(super) side: Side,
    pub(super) factor: f64,
    pub(super) against: Against,
}

const fn least(row: &'static str, figure: Figure, factor: f64, against: Against) -> Bar {
    Bar { row, figure, side: Side::AtLeast, factor, against }
}

const fn most(row: &'static str, figure: Figure, factor: f64, against: Against) -> Bar {
    Bar { row, figure, side: Side::AtMost, factor, against }
}

const ROCKSDB: Against = Against::Store("rocksdb");
const ROCKSDB_THREADS: Against = Against::Best("rocksdb", Kind::Threads);
const ROCKSDB_TOGETHER: Against = Against::Best("rocksdb", Kind::Together);

pub(super) const BARS: [Bar; 71] = [
    least(rows::LOAD, Figure::Rate, 2.5, ROCKSDB),
    most(rows::LOAD, Figure::WrittenWithoutLog, 1.0, ROCKSDB),
    most(rows::LOAD, Figure::P9999, 10e6, Against::One),
    most(rows::LOAD, Figure::Longest, 250e6, Against::One),
    least(rows::FILLSEQ, Figure::Rate, 1.0, ROCKSDB),
    least(rows::FILLSEQ, Figure::Rate, 1.0, Against::Own(rows::LOAD)),
    least(rows::SYNCED, Figure::Rate, 0.8, Against::DeviceSyncs),
    least(rows::SYNCED, Figure::Rate, 1.0, Against::Peers),
    least(rows::SYNCED_MANY, Figure::Rate, 5.0, Against::DeviceSyncs),
    least(rows::SYNCED_MANY, Figure::Rate, 1.0, Against::Peers),
    least(rows::GET, Figure::Rate, 3.5, ROCKSDB),
    least(rows::GET, Figure::Rate, 1.5, Against::Store("lmdb")),
    least(rows::MULTI, Figure::Rate, 6.0, ROCKSDB),
    least(rows::GET_ABSENT, Figure::Rate, 2.5, ROCKSDB),
    least(rows::GET_ABSENT, Figure::Rate, 2.5, Against::Store("fjall")),
    least(rows::SCAN, Figure::Rate, 3.0, ROCKSDB),
    least(rows::SCAN, Figure::Rate, 1.5, Against::Store("lmdb")),
    least(rows::RANGE, Figure::Rate, 1.2, Against::Store("lmdb")),
    least(rows::RANGE, Figure::Rate, 1.2, Against::Store("redb")),
    least(rows::QUEUE_POP, Figure::Rate, 1.0, Against::Store("redb")),
    least(rows::COLD_GET, Figure::Rate, 0.9, Against::Own(rows::COLD_BARE)),
    most(rows::COLD_GET, Figure::Reads, 1.02, Against::One),
    least(rows::COLD_MULTI, Figure::Rate, 3.0, ROCKSDB),
    least(rows::COLD_SCAN, Figure::Rate, 2.0, ROCKSDB),
    least(rows::COLD_ALL, Figure::Bytes, 0.8, Against::DeviceSequential),
    least(rows::GET_TWO, Figure::Rate, 1.9, Against::Own(rows::GET)),
    most(rows::BESIDE, Figure::P99, 1.0, ROCKSDB),
    least(rows::BESIDE, Figure::Rate, 2.0, ROCKSDB),
    least(rows::YCSB_LOAD, Figure::Rate, 1.0, Against::Peers),
    least(rows::YCSB_A, Figure::Rate, 1.0, Against::Peers),
    least(rows::YCSB_B, Figure::Rate, 1.0, Against::Peers),
    least(rows::YCSB_C, Figure::Rate, 1.0, Against::Peers),
    least(rows::YCSB_D, Figure::Rate, 1.0, Against::Peers),
    least(rows::YCSB_E, Figure::Rate, 1.0, Against::Peers),
    least(rows::YCSB_F, Figure::Rate, 1.0, Against::Peers),
    most(rows::QUEUE_AFTER, Figure::P99, 2.0, Against::Own(rows::QUEUE_BEFORE)),
    most(rows::QUEUE_SETTLED, Figure::P99, 2.0, Against::Own(rows::QUEUE_BEFORE)),
    most(rows::REOPEN, Figure::Seconds, 1.0, Against::Replay),
    most(ANY_ROW, Figure::Anonymous, 1.0, Against::Memory),
    most(rows::SPACE, Figure::More(rows::SPACE_SETTLED_WORST), 1.2, Against::One),
    most(rows::SPACE, Figure::More(rows::SPACE_COMPACTED), 1.07, Against::One),
    least(BEST_BLOCK_ON, Figure::Rate, 0.92, Against::DeviceReads(128)),
    least(BEST_TOKIO, Figure::Rate, 0.88, Against::DeviceReads(128)),
    least(BEST_BLOCK_ON, Figure::Rate, 2.7, ROCKSDB_TOGETHER),
    least(BEST_BLOCK_ON, Figure::Rate, 6.0, Against::Other("rocksdb", rows::FLIGHT_ONE)),
    least(BEST_BLOCK_ON, Figure::Rate, 1.4, ROCKSDB_THREADS),
    most(BEST_BLOCK_ON, Figure::Cpu, 1.0 / 3.0, ROCKSDB_THREADS),
    most(BEST_BLOCK_ON, Figure::Reads, 1.02, Against::One),
    most(rows::FLIGHT_BLOCK_ON_ONE, Figure::P50, 1.08, Against::Own(rows::FLIGHT_ONE)),
    most(rows::FLIGHT_TOKIO_ONE, Figure::P50, 1.2, Against::Own(rows::FLIGHT_ONE)),
    least(rows::GET_FUTURE, Figure::Rate, 0.8, Against::Own(rows::GET)),
    least(rows::KEYSPACES_LOAD_SOME, Figure::Rate, 0.85, Against::Own(rows::KEYSPACES_LOAD_ONE)),
    least(rows::KEYSPACES_LOAD_MANY, Figure::Rate, 0.6, Against::Own(rows::KEYSPACES_LOAD_ONE)),
    most(
        rows::KEYSPACES_LOAD_MANY,
        Figure::More(rows::SETTLE_S),
        2.0,
        Against::Own(rows::KEYSPACES_LOAD_ONE),
    ),
    least(rows::KEYSPACES_GET_MANY, Figure::Rate, 0.9, Against::Own(rows::KEYSPACES_GET_ONE)),
    most(rows::KEYSPACES_REOPEN_1_KB, Figure::Seconds, 0.3, Against::One),
    most(rows::WHOLE.drops[0], Figure::P99, 10e6, Against::One),
    most(rows::WHOLE.drops[1], Figure::P99, 10e6, Against::One),
    most(rows::WHOLE.drops[2], Figure::P99, 10e6, Against::One),
    most(rows::WHOLE.drops[0], Figure::P50, 2e6, Against::One),
    most(rows::WHOLE.drops[1], Figure::P50, 2e6, Against::One),
    most(rows::WHOLE.drops[2], Figure::P50, 2e6, Against::One),
    most(rows::WHOLE.drops[2], Figure::More(rows::FREED_S), 1.0, Against::One),
    most(rows::WHOLE.drop_of_many, Figure::P50, 1.5, Against::Own(rows::WHOLE.drops[0])),
    most(rows::WHOLE.busy[0], Figure::P99, 50e6, Against::One),
    most(rows::WHOLE.busy[1], Figure::Longest, 50e6, Against::One),
    most(rows::WHOLE.gets[1], Figure::P99, 1.05, Against::Own(rows::WHOLE.gets[0])),
    most(rows::WHOLE.scans[1], Figure::P99, 1.05, Against::Own(rows::WHOLE.scans[0])),
    least(rows::PARTITIONS_LOAD_SOME, Figure::Rate, 0.85, Against::Own(rows::PARTITIONS_LOAD_ONE)),
    least(rows::PARTITIONS_GET_MANY, Figure::Rate, 0.9, Against::Own(rows::PARTITIONS_GET_ONE)),
    most(
        rows::PARTITIONS_MEMORY_SOME,
        Figure::More(rows::ROLES_MIB),
        1.06,
        Against::Own(rows::PARTITIONS_MEMORY_ONE),
    ),
];

/// The verdict on a bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Met,
    Missed,
    TooClose,
    NotMeasured,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "**missed**",
            Verdict::TooClose => "too close to say",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A judged bar.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) bar: Bar,
    pub(super) verdict: Verdict,
    /// The ratio of each run, sorted: Trine's figure over the figure that the factor multiplies.
    pub(super) ratios: Vec<f64>,
}

/// Judges every bar by the measurements.
pub(super) fn judge(lines: &[Line]) -> Vec<Judged> {
    BARS.iter().map(|bar| judged(*bar, lines)).collect()
}

fn judged(bar: Bar, lines: &[Line]) -> Judged {
    let mut ratios: Vec<f64> = runs(lines).iter().filter_map(|run| ratio(&bar, lines, *run)).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let verdict = verdict(&bar, &ratios);
    Judged { bar, verdict, ratios }
}

fn verdict(bar: &Bar, ratios: &[f64]) -> Verdict {
    let better = |ratio: f64| bar.reached(ratio);
    let Some(middle) = median(&mut ratios.to_vec()).map(better) else { return Verdict::NotMeasured };
    let is_close = (middle - 1.0).abs() < CLOSE;
    let is_ratio = !matches!(bar.against, Against::One | Against::Memory | Against::Replay);
    if !is_close || !is_ratio {
        return if middle >= 1.0 { Verdict::Met } else { Verdict::Missed };
    }
    if ratios.len() < RUNS_MIN {
        return Verdict::TooClose;
    }
    let (low, high) = interval(ratios);
    if better(low).max(better(high)) < 1.0 { Verdict::Missed } else { Verdict::Met }
}

/// The 95 % interval of the median of sorted numbers, by the ranks of a binomial distribution with
/// probability 1/2.
fn interval(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len();
    let (mut rank, mut chance, mut below) = (0, 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX)), 0.0);
    while rank < count / 2 && 2.0 * (below + chance) <= 0.05 {
        below += chance;
        chance *= (count - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    let first = rank.saturating_sub(1);
    (sorted[first], sorted[count - 1 - first])
}

/// All runs, in order.
pub(super) fn runs(lines: &[Line]) -> Vec<u64> {
    let mut runs: Vec<u64> = measured(lines).map(|one| one.run).collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}

pub(super) fn measured(lines: &[Line]) -> impl Iterator<Item = &Measured> {
    lines.iter().filter_map(|line| if let Line::Measured(one) = line { Some(&**one) } else { None })
}

/// The measurement of a store in a row of a run, if the row was done; the last one if there are several.
pub(super) fn find<'a>(lines: &'a [Line], run: u64, row: &str, store: &str) -> Option<&'a Measured> {
    let is_it = |one: &&Measured| one.run == run && one.row == row && one.store == store && one.is_done();
    measured(lines).filter(is_it).last()
}

/// Trine's figure over the figure that the factor multiplies, in one run.
fn ratio(bar: &Bar, lines: &[Line], run: u64) -> Option<f64> {
    if bar.row == ANY_ROW {
        let all = measured(lines).filter(|one| one.run == run && one.store == OURS);
        return all
            .map(|one| one.anonymous_bytes as f64 / (one.memory_bytes as f64 + BESIDE_BYTES))
            .reduce(f64::max);
    }
    let ours = match bar.row {
        BEST_BLOCK_ON => fastest(lines, run, OURS, Kind::BlockOn)?,
        BEST_TOKIO => fastest(lines, run, OURS, Kind::Tokio)?,
        row => find(lines, run, row, OURS)?,
    };
    let figure = |one: &Measured| value(bar.figure, one);
    let device = |of: &dyn Fn(&Calibration) -> Option<f64>| {
        let all = lines.iter().filter_map(|line| match line {
            Line::Device(one) if one.run == run => of(one),
            _ => None,
        });
        median(&mut all.collect::<Vec<f64>>())
    };
    let theirs = match bar.against {
        Against::One => 1.0,
        Against::Store(store) => figure(find(lines, run, bar.row, store)?)?,
        Against::Peers => best(bar, lines, run)?,
        Against::Other(store, row) => figure(find(lines, run, row, store)?)?,
        Against::Best(store, kind) => figure(fastest(lines, run, store, kind)?)?,
        Against::Own(row) => figure(find(lines, run, row, OURS)?)?,
        Against::DeviceReads(depth) => device(&|one| one.random_reads.get(&depth).copied())?,
        Against::DeviceSequential => device(&|one| Some(one.sequential_read_bytes))?,
        Against::DeviceSyncs => device(&|one| Some(one.syncs))?,
        Against::Memory => ours.memory_bytes as f64 + BESIDE_BYTES,
        Against::Replay => {
            let items = ours.more.get(rows::LOG_ITEMS)?;
            1.0 + items * ours.item_bytes as f64 / REPLAY_BYTES_A_SECOND
        }
    };
    Some(figure(ours)? / theirs.max(1e-12))
}

/// The fastest row of this kind.
fn fastest<'a>(lines: &'a [Line], run: u64, store: &str, kind: Kind) -> Option<&'a Measured> {
    let is_kind = |way: rows::Way| match kind {
        Kind::Threads => matches!(way, rows::Way::Threads(_)),
        Kind::Together => matches!(way, rows::Way::Together(_)),
        Kind::BlockOn => matches!(way, rows::Way::BlockOn(_)),
        Kind::Tokio => matches!(way, rows::Way::Tokio(_)),
    };
    let all = rows::FLIGHT.iter().filter(|one| is_kind(one.way));
    let all = all.filter_map(|one| find(lines, run, one.cold, store));
    all.max_by(|one, other| one.rate().total_cmp(&other.rate()))
}

/// Whether a store is neither ours nor `null`.
pub(super) fn is_peer(store: &str) -> bool {
    ![OURS, HASHED, NULL].contains(&store)
}

/// The best figure of the other stores.
fn best(bar: &Bar, lines: &[Line], run: u64) -> Option<f64> {
    let others = measured(lines)
        .filter(|one| one.run == run && one.row == bar.row && is_peer(&one.store))
        .filter(|one| one.is_done());
    let figures = others.filter_map(|one| value(bar.figure, one));
    figures.reduce(if bar.side == Side::AtLeast { f64::max } else { f64::min })
}

fn value(figure: Figure, one: &Measured) -> Option<f64> {
    let latency =
        |pick: fn(&super::record::Latency) -> u64| one.latency_ns.as_ref().map(|all| pick(all) as f64);
    match figure {
        Figure::Rate => Some(one.rate()),
        Figure::Bytes => Some(one.rate() * one.item_bytes as f64),
        Figure::Seconds => Some(one.seconds),
        Figure::P50 => latency(|all| all.p50),
        Figure::P99 => latency(|all| all.p99),
        Figure::P9999 => latency(|all| all.p9999),
        Figure::Longest => latency(|all| all.max),
        Figure::WrittenWithoutLog => one.amplification_without_log,
        Figure::Reads => one.device_reads.or(one.kernel_reads),
        Figure::Anonymous => Some(one.anonymous_bytes as f64),
        Figure::Cpu => Some(one.cpu_seconds_a_million),
        Figure::More(name) => one.more.get(name).copied(),
    }
}

impl Judged {
    /// Whether the median does not reach the bar, even if by too little to call the bar missed.
    pub(super) fn is_short(&self) -> bool {
        median(&mut self.ratios.clone()).is_some_and(|middle| self.bar.reached(middle) < 1.0)
    }
}

impl Bar {
    /// How many times better than the bar the ratio is; 1 just reaches it.
    fn reached(&self, ratio: f64) -> f64 {
        match self.side {
            Side::AtLeast => ratio / self.factor,
            Side::AtMost => self.factor / ratio.max(1e-12),
        }
    }

    /// The bar in words.
    pub(super) fn told(&self) -> String {
        let what = match self.figure {
            Figure::Rate => "operations a second",
            Figure::Bytes => "bytes a second",
            Figure::Seconds => "seconds",
            Figure::P50 => "p50",
            Figure::P99 => "p99",
            Figure::P9999 => "p99.99",
            Figure::Longest => "the longest",
            Figure::WrittenWithoutLog => "write amplification without log",
            Figure::Reads => "device reads each",
            Figure::Anonymous => "anonymous resident memory",
            Figure::Cpu => "processor time of a million",
            Figure::More(rows::SPACE_SETTLED_WORST) => {
                "table bytes over keys and values, the worst of ten points, settled at each"
            }
            Figure::More(rows::SETTLE_S) => "seconds until settled",
            Figure::More(rows::SPACE_COMPACTED) => "table bytes over keys and values, compacted",
            Figure::More(name) => name,
        };
        let side = if self.side == Side::AtLeast { "at least" } else { "at most" };
        let times = |whose: &str| format!("{} × {whose}", (self.factor * 1e3).round() / 1e3);
        let whole = match self.against {
            Against::One if matches!(self.figure, Figure::P9999 | Figure::Longest) => {
                format!("{} ms", self.factor / 1e6)
            }
            Against::One => format!("{}", self.factor),
            Against::Store(store) => times(store),
            Against::Peers => times("the best peer"),
            Against::Own(row) => times(&format!("ours in \"{row}\"")),
            Against::Other(store, row) => times(&format!("{store}'s in \"{row}\"")),
            Against::Best(store, Kind::Threads) => {
                times(&format!("{store}'s with its best number of threads"))
            }
            Against::Best(store, Kind::Together) => {
                times(&format!("{store}'s with its best number of keys together"))
            }
            Against::Best(store, _) => times(&format!("{store}'s at its best depth")),
            Against::DeviceReads(depth) => times(&format!("the device at depth {depth}")),
            Against::DeviceSequential => times("the device in order"),
            Against::DeviceSyncs => times("the device's synced overwrites"),
            Against::Memory => "memory and 64 MiB".to_owned(),
            Against::Replay => "1 s and the log at 150 MB/s".to_owned(),
        };
        format!("{what} {side} {whole}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(run: u64, row: &str, store: &str, operations: u64) -> Line {
        let (row, store) = (row.to_owned(), store.to_owned());
        Line::Measured(Box::new(Measured {
            run,
            row,
            store,
            operations,
            seconds: 1.0,
            ..Measured::default()
        }))
    }

    fn of(bar: &Bar, pairs: &[(u64, u64)]) -> Judged {
        let both = |(run, (ours, theirs)): (u64, &(u64, u64))| {
            [line(run, bar.row, OURS, *ours), line(run, bar.row, "rocksdb", *theirs)]
        };
        let lines: Vec<Line> = (1..).zip(pairs).flat_map(both).collect();
        judged(*bar, &lines)
    }

    /// A bar is met, missed, or too close for few runs; ten runs decide, and only a whole interval misses.
    #[test]
    fn bars_are_judged() {
        let bar = least(rows::GET, Figure::Rate, 2.0, ROCKSDB);
        assert_eq!(of(&bar, &[]).verdict, Verdict::NotMeasured);
        assert_eq!(of(&bar, &[(250, 100), (300, 100), (100, 100)]).verdict, Verdict::Met);
        assert_eq!(of(&bar, &[(150, 100)]).verdict, Verdict::Missed);
        assert_eq!(of(&bar, &[(195, 100), (205, 100)]).verdict, Verdict::TooClose);
        assert_eq!(of(&bar, &[(190, 100); 10]).verdict, Verdict::Missed);
        let mut mixed = [(190, 100); 10];
        (mixed[0], mixed[1]) = ((201, 100), (202, 100));
        assert_eq!((of(&bar, &mixed).verdict, of(&bar, &mixed).is_short()), (Verdict::Met, true));
        assert!(!of(&bar, &[(250, 100)]).is_short());
        mixed[1] = mixed[2];
        assert_eq!(of(&bar, &mixed).verdict, Verdict::Missed);
    }

    /// Figures that should be small are judged the other way round.
    #[test]
    fn small_is_better_where_it_says() {
        let bar = most(rows::GET, Figure::Rate, 2.0, ROCKSDB);
        assert_eq!(of(&bar, &[(150, 100)]).verdict, Verdict::Met);
        assert_eq!(of(&bar, &[(250, 100)]).verdict, Verdict::Missed);
        assert_eq!(of(&bar, &[(205, 100)]).verdict, Verdict::TooClose);
        assert_eq!(of(&bar, &[(215, 100); 10]).verdict, Verdict::Missed);
    }

    /// The best peer is neither ours nor `null`, and figures of different runs are never compared.
    #[test]
    fn peers_are_of_the_same_run() {
        let bar = least(rows::GET, Figure::Rate, 1.0, Against::Peers);
        let lines = [
            line(1, rows::GET, OURS, 100),
            line(1, rows::GET, "lmdb", 50),
            line(1, rows::GET, "redb", 80),
            line(1, rows::GET, NULL, 900),
            line(2, rows::GET, "redb", 9000),
        ];
        let judged = judged(bar, &lines);
        assert_eq!((judged.ratios, judged.verdict), (vec![1.25], Verdict::Met));
    }

    /// A row is compared with the row that has the best rate of its kind, for every figure, and never with a
    /// row of another memory size.
    #[test]
    fn the_fastest_row_is_found() {
        let with_cpu = |row: &str, store: &str, rate, cpu| {
            let mut line = line(1, row, store, rate);
            if let Line::Measured(one) = &mut line {
                one.cpu_seconds_a_million = cpu;
            }
            line
        };
        let row = |way| rows::FLIGHT.iter().find(|one| one.way == way).expect("there is such a row");
        let (four, sixteen) = (row(rows::Way::Threads(4)), row(rows::Way::Threads(16)));
        let lines = [
            with_cpu(row(rows::Way::BlockOn(64)).cold, OURS, 900, 5.0),
            with_cpu(row(rows::Way::BlockOn(128)).cold, OURS, 800, 1.0),
            with_cpu(row(rows::Way::Tokio(128)).cold, OURS, 5000, 1.0),
            with_cpu(four.cold, "rocksdb", 200, 10.0),
            with_cpu(sixteen.cold, "rocksdb", 300, 20.0),
            with_cpu(sixteen.half, "rocksdb", 5000, 1.0),
            with_cpu(row(rows::Way::Together(64)).cold, "rocksdb", 450, 1.0),
            with_cpu(rows::FLIGHT_ONE, "rocksdb", 90, 1.0),
            Line::Device(Calibration {
                run: 1,
                random_reads: [(1, 9.0), (128, 1000.0)].into(),
                ..Calibration::default()
            }),
        ];
        let ratio = |figure, against| judged(least(BEST_BLOCK_ON, figure, 1.0, against), &lines).ratios;
        assert_eq!(ratio(Figure::Rate, ROCKSDB_THREADS), [3.0]);
        assert_eq!(ratio(Figure::Cpu, ROCKSDB_THREADS), [0.25]);
        assert_eq!(ratio(Figure::Rate, ROCKSDB_TOGETHER), [2.0]);
        assert_eq!(ratio(Figure::Rate, Against::Other("rocksdb", rows::FLIGHT_ONE)), [10.0]);
        assert_eq!(ratio(Figure::Rate, Against::DeviceReads(128)), [0.9]);
    }

    /// Bars against numbers, the device, memory and the log are judged.
    #[test]
    fn all_kinds_are_judged() {
        let mut reopened =
            Measured { run: 1, row: rows::REOPEN.into(), operations: 1, ..Measured::default() };
        reopened.store = OURS.into();
        reopened.more.insert(rows::LOG_ITEMS.into(), 150e6 / 116.0);
        (reopened.seconds, reopened.anonymous_bytes, reopened.memory_bytes) = (3.0, 96 << 20, 128 << 20);
        reopened.item_bytes = 116;
        let device = Calibration { run: 1, syncs: 10.0, ..Calibration::default() };
        let lines = [
            Line::Measured(Box::new(reopened)),
            Line::Device(device.clone()),
            Line::Device(Calibration { syncs: 30.0, is_after: true, ..device }),
            line(1, rows::SYNCED, OURS, 18),
        ];
        let of = |row, against| {
            let found = BARS.iter().find(|bar| bar.row == row && bar.against == against);
            judged(*found.expect("there is such a bar"), &lines)
        };
        assert_eq!(of(rows::REOPEN, Against::Replay).ratios, [1.5]);
        assert_eq!(of(rows::REOPEN, Against::Replay).verdict, Verdict::Missed);
        assert_eq!(of(ANY_ROW, Against::Memory).ratios, [0.5]);
        assert_eq!(of(ANY_ROW, Against::Memory).verdict, Verdict::Met);
        assert_eq!(of(rows::SYNCED, Against::DeviceSyncs).ratios, [0.9]);
        assert_eq!(of(rows::SYNCED, Against::DeviceSyncs).verdict, Verdict::Met);
    }

    /// The interval of ten numbers is from the second to the ninth.
    #[test]
    fn intervals_are_those_of_ranks() {
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(interval(&ten), (2.0, 9.0));
        let many: Vec<f64> = (1..=30).map(f64::from).collect();
        assert_eq!(interval(&many), (10.0, 21.0));
    }

    /// Every bar is for a measured row, and its text says the comparison.
    #[test]
    fn bars_are_for_rows() {
        for bar in BARS {
            assert!(
                [ANY_ROW, BEST_BLOCK_ON, BEST_TOKIO].contains(&bar.row)
                    || rows::all_rows().any(|row| row == bar.row),
                "{}",
                bar.row
            );
            assert!(bar.told().contains(" at "), "{}", bar.told());
        }
        assert_eq!(BARS[0].told(), "operations a second at least 2.5 × rocksdb");
        assert_eq!(BARS[2].told(), "p99.99 at most 10 ms");
    }
}
