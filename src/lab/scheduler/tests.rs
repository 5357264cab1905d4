//! The scheduler against a model: random operations with reopens, and its limits.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeMap;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::sync::Arc;
use crate::io::sim::{SimDisk, SimRng, sim_env};
use crate::io::storage::{DirectoryEntry, Storage};

use super::store::{LOG, PartitionScheduler};
use super::{L0IndexKind, PartitionSchedulerOptions, PartitionSchedulerStats};

pub(super) type Model = BTreeMap<u32, BTreeMap<Vec<u8>, Vec<u8>>>;

pub(super) const VALUE_BYTES: usize = 300;
/// Items of a full block of these lengths.
pub(super) const BLOCK_ITEMS: usize = 13;

pub(super) fn small() -> PartitionSchedulerOptions {
    PartitionSchedulerOptions {
        key_bytes: 4,
        value_bytes: VALUE_BYTES,
        memtable_bytes: 12_000,
        datatable_blocks: 2,
        l0_datatables: 3,
        leftover_percent: 1000,
        log_bytes_max: 0,
        file_bytes: 100_000,
        l0_index: L0IndexKind::Memory,
    }
}

fn shaken(rng: &mut SimRng) -> PartitionSchedulerOptions {
    let mut pick = |list: &[u64]| list[rng.index(list.len())];
    PartitionSchedulerOptions {
        memtable_bytes: pick(&[1, 3_000, 12_000, 30_000]),
        datatable_blocks: pick(&[1, 2, 5]),
        l0_datatables: pick(&[1, 2, 20]),
        leftover_percent: pick(&[0, 6, 50, 1000]),
        log_bytes_max: pick(&[0, 0, 1, 40_000]),
        file_bytes: pick(&[1, 30_000, 1 << 20]),
        l0_index: if pick(&[0, 1]) == 0 { L0IndexKind::Memory } else { L0IndexKind::Persistent },
        ..small()
    }
}

pub(super) fn open(
    disk: &Arc<SimDisk>,
    seed: u64,
    options: &PartitionSchedulerOptions,
) -> Result<PartitionScheduler> {
    PartitionScheduler::open_in(sim_env(disk, seed).0, options)
}

pub(super) fn key(number: u64) -> Vec<u8> {
    (number as u32).to_be_bytes().to_vec()
}

pub(super) fn contents(store: &PartitionScheduler) -> Result<Model> {
    let mut model = Model::new();
    for id in store.partitions() {
        let items = model.entry(id).or_default();
        store.scan(id, |key, value| assert!(items.insert(key.to_vec(), value.to_vec()).is_none()))?;
    }
    Ok(model)
}

/// Compares gets of present and of absent keys.
fn compare(store: &PartitionScheduler, model: &Model, rng: &mut SimRng, keys: u64) {
    for _ in 0..30 {
        let ids: Vec<u32> = model.keys().copied().collect();
        let Some(id) = ids.get(rng.index(ids.len().max(1))) else { return };
        let key = key(rng.below(keys + 3));
        assert!(store.get(*id, &key).unwrap().as_ref() == model[id].get(&key), "{id} {key:?}");
    }
}

pub(super) fn files(disk: &SimDisk) -> Vec<FileName> {
    let entries = disk.list().unwrap().into_iter();
    let ours =
        entries.filter_map(|entry| if let DirectoryEntry::Ours(file) = entry { Some(file) } else { None });
    ours.filter(|file| file.kind == FileKind::Lab).collect()
}

pub(super) fn logs(disk: &SimDisk) -> Vec<FileName> {
    files(disk).into_iter().filter(|file| file.number & !(LOG - 1) == LOG).collect()
}

pub(super) fn stats(store: &PartitionScheduler) -> PartitionSchedulerStats {
    store.stats().unwrap()
}

/// Runs one random operation on the store and the model.
fn step(store: &mut PartitionScheduler, model: &mut Model, rng: &mut SimRng, keys: u64) -> Result<()> {
    if model.is_empty() || rng.one_in(150) {
        let count = 1 + rng.below(3) as u32;
        let first = store.create_partitions(count)?;
        assert!(model.keys().all(|id| *id < first));
        (first..first + count).for_each(|id| drop(model.insert(id, BTreeMap::new())));
        return Ok(());
    }
    if rng.one_in(250) && model.len() > 1 {
        let id = *model.keys().nth(rng.index(model.len())).unwrap();
        store.drop_partition(id)?;
        model.remove(&id);
        return Ok(());
    }
    write_step(store, model, rng, keys)
}

/// Runs a random write or a schedule on the store and the model.
pub(super) fn write_step(
    store: &mut PartitionScheduler,
    model: &mut Model,
    rng: &mut SimRng,
    keys: u64,
) -> Result<()> {
    // The first partitions are hot.
    let nth = rng.index(model.len()).min(rng.index(model.len()));
    let (id, items) = model.iter_mut().nth(nth).unwrap();
    let key = key(rng.below(keys));
    if rng.one_in(120) {
        store.schedule()?;
    } else if rng.one_in(5) {
        store.delete(*id, &key)?;
        items.remove(&key);
    } else {
        let value = vec![rng.u64() as u8; VALUE_BYTES];
        store.put(*id, &key, &value)?;
        items.insert(key, value);
    }
    Ok(())
}

/// Random operations give the results of a map of maps, over reopens with other options. Flush buffers stay
/// within their limit, and level 0 of no partition exceeds its own.
#[test]
fn random_operations_agree_with_a_map() {
    let (mut compactions, mut short_blocks, mut replayed) = (0, 0, 0);
    for seed in 0..16u64 {
        let mut rng = SimRng::new(seed);
        let disk = SimDisk::new(seed);
        let keys = [8, 60, 2000][rng.index(3)];
        let mut model = Model::new();
        for round in 0..6 {
            let options = shaken(&mut rng);
            let mut store = open(&disk, rng.u64(), &options).unwrap();
            replayed += stats(&store).replayed_items;
            assert!(contents(&store).unwrap() == model, "seed {seed} round {round} {options:?}");
            for _ in 0..rng.below(500) {
                step(&mut store, &mut model, &mut rng, keys).unwrap();
                assert!(store.leftover_bytes <= options.leftover_bytes_max());
                if rng.one_in(60) {
                    compare(&store, &model, &mut rng, keys);
                }
            }
            assert!(contents(&store).unwrap() == model, "seed {seed} round {round} {options:?}");
            store.schedule().unwrap();
            let stats = stats(&store);
            assert!(store.trees.values().all(|tree| u64::from(tree.l0_blocks) < options.l0_blocks()));
            assert!(options.log_bytes_max == 0 || stats.pinned_log_bytes <= options.log_bytes_max);
            assert!(contents(&store).unwrap() == model);
            compactions += stats.compactions;
            short_blocks += stats.short_blocks;
            if rng.one_in(2) { store.close().unwrap() } else { store.sync().unwrap() }
        }
    }
    assert!(compactions > 100 && short_blocks > 100 && replayed > 100);
}

/// Of a key in three immutables, with other partitions between them, level 0 returns the newest item by one
/// page read. A get of a key that is not in level 0 reads none of its pages.
#[test]
fn order_is_kept_across_immutables() {
    let disk = SimDisk::new(1);
    let options = PartitionSchedulerOptions { l0_datatables: 1000, ..small() };
    let mut store = open(&disk, 1, &options).unwrap();
    store.create_partitions(3).unwrap();
    for version in 1..=3u8 {
        for partition in 1..=3 {
            for number in 0..BLOCK_ITEMS as u64 * 2 {
                store
                    .put(partition, &key(number * 3), &[version * 10 + partition as u8; VALUE_BYTES])
                    .unwrap();
            }
        }
        store.schedule().unwrap();
    }
    assert_eq!((stats(&store).leftover_bytes, stats(&store).short_blocks), (0, 0));
    for partition in 1..=3u32 {
        for number in 0..BLOCK_ITEMS as u64 * 2 {
            let before = stats(&store).page_reads;
            let found = store.get(partition, &key(number * 3)).unwrap();
            assert_eq!(found, Some(vec![30 + partition as u8; VALUE_BYTES]));
            assert_eq!(stats(&store).page_reads, before + 1, "one read");
            assert_eq!(store.get(partition, &key(number * 3 + 1)).unwrap(), None);
            assert_eq!(stats(&store).page_reads, before + 1, "no read");
        }
    }
    // A newer version in the flush buffer hides all versions in level 0.
    store.put(2, &key(3), &[77; VALUE_BYTES]).unwrap();
    store.schedule().unwrap();
    let before = stats(&store);
    assert!(before.leftover_bytes > 0);
    assert_eq!(store.get(2, &key(3)).unwrap(), Some(vec![77; VALUE_BYTES]));
    assert_eq!(stats(&store).page_reads, before.page_reads);
}

/// While flush buffers are within their limit, only full blocks are flushed. Above it, part-filled blocks of
/// the largest buffers are flushed, and no more than needed.
#[test]
fn the_memory_limit_is_kept_by_short_blocks() {
    for (leftover_percent, expects_short) in [(1000, false), (10, true)] {
        let disk = SimDisk::new(1);
        let options = PartitionSchedulerOptions {
            leftover_percent,
            memtable_bytes: 60_000,
            l0_datatables: 1000,
            ..small()
        };
        let limit = options.leftover_bytes_max();
        let mut store = open(&disk, 1, &options).unwrap();
        store.create_partitions(40).unwrap();
        let mut rng = SimRng::new(5);
        for _ in 0..2000 {
            let partition = 1 + rng.below(40) as u32;
            store.put(partition, &key(rng.below(1000)), &[1; VALUE_BYTES]).unwrap();
        }
        store.schedule().unwrap();
        let found = stats(&store);
        assert_eq!(found.short_blocks > 0, expects_short, "{found:?}");
        assert!(found.leftover_bytes_max <= limit && found.leftover_bytes > 0, "{found:?}");
        if expects_short {
            // The buffers end within 40 items of the limit, so no more blocks than needed were written.
            assert!(found.leftover_bytes_max + 40 * 313 > limit, "{found:?}");
        }
        let recorded: u64 = store.leftovers.iter().map(|(bytes, _)| bytes).sum();
        assert_eq!(recorded, found.leftover_bytes);
        assert_eq!(store.trees.values().map(|tree| tree.buffer.bytes()).sum::<u64>(), recorded);
    }
}

/// One item of a cold partition pins all later logs; the paper leaves this open. Part-filled blocks of the
/// oldest leftovers keep a limit on these logs, and an opening replays the pinned items.
#[test]
fn leftovers_pin_the_log_unless_it_has_a_limit() {
    for log_bytes_max in [0, 60_000] {
        let disk = SimDisk::new(1);
        let options = PartitionSchedulerOptions { log_bytes_max, ..small() };
        let mut store = open(&disk, 1, &options).unwrap();
        store.create_partitions(2).unwrap();
        store.put(2, &key(7), &[7; VALUE_BYTES]).unwrap();
        let mut written = Vec::new();
        for round in 0..30u64 {
            for number in 0..40 {
                store.put(1, &key(round % 7 * 40 + number), &[round as u8; VALUE_BYTES]).unwrap();
            }
            store.schedule().unwrap();
            written.push(stats(&store).pinned_log_bytes);
        }
        let found = stats(&store);
        let logs = logs(&disk).len() as u64;
        if log_bytes_max == 0 {
            assert!(written.windows(2).all(|pair| pair[0] < pair[1]), "{written:?}");
            assert!(found.pinned_log_bytes > 30 * 40 * 300, "{found:?}");
            assert_eq!((logs, found.short_blocks), (found.schedules + 1, 0), "every log, and the newest");
        } else {
            assert!(found.pinned_log_bytes_max <= log_bytes_max, "{found:?}");
            assert!(found.short_blocks > 0 && logs < 6, "{found:?}");
        }
        let model = contents(&store).unwrap();
        drop(store);
        let store = open(&disk, 2, &options).unwrap();
        assert!(contents(&store).unwrap() == model);
        assert_eq!(store.get(2, &key(7)).unwrap(), Some(vec![7; VALUE_BYTES]));
        if log_bytes_max == 0 {
            // Of the hot partition, only leftovers from their oldest log on are replayed, not all its items.
            assert!(stats(&store).replayed_items < 30 * 40, "{:?}", stats(&store));
        }
    }
}

/// The index built by a scan of level 0 equals the one in memory, and the one read from the files of keys,
/// also with files of both kinds.
#[test]
fn a_scan_makes_the_same_index() {
    let mut keys = 0;
    for seed in 0..12u64 {
        let mut rng = SimRng::new(seed);
        let disk = SimDisk::new(seed);
        let mut model = Model::new();
        let kinds = [L0IndexKind::Memory, L0IndexKind::Persistent];
        for kind in [kinds[1], kinds[rng.index(2)], kinds[1]] {
            let options = PartitionSchedulerOptions {
                l0_index: kind,
                l0_datatables: 1000,
                // A memtable so large that no opening writes blocks of replayed items.
                memtable_bytes: 60_000,
                file_bytes: [1, 40_000, 1 << 20][rng.index(3)],
                ..small()
            };
            let mut store = open(&disk, rng.u64(), &options).unwrap();
            for _ in 0..400 {
                step(&mut store, &mut model, &mut rng, 100).unwrap();
            }
            store.schedule().unwrap();
            let expected: BTreeMap<u32, _> =
                std::mem::take(&mut store.trees).into_iter().map(|(id, tree)| (id, tree.index)).collect();
            keys += expected.values().map(super::index::L0Index::len).sum::<u64>();
            drop(store);
            let mut reads = Vec::new();
            for l0_index in kinds {
                let options = PartitionSchedulerOptions { l0_index, ..options.clone() };
                let store = open(&disk.fork(), rng.u64(), &options).unwrap();
                assert!(store.trees.iter().all(|(id, tree)| tree.index == expected[id]), "{l0_index:?}");
                assert!(contents(&store).unwrap() == model);
                reads.push(stats(&store).index_page_reads);
            }
            if kind == L0IndexKind::Persistent {
                assert!(reads[1] <= reads[0], "keys are fewer pages than blocks: {reads:?}");
            }
        }
    }
    assert!(keys > 2000, "{keys} keys");
}

/// After a failed write the scheduler refuses every call until it is opened again, and no durable item is
/// lost.
#[test]
fn a_failed_write_is_the_end_until_the_next_opening() {
    let disk = SimDisk::new(1);
    let mut store = open(&disk, 1, &small()).unwrap();
    store.create_partitions(1).unwrap();
    for number in 0..30 {
        store.put(1, &key(number), &[1; VALUE_BYTES]).unwrap();
    }
    store.sync().unwrap();
    disk.set_capacity_bytes(Some(disk.used_bytes()));
    assert!(matches!(store.schedule(), Err(Error::Full { .. })));
    disk.set_capacity_bytes(None);
    assert!(matches!(store.get(1, &key(1)), Err(Error::Invalid { .. })));
    assert!(matches!(store.put(1, &key(1), &[2; VALUE_BYTES]), Err(Error::Invalid { .. })));
    drop(store);
    let store = open(&disk, 2, &small()).unwrap();
    assert_eq!(contents(&store).unwrap()[&1].len(), 30);
}

/// Wrong lengths, unknown partitions, other lengths at an opening and a second opener are refused by name.
/// Ids are never reused. A lab and a scheduler do not open or change each other's directories.
#[test]
fn wrong_use_is_refused() {
    let disk = SimDisk::new(1);
    let mut store = open(&disk, 1, &small()).unwrap();
    assert_eq!(store.create_partitions(2).unwrap(), 1);
    assert!(matches!(open(&disk, 2, &small()), Err(Error::Locked { .. })));
    assert!(matches!(store.put(1, b"123", &[0; VALUE_BYTES]), Err(Error::Invalid { .. })));
    assert!(matches!(store.put(1, b"1234", b"1"), Err(Error::Invalid { .. })));
    assert!(matches!(store.put(3, b"1234", &[0; VALUE_BYTES]), Err(Error::Invalid { .. })));
    store.drop_partition(2).unwrap();
    assert!(matches!(store.drop_partition(2), Err(Error::Invalid { .. })));
    assert!(matches!(store.get(2, b"1234"), Err(Error::Invalid { .. })));
    store.close().unwrap();
    let mut store = open(&disk, 3, &small()).unwrap();
    assert_eq!(store.create_partitions(1).unwrap(), 3, "not 2");
    store.close().unwrap();
    for other in [
        PartitionSchedulerOptions { key_bytes: 8, ..small() },
        PartitionSchedulerOptions { value_bytes: 6, ..small() },
    ] {
        assert!(matches!(open(&disk, 3, &other), Err(Error::Mismatch { .. })));
    }
    for other in [
        PartitionSchedulerOptions { key_bytes: 0, ..small() },
        PartitionSchedulerOptions { memtable_bytes: 0, ..small() },
    ] {
        assert!(matches!(open(&disk, 3, &other), Err(Error::Invalid { .. })));
    }
    let knobs = crate::lab::Preset::Drizard.knobs();
    let before = files(&disk);
    assert!(crate::lab::Lab::open_in(sim_env(&disk, 5).0, &knobs).is_err());
    assert_eq!(files(&disk), before);
    let labs = SimDisk::new(2);
    drop(crate::lab::Lab::open_in(sim_env(&labs, 5).0, &knobs).unwrap());
    let before = files(&labs);
    assert!(matches!(open(&labs, 6, &small()), Err(Error::Corrupt(_))));
    assert_eq!(files(&labs), before);
}
