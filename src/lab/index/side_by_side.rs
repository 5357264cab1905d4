//! The public interface: three indexes over one list of items, their sizes, and lookups in them.

use crate::format::table::UNIT_BYTES;
use crate::format::table::fence::{Extent, FencePage, FenceShape};
use crate::format::table::learned::{LearnedBeside, LearnedPage, LearnedShape, PageCode};
use crate::format::table::learned_build::LearnedOptions;
use crate::format::table::top::{self, Top};
use crate::learn::alphabet::{Alphabets, DigitTables};
use crate::learn::two_layer::{Overflow, TwoLayerModel, TwoLayerOptions};

use super::layout::{IndexLayout, LaidBlock, LaidPage, LayoutItems, Refusals, fenced, learned};
use super::string_block::{StringEntry, StringIndexBlock, short_successor, shortest_separator};

/// An index of data blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockIndexKind {
    /// A string index block like RocksDB's, over blocks cut by size.
    Strings,
    /// Fence pages, over blocks cut by size.
    Fences,
    /// Learned pages, and fence pages where models are refused, over blocks laid out by the models.
    Learned,
}

/// Options for blocks and indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockIndexOptions {
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Target length of a data block in bytes: whole units of 512.
    pub block_bytes: usize,
    /// Error bound of the models, in 32nds of a block.
    pub model_error: u16,
    /// Items between two restarts of the string index block. RocksDB's default is 1.
    pub restart_interval: usize,
}

impl Default for BlockIndexOptions {
    fn default() -> BlockIndexOptions {
        BlockIndexOptions { value_bytes: 100, block_bytes: 4096, model_error: 16, restart_interval: 1 }
    }
}

/// A data block. Its bytes are zero if it is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedBlock {
    /// Offset of the block; the first block has offset 0.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// Sizes of an index and of the blocks below it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockIndexStats {
    /// Data blocks that are not empty.
    pub blocks: u64,
    /// Data blocks without items.
    pub empty_blocks: u64,
    /// Bytes of all data blocks.
    pub data_bytes: u64,
    /// The longest data block.
    pub block_bytes_max: u64,
    /// Bytes of the index in a file, its top block included.
    pub index_bytes: u64,
    /// Number of index pages, of which `learned_pages` are learned.
    pub pages: u64,
    /// See `pages`.
    pub learned_pages: u64,
    /// Blocks of learned pages, empty ones included.
    pub learned_blocks: u64,
    /// Bytes of learned pages without their padding.
    pub learned_bytes: u64,
    /// Bytes of the digit tables in memory, kept beside the pages. Pages with equal alphabets share one.
    pub table_bytes: u64,
    /// Knots of learned pages.
    pub knots: u64,
    /// Most bytes of a key that a learned page examines.
    pub positions_max: u64,
    /// Learned pages by code: the first eight bytes, SNBC, SNBC by ranks.
    pub codes: [u64; 3],
    /// Stretches of fences by reason: keys with equal codes, long blocks, empty blocks, and fences of no
    /// larger size.
    pub refused: [u64; 4],
}

/// Three indexes of the same items.
pub struct BlockIndexes {
    strings: StringIndexBlock,
    fences: PagedIndex,
    learned: PagedIndex,
}

/// Pages below a top block, in memory in the form that the store keeps.
struct PagedIndex {
    layout: IndexLayout,
    top: Top,
    top_bytes: usize,
    shapes: Vec<PageShape>,
    /// One for each distinct set of alphabets.
    tables: Vec<DigitTables>,
}

/// The in-memory structures of a resident page.
enum PageShape {
    Fences(FenceShape, Vec<u64>),
    /// The last field is the index of its tables.
    Learned(LearnedShape, Vec<u64>, Option<usize>),
}

impl BlockIndexes {
    /// Builds the indexes over ascending keys.
    ///
    /// # Panics
    /// If there are no keys, they do not ascend, or blocks are not whole units.
    pub fn build(keys: &[Vec<u8>], options: BlockIndexOptions) -> BlockIndexes {
        assert!(keys.is_sorted_by(|a, b| a < b) && !keys.is_empty(), "keys ascend");
        let items = LayoutItems { keys, value_bytes: options.value_bytes };
        let by_size = fenced(items, options.block_bytes);
        let strings = strings(keys, &by_size.blocks, options.restart_interval);
        let learned_options = LearnedOptions {
            target_bytes: options.block_bytes,
            error: options.model_error,
            codes: &[PageCode::Head, PageCode::Span, PageCode::Seen],
        };
        let by_model = learned(items, options.block_bytes, &learned_options);
        BlockIndexes { strings, fences: PagedIndex::new(by_size), learned: PagedIndex::new(by_model) }
    }

    /// The block that must hold the key; `None` if the index shows that no block has it.
    pub fn find(&self, kind: BlockIndexKind, key: &[u8]) -> Option<IndexedBlock> {
        let extent = match kind {
            BlockIndexKind::Strings => {
                let (offset, bytes) = self.strings.find(key)?;
                return Some(IndexedBlock { offset, bytes });
            }
            BlockIndexKind::Fences => self.fences.find(key),
            BlockIndexKind::Learned => self.learned.find(key),
        };
        (extent.bytes > 0).then_some(IndexedBlock { offset: extent.offset, bytes: extent.bytes.into() })
    }

    /// The block of item `number` in the layout.
    pub fn block_of(&self, kind: BlockIndexKind, number: usize) -> IndexedBlock {
        let blocks = &self.layout(kind).blocks;
        let block = blocks.partition_point(|block| block.end <= number);
        let LaidBlock { extent, .. } = blocks[block];
        IndexedBlock { offset: extent.offset, bytes: extent.bytes.into() }
    }

    /// Sizes.
    pub fn stats(&self, kind: BlockIndexKind) -> BlockIndexStats {
        match kind {
            BlockIndexKind::Strings => {
                BlockIndexStats { index_bytes: self.strings.bytes() as u64, pages: 0, ..self.fences.stats() }
            }
            BlockIndexKind::Fences => self.fences.stats(),
            BlockIndexKind::Learned => self.learned.stats(),
        }
    }

    fn layout(&self, kind: BlockIndexKind) -> &IndexLayout {
        match kind {
            BlockIndexKind::Strings | BlockIndexKind::Fences => &self.fences.layout,
            BlockIndexKind::Learned => &self.learned.layout,
        }
    }
}

/// Builds the string index block over `blocks`.
fn strings(keys: &[Vec<u8>], blocks: &[LaidBlock], restart_interval: usize) -> StringIndexBlock {
    let separator = |block: &LaidBlock| match keys.get(block.end) {
        Some(next) => shortest_separator(&keys[block.end - 1], next),
        None => short_successor(&keys[block.end - 1]),
    };
    let separators: Vec<Vec<u8>> = blocks.iter().map(separator).collect();
    let entries = blocks.iter().zip(&separators).map(|(block, separator)| StringEntry {
        separator,
        offset: block.extent.offset,
        size: block.extent.bytes.into(),
    });
    StringIndexBlock::build(entries, restart_interval.max(1))
}

impl PagedIndex {
    fn new(mut layout: IndexLayout) -> PagedIndex {
        let block = top::encode(layout.pages.iter().map(|page| page.separator.as_slice()));
        let top = Top::decode(&block, layout.pages.len() as u32).expect("it was encoded just now");
        for page in &mut layout.pages {
            page.bytes.resize(page.bytes.len().next_multiple_of(UNIT_BYTES), 0);
        }
        let mut known: Vec<Alphabets<'_>> = Vec::new();
        let shape = |page| shape(page, &mut known);
        let shapes = layout.pages.iter().map(shape).collect();
        let tables = known.into_iter().map(DigitTables::of).collect();
        PagedIndex { layout, top, top_bytes: block.len(), shapes, tables }
    }

    fn find(&self, key: &[u8]) -> Extent {
        let number = self.top.find(key);
        let (bytes, first) = (&self.layout.pages[number].bytes, self.top.separator(number));
        match &self.shapes[number] {
            PageShape::Fences(shape, samples) => {
                let page = FencePage::shaped(bytes, *shape, samples);
                page.extent(page.find(key, first))
            }
            PageShape::Learned(shape, samples, tables) => {
                let tables = tables.map(|number| &self.tables[number]);
                let page = LearnedPage::shaped(bytes, *shape, LearnedBeside { samples, tables });
                page.extent(page.find(key, first))
            }
        }
    }

    fn stats(&self) -> BlockIndexStats {
        let Refusals { ties, long_blocks, empty_blocks, no_gain } = self.layout.refusals;
        let blocks = &self.layout.blocks;
        let mut stats = BlockIndexStats {
            blocks: blocks.len() as u64,
            empty_blocks: self.layout.empty_blocks,
            data_bytes: self.layout.data_bytes(),
            block_bytes_max: blocks.iter().map(|block| block.extent.bytes.into()).max().unwrap_or(0),
            index_bytes: (self.layout.page_bytes() + self.top_bytes) as u64,
            pages: self.layout.pages.len() as u64,
            refused: [ties, long_blocks, empty_blocks, no_gain],
            table_bytes: self.tables.iter().map(DigitTables::memory_bytes).sum::<usize>() as u64,
            ..BlockIndexStats::default()
        };
        for page in self.layout.pages.iter().filter(|page| LearnedPage::is_learned(&page.bytes)) {
            let page = LearnedPage::of(&page.bytes);
            stats.learned_pages += 1;
            stats.learned_blocks += page.blocks() as u64;
            stats.learned_bytes += page.used_bytes() as u64;
            stats.knots += page.model().count() as u64;
            stats.positions_max = stats.positions_max.max(page.positions() as u64);
            stats.codes[page.code() as usize] += 1;
        }
        stats
    }
}

/// Builds the in-memory structures of a page. `known` has the alphabets of the pages before it.
fn shape<'p>(page: &'p LaidPage, known: &mut Vec<Alphabets<'p>>) -> PageShape {
    if !LearnedPage::is_learned(&page.bytes) {
        let page = FencePage::of(&page.bytes);
        return PageShape::Fences(page.shape(), page.samples().collect());
    }
    let page = LearnedPage::check(&page.bytes).expect("it was encoded just now");
    let own = page.alphabets();
    let tables = (!own.counts.is_empty()).then(|| {
        let at = known.iter().position(|known| known.is_like(&own));
        at.unwrap_or_else(|| {
            known.push(own);
            known.len() - 1
        })
    });
    PageShape::Learned(page.shape(), page.samples().collect(), tables)
}

/// Sizes and errors of TridentKV's two-layer model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TwoLayerStats {
    /// Groups of keys, each with one line.
    pub groups: u64,
    /// Bytes of the parameters.
    pub parameter_bytes: u64,
    /// Mean error of a trained key, in blocks.
    pub error_mean_blocks: f64,
    /// Largest error of a trained key, in blocks.
    pub error_max_blocks: u64,
}

/// Trains the paper's model of the positions of ascending keys, in blocks of 4096 bytes of records of
/// `record_bytes`. If `is_truncated`, a code that is too large leaves out the last bytes of the key; the
/// paper ends the group there.
pub fn two_layer_stats(keys: &[Vec<u8>], record_bytes: u32, is_truncated: bool) -> TwoLayerStats {
    let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let positions: Vec<u32> = (0..keys.len() as u32).map(|number| number * record_bytes).collect();
    let options = TwoLayerOptions {
        batch_keys: 256,
        error_mean_max: 4096.0,
        overflow: if is_truncated { Overflow::Truncate } else { Overflow::CutGroup },
    };
    let model = TwoLayerModel::train(&borrowed, &positions, options);
    let errors = || {
        borrowed.iter().zip(&positions).map(|(key, position)| {
            let blocks = [model.predict(key), *position].map(|position| position / 4096);
            u64::from(blocks[0].abs_diff(blocks[1]))
        })
    };
    TwoLayerStats {
        groups: model.groups() as u64,
        parameter_bytes: model.parameter_bytes() as u64,
        error_mean_blocks: errors().sum::<u64>() as f64 / keys.len().max(1) as f64,
        error_max_blocks: errors().max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::KeyFamily;

    const KINDS: [BlockIndexKind; 3] =
        [BlockIndexKind::Strings, BlockIndexKind::Fences, BlockIndexKind::Learned];

    /// Every index finds the block of every item, over ten families, and its sizes match the blocks.
    #[test]
    fn items_are_found() {
        for family in KeyFamily::ALL {
            let keys = family.keys(12_000, 5);
            let indexes = BlockIndexes::build(&keys, BlockIndexOptions::default());
            for kind in KINDS {
                for (number, key) in keys.iter().enumerate() {
                    let block = indexes.block_of(kind, number);
                    assert_eq!(indexes.find(kind, key), Some(block), "{} {kind:?}", family.name());
                }
                let stats = indexes.stats(kind);
                let payload = keys.iter().map(|key| key.len() as u64 + 100).sum::<u64>();
                assert!(
                    stats.data_bytes > 12_000 * 100 && stats.data_bytes < payload * 12 / 10,
                    "{} {stats:?}",
                    family.name()
                );
                assert!(stats.index_bytes > 0 && stats.blocks > 250);
            }
        }
    }

    /// A stretch of keys without a fitting model gets fence pages between learned ones, and every item is
    /// found.
    #[test]
    fn pages_of_both_kinds() {
        let mut keys = KeyFamily::Hex.keys(40_000, 3);
        let alike = |number: u32| [&b"8"[..], &[b'x'; 90], format!("{number:08}").as_bytes()].concat();
        keys.extend((0..9000).map(alike));
        keys.sort_unstable();
        let indexes = BlockIndexes::build(&keys, BlockIndexOptions::default());
        let stats = indexes.stats(BlockIndexKind::Learned);
        assert!(stats.learned_pages >= 2 && stats.pages > stats.learned_pages, "{stats:?}");
        assert!(stats.refused[0] > 0, "{stats:?}");
        for (number, key) in keys.iter().enumerate() {
            let kind = BlockIndexKind::Learned;
            assert_eq!(indexes.find(kind, key), Some(indexes.block_of(kind, number)));
        }
    }

    /// Learned pages of random keys take less than half the bytes of fences, and fences less than strings.
    #[test]
    fn learned_pages_are_small() {
        let keys = KeyFamily::Hex.keys(80_000, 9);
        let indexes = BlockIndexes::build(&keys, BlockIndexOptions::default());
        let [strings, fences, learned] = KINDS.map(|kind| indexes.stats(kind));
        assert!(learned.index_bytes * 2 < fences.index_bytes, "{learned:?} {fences:?}");
        assert!(fences.index_bytes < strings.index_bytes, "{fences:?} {strings:?}");
        assert!(learned.data_bytes * 100 < fences.data_bytes * 110, "{learned:?} {fences:?}");
        assert_eq!(learned.learned_pages, learned.pages);
    }

    /// The paper's model has errors of less than two blocks on average.
    #[test]
    fn two_layers() {
        let stats = two_layer_stats(&KeyFamily::Decimal.keys(4000, 1), 116, true);
        assert!(stats.groups >= 1 && stats.parameter_bytes > 30);
        assert!(stats.error_mean_blocks < 2.0 && stats.error_max_blocks >= 1, "{stats:?}");
    }
}
