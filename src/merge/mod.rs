//! Merging of sorted sources: the only one, for scans, flushes and compactions.
//!
//! [`LoserTree`] says which of `k` sources is next, in either direction, and holds no source: a scan keeps
//! sources that may have to wait and asks it directly. [`Merge`] is the whole ascending merge over sources
//! that block, for flushes and compactions. [`Covers`] says which items range tombstones hide, to both. It is
//! not a filter: tombstones come out as items, and who may drop one is decided by the caller; what becomes of
//! the range tombstones themselves is the caller's business too.
//!
//! Called by write (flush), compact (merge job) and read (scan). Plain values of one thread.
//!
//! Invariants:
//! 1. Every source is strictly ascending (in the direction of the merge): it holds a key at most once.
//! 2. Sources stand newest first: of equal keys the one of the lower source is the newer version.
//! 3. A [`Merge`] yields each key of any source exactly once, in order, with the newest version's kind and
//!    value.
//! 4. Nothing is allocated an item: one buffer for a key is reused.
//! 5. What a range tombstone hides is told from what is to be seen, and left one by one, so that a caller who
//!    works in bounded pieces may stop between.

mod cover;
mod tree;

pub(crate) use cover::{Covers, Hidden, ITEM_SEQUENCE, RANGE_SEQUENCE, Stretch};
pub(crate) use tree::LoserTree;

use crate::base::error::Result;
use crate::base::id::{ItemKind, Sequence};
use crate::base::step::Direction;

/// A key with what one source says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) kind: ItemKind,
    /// Empty for a tombstone.
    pub(crate) value: &'a [u8],
}

/// A source of a [`Merge`]: it stands on an item or at its end, and may wait for the device when it moves.
pub(crate) trait Source {
    /// The item it stands on; `None` at the end. Cheap: asked several times an item.
    fn item(&self) -> Option<Item<'_>>;

    /// Moves to the next item, whose key is greater. Not called at the end.
    ///
    /// # Errors
    /// What the device or the bytes said; the source is then only dropped.
    fn advance(&mut self) -> Result<()>;

    /// The item's sequence, if the source knows it.
    fn sequence(&self) -> Sequence {
        ITEM_SEQUENCE
    }

    /// Whether it has range tombstones.
    fn has_ranges(&self) -> bool {
        false
    }

    /// What its range tombstones say of the keys around one.
    fn stretch(&self, _key: &[u8], stretch: &mut Stretch) {
        stretch.set(None, &[], &[]);
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn item(&self) -> Option<Item<'_>> {
        (**self).item()
    }

    fn advance(&mut self) -> Result<()> {
        (**self).advance()
    }

    fn sequence(&self) -> Sequence {
        (**self).sequence()
    }

    fn has_ranges(&self) -> bool {
        (**self).has_ranges()
    }

    fn stretch(&self, key: &[u8], stretch: &mut Stretch) {
        (**self).stretch(key, stretch);
    }
}

/// What a turn of work done in bounded pieces has come to.
#[derive(Debug)]
pub(crate) enum Progress<T> {
    /// There is more to do: another turn.
    More,
    /// It is done. No more turns.
    Done(T),
}

/// Items of all sources that a merge has left behind, older versions included.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Consumed {
    pub(crate) items: u64,
    pub(crate) key_value_bytes: u64,
}

impl Consumed {
    /// Adds what another merge has left behind.
    pub(crate) fn add(&mut self, other: Consumed) {
        self.items += other.items;
        self.key_value_bytes += other.key_value_bytes;
    }
}

/// The newest version of every key of several sources, ascending. Costs about log2(sources) comparisons an
/// item, and nothing but the source's own step while one source alone is left.
pub(crate) struct Merge<S: Source> {
    /// Newest first.
    sources: Vec<S>,
    tree: LoserTree,
    /// The key that is being left, kept while older versions of it are skipped.
    left_key: Vec<u8>,
    consumed: Consumed,
    covers: Covers,
    /// A range tombstone hides the item it stands on.
    is_hidden: bool,
}

impl<S: Source> Merge<S> {
    /// A merge of sources given newest first, each standing on its first item.
    #[cfg(test)]
    pub(crate) fn new(sources: Vec<S>) -> Merge<S> {
        Merge::with_prefix(sources, &[])
    }

    /// As [`Merge::new`], cheaper for keys that mostly begin with `shared_prefix`.
    pub(crate) fn with_prefix(sources: Vec<S>, shared_prefix: &[u8]) -> Merge<S> {
        let mut tree = LoserTree::with_prefix(sources.len(), Direction::Forward, shared_prefix);
        tree.rebuild(|index| key_of(&sources, index));
        let ranged = (0..sources.len()).filter(|index| sources[*index].has_ranges());
        let covers = Covers::new(ranged);
        let (left_key, consumed) = (Vec::new(), Consumed::default());
        let mut merge = Merge { sources, tree, left_key, consumed, covers, is_hidden: false };
        merge.look();
        merge
    }

    /// The newest version of the next key; `None` when every source is at its end.
    #[inline]
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        self.sources[self.tree.winner()?].item()
    }

    /// The source of that item.
    #[inline]
    pub(crate) fn source(&self) -> Option<&S> {
        self.tree.winner().map(|winner| &self.sources[winner])
    }

    /// Whether a range tombstone hides the item: it is only to be left.
    #[inline]
    pub(crate) fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Leaves the item, and every older version of its key. Nothing to do at the end.
    ///
    /// # Errors
    /// What a source said; the merge is then only dropped.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.leave()?;
        self.look();
        Ok(())
    }

    /// Finds out whether the item is hidden.
    #[inline]
    fn look(&mut self) {
        if !self.covers.is_empty() {
            self.look_at_ranges();
        }
    }

    fn look_at_ranges(&mut self) {
        let Some(winner) = self.tree.winner() else { return };
        let sources = &self.sources;
        let item = sources[winner].item().expect("the winner stands on an item");
        let look = |source: usize, key: &[u8], stretch: &mut Stretch| sources[source].stretch(key, stretch);
        self.is_hidden = self.covers.hidden(item.key, winner, sources[winner].sequence(), look).is_some();
    }

    fn leave(&mut self) -> Result<()> {
        let Some(winner) = self.tree.winner() else { return Ok(()) };
        // Older versions of a hidden one are hidden too, and looked at by themselves.
        if self.is_hidden || !self.tree.may_be_tied() {
            return self.step(winner);
        }
        let item = self.sources[winner].item().expect("the winner stands on an item");
        self.left_key.clear();
        self.left_key.extend_from_slice(item.key);
        self.step(winner)?;
        while let Some(next) = self.tree.winner() {
            let same = key_of(&self.sources, next).is_some_and(|key| key == self.left_key);
            if !same {
                break;
            }
            self.step(next)?;
        }
        Ok(())
    }

    /// The sources, newest first.
    pub(crate) fn sources(&self) -> &[S] {
        &self.sources
    }

    /// What has been left behind so far.
    pub(crate) fn consumed(&self) -> Consumed {
        self.consumed
    }

    fn step(&mut self, winner: usize) -> Result<()> {
        let source = &mut self.sources[winner];
        let item = source.item().expect("the winner stands on an item");
        self.consumed.items += 1;
        self.consumed.key_value_bytes += (item.key.len() + item.value.len()) as u64;
        source.advance()?;
        let sources = &self.sources;
        self.tree.update(|index| key_of(sources, index));
        Ok(())
    }
}

#[inline]
fn key_of<S: Source>(sources: &[S], index: usize) -> Option<&[u8]> {
    sources[index].item().map(|item| item.key)
}

#[cfg(test)]
mod tests;
