//! The part of a hashed tree's range in which a scan is: the keys with the same path through the trie.
//!
//! The runs on one path are sources like those of an ordered tree. At the end of the region the scan seeks in
//! the runs of the next region. So a scan has no more sources than a key has runs, for any number of nodes.
//! Plain values; the scan's alone. It goes forward only: no caller scans a hashed tree backward.

use std::ops::Bound;

use crate::base::place::NodeId;
use crate::levels::version::Trie;

use super::range::ScanRange;

pub(super) struct KeyRegion {
    /// A key with the region's path, at or before all keys of the region.
    way: Vec<u8>,
    /// The end of the whole range.
    end: Bound<Vec<u8>>,
    /// The start of the next region, if the range goes on there.
    next: Option<Vec<u8>>,
}

impl KeyRegion {
    /// Enters the region in which the scan begins, and cuts the range to it.
    pub(super) fn enter(trie: &Trie, from: &Bound<Vec<u8>>, range: &mut ScanRange) -> KeyRegion {
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
        KeyRegion { way, end, next }
    }

    /// A key on the region's path, which selects the runs; empty outside of hashed trees.
    pub(super) fn way(region: &Option<KeyRegion>) -> &[u8] {
        region.as_ref().map_or(&[][..], |region| &region.way)
    }

    /// Takes the start of the next region.
    pub(super) fn take_next(&mut self) -> Option<Vec<u8>> {
        self.next.take()
    }

    /// Restores the end of the whole range.
    pub(super) fn leave(region: &mut Option<KeyRegion>, range: &mut ScanRange) {
        if let Some(region) = region.take() {
            range.1 = region.end;
        }
    }
}
