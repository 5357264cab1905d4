//! Checks of the store that a killed child left. Every acknowledged operation is there. Of each thread's
//! operations that were submitted and not acknowledged, a prefix is there. Batches are whole, and nothing
//! else is there.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use trine::Db;

use crate::rng::Rng;

use super::plan::{Held, Item, Keys, Op, Plan, Space, apply, key, name, parse, value, version};
use super::witness::{Own, THREADS, Witness};

/// The contents of a store.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Found {
    pub(crate) held: [Held; THREADS],
    pub(crate) names: BTreeSet<String>,
}

/// Reads a store at one snapshot, in both directions and key by key; asserts that every value was written.
pub(crate) fn read_all(db: &Db, rng: &mut Rng) -> Found {
    let mut found = Found::default();
    let now = db.snapshot();
    for info in db.keyspaces() {
        // It may be dropped meanwhile and still be in the snapshot.
        let Ok(keyspace) = db.keyspace(&info.name).and_then(|keyspace| keyspace.ordered()) else { continue };
        let at = keyspace.at(&now);
        let mut keys = 0;
        for item in at.iter() {
            let (key, bytes) = item.unwrap();
            let (thread, item) = parse(&info.name, &key).expect("no key that nobody wrote");
            let version = u64::from_le_bytes(*bytes.first_chunk().expect("no value is so short"));
            let text = super::plan::key(item.0, thread, item.1);
            assert!(value(version, &text) == *bytes, "a value that nobody wrote, of {text}");
            if rng.one_in(8) {
                assert_eq!(at.get(&key).unwrap().as_deref(), Some(&*bytes), "a get is what a scan has");
            }
            found.held[thread].insert(item, version);
            keys += 1;
        }
        assert_eq!(at.iter().rev().map(Result::unwrap).count(), keys, "backward is forward");
        found.names.insert(info.name);
    }
    found
}

/// For each thread, the range of operation counts that is allowed.
pub(crate) type Allowed = [RangeInclusive<usize>; THREADS];

/// The kind of a crash: of the process alone, or a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crash {
    Process,
    Power,
}

pub(crate) fn allowed(witness: &Witness, crash: Crash) -> Allowed {
    std::array::from_fn(|thread| {
        let counts = witness.counts(thread);
        let least = if crash == Crash::Power { counts.synced } else { counts.acknowledged };
        least..=counts.submitted
    })
}

/// Checks a state against the witness and the state before this life of the child. Returns for each thread
/// the least and largest number of operations that it contains.
///
/// # Errors
/// A description of the violation.
pub(crate) fn check(
    witness: &Witness,
    before: &Found,
    found: &Found,
    allowed: &Allowed,
) -> Result<Allowed, String> {
    let mut places = allowed.clone();
    for (thread, place) in places.iter_mut().enumerate() {
        *place = self::place(witness, thread, before, found, place.clone())?;
    }
    // An operation acknowledged before another was submitted is there if the other is.
    for (one, other) in (0..THREADS).flat_map(|one| (0..THREADS).map(move |other| (one, other))) {
        let (first_lost, after) = (*places[one].end(), *places[other].start());
        let Some(last_there) = after.checked_sub(1) else { continue };
        if first_lost >= *allowed[one].end() {
            continue;
        }
        let (_, acknowledged) = witness.tickets(one, first_lost);
        let (submitted, _) = witness.tickets(other, last_there);
        let is_in_order = acknowledged.is_none_or(|acknowledged| submitted < acknowledged);
        if !is_in_order {
            return Err(format!(
                "operation {first_lost} of thread {one} is lost, {last_there} of {other}, made later, not"
            ));
        }
    }
    Ok(places)
}

/// The number of the thread's operations in the state.
fn place(
    witness: &Witness,
    thread: usize,
    before: &Found,
    found: &Found,
    allowed: RangeInclusive<usize>,
) -> Result<RangeInclusive<usize>, String> {
    let orders = witness.orders();
    let mut differs = Differs::new(&found.names, thread, &before.held[thread], &found.held[thread]);
    let (mut first, mut last) = (None, 0);
    let plan = Plan::new(orders.seed, orders.cycle, thread, orders.owns[thread]);
    for (index, op) in plan.take(*allowed.end()).map(Some).chain([None]).enumerate() {
        if index >= *allowed.start() && differs.items.is_empty() {
            first.get_or_insert(index);
            last = index;
        }
        if let Some(op) = op {
            apply(&op, version(orders.cycle, thread, index), &mut differs);
        }
    }
    match first {
        Some(first) => Ok(first..=last),
        None => Err(format!(
            "thread {thread}: the state is none of those after {allowed:?} operations; at the end {}",
            differs.tell()
        )),
    }
}

/// The thread's own keyspace after `count` operations.
fn own_after(witness: &Witness, thread: usize, count: usize) -> Own {
    let orders = witness.orders();
    let mut plan = Plan::new(orders.seed, orders.cycle, thread, orders.owns[thread]);
    plan.by_ref().take(count).for_each(drop);
    plan.own()
}

/// Checks which keyspaces exist: an acknowledged make or drop holds after any crash. Returns each thread's
/// own keyspace.
pub(crate) fn check_names(witness: &Witness, found: &Found) -> [Own; THREADS] {
    let counts = allowed(witness, Crash::Process);
    let mut unexplained = found.names.clone();
    unexplained.retain(|name| !["left", "right", "ingested"].contains(&name.as_str()));
    let owns = std::array::from_fn(|thread| {
        let present = |own: &Own| own.present.map(|number| name(Space::Own(number), thread));
        let outcomes = counts[thread].clone().map(|count| own_after(witness, thread, count));
        let mut outcomes: Vec<Own> = outcomes.collect();
        outcomes.dedup();
        let is_it = |own: &&Own| match present(own) {
            Some(name) => found.names.contains(&name),
            None => !found.names.iter().any(|name| name.starts_with(&format!("own {thread} "))),
        };
        let own = *outcomes.iter().find(is_it).unwrap_or_else(|| {
            panic!("thread {thread} has none of its keyspaces {outcomes:?}: {:?}", found.names)
        });
        if let Some(name) = present(&own) {
            unexplained.remove(&name);
        }
        // Used names are not used again.
        Own { next: outcomes.iter().map(|own| own.next).max().unwrap_or(own.next), ..own }
    });
    assert!(unexplained.is_empty(), "keyspaces came back: {unexplained:?}");
    owns
}

/// The keys that differ from the found ones, while operations are applied.
struct Differs<'f> {
    names: &'f BTreeSet<String>,
    thread: usize,
    found: &'f Held,
    now: Held,
    items: BTreeSet<Item>,
}

impl<'f> Differs<'f> {
    fn new(names: &'f BTreeSet<String>, thread: usize, before: &Held, found: &'f Held) -> Differs<'f> {
        let mut differs = Differs { names, thread, found, now: before.clone(), items: BTreeSet::new() };
        let items: BTreeSet<Item> = before.keys().chain(found.keys()).copied().collect();
        items.into_iter().for_each(|item| differs.compare(item));
        differs
    }

    fn compare(&mut self, item: Item) {
        // Items of a dropped keyspace are not compared.
        let counts = match item.0 {
            Space::Own(_) => self.names.contains(&name(item.0, self.thread)),
            _ => true,
        };
        if counts && self.now.get(&item) != self.found.get(&item) {
            self.items.insert(item);
        } else {
            self.items.remove(&item);
        }
    }

    fn tell(&self) -> String {
        let tell = |item: &Item| {
            let hex = |version: Option<&u64>| version.map(|version| format!("{version:x}"));
            let key = key(item.0, self.thread, item.1);
            format!("{key}: {:?} and not {:?}", hex(self.found.get(item)), hex(self.now.get(item)))
        };
        self.items.iter().take(5).map(tell).collect::<Vec<_>>().join(", ")
    }
}

impl Keys for Differs<'_> {
    fn set(&mut self, item: Item, version: Option<u64>) {
        self.now.set(item, version);
        self.compare(item);
    }
}

/// Whether no operation was acknowledged, so that the store need not exist.
pub(crate) fn promises_nothing(witness: &Witness, before: &Found) -> bool {
    *before == Found::default() && witness.acknowledged() == [0; THREADS]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kills::witness::Orders;

    struct Case {
        witness: Witness,
        found: Found,
        _file: tempfile::TempDir,
    }

    /// Three threads of 100 operations each, the last of each unacknowledged; all are there.
    fn case() -> Case {
        let directory = tempfile::tempdir().unwrap();
        let orders = Orders { seed: 5, cycle: 1, closes_after: 1000, owns: [Own::default(); THREADS] };
        let witness = Witness::new(&directory.path().join("witness"), &orders);
        let mut found = Found::default();
        for index in 0..100 {
            for thread in 0..THREADS {
                witness.submit(thread, index);
                if index < 99 {
                    witness.acknowledge(thread, index);
                }
            }
            if index == 50 {
                witness.synced([30; THREADS]);
            }
        }
        for (thread, held) in found.held.iter_mut().enumerate() {
            *held = held_after(thread, 100);
        }
        Case { witness, found, _file: directory }
    }

    fn held_after(thread: usize, count: usize) -> Held {
        let mut held = Held::new();
        for (index, op) in Plan::new(5, 1, thread, Own::default()).take(count).enumerate() {
            apply(&op, version(1, thread, index), &mut held);
        }
        // The found state has no keyspaces of the threads' own.
        held.retain(|item, _| !matches!(item.0, Space::Own(_)));
        held
    }

    fn is_refused(case: &Case, crash: Crash) -> bool {
        check(&case.witness, &Found::default(), &case.found, &allowed(&case.witness, crash)).is_err()
    }

    /// Valid states pass: all operations, all without an unacknowledged one, and after a power cut a prefix
    /// that all threads agree on.
    #[test]
    fn good_states_pass() {
        let mut case = case();
        assert!(!is_refused(&case, Crash::Process));
        case.found.held[1] = held_after(1, 99);
        assert!(!is_refused(&case, Crash::Process));
        case.found.held = std::array::from_fn(|thread| held_after(thread, 60));
        assert!(is_refused(&case, Crash::Process));
        assert!(!is_refused(&case, Crash::Power));
    }

    /// Invalid states are refused: a lost write, a write that came back, an older version, half a batch, a
    /// thread that lacks operations before another's later one, less than the synced operations.
    #[test]
    fn bad_states_are_refused() {
        let whole = case().found;
        let newest = |thread: usize| {
            let newest = whole.held[thread].iter().max_by_key(|(_, version)| **version);
            newest.map(|(item, version)| (*item, *version)).unwrap()
        };
        let refuses = |crash: Crash, thread: usize, edit: &dyn Fn(&mut Held)| {
            let mut case = case();
            edit(&mut case.found.held[thread]);
            assert!(is_refused(&case, crash), "thread {thread}, {crash:?}");
        };
        for crash in [Crash::Process, Crash::Power] {
            refuses(crash, 0, &|held| assert!(held.pop_first().is_some()));
            refuses(crash, 2, &|held| held.set((Space::Left, 249), Some(1 << 40)));
            refuses(crash, 1, &|held| *held = held_after(1, 20));
        }
        let (item, version) = newest(1);
        refuses(Crash::Process, 1, &|held| held.set(item, Some(version - 1)));
        refuses(Crash::Power, 1, &|held| *held = held_after(1, 60));
    }

    /// A state with a part of a batch is invalid.
    #[test]
    fn half_a_batch_is_refused() {
        let plan = Plan::new(5, 1, 0, Own::default());
        let puts = |op: &Op| match op {
            Op::Write { changes, .. } => {
                changes.iter().filter(|change| matches!(change, super::super::plan::Change::Put(_))).count()
            }
            _ => 0,
        };
        let batch = plan.take(99).enumerate().filter(|(_, op)| puts(op) > 2).last();
        let (index, _) = batch.expect("some batch has several puts");
        let mut case = case();
        let of_batch = version(1, 0, index);
        let item = case.found.held[0].iter().find(|(_, version)| **version == of_batch);
        let item = *item.expect("the last large batch has left something").0;
        case.found.held[0].remove(&item);
        assert!(is_refused(&case, Crash::Process) && is_refused(&case, Crash::Power));
    }
}
