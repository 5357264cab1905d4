//! Gets that wait for several runs at once, compared with the same gets one run after another.

use super::*;
use crate::base::load::DeviceLoad;
use crate::base::step::{BlockKind, Read};
use crate::format::table::data;
use crate::levels::version::Run;
use crate::read::breadth::{READS_FEW, Search};

const BOUND: Sequence = 100;
const WIDTHS: [usize; 3] = [2, 4, 8];

/// Properties of a tree besides its items.
#[derive(Clone, Copy, Debug)]
struct Shape {
    filter: FilterPlan,
    /// Memory for filters and fences.
    pages_bytes: u64,
    cache_bytes: usize,
}

const NO_FILTER: FilterPlan = FilterPlan::of_bits(0);
const FILTER: FilterPlan = FilterPlan::of_bits(10);
/// A filter so weak that most reads find nothing.
const LEAKY: FilterPlan = FilterPlan::of_bits(1);
const ALL_PAGES: u64 = 1 << 20;

fn shapes() -> Vec<Shape> {
    let filters = [NO_FILTER, FILTER, LEAKY];
    let rooms = [ALL_PAGES, 12 << 10, 0];
    let all = filters.into_iter().flat_map(|filter| rooms.map(|pages_bytes| (filter, pages_bytes)));
    all.map(|(filter, pages_bytes)| Shape { filter, pages_bytes, cache_bytes: 64 << 10 }).collect()
}

/// A tree of eleven runs: six in level 0, which have range tombstones too, three and two below. Write buffers
/// are empty.
fn world(seed: u64, shape: Shape) -> World {
    let mut world = World::new(seed, 0);
    let mut builder = Builder::new(&world.storage, &world.secret, PageBudget::alone(shape.pages_bytes));
    // Numbers behind those of the tables of the base world.
    (builder.filter, builder.number) = (shape.filter, 100);
    let (mut changes, mut model) = (vec![VersionChange::AddTree(TREE)], Model::new());
    let deep = [(2, 1), (2, 2), (1, 1), (1, 2), (1, 3)].map(|(level, run)| Spot { level, run });
    for (sequence, spot) in deep.into_iter().chain([Spot::LEVEL_0; 6]).enumerate() {
        let count = world.rng.index(if spot.level == 0 { 60 } else { 250 }) + 1;
        let batch = batch(&mut world.rng, count);
        let covers = if spot.level == 0 { covers(&mut world.rng) } else { Vec::new() };
        model.retain(|key, _| !covers.iter().any(|(start, end)| start <= key && key < end));
        apply(&mut model, &batch);
        changes.extend(builder.run(&batch, &covers, spot, 1 + sequence as u64));
    }
    let version = Arc::new(Version::default().after(changes));
    world.view = Arc::new(View { generations: Vec::new(), version });
    world.models = vec![(BOUND, model)];
    world.cool(shape);
    world
}

/// No range tombstone, or one of some keys.
fn covers(rng: &mut SimRng) -> Vec<Cover> {
    let start = 100 + rng.below(290);
    let cover = |number: u64| format!("shared/prefix/{number}").into_bytes();
    if rng.one_in(2) { vec![(cover(start), cover(start + 1 + rng.below(9)))] } else { Vec::new() }
}

/// The course of a get.
struct Played {
    found: Result<Option<Vec<u8>>>,
    /// The blocks it asked for.
    blocks: Vec<BlockAddress>,
    /// Most asks in flight at once, and those in flight at its end.
    in_flight_max: usize,
    left: usize,
}

/// The conditions of a get.
#[derive(Clone, Copy)]
struct Way<'w> {
    /// Blocks whose reads fail.
    failing: &'w [BlockAddress],
    /// Blocks which complete the memory that a table needs to know that it has the key; besides blocks that
    /// contain the key.
    deciding: &'w [BlockAddress],
    /// Answers come in the order of the asks.
    is_ordered: bool,
    /// All blocks are evicted at times.
    evicts: bool,
}

const SMOOTH: Way<'static> = Way { failing: &[], deciding: &[], is_ordered: false, evicts: false };

impl World {
    /// Empties the cache.
    fn cool(&mut self, shape: Shape) {
        self.cache = Cache::new(shape.cache_bytes, self.epoch.clone(), Region::heap);
    }

    fn play(&mut self, key: &[u8], breadth: Option<&Breadth>, way: Way<'_>) -> Played {
        let mut rng = SimRng::new(self.rng.u64());
        let op = self.op(key, BOUND, breadth);
        let mut pin = self.epoch.pin();
        let (mut get, mut step) = Get::start(&op, &self.view, &self.cache, &pin, &mut NoTrace);
        let mut in_flight: Vec<Read> = Vec::new();
        let (mut blocks, mut in_flight_max, mut decided) = (Vec::new(), 0, usize::MAX);
        loop {
            match step {
                MachineStep::Done(found) => {
                    let found = found.map(|found| found.value().map(<[u8]>::to_vec));
                    return Played { found, blocks, in_flight_max, left: in_flight.len() };
                }
                MachineStep::Ask(reads) => {
                    assert!(!reads.is_empty() && blocks.len() < 1000, "it comes to an end");
                    for read in reads {
                        assert!(in_flight.iter().all(|other| other.ask != read.ask), "numbers differ");
                        assert!(self.age(&read.block) <= decided, "a newer run has the key");
                        blocks.push(read.block);
                        in_flight.push(read);
                    }
                }
                MachineStep::Wait => assert!(!in_flight.is_empty(), "it waits for what nobody reads"),
                MachineStep::Touch => panic!("a get alone is never interrupted"),
            }
            in_flight_max = in_flight_max.max(in_flight.len());
            let index = if way.is_ordered { 0 } else { rng.index(in_flight.len()) };
            let Read { ask, block } = in_flight.remove(index);
            let result = if way.failing.contains(&block) {
                Err(Error::Full { file: "none".to_owned() })
            } else {
                self.fetch(&block)
            };
            let has_key = |read: &BlockRef| {
                block.kind == BlockKind::Data && data::find(read, key, op.hash.block_tag(), None).is_some()
            };
            if result.as_ref().is_ok_and(|read| has_key(read) || way.deciding.contains(&block)) {
                decided = decided.min(self.age(&block));
            }
            if way.evicts && rng.one_in(3) {
                (0..20).for_each(|_| drop(self.cache.reserve().grant(reserve::Role::Ingests, 64 << 10)));
            }
            // Memory used by an earlier call may be freed.
            drop(pin);
            pin = self.epoch.pin();
            let answer = Answer { ask, result };
            step = get.resume(&op, &self.view, &self.cache, &pin, &mut NoTrace, answer);
        }
    }

    /// The number of the run that has the block, from the newest.
    fn age(&self, block: &BlockAddress) -> usize {
        let runs = self.view.version.tree(TREE).expect("added").runs();
        let has = |run: &Run| run.tables().iter().any(|one| one.table.file().name() == block.file);
        runs.into_iter().position(has).expect("the view has it")
    }

    /// As `play`, with an empty cache.
    fn play_cold(&mut self, key: &[u8], breadth: Option<&Breadth>, way: Way<'_>, shape: Shape) -> Played {
        self.cool(shape);
        self.play(key, breadth, way)
    }
}

/// For any order of reads, with evicted blocks and pages pinned meanwhile, gets return the map's values. Asks
/// have different numbers and stay within their limit. Some gets end with asks in flight.
#[test]
fn wide_gets_find_the_newest_version() {
    let (mut detached, mut widest) = (0, 0);
    for (seed, shape) in shapes().into_iter().enumerate() {
        for cache_bytes in [64 << 10, 0] {
            let mut world = world(seed as u64, Shape { cache_bytes, ..shape });
            for late in [false, true] {
                world.late_pages = late.then(|| PageBudget::alone(1 << 20));
                let parallel =
                    WIDTHS.map(|width| (width, Breadth::new(Search::Parallel(width), Arc::default())));
                let adaptive = (2, Breadth::new(Search::Adaptive, Arc::default()));
                for (width, breadth) in parallel.into_iter().chain([adaptive]) {
                    for round in 0..100 {
                        let key = key(&mut world.rng);
                        let way = Way { evicts: round % 2 == 0, ..SMOOTH };
                        let played = world.play(&key, Some(&breadth), way);
                        let expected = world.models[0].1.get(&key);
                        assert_eq!(played.found.expect("no fault").as_ref(), expected, "{key:?} {shape:?}");
                        assert!(played.in_flight_max <= width, "{} of {width}", played.in_flight_max);
                        widest = widest.max(played.in_flight_max);
                        detached += usize::from(played.left > 0);
                    }
                }
            }
        }
    }
    assert!(detached > 300 && widest == 8, "{detached} with asks in flight, at most {widest}");
}

/// Fences alone show that a large value is present, also if no memory keeps their pages.
#[test]
fn presence_of_large_values_is_told_by_fences() {
    let shape = Shape { filter: NO_FILTER, pages_bytes: 0, cache_bytes: 0 };
    let mut world = world(50, shape);
    let large: Batch = (10..20).map(|number| (vec![b'l', number], Some(vec![number; 20_000]))).collect();
    let mut builder = Builder::new(&world.storage, &world.secret, PageBudget::alone(0));
    (builder.filter, builder.number) = (shape.filter, 200);
    let changes = builder.run(&large, &[], Spot { level: 1, run: 9 }, BOUND);
    world.view =
        Arc::new(View { generations: Vec::new(), version: Arc::new(world.view.version.after(changes)) });
    world.mode = GetMode::Presence;
    for width in [1, 2, 8] {
        let breadth = Breadth::new(Search::Parallel(width), Arc::default());
        for number in 8..22 {
            let key = [b'l', number];
            let played = world.play(&key, Some(&breadth), SMOOTH);
            let is_there = (10..20).contains(&number);
            assert_eq!(played.found.expect("no fault").is_some(), is_there, "{key:?}");
            assert!(!is_there || played.blocks.iter().any(|block| block.kind == BlockKind::Fence));
        }
    }
}

/// A get fails for a read exactly if it would fail when searching one run after another, for any failing
/// reads and any order in which reads end.
#[test]
fn a_failed_read_fails_only_gets_that_need_it() {
    let (mut failed, mut spared) = (0, 0);
    for (seed, shape) in shapes().into_iter().enumerate() {
        let mut world = world(20 + seed as u64, shape);
        for round in 0..60 {
            let key = key(&mut world.rng);
            let breadth = Breadth::new(Search::Parallel(WIDTHS[round % 3]), Arc::default());
            let blocks = world.play_cold(&key, Some(&breadth), SMOOTH, shape).blocks;
            for (index, block) in blocks.iter().enumerate() {
                let two = [*block, blocks[world.rng.index(blocks.len())]];
                for failing in [&two[..1], &two, &blocks[index..]] {
                    let way = Way { failing, ..SMOOTH };
                    let serial = world.play_cold(&key, None, way, shape).found;
                    let wide = world.play_cold(&key, Some(&breadth), way, shape).found;
                    match (&serial, &wide) {
                        (Ok(one), Ok(other)) => {
                            assert_eq!(one, other);
                            spared += 1;
                        }
                        (Err(_), Err(_)) => failed += 1,
                        _ => panic!("{serial:?} serial, {wide:?} wide, of {key:?} in {shape:?}"),
                    }
                }
            }
        }
    }
    assert!(failed > 1000 && spared > 300, "{failed} failed, {spared} were spared");
}

/// As many reads as allowed are in flight until no block is left to ask for. No read is for a run that could
/// not be needed.
#[test]
fn as_many_are_in_flight_as_may_be() {
    let shape = Shape { filter: NO_FILTER, pages_bytes: ALL_PAGES, cache_bytes: 1 << 20 };
    let mut world = world(40, shape);
    let mut waited = 0;
    for _ in 0..300 {
        let key = key(&mut world.rng);
        let serial = world.play_cold(&key, None, SMOOTH, shape);
        assert!(serial.in_flight_max <= 1 && serial.left == 0);
        for width in WIDTHS {
            let breadth = Breadth::new(Search::Parallel(width), Arc::default());
            let way = Way { is_ordered: true, ..SMOOTH };
            let wide = world.play_cold(&key, Some(&breadth), way, shape);
            let asked = wide.blocks.len();
            assert!(wide.blocks.starts_with(&serial.blocks), "newest first");
            assert!(asked < serial.blocks.len() + width && wide.in_flight_max == asked.min(width));
            assert_eq!(wide.left, asked - serial.blocks.len(), "the newest decides at once");
            // A version that an older run has in memory decides too: no block behind it is asked for.
            let Some((last, needed)) = serial.blocks.split_last() else { continue };
            if world.models[0].1.contains_key(&key) {
                world.cool(shape);
                world.fetch(last).expect("no fault");
                assert_eq!(world.play(&key, Some(&breadth), way).blocks, needed);
                waited += usize::from(needed.len() > 1);
            }
        }
    }
    assert!(waited > 50, "{waited} waited for newer runs");
}

/// No block is asked for behind a run that is known to have the key, although newer runs are still waited
/// for. The run's block may have shown the key, or its block is in memory and its filter page, just read,
/// lets the key pass.
#[test]
fn no_block_is_asked_for_behind_the_deciding_run() {
    for (seed, filter) in [NO_FILTER, FILTER].into_iter().enumerate() {
        let shape = Shape { filter, pages_bytes: 0, cache_bytes: 1 << 20 };
        let (mut world, mut open) = (world(50 + seed as u64, shape), 0);
        for _ in 0..500 {
            let key = key(&mut world.rng);
            for width in WIDTHS {
                let breadth = Breadth::new(Search::Parallel(width), Arc::default());
                let blocks = world.play_cold(&key, None, SMOOTH, shape).blocks;
                open += world.play_cold(&key, Some(&breadth), SMOOTH, shape).left;
                // Once more, with all blocks but the filter page in memory of the run that has the key.
                let Some(data) = blocks.last().filter(|_| world.models[0].1.contains_key(&key)) else {
                    continue;
                };
                let (pages, rest): (Vec<BlockAddress>, Vec<BlockAddress>) = blocks
                    .iter()
                    .filter(|block| block.file == data.file)
                    .partition(|block| block.kind == BlockKind::Filter);
                world.cool(shape);
                rest.iter().for_each(|block| drop(world.fetch(block).expect("no fault")));
                let way = Way { deciding: &pages, ..SMOOTH };
                open += world.play(&key, Some(&breadth), way).left;
            }
        }
        assert!(open > 300, "{open} asks were in flight when a newer run had decided");
    }
}

/// An adaptive get reads the same blocks as a serial one, one by one, if filters in memory let the key pass,
/// and in all cases while the device has many reads. Otherwise it reads two at once, if there are two.
#[test]
fn adaptive_gets_are_wide_where_it_is_open() {
    for (seed, shape) in shapes().into_iter().enumerate() {
        let mut world = world(60 + seed as u64, shape);
        let is_open = shape.filter == NO_FILTER || shape.pages_bytes < ALL_PAGES;
        let load = Arc::<DeviceLoad>::default();
        let breadth = Breadth::new(Search::Adaptive, Arc::clone(&load));
        let (mut twos, mut unlike, mut others) = (0, 0, Vec::new());
        for round in 0..200 {
            let key = key(&mut world.rng);
            // Few reads at first, then many.
            others.resize_with(if round < 100 { READS_FEW as usize - 1 } else { READS_FEW as usize }, || {
                load.reading()
            });
            let serial = world.play_cold(&key, None, SMOOTH, shape);
            let adaptive = world.play_cold(&key, Some(&breadth), SMOOTH, shape);
            if !is_open || round >= 100 {
                assert!(adaptive.in_flight_max <= 1);
                unlike += usize::from(adaptive.blocks != serial.blocks);
            } else {
                let needed = serial.blocks.iter().all(|block| adaptive.blocks.contains(block));
                assert!(adaptive.in_flight_max <= 2);
                unlike += usize::from(!needed);
                twos += usize::from(adaptive.in_flight_max == 2);
            }
        }
        assert_eq!(twos > 20, is_open, "{twos} gets were wide, {shape:?}");
        // Between the two gets a table may learn that most keys are absent: then a page of the last run's
        // filter is read instead of a block, or the other way round.
        assert!(unlike <= 10, "{unlike} gets read something else, {shape:?}");
        others.clear();
        assert_eq!(load.awaited(), 0);
    }
}
