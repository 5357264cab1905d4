//! Trees under constant load: events between two picks, and loads without end.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::super::place::place;
use super::life::{ITEM_BYTES, Items, Life, settings};
use super::*;

/// The store's policy for new keys.
const GROWS: PickSettings = PickSettings {
    size_ratio: 8,
    runs_per_level: 63,
    runs_in_last_level: 63,
    level0_runs: 8,
    table_bytes: 6400,
    base_level_bytes: 4000,
    ..SETTINGS
};

/// An event between picks.
#[derive(Clone, Debug)]
enum Event {
    Flush(Vec<(u16, bool)>),
    Picks(usize),
    FullPicks(usize),
    /// The policy of merges changes.
    Policy(usize),
    Ingest(BTreeSet<u16>),
    /// Tables hidden by newer tombstones are dropped unread.
    Drop,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let flush = (0u16..400, 1u16..400, 0usize..60, 0u8..4).prop_flat_map(|(start, width, count, deletes)| {
        prop::collection::vec((start..start + width, (0u8..4).prop_map(move |n| n < deletes)), 0..count + 1)
    });
    let clear = (0u16..600, 1u16..200)
        .prop_map(|(start, width)| (start..start + width).map(|key| (key, true)).collect::<Vec<_>>());
    let ingest = (0u16..600, 1u16..200)
        .prop_flat_map(|(start, width)| prop::collection::btree_set(start..start + width, 1..40));
    let event = prop_oneof![
        6 => flush.prop_map(Event::Flush),
        1 => clear.prop_map(Event::Flush),
        8 => (1usize..6).prop_map(Event::Picks),
        1 => (1usize..6).prop_map(Event::FullPicks),
        1 => (0usize..4).prop_map(Event::Policy),
        1 => ingest.prop_map(Event::Ingest),
        1 => Just(Event::Drop),
    ];
    prop::collection::vec(event, 1..120)
}

impl Life {
    fn ingest(&mut self, keys: &BTreeSet<u16>) {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_be_bytes().to_vec()).collect();
        let tables: Vec<Items> = keys
            .chunks(5)
            .map(|keys| {
                let mut put = |key: &Vec<u8>| {
                    self.writes += 1;
                    self.model.insert(key.clone(), self.writes);
                    (key.clone(), Some(self.writes))
                };
                keys.iter().map(&mut put).collect()
            })
            .collect();
        let bounds: Vec<(&[u8], &[u8])> =
            keys.chunks(5).map(|keys| (&*keys[0], &*keys[keys.len() - 1])).collect();
        let placed = place(&self.shape(), &bounds);
        if self.levels.len() <= placed.level {
            self.levels.resize_with(placed.level + 1, Vec::new);
        }
        for _ in 0..placed.lowered_count {
            let run = self.levels[0].pop().expect("a run to lower");
            self.levels[placed.level].insert(0, run);
        }
        let runs = &mut self.levels[placed.level];
        match placed.run {
            OutputRun::New => runs.insert(0, tables),
            OutputRun::Into(run) => {
                runs[run].extend(tables);
                runs[run].sort_by(|one, two| one.first_key_value().cmp(&two.first_key_value()));
            }
        }
    }

    fn drop_hidden(&mut self) {
        let mut newest = std::collections::BTreeMap::new();
        for level in &mut self.levels {
            for run in level.iter_mut() {
                let above = newest.clone();
                for (key, value) in run.iter().flatten() {
                    newest.entry(key.clone()).or_insert(value.is_none());
                }
                run.retain(|table| !table.keys().all(|key| above.get(key) == Some(&true)));
            }
            level.retain(|run| !run.is_empty());
        }
    }

    fn picks(&mut self, count: usize, next: fn(&TreeShape<'_>, &PickSettings) -> Option<Pick>) {
        for _ in 0..count {
            let Some(pick) = next(&self.shape(), &self.settings) else { return };
            self.apply(&pick);
            self.check();
        }
    }

    /// Bytes that a pick writes.
    fn cost(&self, pick: &Pick) -> u64 {
        if pick.work == MergeKind::Move {
            return 0;
        }
        let inputs =
            pick.inputs.iter().flat_map(|part| &self.levels[part.level][part.run][part.tables.clone()]);
        inputs.map(|items| items.len() as u64 * ITEM_BYTES).sum()
    }

    /// Flushes random keys out of `keys`.
    fn flush_some(&mut self, random: &mut u64, keys: u64) -> u64 {
        let mut run = Items::new();
        for _ in 0..200 {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.writes += 1;
            run.insert(((*random >> 33) % keys).to_be_bytes().to_vec(), Some(self.writes));
        }
        let bytes = run.len() as u64 * ITEM_BYTES;
        self.levels[0].insert(0, vec![run]);
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// For any events between two picks, and any state of a level that is to become one run: runs are
    /// disjoint, no key is lost or resurrected, and picks end.
    #[test]
    fn trees_stay_right_under_events_amid_merges(
        settings in settings(),
        other in settings(),
        events in events(),
    ) {
        let mut life = Life::new(settings);
        for event in events {
            match event {
                Event::Flush(keys) => life.flush(&keys),
                Event::Picks(count) => life.picks(count, pick),
                Event::FullPicks(count) => life.picks(count, pick_all),
                Event::Policy(index) => {
                    let (above, in_last, level0_runs) = [
                        (settings.runs_per_level, settings.runs_in_last_level, settings.level0_runs),
                        (other.runs_per_level, other.runs_in_last_level, other.level0_runs),
                        (63, 63, 8),
                        (1, 1, 2),
                    ][index];
                    life.settings.runs_per_level = above;
                    life.settings.runs_in_last_level = in_last;
                    life.settings.level0_runs = level0_runs;
                }
                Event::Ingest(keys) => life.ingest(&keys),
                Event::Drop => life.drop_hidden(),
            }
            life.check();
        }
        life.settle(pick);
        life.check_settled();
        life.settle(pick_all);
        life.check_full();
    }
}

/// A tree that grew by runs is then overwritten without a pause, with merges limited to some multiple of the
/// flushed bytes. Each level gets its turn, so that neither the write amplification nor the number of runs
/// grows with time. (Level 0 once went first for ever while the last level had two runs, into a level 1 that
/// was never pushed down.)
#[test]
fn no_level_starves_under_load() {
    let rewritten = PickSettings { runs_per_level: 1, runs_in_last_level: 1, level0_runs: 4, ..GROWS };
    for (rate, flushes) in [(4, 150), (4, 600), (8, 600), (8, 607)] {
        let (mut life, mut random) = (Life::new(GROWS), 7);
        for _ in 0..flushes {
            life.flush_some(&mut random, 1 << 16);
            life.settle_unchecked();
        }
        life.settings = rewritten;
        let (mut left, mut flushed, mut written) = (0i64, [0; 3], [0; 3]);
        for turn in 0..900 {
            let bytes = life.flush_some(&mut random, 1 << 16);
            flushed[turn / 300] += bytes;
            left = left.min(0) + (bytes * rate) as i64;
            while left > 0 || life.levels[0].len() >= 12 {
                let Some(pick) = pick(&life.shape(), &life.settings) else { break };
                let cost = life.cost(&pick);
                left -= cost as i64;
                written[turn / 300] += cost;
                life.apply(&pick);
            }
            let runs: usize = life.levels[1..].iter().map(Vec::len).sum();
            assert!(runs <= 20, "{runs} runs after {turn} flushes");
        }
        let times = [0, 1, 2].map(|third| written[third] as f64 / flushed[third] as f64);
        println!("merges {rate} times as fast, after {flushes} flushes: {times:.1?} times written");
        assert!(times[2] <= 14.0 && times[2] < times[1] * 1.2, "{times:?} times written");
    }
}

impl Life {
    fn settle_unchecked(&mut self) {
        while let Some(pick) = pick(&self.shape(), &self.settings) {
            self.apply(&pick);
        }
    }
}

/// For any number of tables in a run, few of its windows are examined, the first among them.
#[test]
fn few_windows_of_large_runs_are_looked_at() {
    for tables in [1, 2, 31, 32, 33, 1000, 1 << 20] {
        let starts: Vec<usize> = part_starts(tables).collect();
        assert!(starts.len() <= PART_STARTS_MAX.min(tables) && starts[0] == 0, "{tables} {starts:?}");
        assert!(starts.len() * 2 >= PART_STARTS_MAX.min(tables), "{tables} {starts:?}");
    }
}

/// Output that overlaps a level becomes a run there. Its tables are cut by its own length, so that parts of
/// it can be merged with parts of others. Output that overlaps nothing may be moved down for ever, and gets
/// large tables.
#[test]
fn tables_are_large_where_nothing_meets() {
    const MIB: u64 = 1 << 20;
    let settings = PickSettings { table_bytes: 64 * MIB, base_level_bytes: MIB, ..GROWS };
    let last = || vec![vec![table("a", "f", 100 * MIB), table("g", "m", 100 * MIB)]];
    let cut = |min, max| {
        let level0 = vec![vec![table(min, max, 4 * MIB)]; settings.level0_runs];
        let found = pick(&TreeShape { levels: vec![level0, Vec::new(), last()] }, &settings)
            .expect("level 0 is full");
        assert_eq!((found.inputs.len(), found.output_level), (settings.level0_runs, 1));
        (found.output_run, found.table_bytes)
    };
    assert_eq!(cut("c", "k"), (OutputRun::New, 4 * MIB));
    assert_eq!(cut("n", "z"), (OutputRun::New, 25 * MIB));
}
