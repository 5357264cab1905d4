//! Merging of sorted sources: the only implementation, for scans, flushes and compactions.
//!
//! [`LoserTree`] picks the next of `k` sources, in either direction, and holds no source. A scan, whose
//! sources may have to wait, uses the tree directly. [`Merge`] is the whole ascending merge over blocking
//! sources, for flushes and compactions. [`Covers`] tells both which items range tombstones hide. A merge is
//! no filter: tombstones come out as items, and the caller decides which of them to drop. The caller also
//! handles the range tombstones themselves.
//!
//! Called by write (flush), compact (merge job) and read (scan). Plain values of one thread.
//!
//! Invariants:
//! 1. Every source is strictly ascending (in the direction of the merge): it holds a key at most once.
//! 2. Sources are ordered newest first: of equal keys the item of the lower source is the newer version.
//! 3. A [`Merge`] yields each key of any source exactly once, in order, with the newest version's kind and
//!    value.
//! 4. No item costs an allocation: one buffer for a key is reused.
//! 5. Items hidden by a range tombstone are marked and left one by one, so that a caller that works in
//!    bounded pieces may stop between them.

mod cover;
mod tree;

pub(crate) use cover::{Covers, Hidden, ITEM_SEQUENCE, RANGE_SEQUENCE, Stretch};
pub(crate) use tree::LoserTree;

use crate::base::error::Result;
use crate::base::id::{ItemKind, Sequence};
use crate::base::step::Direction;

/// A key with its version in one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MergeItem<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) kind: ItemKind,
    /// Empty for a tombstone.
    pub(crate) value: &'a [u8],
}

/// A source of a [`Merge`]: it stands on an item or at its end, and may block on the device when it moves.
pub(crate) trait MergeSource {
    /// The current item; `None` at the end. Cheap: called several times an item.
    fn item(&self) -> Option<MergeItem<'_>>;

    /// Moves to the next item, whose key is greater. Not called at the end.
    ///
    /// # Errors
    /// The error of the read or of a check; the source is then only dropped.
    fn advance(&mut self) -> Result<()>;

    /// The item's sequence, if the source knows it.
    fn sequence(&self) -> Sequence {
        ITEM_SEQUENCE
    }

    /// Whether it has range tombstones.
    fn has_ranges(&self) -> bool {
        false
    }

    /// Sets `stretch` to the keys around `key` with the same answer of the source's range tombstones.
    fn stretch(&self, _key: &[u8], stretch: &mut Stretch) {
        stretch.set(None, &[], &[]);
    }
}

impl<S: MergeSource + ?Sized> MergeSource for Box<S> {
    fn item(&self) -> Option<MergeItem<'_>> {
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

/// The state of bounded work after a turn.
#[derive(Debug)]
pub(crate) enum TurnProgress<T> {
    /// More work is left for another turn.
    More,
    /// The work is done; there are no more turns.
    Done(T),
}

/// Items of all sources that a merge has left behind, older versions included.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Consumed {
    pub(crate) items: u64,
    pub(crate) key_value_bytes: u64,
}

impl Consumed {
    /// Adds the counts of another merge.
    pub(crate) fn add(&mut self, other: Consumed) {
        self.items += other.items;
        self.key_value_bytes += other.key_value_bytes;
    }
}

/// The newest version of every key of several sources, ascending. An item costs about log2(sources)
/// comparisons; while a single source is left, only the source's own step.
pub(crate) struct Merge<S: MergeSource> {
    /// Newest first.
    sources: Vec<S>,
    tree: LoserTree,
    /// The key that the merge is leaving, while older versions of it are skipped.
    left_key: Vec<u8>,
    consumed: Consumed,
    covers: Covers,
    /// Whether a range tombstone hides the current item.
    is_hidden: bool,
}

impl<S: MergeSource> Merge<S> {
    /// A merge of sources in the order newest first, each on its first item.
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

    /// The newest version of the next key; `None` if every source is at its end.
    #[inline]
    pub(crate) fn item(&self) -> Option<MergeItem<'_>> {
        self.sources[self.tree.winner()?].item()
    }

    /// The source of the current item.
    #[inline]
    pub(crate) fn source(&self) -> Option<&S> {
        self.tree.winner().map(|winner| &self.sources[winner])
    }

    /// Whether a range tombstone hides the item, so that the caller only advances.
    #[inline]
    pub(crate) fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Leaves the item and all older versions of its key. Does nothing at the end.
    ///
    /// # Errors
    /// The error of a source; the merge is then only dropped.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.leave()?;
        self.look();
        Ok(())
    }

    /// Updates whether the item is hidden.
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
        // Older versions of a hidden item are hidden too, and are checked one by one.
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

    /// Items left so far.
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
fn key_of<S: MergeSource>(sources: &[S], index: usize) -> Option<&[u8]> {
    sources[index].item().map(|item| item.key)
}

#[cfg(test)]
mod tests;
