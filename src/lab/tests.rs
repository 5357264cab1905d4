//! The lab against a model: random operations and knobs with reopens, crashes at every call, damaged bytes.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeMap;

use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::base::sync::Arc;
use crate::io::sim::{Crash, FaultPlan, SimDisk, SimRng, Stop, sim_env};
use crate::io::storage::{DirectoryEntry, Storage};

use super::{Knobs, Lab, Preset};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &Arc<SimDisk>, seed: u64, knobs: &Knobs) -> Result<Lab> {
    Lab::open_in(sim_env(disk, seed).0, knobs)
}

/// Sets small sizes, and random values for the knobs that may change at an opening.
fn shake(knobs: &mut Knobs, rng: &mut SimRng) {
    let appended = knobs.get("layout").unwrap() == "append";
    let mut set = |name: &str, values: &[&str]| {
        knobs.set(name, values[rng.index(values.len())]).unwrap();
    };
    set("memory", &["unsorted", "sorted", "append"]);
    set("memory_items", &["1", "3", "8", "20"]);
    set("ratio", &["2", "3", "5"]);
    set("components", &["1", "2", "4", "12"]);
    set("columns", &["off", "on"]);
    set("merge", &["tree", "heap"]);
    set("filter", &["none", "global", "component"]);
    set("filter_bits", &["64", "1000", "65536"]);
    set("filter_hashes", &["1", "4"]);
    set("bounds", &["off", "on"]);
    set("cache_bytes", &["0", "8192", "1048576"]);
    set("parallel_reads", &["1", "1", "2", "3"]);
    set("parallel_poll_steps", &["0", "1", "2"]);
    set("save_every", &["0", "0", "1", "7"]);
    if !appended {
        set("buffer", &["off", "on"]);
        set("arrays", &["1", "1", "2", "4"]);
        set("fences", &["off", "on"]);
    }
}

fn small(preset: Preset, value_bytes: u64) -> Knobs {
    let mut knobs = preset.knobs();
    knobs.set("value_bytes", &value_bytes.to_string()).unwrap();
    knobs.set("read_by", "pread").unwrap();
    knobs
}

fn key(rng: &mut SimRng, keys: u64) -> Vec<u8> {
    (rng.below(keys) as u32).to_be_bytes().to_vec()
}

fn contents(lab: &Lab) -> Model {
    let mut found = Model::new();
    lab.scan(|key, value| assert!(found.insert(key.to_vec(), value.to_vec()).is_none())).unwrap();
    found
}

fn compare(lab: &Lab, model: &Model, rng: &mut SimRng, keys: u64) {
    for _ in 0..20 {
        let key = key(rng, keys + 3);
        assert_eq!(lab.get(&key).unwrap().as_ref(), model.get(&key), "{key:?} {:?}", lab.knobs());
        assert_eq!(lab.contains(&key).unwrap(), model.contains_key(&key));
    }
    let stats = lab.stats();
    let last = stats.components.len();
    for component in stats.components.iter().take(last.saturating_sub(1)) {
        let knobs = lab.knobs();
        let many = knobs.get("arrays").unwrap() != "1" && knobs.get("layout").unwrap() == "sorted";
        assert!(many || component.items <= component.capacity_items.max(1 << 12), "{component:?}");
    }
}

/// Random writes, deletions and reads give the results of a map, over reopens with other knobs, saved or not.
/// A reopen without a save loses exactly the unsaved writes.
#[test]
fn random_operations_and_knobs_agree_with_a_map() {
    for seed in 0..24u64 {
        let mut rng = SimRng::new(seed);
        let disk = SimDisk::new(seed);
        let value_bytes = [0, 5, 32][rng.index(3)];
        let mut knobs = small(Preset::ALL[rng.index(3)], value_bytes);
        let keys = [10, 300, 5000][rng.index(3)];
        let (mut model, mut saved) = (Model::new(), Model::new());
        for round in 0..5 {
            shake(&mut knobs, &mut rng);
            let mut lab = open(&disk, rng.u64(), &knobs).unwrap();
            assert_eq!(contents(&lab), model, "seed {seed} round {round} {knobs:?}");
            let mut saves = lab.stats().saves;
            for _ in 0..rng.below(400) {
                let key = key(&mut rng, keys);
                // A merge that reaches the disk saves before the write that triggered it.
                let before = model.clone();
                if rng.one_in(4) {
                    lab.delete(&key).unwrap();
                    model.remove(&key);
                } else {
                    let mut value = vec![0; value_bytes as usize];
                    rng.fill(&mut value);
                    lab.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
                let stats = lab.stats();
                if stats.saves > saves {
                    let holds_the_last = stats.operations_saved == stats.operations;
                    saved = if holds_the_last { model.clone() } else { before };
                    saves = stats.saves;
                }
                if rng.one_in(40) {
                    compare(&lab, &model, &mut rng, keys);
                }
                if rng.one_in(150) {
                    lab.save().unwrap();
                    (saves, saved) = (saves + 1, model.clone());
                }
            }
            compare(&lab, &model, &mut rng, keys);
            assert_eq!(contents(&lab), model);
            if rng.one_in(2) {
                lab.close().unwrap();
                saved = model.clone();
            } else {
                drop(lab);
                model = saved.clone();
            }
        }
    }
}

/// Writes until the disk stops; returns the states after each operation, from the last known save on.
fn run_to_the_stop(disk: &Arc<SimDisk>, seed: u64, knobs: &Knobs) -> Vec<Model> {
    let mut rng = SimRng::new(seed);
    let mut model = Model::new();
    let mut since_save = vec![model.clone()];
    let Ok(mut lab) = open(disk, seed, knobs) else { return since_save };
    let mut saved = 0;
    for _ in 0..90 {
        let key = key(&mut rng, 60);
        let value = if rng.one_in(4) { None } else { Some(vec![rng.u64() as u8; 5]) };
        let done = match &value {
            None => lab.delete(&key),
            Some(value) => lab.put(&key, value),
        };
        let operations = lab.stats().operations;
        let happened = operations as usize > saved + since_save.len() - 1;
        if happened {
            match value {
                None => model.remove(&key),
                Some(value) => model.insert(key, value),
            };
            since_save.push(model.clone());
        }
        let newly_saved = lab.stats().operations_saved as usize;
        since_save.drain(..newly_saved - saved);
        saved = newly_saved;
        if done.is_err() {
            return since_save;
        }
    }
    since_save
}

fn crash_everywhere(knobs: &Knobs, crashes: &[Crash], step: usize) {
    let whole = SimDisk::new(3);
    run_to_the_stop(&whole, 3, knobs);
    let calls = whole.calls();
    let (mut lost_most, mut reopened) = (0, 0);
    for index in (0..calls).step_by(step) {
        for stop in [Stop::Before, Stop::Amid] {
            let disk = SimDisk::new(3);
            disk.plan(FaultPlan::stop(stop, index));
            let possible = run_to_the_stop(&disk, 3, knobs);
            for crash in crashes {
                let after = disk.fork();
                after.crash(*crash, index ^ 77);
                let lab = open(&after, 9, knobs).unwrap_or_else(|error| panic!("call {index}: {error}"));
                let found = contents(&lab);
                let at = possible.iter().rposition(|one| *one == found);
                let at = at.unwrap_or_else(|| panic!("call {index} {stop:?} {crash:?}: no state of a save"));
                lost_most = lost_most.max(possible.len() - 1 - at);
                reopened += 1;
                // The reopening removed leftovers of the crash, and the store works on.
                drop(lab);
                let files = after.list().unwrap().len();
                drop(open(&after, 10, knobs).unwrap());
                assert_eq!(after.list().unwrap().len(), files);
                // The state that the reopening found remains after another crash.
                after.crash(*crashes.last().unwrap(), index);
                assert_eq!(contents(&open(&after, 11, knobs).unwrap()), found, "call {index}, again");
            }
        }
    }
    let save_every: usize = knobs.get("save_every").unwrap().parse().unwrap();
    let memory_items: usize = knobs.get("memory_items").unwrap().parse().unwrap();
    let ratio: usize = knobs.get("ratio").unwrap().parse().unwrap();
    // An overwrite takes no room in memory, so this bound holds only if every write takes some.
    if save_every > 0 {
        assert!(lost_most <= save_every, "{lost_most} lost, {save_every} promised");
    } else if knobs.get("memory").unwrap() == "append" && knobs.get("buffer").unwrap() == "off" {
        assert!(lost_most <= memory_items + 1, "{lost_most} lost");
    } else {
        assert!(lost_most <= 60 + memory_items * (1 + ratio), "{lost_most} lost");
    }
    assert!(reopened > 40, "{reopened} crashes");
}

fn for_crashes(preset: Preset, changes: &[(&str, &str)]) -> Knobs {
    let mut knobs = small(preset, 5);
    knobs.set("memory_items", "6").unwrap();
    knobs.set("ratio", "2").unwrap();
    changes.iter().for_each(|(name, value)| knobs.set(name, value).unwrap());
    knobs
}

/// Wherever the process or the power ends, the state is that of the last save or of a later moment, and the
/// loss stays within its bound. This holds for each preset, during merges, and with several arrays a
/// component.
#[test]
fn crashes_lose_only_unsaved_writes() {
    let both = [Crash::Process, Crash::Power];
    for preset in Preset::ALL {
        crash_everywhere(&for_crashes(preset, &[]), &both, 3);
    }
    crash_everywhere(&for_crashes(Preset::Drizard, &[("arrays", "3"), ("buffer", "off")]), &both, 5);
}

/// With `save_every`, a crash loses at most that many writes.
#[test]
fn saving_every_few_writes_bounds_the_loss() {
    for (preset, every) in [(Preset::Drizard, "1"), (Preset::Drizard, "4"), (Preset::LemurTiering, "3")] {
        let knobs = for_crashes(preset, &[("save_every", every)]);
        crash_everywhere(&knobs, &[Crash::Process, Crash::Power], 11);
    }
}

/// Without syncs, as the papers' engines run, the end of the process loses no more than with syncs.
#[test]
fn without_syncs_the_end_of_the_process_is_survived() {
    for preset in Preset::ALL {
        crash_everywhere(&for_crashes(preset, &[("sync", "off")]), &[Crash::Process], 5);
    }
}

fn files(disk: &SimDisk) -> Vec<FileName> {
    let entries = disk.list().unwrap().into_iter();
    entries
        .filter_map(|entry| if let DirectoryEntry::Ours(file) = entry { Some(file) } else { None })
        .collect()
}

/// A flipped bit of any file is an error or changes nothing; cut and missing files are errors; nothing
/// panics.
#[test]
fn damage_is_an_error() {
    for preset in Preset::ALL {
        let knobs = for_crashes(preset, &[]);
        let disk = SimDisk::new(4);
        let mut lab = open(&disk, 4, &knobs).unwrap();
        for number in 0..60u32 {
            lab.put(&(number % 47).to_be_bytes(), &[number as u8; 5]).unwrap();
        }
        let model = contents(&lab);
        lab.close().unwrap();
        let verdict = |disk: &Arc<SimDisk>| -> Result<()> {
            let lab = open(disk, 5, &knobs)?;
            let mut found = Model::new();
            lab.scan(|key, value| drop(found.insert(key.to_vec(), value.to_vec())))?;
            for (key, value) in &model {
                assert_eq!(lab.get(key)?.as_ref(), Some(value));
            }
            assert_eq!(found, model);
            Ok(())
        };
        verdict(&disk).unwrap();
        for file in files(&disk) {
            let Some(bytes) = disk.contents(file).filter(|bytes| !bytes.is_empty()) else { continue };
            let mut refused = 0;
            for at in (0..bytes.len()).step_by(331).chain(0..60).chain(4096..4140) {
                let damaged = disk.fork();
                let mut changed = bytes.clone();
                changed[at] ^= 1 << (at % 8);
                damaged.set_contents(file, Some(&changed));
                match verdict(&damaged) {
                    Err(Error::Corrupt(_) | Error::Unsupported { .. }) => refused += 1,
                    Err(other) => panic!("{file} byte {at}: {other}"),
                    Ok(()) => {}
                }
            }
            assert!(refused > 60, "{file}: {refused}");
            for damaged_bytes in [None, Some(&bytes[..bytes.len() - 1]), Some(&[][..])] {
                let damaged = disk.fork();
                damaged.set_contents(file, damaged_bytes);
                assert!(matches!(verdict(&damaged), Err(Error::Corrupt(_))), "{file}");
            }
        }
    }
}

/// Changes of knobs fixed at creation, wrong lengths, other directories and a second opener are refused by
/// name.
#[test]
fn wrong_use_is_refused() {
    let disk = SimDisk::new(1);
    let knobs = small(Preset::Drizard, 5);
    let mut lab = open(&disk, 1, &knobs).unwrap();
    assert!(matches!(open(&disk, 2, &knobs), Err(Error::Locked { .. })));
    assert!(matches!(lab.put(b"123", b"12345"), Err(Error::Invalid { .. })));
    assert!(matches!(lab.put(b"1234", b"1234"), Err(Error::Invalid { .. })));
    assert!(matches!(lab.get(b"12345"), Err(Error::Invalid { .. })));
    lab.close().unwrap();
    for (name, value) in [("key_bytes", "8"), ("value_bytes", "6"), ("layout", "append")] {
        let mut other = knobs.clone();
        other.set("buffer", "off").unwrap();
        other.set(name, value).unwrap();
        match open(&disk, 3, &other) {
            Err(Error::Mismatch { name: told, .. }) => assert_eq!(told, name),
            other => panic!("{other:?}"),
        }
    }
    disk.add_foreign("letters.txt");
    assert!(matches!(open(&disk, 4, &knobs), Err(Error::Foreign { .. })));
}

/// A store and a lab do not open each other's directories, and do not change them.
#[test]
fn a_store_and_a_lab_refuse_each_other() {
    let world = crate::db::sim::World::new(1);
    drop(world.open_lab(&small(Preset::Drizard, 5)).unwrap());
    let files = world.files().unwrap();
    assert!(world.builder().open().is_err());
    assert_eq!(world.files().unwrap(), files);
    let world = crate::db::sim::World::new(1);
    world.builder().open().unwrap().close().unwrap();
    let files = world.files().unwrap();
    assert!(matches!(world.open_lab(&small(Preset::Drizard, 5)), Err(Error::Foreign { .. })));
    assert_eq!(world.files().unwrap(), files);
}

/// A full disk fails only the write that needed room and loses no item; once there is room, writes succeed
/// again.
#[test]
fn a_full_disk_is_an_error_and_passes() {
    for preset in Preset::ALL {
        let disk = SimDisk::new(1);
        let knobs = for_crashes(preset, &[]);
        let mut lab = open(&disk, 1, &knobs).unwrap();
        let mut model = Model::new();
        let mut failures = 0;
        for number in 0..200u32 {
            let bytes =
                if number % 50 < 25 { Some(disk.used_bytes() + u64::from(number % 3) * 4096) } else { None };
            disk.set_capacity_bytes(bytes);
            let key = (number * 7 % 101).to_be_bytes();
            match lab.put(&key, &[number as u8; 5]) {
                Ok(()) => drop(model.insert(key.to_vec(), vec![number as u8; 5])),
                Err(Error::Full { .. }) => failures += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(failures > 0);
        assert_eq!(contents(&lab), model);
        lab.close().unwrap();
        let lab = open(&disk, 2, &knobs).unwrap();
        assert_eq!(contents(&lab), model);
    }
}

/// On a real directory, every way to read gives the same answers: by read calls, with direct I/O, through a
/// mapping, and in parallel on real threads.
#[test]
fn every_way_to_read_agrees() {
    for (read_by, direct_io, parallel) in
        [("pread", "off", "1"), ("pread", "on", "1"), ("mmap", "off", "1"), ("mmap", "off", "3")]
    {
        let directory = tempfile::tempdir().unwrap();
        let mut knobs = for_crashes(Preset::Drizard, &[("sync", "off"), ("read_by", read_by)]);
        knobs.set("direct_io", direct_io).unwrap();
        knobs.set("parallel_reads", parallel).unwrap();
        knobs.set("parallel_poll_steps", "1").unwrap();
        let path = directory.path().join("lab");
        let mut lab = Lab::open(&path, &knobs).unwrap();
        for number in 0..500u32 {
            lab.put(&(number * 2).to_be_bytes(), &[number as u8; 5]).unwrap();
        }
        for _ in 0..2 {
            for number in 0..500u32 {
                assert_eq!(lab.get(&(number * 2).to_be_bytes()).unwrap(), Some(vec![number as u8; 5]));
                assert_eq!(lab.get(&(number * 2 + 1).to_be_bytes()).unwrap(), None);
            }
            assert!(lab.stats().page_reads > 0);
            lab.close().unwrap();
            lab = Lab::open(&path, &knobs).unwrap();
        }
    }
}
