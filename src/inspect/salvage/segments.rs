//! Tables whose end is damaged: the assignment of their blocks of items to slices.
//!
//! Blocks do not name their slice. They are grouped into segments: adjacent intact blocks with ascending
//! keys. A segment certainly belongs to a slice if its counts equal the manifest's for that slice, or if no
//! other slice can lie between its neighbours. Otherwise its owner is unknown; nothing is guessed.
//!
//! Slices are stored in the file in the order of their index. Slices that the manifest no longer names were
//! removed; removed slices may also follow the last named one.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, ItemKind};
use crate::format::manifest::Slice;
use crate::format::table::footer::Span;
use crate::io::storage::Storage;
use crate::table::{Good, good_extents};

/// A group of adjacent intact blocks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Segment {
    /// The bytes up to the next segment, or to the end of the file.
    pub(super) span: Span,
    items: u64,
    tombstones: u64,
    key_value_bytes: u64,
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
    /// The segment is of a hashed keyspace: its blocks omit places.
    pub(super) is_hashed: bool,
    /// The keys have no place, because the secret of the hash is lost.
    pub(super) is_unordered: bool,
}

/// The slice that a segment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The slice with this index. `has_ranges`: the range tombstones behind the segment belong to the slice
    /// too.
    Slice {
        index: u32,
        has_ranges: bool,
    },
    /// A slice that the manifest no longer names.
    Removed,
    Unknown,
}

/// The segments of a table file, in order. `secret`: the hash secret of the file's store, if known.
///
/// # Errors
/// As the storage; unreadable bytes are no error.
pub(super) fn segments(
    storage: &dyn Storage,
    (file, uid): (FileName, u64),
    span: Span,
    secret: Option<&HashSecret>,
) -> Result<Vec<Segment>> {
    let mut segments: Vec<Segment> = Vec::new();
    // End of the last block.
    let mut end = 0;
    good_extents(storage, (file, uid, span), secret, &mut |place, good| {
        let Good::Items(items) = good else { return Ok(()) };
        let (first, last) = (items.item(0).0, items.item(items.count() - 1).0);
        let (is_hashed, is_unordered) = (items.leaves_places_out(), items.is_unordered());
        let is_next = |segment: &Segment| {
            place.offset == end && segment.is_hashed == is_hashed && (first > segment.last || is_unordered)
        };
        if !segments.last().is_some_and(is_next) {
            let bytes = span.end() - place.offset;
            if let Some(before) = segments.last_mut() {
                before.span.bytes = place.offset - before.span.offset;
            }
            let span = Span { bytes, ..place };
            segments.push(Segment { span, first, is_hashed, is_unordered, ..Segment::default() });
        }
        end = place.end();
        let segment = segments.last_mut().expect("one was pushed");
        segment.last = last;
        for index in 0..items.count() {
            let (key, kind, value) = items.item(index);
            segment.items += 1;
            segment.tombstones += u64::from(kind == ItemKind::Delete);
            segment.key_value_bytes += (key.len() + value.len()) as u64;
        }
        Ok(())
    })?;
    Ok(segments)
}

/// The owner of each segment. `slices`: the slices that the manifest names, by index.
pub(super) fn owners(segments: &[Segment], slices: &BTreeMap<u32, Slice>) -> Vec<Owner> {
    let matched = matches(segments, slices);
    // The possible indexes of an unmatched segment: from `starts`, below `ends`.
    let starts = matched.iter().scan(0, |start, index| {
        let before = *start;
        *start = index.map_or(before, |index| index.saturating_add(1));
        Some(before)
    });
    let mut ends: Vec<u32> = matched
        .iter()
        .rev()
        .scan(u32::MAX, |end, index| {
            let behind = *end;
            *end = index.unwrap_or(behind);
            Some(behind)
        })
        .collect();
    ends.reverse();
    let owner = |((index, start), end): ((&Option<u32>, u32), u32)| {
        if let Some(index) = *index {
            return Owner::Slice { index, has_ranges: false };
        }
        let between = start..end.max(start);
        let mut named = slices.range(between.clone());
        match (named.next(), named.next()) {
            (None, _) if !slices.is_empty() => Owner::Removed,
            (Some((index, _)), None) if between.len() == 1 => {
                Owner::Slice { index: *index, has_ranges: false }
            }
            _ => Owner::Unknown,
        }
    };
    let mut owners: Vec<Owner> = matched.iter().zip(starts).zip(ends).map(owner).collect();
    let last = slices.keys().next_back().copied();
    for at in 0..owners.len() {
        let next = owners.get(at + 1).copied();
        if let Owner::Slice { index, has_ranges } = &mut owners[at] {
            // The next segment is of the next slice, or no named slice follows.
            *has_ranges = match next {
                Some(Owner::Slice { index: next, .. }) => index.checked_add(1) == Some(next),
                Some(_) => false,
                None => last == Some(*index),
            };
        }
    }
    owners
}

/// For each segment, the index of the slice whose counts in the manifest it matches exactly, if there is one.
fn matches(segments: &[Segment], slices: &BTreeMap<u32, Slice>) -> Vec<Option<u32>> {
    let fits = |segment: &Segment, slice: &Slice| {
        (segment.items, segment.tombstones, segment.key_value_bytes)
            == (slice.items, slice.tombstones, slice.key_value_bytes)
            && *slice.min_key <= *segment.first
            && slice.max_key.as_ref().is_none_or(|max| *segment.last <= **max)
    };
    // The first and the last segment that each slice can be.
    let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
    let mut from = 0;
    for slice in slices.values() {
        let found = (from..segments.len()).find(|at| fits(&segments[*at], slice));
        firsts.push(found);
        from = found.map_or(segments.len(), |at| at + 1);
    }
    let mut to = segments.len();
    for slice in slices.values().rev() {
        let found = (0..to).rev().find(|at| fits(&segments[*at], slice));
        lasts.push(found);
        to = found.unwrap_or(0);
    }
    lasts.reverse();
    let mut matched = vec![None; segments.len()];
    if firsts == lasts && firsts.iter().all(Option::is_some) {
        for (at, index) in firsts.into_iter().flatten().zip(slices.keys()) {
            matched[at] = Some(*index);
        }
        return matched;
    }
    // Some slices have no segment: only one-to-one matches are certain.
    let mut counts = BTreeMap::<u32, usize>::new();
    for (at, segment) in segments.iter().enumerate() {
        let fitting: Vec<u32> =
            slices.iter().filter(|(_, slice)| fits(segment, slice)).map(|(index, _)| *index).collect();
        fitting.iter().for_each(|index| *counts.entry(*index).or_default() += 1);
        matched[at] = if let [index] = fitting[..] { Some(index) } else { None };
    }
    for index in &mut matched {
        *index = index.filter(|index| counts.get(index) == Some(&1));
    }
    let known: Vec<u32> = matched.iter().flatten().copied().collect();
    if known.is_sorted() { matched } else { vec![None; segments.len()] }
}

#[cfg(test)]
mod tests;
