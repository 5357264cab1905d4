//! Salvage of damaged stores. The bytes of the files alone tell, block by block, which items are still there;
//! each of them must be in the salvaged store.
//!
//! An item is recoverable if the block or record with its newest version is intact in some file of the
//! damaged store. It must be at its offset, and the file must be identifiable. A file is identified by its
//! own header, or by its name and an intact manifest. The item is recovered if it is in the keyspace of its
//! own name, or apart: in a keyspace that the salvage reports as doubtful.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use trine::inspect::{self, AtRisk, Salvaged};
use trine::sim::World;
use trine::{Access, Db, Keyspace, Ordered};

use crate::rng::Rng;
use crate::support::{Files, Model, Scratch, contents, find, names, write_files};

use super::census::{self, damaged, is_of};
use super::faults::{self, Fault, PAGE_BYTES, kind};
use super::states::{self, Doubt, State, files_of};

/// The offset of a manifest's first edit.
const RECORDS_FROM: usize = 3 * 4096;
/// The prefix of the names of keyspaces that a salvage makes for doubtful items.
const APART: &str = "salvaged-";

/// A block of a table or a record of a log: file, offset and length.
type Block = (String, usize, usize);

/// The locations of the newest version of each item, by keyspace and key; one block is enough.
struct Places {
    blocks_of: BTreeMap<(String, Vec<u8>), Vec<Block>>,
}

impl Places {
    fn of(state: &State) -> Places {
        let blocks = blocks(&state.files);
        let mut blocks_of = BTreeMap::new();
        for (name, model) in &state.contents {
            for (key, value) in model {
                let mut found: Vec<Block> = blocks
                    .iter()
                    .filter(|((file, at, bytes), _)| has(&state.files[file][*at..*at + *bytes], value))
                    .map(|(block, _)| block.clone())
                    .collect();
                if found.is_empty() {
                    // The dump of a compressed block names its first and last key.
                    let has_key =
                        |says: &str| bounds(says).is_some_and(|(first, last)| first <= *key && *key <= last);
                    let found_packed = blocks.iter().filter(|(_, says)| has_key(says));
                    found = found_packed.map(|(block, _)| block.clone()).collect();
                    assert_eq!(found.len(), 1, "{}: {name} {key:?}", state.name);
                }
                blocks_of.insert((name.clone(), key.clone()), found);
            }
        }
        Places { blocks_of }
    }

    /// The items that are still there.
    fn recoverable(&self, state: &State, files: &Files) -> Vec<&(String, Vec<u8>)> {
        let is_manifest_whole = {
            let manifests = || state.files.iter().filter(|(name, _)| kind(name) == "manifest");
            manifests().all(|(name, bytes)| files.get(name) == Some(bytes))
        };
        let is_there = |(file, at, bytes): &Block| {
            let sound = &state.files[file];
            files.iter().any(|(name, found)| {
                let is_known = found.get(..PAGE_BYTES) == Some(&sound[..PAGE_BYTES])
                    || name == file && is_manifest_whole;
                is_known && found.get(*at..*at + *bytes) == Some(&sound[*at..*at + *bytes])
            })
        };
        let all = self.blocks_of.iter();
        all.filter(|(_, blocks)| blocks.iter().any(is_there)).map(|(item, _)| item).collect()
    }
}

fn has(bytes: &[u8], value: &[u8]) -> bool {
    bytes.windows(value.len()).any(|window| window == value)
}

/// Every block of items and every record of undamaged files, with its line in a dump.
fn blocks(files: &Files) -> Vec<(Block, String)> {
    let scratch = Scratch::new();
    write_files(&scratch.data(), files);
    let mut blocks = Vec::new();
    for name in files.keys().filter(|name| matches!(kind(name), "log" | "table")) {
        let told = inspect::dump(scratch.data().join(name), |part| {
            if matches!(part.name, "batch" | "data block") {
                let block = (name.clone(), part.offset as usize, part.bytes as usize);
                blocks.push((block, part.says.clone()));
            }
        });
        told.expect("a sound file");
    }
    blocks
}

/// The first and last key of a compressed block.
fn bounds(says: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, keys) = says.strip_suffix(" decompressed")?.split_once(" items from ")?;
    let (first, rest) = keys.split_once(" to ")?;
    Some((unescaped(first), unescaped(rest.rsplit_once(", ")?.0)))
}

/// The inverse of `escape_ascii`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut all = Vec::new();
    while let Some(byte) = bytes.next() {
        all.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            _ => match bytes.next().expect("an escape goes on") {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                    let digits = std::str::from_utf8(&digits).expect("digits");
                    u8::from_str_radix(digits, 16).expect("hex digits")
                }
                itself => itself,
            },
        });
    }
    all
}

/// The results of the salvages of one kind of fault.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    salvages: u64,
    recoverable: u64,
    /// Items in the keyspace of their own name.
    own: u64,
    /// Items in a doubtful keyspace.
    apart: u64,
    lost: u64,
    /// Salvages that found no item though some were recoverable.
    empty: u64,
}

fn ordered(db: &Db, name: &str) -> Keyspace<Ordered> {
    find(db, name).expect("it is there")
}

/// Salvages a damaged store and compares the result.
fn salvage(state: &State, places: &Places, fault: &Fault, sum: &mut Sum) -> Result<(), String> {
    let changes = fault.changes(state);
    if changes.is_empty() {
        return Ok(());
    }
    let world = damaged(state, &changes);
    let before = files_of(&world);
    let target = World::new(7);
    let salvaged = world.salvage(&target).map_err(|error| format!("no salvage: {error}"))?;
    if files_of(&world) != before {
        return Err("the source was changed".to_owned());
    }
    let db = target
        .builder()
        .memory_bytes(256 << 10)
        .access(Access::ReadOnly)
        .open()
        .map_err(|error| error.to_string())?;
    let all = names(&db).into_iter().map(|name| (name.clone(), contents(&ordered(&db, &name))));
    let made: BTreeMap<String, Model> = all.collect();
    let recoverable = places.recoverable(state, &before);
    sum.salvages += 1;
    sum.recoverable += recoverable.len() as u64;
    let mut lost = Vec::new();
    for (name, key) in &recoverable {
        let value = &state.contents[name][key];
        let is_in = |model: &Model| model.get(key) == Some(value);
        if made.get(name).is_some_and(is_in) {
            sum.own += 1;
        } else if made.iter().any(|(made, model)| made.starts_with(APART) && is_in(model)) {
            sum.apart += 1;
        } else {
            sum.lost += 1;
            lost.push((name, key));
        }
    }
    sum.empty += u64::from(!recoverable.is_empty() && made.values().all(Model::is_empty));
    if let Some(first) = lost.first() {
        return Err(format!("{} of {} are lost, {first:?} first", lost.len(), recoverable.len()));
    }
    is_told(state, fault, &salvaged, &made)
}

/// Asserts that items apart are reported as doubtful, and that all others are right or reported as at risk.
fn is_told(
    state: &State,
    fault: &Fault,
    salvaged: &Salvaged,
    made: &BTreeMap<String, Model>,
) -> Result<(), String> {
    let apart: BTreeSet<&String> = salvaged.doubtful.iter().map(|one| &one.keyspace).collect();
    let named: BTreeSet<&String> = made.keys().filter(|name| name.starts_with(APART)).collect();
    if apart != named || salvaged.doubtful.len() != apart.len() {
        return Err(format!("told as doubtful {apart:?}, made {named:?}"));
    }
    for doubtful in &salvaged.doubtful {
        let model = &made[&doubtful.keyspace];
        if doubtful.writes == 0 {
            return Err(format!("nothing was written to {}", doubtful.keyspace));
        }
        let of_one = |name: &String| model.iter().all(|item| state.had(name, item));
        let is_of_one = match &doubtful.of {
            // A partition whose name is lost is reported under its keyspace's name.
            Some(of) => {
                let is_in = |name: &&String| is_of(of, name) || is_of(name, of);
                state.names().iter().filter(is_in).any(of_one)
            }
            None => state.names().iter().any(of_one),
        };
        if !is_of_one {
            return Err(format!("{} has items of others: {doubtful:?}", doubtful.keyspace));
        }
    }
    let is_documented = state.doubt != Doubt::None
        || matches!(fault, Fault::PutBack { file, .. } | Fault::Stale { file, .. } if kind(file) != "table");
    for (name, model) in made.iter().filter(|(name, _)| !name.starts_with(APART)) {
        if let Some(item) = model.iter().find(|item| !state.had(name, *item)) {
            return Err(format!("{name} has another's item: {:?}", item.0));
        }
        let whole = state.contents.get(name);
        // A drop whose edit is damaged cannot be detected.
        let is_edit_gone = matches!(fault, Fault::Swapped { one, other, .. }
            if [one, other].iter().any(|(file, from)| kind(file) == "manifest" && *from >= RECORDS_FROM));
        if whole.is_none() && !is_documented && !is_edit_gone {
            return Err(format!("{name} was dropped"));
        }
        let empty = Model::new();
        let whole = whole.unwrap_or(&empty);
        let is_doubtful =
            salvaged.doubtful.iter().any(|one| one.of.as_ref().is_none_or(|of| is_of(of, name)));
        let keys: BTreeSet<&Vec<u8>> = whole.keys().chain(model.keys()).collect();
        let wrong = keys.into_iter().filter(|key| whole.get(*key) != model.get(*key));
        for key in wrong {
            let is_missing = !model.contains_key(key);
            let is_at_risk = salvaged.report.findings.iter().any(|one| match &one.at_risk {
                AtRisk::Keys { keyspace, from, to } => {
                    is_of(keyspace, name)
                        && std::ops::RangeBounds::<Vec<u8>>::contains(&(from.as_ref(), to.as_ref()), key)
                }
                AtRisk::Writes { .. } | AtRisk::Store => true,
                _ => false,
            });
            if !(is_at_risk || is_documented || is_missing && is_doubtful) {
                return Err(format!("{key:?} of {name} is wrong, and nothing says so: {salvaged:?}"));
            }
        }
    }
    Ok(())
}

impl State {
    /// Every keyspace that ever existed.
    fn names(&self) -> BTreeSet<String> {
        let moments = self.earlier.iter().map(|moment| &moment.contents);
        let all = moments.chain(&self.prefixes).chain([&self.contents]);
        all.flat_map(|contents| contents.keys().cloned()).collect()
    }

    /// Whether the keyspace may ever have had the item; values begin with their keyspace's name.
    fn had(&self, name: &str, (key, value): (&Vec<u8>, &Vec<u8>)) -> bool {
        let begins = format!("{name} ");
        value.starts_with(begins.as_bytes())
            || self.contents.get(name).is_some_and(|model| model.get(key) == Some(value))
            || self
                .earlier
                .iter()
                .any(|moment| moment.contents.get(name).is_some_and(|model| model.get(key) == Some(value)))
    }
}

/// Made once, and then only read.
fn states() -> &'static [(State, Places)] {
    static STATES: OnceLock<Vec<(State, Places)>> = OnceLock::new();
    STATES.get_or_init(|| {
        let states = states::all().into_iter();
        states
            .map(|state| Places::of(&state))
            .zip(states::all())
            .map(|(places, state)| (state, places))
            .collect()
    })
}

/// Every `step`-th fault, from a start that differs between states.
fn some(faults: Vec<Fault>, step: usize, turn: usize) -> Vec<Fault> {
    faults.into_iter().skip(turn % step).step_by(step).collect()
}

fn take(what: &str, faults: impl Fn(&State, usize) -> Vec<Fault>) -> Sum {
    let mut sum = Sum::default();
    let mut violations = Vec::new();
    for (turn, (state, places)) in states().iter().enumerate() {
        for fault in faults(state, turn) {
            if let Err(violation) = salvage(state, places, &fault, &mut sum) {
                violations.push(format!("{}: {fault:?}: {violation}", state.name));
            }
        }
    }
    println!("{what}: {sum:?}");
    violations.iter().take(40).for_each(|violation| println!("VIOLATION {violation}"));
    assert!(violations.is_empty(), "{} violations: {}", violations.len(), violations[0]);
    assert_eq!((sum.lost, sum.empty), (0, 0), "{what}");
    assert_eq!(sum.own + sum.apart, sum.recoverable, "{what}");
    sum
}

/// Flipped bits and truncated files.
#[test]
fn f12_salvages_of_flips_and_cuts() {
    let sum = take("flips and cuts", |state, turn| {
        let mut rng = Rng::new(112 + turn as u64);
        let flips = census::random(state, &mut rng, 24, faults::flip);
        [flips, census::random(state, &mut rng, 12, faults::truncation)].concat()
    });
    assert!(sum.salvages > 400, "{sum:?}");
}

/// All damage to the first page of STORE.
#[test]
fn f12_salvages_without_the_first_page_of_store() {
    let sum = take("first page of STORE", |state, turn| some(faults::of_store_page(state), 40, turn));
    assert!(sum.salvages > 200 && sum.apart == 0, "{sum:?}");
}

/// Sectors, pages and whole files, overwritten with zeros and garbage.
#[test]
fn f13_salvages_of_zeroed_and_garbage_blocks() {
    let sum = take("blocks", |state, turn| some(faults::overwritten(state), 20, turn));
    assert!(sum.salvages > 300, "{sum:?}");
}

/// Swapped blocks.
#[test]
fn f14_salvages_of_misdirected_blocks() {
    let sum = take("swaps", |state, turn| some(faults::swaps(state, &mut Rng::new(14), 60), 6, turn));
    assert!(sum.salvages > 250, "{sum:?}");
}

/// Stale blocks and files.
#[test]
fn f14_salvages_of_stale_blocks_and_files() {
    let sum = take("stale", |state, turn| {
        let (whole, blocks): (Vec<Fault>, Vec<Fault>) =
            faults::stale(state).into_iter().partition(|fault| matches!(fault, Fault::PutBack { .. }));
        [whole, some(blocks, 3, turn)].concat()
    });
    assert!(sum.salvages > 200, "{sum:?}");
}

/// Extended, missing, duplicated, renamed and exchanged files.
#[test]
fn f15_salvages_of_files_under_other_names() {
    let sum = take("names", |state, turn| {
        [some(faults::of_names(state), 2, turn), some(faults::extensions(state), 9, turn)].concat()
    });
    assert!(sum.salvages > 500, "{sum:?}");
}
