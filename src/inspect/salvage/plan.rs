//! The plan of a salvage: the target keyspace of each part of the old store's tables, and the order of
//! copying.
//!
//! A keyspace of the old store gets, under its own name, the items that the manifest names. If the manifest
//! cannot be the newest for this keyspace, all its items are doubtful and go to separate keyspaces. Items
//! that the manifest does not name, and blocks without a known owner, go to separate keyspaces too.
//!
//! The manifest cannot be the newest for a keyspace if
//! 1. it is damaged or shown to be outdated, and either there are tables of the keyspace that it does not
//!    name, or it names tables that are missing; or
//! 2. both hold, unnamed and missing tables: merges make new tables and remove old ones.
//!
//! Tables that the manifest does not name may be leftovers of a process that ended. They alone do not make a
//! complete manifest doubtful.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Result;
use crate::base::id::{KeyspaceId, Sequence, TreeId};
use crate::format::header::PAGE_BYTES;
use crate::format::manifest::{Slice, Table};
use crate::format::table::footer::{SliceEntry, Span};
use crate::io::storage::Storage;
use crate::table::{TableIdentity, is_hole, slice_entries};

use super::layers::LayerMap;
use super::segments::{Owner, Segment, owners, segments};
use super::survey::{Known, Survey, SurveyedFile};

/// Maximum number of segments of unknown owner, in one table, that each get a separate keyspace. If there are
/// more, consecutive segments with ascending keys share one.
const SEGMENTS_COUNT_MAX: usize = 16;

/// The target of items in the new store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Dest {
    /// The keyspace, or partition, of their own name.
    Own(TreeId),
    /// A separate keyspace, for items of named tables.
    Named(TreeId),
    /// A separate keyspace, for items of unnamed tables, by layer.
    Unnamed(TreeId, u32),
    /// A separate keyspace, for items of logs.
    Log(TreeId),
    /// A separate keyspace, for blocks that may be of any keyspace, by number of the file and segment.
    /// `is_hashed`: the blocks are of a hashed keyspace.
    Segment { file: u64, number: u32, is_hashed: bool },
}

impl Dest {
    /// The source keyspace of the items, if it is known.
    pub(super) fn keyspace(self) -> Option<KeyspaceId> {
        match self {
            Dest::Own(id) | Dest::Named(id) | Dest::Unnamed(id, _) | Dest::Log(id) => Some(id.keyspace),
            Dest::Segment { .. } => None,
        }
    }

    /// Whether the items are of a hashed keyspace.
    pub(super) fn is_hashed(self) -> bool {
        match self {
            Dest::Segment { is_hashed, .. } => is_hashed,
            _ => self.keyspace().is_some_and(KeyspaceId::is_hashed),
        }
    }
}

/// The range tombstones to copy with a part of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CopyRanges {
    None,
    All(Span),
    /// Range tombstones within these keys; without a last key, all from the first on.
    Within(Span, Box<[u8]>, Option<Box<[u8]>>),
}

/// A part of a table to copy.
#[derive(Clone, Debug)]
pub(super) struct CopyJob {
    pub(super) dest: Dest,
    pub(super) held: SurveyedFile,
    pub(super) span: Span,
    pub(super) ranges: CopyRanges,
}

impl CopyJob {
    /// Whether deletes are copied too. In the other targets each item has another key, so deletes would hide
    /// nothing.
    pub(super) fn has_deletes(&self) -> bool {
        matches!(self.dest, Dest::Own(_) | Dest::Named(_))
    }
}

/// The complete plan.
#[derive(Default)]
pub(super) struct SalvagePlan {
    /// The parts to copy, in order.
    pub(super) jobs: Vec<CopyJob>,
    /// Trees for which the manifest cannot be the newest.
    pub(super) stale: BTreeSet<TreeId>,
    /// Number of items in each tree's tables, according to the manifest.
    pub(super) expected: BTreeMap<TreeId, u64>,
}

/// Sort key of slices: the oldest of a tree comes first.
type Age = (TreeId, Reverse<u8>, u64, Sequence);

fn age(slice: &Slice) -> Age {
    let tree = tree_of(slice);
    (tree, Reverse(slice.level), slice.run, slice.first_sequence)
}

/// The state of planning.
struct Planner<'p> {
    storage: &'p dyn Storage,
    survey: &'p Survey,
    named: Vec<(Age, CopyJob)>,
    /// Slices that the manifest does not name, in the order of their files.
    unnamed: Vec<(SurveyedFile, SliceEntry)>,
    segments: Vec<CopyJob>,
    plan: SalvagePlan,
}

/// # Errors
/// As the storage; damage is none.
pub(super) fn plan(storage: &dyn Storage, survey: &Survey) -> Result<SalvagePlan> {
    let (named, unnamed, segments, plan) = (Vec::new(), Vec::new(), Vec::new(), SalvagePlan::default());
    let mut planner = Planner { storage, survey, named, unnamed, segments, plan };
    for held in &survey.other_tables {
        planner.other(*held)?;
    }
    let has_segments = !planner.segments.is_empty();
    for (number, table) in &survey.known.state.tables {
        for slice in table.slices.values() {
            *planner.plan.expected.entry(tree_of(slice)).or_default() += slice.items;
        }
        if let Some(held) = survey.tables.get(number) {
            planner.table(*held, *number, table)?;
        }
    }
    planner.plan.stale = stale(survey, &planner.unnamed, has_segments);
    Ok(planner.finish())
}

impl Planner<'_> {
    fn identity(&self, held: SurveyedFile) -> TableIdentity {
        TableIdentity { file: held.file, uid: held.uid, store_id: self.survey.known.store_id }
    }

    /// A table that the manifest does not name.
    fn other(&mut self, held: SurveyedFile) -> Result<()> {
        match slice_entries(self.storage, self.identity(held), held.bytes) {
            Ok(entries) => {
                for entry in entries {
                    let is_dropped = self.survey.known.is_dropped(entry.tree);
                    if !is_dropped && !is_hole(self.storage, held.file, &entry).unwrap_or(false) {
                        self.unnamed.push((held, entry));
                    }
                }
                Ok(())
            }
            Err(_) => self.segments_of(held, &BTreeMap::new()),
        }
    }

    /// A table that the manifest names.
    fn table(&mut self, held: SurveyedFile, number: u64, table: &Table) -> Result<()> {
        let unplaced = self.survey.known.unplaced.range((number, 0)..=(number, u32::MAX));
        let unplaced = unplaced.map(|((_, index), slice)| (*index, slice.clone()));
        let slices: BTreeMap<u32, Slice> = table.slices.clone().into_iter().chain(unplaced).collect();
        let Ok(entries) = slice_entries(self.storage, self.identity(held), held.bytes) else {
            return self.segments_of(held, &slices);
        };
        for (index, slice) in &slices {
            let Some(entry) = entries.get(*index as usize) else { continue };
            let tree = tree_of(slice);
            if entry.tree != tree {
                self.unnamed.push((held, entry.clone()));
                continue;
            }
            let ranges =
                if entry.ranges.bytes > 0 { CopyRanges::All(entry.ranges) } else { CopyRanges::None };
            self.named.push((age(slice), CopyJob { dest: self.dest(slice), held, span: entry.data, ranges }));
        }
        Ok(())
    }

    fn dest(&self, slice: &Slice) -> Dest {
        let tree = tree_of(slice);
        match self.survey.known.state.has_tree(tree) {
            true => Dest::Own(tree),
            false => Dest::Named(tree),
        }
    }

    /// A table whose footer cannot be read.
    fn segments_of(&mut self, held: SurveyedFile, slices: &BTreeMap<u32, Slice>) -> Result<()> {
        let page = PAGE_BYTES as u64;
        let span = Span { offset: page, bytes: held.bytes.saturating_sub(page) };
        let secret = self.survey.secret();
        let found = segments(self.storage, (held.file, held.uid), span, secret.as_ref())?;
        let owners = owners(&found, slices);
        let unknown = owners.iter().filter(|owner| **owner == Owner::Unknown).count();
        let (mut number, mut last) = (0, None::<&Segment>);
        for (segment, owner) in found.iter().zip(owners) {
            let span = segment.span;
            match owner {
                Owner::Removed => {}
                Owner::Unknown => {
                    // An unordered segment may hold other versions of the same keys.
                    let is_behind = last.is_some_and(|last| {
                        segment.is_hashed == last.is_hashed
                            && !segment.is_unordered
                            && segment.first > last.last
                    });
                    number += u32::from(!is_behind || unknown <= SEGMENTS_COUNT_MAX);
                    last = Some(segment);
                    let (file, is_hashed) = (held.file.number, segment.is_hashed);
                    let dest = Dest::Segment { file, number, is_hashed };
                    self.segments.push(CopyJob { dest, held, span, ranges: CopyRanges::None });
                }
                Owner::Slice { index, has_ranges } => {
                    let Some(slice) = slices.get(&index) else { continue };
                    let within = || CopyRanges::Within(span, slice.min_key.clone(), slice.max_key.clone());
                    let ranges = if has_ranges { within() } else { CopyRanges::None };
                    self.named.push((age(slice), CopyJob { dest: self.dest(slice), held, span, ranges }));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> SalvagePlan {
        self.named.sort_by_key(|(age, _)| *age);
        for (_, mut job) in self.named {
            if let Dest::Own(id) = job.dest
                && self.plan.stale.contains(&id)
            {
                job.dest = Dest::Named(id);
            }
            self.plan.jobs.push(job);
        }
        let mut layers = BTreeMap::<TreeId, LayerMap>::new();
        for (held, entry) in self.unnamed {
            let id = entry.tree;
            let layer = layers.entry(id).or_default().place(&entry.min, &entry.max);
            let (dest, span) = (Dest::Unnamed(id, layer), entry.data);
            self.plan.jobs.push(CopyJob { dest, held, span, ranges: CopyRanges::None });
        }
        self.plan.jobs.extend(self.segments);
        self.plan
    }
}

fn tree_of(slice: &Slice) -> TreeId {
    TreeId { keyspace: slice.keyspace, partition: slice.partition }
}

/// Trees for which the manifest cannot be the newest. `has_segments`: there are unnamed tables that may
/// belong to any keyspace.
fn stale(survey: &Survey, unnamed: &[(SurveyedFile, SliceEntry)], has_segments: bool) -> BTreeSet<TreeId> {
    let Survey { known, missing, .. } = survey;
    let Known { state, is_whole, is_older, .. } = known;
    let unnamed: BTreeSet<TreeId> = unnamed.iter().map(|(_, entry)| entry.tree).collect();
    let is_new = |id: &TreeId| id.keyspace.number() >= state.next_keyspace;
    let is_doubtful = !is_whole || *is_older || unnamed.iter().any(is_new);
    let is_stale = |id: &TreeId| {
        let (has_others, has_lost) = (unnamed.contains(id), missing.contains(id));
        has_others && has_lost || is_doubtful && (has_others || has_lost || has_segments)
    };
    state.trees().filter(is_stale).collect()
}
