//! All faults in the files of one closed store, each in a fresh copy that a child process checks.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Options;
use super::damage::{self, Case, KINDS};
use super::items::{self, Made};
use super::outcome::{self, Outcome, Verdict};
use super::results::Count;
use crate::engines::{Answer, Peer, told};

/// Examples in the results, for each outcome worse than an error.
const EXAMPLES_MAX: usize = 5;

/// Makes the store in `scratch` and damages copies of it.
pub(super) fn run(peer: &Peer, options: &Options, scratch: &Path) -> Answer<Vec<Count>> {
    let made = items::make(peer, &scratch.join("made"))?;
    let whole = scratch.join("whole");
    made.image.write(&whole, None)?;
    let verdict = outcome::look(peer.name, &whole)?;
    if verdict.outcome != Outcome::Right {
        return Err(format!("{} without any damage: {verdict:?}", peer.name));
    }
    let cases = damage::cases(peer, &made, options.flips, options.seed);
    let verdicts = look_at_all(peer, &made, &cases, options, scratch)?;
    Ok(count(&cases, &verdicts))
}

/// The verdict of each case, in the order of the cases.
fn look_at_all(
    peer: &Peer,
    made: &Made,
    cases: &[Case],
    options: &Options,
    scratch: &Path,
) -> Answer<Vec<Verdict>> {
    let next = AtomicUsize::new(0);
    let verdicts: Mutex<Vec<(usize, Verdict)>> = Mutex::new(Vec::new());
    let work = |worker: usize| -> Answer<()> {
        let directory = scratch.join(format!("copy-{worker}"));
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return Ok(()) };
            made.image.write(&directory, Some((&case.file, case.bytes(made).as_deref())))?;
            let verdict = outcome::look(peer.name, &directory)?;
            keep(peer, made, case, &verdict, options)?;
            verdicts.lock().map_err(told)?.push((index, verdict));
        }
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..options.jobs).map(|worker| scope.spawn(move || work(worker))).collect();
        let results =
            workers.into_iter().map(|one| one.join().map_err(|_| "a worker panicked".to_owned())?);
        results.collect::<Answer<()>>()
    })?;
    let mut verdicts = verdicts.into_inner().map_err(told)?;
    verdicts.sort_by_key(|(index, _)| *index);
    Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}

/// Writes the damaged store, as it was before its opening, into the directory of `--keep`, if its outcome is
/// worse than an error.
fn keep(peer: &Peer, made: &Made, case: &Case, verdict: &Verdict, options: &Options) -> Answer<()> {
    let Some(directory) = options.keep.as_ref().filter(|_| verdict.outcome > Outcome::Partly) else {
        return Ok(());
    };
    let name = format!("{} {:?} {}", peer.name, verdict.outcome, case.told());
    let name: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
    made.image.write(&directory.join(name), Some((&case.file, case.bytes(made).as_deref())))
}

fn count(cases: &[Case], verdicts: &[Verdict]) -> Vec<Count> {
    let mut classes: Vec<&str> = cases.iter().map(|case| case.class).collect();
    classes.dedup();
    let mut counts = Vec::new();
    for class in classes {
        for kind in KINDS {
            let of = |(case, _): &(&Case, &Verdict)| case.class == class && case.fault.kind() == kind;
            let seen: Vec<(&Case, &Verdict)> = cases.iter().zip(verdicts).filter(of).collect();
            if seen.is_empty() {
                continue;
            }
            let mut count = Count { class: class.to_owned(), fault: kind.to_owned(), ..Count::default() };
            for outcome in Outcome::ALL {
                let such = seen.iter().filter(|(_, verdict)| verdict.outcome == outcome);
                count.outcomes.insert(outcome, such.clone().count() as u64);
                if outcome > Outcome::Partly {
                    let told =
                        such.map(|(case, verdict)| format!("{outcome:?}: {}: {}", case.told(), verdict.text));
                    count.examples.extend(told.take(EXAMPLES_MAX));
                }
            }
            count.altered = seen.iter().filter(|(_, verdict)| verdict.is_altered).count() as u64;
            counts.push(count);
        }
    }
    counts
}
