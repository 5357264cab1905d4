//! Figures of parallel search by two threads: times of both parts, ways to search them, and lost items.
//!
//! `parallel_threads` measures the numbers; this module makes rows, pictures and claims of them.

use trine_workload::plot::{Axis, Bars};
use trine_workload::text::{count, nanoseconds};

use super::lsmtrie_cold::Keys;
use super::parallel_threads::{Outcome, PAIRS, Race, Times, Tried, Views, Way};
use super::{Claim, Figure, Picture, Verdict, a_second, percent, signed};

pub(super) fn all(times: &[Times], tried: &[Tried], races: &[(Views, Race)]) -> Vec<Figure> {
    vec![parts(times), ways(tried), lost(races)]
}

fn memory(is_paged: bool) -> &'static str {
    if is_paged { "filters paged" } else { "filters in memory" }
}

/// Figures 2 and 3.
fn parts(times: &[Times]) -> Figure {
    let row = |one: &Times| {
        vec![
            memory(one.is_paged).to_string(),
            one.keys.name().to_string(),
            nanoseconds(one.upper_ns as u64),
            nanoseconds(one.last_ns as u64),
            format!("{:.2}", one.upper_ns / one.last_ns.max(1.0)),
        ]
    };
    let of = |is_paged, keys| {
        let one = times.iter().find(|one| (one.is_paged, one.keys) == (is_paged, keys));
        one.map_or(0.0, |one| one.upper_ns / one.last_ns.max(1.0))
    };
    let (paged, pinned) = (of(true, Keys::Uniform), of(false, Keys::Uniform));
    let groups = times.iter().map(|one| format!("{}, {}", memory(one.is_paged), one.keys.name())).collect();
    let values = |value: fn(&Times) -> f64| times.iter().map(|one| Some(value(one))).collect();
    Figure {
        name: "parallel-times",
        title: "Figures 2 and 3: mean time of a search of each part alone".to_string(),
        header: ["memory", "keys", "upper", "last", "upper over last"].map(str::to_string).to_vec(),
        rows: times.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title: "Mean time of a search of each part".to_string(),
            y: Axis::linear("nanoseconds"),
            groups,
            series: vec![
                ("upper".to_string(), values(|one| one.upper_ns)),
                ("last".to_string(), values(|one| one.last_ns)),
            ],
        }),
        claims: vec![
            Claim {
                paper:
                    "32 GB: a search of the upper levels takes about as long as one of the last with Zipf, \
                        and somewhat less with uniform keys"
                        .to_string(),
                ours: format!("{pinned:.2} of it uniform, {:.2} Zipf", of(false, Keys::Zipf)),
                verdict: Verdict::of(pinned > 0.5),
                reason:
                    "agrees if upper takes at least half as long; filters in memory answer for upper in a \
                         microsecond"
                        .to_string(),
            },
            Claim {
                paper: "4 GB: much longer than one of the last with uniform keys, about as long with Zipf"
                    .to_string(),
                ours: format!("{paged:.2} of it uniform, {:.2} Zipf", of(true, Keys::Zipf)),
                verdict: Verdict::of(paged > 1.0),
                reason:
                    "a page of upper's filters costs a read, and so does one of last's; last reads a block \
                         as well"
                        .to_string(),
            },
        ],
    }
}

/// A part of all gets, in percent.
fn part(some: u64, all: u64) -> String {
    format!("{:.1} %", 100.0 * some as f64 / all.max(1) as f64)
}

/// The ways: serial, joined and printed.
fn ways(tried: &[Tried]) -> Figure {
    let header = [
        "memory",
        "keys",
        "way",
        "pairs or threads",
        "gets a second",
        "p50",
        "p99",
        "p99.9",
        "reads a get",
        "unfinished",
        "last never searched",
        "wrong",
    ];
    let row = |one: &Tried| {
        let outcome = &one.outcome;
        let mut row = vec![
            memory(one.is_paged).to_string(),
            one.keys.name().to_string(),
            one.way.name().to_string(),
            one.pairs.to_string(),
            a_second(outcome.rate()),
        ];
        row.extend([500, 990, 999].map(|part| nanoseconds(outcome.permille_ns(part))));
        row.extend([
            format!("{:.2}", outcome.device_reads as f64 / outcome.gets.max(1) as f64),
            part(outcome.unfinished, outcome.gets),
            part(outcome.never_made, outcome.gets),
            count(outcome.wrong),
        ]);
        row
    };
    let groups = [(true, 1), (true, PAIRS), (false, 1), (false, PAIRS)];
    let rate = |way: Way, (is_paged, pairs): (bool, usize)| {
        let same = |one: &&Tried| (one.way, one.is_paged, one.pairs) == (way, is_paged, pairs);
        tried.iter().filter(same).find(|one| one.keys == Keys::Uniform).map(|one| one.outcome.rate())
    };
    let series = [Way::Serial, Way::Joined, Way::Printed, Way::Literal]
        .map(|way| (way.name().to_string(), groups.iter().map(|group| rate(way, *group)).collect()));
    Figure {
        name: "parallel-pairs",
        title: "Two threads a get: serial, joined, and as printed".to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: tried.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title: "Gets counted a second, uniform keys".to_string(),
            y: Axis::linear("gets a second"),
            groups: groups
                .iter()
                .map(|(is_paged, pairs)| format!("{}, {pairs}", memory(*is_paged)))
                .collect(),
            series: series.to_vec(),
        }),
        claims: claims_of_ways(tried),
    }
}

/// The measurements with uniform keys.
struct Uniform<'t>(&'t [Tried]);

impl Uniform<'_> {
    fn outcome(&self, way: Way, is_paged: bool, pairs: usize) -> Option<&Outcome> {
        let same = |one: &&Tried| (one.way, one.is_paged, one.pairs) == (way, is_paged, pairs);
        self.0.iter().filter(same).find(|one| one.keys == Keys::Uniform).map(|one| &one.outcome)
    }

    /// The increase of a way's rate over the serial one's, in percent.
    fn gain(&self, way: Way, is_paged: bool, pairs: usize) -> f64 {
        let rate = |way| self.outcome(way, is_paged, pairs).map_or(0.0, Outcome::rate);
        percent(rate(way), rate(Way::Serial).max(1e-9))
    }

    fn gains(&self, way: Way) -> String {
        let gain = |is_paged, pairs| signed(self.gain(way, is_paged, pairs));
        format!(
            "paged {} with one pair, {} with {PAIRS}; in memory {} and {}",
            gain(true, 1),
            gain(true, PAIRS),
            gain(false, 1),
            gain(false, PAIRS)
        )
    }

    /// The gets that a printed way leaves unanswered or answers wrongly.
    fn undone(&self, way: Way) -> String {
        let Some(one) = self.outcome(way, false, PAIRS) else { return String::new() };
        format!(
            "in memory with {PAIRS} pairs {} of the gets have no answer when they are counted, {} are never \
             searched for in the last part, {} answers are wrong",
            part(one.unfinished, one.gets),
            part(one.never_made, one.gets),
            one.wrong
        )
    }
}

fn claims_of_ways(tried: &[Tried]) -> Vec<Claim> {
    let uniform = Uniform(tried);
    let sum = |ways: [Way; 2], value: fn(&Outcome) -> u64| -> u64 {
        tried.iter().filter(|one| ways.contains(&one.way)).map(|one| value(&one.outcome)).sum()
    };
    let wrong = sum([Way::Serial, Way::Joined], |outcome| outcome.wrong);
    let unfinished = sum([Way::Printed, Way::Literal], |outcome| outcome.unfinished);
    let handoff = uniform.outcome(Way::Handoff, true, 1).map_or(0, |one| one.permille_ns(500));
    let literal = uniform.outcome(Way::Literal, true, 1);
    vec![
        Claim {
            paper: "two threads, joined: the newer part decides, a null waits for the other".to_string(),
            ours: format!("{wrong} wrong answers; joined over serial: {}", uniform.gains(Way::Joined)),
            verdict: Verdict::of(wrong == 0 && uniform.gain(Way::Joined, true, 1) > 0.0),
            reason: format!(
                "agrees if no answer is wrong and a pair gains with paged filters; a hand-off and back takes \
                 {} here, and a pair has two processors' time a get",
                nanoseconds(handoff)
            ),
        },
        Claim {
            paper: "algorithms 2 and 3 serve each search: +71.55 % on average".to_string(),
            ours: format!(
                "the wait mended: {}; {}",
                uniform.gains(Way::Printed),
                uniform.undone(Way::Printed)
            ),
            verdict: Verdict::of(unfinished == 0),
            reason: "the first thread counts a search when its own part is done and begins the next; agrees \
                     only if no get is counted without an answer"
                .to_string(),
        },
        Claim {
            paper: "algorithm 3: the second thread waits while the flag that starts it is set".to_string(),
            ours: format!("as it stands: {}; {}", uniform.gains(Way::Literal), uniform.undone(Way::Literal)),
            verdict: Verdict::of(literal.is_some_and(|one| one.never_made == 0)),
            reason: "nothing clears the flag, so the second thread sleeps from the first search on"
                .to_string(),
        },
    ]
}

/// Items that a move hides from both searches.
fn lost(races: &[(Views, Race)]) -> Figure {
    let name = |views: Views| match views {
        Views::Two => "each search has its own moment",
        Views::One => "both have one snapshot",
    };
    let row = |(views, race): &(Views, Race)| {
        vec![
            name(*views).to_string(),
            count(race.moves),
            count(race.gets),
            count(race.lost),
            a_second(race.gets as f64 / race.seconds.max(1e-9)),
        ]
    };
    let of =
        |views: Views| races.iter().find(|(one, _)| *one == views).map_or(Race::default(), |(_, race)| *race);
    let (two, one) = (of(Views::Two), of(Views::One));
    Figure {
        name: "parallel-lost",
        title: "Items that move to the last part while both are searched".to_string(),
        header: ["views", "moves", "gets", "lost", "gets a second"].map(str::to_string).to_vec(),
        rows: races.iter().map(row).collect(),
        picture: Picture::Bars(Bars {
            title: "Gets that miss a present item".to_string(),
            y: Axis::linear("gets"),
            groups: races.iter().map(|(views, _)| name(*views).to_string()).collect(),
            series: vec![(
                "lost".to_string(),
                races.iter().map(|(_, race)| Some(race.lost as f64)).collect(),
            )],
        }),
        claims: vec![Claim {
            paper: "both searches are calls of their own; the result is the newest version".to_string(),
            ours: format!(
                "{} of {} gets lose a present item with two moments, {} of {} with one",
                count(two.lost),
                count(two.gets),
                count(one.lost),
                count(one.gets)
            ),
            verdict: Verdict::of(two.lost == 0),
            reason:
                "the last part is asked before a move and the upper one after it; all lanes of a get of the \
                     store are of one view"
                    .to_string(),
        }],
    }
}
