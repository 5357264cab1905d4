//! The tree that a range is read from: its keyspace's or, where keys divide the keyspace, one partition after
//! the other.

use std::ops::Bound;

use crate::base::id::TreeId;
use crate::base::step::Direction;
use crate::engine::publish::keyspace;
use crate::engine::publish::snapshot::Point;
use crate::read::scan;

use super::handle::Handle;

/// The source of a range: store, keyspace, point and bounds.
#[derive(Clone, Copy)]
pub(super) struct RangeArgs<'r> {
    pub(super) handle: &'r Handle,
    pub(super) keyspace: &'r keyspace::KeyspaceState,
    pub(super) point: &'r Point,
    pub(super) range: &'r scan::ScanRange,
}

/// The current tree of a range; see the module.
#[derive(Default)]
pub(super) struct Walk {
    /// The current tree; `None` before the first.
    at: Option<TreeId>,
    /// Name of the current partition, if keys divide the keyspace.
    name: Vec<u8>,
    is_over_partitions: bool,
}

impl Walk {
    /// Restarts the walk. Returns whether it may begin in another tree.
    pub(super) fn restart(&mut self) -> bool {
        self.at = None;
        self.is_over_partitions
    }

    /// The current tree. The first call chooses the tree of the first items from `start` on, in that
    /// direction.
    #[inline]
    pub(super) fn tree(
        &mut self,
        of: &RangeArgs<'_>,
        (start, direction): (Bound<&[u8]>, Direction),
    ) -> TreeId {
        if let Some(tree) = self.at {
            return tree;
        }
        if of.keyspace.is_divided_by_keys() {
            self.find(of, (start, direction), Bound::Unbounded);
        }
        *self.at.get_or_insert(of.keyspace.tree)
    }

    /// Begins in the named partition, or in the next one if it does not exist. Returns whether it exists.
    pub(super) fn begin_in(&mut self, of: &RangeArgs<'_>, name: &[u8]) -> bool {
        let found = self.find(of, (Bound::Unbounded, Direction::Forward), Bound::Included(name));
        found && self.name == name
    }

    /// The name of the current partition; empty if keys do not divide the keyspace.
    pub(super) fn partition_name(&self) -> &[u8] {
        &self.name
    }

    /// Moves to the next tree; `false` if there is none.
    pub(super) fn go_on(&mut self, of: &RangeArgs<'_>, direction: Direction) -> bool {
        if !of.keyspace.is_divided_by_keys() || self.at.is_none_or(|tree| tree == of.keyspace.tree) {
            return false;
        }
        let name = std::mem::take(&mut self.name);
        self.find(of, (Bound::Unbounded, direction), Bound::Excluded(&name))
    }

    fn find(
        &mut self,
        of: &RangeArgs<'_>,
        (start, direction): (Bound<&[u8]>, Direction),
        from: Bound<&[u8]>,
    ) -> bool {
        let (first, last) = of.range;
        let tighter = scan::tighter(start, of.range, direction);
        let bounds = match direction {
            Direction::Forward => (tighter, last.as_ref().map(Vec::as_slice)),
            Direction::Backward => (first.as_ref().map(Vec::as_slice), tighter),
        };
        let view = of.handle.view_of(of.point);
        let found = of.keyspace.next_partition(&view.version, (bounds, direction), from);
        // Without a partition the walk uses the keyspace's own tree, which has no items.
        self.at = Some(found.map_or(of.keyspace.tree, |(_, tree)| tree));
        self.is_over_partitions = true;
        self.name.clear();
        self.name.extend_from_slice(found.map_or(&[], |(name, _)| name));
        found.is_some()
    }
}
