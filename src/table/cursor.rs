//! A position in a slice for scans, in either direction. A cursor reads no device: it returns the address of
//! the block that it needs.
//!
//! `read` polls it after `seek` or `advance` until it is ready, and supplies blocks in between. It holds only
//! numbers and counted blocks, so its owner may keep it as long as it likes. One thread at a time.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::step::{BlockAddress, Direction};
use crate::base::sync::Arc;
use crate::cache::BlockRef;
use crate::format::table::data::Layout;
use crate::format::table::index::IndexPage;

use super::search::TableReader;

/// The result of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// The cursor stands on an item.
    Ready,
    /// There is no further item in the cursor's direction.
    End,
    /// The caller polls again with this block, verified.
    Need(BlockAddress),
}

/// A position in a slice.
pub(crate) struct TableCursor {
    table: Arc<TableReader>,
    direction: Direction,
    state: CursorState,
    /// The fence page supplied last, and its number.
    fences: Option<(usize, BlockRef)>,
    held: Option<HeldBlock>,
    /// The block that the last poll asked for. The next poll may need another one: a page may have become
    /// resident meanwhile.
    needed: Option<BlockAddress>,
    /// The fence page, and the block in it, at which the cursor is or to which it moves.
    page: usize,
    spot: Spot,
    /// Index of the current item in the held block.
    item: usize,
    /// The current key; between blocks, the key that the next item must lie beyond.
    key: Vec<u8>,
    /// Buffer for the next key.
    next_key: Vec<u8>,
    beyond_key: Beyond,
}

/// The data block that the cursor holds.
struct HeldBlock {
    address: BlockAddress,
    bytes: BlockRef,
    layout: Layout,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CursorState {
    /// Before the first seek, and past the last item.
    Ended,
    Standing,
    /// Moving to the target, which is in `key`.
    ToTarget(Target),
    /// Moving to the first item of a block, in the direction of the cursor.
    ToEdge,
    /// The held block has keys out of order.
    Disordered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Included,
    Excluded,
}

/// Whether the next item must lie beyond `key`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beyond {
    Anything,
    Key,
}

/// A block of a fence page, which may not be read yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spot {
    First,
    Last,
    /// The block that must hold the target's key.
    Target,
    Index(usize),
}

impl TableCursor {
    /// A cursor without a position until `seek`.
    pub(crate) fn new(table: Arc<TableReader>, direction: Direction) -> TableCursor {
        TableCursor {
            table,
            direction,
            state: CursorState::Ended,
            fences: None,
            held: None,
            needed: None,
            page: 0,
            spot: Spot::First,
            item: 0,
            key: Vec::new(),
            next_key: Vec::new(),
            beyond_key: Beyond::Anything,
        }
    }

    /// Turns to the first item from the bound on, in the cursor's direction. The caller polls next.
    pub(crate) fn seek(&mut self, bound: Bound<&[u8]>) {
        self.key.clear();
        self.beyond_key = Beyond::Anything;
        let (target, key) = match bound {
            Bound::Included(key) => (Target::Included, key),
            Bound::Excluded(key) => (Target::Excluded, key),
            Bound::Unbounded => {
                self.state = CursorState::ToEdge;
                (self.page, self.spot) = match self.direction {
                    Direction::Forward => (0, Spot::First),
                    Direction::Backward => (self.table.fence_pages() - 1, Spot::Last),
                };
                return;
            }
        };
        if !self.table.has_items_from(key, self.direction) {
            self.state = CursorState::Ended;
            return;
        }
        self.key.extend_from_slice(key);
        self.state = CursorState::ToTarget(target);
        self.page = self.table.fence_page_of(key);
        self.spot = Spot::Target;
    }

    /// After a seek: prefetches the fences for the search.
    pub(crate) fn prefetch_fences(&self) {
        if self.spot == Spot::Target {
            self.table.prefetch_fence(&self.key);
        }
    }

    /// After a seek: the block that the next poll needs first, as far as the pages at hand tell.
    pub(crate) fn target(&mut self) -> Option<BlockAddress> {
        if self.state == CursorState::Ended {
            return None;
        }
        let (index, address) = self.block_address(&self.table).ok()?;
        self.spot = Spot::Index(index);
        Some(address)
    }

    /// Reverses the cursor; the caller seeks next.
    #[cfg(test)]
    pub(crate) fn set_direction(&mut self, direction: Direction) {
        self.direction = direction;
        self.state = CursorState::Ended;
    }

    /// Leaves the current item for the next one. The caller polls next.
    pub(crate) fn advance(&mut self) {
        if self.state != CursorState::Standing
            || self.advance_in_block()
            || self.state == CursorState::Disordered
        {
            return;
        }
        self.beyond_key = Beyond::Key;
        self.leave_block();
    }

    /// Bytes of the blocks that the cursor holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes.len())
            + self.fences.as_ref().map_or(0, |(_, page)| page.len())
    }

    /// Moves to the next item if that is in the held block; otherwise does nothing.
    #[inline]
    pub(crate) fn advance_in_block(&mut self) -> bool {
        let (CursorState::Standing, Some(held)) = (self.state, &self.held) else { return false };
        let next = match self.direction {
            Direction::Forward => Some(self.item + 1).filter(|item| *item < held.layout.items()),
            Direction::Backward => self.item.checked_sub(1),
        };
        let Some(item) = next else { return false };
        if held.layout.leaves_places_out() {
            return self.advance_placed(item);
        }
        self.key.truncate(held.layout.prefix_bytes());
        self.key.extend_from_slice(held.layout.suffix(&held.bytes, item));
        self.item = item;
        true
    }

    /// Moves to another item of the held block, whose key has a place. If the two keys are out of order, the
    /// cursor stays, and `poll` returns the error.
    fn advance_placed(&mut self, item: usize) -> bool {
        let held = self.held.as_ref().expect("the cursor stands");
        self.next_key.clear();
        held.layout.put_key(&held.bytes, item, self.table.file().secret(), &mut self.next_key);
        if self.next_key.cmp(&self.key) != self.onward() {
            self.state = CursorState::Disordered;
            return false;
        }
        std::mem::swap(&mut self.key, &mut self.next_key);
        self.item = item;
        true
    }

    /// The order of a later key relative to an earlier one.
    fn onward(&self) -> Ordering {
        match self.direction {
            Direction::Forward => Ordering::Greater,
            Direction::Backward => Ordering::Less,
        }
    }

    /// The number of items of the held block after the current one; only when ready.
    #[inline]
    pub(crate) fn items_left(&self) -> usize {
        match self.direction {
            Direction::Forward => self.standing().layout.items() - 1 - self.item,
            Direction::Backward => self.item,
        }
    }

    /// Whether the held block has no delete; only when ready.
    pub(crate) fn is_all_puts(&self) -> bool {
        self.standing().layout.is_all_puts()
    }

    /// Sets `key` to the key of the item `items` after the current one; `items` is at most `items_left`. Only
    /// when ready.
    pub(crate) fn look_ahead(&self, items: usize, key: &mut Vec<u8>) {
        let held = self.standing();
        let item = match self.direction {
            Direction::Forward => self.item + items,
            Direction::Backward => self.item - items,
        };
        key.clear();
        held.layout.put_key(&held.bytes, item, self.table.file().secret(), key);
    }

    /// The block after the current one, if the same fence page lists it.
    pub(crate) fn following(&self) -> Option<BlockAddress> {
        let fences = self.table.fence_page(self.page, self.brought_page(self.page)).ok()??;
        let Spot::Index(index) = self.spot else { return None };
        let next = self.onward_in(&fences, index);
        next.map(|index| self.table.block(&fences, index))
    }

    /// Continues with `block`, the verified block that the last poll asked for; a block that is not needed
    /// any more is released.
    ///
    /// # Errors
    /// `Corrupt` if blocks or their keys are out of order; the caller seeks again or gives up.
    pub(crate) fn poll(&mut self, block: Option<BlockRef>) -> Result<Moved> {
        let mut brought = self.needed.take().zip(block);
        loop {
            match self.state {
                CursorState::Ended => return Ok(Moved::End),
                CursorState::Standing => return Ok(Moved::Ready),
                CursorState::Disordered => return Err(self.disordered("order of keys in a data block")),
                CursorState::ToTarget(_) | CursorState::ToEdge => {}
            }
            let table = Arc::clone(&self.table);
            let address = match self.block_address(&table) {
                Ok((index, address)) => {
                    self.spot = Spot::Index(index);
                    address
                }
                Err(address) => {
                    let Some(page) = take_if(&mut brought, &address) else { return Ok(self.need(address)) };
                    self.fences = Some((self.page, page));
                    continue;
                }
            };
            if self.held.as_ref().is_none_or(|held| held.address != address) {
                let Some(bytes) = take_if(&mut brought, &address) else { return Ok(self.need(address)) };
                let layout = Layout::of(&bytes);
                let is_strange = layout.leaves_places_out() && !table.tree().keyspace.is_hashed();
                self.held = Some(HeldBlock { address, bytes, layout });
                if is_strange {
                    return Err(self.disordered("keys of a data block without places"));
                }
            }
            self.land()?;
        }
    }

    fn need(&mut self, address: BlockAddress) -> Moved {
        self.needed = Some(address);
        Moved::Need(address)
    }

    /// The current key; only when ready.
    pub(crate) fn key(&self) -> &[u8] {
        debug_assert_eq!(self.state, CursorState::Standing, "a key needs an item");
        &self.key
    }

    /// The current item's kind; only when ready.
    pub(crate) fn kind(&self) -> ItemKind {
        let held = self.standing();
        held.layout.kind(&held.bytes, self.item)
    }

    /// The current value; only when ready.
    pub(crate) fn value(&self) -> &[u8] {
        let held = self.standing();
        &held.bytes[held.layout.value_range(&held.bytes, self.item)]
    }

    /// Up to `count` data blocks after the held or needed one, as far as the pages at hand tell.
    pub(crate) fn upcoming(&self, count: usize) -> Vec<BlockAddress> {
        let mut addresses = Vec::new();
        if self.state == CursorState::Ended {
            return addresses;
        }
        let Ok((index, _)) = self.block_address(&self.table) else { return addresses };
        // `None` at the beginning of a page.
        let (mut page, mut at) = (self.page, Some(index));
        while addresses.len() < count {
            let here = self.brought_page(page);
            let Ok(Some(fences)) = self.table.fence_page(page, here) else { break };
            let next = match (at, self.direction) {
                (Some(index), _) => self.onward_in(&fences, index),
                (None, Direction::Forward) => Some(0),
                (None, Direction::Backward) => Some(fences.last()),
            };
            at = next;
            match next {
                Some(index) => addresses.push(self.table.block(&fences, index)),
                None => {
                    let Some(next_page) = self.next_page(page) else { break };
                    page = next_page;
                }
            }
        }
        addresses
    }

    /// Block index and address of the spot, or the address of the fence page that lists it.
    fn block_address(&self, table: &TableReader) -> std::result::Result<(usize, BlockAddress), BlockAddress> {
        let Some(fences) = table.fence_page(self.page, self.brought_page(self.page))? else {
            return Ok((0, table.only_block()));
        };
        let index = match self.spot {
            Spot::First => 0,
            Spot::Last => fences.last(),
            Spot::Target => fences.find(&self.key, table.first_separator(self.page)),
            Spot::Index(index) => index.min(fences.last()),
        };
        Ok((index, table.block(&fences, index)))
    }

    /// The next block of the page in the direction of the cursor, if there is one.
    fn onward_in(&self, fences: &IndexPage<'_>, index: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => fences.after(index),
            Direction::Backward => fences.before(index),
        }
    }

    fn brought_page(&self, page: usize) -> Option<&[u8]> {
        self.fences.as_ref().filter(|(number, _)| *number == page).map(|(_, bytes)| &**bytes)
    }

    fn next_page(&self, page: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => Some(page + 1).filter(|page| *page < self.table.fence_pages()),
            Direction::Backward => page.checked_sub(1),
        }
    }

    /// Finds the item in the held block, or moves to the next block.
    fn land(&mut self) -> Result<()> {
        let held = self.held.as_ref().expect("poll brought the block");
        let (layout, bytes, secret) = (&held.layout, &held.bytes, self.table.file().secret());
        let found = match (self.state, self.direction) {
            (CursorState::ToTarget(Target::Included), Direction::Forward) => {
                layout.lower_bound_by(bytes, &self.key, secret)
            }
            (CursorState::ToTarget(Target::Excluded), Direction::Forward) => {
                layout.upper_bound_by(bytes, &self.key, secret)
            }
            // One less than the first item beyond the bound; 0 wraps to an index that no block has.
            (CursorState::ToTarget(Target::Included), Direction::Backward) => {
                layout.upper_bound_by(bytes, &self.key, secret).wrapping_sub(1)
            }
            (CursorState::ToTarget(Target::Excluded), Direction::Backward) => {
                layout.lower_bound_by(bytes, &self.key, secret).wrapping_sub(1)
            }
            (_, Direction::Forward) => 0,
            (_, Direction::Backward) => layout.items() - 1,
        };
        if found >= layout.items() {
            self.beyond_key = Beyond::Key;
            self.leave_block();
            return Ok(());
        }
        self.next_key.clear();
        layout.put_key(bytes, found, secret, &mut self.next_key);
        if self.state == CursorState::ToEdge
            && self.beyond_key == Beyond::Key
            && self.next_key.cmp(&self.key) != self.onward()
        {
            return Err(self.disordered("order of keys between blocks"));
        }
        std::mem::swap(&mut self.key, &mut self.next_key);
        self.item = found;
        self.state = CursorState::Standing;
        Ok(())
    }

    /// Ends the cursor: the held block has keys out of order.
    fn disordered(&mut self, what: &'static str) -> Error {
        self.state = CursorState::Ended;
        let address = self.held.as_ref().expect("a block was at hand").address;
        Error::corrupt(address.file, address.offset, what, "ascending", "not")
    }

    /// Turns to the next block in the direction of the cursor.
    fn leave_block(&mut self) {
        self.state = CursorState::ToEdge;
        let Spot::Index(index) = self.spot else { unreachable!("a block was at hand") };
        let fences = self.table.fence_page(self.page, self.brought_page(self.page)).ok().flatten();
        let next = fences.and_then(|fences| self.onward_in(&fences, index));
        match (next, self.next_page(self.page)) {
            (Some(index), _) => self.spot = Spot::Index(index),
            (None, Some(page)) => {
                self.page = page;
                self.spot = match self.direction {
                    Direction::Forward => Spot::First,
                    Direction::Backward => Spot::Last,
                };
            }
            (None, None) => self.state = CursorState::Ended,
        }
    }

    fn standing(&self) -> &HeldBlock {
        debug_assert_eq!(self.state, CursorState::Standing, "an item was asked for where there is none");
        self.held.as_ref().expect("a cursor that stands holds a block")
    }
}

/// The supplied block, if it is the one at `address`.
fn take_if(brought: &mut Option<(BlockAddress, BlockRef)>, address: &BlockAddress) -> Option<BlockRef> {
    brought.take().filter(|(needed, _)| needed == address).map(|(_, block)| block)
}

impl std::fmt::Debug for TableCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableCursor({:?} {:?} {:?})", self.table, self.direction, self.state)
    }
}
