//! Salvages that end at any of their calls.

use std::collections::BTreeMap;

use crate::base::settings::StoreSettings;
use crate::base::step::Direction;
use crate::base::sync::{Arc, Mutex};
use crate::inspect::salvage_in;
use crate::io::sim::{Crash, SimDisk, sim_env};

use super::super::Store;
use super::crash::{scan_of, seeds};
use super::model::Known;
use super::play::{Played, Script, Stage};
use super::recorder::Recorder;
use super::run::open;
use super::scenario::named;

/// Enough for the batches of a salvage.
const MEMORY_BYTES: u64 = 2 << 20;

type Items = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn items_of(store: &Store) -> Items {
    let mut items = Items::new();
    for name in store.keyspaces().into_iter().map(|one| one.name.clone()) {
        let (keyspace, point) = (store.keyspace(&name).expect("it is there"), store.point());
        let mut scan = scan_of(&keyspace, &point, Direction::Forward);
        while store.advance(&point, &mut scan).expect("nothing fails") {
            items.insert((name.clone(), scan.key().to_vec()), scan.value().to_vec());
        }
    }
    items
}

/// Wherever a salvage ends, its source is unchanged, and its target is a store of the source's items or of
/// fewer. Once the salvage has returned, the target has all items, even after a power cut. A second salvage
/// recovers all items.
#[test]
fn f05_a_salvage_is_ended_anywhere() {
    let mut states_count = 0;
    for (name, seed) in ["compactions", "drop", "ranges"].into_iter().zip(seeds(1..4)) {
        let (script, disk) = (Script::new(named(name).expect("it is one"), seed), SimDisk::new(seed));
        let Played { process, .. } = Stage::new(&disk, &|_| {}).play(&script);
        let (store, threads) = process.expect("it was opened");
        // Only one version of each item remains, so that a salvage finds no older one.
        store.compact().expect("nothing fails");
        let whole = items_of(&store);
        store.close().expect("nothing fails");
        disk.kill(|| drop((store, threads)));
        let before = disk.fingerprint();

        let settings = StoreSettings { memory_bytes: MEMORY_BYTES, ..StoreSettings::default() };
        let target = SimDisk::new(seed);
        let recorder = Recorder::new(&target, &Arc::new(Mutex::new(Known::default())));
        let (from, _threads) = sim_env(&disk, seed);
        let (mut to, _threads) = sim_env(&target, seed);
        to.storage = recorder.clone();
        disk.take_any_alignment();
        let salvaged = salvage_in(&from, to, settings.clone(), &mut |_| {}).expect("nothing fails");
        assert!(salvaged.report.findings.is_empty() && salvaged.writes >= whole.len() as u64);
        assert_eq!(disk.fingerprint(), before, "a salvage changed its source");

        for moment in recorder.take() {
            for (crash, seed) in [(Crash::Process, 0), (Crash::Power, 1), (Crash::Power, 2)] {
                let after = moment.disk.fork();
                after.crash(crash, seed);
                let (store, _threads) = open(&after, None, seed, MEMORY_BYTES).expect("it opens");
                let is_part = items_of(&store).iter().all(|(key, value)| whole.get(key) == Some(value));
                assert!(is_part, "{name}, {}, {crash:?}: it made up an item", moment.what);
                store.close().expect("nothing fails");
                states_count += 1;
            }
        }
        target.crash(Crash::Power, 3);
        let again = SimDisk::new(seed);
        let (to, _threads) = sim_env(&again, seed);
        salvage_in(&from, to, settings, &mut |_| {}).expect("nothing fails");
        for made in [&target, &again] {
            let (store, _threads) = open(made, None, seed, MEMORY_BYTES).expect("it opens");
            assert!(items_of(&store) == whole, "{name}: items are missing");
            store.close().expect("nothing fails");
        }
    }
    println!("{states_count} states");
    assert!(states_count > 100, "{states_count}");
}
