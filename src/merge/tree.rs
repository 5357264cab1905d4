//! The loser tree: picks the next of `k` sorted sources.
//!
//! It holds indexes and eight bytes of each source's key, but no source and no key. A closure supplies keys,
//! and only if the eight bytes do not decide. After the winner has moved, one path from its leaf to the root
//! is replayed: log2(k) comparisons, half of a binary heap's (Knuth, The Art of Computer Programming, volume
//! 3, section 5.4.1; eight-byte prefixes from AlphaSort, Nyberg et al. 1994).
//!
//! Called by [`super::Merge`] and by scans. A plain value of one thread.
//!
//! Invariants:
//! 1. Node `n` (1 to k - 1) holds the loser of the match played there; node 0 holds the overall winner.
//!    The leaf of source `i` is position `k + i`, and the parent of position `p` is `p / 2`: a tree for any
//!    `k`, not only powers of two.
//! 2. A source at its end loses to every other; of equal keys the lower source wins, in both directions.

use std::cmp::Ordering;

use crate::base::key::head;
use crate::base::step::Direction;

/// A source in the tree.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The key's first eight bytes behind the shared prefix, zero padded, as a number. Keys that come first
    /// have the smaller number in either direction; all ones at the end.
    rank: u64,
    source: u32,
}

/// Picks the next of `count` sources, which the caller keeps. Allocates only when it is created and at the
/// first rebuild.
#[derive(Debug)]
pub(crate) struct LoserTree {
    nodes: Box<[Entry]>,
    /// The winner below each position during a rebuild; kept for the next rebuild.
    winners: Vec<Entry>,
    direction: Direction,
    /// The expected common prefix of the keys, a hint.
    shared_prefix: Box<[u8]>,
    live_count: usize,
}

impl LoserTree {
    /// A tree over `count` sources, without a winner before [`LoserTree::rebuild`].
    pub(crate) fn new(count: usize, direction: Direction) -> LoserTree {
        LoserTree::with_prefix(count, direction, &[])
    }

    /// As [`LoserTree::new`], for keys that mostly begin with `shared_prefix`: the eight deciding bytes are
    /// those behind the prefix. Other keys cost more comparisons, but are ordered correctly.
    pub(crate) fn with_prefix(count: usize, direction: Direction, shared_prefix: &[u8]) -> LoserTree {
        let source_count = u32::try_from(count).expect("there are fewer sources than files");
        let nodes = (0..source_count).map(|source| Entry { rank: u64::MAX, source }).collect();
        let shared_prefix = shared_prefix.into();
        LoserTree { nodes, winners: Vec::new(), direction, shared_prefix, live_count: 0 }
    }

    /// Plays all matches again: at the start, and after a seek moved every source. `key_of` returns the
    /// current key of a source, `None` at its end. At most `count` comparisons.
    pub(crate) fn rebuild<'k>(&mut self, key_of: impl Fn(usize) -> Option<&'k [u8]>) {
        let count = self.nodes.len();
        if count == 0 {
            return;
        }
        self.live_count = 0;
        let mut winners = std::mem::take(&mut self.winners);
        winners.clear();
        winners.reserve_exact(2 * count);
        winners.extend_from_slice(&self.nodes);
        for source in 0..count {
            let key = key_of(source);
            self.live_count += usize::from(key.is_some());
            winners.push(Entry { rank: self.rank(key), source: source as u32 });
        }
        for position in (1..count).rev() {
            let (left, right) = (winners[2 * position], winners[2 * position + 1]);
            let (winner, loser) =
                if self.comes_first(left, right, &key_of) { (left, right) } else { (right, left) };
            winners[position] = winner;
            self.nodes[position] = loser;
        }
        self.nodes[0] = winners[1];
        self.winners = winners;
    }

    /// The source with the next key; `None` if all are at their end.
    #[inline]
    pub(crate) fn winner(&self) -> Option<usize> {
        if self.live_count == 0 { None } else { Some(self.nodes[0].source as usize) }
    }

    /// The number of sources that are not at their end.
    #[inline]
    #[cfg(test)]
    pub(crate) fn live_count(&self) -> usize {
        self.live_count
    }

    /// Whether another source may have the winner's key. False positives occur if eight bytes do not decide.
    pub(crate) fn may_be_tied(&self) -> bool {
        let Some(winner) = self.nodes.first() else { return false };
        // Of the sources with the winner's rank, at least one lost to the winner itself.
        let mut position = (self.nodes.len() + winner.source as usize) / 2;
        while position > 0 {
            if self.nodes[position].rank == winner.rank {
                return true;
            }
            position /= 2;
        }
        false
    }

    /// Whether `key`, a later key of the winner, comes before the keys of all other sources. `false` if eight
    /// bytes do not decide.
    pub(crate) fn leads(&self, key: &[u8]) -> bool {
        let Some(winner) = self.nodes.first() else { return false };
        // The second-best source lost to the winner itself.
        let rank = self.rank(Some(key));
        let mut position = (self.nodes.len() + winner.source as usize) / 2;
        while position > 0 {
            if self.nodes[position].rank <= rank {
                return false;
            }
            position /= 2;
        }
        true
    }

    /// Replays the winner's path after it moved to another key or to its end. Only the winner may have moved,
    /// and there must be one.
    pub(crate) fn update<'k>(&mut self, key_of: impl Fn(usize) -> Option<&'k [u8]>) {
        assert!(self.live_count > 0, "only a winner moves");
        let source = self.nodes[0].source;
        let key = key_of(source as usize);
        if key.is_none() {
            self.live_count -= 1;
        }
        let mut winner = Entry { rank: self.rank(key), source };
        let mut position = (self.nodes.len() + source as usize) / 2;
        while position > 0 {
            let loser = self.nodes[position];
            if self.comes_first(loser, winner, &key_of) {
                self.nodes[position] = winner;
                winner = loser;
            }
            position /= 2;
        }
        self.nodes[0] = winner;
    }

    #[inline]
    fn rank(&self, key: Option<&[u8]>) -> u64 {
        let Some(key) = key else { return u64::MAX };
        let prefix = match self.without_prefix(key) {
            Some(rest) => head(rest),
            // All keys below the prefix have one rank, and all above it: whole keys decide among them.
            None if key < &*self.shared_prefix => 0,
            None => u64::MAX,
        };
        match self.direction {
            Direction::Forward => prefix,
            Direction::Backward => !prefix,
        }
    }

    #[inline]
    fn without_prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        // An empty prefix has a dangling pointer. A comparison there costs hundreds of cycles on processors
        // that mask loads, as those with AVX-512 do.
        if self.shared_prefix.is_empty() { Some(key) } else { key.strip_prefix(&*self.shared_prefix) }
    }

    #[inline]
    fn comes_first<'k>(&self, one: Entry, two: Entry, key_of: &impl Fn(usize) -> Option<&'k [u8]>) -> bool {
        if one.rank != two.rank {
            return one.rank < two.rank;
        }
        // Equal prefixes, or keys that rank like an end: whole keys decide.
        let order = match (key_of(one.source as usize), key_of(two.source as usize)) {
            (Some(first), Some(second)) => match self.direction {
                Direction::Forward => first.cmp(second),
                Direction::Backward => second.cmp(first),
            },
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        order.then(one.source.cmp(&two.source)).is_lt()
    }
}
