//! Lines F12 to F16 of the fault model, each over every state that a store can be at rest in.
//!
//! `TRINE_SCALE=n` makes n times as many random faults. Longer tests are ignored here and run by hand, as
//! described in docs/RELIABILITY.md.

use std::sync::OnceLock;

use trine::inspect::{AtRisk, Finding};
use trine::sim::World;
use trine::{Access, Error};

use crate::rng::{Rng, with_seeds};
use crate::support::{contents, find};

use super::census::{self, Outcome, Reading, Tally, add, judge, open, take};
use super::faults::{self, Fault, Filler, PAGE_BYTES, SECTOR_BYTES};
use super::states::{self, Doubt, State, files_of};

/// Made once, and then only read.
fn states() -> &'static [State] {
    static STATES: OnceLock<Vec<State>> = OnceLock::new();
    STATES.get_or_init(states::all)
}

fn scale() -> usize {
    std::env::var("TRINE_SCALE").map_or(1, |text| text.parse().unwrap())
}

/// Damages every state with `faults`, and prints the outcomes.
fn census(what: &str, reading: Reading, faults: impl Fn(&State) -> Vec<Fault>) -> Tally {
    let mut sum = Tally::new();
    for state in states() {
        let tally = take(state, &faults(state), reading);
        println!("{what}: {}: {tally:?}", state.name);
        let known = [Outcome::RefusedOnOpen, Outcome::RefusedOnRead, Outcome::Harmless, Outcome::PutBack];
        let is_sure = tally.keys().all(|outcome| known.contains(outcome));
        assert!(is_sure || state.doubt != Doubt::None, "{}: {tally:?}", state.name);
        add(&mut sum, tally);
    }
    println!("{what}: {} faults: {sum:?}", sum.values().sum::<u64>());
    sum
}

fn count(tally: &Tally, outcome: Outcome) -> u64 {
    tally.get(&outcome).copied().unwrap_or(0)
}

/// The states have the properties in their names.
#[test]
fn states_have_the_properties_in_their_names() {
    for state in states() {
        let files: Vec<String> = state
            .files
            .iter()
            .map(|(name, bytes)| {
                let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                format!("{name} {used}/{}", bytes.len())
            })
            .collect();
        let items: Vec<usize> = state.contents.values().map(|model| model.len()).collect();
        println!("{}: {items:?} items, {} earlier, {files:#?}", state.name, state.earlier.len());
    }
}

/// More than 20,000 flipped bits and truncated files, none undetected. Damage that LIMITS documents as
/// undetectable is counted apart.
#[test]
fn f12_flips_and_cuts_are_never_silent() {
    let mut rng = Rng::new(12);
    let mut seeds: Vec<Rng> = (0..2).map(|_| Rng::new(rng.u64())).collect();
    let flips = std::cell::RefCell::new(seeds.remove(0));
    let cuts = std::cell::RefCell::new(seeds.remove(0));
    let flipped = census("flips", Reading::All, |state| {
        census::random(state, &mut flips.borrow_mut(), 1200 * scale(), faults::flip)
    });
    let cut = census("cuts", Reading::All, |state| {
        census::random(state, &mut cuts.borrow_mut(), 320 * scale(), faults::truncation)
    });
    let all: u64 = flipped.values().chain(cut.values()).sum();
    assert!(all >= 20_000, "{all}");
    for class in [Outcome::RefusedOnOpen, Outcome::RefusedOnRead, Outcome::Harmless] {
        assert!(count(&flipped, class) > 1000, "{class:?}: {flipped:?}");
    }
    assert_eq!(count(&flipped, Outcome::PutBack) + count(&cut, Outcome::PutBack), 0);
}

/// All damage to the first page of STORE is reported as damage, with file and offset, by opening and by
/// verify; both errors lead to `salvage`. Beside a store's files, STORE is never taken for a foreign file.
#[test]
fn f12_damage_to_the_first_page_of_store_is_corrupt() {
    let mut count = 0;
    for state in states() {
        for fault in faults::of_store_page(state) {
            let changes = fault.changes(state);
            if changes.is_empty() {
                continue;
            }
            count += 1;
            let world = census::damaged(state, &changes);
            for access in [Access::ReadOnly, Access::ReadWrite] {
                match open(&world, state, access).map(drop) {
                    Err(Error::Corrupt(at)) => {
                        let is_named = fault.names().contains(&&*at.file);
                        assert!(is_named && at.offset <= 4 * PAGE_BYTES as u64, "{fault:?}: {at:?}");
                        assert!(Error::Corrupt(at).to_string().contains("salvage"));
                    }
                    other => panic!("{}: {fault:?}: {other:?}", state.name),
                }
            }
            let report = world.verify().expect("damage is no error of the check");
            let is_of_store = |one: &Finding| one.at_risk == AtRisk::Store && one.damage.file == "STORE";
            assert!(report.findings.iter().any(is_of_store), "{}: {fault:?}: {report:?}", state.name);
        }
    }
    println!("the first page of STORE: {count} faults, each Corrupt");
    assert!(count >= 9_996, "{count}");
}

/// Sectors, pages and whole files, overwritten with zeros and garbage.
#[test]
fn f13_zeroed_and_garbage_blocks_are_never_silent() {
    let tally = census("blocks", Reading::All, faults::overwritten);
    assert!(count(&tally, Outcome::RefusedOnOpen) > 500 && count(&tally, Outcome::RefusedOnRead) > 100);
    // Sectors and pages with zeros and garbage: in the two logs whose end no slot or witness covers, and the
    // last sector of a third log that lost its witness.
    assert_eq!((count(&tally, Outcome::LastBatch), count(&tally, Outcome::Unsynced)), (4, 6));
}

/// Swapped blocks, within a file and between two.
#[test]
fn f14_misdirected_blocks_are_never_silent() {
    let tally = census("swaps", Reading::All, |state| faults::swaps(state, &mut Rng::new(14), 60 * scale()));
    assert!(count(&tally, Outcome::RefusedOnOpen) > 200 && count(&tally, Outcome::RefusedOnRead) > 50);
    assert_eq!(count(&tally, Outcome::PutBack), 0);
}

/// Stale blocks and files are refused or harmless. The exception is a whole older log or manifest: it shows
/// its keyspaces as they were then or are now.
#[test]
fn f14_stale_blocks_and_files_are_never_silent() {
    let tally = census("stale", Reading::All, faults::stale);
    assert!(count(&tally, Outcome::RefusedOnOpen) > 200, "{tally:?}");
    // Only a few blocks of a file have changed since.
    let put_back = states().iter().flat_map(faults::stale).filter(|one| matches!(one, Fault::PutBack { .. }));
    assert!(count(&tally, Outcome::PutBack) <= put_back.count() as u64);
}

/// Files extended with any bytes are refused, except files that are not read.
#[test]
fn f15_extended_files_are_refused() {
    census("extensions", Reading::All, faults::extensions);
    for state in states() {
        for (turn, fault) in faults::extensions(state).iter().enumerate() {
            let is_read = !fault.names()[0].starts_with("history") && is_needed(state, fault.names()[0]);
            let outcome = judge(state, fault, Reading::Every(50), turn).unwrap();
            assert!(!is_read || outcome == Some(Outcome::RefusedOnOpen), "{}: {fault:?}", state.name);
        }
    }
}

/// Missing files are refused by name, duplicated ones are harmless, and files under other files' names are
/// refused.
#[test]
fn f15_missing_doubled_and_renamed_files_are_never_silent() {
    let tally = census("names", Reading::All, faults::of_names);
    assert!(count(&tally, Outcome::RefusedOnOpen) > 200 && count(&tally, Outcome::Harmless) > 100);
    for state in states() {
        for (turn, fault) in faults::of_names(state).iter().enumerate() {
            let outcome = judge(state, fault, Reading::Every(50), turn).unwrap();
            match fault {
                Fault::Duplicated { .. } => assert_eq!(outcome, Some(Outcome::Harmless), "{fault:?}"),
                Fault::Missing { file } if is_needed(state, file) => {
                    assert_eq!(outcome, Some(Outcome::RefusedOnOpen), "{}: {fault:?}", state.name);
                }
                _ => {}
            }
        }
    }
}

/// Whether the store reads the file: garbage in its place is refused.
fn is_needed(state: &State, file: &str) -> bool {
    let length = state.files[file].len();
    let garbage =
        Fault::Overwritten { file: file.to_owned(), from: 0, bytes: length, with: Filler::Garbage(1) };
    judge(state, &garbage, Reading::Every(50), 0).unwrap() != Some(Outcome::Harmless)
}

/// The last batch of a process killed before any sync is the only one that a flipped bit can remove
/// undetected. Each of its bits does, and no other bit of the store.
#[test]
fn f16_only_the_last_batch_has_no_witness() {
    let state = states().iter().find(|state| state.doubt == Doubt::LastBatch).unwrap();
    let log = state.files.keys().find(|name| state.last_record(name).is_some()).unwrap();
    let (now, from) = (&state.files[log], state.last_record(log).unwrap());
    let to = now.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert!(from > 3 * PAGE_BYTES && to - from < 200, "{from} {to}");
    let flips = |bits: std::ops::Range<usize>, step| -> Vec<Fault> {
        bits.step_by(step).map(|bit| Fault::Flip { file: log.clone(), bit }).collect()
    };
    let end = to.next_multiple_of(8);
    let tally = take(state, &flips(from * 8..end * 8, 1), Reading::Every(5));
    assert_eq!(tally, Tally::from([(Outcome::LastBatch, 8 * (end - from) as u64)]));
    let tally = take(state, &flips(0..from * 8, 97), Reading::Every(5));
    assert_eq!(count(&tally, Outcome::LastBatch), 0, "{tally:?}");
    let tally = take(state, &flips(end * 8..now.len() * 8, 97), Reading::Every(5));
    assert_eq!(tally.keys().collect::<Vec<_>>(), [&Outcome::Harmless], "{tally:?}");
}

/// Once a sync has returned, or the store is closed, damage to any bit of the last batch is detected.
#[test]
fn f16_a_synced_last_batch_is_never_lost() {
    let state = &states()[0];
    assert_eq!(state.doubt, Doubt::None);
    let log = state.files.keys().find(|name| state.last_record(name).is_some()).unwrap();
    let (now, from) = (&state.files[log], state.last_record(log).unwrap());
    let end = (now.iter().rposition(|byte| *byte != 0).unwrap() + 1).next_multiple_of(8);
    let faults: Vec<Fault> = (from * 8..end * 8).map(|bit| Fault::Flip { file: log.clone(), bit }).collect();
    let tally = take(state, &faults, Reading::Every(5));
    assert_eq!(tally, Tally::from([(Outcome::RefusedOnOpen, 8 * (end - from) as u64)]));
}

/// Writes synced one by one are all covered after a process kill. If a power cut also lost the witness in
/// STORE, only the last one is not: the log's slot covers the first write of its page, and each record covers
/// those before it.
#[test]
fn f16_the_witness_covers_writes_synced_since_a_slot() {
    for (name, expected) in
        [("all synced, killed", Outcome::RefusedOnOpen), ("all synced, power cut", Outcome::Unsynced)]
    {
        let state = states().iter().find(|state| state.name == name).unwrap();
        let log = state.files.keys().find(|name| state.last_record(name).is_some()).unwrap();
        let (now, from) = (&state.files[log], state.last_record(log).unwrap());
        let end = (now.iter().rposition(|byte| *byte != 0).unwrap() + 1).next_multiple_of(8);
        // Six equal records after the one that a slot covers.
        let last = end - (end - from) / 6;
        let flips = |bits: std::ops::Range<usize>, step| -> Vec<Fault> {
            bits.step_by(step).map(|bit| Fault::Flip { file: log.clone(), bit }).collect()
        };
        let tally = take(state, &flips(last * 8..end * 8, 1), Reading::Every(5));
        assert_eq!(tally, Tally::from([(expected, 8 * (end - last) as u64)]), "{name}");
        let tally = take(state, &flips(3 * PAGE_BYTES * 8..last * 8, 41), Reading::Every(5));
        assert_eq!(tally.keys().collect::<Vec<_>>(), [&Outcome::RefusedOnOpen], "{name}: {tally:?}");
        // With the witness, an older version of the log is detected too.
        let is_log = |fault: &Fault| matches!(fault, Fault::PutBack { .. }) && fault.names()[0] == *log;
        let put_back: Vec<Fault> = faults::stale(state).into_iter().filter(is_log).collect();
        let tally = take(state, &put_back, Reading::Every(5));
        let told = if expected == Outcome::Unsynced { Outcome::PutBack } else { expected };
        assert_eq!(tally.keys().collect::<Vec<_>>(), [&told], "{name}: {tally:?}");
    }
}

/// The last manifest edit before a power cut is the only one not covered, and only if its slot was lost. That
/// edit, here the drop of a keyspace, may be forgotten. An edit that made a keyspace is not, once a log has
/// an item of the keyspace.
#[test]
fn f16_only_the_last_edit_before_a_power_cut_has_no_witness() {
    let of = |name: &str| states().iter().find(|state| state.name == name).unwrap();
    for (state, expected) in [
        (of("dropped, power cut"), Outcome::LastEdit),
        (of("half synced, power cut"), Outcome::RefusedOnOpen),
    ] {
        let (vouched, manifest) = states::vouched_bytes(&state.files);
        let bytes = &state.files[manifest];
        let end = (bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1).next_multiple_of(8);
        let flips = |bits: std::ops::Range<usize>, step| -> Vec<Fault> {
            bits.step_by(step).map(|bit| Fault::Flip { file: manifest.to_owned(), bit }).collect()
        };
        let tally = take(state, &flips(vouched * 8..end * 8, 1), Reading::Every(5));
        assert_eq!(tally, Tally::from([(expected, 8 * (end - vouched) as u64)]), "{}", state.name);
        let tally = take(state, &flips(3 * PAGE_BYTES * 8..vouched * 8, 1), Reading::Every(5));
        assert_eq!(tally.keys().collect::<Vec<_>>(), [&Outcome::RefusedOnOpen], "{tally:?}");
    }
}

/// A flipped bit in any sector of any table affects one keyspace. The keys refused for data blocks of two
/// sectors are disjoint or the same, and adjacent. Most sectors of a table are like this.
#[test]
fn f12_damage_stays_in_its_block() {
    for state in states() {
        let full: usize = state.contents.values().map(|model| model.len()).sum();
        for (file, bytes) in state.files.iter().filter(|(name, _)| name.starts_with("table")) {
            let mut blocks: Vec<Vec<(String, Vec<u8>)>> = Vec::new();
            for sector in (PAGE_BYTES..bytes.len()).step_by(SECTOR_BYTES) {
                let world = state.world.fork();
                let mut bytes = bytes.clone();
                bytes[sector + SECTOR_BYTES / 3] ^= 4;
                world.set_contents(file, Some(&bytes));
                let Ok(db) = open(&world, state, Access::ReadOnly) else { continue };
                let mut refused = Vec::new();
                for (name, model) in &state.contents {
                    let keyspace = find(&db, name).unwrap();
                    let keys = model.keys().enumerate().filter(|(_, key)| keyspace.get(key).is_err());
                    let keys: Vec<(usize, &Vec<u8>)> = keys.collect();
                    let is_one_run = keys.windows(2).all(|two| two[0].0 + 1 == two[1].0);
                    // Newer runs answer for some keys, and filters exclude others.
                    if is_one_run || !is_newest(state, file) {
                        refused.extend(keys.into_iter().map(|(_, key)| (name.clone(), key.clone())));
                    }
                }
                let names = refused.iter().map(|(name, _)| name).collect::<std::collections::BTreeSet<_>>();
                assert!(names.len() <= 1, "{}: {file}, sector at {sector}: {names:?}", state.name);
                // Filters and fences are few sectors, but many keys need them.
                if !refused.is_empty() && refused.len() * 3 < full && blocks.last() != Some(&refused) {
                    blocks.push(refused);
                }
            }
            // A file may have a slice of each keyspace.
            for name in state.contents.keys() {
                let mut seen = std::collections::BTreeSet::new();
                let keys = blocks.iter().flatten().filter(|(of, _)| of == name);
                let doubled = keys.filter(|key| !seen.insert(*key)).count();
                assert!(doubled * 2 <= full, "{}: {file}, {name}: {doubled} of {full}", state.name);
            }
        }
    }
}

/// Whether the state has no newer table.
fn is_newest(state: &State, file: &str) -> bool {
    state.files.keys().rfind(|name| name.starts_with("table")).is_some_and(|newest| newest == file)
}

/// Opening a store with stale, missing, duplicated or renamed files for writing loses nothing more. A refused
/// opening leaves it unchanged. An opened store takes writes, flushes and merges, and is right after a
/// reopen.
#[test]
fn f15_writers_lose_nothing_more() {
    let (mut opened, mut refused) = (0, 0);
    for state in states() {
        let faults = [faults::stale(state), faults::of_names(state)].concat();
        for (turn, fault) in faults.iter().enumerate() {
            let outcome = judge(state, fault, Reading::Every(20), turn).unwrap();
            let is_harmless = outcome == Some(Outcome::Harmless);
            if !is_harmless && outcome != Some(Outcome::RefusedOnOpen) || turn % 3 != 0 {
                continue;
            }
            let world = state.world.fork();
            for (name, bytes) in fault.changes(state) {
                world.set_contents(&name, bytes.as_deref());
            }
            let before = files_of(&world);
            match open(&world, state, Access::ReadWrite) {
                Err(error) => {
                    assert!(!is_harmless, "{}: {fault:?}: {error}", state.name);
                    assert!(
                        files_of(&world) == before,
                        "{}: {fault:?}: a refused opening writes",
                        state.name
                    );
                    refused += 1;
                }
                Ok(db) => {
                    assert!(is_harmless, "{}: {fault:?}: what a reader refuses opens", state.name);
                    opened += 1;
                    drop(db);
                    goes_on(&world, state, fault);
                }
            }
        }
    }
    println!("opened {opened}, refused {refused}");
    assert!(opened > 50 && refused > 100);
}

/// Writes, flushes, merges and reopens; all old and new items are there.
fn goes_on(world: &World, state: &State, fault: &Fault) {
    for round in 0..2u32 {
        let db = open(world, state, Access::ReadWrite).unwrap();
        let more = db.ordered("more").open().unwrap();
        for index in 0..20u32 {
            more.put(index.to_be_bytes(), round.to_be_bytes()).unwrap();
        }
        db.flush().and_then(|()| db.compact()).unwrap_or_else(|error| {
            panic!("{}: {fault:?}: {error}", state.name);
        });
        assert_eq!(contents(&more).len(), 20);
        for (name, model) in &state.contents {
            let found = contents(&find(&db, name).unwrap());
            assert!(found == *model, "{}: {fault:?}: {name} has changed", state.name);
        }
        drop(more);
        db.close().unwrap();
    }
}

/// Every bit of a store of 64 KiB, and every truncation of its files.
#[test]
#[ignore = "some ten minutes; run by hand"]
fn f12_every_bit_and_every_cut_of_a_small_store() {
    for (state, kinds) in
        [(states::log_only(), [""].as_slice()), (states::merged(), &["table", "STORE", "manifest"])]
    {
        let mut faults = Vec::new();
        let files = state.files.iter().filter(|(file, _)| kinds.iter().any(|kind| file.starts_with(kind)));
        for (file, bytes) in files.clone() {
            faults.extend((0..bytes.len() * 8).map(|bit| Fault::Flip { file: file.clone(), bit }));
            let cuts = 0..bytes.len();
            faults.extend(cuts.map(|length| Fault::Truncated { file: file.clone(), length }));
        }
        let bytes: usize = files.map(|(_, bytes)| bytes.len()).sum();
        let tally = side_by_side(&state, &faults, Reading::Every(7));
        println!("{} ({bytes} bytes): {} faults: {tally:?}", state.name, faults.len());
        println!("torture: {} flips, {bytes} cuts", 8 * bytes);
        assert!(bytes >= 64 << 10 && faults.len() == 9 * bytes);
        let known = [Outcome::RefusedOnOpen, Outcome::RefusedOnRead, Outcome::Harmless];
        assert!(tally.keys().all(|outcome| known.contains(outcome)), "{tally:?}");
    }
}

/// Random bits of a store with a trie of three heights: each flip is detected or harmless. So are missing,
/// older and stale files and blocks.
#[test]
fn f12_bits_of_a_trie() {
    let state = states::tries();
    let mut rng = Rng::new(12);
    let bits = census::random(&state, &mut rng, 1500 * scale(), faults::flip);
    let tally = side_by_side(&state, &bits, Reading::Every(61));
    println!("{}: {} flips: {tally:?}", state.name, bits.len());
    assert!(count(&tally, Outcome::RefusedOnRead) * 4 > bits.len() as u64, "{tally:?}");
    let known = [Outcome::RefusedOnOpen, Outcome::RefusedOnRead, Outcome::Harmless];
    assert!(tally.keys().all(|outcome| known.contains(outcome)), "{tally:?}");
    let files = [faults::of_names(&state), faults::stale(&state)].concat();
    let some: Vec<Fault> = files.into_iter().step_by(7).collect();
    let tally = side_by_side(&state, &some, Reading::Every(61));
    println!("{}: {} files and blocks: {tally:?}", state.name, some.len());
}

/// Random bits of larger stores: a million at the scale of `cargo xtask torture`.
#[test]
#[ignore = "some minutes for each scale; run by hand"]
fn f12_random_bits_of_larger_stores() {
    with_seeds("f12_random_bits_of_larger_stores", 4, |seed| {
        let state = states::larger(seed);
        let mut rng = Rng::new(seed);
        let faults = census::random(&state, &mut rng, 10_000 * scale(), faults::flip);
        let tally = side_by_side(&state, &faults, Reading::Every(61));
        let bytes: usize = state.files.values().map(Vec::len).sum();
        println!("seed {seed} ({bytes} bytes): {} flips: {tally:?}", faults.len());
        println!("torture: {} flips", faults.len());
        assert!(count(&tally, Outcome::RefusedOnRead) * 4 > faults.len() as u64, "{tally:?}");
    });
}

/// As [`take`], on every core.
fn side_by_side(state: &State, faults: &[Fault], reading: Reading) -> Tally {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sum = Tally::new();
    std::thread::scope(|scope| {
        let pieces = faults.chunks(faults.len().div_ceil(cores).max(1));
        let running: Vec<_> = pieces.map(|piece| scope.spawn(move || take(state, piece, reading))).collect();
        for one in running {
            add(&mut sum, one.join().expect("the violations are printed"));
        }
    });
    sum
}
