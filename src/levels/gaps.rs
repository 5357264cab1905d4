//! Gaps: stretches of keys in which nothing lives, as scans found them, so that what was deleted there is
//! passed by one scan and skipped by those after it.
//!
//! A hint and nothing else: it is in memory only, bounded, and forgotten when nobody has used it for a
//! generation. It looks at no item; scans say what they found, commits what they put.
//!
//! A scan finds a stretch empty at its own bound, and commits put items meanwhile that it does not see. So a
//! stretch is first watched: from a sequence number on, every put in it cuts it. Whoever finds it empty with
//! a bound at or after that number makes it a gap; while nothing is being written, the first one does.
//!
//! A delete at an end of a gap moves that end: nothing lives there for who sees the delete.
//!
//! Invariants:
//! 1. Every put with a sequence number above `since` is cut out of a stretch before it is visible. A commit
//!    says which number is its last, then asks whether there are stretches; a scan says that there are, then
//!    asks for the number.
//! 2. In a gap nothing lives for a reader whose bound is at or after `since`, and who looks into the gaps
//!    after he took the bound.
//!    His view has every write within his bound: it was the present one after he took the bound (`view`, 4).
//! 3. Ingests put items without a number: gaps are closed while one is published, none is left from before,
//!    and who took his view before learns and uses none.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::id::{Sequence, TreeId};
use crate::base::step::Direction;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

/// What a stretch takes beside its keys.
const STRETCH_BYTES: usize = 128;
/// What those of a part of the trees take at most; beyond it those go that were not used of late, or all.
const BYTES_MAX: usize = 32 << 10;
/// Trees are parted, so that who scans one seldom waits for who scans another.
const PARTS_COUNT: usize = 8;

/// The era while gaps are closed.
const CLOSED: u64 = u64::MAX;

/// Which gaps a reader may use and learn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sight {
    pub(crate) tree: TreeId,
    pub(crate) bound: Sequence,
    /// [`Gaps::era`] from before its view was taken.
    pub(crate) era: u64,
}

/// An end of a stretch: the first key that is not in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    Before(Vec<u8>),
    /// It goes to the end of the tree.
    OfTree,
}

/// Keys from one, included, to an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) from: Vec<u8>,
    pub(crate) to: End,
}

impl Span {
    fn is_empty(&self) -> bool {
        matches!(&self.to, End::Before(to) if *to <= self.from)
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
    parts: [Part; PARTS_COUNT],
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
    /// Those being published.
    count: usize,
    next_era: u64,
}

/// The stretches of some of the trees.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part {
    /// What every scan and every commit asks; it seldom changes.
    is_any: AtomicBool,
    all: Mutex<All>,
}

/// The last sequence number that a commit has begun to insert.
#[derive(Debug)]
#[repr(align(128))]
struct Given(AtomicU64);

#[derive(Debug, Default)]
struct All {
    /// By first key.
    trees: BTreeMap<TreeId, BTreeMap<Vec<u8>, Stretch>>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Stretch {
    to: End,
    since: Sequence,
    /// Nothing lives in it: it is a gap. Else it is watched.
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

    /// To be asked before a view is taken.
    pub(crate) fn era(&self) -> u64 {
        self.era.now.load(Ordering::Acquire)
    }

    fn part(&self, tree: TreeId) -> &Part {
        &self.parts[tree.keyspace.0 as usize % PARTS_COUNT]
    }

    /// Whether there may be gaps to skip.
    #[inline]
    pub(crate) fn is_any(&self, tree: TreeId) -> bool {
        self.part(tree).is_any.load(Ordering::Relaxed)
    }

    /// A commit is about to insert items up to `last`.
    pub(crate) fn begin(&self, last: Sequence) {
        self.given.0.store(last, Ordering::SeqCst);
    }

    /// An item of a commit that has begun is about to be put: nothing goes over its key any more.
    #[inline]
    pub(crate) fn cut(&self, tree: TreeId, key: &[u8]) {
        let part = self.part(tree);
        if part.is_any.load(Ordering::SeqCst) {
            let mut all = part.all.lock();
            all.cut(tree, key);
            part.trim(&mut all);
        }
    }

    /// A key of a commit that has begun is about to be deleted: a gap that ends there goes on behind it, so
    /// that who takes items from one end finds the next one at once.
    #[inline]
    pub(crate) fn grow(&self, tree: TreeId, key: &[u8], sequence: Sequence) {
        let part = self.part(tree);
        if part.is_any.load(Ordering::Relaxed) {
            part.all.lock().grow(tree, key, sequence);
        }
    }

    /// Where a scan may go on that is to begin at `from`: at the bound, or nowhere (`Some(None)`); `None` if
    /// no gap is known there.
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
                    End::Before(to) => Some(Bound::Included(to.clone())),
                    End::OfTree => None,
                })
            }
            Direction::Backward => {
                let (from, _) = all.gap_to(sight, &end_of(from))?;
                Some((!from.is_empty()).then(|| Bound::Excluded(from.clone())))
            }
        }
    }

    /// Nothing lives in the span for a reader of that sight.
    pub(crate) fn learn(&self, sight: Sight, span: Span) {
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

    /// Forgets what was not used since it was last called.
    pub(crate) fn age(&self) {
        for part in self.parts.iter().filter(|part| part.is_any.load(Ordering::Relaxed)) {
            let mut all = part.all.lock();
            all.keep_used();
            all.trees.values_mut().flat_map(BTreeMap::values_mut).for_each(|one| one.is_used = false);
            part.tell(&all);
        }
    }

    /// From before an ingest is published until after: there are no gaps.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.era.ingests.lock().count += 1;
        // Whoever has the lock of a part after this sees it.
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

impl Part {
    /// Has stretches go until all keep to their bytes: puts make many of one.
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

/// While it lives, gaps are closed.
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
        let left = Span { from, to: End::Before(key.to_vec()) };
        let right = Span { from: after(key), to: stretch.to.clone() };
        self.insert(tree, left, &stretch);
        self.insert(tree, right, &stretch);
    }

    /// The gaps that end before the key and begin behind it, and the key, become one gap from `sequence` on.
    fn grow(&mut self, tree: TreeId, key: &[u8], sequence: Sequence) {
        if self.around(tree, key).is_some() {
            return;
        }
        let Some(stretches) = self.trees.get(&tree) else { return };
        let behind = after(key);
        let before = stretches.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back();
        let ends_here = |(_, stretch): &(&Vec<u8>, &Stretch)| {
            stretch.is_gap && matches!(&stretch.to, End::Before(to) if to == key)
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
        let to = next.map_or(End::Before(behind), |next| next.to);
        let gap = Stretch { to: to.clone(), since, is_gap: true, is_used: true };
        self.insert(tree, Span { from, to }, &gap);
    }

    /// The stretch that the key is in.
    fn around(&self, tree: TreeId, key: &[u8]) -> Option<(&Vec<u8>, &Stretch)> {
        let stretches = self.trees.get(&tree)?;
        let before = (Bound::Unbounded, Bound::Included(key));
        stretches.range::<[u8], _>(before).next_back().filter(|(_, stretch)| match &stretch.to {
            End::Before(to) => key < to.as_slice(),
            End::OfTree => true,
        })
    }

    /// The gap that holds the key, for who may use it.
    fn gap_from(&mut self, sight: Sight, key: &[u8]) -> Option<(&Vec<u8>, &Stretch)> {
        let from = self.around(sight.tree, key)?.0.clone();
        self.used(sight, &from)
    }

    /// The gap that holds what is next before the end.
    fn gap_to(&mut self, sight: Sight, end: &End) -> Option<(&Vec<u8>, &Stretch)> {
        let below = match end {
            End::Before(end) => (Bound::Unbounded, Bound::Excluded(end.as_slice())),
            End::OfTree => (Bound::Unbounded, Bound::Unbounded),
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

    /// Of what is known in the span, all becomes a gap that was watched before the bound; the rest is watched
    /// from `given` on, which makes it a gap if nothing was given since the bound.
    fn learn(&mut self, sight: Sight, span: Span, given: Sequence) {
        let Sight { tree, bound, .. } = sight;
        let is_gap = given <= bound;
        let fresh = Stretch { to: End::OfTree, since: given.max(bound), is_gap, is_used: true };
        let mut parts: Vec<(Span, Stretch)> = Vec::new();
        let mut at = End::Before(span.from.clone());
        for (from, known) in self.take_touching(tree, &span) {
            let begins = End::Before(from.clone()).max(at.clone()).min(span.to.clone());
            let ends = known.to.clone().min(span.to.clone());
            part(&mut parts, (&End::Before(from.clone()), &End::Before(span.from.clone())), &known);
            part(&mut parts, (&at, &begins), &fresh);
            let is_seen = !known.is_gap && (is_gap || known.since <= bound);
            let seen = Stretch { since: bound, is_gap: true, is_used: true, ..known.clone() };
            part(&mut parts, (&begins, &ends), if is_seen { &seen } else { &known });
            let behind = span.to.clone().max(End::Before(from));
            part(&mut parts, (&behind, &known.to), &known);
            at = at.max(ends);
        }
        part(&mut parts, (&at, &span.to), &fresh);
        for (span, stretch) in parts {
            self.insert(tree, span, &stretch);
        }
    }

    /// Takes out what has keys of the span, or ends or begins beside it.
    fn take_touching(&mut self, tree: TreeId, span: &Span) -> Vec<(Vec<u8>, Stretch)> {
        let Some(stretches) = self.trees.get(&tree) else { return Vec::new() };
        let upper = match &span.to {
            End::Before(to) => Bound::Included(to.as_slice()),
            End::OfTree => Bound::Unbounded,
        };
        let begins = End::Before(span.from.clone());
        let touching = stretches.range::<[u8], _>((Bound::Unbounded, upper)).rev();
        let touching = touching.take_while(|(_, stretch)| stretch.to >= begins);
        let mut froms: Vec<Vec<u8>> = touching.map(|(from, _)| from.clone()).collect();
        froms.reverse();
        let take = |from: Vec<u8>| self.remove(tree, &from).map(|stretch| (from, stretch));
        froms.into_iter().filter_map(take).collect()
    }

    fn insert(&mut self, tree: TreeId, span: Span, like: &Stretch) {
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

/// Adds a part from one end to another, to the one before it if that is a gap too.
fn part(parts: &mut Vec<(Span, Stretch)>, (from, to): (&End, &End), like: &Stretch) {
    let End::Before(from) = from else { return };
    let span = Span { from: from.clone(), to: to.clone() };
    if span.is_empty() {
        return;
    }
    match parts.last_mut() {
        Some((last, stretch))
            if stretch.is_gap == like.is_gap && last.to == End::Before(span.from.clone()) =>
        {
            last.to = span.to;
            stretch.since = stretch.since.max(like.since);
            stretch.is_used |= like.is_used;
        }
        _ => parts.push((span, like.clone())),
    }
}

fn bytes(from: &[u8], to: &End) -> usize {
    let to_bytes = match to {
        End::Before(to) => to.len(),
        End::OfTree => 0,
    };
    STRETCH_BYTES + from.len() + to_bytes
}

/// The first key that a scan forward may meet.
pub(crate) fn first_from(from: Bound<&[u8]>) -> Vec<u8> {
    match from {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    }
}

/// The end of the keys that a scan backward may meet.
pub(crate) fn end_of(from: Bound<&[u8]>) -> End {
    match from {
        Bound::Included(key) => End::Before(after(key)),
        Bound::Excluded(key) => End::Before(key.to_vec()),
        Bound::Unbounded => End::OfTree,
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
