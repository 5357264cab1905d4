//! Which tree a range is read from: that of its keyspace or, where keys divide that, one partition after the
//! other.

use std::ops::Bound;

use crate::base::id::TreeId;
use crate::base::step::Direction;
use crate::engine::publish::keyspace;
use crate::engine::publish::snapshot::Point;
use crate::read::scan;

use super::handle::Handle;

/// Where a range is read from.
#[derive(Clone, Copy)]
pub(super) struct Reading<'r> {
    pub(super) handle: &'r Handle,
    pub(super) keyspace: &'r keyspace::Keyspace,
    pub(super) point: &'r Point,
    pub(super) range: &'r scan::Range,
}

/// See the module.
#[derive(Default)]
pub(super) struct Walk {
    /// Where it is; `None`: it was not begun.
    at: Option<TreeId>,
    /// The partition's name, if keys divide the keyspace.
    name: Vec<u8>,
    is_over_partitions: bool,
}

impl Walk {
    /// Begins anew; whether it may begin in another tree.
    pub(super) fn restart(&mut self) -> bool {
        self.at = None;
        self.is_over_partitions
    }

    /// The tree that it is at: where the first items in that direction from `start` on may be, at first.
    #[inline]
    pub(super) fn tree(&mut self, of: &Reading<'_>, (start, direction): (Bound<&[u8]>, Direction)) -> TreeId {
        if let Some(tree) = self.at {
            return tree;
        }
        if of.keyspace.is_divided_by_keys() {
            self.find(of, (start, direction), Bound::Unbounded);
        }
        *self.at.get_or_insert(of.keyspace.tree)
    }

    /// Begins in the partition of that name, or in the next one; whether there is one of that name.
    pub(super) fn begin_in(&mut self, of: &Reading<'_>, name: &[u8]) -> bool {
        let found = self.find(of, (Bound::Unbounded, Direction::Forward), Bound::Included(name));
        found && self.name == name
    }

    /// The name of the partition that it is in; empty if keys do not divide the keyspace.
    pub(super) fn partition_name(&self) -> &[u8] {
        &self.name
    }

    /// Goes on to the next tree; `false` if there is none.
    pub(super) fn go_on(&mut self, of: &Reading<'_>, direction: Direction) -> bool {
        if !of.keyspace.is_divided_by_keys() || self.at.is_none_or(|tree| tree == of.keyspace.tree) {
            return false;
        }
        let name = std::mem::take(&mut self.name);
        self.find(of, (Bound::Unbounded, direction), Bound::Excluded(&name))
    }

    fn find(
        &mut self,
        of: &Reading<'_>,
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
        // Where there is no partition nothing is found under the keyspace's own tree.
        self.at = Some(found.map_or(of.keyspace.tree, |(_, tree)| tree));
        self.is_over_partitions = true;
        self.name.clear();
        self.name.extend_from_slice(found.map_or(&[], |(name, _)| name));
        found.is_some()
    }
}
