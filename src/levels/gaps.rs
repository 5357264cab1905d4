//! Gaps are key ranges without live items (cached empty ranges, hints to skip tombstones). A scan that finds
//! such a range records it, and later scans skip the deleted items in it.
//!
//! A gap is only a hint: in memory, bounded, and forgotten if it is not used for one generation. This module
//! reads no item; scans report empty ranges, and commits report their puts.
//!
//! A scan finds a range empty at its own bound, while commits put items that the scan does not see. So a
//! range is first watched: from a sequence number on, every put in the range splits it. A later scan that
//! finds the range empty with a bound at or after that number makes it a gap. While no commit is under way,
//! the first scan makes the gap at once.
//!
//! A delete at an end of a gap extends the gap: no item lives there for readers that see the delete.
//!
//! Invariants:
//! 1. Every put with a sequence number above `since` is cut out of a stretch before the put is visible. A
//!    commit stores its last number, then checks for stretches; a scan announces stretches, then reads the
//!    number.
//! 2. A gap has no live item for a reader that looks into the gaps after it read its bound, if the bound
//!    is at or after `since`. The reader's view has every write within the bound, because it was still
//!    current after the bound was read (`view`, 4).
//! 3. Ingests put items without a number: gaps are closed while an ingest is published, no older gap
//!    survives it, and readers with an older view neither learn nor use gaps.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::id::{Sequence, TreeId};
use crate::base::step::Direction;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

/// Memory of a stretch beside its keys.
const STRETCH_BYTES: usize = 128;
/// The most bytes of a part's stretches. Beyond it, stretches not used lately are dropped; if that is not
/// enough, all are.
const BYTES_MAX: usize = 32 << 10;
/// Trees are split into parts by keyspace, so that scans of different keyspaces seldom wait for each other.
const PARTS_COUNT: usize = 8;

/// The value of the era while gaps are closed.
const CLOSED: u64 = u64::MAX;

/// A reader's tree, bound and era. They decide which gaps it may use and learn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sight {
    pub(crate) tree: TreeId,
    pub(crate) bound: Sequence,
    /// The value of [`Gaps::era`] before the view was loaded.
    pub(crate) era: u64,
}

/// The exclusive end of a stretch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GapEnd {
    Before(Vec<u8>),
    /// The end of the tree.
    OfTree,
}

/// A key range from `from`, included, to an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeySpan {
    pub(crate) from: Vec<u8>,
    pub(crate) to: GapEnd,
}

impl KeySpan {
    fn is_empty(&self) -> bool {
        matches!(&self.to, GapEnd::Before(to) if *to <= self.from)
    }
}

/// The least key above `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The gaps of a store.
#[derive(Debug)]
pub(crate) struct Gaps {
    era: Era,
    given: Given,
    parts: [GapShard; PARTS_COUNT],
}

/// Changes with every ingest.
#[derive(Debug)]
#[repr(align(128))]
struct Era {
    now: AtomicU64,
    ingests: Mutex<Ingests>,
}

#[derive(Debug, Default)]
struct Ingests {
    /// Ingests that are being published.
    count: usize,
    next_era: u64,
}

/// The stretches of some of the trees.
#[derive(Debug, Default)]
#[repr(align(128))]
struct GapShard {
    /// Whether there is any stretch. Every scan and every commit reads this; it seldom changes.
    is_any: AtomicBool,
    all: Mutex<All>,
}

/// The last sequence number of the commits that have begun to insert.
#[derive(Debug)]
#[repr(align(128))]
struct Given(AtomicU64);

#[derive(Debug, Default)]
struct All {
    /// By tree, then by first key.
    trees: BTreeMap<TreeId, BTreeMap<Vec<u8>, Stretch>>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Stretch {
    to: GapEnd,
    since: Sequence,
    /// Whether the stretch is a gap, without live items; otherwise it is watched.
    is_gap: bool,
    is_used: bool,
}

impl Gaps {
    pub(crate) fn new() -> Gaps {
        Gaps {
            era: Era { now: AtomicU64::new(0), ingests: Mutex::new(Ingests::default()) },
            given: Given(AtomicU64::new(0)),
            parts: Default::default(),
        }
    }

    /// The era; a reader reads it before it loads a view.
    pub(crate) fn era(&self) -> u64 {
        self.era.now.load(Ordering::Acquire)
    }

    fn part(&self, tree: TreeId) -> &GapShard {
        &self.parts[tree.keyspace.0 as usize % PARTS_COUNT]
    }

    /// Whether there may be gaps to skip.
    #[inline]
    pub(crate) fn is_any(&self, tree: TreeId) -> bool {
        self.part(tree).is_any.load(Ordering::Relaxed)
    }

    /// Notes that a commit is about to insert items up to `last`.
    pub(crate) fn begin(&self, last: Sequence) {
        self.given.0.store(last, Ordering::SeqCst);
    }

    /// Cuts the key of an item out of its stretch. The commit has begun and is about to put the item.
    #[inline]
    pub(crate) fn cut(&self, tree: TreeId, key: &[u8]) {
        let part = self.part(tree);
        if part.is_any.load(Ordering::SeqCst) {
            let mut all = part.all.lock();
            all.cut(tree, key);
            part.trim(&mut all);
        }
    }

    /// Extends a gap over a key that is about to be deleted by a commit that has begun. So a consumer that
    /// takes items from one end finds the next item at once.
    #[inline]
    pub(crate) fn grow(&self, tree: TreeId, key: &[u8], sequence: Sequence) {
        let part = self.part(tree);
        if part.is_any.load(Ordering::Relaxed) {
            part.all.lock().grow(tree, key, sequence);
        }
    }

    /// The bound from which a scan that is to begin at `from` may continue. `Some(None)` if no live key is
    /// left; `None` if no gap is known there.
    pub(crate) fn beyond(
        &self,
        sight: Sight,
        from: Bound<&[u8]>,
        direction: Direction,
    ) -> Option<Option<Bound<Vec<u8>>>> {
        let mut all = self.lock(sight)?;
        match direction {
            Direction::Forward => {
                let (_, gap) = all.gap_from(sight, &first_from(from))?;
                Some(match &gap.to {
                    GapEnd::Before(to) => Some(Bound::Included(to.clone())),
                    GapEnd::OfTree => None,
                })
            }
            Direction::Backward => {
                let (from, _) = all.gap_to(sight, &end_of(from))?;
                Some((!from.is_empty()).then(|| Bound::Excluded(from.clone())))
            }
        }
    }

    /// Records that the span has no live item for a reader of that sight.
    pub(crate) fn learn(&self, sight: Sight, span: KeySpan) {
        if span.is_empty() {
            return;
        }
        let Some(mut all) = self.lock(sight) else { return };
        let part = self.part(sight.tree);
        part.is_any.store(true, Ordering::SeqCst);
        let given = self.given.0.load(Ordering::SeqCst);
        all.learn(sight, span, given);
        part.trim(&mut all);
    }

    /// Forgets stretches not used since the last call.
    pub(crate) fn age(&self) {
        for part in self.parts.iter().filter(|part| part.is_any.load(Ordering::Relaxed)) {
            let mut all = part.all.lock();
            all.keep_used();
            all.trees.values_mut().flat_map(BTreeMap::values_mut).for_each(|one| one.is_used = false);
            part.tell(&all);
        }
    }

    /// Closes the gaps from before an ingest is published until the guard is dropped.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.era.ingests.lock().count += 1;
        // Every later holder of a part's lock sees this.
        self.era.now.store(CLOSED, Ordering::SeqCst);
        for part in &self.parts {
            let mut all = part.all.lock();
            all.clear();
            part.tell(&all);
        }
        Closed(self)
    }

    fn lock(&self, sight: Sight) -> Option<MutexGuard<'_, All>> {
        let all = self.part(sight.tree).all.lock();
        (sight.era != CLOSED && sight.era == self.era()).then_some(all)
    }
}

impl GapShard {
    /// Drops stretches until they fit their bytes: cuts make many stretches out of one.
    fn trim(&self, all: &mut All) {
        if all.bytes > BYTES_MAX {
            all.keep_used();
        }
        if all.bytes > BYTES_MAX {
            all.clear();
        }
        self.tell(all);
    }

    fn tell(&self, all: &All) {
        self.is_any.store(!all.trees.is_empty(), Ordering::Relaxed);
    }
}

/// Gaps are closed while this guard lives.
pub(crate) struct Closed<'g>(&'g Gaps);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let era = &self.0.era;
        let mut ingests = era.ingests.lock();
        ingests.count -= 1;
        if ingests.count == 0 {
            ingests.next_era += 1;
            era.now.store(ingests.next_era, Ordering::SeqCst);
        }
    }
}

impl All {
    fn clear(&mut self) {
        self.trees.clear();
        self.bytes = 0;
    }

    fn cut(&mut self, tree: TreeId, key: &[u8]) {
        let Some((from, _)) = self.around(tree, key) else { return };
        let from = from.clone();
        let stretch = self.remove(tree, &from).expect("found above");
        let left = KeySpan { from, to: GapEnd::Before(key.to_vec()) };
        let right = KeySpan { from: after(key), to: stretch.to.clone() };
        self.insert(tree, left, &stretch);
        self.insert(tree, right, &stretch);
    }

    /// Joins the key, the gap that ends before it and the gap that begins behind it into one gap from
    /// `sequence` on.
    fn grow(&mut self, tree: TreeId, key: &[u8], sequence: Sequence) {
        if self.around(tree, key).is_some() {
            return;
        }
        let Some(stretches) = self.trees.get(&tree) else { return };
        let behind = after(key);
        let before = stretches.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back();
        let ends_here = |(_, stretch): &(&Vec<u8>, &Stretch)| {
            stretch.is_gap && matches!(&stretch.to, GapEnd::Before(to) if to == key)
        };
        let before = before.filter(ends_here).map(|(from, _)| from.clone());
        let is_next = stretches.get(&behind).is_some_and(|stretch| stretch.is_gap);
        if before.is_none() && !is_next {
            return;
        }
        let next = if is_next { self.remove(tree, &behind) } else { None };
        let (from, left) = match before {
            Some(from) => (from.clone(), self.remove(tree, &from)),
            None => (key.to_vec(), None),
        };
        let since = left.iter().chain(&next).map(|gap| gap.since).max().unwrap_or_default().max(sequence);
        let to = next.map_or(GapEnd::Before(behind), |next| next.to);
        let gap = Stretch { to: to.clone(), since, is_gap: true, is_used: true };
        self.insert(tree, KeySpan { from, to }, &gap);
    }

    /// The stretch that holds the key.
    fn around(&self, tree: TreeId, key: &[u8]) -> Option<(&Vec<u8>, &Stretch)> {
        let stretches = self.trees.get(&tree)?;
        let before = (Bound::Unbounded, Bound::Included(key));
        stretches.range::<[u8], _>(before).next_back().filter(|(_, stretch)| match &stretch.to {
            GapEnd::Before(to) => key < to.as_slice(),
            GapEnd::OfTree => true,
        })
    }

    /// The gap that holds the key, if a reader of that sight may use it.
    fn gap_from(&mut self, sight: Sight, key: &[u8]) -> Option<(&Vec<u8>, &Stretch)> {
        let from = self.around(sight.tree, key)?.0.clone();
        self.used(sight, &from)
    }

    /// The gap that holds the last keys before the end, if a reader of that sight may use it.
    fn gap_to(&mut self, sight: Sight, end: &GapEnd) -> Option<(&Vec<u8>, &Stretch)> {
        let below = match end {
            GapEnd::Before(end) => (Bound::Unbounded, Bound::Excluded(end.as_slice())),
            GapEnd::OfTree => (Bound::Unbounded, Bound::Unbounded),
        };
        let (from, stretch) = self.trees.get(&sight.tree)?.range::<[u8], _>(below).next_back()?;
        let from = (stretch.to >= *end).then(|| from.clone())?;
        self.used(sight, &from)
    }

    fn used(&mut self, sight: Sight, from: &[u8]) -> Option<(&Vec<u8>, &Stretch)> {
        let stretch = self.trees.get_mut(&sight.tree)?.get_mut(from)?;
        if !stretch.is_gap || stretch.since > sight.bound {
            return None;
        }
        stretch.is_used = true;
        self.trees.get(&sight.tree)?.get_key_value(from)
    }

    /// Makes watched parts of the span gaps if their `since` is not above the bound. Keys without a stretch
    /// are watched from `given` on; they become a gap at once if no number was given since the bound.
    fn learn(&mut self, sight: Sight, span: KeySpan, given: Sequence) {
        let Sight { tree, bound, .. } = sight;
        let is_gap = given <= bound;
        let fresh = Stretch { to: GapEnd::OfTree, since: given.max(bound), is_gap, is_used: true };
        let mut parts: Vec<(KeySpan, Stretch)> = Vec::new();
        let mut at = GapEnd::Before(span.from.clone());
        for (from, known) in self.take_touching(tree, &span) {
            let begins = GapEnd::Before(from.clone()).max(at.clone()).min(span.to.clone());
            let ends = known.to.clone().min(span.to.clone());
            part(&mut parts, (&GapEnd::Before(from.clone()), &GapEnd::Before(span.from.clone())), &known);
            part(&mut parts, (&at, &begins), &fresh);
            let is_seen = !known.is_gap && (is_gap || known.since <= bound);
            let seen = Stretch { since: bound, is_gap: true, is_used: true, ..known.clone() };
            part(&mut parts, (&begins, &ends), if is_seen { &seen } else { &known });
            let behind = span.to.clone().max(GapEnd::Before(from));
            part(&mut parts, (&behind, &known.to), &known);
            at = at.max(ends);
        }
        part(&mut parts, (&at, &span.to), &fresh);
        for (span, stretch) in parts {
            self.insert(tree, span, &stretch);
        }
    }

    /// Removes and returns the stretches that overlap the span or touch its ends.
    fn take_touching(&mut self, tree: TreeId, span: &KeySpan) -> Vec<(Vec<u8>, Stretch)> {
        let Some(stretches) = self.trees.get(&tree) else { return Vec::new() };
        let upper = match &span.to {
            GapEnd::Before(to) => Bound::Included(to.as_slice()),
            GapEnd::OfTree => Bound::Unbounded,
        };
        let begins = GapEnd::Before(span.from.clone());
        let touching = stretches.range::<[u8], _>((Bound::Unbounded, upper)).rev();
        let touching = touching.take_while(|(_, stretch)| stretch.to >= begins);
        let mut froms: Vec<Vec<u8>> = touching.map(|(from, _)| from.clone()).collect();
        froms.reverse();
        let take = |from: Vec<u8>| self.remove(tree, &from).map(|stretch| (from, stretch));
        froms.into_iter().filter_map(take).collect()
    }

    fn insert(&mut self, tree: TreeId, span: KeySpan, like: &Stretch) {
        if !span.is_empty() {
            self.bytes += bytes(&span.from, &span.to);
            let stretch = Stretch { to: span.to, ..like.clone() };
            self.trees.entry(tree).or_default().insert(span.from, stretch);
        }
    }

    fn remove(&mut self, tree: TreeId, from: &[u8]) -> Option<Stretch> {
        let stretches = self.trees.get_mut(&tree)?;
        let stretch = stretches.remove(from)?;
        if stretches.is_empty() {
            self.trees.remove(&tree);
        }
        self.bytes -= bytes(from, &stretch.to);
        Some(stretch)
    }

    fn keep_used(&mut self) {
        let mut kept = 0;
        for stretches in self.trees.values_mut() {
            stretches.retain(|_, stretch| stretch.is_used);
            kept += stretches.iter().map(|(from, stretch)| bytes(from, &stretch.to)).sum::<usize>();
        }
        self.trees.retain(|_, stretches| !stretches.is_empty());
        self.bytes = kept;
    }
}

/// Adds a stretch from one end to another. If the last stretch ends there and is of the same kind, extends it
/// instead.
fn part(parts: &mut Vec<(KeySpan, Stretch)>, (from, to): (&GapEnd, &GapEnd), like: &Stretch) {
    let GapEnd::Before(from) = from else { return };
    let span = KeySpan { from: from.clone(), to: to.clone() };
    if span.is_empty() {
        return;
    }
    match parts.last_mut() {
        Some((last, stretch))
            if stretch.is_gap == like.is_gap && last.to == GapEnd::Before(span.from.clone()) =>
        {
            last.to = span.to;
            stretch.since = stretch.since.max(like.since);
            stretch.is_used |= like.is_used;
        }
        _ => parts.push((span, like.clone())),
    }
}

fn bytes(from: &[u8], to: &GapEnd) -> usize {
    let to_bytes = match to {
        GapEnd::Before(to) => to.len(),
        GapEnd::OfTree => 0,
    };
    STRETCH_BYTES + from.len() + to_bytes
}

/// The first key that a forward scan may return.
pub(crate) fn first_from(from: Bound<&[u8]>) -> Vec<u8> {
    match from {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    }
}

/// The exclusive end of the keys that a backward scan may return.
pub(crate) fn end_of(from: Bound<&[u8]>) -> GapEnd {
    match from {
        Bound::Included(key) => GapEnd::Before(after(key)),
        Bound::Excluded(key) => GapEnd::Before(key.to_vec()),
        Bound::Unbounded => GapEnd::OfTree,
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
