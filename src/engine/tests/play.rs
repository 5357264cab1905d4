//! Plays a scenario on a simulated disk: step after step, and process after process.
//!
//! Each step draws from a random generator of its own, so that leaving a step out does not change the draws
//! of the others.

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Mutex};
use crate::io::env::Env;
use crate::io::sim::{Crash, SimDisk, SimRng, SimThreads};
use crate::io::storage::Storage;

use super::super::Store;
use super::crash::{Bounds, Care, place_of, try_found};
use super::model::{Known, Model, Names};
use super::recorder::{Moment, Recorder};
use super::run::{Act, Mix, Past, Run, open_in};
use super::scenario::Scenario;

/// A scenario with a seed, and possibly reduced.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) scenario: &'static Scenario,
    pub(super) seed: u64,
    /// The steps to take, in order; `None`: all.
    pub(super) keep: Option<Vec<usize>>,
    pub(super) keys_count: Option<u64>,
    pub(super) value_bytes: Option<usize>,
    /// The number of a sync that is reported and not made: a store on a lying disk.
    pub(super) lost_sync: Option<u64>,
}

impl Script {
    pub(super) fn new(scenario: &'static Scenario, seed: u64) -> Script {
        Script { scenario, seed, keep: None, keys_count: None, value_bytes: None, lost_sync: None }
    }

    pub(super) fn mix(&self) -> Mix {
        let mix = self.scenario.mix;
        Mix {
            keys_count: self.keys_count.unwrap_or(mix.keys_count),
            value_bytes: self.value_bytes.unwrap_or(mix.value_bytes),
            ..mix
        }
    }

    /// All steps of the scenario, with each random step by itself.
    fn all(&self) -> Vec<Act> {
        let steps = self.scenario.acts.iter().flat_map(|act| match act {
            Act::Go(count) => vec![Act::Go(1); *count],
            act => vec![*act],
        });
        steps.collect()
    }

    /// The steps taken, with their numbers.
    pub(super) fn steps(&self) -> Vec<(usize, Act)> {
        let all = self.all();
        match &self.keep {
            None => all.into_iter().enumerate().collect(),
            Some(keep) => keep.iter().filter_map(|index| Some((*index, *all.get(*index)?))).collect(),
        }
    }
}

/// The environment in which a script is played.
pub(super) struct Stage<'d> {
    pub(super) disk: &'d Arc<SimDisk>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) known: Arc<Mutex<Known>>,
    /// Changes the environment of each process before it opens the store.
    pub(super) change: &'d dyn Fn(&mut Env),
    /// Ends the play early if the store takes no more writes.
    pub(super) ends_when_latched: bool,
}

/// The result of a play.
pub(super) struct Played {
    pub(super) past: Past,
    /// The last process, with the store open.
    pub(super) process: Option<(Arc<Store>, Arc<SimThreads>)>,
    /// The error if the store did not open.
    pub(super) refused: Option<Error>,
    /// The store opened, and its contents could not be read.
    pub(super) is_unread: bool,
}

/// The end of one process of a play.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Over,
    Closed(u64),
    Killed,
}

impl<'d> Stage<'d> {
    pub(super) fn new(disk: &'d Arc<SimDisk>, change: &'d dyn Fn(&mut Env)) -> Stage<'d> {
        let known = Arc::<Mutex<Known>>::default();
        Stage { disk, storage: disk.clone(), known, change, ends_when_latched: false }
    }

    /// Opens the store in the next process; a failed opening is tried once more.
    fn open(&self, script: &Script, memory_bytes: u64, number: u64) -> Result<(Arc<Store>, Arc<SimThreads>)> {
        let seed = script.seed.wrapping_mul(1000) + number;
        let open = || {
            open_in(self.disk, seed, (memory_bytes, script.scenario.cap), |env| {
                env.storage = Arc::clone(&self.storage);
                (self.change)(env);
            })
        };
        open().or_else(|_| open())
    }

    /// Plays a script to its end, or until the store does not open or takes no more writes.
    pub(super) fn play(&self, script: &Script) -> Played {
        let mut past = Past::new(script.seed, script.mix());
        let mut steps = script.steps().into_iter();
        let mut memory_bytes = script.scenario.memory_bytes;
        for number in 0.. {
            let (store, threads) = match self.open(script, memory_bytes, number) {
                Ok(opened) => opened,
                Err(error) => {
                    return Played { past, process: None, refused: Some(error), is_unread: false };
                }
            };
            if number > 0
                && let Err(error) = self.resume(&mut past, &store)
            {
                past.errors.push(error);
                return Played { past, process: Some((store, threads)), refused: None, is_unread: true };
            }
            let (after, end) = self.live(script, past, &mut steps, (&store, &threads));
            past = after;
            if end == End::Over || (self.ends_when_latched && store.writer.latched().is_some()) {
                return Played { past, process: Some((store, threads)), refused: None, is_unread: false };
            }
            let left = self.leave(&mut past, (store, threads), end);
            if left.is_err() && self.ends_when_latched {
                return Played { past, process: None, refused: None, is_unread: false };
            }
            if let End::Closed(bytes) = end {
                memory_bytes = bytes;
            }
        }
        unreachable!("a play has an end")
    }

    /// Checks that the next process finds the state that the last one left.
    pub(super) fn resume(&self, past: &mut Past, store: &Store) -> Result<()> {
        let found = try_found(store, Care::Sums)?;
        let bounds = Bounds::of(&past.model.known, Crash::Process);
        let (place, names) = place_of(&past.model, &found, bounds);
        past.model.found(place, &names);
        past.names = Names::clone(&names);
        *self.known.lock() = past.model.known.clone();
        Ok(())
    }

    /// Takes the steps of one process.
    fn live(
        &self,
        script: &Script,
        past: Past,
        steps: &mut impl Iterator<Item = (usize, Act)>,
        (store, threads): (&Arc<Store>, &Arc<SimThreads>),
    ) -> (Past, End) {
        let (storage, known) = (Arc::clone(&self.storage), Arc::clone(&self.known));
        let mut run = Run::after(store, threads, storage, known, past);
        for (index, act) in steps {
            if self.ends_when_latched && store.writer.latched().is_some() {
                break;
            }
            run.past.rng = SimRng::new(script.seed.rotate_left(32) ^ index as u64);
            run.past.model.known.step = index;
            match act {
                Act::Reopen(bytes) => return (run.end(), End::Closed(bytes)),
                Act::Kill => return (run.end(), End::Killed),
                act => run.act(act, self.disk),
            }
        }
        (run.end(), End::Over)
    }

    fn leave(&self, past: &mut Past, process: (Arc<Store>, Arc<SimThreads>), end: End) -> Result<()> {
        let left = if end == End::Killed { Ok(()) } else { process.0.close() };
        match &left {
            Ok(()) if end == End::Killed => {}
            Ok(()) => past.model.known.synced = past.model.known.acked,
            Err(error) => past.errors.push(error.clone()),
        }
        *self.known.lock() = past.model.known.clone();
        self.disk.kill(|| drop(process));
        left
    }
}

/// The results of a play, and the disk at every call of it.
pub(super) struct Recorded {
    pub(super) model: Model,
    pub(super) moments: Vec<Moment>,
    /// The memory of the store that is opened after a crash.
    pub(super) memory_bytes: u64,
}

/// Plays a script in which only lack of space causes failures, and records the disk at every call.
pub(super) fn record(script: &Script) -> Recorded {
    let disk = SimDisk::new(script.seed);
    let mut stage = Stage::new(&disk, &|_| {});
    let recorder = Recorder::losing(&disk, &stage.known, script.lost_sync);
    stage.storage = recorder.clone();
    record_on(&stage, script, &recorder)
}

/// As [`record`], on a stage that includes `recorder`.
pub(super) fn record_on(stage: &Stage<'_>, script: &Script, recorder: &Recorder) -> Recorded {
    let Played { past, process, refused, .. } = stage.play(script);
    assert!(refused.is_none(), "it does not open: {refused:?}");
    let is_expected = |error: &Error| script.scenario.may_be_full && matches!(error, Error::Full { .. });
    assert!(past.errors.iter().all(is_expected), "{}: {:?}", script.scenario.name, past.errors);
    let (store, _threads) = process.expect("it was opened");
    store.close().expect("nothing fails");
    Recorded { model: past.model, moments: recorder.take(), memory_bytes: script.scenario.memory_after }
}
