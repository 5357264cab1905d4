//! Items of a slice that wait until there are enough for a learned page, whose blocks are laid out all at
//! once. The builder fills it and takes from it. One thread. Memory: the items, up to a limit, and 32 bytes
//! each.

use crate::base::id::ItemKind;
use crate::format::table::data_build::ALONE_VALUE_BYTES_MIN;
use crate::format::table::learned::PageCode;
use crate::format::table::learned_build::{self, LearnedItems, LearnedOptions, LearnedPlan, Refusal};

/// A page of a model lists a thousand blocks and more; of fewer bytes fences take less.
pub(super) const GATHER_BYTES_MAX: usize = 4 << 20;
/// Beside its key and value an item takes a tag and about one end.
const ITEM_BYTES: usize = 3;
/// What an item takes in memory while a page is planned, beside its bytes.
const ITEM_MEMORY_BYTES: usize = 40;
/// Fewer blocks gain nothing by a page of their own.
const BLOCKS_MIN: usize = 400;
/// Error of models, in 32nds of a block: half of one.
const ERROR: u16 = 16;
/// After so many refusals in a row a slice gets fences to its end.
const REFUSALS_MAX: u32 = 2;
const CODES: [PageCode; 3] = [PageCode::Head, PageCode::Span, PageCode::Seen];

/// An item that waits.
#[derive(Clone, Copy)]
struct Waiting {
    key_at: usize,
    key_bytes: u32,
    value_bytes: u32,
    tag: u8,
    kind: ItemKind,
}

/// See the module.
#[derive(Default)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    items: Vec<Waiting>,
    limit_bytes: usize,
    target_bytes: usize,
    are_last: bool,
    /// Items with values so large that fences say their whole keys.
    large: usize,
    refusals: u32,
}

impl Gathered {
    /// Of a slice whose blocks aim at `target_bytes`; `None` where too few of them are within the limit.
    pub(super) fn new(target_bytes: usize, limit_bytes: usize) -> Option<Gathered> {
        let limit_bytes = limit_bytes.min(GATHER_BYTES_MAX);
        let gathered = Gathered { target_bytes, limit_bytes, ..Gathered::default() };
        (limit_bytes / target_bytes >= BLOCKS_MIN).then_some(gathered)
    }

    pub(super) fn push(&mut self, key: &[u8], tag: u8, kind: ItemKind, value: &[u8]) {
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let few = |count: usize| u32::try_from(count).expect("keys and values are below 4 GiB");
        self.large += usize::from(value.len() >= ALONE_VALUE_BYTES_MIN);
        self.items.push(Waiting {
            key_at,
            key_bytes: few(key.len()),
            value_bytes: few(value.len()),
            tag,
            kind,
        });
    }

    pub(super) fn is_full(&self) -> bool {
        self.memory_used() >= self.limit_bytes
    }

    /// Whether it is of use to the rest of the slice.
    pub(super) fn is_of_use(&self) -> bool {
        self.refusals < REFUSALS_MAX
    }

    /// Bytes of items, with what they and their planning take beside.
    fn memory_used(&self) -> usize {
        self.bytes.len() + self.items.len() * ITEM_MEMORY_BYTES
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Waiting>()
    }

    /// Bytes of keys and values.
    pub(super) fn pending_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Key, tag, kind and value of an item.
    pub(super) fn item(&self, index: usize) -> (&[u8], u8, ItemKind, &[u8]) {
        let Waiting { key_at, key_bytes, value_bytes, tag, kind } = self.items[index];
        let value_at = key_at + key_bytes as usize;
        (&self.bytes[key_at..value_at], tag, kind, &self.bytes[value_at..value_at + value_bytes as usize])
    }

    /// The blocks of a page from the first item on. `last_before`: the key before it.
    pub(super) fn plan(&mut self, last_before: Option<&[u8]>, are_last: bool) -> Option<LearnedPlan> {
        self.are_last = are_last;
        let options = LearnedOptions { target_bytes: self.target_bytes, error: ERROR, codes: &CODES };
        let planned = match self.large {
            0 => learned_build::plan(self, last_before, &options),
            _ => Err(Refusal::Few),
        };
        match planned {
            Ok(plan) => {
                self.refusals = 0;
                Some(plan)
            }
            Err(refusal) => {
                log::trace!("fences in place of a model: {refusal:?}");
                self.refusals += 1;
                None
            }
        }
    }

    /// Forgets the first items.
    pub(super) fn forget(&mut self, count: usize) {
        let bytes = self.items.get(count).map_or(self.bytes.len(), |item| item.key_at);
        let is_large = |item: &&Waiting| item.value_bytes as usize >= ALONE_VALUE_BYTES_MIN;
        self.large -= self.items[..count].iter().filter(is_large).count();
        self.bytes.drain(..bytes);
        self.items.drain(..count);
        self.items.iter_mut().for_each(|item| item.key_at -= bytes);
    }
}

impl LearnedItems for Gathered {
    fn count(&self) -> usize {
        self.items.len()
    }

    fn key(&self, index: usize) -> &[u8] {
        self.item(index).0
    }

    fn bytes(&self, index: usize) -> usize {
        let Waiting { key_bytes, value_bytes, .. } = self.items[index];
        (key_bytes + value_bytes) as usize + ITEM_BYTES
    }

    fn are_last(&self) -> bool {
        self.are_last
    }
}
