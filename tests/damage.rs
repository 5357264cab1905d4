//! Damage: one change to one file of a closed store, for each kind of file. The store either refuses it by
//! file and offset, or still answers correctly. It never returns a wrong value, never panics, and never
//! changes a file that it cannot read.
//!
//! `damage/` has the census of the fault model's lines F12 to F16 over simulated stores. `states` makes the
//! stores, `faults` changes their files, `census` judges the answers, and `lines` has the tests. `salvages`
//! tests salvage from damaged stores, and `watch` ends tests that hang.

mod census;
pub(crate) mod faults;
mod lines;
mod salvages;
pub(crate) mod states;
mod watch;

use std::fs;
use std::ops::RangeBounds;
use std::path::Path;

use trine::inspect::{self, AtRisk, Doubtful, Finding, Report, Salvaged};
use trine::{Builder, Db, Error, Keyspace, Ordered, Value};

use super::support::{
    Files, Model, Scratch, checked_message, contents, files_but_lock, reader, small, write_files,
};

const NAMES: [&str; 2] = ["left", "right"];

/// A closed store and its items.
struct Whole {
    files: Files,
    models: [Model; 2],
}

fn value(name: &str, index: u32, version: u32) -> Vec<u8> {
    let length = if index % 97 == 5 { 3000 } else { 20 + (index % 50) as usize };
    let seed = format!("{name} {index} {version} ");
    seed.into_bytes().into_iter().cycle().take(length).collect()
}

impl Whole {
    /// Makes two keyspaces with items in a deeper level, in a run of level 0 that they share, and in the log.
    fn make() -> Whole {
        let scratch = Scratch::new();
        let db = small(&scratch.data()).open().expect("a new store");
        let keyspaces = NAMES.map(|name| db.ordered(name).open().expect("a new keyspace"));
        for (version, step) in [(0, 1), (1, 3), (2, 7)] {
            for (name, keyspace) in NAMES.iter().zip(&keyspaces) {
                for index in (0..700).step_by(step) {
                    let key = format!("{index:05}");
                    match (index + version) % 11 {
                        0 => keyspace.delete(key).expect("a write"),
                        _ => keyspace.put(key, value(name, index, version)).expect("a write"),
                    }
                }
                if version == 1 {
                    keyspace.delete_range("00300".."00330").expect("a write");
                    keyspace.delete_range("00650"..).expect("a write");
                }
            }
            match version {
                0 => db.compact().expect("a merge"),
                1 => db.flush().expect("a flush"),
                _ => {}
            }
        }
        let models = [contents(&keyspaces[0]), contents(&keyspaces[1])];
        drop(keyspaces);
        db.close().expect("closes");
        Whole { files: files_but_lock(&scratch.data()), models }
    }

    fn names(&self, kind: &str) -> Vec<String> {
        self.files.keys().filter(|name| name.starts_with(kind)).cloned().collect()
    }

    fn write(&self, data: &Path) {
        write_files(data, &self.files);
        fs::write(data.join("LOCK"), b"").expect("writes");
    }
}

/// One change to a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    /// 4 KiB of zeros.
    Zero(usize),
    Cut(usize),
    Extend(&'static [u8]),
    Missing,
    /// The bytes of another file of the store.
    Swap(String),
}

impl Damage {
    fn bytes(&self, whole: &Whole, name: &str) -> Option<Vec<u8>> {
        let mut bytes = whole.files[name].clone();
        match self {
            Damage::Flip(offset, mask) => bytes[*offset] ^= mask,
            Damage::Zero(offset) => {
                let end = bytes.len().min(offset + 4096);
                bytes[*offset..end].fill(0);
            }
            Damage::Cut(length) => bytes.truncate(*length),
            Damage::Extend(more) => bytes.extend_from_slice(more),
            Damage::Missing => return None,
            Damage::Swap(other) => bytes.clone_from(&whole.files[other]),
        }
        Some(bytes)
    }
}

fn put_file(data: &Path, name: &str, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => fs::write(data.join(name), bytes).expect("writes"),
        None => fs::remove_file(data.join(name)).expect("removes"),
    }
}

/// Offsets spread over the whole file. They are denser at its beginning, with the headers, slots and first
/// records, and at its end.
fn offsets(bytes: &[u8], count: usize) -> Vec<usize> {
    let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let mut offsets: Vec<usize> = (0..count).map(|index| index * used / count).collect();
    offsets.extend([0, 7, 8, 11, 12, 16, 24, 40, 48, 52, 4095, 4096, 4104, 4120, 4136, 8192, 8200, 8232]);
    offsets.extend([
        12_288,
        12_292,
        12_296,
        12_304,
        12_312,
        12_320,
        used - 1,
        used,
        used + 8,
        bytes.len() - 1,
    ]);
    offsets.retain(|offset| *offset < bytes.len());
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

fn damages(whole: &Whole, name: &str, count: usize) -> Vec<Damage> {
    let bytes = &whole.files[name];
    let offsets = offsets(bytes, count);
    let mut all: Vec<Damage> =
        offsets.iter().enumerate().map(|(index, offset)| Damage::Flip(*offset, 1 << (index % 8))).collect();
    let mut zeroed: Vec<usize> = offsets.iter().step_by(3).map(|offset| offset / 4096 * 4096).collect();
    zeroed.dedup();
    all.extend(zeroed.into_iter().map(Damage::Zero));
    let length = bytes.len();
    all.extend([0, 1, 4095, 4096, 8192, 12_288, length / 2, length - 512, length - 1].map(Damage::Cut));
    all.extend([&[0][..], &[0; 4096], &[0xff; 512]].map(Damage::Extend));
    all.push(Damage::Missing);
    let kind = name.split('-').next().expect("a name has a first part");
    all.extend(whole.names(kind).into_iter().filter(|other| other != name).map(Damage::Swap));
    all.extend(whole.files.keys().find(|other| !other.starts_with(kind)).cloned().map(Damage::Swap));
    all
}

/// The outcome of opening and reading a damaged store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Refused,
    /// The store opens, but reads of some keys are refused.
    Partly,
    Harmless,
}

/// Asserts that the error names the damaged file, with an offset in it or just past its end.
fn names_the_damage(error: Error, damaged: &str, whole: &Whole) {
    match checked_message(error) {
        Error::Corrupt(at) => {
            assert_eq!(at.file, damaged, "{at:?}");
            let longest = whole.files.values().map(Vec::len).max().expect("files") + 4096;
            assert!(at.offset <= longest as u64, "{at:?}");
        }
        other => panic!("not told as damage: {other:?}"),
    }
}

/// Gets every key, and scans all items in both directions. Asserts that answers are correct; returns whether
/// any read was refused.
fn read(keyspace: &Keyspace<Ordered>, model: &Model, damaged: &str, whole: &Whole) -> bool {
    let mut refused = false;
    let mut refuse = |error| {
        names_the_damage(error, damaged, whole);
        refused = true;
    };
    for index in 0..710 {
        let key = format!("{index:05}").into_bytes();
        match keyspace.get(&key) {
            Ok(found) => assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{key:?}"),
            Err(error) => refuse(error),
        }
    }
    let mut walk = |items: &mut dyn Iterator<Item = trine::Result<(Value, Value)>>,
                    expected: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
        for item in items {
            match item {
                Ok((key, value)) => {
                    let (right_key, right_value) = expected.next().expect("an item too many");
                    assert_eq!((&*key, &*value), (&**right_key, &**right_value));
                }
                Err(error) => return refuse(error),
            }
        }
        assert_eq!(expected.next(), None, "an item is missing");
    };
    walk(&mut keyspace.iter(), &mut model.iter());
    walk(&mut keyspace.iter().rev(), &mut model.iter().rev());
    refused
}

/// Opens the store and reads all items.
fn look(builder: Builder, damaged: &str, whole: &Whole) -> (Outcome, Option<Db>) {
    let db = match builder.open() {
        Ok(db) => db,
        Err(error) => {
            names_the_damage(error, damaged, whole);
            return (Outcome::Refused, None);
        }
    };
    let refused = [0, 1].map(|index| {
        let keyspace = db.ordered(NAMES[index]).open().expect("the manifest was read");
        read(&keyspace, &whole.models[index], damaged, whole)
    });
    match refused {
        [false, false] => (Outcome::Harmless, Some(db)),
        [true, true] if !damaged.starts_with("table") => panic!("{damaged}: damage elsewhere shows at open"),
        _ => (Outcome::Partly, Some(db)),
    }
}

/// Damages one file in many ways and looks at each with a reader; counts the outcomes.
fn outcomes_of(kind: &str, count: usize) -> [usize; 3] {
    let whole = Whole::make();
    let scratch = Scratch::new();
    let data = scratch.data();
    whole.write(&data);
    let mut outcomes = [0; 3];
    for name in whole.names(kind) {
        for damage in damages(&whole, &name, count) {
            let bytes = damage.bytes(&whole, &name);
            if bytes.as_ref() == Some(&whole.files[&name]) {
                continue;
            }
            put_file(&data, &name, bytes.as_deref());
            let (outcome, db) = look(reader(&data), &name, &whole);
            outcomes[outcome as usize] += 1;
            let report = inspect::verify(&data, |_| {}).expect("damage is no error of the check");
            is_told(&report, (outcome, db), &name, &whole);
            match inspect::dump(data.join(&name), |_| {}) {
                Ok(()) => assert!(bytes.is_some()),
                Err(error) => assert!(bytes.is_none() && matches!(error, Error::Missing { .. }), "{error}"),
            }
            if kind != "log" && matches!(damage, Damage::Cut(_) | Damage::Missing | Damage::Swap(_)) {
                assert_eq!(outcome, Outcome::Refused, "{name}: {damage:?}");
            }
            assert!(outcome != Outcome::Partly || kind == "table", "{name}: {damage:?}");
            if bytes.is_none() {
                assert!(!data.join(&name).exists(), "a reader made {name}");
            }
            put_file(&data, &name, Some(&whole.files[&name]));
        }
    }
    println!("{kind}: refused {}, partly {}, harmless {}", outcomes[0], outcomes[1], outcomes[2]);
    outcomes
}

/// Asserts that `verify` finds all damage that refuses reads, and names the keys at risk; in a table, any
/// damage.
fn is_told(report: &Report, (outcome, db): (Outcome, Option<Db>), damaged: &str, whole: &Whole) {
    let findings = &report.findings;
    assert!(findings.iter().all(|one| one.damage.file == damaged), "{damaged}: {findings:?}");
    let must_find = outcome != Outcome::Harmless || damaged.starts_with("table");
    assert!(!must_find || !findings.is_empty(), "{damaged}: {outcome:?}, and nothing was found");
    let Some(db) = db.filter(|_| outcome == Outcome::Partly) else { return };
    for (name, model) in NAMES.iter().zip(&whole.models) {
        let keyspace = db.keyspace(name).expect("it is there");
        for key in model.keys().filter(|key| keyspace.get(key).is_err()) {
            let is_at_risk = |one: &Finding| match &one.at_risk {
                AtRisk::Keys { keyspace, from, to } => {
                    keyspace == name && RangeBounds::<Vec<u8>>::contains(&(from.as_ref(), to.as_ref()), key)
                }
                _ => false,
            };
            assert!(findings.iter().any(is_at_risk), "{damaged}: {key:?} is not among {findings:?}");
        }
    }
}

/// A salvaged store holds every item except those that `verify` names as at risk. Of these it holds only
/// earlier values.
#[test]
fn undamaged_items_are_salvaged() {
    let whole = Whole::make();
    let scratch = Scratch::new();
    let data = scratch.data();
    whole.write(&data);
    let mut outcomes = [0; 3];
    for (turn, name) in whole.files.keys().enumerate() {
        for damage in damages(&whole, name, 10).iter().skip(turn % 4).step_by(4) {
            let bytes = damage.bytes(&whole, name);
            put_file(&data, name, bytes.as_deref());
            let target = Scratch::new();
            let salvaged = inspect::salvage(&data, target.data(), |_| {}).expect("damage is no error");
            assert!(salvaged.is_order_known || name.starts_with("manifest"), "{name}, {damage:?}");
            let lost = lost(&salvaged, &target.data(), &whole, (name, damage));
            outcomes[lost.min(2)] += 1;
            put_file(&data, name, Some(&whole.files[name]));
        }
    }
    println!("nothing lost {}, one key {}, more {}", outcomes[0], outcomes[1], outcomes[2]);
    assert!(outcomes[0] > 20 && outcomes[1] + outcomes[2] > 10, "{outcomes:?}");
}

/// Counts the keys that the salvaged store lacks or has with another value, under their own keyspace or
/// apart.
fn lost(salvaged: &Salvaged, path: &Path, whole: &Whole, (damaged, damage): (&str, &Damage)) -> usize {
    let db = Db::open(path).expect("it is a store");
    let mut lost = 0;
    for ((name, model), number) in NAMES.iter().zip(&whole.models).zip(1..) {
        let own = db.keyspace(name).ok();
        assert!(own.is_some() || damaged.starts_with("manifest"), "{damaged}, {damage:?}: no {name}");
        let is_of = |one: &&Doubtful| match &one.of {
            Some(of) => of == name,
            None => one.keyspace.ends_with(&format!("-{number}")),
        };
        let apart = salvaged.doubtful.iter().filter(is_of);
        let apart: Vec<_> = apart.map(|one| db.keyspace(&one.keyspace).expect("it was told")).collect();
        for index in 0..700 {
            let key = format!("{index:05}").into_bytes();
            let is_right = |found: &Option<Value>| found.as_deref() == model.get(&key).map(Vec::as_slice);
            let found = own.as_ref().and_then(|own| own.get(&key).expect("it is sound"));
            if is_right(&found) || apart.iter().any(|one| is_right(&one.get(&key).expect("it is sound"))) {
                continue;
            }
            lost += 1;
            let is_at_risk = |one: &Finding| match &one.at_risk {
                AtRisk::Keys { keyspace, from, to } => {
                    keyspace == name && RangeBounds::<Vec<u8>>::contains(&(from.as_ref(), to.as_ref()), &key)
                }
                AtRisk::Writes { .. } | AtRisk::Store => true,
                _ => false,
            };
            let findings = &salvaged.report.findings;
            assert!(findings.iter().any(is_at_risk), "{damaged}, {damage:?}: {key:?} is lost");
            let versions = (0..3).map(|version| value(name, index, version));
            let is_older = found.is_none_or(|found| versions.into_iter().any(|one| one == *found));
            assert!(is_older, "{damaged}, {damage:?}: {key:?} has a value that it never had");
        }
    }
    lost
}

/// Dumps of undamaged files show every kind of part, no damage, and all items.
#[test]
fn dumps_show_every_part_and_item() {
    let whole = Whole::make();
    let scratch = Scratch::new();
    whole.write(&scratch.data());
    let mut parts = Vec::new();
    for name in whole.files.keys() {
        let mut end = 0;
        inspect::dump(scratch.data().join(name), |part| {
            assert_eq!(part.damage, None, "{name}");
            end = end.max(part.offset + part.bytes);
            parts.push(part.clone());
        })
        .expect("a sound file");
        assert_eq!(end, whole.files[name].len() as u64, "{name}");
    }
    let count = |name: &str| parts.iter().filter(|part| part.name == name).count();
    for name in ["header", "slot 0", "slot 1", "edit", "change", "batch", "item", "data block", "tail"] {
        assert!(count(name) > 0, "{name}");
    }
    assert!(parts.iter().any(|part| part.name == "item" && part.says.contains(": put 00007, a value of")));
    assert!(parts.iter().any(|part| part.says.starts_with("Slice 0 of table ")));
    assert!(inspect::dump(scratch.data().join("LOCK"), |_| {}).is_err());
}

/// Any damage to STORE is refused, or is in one of its two slots and harmless.
#[test]
fn damaged_store_file() {
    let [refused, _, harmless] = outcomes_of("STORE", 40);
    assert!(refused > 20 && harmless > 5);
}

/// Any damage to the manifest is refused, or is in an unwritten area or in one of its slots.
#[test]
fn damaged_manifest() {
    let [refused, _, harmless] = outcomes_of("manifest", 100);
    assert!(refused > 60 && harmless > 30);
}

/// Any damage to a log is refused, or is after its last record. In a reused log most bytes are.
#[test]
fn damaged_log() {
    let [refused, _, harmless] = outcomes_of("log", 60);
    assert!(refused > 40 && harmless > 10, "{refused} refused, {harmless} harmless");
}

/// Any damage to a table is refused on opening, or only by the reads that need the damaged bytes, or is in
/// unused bytes.
#[test]
fn damaged_table() {
    let [refused, partly, _] = outcomes_of("table", 60);
    assert!(refused > 60 && partly > 20);
}

/// Every flipped bit of a block with range tombstones makes the store refuse it. No deleted key is found, and
/// no other key is missing.
#[test]
fn damaged_ranges() {
    let whole = Whole::make();
    let scratch = Scratch::new();
    let data = scratch.data();
    whole.write(&data);
    let mut flips = 0;
    for name in whole.names("table") {
        let bytes = &whole.files[&name];
        // Blocks are multiples of 512 bytes. Range tombstone blocks have tag 7; these have two ranges.
        let blocks = (4096..bytes.len()).step_by(512);
        let blocks = blocks.filter(|at| bytes[at + 4..at + 12] == [7, 0, 0, 0, 2, 0, 0, 0]);
        for at in blocks.flat_map(|block| block..block + 64) {
            for bit in 0..8 {
                put_file(&data, &name, Damage::Flip(at, 1 << bit).bytes(&whole, &name).as_deref());
                assert_eq!(look(reader(&data), &name, &whole).0, Outcome::Refused, "{name}: {at} {bit}");
                flips += 1;
            }
        }
        put_file(&data, &name, Some(&whole.files[&name]));
    }
    assert!(flips >= 2 * 64 * 8, "{flips}");
}

/// A flipped byte in one keyspace's slice of a table leaves the other keyspaces readable. In a data block it
/// also leaves most of the keyspace's own keys readable.
#[test]
fn damage_to_a_block_stays_there() {
    let whole = Whole::make();
    let scratch = Scratch::new();
    whole.write(&scratch.data());
    let (mut sides, mut wide) = ([0; 2], 0);
    for name in whole.names("table") {
        let bytes = &whole.files[&name];
        for offset in (4096..bytes.len()).step_by(1111) {
            let damaged = Damage::Flip(offset, 0x10).bytes(&whole, &name);
            put_file(&scratch.data(), &name, damaged.as_deref());
            if let Ok(db) = reader(&scratch.data()).open() {
                let refused = [0, 1].map(|index| {
                    let keyspace = db.ordered(NAMES[index]).open().expect("the manifest was read");
                    let keys = whole.models[index].keys();
                    keys.filter(|key| keyspace.get(key).is_err()).count()
                });
                assert!(refused.contains(&0), "{name} {offset}: both keyspaces suffer, {refused:?}");
                for (side, count) in refused.into_iter().enumerate() {
                    // Filters and fences are few bytes, but many keys need them.
                    wide += usize::from(count * 4 > whole.models[side].len());
                    sides[side] += usize::from(count > 0);
                }
            }
        }
        put_file(&scratch.data(), &name, Some(&whole.files[&name]));
    }
    assert!(sides[0] > 3 && sides[1] > 3 && wide * 3 < sides[0] + sides[1], "{sides:?} {wide}");
    println!("damage seen in {sides:?}, of which {wide} in what many keys need");
}

/// Opening a damaged store for writing loses nothing. A refused opening leaves every file unchanged. After an
/// opening, readable items stay correct through writes, a flush, a merge that may fail, and a reopen.
#[test]
fn writers_lose_nothing_to_damage() {
    let whole = Whole::make();
    let mut count = 0;
    let mut opened = 0;
    for name in whole.files.keys() {
        let all = damages(&whole, name, 12);
        for damage in all.iter().skip(count % 4).step_by(4) {
            count += 1;
            let bytes = damage.bytes(&whole, name);
            let scratch = Scratch::new();
            let data = scratch.data();
            whole.write(&data);
            put_file(&data, name, bytes.as_deref());
            let before = files_but_lock(&data);
            let (outcome, db) = look(small(&data), name, &whole);
            let Some(db) = db else {
                assert!(
                    files_but_lock(&data) == before,
                    "{name}, {damage:?}: a refused opening changed a file"
                );
                continue;
            };
            opened += 1;
            write_more(db, outcome, name, &whole);
            let (after, _) = look(small(&data), name, &whole);
            assert!(outcome != Outcome::Harmless || after == Outcome::Harmless, "{name}: {damage:?}");
        }
    }
    assert!(count > 60 && opened > 15, "{count} {opened}");
}

/// Writes that do not change the items `look` reads, and background work that reads everything.
fn write_more(db: Db, outcome: Outcome, name: &str, whole: &Whole) {
    let results = || -> trine::Result<()> {
        let more = db.ordered("more").open()?;
        more.put(b"a", b"1")?;
        db.flush()?;
        more.put(b"b", b"2")?;
        db.compact()
    };
    let results = [results(), db.close()];
    for result in results {
        match result {
            Ok(()) => {}
            Err(error) if outcome == Outcome::Partly => names_the_damage(error, name, whole),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
