//! Sorted batches never take more than they are charged.

use super::*;
use crate::base::hash::HashSecret;
use crate::base::id::{ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::region::Region;
use crate::memtable::generation;

/// Inserts items in the order of their trees and keys.
fn fill(
    region_bytes: usize,
    size: &BatchSize,
    items: impl Iterator<Item = (u32, Vec<u8>, Vec<u8>)>,
) -> usize {
    let (generation, mut inserter) = generation(Region::heap(region_bytes).expect("small"));
    assert!(inserter.sorted_room(size), "a region made for a batch has room for it");
    let secret = HashSecret::expand([1; 16]);
    let mut sequence = 0;
    for (tree, key, value) in items {
        let tree = TreeId { keyspace: KeyspaceId(tree), partition: PartitionId(1) };
        sequence += 1;
        inserter.insert(tree, &key, secret.hash(&key), sequence, ItemKind::Put, &value);
    }
    assert_eq!(generation.items(), size.items as u64);
    assert!(!inserter.sorted_room(size), "it is not empty any more");
    generation.bytes_used()
}

/// A sorted batch never takes more than it is charged, for any keys, trees and versions; and the charge is
/// not far above the bytes taken.
#[test]
fn sorted_batches_take_no_more_than_their_charge() {
    let key = |shape: u32, number: u32| -> Vec<u8> {
        match shape {
            0 => number.to_be_bytes().to_vec(),
            // Heads are equal at every level, so that nodes are copied to skip more bytes.
            1 => [vec![7; 40], number.to_be_bytes().to_vec(), vec![9; 3]].concat(),
            2 => [vec![7; (number / 1000) as usize], number.to_be_bytes().to_vec()].concat(),
            // A few versions of each key.
            3 => (number / 3).to_be_bytes().to_vec(),
            _ => format!("{:08}/{:08}", number / 50, number % 50).into_bytes(),
        }
    };
    for shape in 0..5 {
        for (items, trees) in
            [(1u32, 1u32), (4, 1), (15, 1), (30, 2), (211, 1), (2000, 7), (30_000, 1), (30_000, 900)]
        {
            let per_tree = items.div_ceil(trees);
            let mut all: Vec<(u32, Vec<u8>, Vec<u8>)> = (0..items)
                .map(|one| (1 + one / per_tree, key(shape, one), vec![1; (one % 3) as usize]))
                .collect();
            all.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
            let key_value_bytes = all.iter().map(|(_, key, value)| key.len() + value.len()).sum();
            let size = BatchSize { items: items as usize, ranges: 0, key_value_bytes, trees: trees as usize };
            let region_bytes = region_bytes_for(sorted_batch_bytes(&size));
            let before = region_bytes - batch_bytes_max(region_bytes);
            let taken = fill(region_bytes, &size, all.into_iter()) - before;
            let charged = sorted_batch_bytes(&size);
            assert!(taken <= charged, "{taken} of {charged}: shape {shape}, {items} items, {trees} trees");
            if trees == 1 && items > 1000 {
                assert!(charged < 2 * taken, "{taken} of {charged}: shape {shape}");
            }
        }
    }
}

/// The smallest region for a number of bytes, to the page.
#[test]
fn regions_are_as_large_as_needed() {
    for bytes in [0, 1, 4000, 4096, 100_000, 10 << 20, 64 << 20] {
        let region_bytes = region_bytes_for(bytes);
        assert!(region_bytes.is_multiple_of(PAGE_BYTES) && batch_bytes_max(region_bytes) >= bytes);
        assert!(
            region_bytes <= 2 * PAGE_BYTES || batch_bytes_max(region_bytes - 2 * PAGE_BYTES) < bytes,
            "{bytes}"
        );
    }
}
