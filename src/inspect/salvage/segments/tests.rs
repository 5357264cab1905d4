//! Owners of segments, for hand-written tables.

use super::*;
use crate::base::id::{KeyspaceId, PartitionId};

fn segment(items: u64, first: &str, last: &str) -> Segment {
    let (first, last) = (first.as_bytes().to_vec(), last.as_bytes().to_vec());
    Segment { items, key_value_bytes: 10 * items, first, last, ..Segment::default() }
}

fn slice(items: u64, min: &str, max: &str) -> Slice {
    Slice {
        keyspace: KeyspaceId(1),
        partition: PartitionId(1),
        level: 0,
        run: 0,
        items,
        tombstones: 0,
        oldest_tombstone_s: 0,
        tombstones_dense: 0,
        key_value_bytes: 10 * items,
        first_sequence: 1,
        last_sequence: 1,
        min_key: min.as_bytes().into(),
        max_key: Some(max.as_bytes().into()),
    }
}

fn owners_of(segments: &[Segment], slices: &[(u32, Slice)]) -> Vec<Owner> {
    owners(segments, &slices.iter().cloned().collect())
}

fn sure(index: u32, has_ranges: bool) -> Owner {
    Owner::Slice { index, has_ranges }
}

/// A segment with the manifest's counts belongs to that slice. Segments beside it belong to removed slices.
#[test]
fn whole_slices_are_known_by_their_counts() {
    let all = [segment(3, "a", "c"), segment(5, "a", "e"), segment(7, "b", "z")];
    let named = [(1, slice(5, "a", "e")), (2, slice(7, "a", "zz"))];
    assert_eq!(owners_of(&all, &named), [Owner::Removed, sure(1, true), sure(2, true)]);
    assert_eq!(owners_of(&all, &named[..1]), [Owner::Removed, sure(1, false), Owner::Removed]);
    let first = [(0, slice(3, "a", "c"))];
    assert_eq!(owners_of(&all, &first), [sure(0, false), Owner::Removed, Owner::Removed]);
}

/// A segment that lacks items is identified only by its neighbours.
#[test]
fn parts_of_slices_are_known_by_their_neighbours() {
    let named = [(0, slice(3, "a", "c")), (1, slice(5, "a", "e")), (2, slice(7, "a", "z"))];
    let middle = [segment(3, "a", "c"), segment(1, "a", "a"), segment(2, "c", "d"), segment(7, "b", "z")];
    assert_eq!(owners_of(&middle, &named), [sure(0, true), sure(1, false), sure(1, true), sure(2, true)]);
    let last = [segment(3, "a", "c"), segment(5, "a", "e"), segment(6, "b", "z")];
    assert_eq!(owners_of(&last, &named), [sure(0, true), sure(1, false), Owner::Unknown]);
    let two = [segment(3, "a", "c"), segment(4, "a", "e"), segment(6, "b", "z")];
    assert_eq!(owners_of(&two, &named), [sure(0, false), Owner::Unknown, Owner::Unknown]);
}

/// Slices with equal counts cannot be distinguished, unless all are there. Segments of a table that the
/// manifest does not name have no known owner.
#[test]
fn segments_of_two_possible_slices_have_no_owner() {
    let alike = [(0, slice(3, "a", "c")), (1, slice(3, "a", "c"))];
    let one = segment(3, "a", "c");
    assert_eq!(owners_of(std::slice::from_ref(&one), &alike), [Owner::Unknown]);
    assert_eq!(owners_of(&[one.clone(), one.clone()], &alike), [sure(0, true), sure(1, true)]);
    let three = [one.clone(), one.clone(), one.clone()];
    assert_eq!(owners_of(&three, &alike), [Owner::Unknown; 3]);
    assert_eq!(owners_of(&three, &[]), [Owner::Unknown; 3]);
    let outside = [(0, slice(3, "b", "c"))];
    assert_eq!(owners_of(&[one], &outside), [Owner::Unknown]);
}
