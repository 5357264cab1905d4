//! A random workload of several writers. Their commits are driven step by step between the turns of
//! background work, so that appends, syncs, inserts, flushes, merges and edits meet in every order.
//!
//! - `mix`: the parameters of the workload. `ops`: the writes. `acts`: deliberate acts between random steps.
//! - `ingests`: ingests beside the writers. `names`: keyspaces made, configured and dropped, and checkpoints.

mod acts;
mod ingests;
mod mix;
mod names;
mod ops;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::settings::StoreSettings;
use crate::base::step::MachineStep;
use crate::base::sync::{Arc, Mutex};
use crate::compact::pick::FullMerge;
use crate::format::frames::RECORDS_FROM;
use crate::format::witness::WITNESS_OFFSET;
use crate::io::env::Env;
use crate::io::sim::{SimDisk, SimRng, SimThreads, sim_env};
use crate::io::storage::Storage;
use crate::write::commit::{Commit, WriteAsk};
use crate::write::writer::Until;

use super::super::{OpenMode, OpenOptions, Store};
use super::model::{Known, Model, Names};
use crate::engine::open::checkpoint::Checkpoint;

use acts::Look;
pub(super) use acts::{Act, place_of};
use ingests::Ingesting;
pub(super) use mix::Mix;
use names::Naming;
use ops::Op;

/// Rounds without progress that count as a deadlock.
const STUCK_ROUNDS_MAX: usize = 100;
/// Time that passes when no writer can make progress.
const LEAP_NS: u64 = 150_000_000;

/// Caps on background work, in bytes a second: none, a cap that is almost never reached, and two that always
/// are.
const CAPS: [u64; 5] = [0, 0, 100 << 20, 1 << 20, 20_000];

/// Opens the store of a disk in a simulated process. The seed decides its cap, and how many runs its gets
/// read in parallel.
pub(in crate::engine) fn open(
    disk: &Arc<SimDisk>,
    over: Option<Arc<dyn Storage>>,
    seed: u64,
    memory_bytes: u64,
) -> Result<(Arc<Store>, Arc<SimThreads>)> {
    let cap = CAPS[SimRng::new(seed).index(CAPS.len())];
    open_in(disk, seed, (memory_bytes, cap), |env| env.storage = over.unwrap_or(Arc::clone(&env.storage)))
}

/// As [`open`], with memory and cap given, in a process whose environment `change` may change.
pub(super) fn open_in(
    disk: &Arc<SimDisk>,
    seed: u64,
    (memory_bytes, cap): (u64, u64),
    change: impl FnOnce(&mut Env),
) -> Result<(Arc<Store>, Arc<SimThreads>)> {
    open_by(disk, seed, (memory_bytes, cap), change, None)
}

/// As [`open_in`]; a new store gets this secret if one is given.
pub(super) fn open_by(
    disk: &Arc<SimDisk>,
    seed: u64,
    (memory_bytes, cap): (u64, u64),
    change: impl FnOnce(&mut Env),
    hash_secret: Option<[u8; 16]>,
) -> Result<(Arc<Store>, Arc<SimThreads>)> {
    let (mut env, threads) = sim_env(disk, seed);
    change(&mut env);
    let settings = StoreSettings {
        memory_bytes,
        manifest_bytes: 16 << 10,
        background_bytes_per_second: cap,
        search: seed % 5,
        ..StoreSettings::default()
    };
    let options = OpenOptions { hash_secret, ..OpenOptions::new(settings, OpenMode::CreateIfMissing) };
    Ok((Store::open(env, options)?, threads))
}

/// The next input of a writer.
enum Next {
    Step(MachineStep<WriteAsk, Result<()>>),
    Answer(Result<()>),
}

struct Writer<'s> {
    op: Op,
    commit: Commit<&'s crate::write::writer::Writer>,
    next: Next,
}

/// The part of a run that outlives its process.
pub(super) struct Past {
    pub(super) model: Model,
    pub(super) rng: SimRng,
    pub(super) mix: Mix,
    /// Gives every write values of its own.
    op_next: u64,
    pub(super) names: Names,
    /// Errors reported to writers and other callers.
    pub(super) errors: Vec<Error>,
    pub(super) ingests_count: u64,
    /// Batches that had a write buffer of their own.
    pub(super) large_count: u64,
    /// The number of writes after which a full disk refused further ones.
    refused_from: Option<usize>,
}

impl Past {
    pub(super) fn new(seed: u64, mix: Mix) -> Past {
        Past {
            model: Model::new(),
            rng: SimRng::new(seed),
            mix,
            op_next: 1,
            names: Names::new(),
            errors: Vec::new(),
            ingests_count: 0,
            large_count: 0,
            refused_from: None,
        }
    }
}

/// See the module.
pub(super) struct Run<'s> {
    store: &'s Arc<Store>,
    threads: &'s SimThreads,
    storage: Arc<dyn Storage>,
    shared: Arc<Mutex<Known>>,
    pub(super) past: Past,
    writers: Vec<Option<Writer<'s>>>,
    ingesting: Option<Ingesting<'s>>,
    naming: Option<Naming<'s>>,
    copying: Option<Checkpoint<'s>>,
    /// Snapshots held, and their expected contents.
    looks: Vec<Look>,
}

impl<'s> Run<'s> {
    /// A run of this seed, with all operations.
    pub(super) fn new(
        store: &'s Arc<Store>,
        threads: &'s SimThreads,
        storage: Arc<dyn Storage>,
        shared: Arc<Mutex<Known>>,
        seed: u64,
    ) -> Run<'s> {
        let mut rng = SimRng::new(seed);
        let mix = Mix { keys_count: 10 + rng.below(60), value_bytes: 1 + rng.index(600), ..Mix::ALL };
        Run::after(store, threads, storage, shared, Past { rng, ..Past::new(seed, mix) })
    }

    /// A run that continues in a new process, or begins.
    pub(super) fn after(
        store: &'s Arc<Store>,
        threads: &'s SimThreads,
        storage: Arc<dyn Storage>,
        shared: Arc<Mutex<Known>>,
        past: Past,
    ) -> Run<'s> {
        let writers = (0..past.mix.writers_count).map(|_| None).collect();
        let (ingesting, naming, copying, looks) = (None, None, None, Vec::new());
        Run { store, threads, storage, shared, past, writers, ingesting, naming, copying, looks }
    }

    /// Finishes the writers' operations and returns the part that outlives the process.
    pub(super) fn end(mut self) -> Past {
        self.finish();
        self.past
    }

    /// Takes `steps` steps, then finishes the writers' operations.
    pub(super) fn go(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
        self.finish();
    }

    /// One random step.
    fn step(&mut self) {
        let mix = &self.past.mix;
        let kinds = [
            mix.names,
            mix.settings,
            mix.compacts,
            mix.rewrites,
            mix.ingests,
            mix.ingest_turns,
            mix.copies,
            mix.turns,
        ];
        let mut drawn = self.past.rng.below(1000);
        let kind = kinds.iter().position(|share| {
            let is_it = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            is_it
        });
        match kind {
            Some(0) => self.change_names(),
            Some(1) => self.change_settings(),
            Some(2) => {
                self.store.work.want_full(&self.store.trees(), &FullMerge::whole(self.store.writer.visible()))
            }
            Some(3) => self.rewrite_manifest(),
            Some(4) => self.begin_ingest(),
            Some(5) => drop(self.drive_ingest()),
            Some(6) => self.begin_copy(),
            Some(7) => drop(self.threads.run_one()),
            _ if self.naming.is_some() && self.past.rng.one_in(3) => drop(self.drive_naming()),
            _ if self.copying.is_some() && self.past.rng.one_in(3) => drop(self.drive_copy()),
            _ => {
                let index = self.past.rng.index(self.writers.len());
                self.drive(index);
            }
        }
    }

    /// Drives all writers until none has an operation under way.
    pub(super) fn finish(&mut self) {
        let mut stuck = 0;
        while self.is_busy() {
            let busy: Vec<usize> =
                (0..self.writers.len()).filter(|one| self.writers[*one].is_some()).collect();
            let moved = busy.into_iter().filter(|index| self.drive(*index)).count() > 0;
            let moved = self.drive_ingest() || moved;
            let moved = self.drive_naming() || moved;
            let moved = self.drive_copy() || moved;
            if self.threads.run_one() || moved {
                stuck = 0;
                continue;
            }
            stuck += 1;
            assert!(stuck < STUCK_ROUNDS_MAX, "writers wait for what never comes");
            self.leap();
        }
    }

    /// Whether any operation is unfinished.
    fn is_busy(&self) -> bool {
        let is_beside = self.ingesting.is_some() || self.naming.is_some() || self.copying.is_some();
        is_beside || self.writers.iter().any(Option::is_some)
    }

    fn tell(&self) {
        *self.shared.lock() = self.past.model.known.clone();
    }

    /// One step of a writer; `false` if it waits for others.
    fn drive(&mut self, index: usize) -> bool {
        let Some(mut writer) = self.writers[index].take() else {
            if let Some(op) = self.make_op() {
                let (commit, step) = Commit::start(&op.commit_op(), &self.store.writer);
                self.writers[index] = Some(Writer { op, commit, next: Next::Step(step) });
            }
            return true;
        };
        let answer = match writer.next {
            Next::Answer(answer) => answer,
            Next::Step(MachineStep::Done(result)) => {
                self.done(&writer.op, result);
                if let Some(room) = writer.op.room {
                    drop(writer.commit);
                    self.store.end_large_room(room);
                    self.past.large_count += 1;
                }
                return true;
            }
            Next::Step(MachineStep::Touch) => unreachable!("a commit takes no turns with others"),
            Next::Step(MachineStep::Wait) => {
                let has_moved = writer.commit.waits_for().is_some_and(|(event, seen)| event.seen() != seen);
                if !has_moved {
                    self.writers[index] = Some(writer);
                    return false;
                }
                Ok(())
            }
            Next::Step(MachineStep::Ask(WriteAsk::Room { seen }))
                if self.store.writer.changed.seen() == seen =>
            {
                self.writers[index] = Some(writer);
                return false;
            }
            Next::Step(MachineStep::Ask(ask)) => {
                let answer = self.answer(&mut writer, ask);
                writer.next = Next::Answer(answer);
                self.writers[index] = Some(writer);
                return true;
            }
        };
        writer.next = Next::Step(writer.commit.resume(&writer.op.commit_op(), answer));
        self.writers[index] = Some(writer);
        true
    }

    fn answer(&mut self, writer: &mut Writer<'s>, ask: WriteAsk) -> Result<()> {
        match ask {
            WriteAsk::Append { file, offset, .. } => {
                let bytes = writer.commit.bytes();
                // Records that a full disk refused before are still in the log's tail.
                let before = self.past.refused_from.unwrap_or(self.past.model.known.submitted);
                let is_witness = (file, offset) == (FileName::STORE, WITNESS_OFFSET);
                let are_records = offset >= RECORDS_FROM && !is_witness;
                if are_records {
                    self.order(&mut writer.op, bytes);
                }
                let written = self.storage.write(file, offset, bytes);
                assert!(file.kind == FileKind::Log || is_witness, "commits write logs and the witness");
                if matches!(written, Err(Error::Full { .. })) && are_records {
                    self.past.refused_from = Some(before);
                }
                written
            }
            WriteAsk::Sync { file } => self.storage.sync(file),
            WriteAsk::Room { .. } => Ok(()),
            WriteAsk::Pause { ns } => {
                self.threads.clock().advance(ns);
                Ok(())
            }
        }
    }

    /// Finds the order in which a group's batches are in the log, by searching for each payload.
    fn order(&mut self, own: &mut Op, bytes: &[u8]) {
        let others = self.writers.iter_mut().flatten().map(|writer| &mut writer.op);
        let mut found: Vec<(usize, &mut Op)> = std::iter::once(own)
            .chain(others)
            .filter(|op| op.place.is_none() && !op.items.payload().is_empty())
            .filter_map(|op| Some((position(bytes, op.items.payload())?, op)))
            .collect();
        found.sort_by_key(|(at, _)| *at);
        if !found.is_empty()
            && let Some(count) = self.past.refused_from.take()
        {
            // Records that a full disk refused may have been in the log until now: this write replaces them.
            self.past.model.take_back(count);
        }
        for (_, op) in found {
            op.place = Some(self.past.model.submit(&op.writes));
        }
        self.tell();
    }

    fn done(&mut self, op: &Op, result: Result<()>) {
        let known = &mut self.past.model.known;
        match result {
            Ok(()) => {
                let place = op.place.unwrap_or(op.covers);
                known.acked = known.acked.max(place);
                if op.until == Until::Synced {
                    known.synced = known.synced.max(place);
                }
            }
            // One of its keyspaces was dropped before its turn came: no item was written.
            Err(Error::Dropped { .. }) => assert!(op.place.is_none(), "it was written in part"),
            Err(error) => self.past.errors.push(error),
        }
        self.tell();
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
