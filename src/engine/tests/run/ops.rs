//! The writes of a run: each batch is random, with the parameters of the mix.

use crate::base::id::ItemKind;
use crate::base::place::stored_key;
use crate::write::batch::{BatchItems, Keyspaces};
use crate::write::commit::{Commit, CommitOp};
use crate::write::large::LargeRoom;
use crate::write::writer::{Seals, Until};

use super::super::super::budget::BatchRoom;
use super::super::model::{Write, fingerprint};
use super::{Next, Run, Writer};

/// The operation of a writer.
pub(super) struct Op {
    pub(super) items: BatchItems,
    pub(super) writes: Vec<Write>,
    pub(super) keyspaces: Keyspaces,
    pub(super) until: Until,
    pub(super) seals: Seals,
    /// Its place in the commit order, once it was submitted to the log.
    pub(super) place: Option<usize>,
    /// For a batch that needs a write buffer of its own.
    pub(super) room: Option<LargeRoom>,
    /// For a sync: the number of writes acknowledged before it began.
    pub(super) covers: usize,
}

impl Op {
    pub(super) fn commit_op(&self) -> CommitOp<'_> {
        CommitOp {
            frees: self.items.frees(),
            queues: None,
            payload: self.items.payload(),
            shared: None,
            items: self.items.count(),
            key_value_bytes: self.items.key_value_bytes(),
            keyspaces: &self.keyspaces,
            until: self.until,
            seals: self.seals,
            room: self.room.as_ref(),
        }
    }
}

impl<'s> Run<'s> {
    fn empty_op(&self, until: Until) -> Op {
        let covers = self.past.model.known.acked;
        let (items, writes, keyspaces) = (BatchItems::default(), Vec::new(), Keyspaces::default());
        Op { items, writes, keyspaces, until, seals: Seals::No, place: None, room: None, covers }
    }

    pub(super) fn make_op(&mut self) -> Option<Op> {
        let is_synced = self.past.rng.below(10) < self.past.mix.synced_tenths;
        let mut op = self.empty_op(if is_synced { Until::Synced } else { Until::Written });
        match self.past.rng.below(60) {
            0 => return Some(Op { until: Until::Synced, ..op }),
            1 => return Some(Op { seals: Seals::Yes, ..op }),
            _ => {}
        }
        let spaces: Vec<usize> = self.past.names.values().copied().collect();
        if spaces.is_empty() {
            return None;
        }
        let is_large = self.past.rng.one_in(3);
        let count = if is_large { 2 + self.past.rng.below(self.past.mix.items_max - 1) } else { 1 };
        for index in 0..count {
            let space = spaces[self.past.rng.index(spaces.len())];
            self.add_item(&mut op, space, index);
        }
        self.past.op_next += 1;
        match self.store.check_batch(&op.items).ok()? {
            BatchRoom::AnyGeneration => {}
            BatchRoom::OwnGeneration { region_bytes } => {
                let grant = self.store.grant_large_room(&op.items, region_bytes)?;
                op.room =
                    Some(self.store.large_room(&op.items, region_bytes, grant).expect("there is memory"));
            }
        }
        Some(op)
    }

    fn random_key(&mut self) -> Vec<u8> {
        format!("{:03}", self.past.rng.below(self.past.mix.keys_count)).into_bytes()
    }

    fn add_item(&mut self, op: &mut Op, space: usize, index: u64) {
        let mix = self.past.mix;
        // Every batch has a value of its own, so that it differs from all others.
        let drawn = self.past.rng.below(6);
        let kind = match drawn {
            _ if index == 0 => ItemKind::Put,
            drawn if drawn < mix.ranges => ItemKind::DeleteRange,
            drawn if drawn < mix.ranges + mix.deletes => ItemKind::Delete,
            _ => ItemKind::Put,
        };
        let mut key = self.random_key();
        let mut value = Vec::new();
        match kind {
            ItemKind::Put => value = self.value(index as u8),
            ItemKind::DeleteRange => (key, value) = self.range(key),
            ItemKind::Delete => {}
        }
        self.push(op, space, kind, key, value);
    }

    fn push(&self, op: &mut Op, space: usize, kind: ItemKind, key: Vec<u8>, value: Vec<u8>) {
        let tree = self.past.model.trees[space];
        let (key, value) = match kind {
            // A hashed keyspace deletes one key or all of them.
            ItemKind::DeleteRange if tree.keyspace.is_hashed() => (Vec::new(), Vec::new()),
            ItemKind::DeleteRange => (key, value),
            ItemKind::Put | ItemKind::Delete => {
                (stored_key(self.store.hash_secret(), tree.keyspace, &key).to_vec(), value)
            }
        };
        op.items.push(tree, kind, &key, &value).expect("within all limits");
        op.keyspaces.add(self.store.keyspace_of(tree).expect("it is there"));
        let fingerprint = if kind == ItemKind::Put { fingerprint(&key, &value) } else { 0 };
        let range_end = (kind == ItemKind::DeleteRange).then_some(value);
        op.writes.push(Write { space, key, fingerprint, range_end });
    }

    /// A value that is unique to this batch.
    pub(super) fn value(&mut self, fill: u8) -> Vec<u8> {
        let (mix, rng) = (self.past.mix, &mut self.past.rng);
        let is_large = mix.large_one_in > 0 && rng.one_in(mix.large_one_in);
        let bytes = if is_large { mix.large_bytes } else { rng.index(mix.value_bytes) };
        let mut value = self.past.op_next.to_le_bytes().to_vec();
        value.resize(8 + bytes, fill);
        value
    }

    /// Start and end of a range that begins at `key` or covers it.
    fn range(&mut self, key: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        let mut end = match self.past.rng.below(8) {
            0 => Vec::new(),
            1 => [&key[..], b"\0"].concat(),
            _ => [&key[..], b"/", &self.random_key()].concat(),
        };
        if self.past.rng.one_in(3) {
            end = format!("{:03}", 1 + self.past.rng.below(self.past.mix.keys_count)).into_bytes();
            end = end.max([&key[..], b"\0"].concat());
        }
        // Some ranges cover the whole keyspace.
        if self.past.rng.one_in(8) { (Vec::new(), Vec::new()) } else { (key, end) }
    }

    /// Clears a keyspace or syncs, and waits for it, with all writers at rest.
    pub(super) fn write_now(&mut self, cleared: Option<usize>, until: Until) {
        self.finish();
        let mut op = self.empty_op(until);
        if let Some(space) = cleared {
            self.push(&mut op, space, ItemKind::DeleteRange, Vec::new(), Vec::new());
        }
        let (commit, step) = Commit::start(&op.commit_op(), &self.store.writer);
        self.writers[0] = Some(Writer { op, commit, next: Next::Step(step) });
        self.finish();
    }
}
