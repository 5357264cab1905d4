//! A collector for models. A deferred call runs as soon as every pin of the time of its deferral has ended
//! and a thread flushes. crossbeam's own collector is modelled by its authors.

use std::collections::BTreeSet;

use crate::base::sync::{Arc, Mutex};

#[derive(Clone)]
pub(crate) struct ModelEpoch {
    state: Arc<Mutex<EpochState>>,
}

#[derive(Default)]
struct EpochState {
    next: u64,
    pinned: BTreeSet<u64>,
    /// Each with the pins that may still see the value.
    deferred: Vec<(BTreeSet<u64>, Box<dyn FnOnce() + Send>)>,
    retired: u64,
}

pub(crate) struct ModelPin {
    epoch: ModelEpoch,
    number: u64,
}

impl ModelEpoch {
    pub(crate) fn new() -> ModelEpoch {
        ModelEpoch { state: Arc::new(Mutex::new(EpochState::default())) }
    }

    pub(crate) fn pin(&self) -> ModelPin {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.pinned.insert(number);
        drop(state);
        ModelPin { epoch: self.clone(), number }
    }

    pub(crate) fn defer(&self, _: &ModelPin, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let pinned = state.pinned.clone();
        state.deferred.push((pinned, Box::new(call)));
    }

    pub(crate) fn retire(&self, pin: &ModelPin, value: impl Send + 'static) {
        self.state.lock().retired += 1;
        let state = Arc::clone(&self.state);
        self.defer(pin, move || {
            drop(value);
            state.lock().retired -= 1;
        });
    }

    pub(crate) fn has_retired(&self) -> bool {
        self.state.lock().retired > 0
    }

    pub(crate) fn collect(&self) {
        let mut state = self.state.lock();
        let (due, waiting) =
            std::mem::take(&mut state.deferred).into_iter().partition(|one| one.0.is_empty());
        state.deferred = waiting;
        drop(state);
        let due: Vec<(BTreeSet<u64>, Box<dyn FnOnce() + Send>)> = due;
        due.into_iter().for_each(|(_, call)| call());
    }

    pub(crate) fn pending(&self) -> u64 {
        self.state.lock().deferred.len() as u64
    }
}

impl ModelPin {
    pub(crate) fn flush(&self) {
        self.epoch.collect();
    }
}

impl Drop for ModelPin {
    fn drop(&mut self) {
        let mut state = self.epoch.state.lock();
        state.pinned.remove(&self.number);
        for (waits_for, _) in &mut state.deferred {
            waits_for.remove(&self.number);
        }
    }
}

impl std::fmt::Debug for ModelEpoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ModelEpoch(model)")
    }
}
