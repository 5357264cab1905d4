//! The outcomes of damaged stores: every answer is compared with the written items.
//!
//! Damage that LIMITS documents as undetectable has outcomes of its own, each with its condition, and the
//! tests assert their counts.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use trine::inspect::AtRisk;
use trine::sim::{Stop, World};
use trine::{Access, Db, Error, Result};

use crate::rng::Rng;
use crate::support::{Model, checked_message, find, find_hashed, names};

use super::faults::{Changes, Fault, PAGE_BYTES, kind};
use super::states::{Contents, Doubt, Moment, PartitionOf, State, vouched_bytes};
use super::watch;

/// The offset of the first record of a log or manifest.
const RECORDS_FROM: usize = 3 * PAGE_BYTES;

/// More disk calls than opening and reading a store of these sizes ever needs.
const CALLS_MAX: u64 = 200_000;

/// The outcome of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Outcome {
    /// Not opened: `Corrupt` names the file.
    RefusedOnOpen,
    /// Opened; some reads answer `Corrupt`, all others are right.
    RefusedOnRead,
    /// Every answer is right.
    Harmless,
    /// Documented: the last batch of a killed process is taken for a torn write.
    LastBatch,
    /// Documented: writes before a power cut that were not synced, or whose only record of the sync was lost
    /// with STORE's witness. A prefix of these writes is there.
    Unsynced,
    /// Documented: the last edit before a power cut, which no slot covers yet, is taken for a torn write.
    LastEdit,
    /// Documented: the last records of a killed process, or before a power cut, are damaged together with the
    /// slot of their file that covers them.
    WithItsWitness,
    /// Documented: an older version of a whole log or manifest is accepted.
    PutBack,
}

/// The count of each outcome.
pub(crate) type Tally = BTreeMap<Outcome, u64>;

/// The part of a damaged store that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// Every key by get, and scans of all items in both directions.
    All,
    /// A scan of all items in one direction, and gets of every n-th key.
    Every(usize),
}

/// Judges every fault.
///
/// # Panics
/// If any is a violation: a wrong or missing answer without an error, an error about something else, a panic,
/// or an endless loop. All violations are printed first.
pub(crate) fn take(state: &State, faults: &[Fault], reading: Reading) -> Tally {
    let mut tally = Tally::new();
    let mut violations = Vec::new();
    for (index, fault) in faults.iter().enumerate() {
        match judge(state, fault, reading, index) {
            Ok(Some(outcome)) => *tally.entry(outcome).or_default() += 1,
            Ok(None) => {}
            Err(violation) => violations.push(format!("{}: {fault:?}: {violation}", state.name)),
        }
    }
    violations.iter().take(40).for_each(|violation| println!("VIOLATION {violation}"));
    assert!(violations.is_empty(), "{} of {} faults: {}", violations.len(), faults.len(), violations[0]);
    tally
}

/// The outcome of a fault; `None` if the fault changed nothing.
pub(crate) fn judge(
    state: &State,
    fault: &Fault,
    reading: Reading,
    turn: usize,
) -> std::result::Result<Option<Outcome>, String> {
    let changes = fault.changes(state);
    if changes.is_empty() {
        return Ok(None);
    }
    let _watched = watch::over(format!("{}: {fault:?}", state.name));
    let world = damaged(state, &changes);
    let looked = catch_unwind(AssertUnwindSafe(|| look(&world, state, fault, (&changes, reading, turn))));
    if world.is_stopped() {
        return Err("it did not come to an end".to_owned());
    }
    match looked {
        Ok(outcome) => outcome.map(Some),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
            Err(format!("a panic: {text}"))
        }
    }
}

pub(crate) fn damaged(state: &State, changes: &Changes) -> World {
    let world = state.world.fork();
    for (name, bytes) in changes {
        world.set_contents(name, bytes.as_deref());
    }
    world.stop(Stop::Before, CALLS_MAX);
    world
}

pub(crate) fn open(world: &World, state: &State, access: Access) -> Result<Db> {
    let builder = world.builder().memory_bytes(state.memory_bytes).set("manifest_bytes", 16 << 10);
    builder.access(access).open()
}

/// The answers of one keyspace.
#[derive(Debug, Default)]
struct Answers {
    gets: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    refused: Vec<Vec<u8>>,
    forward: Vec<(Vec<u8>, Vec<u8>)>,
    is_forward_whole: bool,
    backward: Vec<(Vec<u8>, Vec<u8>)>,
    is_backward_whole: bool,
    /// Whether the keyspace is hashed: its items are sorted once all are read.
    is_unordered: bool,
}

impl Answers {
    /// A mix of two models: the items of `then` for each partition that a scan finds as in `then`, and those
    /// of `now` for the other partitions.
    fn mixed(&self, partition_of: PartitionOf, then: &Model, now: &Model) -> Model {
        let of = |model: &Model, name: &[u8]| -> Model {
            let items = model.iter().filter(|(key, _)| partition_of(key) == name);
            items.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let found: Model = self.forward.iter().cloned().collect();
        let names: BTreeSet<&[u8]> = then.keys().chain(now.keys()).map(|key| partition_of(key)).collect();
        let part =
            |name: &[u8]| if of(&found, name) == of(then, name) { of(then, name) } else { of(now, name) };
        names.into_iter().flat_map(part).collect()
    }

    fn agree(&self, model: &Model) -> bool {
        let same = |found: &[(Vec<u8>, Vec<u8>)],
                    is_whole: bool,
                    model: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
            found.iter().all(|(key, value)| model.next() == Some((key, value)))
                && (!is_whole || model.next().is_none())
        };
        let is_some = |(key, value): &(Vec<u8>, Vec<u8>)| model.get(key) == Some(value);
        if self.is_unordered && !self.is_forward_whole && !self.forward.iter().all(is_some) {
            return false;
        }
        let is_sorted = !self.is_unordered || self.is_forward_whole;
        self.gets.iter().all(|(key, value)| model.get(key) == value.as_ref())
            && (!is_sorted || same(&self.forward, self.is_forward_whole, &mut model.iter()))
            && same(&self.backward, self.is_backward_whole, &mut model.iter().rev())
    }
}

fn look(
    world: &World,
    state: &State,
    fault: &Fault,
    (changes, reading, turn): (&Changes, Reading, usize),
) -> std::result::Result<Outcome, String> {
    let db = match open(world, state, Access::ReadOnly) {
        Ok(db) => db,
        Err(error) => return names_the_damage(error, state, fault).map(|()| Outcome::RefusedOnOpen),
    };
    let mut answers = BTreeMap::new();
    let mut errors = Vec::new();
    for name in names(&db) {
        let answer =
            ask(&db, &name, state, (reading, turn), &mut errors).map_err(|error| error.to_string())?;
        answers.insert(name, answer);
    }
    let is_refused = !errors.is_empty();
    for error in errors {
        names_the_damage(error, state, fault)?;
    }
    if !agree(&answers, &state.contents) {
        return documented(&answers, state, fault, changes)
            .filter(|_| !is_refused)
            .ok_or_else(|| format!("SILENT: {}", difference(&answers, &state.contents)));
    }
    if !is_refused {
        return Ok(Outcome::Harmless);
    }
    if turn.is_multiple_of(8) {
        are_told(&db, state, &answers)?;
    }
    let suffering = answers.values().filter(|one| !one.refused.is_empty()).count();
    match fault {
        Fault::Flip { .. } if suffering > 1 => Err(format!("{suffering} keyspaces suffer from one bit")),
        _ => Ok(Outcome::RefusedOnRead),
    }
}

fn agree(answers: &BTreeMap<String, Answers>, contents: &Contents) -> bool {
    answers.len() == contents.len()
        && answers.iter().all(|(name, answer)| contents.get(name).is_some_and(|model| answer.agree(model)))
}

fn difference(answers: &BTreeMap<String, Answers>, contents: &Contents) -> String {
    let names = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>().join(", ");
    if !answers.keys().eq(contents.keys()) {
        let (found, expected) = (names(answers.keys().collect()), names(contents.keys().collect()));
        return format!("keyspaces {found}, where {expected} were written");
    }
    let wrong = answers.iter().find(|(name, answer)| !answer.agree(&contents[*name]));
    let (name, answer) = wrong.expect("they differ");
    let model = &contents[name];
    let get = answer.gets.iter().find(|(key, value)| model.get(key) != value.as_ref());
    format!("in {name:?} {} items of {}; first wrong get: {get:?}", answer.forward.len(), model.len())
}

/// Reads everything of a keyspace.
fn ask(
    db: &Db,
    name: &str,
    state: &State,
    (reading, turn): (Reading, usize),
    errors: &mut Vec<Error>,
) -> Result<Answers> {
    let hashed = find_hashed(db, name);
    let ordered = if hashed.is_some() { None } else { Some(find(db, name)?) };
    let get = |key: &[u8]| match (&hashed, &ordered) {
        (Some(hashed), _) => hashed.get(key),
        (_, Some(ordered)) => ordered.get(key),
        (None, None) => unreachable!("it is one of them"),
    };
    let mut answers = Answers::default();
    let step = match reading {
        Reading::All => 1,
        Reading::Every(step) => step,
    };
    for key in state.keys.get(name).into_iter().flatten().skip(turn % step).step_by(step) {
        match get(key) {
            Ok(value) => answers.gets.push((key.clone(), value.map(|value| value.to_vec()))),
            Err(error) => {
                answers.refused.push(key.clone());
                errors.push(error);
            }
        }
    }
    let limit = 2 * state.contents.get(name).map_or(0, Model::len) + 1000;
    let mut walk = |items: &mut dyn Iterator<Item = Result<(trine::Value, trine::Value)>>| {
        let mut found = Vec::new();
        for item in items {
            assert!(found.len() < limit, "more items than ever were");
            match item {
                Ok((key, value)) => found.push((key.to_vec(), value.to_vec())),
                Err(error) => {
                    errors.push(error);
                    return (found, false);
                }
            }
        }
        (found, true)
    };
    if let Some(hashed) = &hashed {
        (answers.forward, answers.is_forward_whole) = walk(&mut hashed.iter_unordered());
        answers.forward.sort_unstable();
        answers.is_unordered = true;
    }
    if let Some(ordered) = &ordered {
        (answers.forward, answers.is_forward_whole) = walk(&mut ordered.iter());
        if reading == Reading::All {
            (answers.backward, answers.is_backward_whole) = walk(&mut ordered.iter().rev());
        }
    }
    Ok(answers)
}

/// Whether `told` is the name of the keyspace, or of one of its partitions.
pub(crate) fn is_of(told: &str, name: &str) -> bool {
    told.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Asserts that `verify` on the open store reports the keys whose reads are refused.
fn are_told(db: &Db, state: &State, answers: &BTreeMap<String, Answers>) -> std::result::Result<(), String> {
    let report = db.verify(|_| {}).map_err(|error| format!("the check ends with {error}"))?;
    for (name, answer) in answers {
        let is_told = |key: &Vec<u8>| {
            // For a hashed keyspace verify reports positions; an absent key has none.
            let told = if answer.is_unordered { state.positions.get(key) } else { Some(key) };
            let Some(key) = told else { return true };
            report.findings.iter().any(|one| match &one.at_risk {
                AtRisk::Keys { keyspace, from, to } => {
                    is_of(keyspace, name)
                        && std::ops::RangeBounds::<Vec<u8>>::contains(&(from.as_ref(), to.as_ref()), key)
                }
                // Only the hash tells which keys these are.
                AtRisk::HashedKeys { keyspace, .. } => is_of(keyspace, name),
                _ => false,
            })
        };
        if let Some(key) = answer.refused.iter().find(|key| !is_told(key)) {
            return Err(format!("{key:?} of {name} is refused, and the check does not tell it"));
        }
    }
    Ok(())
}

/// Asserts that the error names a damaged file, with an offset in it or just past its end.
fn names_the_damage(error: Error, state: &State, fault: &Fault) -> std::result::Result<(), String> {
    let error = catch_unwind(AssertUnwindSafe(|| checked_message(error))).map_err(|_| "a bad message")?;
    // If two files belong together, an error may name either.
    let is_a_pair = matches!(
        fault,
        Fault::Stale { .. } | Fault::PutBack { .. } | Fault::Exchanged { .. } | Fault::Renamed { .. }
    );
    match &error {
        Error::Corrupt(at) => {
            let longest = state.files.values().map(Vec::len).max().unwrap_or(0) * 2 + 4096;
            let is_named = fault.names().contains(&&*at.file) || is_a_pair;
            match is_named && at.offset <= longest as u64 {
                true => Ok(()),
                false => Err(format!("told of another place: {error}")),
            }
        }
        other => Err(format!("not told as damage: {other}")),
    }
}

/// The damage that LIMITS documents as undetectable, each under exactly its own condition.
fn documented(
    answers: &BTreeMap<String, Answers>,
    state: &State,
    fault: &Fault,
    changes: &Changes,
) -> Option<Outcome> {
    changes.iter().find_map(|(name, bytes)| {
        let (bytes, sound) = (bytes.as_ref()?, state.files.get(name)?);
        let is_then = |moment: &&Moment| moment.files.get(name) == Some(bytes);
        if matches!(kind(name), "log" | "manifest") && !matches!(fault, Fault::Flip { .. }) {
            let mut moments = state.earlier.iter().filter(is_then);
            if moments.any(|moment| is_then_or_now(answers, state, &moment.contents)) {
                return Some(Outcome::PutBack);
            }
        }
        let differs = |(one, other)| one != other;
        let first = sound.iter().zip(bytes).position(differs)?;
        let last = sound.iter().zip(bytes).rposition(differs)?;
        let before = state.earlier.last()?;
        // The slots of a later log cover it too.
        let is_slot_of_later = |(later, bytes): &(String, Option<Vec<u8>>)| {
            let slots = |bytes: &[u8]| bytes.get(PAGE_BYTES..RECORDS_FROM).map(<[u8]>::to_vec);
            kind(later) == "log"
                && later > name
                && bytes.as_ref().is_some_and(|bytes| slots(bytes) != slots(&state.files[later]))
        };
        let is_slot_gone =
            first < RECORDS_FROM || kind(name) == "log" && changes.iter().any(is_slot_of_later);
        if state.doubt != Doubt::None && is_slot_gone && last >= RECORDS_FROM {
            let is_prefix = |prefix: &Contents| {
                answers.iter().all(|(name, answer)| prefix.get(name).is_some_and(|model| answer.agree(model)))
            };
            return state.prefixes.iter().any(is_prefix).then_some(Outcome::WithItsWitness);
        }
        if state.doubt == Doubt::Unsynced
            && (first >= vouched_bytes(&state.files).0 && kind(name) == "manifest")
            && is_then_or_now(answers, state, &before.contents)
        {
            return Some(Outcome::LastEdit);
        }
        let is_in_doubt = match state.doubt {
            Doubt::None => None,
            // After the damage there is no valid record.
            Doubt::LastBatch => Some(last >= state.last_record(name)?),
            // No byte that a slot of the log covers is damaged.
            Doubt::Unsynced => Some(first >= state.last_record(name)?),
        };
        let is_prefix = || state.prefixes[state.synced..].iter().any(|prefix| agree(answers, prefix));
        match state.doubt {
            _ if sound.len() != bytes.len() || first < RECORDS_FROM => None,
            Doubt::LastBatch if is_in_doubt? && is_prefix() => Some(Outcome::LastBatch),
            Doubt::Unsynced if is_in_doubt? && is_prefix() => Some(Outcome::Unsynced),
            _ => None,
        }
    })
}

/// Whether each keyspace, and each partition of one partitioned by key, is as it was then or as it is now.
fn is_then_or_now(answers: &BTreeMap<String, Answers>, state: &State, then: &Contents) -> bool {
    let now = &state.contents;
    let mut names: Vec<&String> = answers.keys().chain(then.keys()).chain(now.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().all(|name| {
        let is_one = [then, now].into_iter().any(|contents| match (answers.get(name), contents.get(name)) {
            (Some(answer), Some(model)) => answer.agree(model),
            // Made later: the manifest has it, but no log has items of it.
            (Some(answer), None) => answer.agree(&Model::new()),
            (None, model) => model.is_none(),
        });
        is_one
            || answers.get(name).zip(then.get(name)).zip(now.get(name)).is_some_and(
                |((answer, then), now)| {
                    state.partition_of.is_some_and(|of| answer.agree(&answer.mixed(of, then, now)))
                },
            )
    })
}

impl State {
    /// The offset of the log's first record since the last of the earlier moments.
    pub(crate) fn last_record(&self, file: &str) -> Option<usize> {
        let before = &self.earlier.last()?.files.get(file).filter(|_| kind(file) == "log")?[RECORDS_FROM..];
        let now = &self.files.get(file)?[RECORDS_FROM..];
        let differs = before.iter().zip(now).position(|(one, other)| one != other)?;
        Some(RECORDS_FROM + differs / 8 * 8)
    }
}

/// Adds a tally to another.
pub(crate) fn add(tally: &mut Tally, other: Tally) {
    for (outcome, count) in other {
        *tally.entry(outcome).or_default() += count;
    }
}

/// Random faults from `maker`.
pub(crate) fn random(
    state: &State,
    rng: &mut Rng,
    count: usize,
    maker: fn(&State, &mut Rng) -> Fault,
) -> Vec<Fault> {
    (0..count).map(|_| maker(state, rng)).collect()
}
