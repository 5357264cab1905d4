//! Deliberate acts between the random steps of a run. A blocking call is made with all writers at rest,
//! because they are not driven meanwhile.

use crate::base::error::{Corrupt, Error, Result};
use crate::base::sync::{Arc, Event};
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;
use crate::format::manifest::ManifestChange;
use crate::inspect::verify_open;
use crate::io::env::Threads;
use crate::io::sim::SimDisk;
use crate::write::writer::Until;

use super::super::super::Store;
use super::super::crash::{contents, contents_at, named};
use super::Run;

/// Changes that still fit into an almost full manifest: just over the limit at which it is rewritten.
const MANIFEST_CHANGES_LEFT: usize = 480;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine::tests) enum Act {
    /// Takes this many random steps.
    Go(usize),
    /// Writers finish, and background work takes this many turns.
    Turns(usize),
    /// Writers finish, and background work runs until it is idle.
    Rest,
    Sync,
    Flush,
    Settle,
    Compact,
    Make(&'static str),
    Drop(&'static str),
    /// Changes settings.
    Set(&'static str, &'static [(&'static str, u64)]),
    Clear(&'static str),
    /// Rewrites the manifest.
    Rewrite,
    /// Edits until the manifest is about to be rewritten.
    FillManifest,
    /// Takes a snapshot, and reads its contents.
    Look,
    /// Checks that all snapshots still have the same contents.
    LookAgain,
    LookAway,
    /// Begins an ingest.
    Ingest,
    /// Begins a checkpoint, and leaves its turns to the steps that follow.
    Copy,
    /// Makes a checkpoint.
    Checkpoint(&'static str),
    /// Reads everything in every way.
    Read,
    /// Checks the files.
    Verify,
    /// Limits the free space of the disk to this many bytes; `None`: no limit.
    Room(Option<u64>),
    /// Lets this many seconds pass.
    Pass(u64),
    /// Closes the store, and opens it with this much memory.
    Reopen(u64),
    /// The process is killed, and the next opens the store.
    Kill,
}

/// A snapshot, and its contents at the start.
pub(super) struct Look {
    point: Arc<Point>,
    seen: Vec<(Arc<KeyspaceState>, u64)>,
}

impl Run<'_> {
    /// Performs an act, except those that end the process.
    pub(in crate::engine::tests) fn act(&mut self, act: Act, disk: &SimDisk) {
        if !matches!(act, Act::Go(_) | Act::Ingest | Act::Copy) {
            self.finish();
        }
        let done = match act {
            Act::Go(steps) => {
                (0..steps).for_each(|_| self.step());
                Ok(())
            }
            Act::Turns(count) => {
                for _ in 0..count {
                    self.threads.run_one();
                }
                Ok(())
            }
            Act::Rest => {
                self.threads.run_until_idle();
                Ok(())
            }
            Act::Sync => {
                self.write_now(None, Until::Synced);
                Ok(())
            }
            Act::Clear(name) => {
                if let Some(space) = self.past.names.get(name).copied() {
                    self.write_now(Some(space), Until::Written);
                }
                Ok(())
            }
            Act::Flush => self.store.flush(),
            Act::Settle => self.store.settle(),
            Act::Compact => self.store.compact(),
            Act::Verify => self.verify(),
            Act::Look => self.look(),
            Act::LookAgain => self.look_again(),
            Act::Read => self.read(),
            Act::Checkpoint(path) => {
                self.begin_copy_in(path);
                self.finish();
                Ok(())
            }
            act => {
                self.act_at_once(act, disk);
                Ok(())
            }
        };
        self.told(done);
    }

    fn act_at_once(&mut self, act: Act, disk: &SimDisk) {
        match act {
            Act::Make(name) => self.make_name(name),
            Act::Drop(name) => self.drop_name(name),
            Act::Set(name, given) => self.set(name, given),
            Act::Rewrite => self.rewrite_manifest(),
            Act::FillManifest => self.fill_manifest(),
            Act::LookAway => self.looks.clear(),
            Act::Ingest => self.begin_ingest(),
            Act::Copy => self.begin_copy(),
            Act::Room(room_bytes) => {
                disk.set_capacity_bytes(room_bytes.map(|bytes| disk.used_bytes() + bytes));
            }
            Act::Pass(seconds) => self.threads.clock().advance(seconds * 1_000_000_000),
            act => unreachable!("{act:?} is done elsewhere"),
        }
    }

    pub(super) fn told(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.past.errors.push(error);
        }
        self.tell();
    }

    fn verify(&self) -> Result<()> {
        let report = verify_open(self.store, |_| {})?;
        // Unreadable files are findings too.
        let told = |what: String| Arc::new(std::io::Error::other(what));
        report.findings.into_iter().next().map_or(Ok(()), |finding| {
            let Corrupt { file, offset, found, .. } = finding.damage;
            Err(Error::Io { operation: "verify", file, offset, source: told(found) })
        })
    }

    fn look(&mut self) -> Result<()> {
        let point = self.store.snapshot_point();
        let mut seen = Vec::new();
        for name in self.past.names.keys() {
            let keyspace = named(self.store, name)?;
            let sum = contents_at(self.store, &keyspace, &point)?;
            seen.push((keyspace, sum));
        }
        self.looks.push(Look { point, seen });
        Ok(())
    }

    fn look_again(&self) -> Result<()> {
        for look in &self.looks {
            for (keyspace, sum) in &look.seen {
                let is_same =
                    keyspace.is_dropped() || contents_at(self.store, keyspace, &look.point)? == *sum;
                assert!(is_same, "a snapshot sees something else of {}", keyspace.name);
            }
        }
        Ok(())
    }

    fn read(&self) -> Result<()> {
        let state = self.past.model.state(self.past.model.known.acked);
        for (name, space) in &self.past.names {
            let sum = contents(self.store, name)?;
            assert!(sum == state[*space], "{name} holds what it should not");
        }
        Ok(())
    }

    /// Changes settings until the manifest is about to be rewritten, or was.
    pub(in crate::engine::tests) fn fill_manifest(&mut self) {
        let file = |store: &Store| store.catalog.take(&*store.env.threads).manifest.file();
        let first = file(self.store);
        let is_nearly_full = |store: &Store| {
            let catalog = store.catalog.take(&*store.env.threads);
            let spare = vec![ManifestChange::Flushed { sequence: 1 }; MANIFEST_CHANGES_LEFT];
            let (manifest, state) = (&catalog.manifest, &catalog.state);
            let is_full = manifest.must_rewrite(state) || !manifest.has_room(&spare);
            is_full || manifest.wants_rewrite(state) || manifest.file() != first
        };
        while !is_nearly_full(self.store) && self.store.writer.latched().is_none() {
            let errors_count = self.past.errors.len();
            self.change_settings();
            self.finish();
            if self.past.errors.len() > errors_count || self.past.names.is_empty() {
                // No keyspace is left whose settings could change.
                return;
            }
        }
    }

    /// Rewrites the manifest, as if it were too long.
    pub(super) fn rewrite_manifest(&mut self) {
        let rewritten = {
            let mut catalog = self.store.catalog.take(self.threads);
            self.store.rewrite_manifest(&mut catalog, &[])
        };
        self.told(rewritten);
    }

    /// Lets time pass, so that failed work is retried.
    pub(in crate::engine::tests) fn leap(&self) {
        let never = Event::new();
        self.threads.wait(&never, never.seen(), Some(super::LEAP_NS));
    }

    /// Checks that reads return exactly the acknowledged writes.
    pub(in crate::engine::tests) fn check_now(&self) {
        self.read().expect("everything can be read");
    }
}

/// The file and offset of an error, if it comes from a failed call.
pub(in crate::engine::tests) fn place_of(error: &Error) -> Option<(&str, Option<u64>)> {
    match error {
        Error::Io { file, offset, .. } => Some((file, Some(*offset))),
        Error::Full { file } => Some((file, None)),
        Error::Latched { cause } => place_of(cause),
        _ => None,
    }
}
