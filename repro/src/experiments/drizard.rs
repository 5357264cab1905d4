//! Drizard's architectures: sizes of C0 and ratios, under three skews.
//!
//! 10^6 items of a 4-byte key and a 32-byte value are created in random order, then read and updated:
//! uniformly, with 80 % of the operations on the 20 % of the keys created first, and likewise on those
//! created last. The engine maps its files and does not sync, as in the paper.

use trine::lab::Preset;
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::plot::{Axis, Bars};

use super::{Claim, Figure, Job, Picture, Verdict, a_second, read_rounds};
use crate::lab::{Subject, Target, insert, shuffled};

/// Items of the paper.
pub(super) const ITEMS: u64 = 1_000_000;
/// The length of the paper's values.
pub(super) const VALUE_BYTES: usize = 32;

/// LSMT1 to LSMT6: items in memory, and the ratio.
const ARCHITECTURES: [(u64, u64); 6] = [(500, 3), (500, 5), (500, 7), (1000, 3), (1000, 5), (1000, 7)];

/// The distribution of operations over keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Skew {
    Uniform,
    /// Four of five operations go to the fifth of the keys created first.
    First,
    Last,
}

impl Skew {
    const ALL: [Skew; 3] = [Skew::Uniform, Skew::First, Skew::Last];

    fn name(self) -> &'static str {
        match self {
            Skew::Uniform => "uniform",
            Skew::First => "80 % on the first 20 %",
            Skew::Last => "80 % on the last 20 %",
        }
    }

    /// A random index into the order in which keys were created.
    pub(super) fn draw(self, count: u64, dice: &mut Dice) -> usize {
        let fifth = (count / 5).max(1);
        let index = match self {
            Skew::First if dice.below(5) < 4 => dice.below(fifth),
            Skew::Last if dice.below(5) < 4 => count - 1 - dice.below(fifth),
            _ => dice.below(count),
        };
        index as usize
    }
}

/// Drizard's preset with the paper's settings.
pub(super) fn drizard() -> Result<Target, Failure> {
    Target::of(Preset::Drizard).with("sync", "off")
}

/// The rates of one architecture.
struct Rates {
    name: String,
    creates: f64,
    /// By skew.
    reads: [f64; 3],
    updates: [f64; 3],
}

fn measure(job: &mut Job, name: String, target: &Target) -> Result<Rates, Failure> {
    let (items, operations) = (job.scaled(ITEMS, 1000), job.scaled(ITEMS / 5, 1000));
    let place = job.workshop.place();
    let mut subject = target.open(&place)?;
    let mut dice = Dice::new(job.seed);
    let order = shuffled(items, &mut dice);
    job.step(format!("{name}: creating"));
    let creates = insert(&mut subject, order.iter().copied(), VALUE_BYTES)?;
    subject.settle()?;
    let (mut reads, mut updates) = ([0.0; 3], [0.0; 3]);
    for (rate, skew) in reads.iter_mut().zip(Skew::ALL) {
        *rate = read(&subject, &order, operations, skew, &mut dice)?;
    }
    job.step(format!("{name}: updating"));
    for (rate, skew) in updates.iter_mut().zip(Skew::ALL) {
        let keys: Vec<u32> = (0..items).map(|_| order[skew.draw(items, &mut dice)]).collect();
        *rate = insert(&mut subject, keys.iter().copied(), VALUE_BYTES)?;
    }
    subject.close()?;
    job.workshop.clear(&place)?;
    Ok(Rates { name, creates, reads, updates })
}

/// Reads of present keys.
fn read(subject: &Subject, order: &[u32], count: u64, skew: Skew, dice: &mut Dice) -> Result<f64, Failure> {
    let keys: Vec<u32> = (0..count).map(|_| order[skew.draw(order.len() as u64, dice)]).collect();
    let (rate, found) = read_rounds(subject, &keys)?;
    if found == count { Ok(rate) } else { Err(Failure::Other(format!("{found} of {count} keys were found"))) }
}

/// The six architectures, the untested 2.7, and the store itself.
pub(super) fn architectures(job: &mut Job) -> Result<Vec<Figure>, Failure> {
    let mut targets = Vec::new();
    for (index, (memory_items, ratio)) in ARCHITECTURES.into_iter().enumerate() {
        let target = drizard()?.with("memory_items", memory_items)?.with("ratio", ratio)?;
        targets.push((format!("LSMT{} ({memory_items}, {ratio})", index + 1), target));
    }
    let arrays = drizard()?.with("buffer", "off")?.with("arrays", 5)?.with("merge", "heap")?;
    targets.push(("2.7 (1000, 5 arrays)".to_string(), arrays));
    targets.push(("default".to_string(), Target::store(VALUE_BYTES)));
    job.steps(2 * targets.len());
    let mut all = Vec::new();
    for (name, target) in targets {
        all.push(measure(job, name, &target)?);
    }
    let six = &all[..ARCHITECTURES.len()];
    let reads =
        figure(&all, "drizard-fig3-reads", "Reads a second, by architecture and skew", |one| one.reads);
    let updates =
        figure(&all, "drizard-fig4-updates", "Updates a second, by architecture and skew", |one| one.updates);
    let store = &all[all.len() - 1];
    Ok(vec![
        Figure { claims: read_claims(six, store), ..reads },
        Figure { claims: update_claims(six, store), ..updates },
    ])
}

fn figure(all: &[Rates], name: &'static str, title: &str, of: impl Fn(&Rates) -> [f64; 3]) -> Figure {
    let mut header = vec!["architecture".to_string(), "creates".to_string()];
    header.extend(Skew::ALL.map(|skew| skew.name().to_string()));
    let row = |one: &Rates| {
        let mut row = vec![one.name.clone(), a_second(one.creates)];
        row.extend(of(one).map(a_second));
        row
    };
    let series = Skew::ALL.into_iter().enumerate();
    let bars = Bars {
        title: title.to_string(),
        y: Axis::logarithmic("a second"),
        groups: all.iter().map(|one| one.name.clone()).collect(),
        series: series
            .map(|(index, skew)| {
                (skew.name().to_string(), all.iter().map(|one| Some(of(one)[index])).collect())
            })
            .collect(),
    };
    let rows = all.iter().map(row).collect();
    Figure { name, title: title.to_string(), header, rows, picture: Picture::Bars(bars), claims: Vec::new() }
}

fn mean(rates: [f64; 3]) -> f64 {
    rates.iter().sum::<f64>() / 3.0
}

fn best(all: &[Rates], of: impl Fn(&Rates) -> f64) -> &Rates {
    all.iter().max_by(|one, two| of(one).total_cmp(&of(two))).expect("there are six architectures")
}

/// A claim on a rate that the paper gives with its machine.
fn number(paper: &str, theirs: f64, ours: f64, store: f64) -> Claim {
    Claim {
        paper: format!("{paper} (2.7 GHz i5 laptop, 8 GB)"),
        ours: format!("{}; the store itself {}", a_second(ours), a_second(store)),
        verdict: Verdict::of(ours >= theirs / 2.0),
        reason: format!(
            "{:.1} times the paper's number, the store {:.0} times; the machine is another, so at least \
             half of it is taken for agreement",
            ours / theirs,
            store / theirs
        ),
    }
}

fn read_claims(six: &[Rates], store: &Rates) -> Vec<Claim> {
    let (lsmt5, top) = (&six[4], best(six, |one| mean(one.reads)));
    let share = mean(lsmt5.reads) / mean(top.reads);
    let last_is_faster = six.iter().filter(|one| one.reads[2] > one.reads[0]).count();
    vec![
        number("22.5 K reads/s", 22_500.0, mean(lsmt5.reads), mean(store.reads)),
        Claim {
            paper: "the best architecture is LSMT5 (1000, 5)".to_string(),
            ours: format!("LSMT5 has {:.0} % of the best one's reads, which is {}", share * 100.0, top.name),
            verdict: Verdict::of(share >= 0.9),
            reason: "within a tenth of the best counts as the best: runs differ by more".to_string(),
        },
        Claim {
            paper: "reads of what was made last are faster: newer components are looked into first"
                .to_string(),
            ours: format!("faster than uniform reads in {last_is_faster} of {} architectures", six.len()),
            verdict: Verdict::of(last_is_faster * 2 > six.len()),
            reason: "only the direction is known".to_string(),
        },
    ]
}

fn update_claims(six: &[Rates], store: &Rates) -> Vec<Claim> {
    let sum = |rates: &[Rates]| rates.iter().map(|one| mean(one.updates)).sum::<f64>();
    let (small, large) = (sum(&six[..3]), sum(&six[3..]));
    let (lsmt5, top) = (&six[4], best(six, |one| mean(one.updates)));
    vec![
        number("0.25 M updates/s", 250_000.0, mean(lsmt5.updates), mean(store.updates)),
        Claim {
            paper: "a larger C0 makes fewer merges, so writes are faster".to_string(),
            ours: format!("with 1000 items {:.2} times the updates of 500", large / small),
            verdict: Verdict::of(large > small),
            reason: format!("only the direction is known; the fastest is {}", top.name),
        },
    ]
}
