//! Large batches in memory: every item is present, as if inserted one by one.

use super::*;
use crate::base::id::{KeyspaceId, PartitionId, SEQUENCE_MAX};
use crate::base::region::Region;
use crate::base::step::Direction;
use crate::base::sync::Arc;
use crate::io::sim::SimRng;
use crate::memtable::{Generation, generation, region_bytes_for, sorted_batch_bytes};
use crate::write::batch::BatchItems;
use std::ops::Bound;

fn tree(number: u32) -> TreeId {
    TreeId { keyspace: KeyspaceId(number), partition: PartitionId(number) }
}

/// Puts, deletes and range deletes of few keys in two trees, some keys many times.
fn random_batch(seed: u64, count: usize) -> BatchItems {
    let (mut rng, mut items) = (SimRng::new(seed), BatchItems::default());
    for number in 0..count {
        let tree = tree(1 + rng.below(2) as u32);
        let key = format!("shared by all {:04}", rng.below(400)).into_bytes();
        let pushed = match rng.below(10) {
            0 => items.push(tree, ItemKind::Delete, &key, b""),
            1 if rng.one_in(8) => items.push(tree, ItemKind::DeleteRange, &key, &[&key[..], b"0"].concat()),
            _ => items.push(tree, ItemKind::Put, &key, &number.to_le_bytes()),
        };
        pushed.expect("small");
    }
    items
}

/// All items that a generation shows at a sequence bound.
fn contents(generation: &Arc<Generation>, bound: Sequence) -> Vec<(TreeId, Vec<u8>, Sequence, Vec<u8>)> {
    let mut found = Vec::new();
    for tree in [tree(1), tree(2)] {
        let mut position = generation.seek(tree, Bound::Unbounded, Direction::Forward, bound);
        while let Some(at) = position {
            let item = generation.item(at);
            let cover = generation.stretch(tree, item.key, bound).cover.unwrap_or(0);
            found.push((tree, item.key.to_vec(), item.sequence.max(cover), item.value.to_vec()));
            position = generation.step(tree, at, Direction::Forward, bound);
        }
    }
    found
}

/// A batch inserted in key order shows the same items at each of its sequences as one inserted in batch
/// order. It also fits where a batch in batch order does not.
#[test]
fn sorted_batches_say_the_same() {
    let secret = HashSecret::expand([1; 16]);
    for seed in 0..20 {
        let batch = random_batch(seed, 40 + 100 * seed as usize);
        let items = Items::encoded(batch.payload(), batch.count() as u64);
        let size = batch_size(&items);
        assert_eq!(size, batch.size());
        let (plain, mut inserter) = generation(Region::heap(2 << 20).expect("small"));
        insert(&mut inserter, &secret, items.clone(), 11, |_, _| Ok(true)).expect("all are kept");
        let region = Region::heap(region_bytes_for(sorted_batch_bytes(&size))).expect("small");
        let (sorted, mut inserter) = generation(region);
        assert!(!inserter.room(size.items, size.key_value_bytes) && inserter.sorted_room(&size));
        insert(&mut inserter, &secret, items, 11, |_, _| Ok(true)).expect("all are kept");
        for bound in (11..11 + size.items as u64).step_by(37).chain([SEQUENCE_MAX]) {
            assert_eq!(contents(&plain, bound), contents(&sorted, bound), "seed {seed}, as of {bound}");
        }
    }
}
