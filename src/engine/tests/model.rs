//! What the store must hold: every prefix of the joint order of commits and catalog changes as a fingerprint,
//! and what is known at a moment of which prefixes may be found.

use std::collections::BTreeMap;
use std::ops::{Index, RangeInclusive};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;

/// Keyspaces one run may make, dropped ones included.
pub(super) const SPACES_COUNT_MAX: usize = 16;

/// Names of keyspaces and their indices.
pub(super) type Names = BTreeMap<String, usize>;

/// The store after a prefix of the joint order.
#[derive(Clone, Default, Debug)]
pub(super) struct State {
    /// Contents of every keyspace ever made, by its index.
    sums: [u64; SPACES_COUNT_MAX],
    /// And its settings.
    settings: [u64; SPACES_COUNT_MAX],
    /// Those that there are.
    names: Arc<Names>,
}

impl Index<usize> for State {
    type Output = u64;

    fn index(&self, space: usize) -> &u64 {
        &self.sums[space]
    }
}

impl State {
    /// Whether these keyspaces were found, and no others.
    fn is(&self, found: &[FoundKeyspace]) -> bool {
        let is_one = |(one, (name, space)): (&FoundKeyspace, (&String, &usize))| {
            one.name == *name && one.sum == self.sums[*space] && one.settings == self.settings[*space]
        };
        found.len() == self.names.len() && found.iter().zip(&*self.names).all(is_one)
    }
}

/// A keyspace of a disk, with fingerprints of its contents and its settings.
#[derive(Clone, Debug)]
pub(super) struct FoundKeyspace {
    pub(super) name: String,
    pub(super) sum: u64,
    pub(super) settings: u64,
}

/// One item's part of a fingerprint: exclusive or over all items is the keyspace's.
pub(super) fn fingerprint(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, 1)).max(1)
}

/// The fingerprint of settings.
pub(super) fn settings_fingerprint(settings: &KeyspaceSettings) -> u64 {
    let values = settings.values();
    values
        .into_iter()
        .fold(1, |sum, (setting, value)| xxh3_64_with_seed(&value.to_le_bytes(), sum ^ setting.id as u64))
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
    /// Checkpoints, begun or made.
    pub(super) copies: Vec<Copied>,
    /// The step under way.
    pub(super) step: usize,
}

/// A checkpoint, and what it holds.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub(super) path: &'static str,
    /// Writes acknowledged when the call began.
    pub(super) least: usize,
    /// Once the call has returned: writes handed to the log by then.
    pub(super) most: Option<usize>,
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
        Model { states: vec![State::default()], ..Model::default() }
    }

    /// A keyspace is about to be made: its index.
    pub(super) fn add_space(&mut self) -> usize {
        self.trees.push(TreeId { keyspace: KeyspaceId(0), partition: PartitionId(0) });
        self.contents.push(BTreeMap::new());
        assert!(self.trees.len() <= SPACES_COUNT_MAX, "a run makes few keyspaces");
        self.trees.len() - 1
    }

    /// The next change of the catalog in the joint order: the keyspaces that there are after it, and the
    /// settings of one. Its place counts from 1.
    pub(super) fn submit_names(&mut self, names: &Names, set: Option<(usize, &KeyspaceSettings)>) -> usize {
        let mut state = self.states.last().expect("there is the empty one").clone();
        state.names = Arc::new(names.clone());
        if let Some((space, settings)) = set {
            state.settings[space] = settings_fingerprint(settings);
        }
        self.push(state, Vec::new())
    }

    fn push(&mut self, state: State, replaced: Vec<(usize, Vec<u8>, u64)>) -> usize {
        self.states.push(state);
        self.replaced.push(replaced);
        self.known.submitted = self.replaced.len();
        self.known.submitted
    }

    /// The next write in commit order is handed to the log. Its place counts from 1.
    pub(super) fn submit(&mut self, writes: &[Write]) -> usize {
        let mut state = self.states.last().expect("there is the empty one").clone();
        let mut replaced = Vec::new();
        for write in writes {
            let contents = &mut self.contents[write.space];
            if let Some(end) = &write.range_end {
                let is_in = |key: &Vec<u8>| *key >= write.key && (end.is_empty() || key < end);
                contents.retain(|key, before| {
                    if is_in(key) {
                        state.sums[write.space] ^= *before;
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
            state.sums[write.space] ^= before ^ write.fingerprint;
            replaced.push((write.space, write.key.clone(), before));
        }
        self.push(state, replaced)
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

    /// A process has found the first `count` writes and no others, with these keyspaces: that is durable, and
    /// all there is.
    pub(super) fn found(&mut self, count: usize, names: &Arc<Names>) {
        self.take_back(count);
        self.refused.clear();
        self.states.last_mut().expect("there is the empty one").names = Arc::clone(names);
        (self.known.acked, self.known.synced) = (count, count);
    }

    /// The store after the first `place` writes.
    pub(super) fn state(&self, place: usize) -> &State {
        &self.states[place]
    }

    /// Writes handed to the log.
    pub(super) fn writes_count(&self) -> usize {
        self.replaced.len()
    }

    /// The one prefix of a length within `lengths` that was found, and the keyspaces there are.
    pub(super) fn prefix_of(
        &self,
        found: &[FoundKeyspace],
        lengths: RangeInclusive<usize>,
    ) -> Option<(usize, Arc<Names>)> {
        let (least, most) = (*lengths.start(), (*lengths.end()).min(self.states.len() - 1));
        let places = (least..=most).rev().map(|place| (place, &self.states[place]));
        let refused = self.refused.iter().map(|(place, state)| (*place, state));
        let mut all = places.chain(refused.filter(|(place, _)| *place >= least));
        all.find(|(_, state)| state.is(found)).map(|(place, state)| (place, Arc::clone(&state.names)))
    }
}
