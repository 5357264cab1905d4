//! Items of a slice that wait until there are enough for a learned page, whose blocks are laid out all at
//! once. The builder adds and removes items. One thread. Memory: the items, up to a limit, with 40 bytes
//! each.

use crate::base::id::ItemKind;
use crate::format::table::data_build::ALONE_VALUE_BYTES_MIN;
use crate::format::table::learned::PageCode;
use crate::format::table::learned_build::{self, LearnedItems, LearnedOptions, LearnedPlan, Refusal};

/// A learned page lists a thousand blocks or more; for fewer bytes fences take less.
pub(super) const GATHER_BYTES_MAX: usize = 4 << 20;
/// Bytes of an item in a block beside its key and value: a tag and about one end.
const ITEM_BYTES: usize = 3;
/// Memory of an item while a page is planned, beside its bytes.
const ITEM_MEMORY_BYTES: usize = 40;
/// The least blocks that must fit the limit: with fewer, only very small slices could have a learned page.
const BLOCKS_MIN: usize = 32;
/// The models' error bound, in 32nds of a block: half a block.
const ERROR: u16 = 16;
/// After so many refusals in a row the rest of the slice gets fences.
const REFUSALS_MAX: u32 = 2;
const CODES: [PageCode; 3] = [PageCode::Head, PageCode::Span, PageCode::Seen];
/// After so many pages in a row with the code that was best before, all codes are tried again.
const ALIKE_MAX: u32 = 8;

/// A waiting item.
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
    /// Items with values so large that fences have their whole keys.
    large: usize,
    refusals: u32,
    /// The best code when all were tried last, and the number of pages with it since.
    code: Option<(PageCode, u32)>,
}

impl Gathered {
    /// Gathers for a slice with blocks of `target_bytes`; `None` if too few such blocks fit the limit.
    pub(super) fn new(target_bytes: usize, limit_bytes: usize) -> Option<Gathered> {
        let limit_bytes = limit_bytes.min(GATHER_BYTES_MAX);
        let gathered = Gathered { target_bytes, limit_bytes, ..Gathered::default() };
        (limit_bytes / target_bytes >= BLOCKS_MIN).then_some(gathered)
    }

    pub(super) fn push(&mut self, key: &[u8], tag: u8, kind: ItemKind, value: &[u8]) {
        let key_at = self.bytes.len();
        self.make_room(key.len() + value.len());
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

    /// Grows in steps, so that memory exceeds the limit by an eighth at most.
    fn make_room(&mut self, bytes: usize) {
        let step = self.limit_bytes / 8;
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.bytes.reserve_exact(bytes.max(step));
        }
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact((step / (size_of::<Waiting>() + ITEM_MEMORY_BYTES)).max(1));
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.memory_used() >= self.limit_bytes
    }

    /// Whether gathering is still useful for the rest of the slice.
    pub(super) fn is_of_use(&self) -> bool {
        self.refusals < REFUSALS_MAX
    }

    /// Bytes of the items, with the memory that they and their planning need beside.
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

    /// Lays out the blocks of a page from the first item on. `last_before`: the key before that item.
    pub(super) fn plan(&mut self, last_before: Option<&[u8]>, are_last: bool) -> Option<LearnedPlan> {
        self.are_last = are_last;
        let options = |codes| LearnedOptions { target_bytes: self.target_bytes, error: ERROR, codes };
        let plan = |codes| learned_build::plan(self, last_before, &options(codes));
        // The keys of a file are mostly of one kind, and one code costs a third of trying all.
        let (code, pages) = self.code.filter(|(_, pages)| *pages < ALIKE_MAX).unzip();
        let planned = match (self.large, code) {
            (1.., _) => Err(Refusal::Few),
            (0, None) => plan(&CODES),
            (0, Some(code)) => plan(&[code]).or_else(|_| plan(&CODES)),
        };
        match planned {
            Ok(plan) => {
                let is_same = code == Some(plan.code());
                self.code = Some((plan.code(), if is_same { pages.unwrap_or(0) + 1 } else { 0 }));
                self.refusals = 0;
                Some(plan)
            }
            Err(refusal) => {
                log::trace!("fences in place of a model: {refusal:?}");
                // If all items within the limit fill no page, the next items will not either.
                self.refusals += if refusal == Refusal::Short { REFUSALS_MAX } else { 1 };
                None
            }
        }
    }

    /// Removes the first items.
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
