//! The expected contents of the store: a fingerprint for every prefix of the joint order of commits and
//! catalog changes, and the bounds of the prefixes that may be found at a moment.

use std::collections::BTreeMap;
use std::ops::{Index, RangeInclusive};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::id::{KeyspaceId, PartitionId, TreeId};
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;

/// Most keyspaces that one run makes, dropped ones included.
pub(super) const SPACES_COUNT_MAX: usize = 16;

/// Names of keyspaces and their indices.
pub(super) type Names = BTreeMap<String, usize>;

/// The store after a prefix of the joint order.
#[derive(Clone, Default, Debug)]
pub(super) struct State {
    /// Contents of every keyspace ever made, by its index.
    sums: [u64; SPACES_COUNT_MAX],
    /// Settings of every keyspace ever made, by its index.
    settings: [u64; SPACES_COUNT_MAX],
    /// The keyspaces that exist.
    names: Arc<Names>,
}

impl Index<usize> for State {
    type Output = u64;

    fn index(&self, space: usize) -> &u64 {
        &self.sums[space]
    }
}

impl State {
    /// Whether exactly these keyspaces were found.
    fn is(&self, found: &[FoundKeyspace]) -> bool {
        let is_one = |(one, (name, space)): (&FoundKeyspace, (&String, &usize))| {
            one.name == *name && one.sum == self.sums[*space] && one.settings == self.settings[*space]
        };
        found.len() == self.names.len() && found.iter().zip(&*self.names).all(is_one)
    }
}

/// A keyspace found on a disk, with fingerprints of its contents and its settings.
#[derive(Clone, Debug)]
pub(super) struct FoundKeyspace {
    pub(super) name: String,
    pub(super) sum: u64,
    pub(super) settings: u64,
}

/// The fingerprint of one item; the exclusive or over all items is the keyspace's.
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

/// A write as the model applies it: the keyspace's index, the key, and the value's fingerprint or 0 for a
/// deletion. For a range deletion it has the end, which is empty if there is no upper bound.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) space: usize,
    pub(super) key: Vec<u8>,
    pub(super) fingerprint: u64,
    pub(super) range_end: Option<Vec<u8>>,
}

/// The writes that a crash now must keep and those it may keep.
#[derive(Clone, Default, Debug)]
pub(in crate::engine) struct Known {
    /// Acknowledged writes. Prefixes are counted in writes.
    pub(super) acked: usize,
    /// Writes acknowledged as durable.
    pub(super) synced: usize,
    /// Writes submitted to the log.
    pub(super) submitted: usize,
    /// Checkpoints, begun or complete.
    pub(super) copies: Vec<Copied>,
    /// The step under way.
    pub(super) step: usize,
}

/// A checkpoint, and the bounds of its contents.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub(super) path: &'static str,
    /// Writes acknowledged when the call began.
    pub(super) least: usize,
    /// Writes submitted to the log when the call returned; `None` before that.
    pub(super) most: Option<usize>,
}

#[derive(Default)]
pub(super) struct Model {
    /// The state after each prefix of the commit order.
    states: Vec<State>,
    /// Contents of each keyspace ever made, after all writes.
    contents: Vec<BTreeMap<Vec<u8>, u64>>,
    /// The items that each write replaced, to undo it.
    replaced: Vec<Vec<(usize, Vec<u8>, u64)>>,
    pub(super) trees: Vec<TreeId>,
    pub(super) known: Known,
    /// States with writes that a full disk refused, by their place. The first page of such a write may reach
    /// the device while the write that replaced it does not.
    refused: Vec<(usize, State)>,
}

impl Model {
    pub(super) fn new() -> Model {
        Model { states: vec![State::default()], ..Model::default() }
    }

    /// Adds a keyspace that is about to be made; returns its index.
    pub(super) fn add_space(&mut self) -> usize {
        self.trees.push(TreeId { keyspace: KeyspaceId(0), partition: PartitionId(0) });
        self.contents.push(BTreeMap::new());
        assert!(self.trees.len() <= SPACES_COUNT_MAX, "a run makes few keyspaces");
        self.trees.len() - 1
    }

    /// Submits the next catalog change of the joint order: the keyspaces after it, and the new settings of
    /// one. Returns its place, counted from 1.
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

    /// Submits the next write of the commit order. Returns its place, counted from 1.
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

    /// Undoes the last writes, which did not get into the log: `count` are left.
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

    /// A process has found exactly the first `count` writes, with these keyspaces: they are durable, and the
    /// others are gone.
    pub(super) fn found(&mut self, count: usize, names: &Arc<Names>) {
        self.take_back(count);
        self.refused.clear();
        self.states.last_mut().expect("there is the empty one").names = Arc::clone(names);
        (self.known.acked, self.known.synced) = (count, count);
    }

    /// The state after the first `place` writes.
    pub(super) fn state(&self, place: usize) -> &State {
        &self.states[place]
    }

    /// Writes submitted to the log.
    pub(super) fn writes_count(&self) -> usize {
        self.replaced.len()
    }

    /// The one prefix of a length within `lengths` that was found, and its keyspaces.
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
