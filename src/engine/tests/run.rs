//! A random workload: several writers whose commits are driven step by step between the turns of background
//! work, so that appends, syncs, inserts, flushes, merges and edits meet in every order.

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, ItemKind};
use crate::base::settings::StoreSettings;
use crate::base::step::Step;
use crate::base::sync::{Arc, Event, Mutex};
use crate::format::frames::RECORDS_FROM;
use crate::format::manifest::Change;
use crate::io::env::Threads;
use crate::io::sim::{SimDisk, SimRng, SimThreads, sim_env};
use crate::io::storage::Storage;
use crate::write::batch::Items;
use crate::write::commit::{Commit, CommitOp, WriteAsk};
use crate::write::writer::{Seals, Until};

use super::super::ingest::Ingest;
use super::super::ingest::publish::{Publish, Published};
use super::super::{Mode, OpenOptions, Store};
use super::crash::contents;
use super::model::{Known, Model, Names, Write, fingerprint};

const WRITERS_COUNT: usize = 3;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Rounds in which nobody could do anything before that is taken for a deadlock.
const STUCK_ROUNDS_MAX: usize = 100;
/// Changes that still fit into a manifest that counts as nearly full: just over what makes it rewritten.
const MANIFEST_CHANGES_LEFT: usize = 480;
/// Time that passes when nobody can do anything.
const LEAP_NS: u64 = 150_000_000;

/// Caps on background work, in bytes a second: none, one that is nearly never met, and some that always are.
const CAPS: [u64; 5] = [0, 0, 100 << 20, 1 << 20, 20_000];

/// Opens the store of a disk in a simulated process; whether it has a cap, the seed says.
pub(in crate::engine) fn open(
    disk: &Arc<SimDisk>,
    over: Option<Arc<dyn Storage>>,
    seed: u64,
    memory_bytes: u64,
) -> Result<(Arc<Store>, Arc<SimThreads>)> {
    let (mut env, threads) = sim_env(disk, seed);
    if let Some(storage) = over {
        env.storage = storage;
    }
    let settings = StoreSettings {
        memory_bytes,
        manifest_bytes: 16 << 10,
        background_bytes_per_second: CAPS[SimRng::new(seed).index(CAPS.len())],
        ..StoreSettings::default()
    };
    let store = Store::open(env, OpenOptions::new(settings, Mode::CreateIfMissing))?;
    Ok((store, threads))
}

/// What a writer has in hand.
struct Op {
    items: Items,
    writes: Vec<Write>,
    until: Until,
    seals: Seals,
    /// Its place in the commit order, once it was handed to the log.
    place: Option<usize>,
    /// For a sync: everything up to here was acknowledged before it began.
    covers: usize,
}

impl Op {
    fn commit_op(&self) -> CommitOp<'_> {
        CommitOp {
            payload: self.items.payload(),
            items: self.items.count(),
            key_value_bytes: self.items.key_value_bytes(),
            until: self.until,
            seals: self.seals,
        }
    }
}

/// What comes next for a writer.
enum Next {
    Step(Step<WriteAsk, Result<()>>),
    Answer(Result<()>),
}

struct Writer<'s> {
    op: Op,
    commit: Commit<'s>,
    next: Next,
}

/// An ingest whose tables are built, on its way into the store.
struct Ingesting<'s> {
    // Before what removes its files.
    publish: Publish<'s>,
    ingest: Ingest,
    writes: Vec<Write>,
}

/// See the module.
pub(super) struct Run<'s> {
    store: &'s Arc<Store>,
    threads: &'s SimThreads,
    storage: Arc<dyn Storage>,
    pub(super) model: Model,
    shared: Arc<Mutex<Known>>,
    rng: SimRng,
    writers: Vec<Option<Writer<'s>>>,
    ingesting: Option<Ingesting<'s>>,
    pub(super) ingests_count: u64,
    /// Every write has values of its own.
    op_next: u64,
    names: Names,
    /// Errors that writers and others were told.
    pub(super) errors: Vec<Error>,
    keys_count: u64,
    pub(super) value_bytes: usize,
    /// A full disk refused what came after so many writes.
    refused_from: Option<usize>,
}

impl<'s> Run<'s> {
    pub(super) fn new(
        store: &'s Arc<Store>,
        threads: &'s SimThreads,
        storage: Arc<dyn Storage>,
        shared: Arc<Mutex<Known>>,
        seed: u64,
    ) -> Run<'s> {
        let mut rng = SimRng::new(seed);
        Run {
            store,
            threads,
            storage,
            model: Model::new(),
            shared,
            writers: (0..WRITERS_COUNT).map(|_| None).collect(),
            ingesting: None,
            ingests_count: 0,
            op_next: 1,
            names: Names::new(),
            errors: Vec::new(),
            keys_count: 10 + rng.below(60),
            value_bytes: 1 + rng.index(600),
            refused_from: None,
            rng,
        }
    }

    /// Takes `steps` steps, then finishes what writers have begun.
    pub(super) fn go(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.rng.below(1000) {
                0..3 => self.change_names(),
                3..6 => self.change_settings(),
                6..8 => self.store.work.want_full(&self.store.trees(), self.store.writer.visible()),
                8..10 => self.rewrite_manifest(),
                10..14 => self.begin_ingest(),
                14..40 => drop(self.drive_ingest()),
                40..400 => drop(self.threads.run_one()),
                _ => {
                    let index = self.rng.index(self.writers.len());
                    self.drive(index);
                }
            }
        }
        self.finish();
    }

    /// Drives all writers until none has anything in hand.
    pub(super) fn finish(&mut self) {
        let mut stuck = 0;
        while self.writers.iter().any(Option::is_some) || self.ingesting.is_some() {
            let busy: Vec<usize> =
                (0..self.writers.len()).filter(|one| self.writers[*one].is_some()).collect();
            let moved = busy.into_iter().filter(|index| self.drive(*index)).count() > 0;
            let moved = self.drive_ingest() || moved;
            if self.threads.run_one() || moved {
                stuck = 0;
                continue;
            }
            stuck += 1;
            assert!(stuck < STUCK_ROUNDS_MAX, "writers wait for what never comes");
            self.leap();
        }
    }

    /// Lets time pass, for what tries again after a while.
    pub(super) fn leap(&self) {
        let never = Event::new();
        self.threads.wait(&never, never.seen(), Some(LEAP_NS));
    }

    /// What is read now is what was acknowledged, no more and no less.
    pub(super) fn check_now(&self) {
        let state = self.model.state(self.model.known.acked);
        for (name, space) in &self.names {
            let found = contents(self.store, name).expect("everything can be read");
            assert!(found == state[*space], "{name} holds something else than what was acknowledged");
        }
    }

    /// A keyspace that is not the workload's was made.
    pub(super) fn know_of(&mut self, name: &str) {
        for names in &mut self.model.known.names {
            names.insert(name.to_owned(), usize::MAX);
        }
    }

    fn tell(&self) {
        *self.shared.lock() = self.model.known.clone();
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
            Next::Step(Step::Done(result)) => {
                self.done(&writer.op, result);
                return true;
            }
            Next::Step(Step::Touch) => unreachable!("a commit takes no turns with others"),
            Next::Step(Step::Wait) => {
                let has_moved = writer.commit.waits_for().is_some_and(|(event, seen)| event.seen() != seen);
                if !has_moved {
                    self.writers[index] = Some(writer);
                    return false;
                }
                Ok(())
            }
            Next::Step(Step::Ask(WriteAsk::Room { seen })) if self.store.writer.changed.seen() == seen => {
                self.writers[index] = Some(writer);
                return false;
            }
            Next::Step(Step::Ask(ask)) => {
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
                let before = self.model.known.submitted;
                if offset >= RECORDS_FROM {
                    self.order(&mut writer.op, bytes);
                }
                let written = self.storage.write(file, offset, bytes);
                assert_eq!(file.kind, FileKind::Log, "commits write logs");
                if matches!(written, Err(Error::Full { .. })) && offset >= RECORDS_FROM {
                    self.refused_from = Some(before);
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

    /// Finds out in which order the batches of a group go into the log: each is in there as it is.
    fn order(&mut self, own: &mut Op, bytes: &[u8]) {
        let others = self.writers.iter_mut().flatten().map(|writer| &mut writer.op);
        let mut found: Vec<(usize, &mut Op)> = std::iter::once(own)
            .chain(others)
            .filter(|op| op.place.is_none() && !op.items.payload().is_empty())
            .filter_map(|op| Some((position(bytes, op.items.payload())?, op)))
            .collect();
        found.sort_by_key(|(at, _)| *at);
        if !found.is_empty()
            && let Some(count) = self.refused_from.take()
        {
            // What a full disk refused may stand in the log until now: this is written in its place.
            self.model.take_back(count);
        }
        for (_, op) in found {
            op.place = Some(self.model.submit(&op.writes));
        }
        self.tell();
    }

    fn done(&mut self, op: &Op, result: Result<()>) {
        let known = &mut self.model.known;
        match result {
            Ok(()) => {
                let place = op.place.unwrap_or(op.covers);
                known.acked = known.acked.max(place);
                if op.until == Until::Synced {
                    known.synced = known.synced.max(place);
                }
            }
            Err(error) => self.errors.push(error),
        }
        self.tell();
    }

    fn make_op(&mut self) -> Option<Op> {
        let until = if self.rng.one_in(10) { Until::Synced } else { Until::Written };
        let empty = Op {
            items: Items::default(),
            writes: Vec::new(),
            until,
            seals: Seals::No,
            place: None,
            covers: self.model.known.acked,
        };
        match self.rng.below(60) {
            0 => return Some(Op { until: Until::Synced, ..empty }),
            1 => return Some(Op { seals: Seals::Yes, ..empty }),
            _ => {}
        }
        let spaces: Vec<usize> = self.names.values().copied().collect();
        if spaces.is_empty() {
            return None;
        }
        let mut op = empty;
        let count = if self.rng.one_in(3) { 2 + self.rng.below(4) } else { 1 };
        for index in 0..count {
            let space = spaces[self.rng.index(spaces.len())];
            // Every batch has a value of its own, so that it is told from all others.
            let kind = match self.rng.below(6) {
                0 if index > 0 => ItemKind::DeleteRange,
                1 | 2 if index > 0 => ItemKind::Delete,
                _ => ItemKind::Put,
            };
            let mut key = format!("{:03}", self.rng.below(self.keys_count)).into_bytes();
            let mut value = Vec::new();
            if kind == ItemKind::Put {
                value = self.op_next.to_le_bytes().to_vec();
                value.resize(8 + self.rng.index(self.value_bytes), index as u8);
            }
            if kind == ItemKind::DeleteRange {
                value = match self.rng.below(8) {
                    0 => Vec::new(),
                    1 => [&key[..], b"\0"].concat(),
                    _ => {
                        [&key[..], &format!("/{:03}", self.rng.below(self.keys_count)).into_bytes()].concat()
                    }
                };
                if self.rng.one_in(3) {
                    value = format!("{:03}", 1 + self.rng.below(self.keys_count)).into_bytes();
                    value = value.max([&key[..], b"\0"].concat());
                }
                if self.rng.one_in(8) {
                    // All of the keyspace.
                    (key, value) = (Vec::new(), Vec::new());
                }
            }
            op.items.push(self.model.trees[space], kind, &key, &value).expect("within all limits");
            let fingerprint = if kind == ItemKind::Put { fingerprint(&key, &value) } else { 0 };
            let range_end = (kind == ItemKind::DeleteRange).then_some(value);
            op.writes.push(Write { space, key, fingerprint, range_end });
        }
        self.op_next += 1;
        Some(op)
    }

    /// Builds the tables of an ingest, if none is under way.
    fn begin_ingest(&mut self) {
        let names: Vec<String> = self.names.keys().cloned().collect();
        if self.ingesting.is_some() || names.is_empty() {
            return;
        }
        let name = &names[self.rng.index(names.len())];
        let keyspace = self.store.keyspace(name).expect("it is there");
        let (space, mut writes) = (self.names[name], Vec::new());
        let built = Ingest::begin(self.store, &keyspace).and_then(|mut ingest| {
            let first = self.rng.below(self.keys_count);
            let count = 1 + self.rng.below(self.keys_count);
            for number in first..(first + count).min(self.keys_count) {
                if number > first && self.rng.one_in(3) {
                    continue;
                }
                let key = format!("{number:03}").into_bytes();
                let mut value = self.op_next.to_le_bytes().to_vec();
                value.resize(8 + self.rng.index(self.value_bytes), number as u8);
                ingest.put(&key, &value)?;
                let fingerprint = fingerprint(&key, &value);
                writes.push(Write { space, key, fingerprint, range_end: None });
            }
            let tables = ingest.complete()?;
            Ok((Publish::new(self.store, &keyspace, tables), ingest))
        });
        self.op_next += 1;
        match built {
            // One in a few is given up.
            Ok(_) if self.rng.one_in(6) => {}
            Ok((publish, ingest)) => self.ingesting = Some(Ingesting { publish, ingest, writes }),
            Err(error) => self.errors.push(error),
        }
    }

    /// One turn of the ingest on its way; `false` if there is none, or it waits for others.
    fn drive_ingest(&mut self) -> bool {
        let Some(mut now) = self.ingesting.take() else { return false };
        let mut place = None;
        if now.publish.is_due() {
            // It has the front: this is its place among the writes.
            if let Some(count) = self.refused_from.take() {
                self.model.take_back(count);
            }
            place = Some(self.model.submit(&now.writes));
            self.tell();
        }
        match now.publish.turn() {
            Ok(Published::Done) => {
                let place = place.expect("it said that it was due");
                let known = &mut self.model.known;
                (known.acked, known.synced) = (known.acked.max(place), known.synced.max(place));
                now.ingest.published();
                self.ingests_count += 1;
            }
            Ok(moved) => {
                assert!(place.is_none(), "it was due");
                let has_moved = moved == Published::Again || {
                    let (event, seen) = now.publish.waits_for();
                    event.seen() != seen
                };
                self.ingesting = Some(now);
                return has_moved;
            }
            Err(error) => {
                if let Some(place) = place
                    && self.store.writer.latched().is_none()
                {
                    self.model.take_back(place - 1);
                }
                if !matches!(error, Error::Dropped { .. }) {
                    self.errors.push(error);
                }
            }
        }
        self.tell();
        true
    }

    /// Makes or drops a keyspace.
    fn change_names(&mut self) {
        let name = NAMES[self.rng.index(NAMES.len())];
        if self.names.contains_key(name) {
            if self.names.len() > 1 {
                self.drop_name(name);
            }
        } else if self.model.trees.len() < super::model::SPACES_COUNT_MAX {
            self.make_name(name);
        }
    }

    pub(super) fn make_name(&mut self, name: &str) {
        let level0_runs = 1 + self.rng.below(3);
        let given = [("level0_runs".to_owned(), level0_runs), ("size_ratio".to_owned(), 2)];
        let mut after = self.names.clone();
        after.insert(name.to_owned(), self.model.trees.len());
        self.begin_names(&after);
        let made = self.store.open_keyspace(name, &given).map(|keyspace| {
            self.model.add_space(keyspace.tree);
        });
        self.end_names(after, made);
    }

    fn drop_name(&mut self, name: &str) {
        let mut after = self.names.clone();
        after.remove(name);
        self.begin_names(&after);
        let dropped = self.store.drop_keyspace(name);
        self.end_names(after, dropped);
    }

    /// From now on a crash may leave the names before or after.
    fn begin_names(&mut self, after: &Names) {
        if self.store.writer.latched().is_none() {
            self.model.known.names.push(after.clone());
        }
        self.tell();
    }

    /// An edit that failed may be found after a crash, until one has succeeded.
    fn end_names(&mut self, after: Names, result: Result<()>) {
        match result {
            Ok(()) => {
                self.names = after;
                self.model.known.names = vec![self.names.clone()];
            }
            Err(error) => self.errors.push(error),
        }
        self.tell();
    }

    /// Edits settings until the manifest is about to be rewritten.
    pub(super) fn fill_manifest(&mut self) {
        let is_nearly_full = |store: &Store| {
            let catalog = store.catalog.take(&*store.env.threads);
            let spare = vec![Change::Flushed { sequence: 1 }; MANIFEST_CHANGES_LEFT];
            catalog.manifest.must_rewrite(&catalog.state) || !catalog.manifest.has_room(&spare)
        };
        while !is_nearly_full(self.store) {
            self.change_settings();
        }
    }

    /// As if it had grown too long.
    fn rewrite_manifest(&mut self) {
        let mut catalog = self.store.catalog.take(self.threads);
        if let Err(error) = self.store.rewrite_manifest(&mut catalog, &[]) {
            self.errors.push(error);
        }
    }

    fn change_settings(&mut self) {
        let name = NAMES[self.rng.index(NAMES.len())];
        if self.names.contains_key(name) {
            let given = [
                ("level0_runs".to_owned(), 1 + self.rng.below(4)),
                ("compression".to_owned(), self.rng.below(2)),
                ("size_ratio".to_owned(), 2 + self.rng.below(4)),
                ("runs_per_level".to_owned(), 1 + self.rng.below(5)),
                ("runs_in_last_level".to_owned(), 1 + self.rng.below(3)),
                ("delete_persist_within".to_owned(), self.rng.below(4)),
            ];
            if let Err(error) = self.store.open_keyspace(name, &given) {
                self.errors.push(error);
            }
        }
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
