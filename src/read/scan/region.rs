//! The part of a hashed tree's range in which a scan is: the keys that have the same way through the trie.
//!
//! The runs on one way are sources like those of an ordered tree. At the end of the region the scan seeks in
//! those of the next. So a scan has no more sources than a key has runs, however many nodes there are.
//! Plain values; the scan's alone. It goes forward: nothing asks for a hashed tree's keys the other way.

use std::ops::Bound;

use crate::base::place::NodeId;
use crate::levels::version::Trie;

use super::range::Range;

pub(super) struct Region {
    /// No key of the region comes before it, and it has the same way.
    way: Vec<u8>,
    /// The end of the whole range.
    end: Bound<Vec<u8>>,
    /// Where the next region begins, if the range goes on there.
    next: Option<Vec<u8>>,
}

impl Region {
    /// The region in which a scan begins, whose range then ends with it.
    pub(super) fn enter(trie: &Trie, from: &Bound<Vec<u8>>, range: &mut Range) -> Region {
        let way = match from {
            Bound::Included(key) | Bound::Excluded(key) => key.clone(),
            Bound::Unbounded => Vec::new(),
        };
        let (mut id, mut node) = (NodeId::ROOT, Some(trie.root()));
        while let Some(at) = node.filter(|node| node.has_children()) {
            let child = NodeId::of(id.height + 1, &way);
            (id, node) = (child, at.child((child.path & 7) as usize));
        }
        let end = range.1.clone();
        let next = id.behind().filter(|next| match &end {
            Bound::Included(end) => next <= end,
            Bound::Excluded(end) => next < end,
            Bound::Unbounded => true,
        });
        if let Some(next) = &next {
            range.1 = Bound::Excluded(next.clone());
        }
        Region { way, end, next }
    }

    /// The runs of the region are those on the way of this key; none is needed outside of a hashed tree.
    pub(super) fn way(region: &Option<Region>) -> &[u8] {
        region.as_ref().map_or(&[][..], |region| &region.way)
    }

    /// Where the next region begins, once.
    pub(super) fn take_next(&mut self) -> Option<Vec<u8>> {
        self.next.take()
    }

    /// Gives the range its own end back.
    pub(super) fn leave(region: &mut Option<Region>, range: &mut Range) {
        if let Some(region) = region.take() {
            range.1 = region.end;
        }
    }
}
