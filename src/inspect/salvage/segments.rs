//! Tables whose end is damaged: which slice a block of items is of.
//!
//! Blocks do not say it. They are taken together to segments: runs of good blocks with ascending keys and
//! nothing between them. A segment is surely a slice's if it has exactly what the manifest says
//! of that slice, or if no other slice can lie between its neighbours; otherwise nobody knows, and nothing is
//! guessed.
//!
//! Slices lie in the file in the order of their index. Those that the manifest does not name any more were
//! removed, and there may have been such behind the last.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::base::hash::HashSecret;
use crate::base::id::{FileName, ItemKind};
use crate::format::manifest::Slice;
use crate::format::table::footer::Span;
use crate::io::storage::Storage;
use crate::table::{Good, good_extents};

/// Good blocks that lie together.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Segment {
    /// To the next segment, or to the end of the file.
    pub(super) span: Span,
    items: u64,
    tombstones: u64,
    key_value_bytes: u64,
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
    /// Of a hashed keyspace: its blocks leave places out.
    pub(super) is_hashed: bool,
    /// Its keys have no place: the secret of the hash is lost.
    pub(super) is_unordered: bool,
}

/// Of which slice a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// By its index. `has_ranges`: range tombstones behind it are of it too.
    Slice {
        index: u32,
        has_ranges: bool,
    },
    /// One that the manifest does not name any more.
    Removed,
    Unknown,
}

/// The segments of a table file, in order. `secret`: of the store that the file is of, if it is known.
///
/// # Errors
/// As the storage, but for bytes that cannot be read.
pub(super) fn segments(
    storage: &dyn Storage,
    (file, uid): (FileName, u64),
    span: Span,
    secret: Option<&HashSecret>,
) -> Result<Vec<Segment>> {
    let mut segments: Vec<Segment> = Vec::new();
    // Where the last block ended.
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

/// Whose the segments are. `slices`: those that the manifest names, by index.
pub(super) fn owners(segments: &[Segment], slices: &BTreeMap<u32, Slice>) -> Vec<Owner> {
    let matched = matches(segments, slices);
    // The least index that an unmatched segment may have, and the least that it may not.
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
            // Behind it comes the next slice, or nothing that is named.
            *has_ranges = match next {
                Some(Owner::Slice { index: next, .. }) => index.checked_add(1) == Some(next),
                Some(_) => false,
                None => last == Some(*index),
            };
        }
    }
    owners
}

/// Segments that have exactly what the manifest says of one slice, with its index.
fn matches(segments: &[Segment], slices: &BTreeMap<u32, Slice>) -> Vec<Option<u32>> {
    let fits = |segment: &Segment, slice: &Slice| {
        (segment.items, segment.tombstones, segment.key_value_bytes)
            == (slice.items, slice.tombstones, slice.key_value_bytes)
            && *slice.min_key <= *segment.first
            && slice.max_key.as_ref().is_none_or(|max| *segment.last <= **max)
    };
    // Each slice in the first place that it can have, and in the last.
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
    // Some have no place: only what fits nothing else is sure.
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
