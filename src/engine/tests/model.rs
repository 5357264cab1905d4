//! What the store must hold: every prefix of the commit order as a fingerprint, and what is known at a moment
//! of which prefixes may be found.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::id::TreeId;

/// Keyspaces one run may make, dropped ones included.
pub(super) const SPACES_COUNT_MAX: usize = 16;

/// Contents of every keyspace ever made, by its index.
pub(super) type State = [u64; SPACES_COUNT_MAX];

/// Names of keyspaces and their indices.
pub(super) type Names = BTreeMap<String, usize>;

/// One item's part of a fingerprint: exclusive or over all items is the keyspace's.
pub(super) fn fingerprint(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, 1)).max(1)
}

/// A write as the model applies it: keyspace index, key, fingerprint or 0 for a deletion; where a deletion of
/// a range ends, which is empty if it has no end.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) space: usize,
    pub(super) key: Vec<u8>,
    pub(super) fingerprint: u64,
    pub(super) range_end: Option<Vec<u8>>,
}

/// What a crash now must leave and may leave.
#[derive(Clone, Default, Debug)]
pub(in crate::engine) struct Known {
    /// Writes acknowledged at all: prefixes are counted in writes.
    pub(super) acked: usize,
    /// Writes acknowledged as durable.
    pub(super) synced: usize,
    /// Writes handed to the log.
    pub(super) submitted: usize,
    /// The keyspaces there are; two possibilities while one is made or dropped.
    pub(super) names: Vec<Names>,
    /// Checkpoints, begun or made.
    pub(super) copies: Vec<Copied>,
    /// The step under way.
    pub(super) step: usize,
}

/// A checkpoint, and what it holds.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub(super) path: &'static str,
    pub(super) place: usize,
    pub(super) names: Names,
    /// The call has returned.
    pub(super) is_done: bool,
}

#[derive(Default)]
pub(super) struct Model {
    /// The state after each prefix of the commit order.
    states: Vec<State>,
    /// Contents after all of it, and of each keyspace ever made.
    contents: Vec<BTreeMap<Vec<u8>, u64>>,
    /// What each write replaced, to take it back.
    replaced: Vec<Vec<(usize, Vec<u8>, u64)>>,
    pub(super) trees: Vec<TreeId>,
    pub(super) known: Known,
    /// States with writes that a full disk refused, by their place. The first page of such a write may reach
    /// the device and what was written over it may not.
    refused: Vec<(usize, State)>,
}

impl Model {
    pub(super) fn new() -> Model {
        let known = Known { names: vec![Names::new()], ..Known::default() };
        Model { states: vec![State::default()], known, ..Model::default() }
    }

    pub(super) fn add_space(&mut self, tree: TreeId) -> usize {
        self.trees.push(tree);
        self.contents.push(BTreeMap::new());
        assert!(self.trees.len() <= SPACES_COUNT_MAX, "a run makes few keyspaces");
        self.trees.len() - 1
    }

    /// The next write in commit order is handed to the log. Its place counts from 1.
    pub(super) fn submit(&mut self, writes: &[Write]) -> usize {
        let mut state = *self.states.last().expect("there is the empty one");
        let mut replaced = Vec::new();
        for write in writes {
            let contents = &mut self.contents[write.space];
            if let Some(end) = &write.range_end {
                let is_in = |key: &Vec<u8>| *key >= write.key && (end.is_empty() || key < end);
                contents.retain(|key, before| {
                    if is_in(key) {
                        state[write.space] ^= *before;
                        replaced.push((write.space, key.clone(), *before));
                    }
                    !is_in(key)
                });
                continue;
            }
            let before = match write.fingerprint {
                0 => contents.remove(&write.key),
                new => contents.insert(write.key.clone(), new),
            };
            let before = before.unwrap_or(0);
            state[write.space] ^= before ^ write.fingerprint;
            replaced.push((write.space, write.key.clone(), before));
        }
        self.states.push(state);
        self.replaced.push(replaced);
        self.known.submitted = self.replaced.len();
        self.known.submitted
    }

    /// The last writes did not get into the log after all: `count` are left.
    pub(super) fn take_back(&mut self, count: usize) {
        while self.replaced.len() > count {
            let replaced = self.replaced.pop().expect("there are more");
            for (space, key, before) in replaced.into_iter().rev() {
                match before {
                    0 => self.contents[space].remove(&key),
                    old => self.contents[space].insert(key, old),
                };
            }
        }
        let refused = self.states.drain(count + 1..);
        self.refused.extend(refused.map(|state| (count, state)));
        self.known.submitted = count;
    }

    /// A process has found the first `count` writes and no others: that is durable, and all there is.
    pub(super) fn found(&mut self, count: usize, names: &Names) {
        self.take_back(count);
        self.refused.clear();
        (self.known.acked, self.known.synced) = (count, count);
        self.known.names = vec![names.clone()];
    }

    /// Contents after the first `place` writes.
    pub(super) fn state(&self, place: usize) -> &State {
        &self.states[place]
    }

    /// Writes handed to the log.
    pub(super) fn writes_count(&self) -> usize {
        self.replaced.len()
    }

    /// The one prefix within `least..=most` that the keyspaces found are in.
    pub(super) fn prefix_of(&self, found: &BTreeMap<usize, u64>, least: usize, most: usize) -> Option<usize> {
        let is_it = |state: &State| found.iter().all(|(space, fingerprint)| state[*space] == *fingerprint);
        let refused = || self.refused.iter().find(|(place, state)| *place >= least && is_it(state));
        let found = (least..=most.min(self.states.len() - 1)).rev().find(|place| is_it(&self.states[*place]));
        found.or_else(|| refused().map(|(place, _)| *place))
    }
}
