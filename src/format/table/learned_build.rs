//! Learned pages, writing side: trains a model on the next items and divides them into data blocks by it, one
//! page at a time. If no model suits the keys of a page, the page is refused and its blocks get fences.
//!
//! The caller collects items of more than a page's blocks, plans a page, writes the planned blocks, and
//! encodes the page with their lengths. Items behind the plan's items belong to the next page. A plan that
//! takes all items may have room for more. Then [`Refusal::Short`] asks for more items; the caller collects
//! them and plans again. One thread.
//!
//! Training takes one pass over the codes of the keys. The page ends when its knots and blocks fill it.
//!
//! Invariants: 1. a block of a plan holds exactly the items for which the page's `find` returns this block;
//! 2. no block has more than twice the target beside its largest item; 3. the page takes at most
//! [`GAIN_PERCENT`] of the bytes of a fence page for the same blocks.

use std::ops::Range;

use crate::base::key::common_prefix;
use crate::base::step::BlockKind;
use crate::learn::alphabet::{POSITIONS_MAX, Symbols, TrainedAlphabets};
use crate::learn::code::{CodeDigits, KeyCode};
use crate::learn::spline::{Knot, SplineTrainer, predict};

use super::fence;
use super::learned::{GROUP, HEADER_BYTES, LEARNED, PARTS, PageCode, WIDE_CODES, block_of, column_bytes};
use super::{PAGE_BYTES, UNIT_BYTES};

/// Maximum bytes of a page, in percent of a fence page for the same blocks.
const GAIN_PERCENT: usize = 75;
/// Maximum share of empty blocks in a page, in percent.
const EMPTY_PERCENT: usize = 5;
/// Maximum bytes that an item's kind and wide ends take in a block, beside [`LearnedItems::bytes`].
const END_BYTES_MAX: usize = 8;
/// Maximum bytes of items in a block: with a header it then has at most 255 units.
const EXTENT_BYTES_MAX: usize = 254 * UNIT_BYTES;
/// Largest target of a block.
const TARGET_BYTES_MAX: usize = 60 << 10;

/// Items in key order. A page takes as many of them as its model reaches.
pub(crate) trait LearnedItems {
    fn count(&self) -> usize;

    fn key(&self, index: usize) -> &[u8];

    /// Bytes that the item adds to a block.
    fn bytes(&self, index: usize) -> usize;

    /// Whether these are the last items of the slice.
    fn are_last(&self) -> bool;
}

/// The layout options of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearnedOptions<'o> {
    /// Bytes of items that a block aims at.
    pub(crate) target_bytes: usize,
    /// Maximum error of a model, in 32nds of a block.
    pub(crate) error: u16,
    /// Codes to try. The code whose page takes the fewest bytes wins.
    pub(crate) codes: &'o [PageCode],
}

/// The reason for which a page has no model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Too few items for two blocks, or a target that is too large.
    Few,
    /// The page has room, and more items follow, with which a model may pay off.
    Short,
    /// Bytes of items with equal codes.
    Ties { bytes: usize },
    /// Bytes of items that a block would have.
    LongBlock { bytes: usize },
    /// Number of empty blocks among all blocks that the page would have.
    EmptyBlocks { empty: usize, blocks: usize },
    /// Bytes that the page would take, and bytes of fences.
    NoGain { bytes: usize, fence_bytes: usize },
}

/// A page whose blocks are determined.
#[derive(Clone, Debug)]
pub(crate) struct LearnedPlan {
    code: PageCode,
    alphabets: TrainedAlphabets,
    prefix_bytes: usize,
    separator_bytes: usize,
    least: u64,
    shift: u32,
    is_wide: bool,
    knots: Vec<Knot>,
    target_bytes: usize,
    error: u16,
    /// For each block, the number of items up to its end.
    block_ends: Vec<usize>,
    item_bytes: usize,
    /// Bytes of the items with equal codes before which the page ended.
    ties: Option<usize>,
    /// Bytes of the page in the file.
    page_bytes: usize,
}

/// Plans the page that begins with the first item. `last_before`: the last key before it in this slice.
pub(crate) fn plan(
    items: &impl LearnedItems,
    last_before: Option<&[u8]>,
    options: &LearnedOptions<'_>,
) -> Result<LearnedPlan, Refusal> {
    if items.count() < 2 || options.target_bytes > TARGET_BYTES_MAX {
        return Err(Refusal::Few);
    }
    let batch = Batch::of(items, last_before, options);
    let mut best: Result<LearnedPlan, Refusal> = Err(Refusal::Few);
    for code in options.codes {
        let numbers = batch.numbers(*code);
        let narrow = batch.plan(&numbers, false);
        // 32-bit codes are distinct for nearly all keys, in most cases.
        let has_ties = match &narrow {
            Ok(plan) => plan.ties.is_some(),
            Err(refusal) => matches!(refusal, Refusal::Ties { .. } | Refusal::LongBlock { .. }),
        };
        best = better(best, narrow);
        if has_ties {
            best = better(best, batch.plan(&numbers, true));
        }
    }
    best
}

/// The plan that takes fewer bytes for each byte of items.
fn better(
    one: Result<LearnedPlan, Refusal>,
    other: Result<LearnedPlan, Refusal>,
) -> Result<LearnedPlan, Refusal> {
    match (one, other) {
        (Ok(one), Ok(other)) if other.page_bytes * one.item_bytes < one.page_bytes * other.item_bytes => {
            Ok(other)
        }
        (Ok(one), _) => Ok(one),
        (Err(_), other) => other,
    }
}

/// The items that a page may take, with values that all codes share.
struct Batch<'i, I> {
    items: &'i I,
    options: &'i LearnedOptions<'i>,
    prefix_bytes: usize,
    /// For each item, the bytes of the common prefix of its key and the previous key.
    shared: Vec<usize>,
    separator_bytes: usize,
}

/// Numbers of all items' keys by one code.
struct Numbers {
    code: PageCode,
    alphabets: TrainedAlphabets,
    of_items: Vec<u64>,
}

impl<'i, I: LearnedItems> Batch<'i, I> {
    fn of(items: &'i I, last_before: Option<&[u8]>, options: &'i LearnedOptions<'i>) -> Batch<'i, I> {
        let first = items.key(0);
        let prefix_bytes = common_prefix(first, items.key(items.count() - 1));
        let separator_bytes = last_before.map_or(first.len(), |last| common_prefix(last, first) + 1);
        let shared = |index: usize| match index {
            0 => 0,
            _ => common_prefix(items.key(index - 1), items.key(index)),
        };
        Batch {
            items,
            options,
            prefix_bytes,
            shared: (0..items.count()).map(shared).collect(),
            // The separator contains the prefix of all keys, and stays a prefix of the first key.
            separator_bytes: separator_bytes.max(prefix_bytes),
        }
    }

    fn numbers(&self, code: PageCode) -> Numbers {
        let symbols = match code {
            PageCode::Head => None,
            PageCode::Span => Some(Symbols::Span),
            PageCode::Seen => Some(Symbols::Seen),
        };
        let rests = (0..self.items.count()).map(|index| &self.items.key(index)[self.prefix_bytes..]);
        let alphabets = symbols.map(|symbols| {
            let mut alphabets = TrainedAlphabets::train(rests, symbols, POSITIONS_MAX);
            let within = |shared: &usize| *shared - self.prefix_bytes < alphabets.positions();
            // Positions behind the last one at which adjacent keys first differ distinguish no keys.
            let parting = self.shared[1..].iter().filter(|shared| within(shared)).max();
            let positions = parting.map_or(0, |shared| shared - self.prefix_bytes + 1);
            alphabets.truncate(positions);
            alphabets
        });
        let mut numbers = Numbers { code, alphabets: alphabets.unwrap_or_default(), of_items: Vec::new() };
        let key_code = numbers.key_code(&self.items.key(0)[..self.prefix_bytes]);
        let of_items = (0..self.items.count()).map(|index| key_code.number(self.items.key(index))).collect();
        numbers.of_items = of_items;
        numbers
    }

    /// Plans a page with these numbers, and with codes of four or of eight bytes.
    fn plan(&self, numbers: &Numbers, is_wide: bool) -> Result<LearnedPlan, Refusal> {
        let least = numbers.of_items[0];
        let range = numbers.of_items[self.items.count() - 1] - least;
        let bits = u64::BITS - range.leading_zeros();
        let plan = LearnedPlan {
            code: numbers.code,
            alphabets: numbers.alphabets.clone(),
            prefix_bytes: self.prefix_bytes,
            separator_bytes: self.separator_bytes,
            least,
            shift: if is_wide { 0 } else { bits.saturating_sub(u32::BITS) },
            is_wide,
            knots: Vec::new(),
            target_bytes: self.options.target_bytes,
            error: self.options.error,
            block_ends: Vec::new(),
            item_bytes: 0,
            ties: None,
            page_bytes: 0,
        };
        let mut plan = self.train(plan, &numbers.of_items)?;
        self.check_blocks(&plan)?;
        let gain = self.check_gain(&mut plan);
        match (gain, plan.ties) {
            (Ok(()), _) => Ok(plan),
            (Err(_), Some(bytes)) => Err(Refusal::Ties { bytes }),
            (Err(refusal), None) => Err(refusal),
        }
    }

    /// Adds knots until the page is full, and then determines the ends of blocks.
    fn train(&self, mut plan: LearnedPlan, numbers: &[u64]) -> Result<LearnedPlan, Refusal> {
        let mut trainer = SplineTrainer::new(u32::from(plan.error));
        let (mut last, mut count) = (None, 0);
        while count < numbers.len() {
            let code_of = |number: u64| (number - plan.least) >> plan.shift;
            let code = code_of(numbers[count]);
            let position = plan.item_bytes as u64 * u64::from(PARTS) / plan.target_bytes as u64;
            let Ok(position) = u16::try_from(position) else { break };
            let unit = Knot { code, position: u32::from(position) };
            let behind = numbers[count..].iter().take_while(|number| code_of(**number) == code).count();
            let bytes = (count..count + behind).map(|index| self.items.bytes(index)).sum::<usize>();
            if behind > 1 && bytes > plan.target_bytes / 2 {
                plan.ties = Some(bytes);
                break;
            }
            plan.knots.extend(trainer.add(unit));
            let knots = plan.knots.len() + usize::from(plan.knots.last() != Some(&unit));
            if plan.used_bytes(knots, block_of(unit.position) + 1) > PAGE_BYTES {
                break;
            }
            last = Some(unit);
            count += behind;
            plan.item_bytes += bytes;
        }
        let Some(last) = last.filter(|last: &Knot| last.position >= PARTS) else {
            return Err(plan.ties.map_or(Refusal::Few, |bytes| Refusal::Ties { bytes }));
        };
        // The point that did not fit may already have made the last point a knot.
        if plan.knots.last() != Some(&last) {
            plan.knots.push(last);
        }
        plan.block_ends = vec![0; block_of(last.position) + 1];
        for (index, number) in numbers[..count].iter().enumerate() {
            let code = (number - plan.least) >> plan.shift;
            plan.block_ends[block_of(predict(&plan.knots[..], code))] = index + 1;
        }
        // An empty block ends where the previous block ends.
        for block in 1..plan.block_ends.len() {
            plan.block_ends[block] = plan.block_ends[block].max(plan.block_ends[block - 1]);
        }
        Ok(plan)
    }

    fn check_blocks(&self, plan: &LearnedPlan) -> Result<(), Refusal> {
        let mut empty = 0;
        for block in 0..plan.blocks() {
            let items = plan.block(block);
            empty += usize::from(items.is_empty());
            let bytes = items.clone().map(|index| self.items.bytes(index)).sum::<usize>();
            let items_count = items.len();
            let largest = items.map(|index| self.items.bytes(index)).max().unwrap_or(0);
            let at_most = bytes + items_count * END_BYTES_MAX;
            if bytes - largest > 2 * plan.target_bytes || at_most > EXTENT_BYTES_MAX {
                return Err(Refusal::LongBlock { bytes });
            }
        }
        if empty * 100 > plan.blocks() * EMPTY_PERCENT {
            return Err(Refusal::EmptyBlocks { empty, blocks: plan.blocks() });
        }
        Ok(())
    }

    /// Compares the page's bytes with those of a fence page for the same blocks, all of one length.
    fn check_gain(&self, plan: &mut LearnedPlan) -> Result<(), Refusal> {
        let (mut separators, mut tail_bytes) = (0, 0);
        for block in 1..plan.blocks() {
            let items = plan.block(block);
            if items.is_empty() {
                continue;
            }
            separators += 1;
            let rest = self.shared[items.start] + 1 - self.prefix_bytes;
            tail_bytes += rest.saturating_sub(fence::HEAD_BYTES);
        }
        let ends = if tail_bytes > 0 { 4 } else { 2 };
        let fence_bytes = fence::HEADER_BYTES + separators * (fence::HEAD_BYTES + ends) + tail_bytes;
        // A page before the last one takes all 4096 bytes.
        let is_last = self.items.are_last() && plan.items() == self.items.count();
        let used = plan.used_bytes(plan.knots.len(), plan.blocks());
        let bytes = if is_last { used } else { PAGE_BYTES };
        plan.page_bytes = bytes;
        if bytes * 100 > fence_bytes * GAIN_PERCENT {
            if !is_last && plan.items() == self.items.count() {
                return Err(Refusal::Short);
            }
            return Err(Refusal::NoGain { bytes, fence_bytes });
        }
        Ok(())
    }
}

impl Numbers {
    fn key_code<'c>(&'c self, prefix: &'c [u8]) -> KeyCode<'c> {
        let digits = match self.code {
            PageCode::Head => CodeDigits::Head,
            PageCode::Span | PageCode::Seen => CodeDigits::Alphabets(self.alphabets.view()),
        };
        KeyCode { prefix, digits, least: 0, shift: 0 }
    }
}

impl LearnedPlan {
    /// Unused bytes of the page.
    #[cfg(any(test, feature = "lab"))]
    pub(crate) fn room_bytes(&self) -> usize {
        PAGE_BYTES - self.used_bytes(self.knots.len(), self.blocks())
    }

    pub(crate) fn code(&self) -> PageCode {
        self.code
    }

    /// Number of items of the page, counted from the first item.
    pub(crate) fn items(&self) -> usize {
        self.block_ends.last().copied().unwrap_or(0)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.block_ends.len()
    }

    /// Items of a block; an empty range for an empty block.
    pub(crate) fn block(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.block_ends[before]);
        start..self.block_ends[index]
    }

    /// Bytes of the first key that form the page's separator in the top block.
    pub(crate) fn separator_bytes(&self) -> usize {
        self.separator_bytes
    }

    /// The page, not sealed and not padded. `offset`: offset of the first block; `units`: units of each
    /// block's extent, zero for an empty block.
    ///
    /// # Panics
    /// If `units` has not one number for each block, or a number exceeds 255.
    pub(crate) fn encode(&self, offset: u64, units: &[usize]) -> Vec<u8> {
        assert_eq!(units.len(), self.blocks(), "each block has units");
        let alphabets = self.alphabets.view();
        let mut out = vec![0, 0, 0, 0, BlockKind::Fence as u8, LEARNED];
        out[5] |= if self.is_wide { WIDE_CODES } else { 0 };
        out.extend_from_slice(&half(self.blocks()));
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&self.least.to_le_bytes());
        out.extend_from_slice(&half(self.prefix_bytes));
        out.extend_from_slice(&half(self.knots.len()));
        let positions = self.alphabets.positions();
        let absent_from = alphabets.absent_from.min(positions);
        for byte in [self.code as usize, positions, absent_from, self.shift as usize] {
            out.push(u8::try_from(byte).expect("each of them is below 65"));
        }
        out.extend_from_slice(&(self.target_bytes as u32).to_le_bytes());
        out.extend_from_slice(&half(alphabets.runs.len()));
        out.extend_from_slice(&self.error.to_le_bytes());
        out.extend_from_slice(alphabets.counts);
        out.extend_from_slice(alphabets.runs.as_flattened());
        for knot in &self.knots {
            let code = knot.code.to_le_bytes();
            out.extend_from_slice(if self.is_wide { &code } else { &code[..4] });
        }
        self.knots.iter().for_each(|knot| out.extend_from_slice(&half(knot.position as usize)));
        out.extend(units.iter().map(|units| u8::try_from(*units).expect("blocks are short")));
        for start in (GROUP..self.blocks()).step_by(GROUP) {
            let before = units[..start].iter().sum::<usize>();
            out.extend_from_slice(&u32::try_from(before).expect("a slice is below 4 GiB").to_le_bytes());
        }
        assert_eq!(out.len(), self.used_bytes(self.knots.len(), self.blocks()), "columns have their lengths");
        out
    }

    /// Bytes of a page with these numbers of knots and blocks.
    fn used_bytes(&self, knots: usize, blocks: usize) -> usize {
        let alphabets = (self.alphabets.positions(), self.alphabets.view().runs.len());
        HEADER_BYTES + column_bytes(alphabets, (knots, self.is_wide), blocks).iter().sum::<usize>()
    }
}

fn half(value: usize) -> [u8; 2] {
    u16::try_from(value).expect("a page is too small for more").to_le_bytes()
}
