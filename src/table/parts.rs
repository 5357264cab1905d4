//! The parts of a table file, one by one, for inspection. This module trusts no manifest: the file's own
//! header names its identity.

use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::place::shown_key;
use crate::base::step::BlockKind;
use crate::base::sync::Arc;
use crate::format::table::data::{self, Layout};
use crate::format::table::filter::column::ColumnPage;
use crate::format::table::footer::Span;
use crate::format::table::index::IndexPage;
use crate::format::table::{PAGE_BYTES, UNIT_BYTES, claimed_tag};
use crate::io::storage::Storage;

use super::identity::TableIdentity;
use super::open::{Contents, IsLive, TableFile, TableOwner, is_hole, read_exact};
use super::search::TableReader;
use super::verify::{decompress, verify_block};

/// A part of the file.
#[derive(Debug)]
pub(crate) struct TablePart {
    pub(crate) span: Span,
    pub(crate) name: &'static str,
    pub(crate) said: Result<Said>,
}

/// The contents of a part.
#[derive(Debug)]
pub(crate) enum Said {
    /// A block of items: their number, the first and last key as they are shown, and the plain length if the
    /// block is compressed. Where the places of keys are left out, the keys are shown as the caller gave
    /// them.
    Items {
        items: usize,
        first: String,
        last: String,
        plain_bytes: Option<usize>,
    },
    /// Range tombstones of a slice, with the keys as they are shown.
    Ranges {
        count: usize,
        first: String,
        end: String,
    },
    /// A number of entries; the part's name gives their kind.
    Count(u64),
    Nothing,
}

/// Reports every part in the order of the file; tail and footer come first, and the header is not reported.
///
/// # Errors
/// `Corrupt` if header, tail or footer is damaged; `Io`.
pub(crate) fn table_parts(
    storage: &Arc<dyn Storage>,
    identity: TableIdentity,
    bytes: u64,
    tell: &mut dyn FnMut(TablePart),
) -> Result<()> {
    let is_live: IsLive<'_> = &|_, entry| Ok(!is_hole(storage.as_ref(), identity.file, entry)?);
    let contents = Contents::read(storage.as_ref(), identity, bytes, None, is_live)?;
    let page = PAGE_BYTES as u64;
    let tail = Span { offset: bytes - page, bytes: page };
    tell(TablePart { span: tail, name: "tail", said: Ok(Said::Nothing) });
    let (footer, slices) = (contents.footer, contents.slices.len() as u64);
    tell(TablePart { span: footer, name: "footer, slices", said: Ok(Said::Count(slices)) });
    let owner = TableOwner::alone(HashSecret::expand([0; 16]));
    for table in TableFile::with(identity, bytes, contents.slices.into_iter(), &owner) {
        slice_parts(storage, &table, tell)?;
    }
    Ok(())
}

fn slice_parts(
    storage: &Arc<dyn Storage>,
    table: &Arc<TableReader>,
    tell: &mut dyn FnMut(TablePart),
) -> Result<()> {
    let entry = table.entry();
    if is_hole(storage.as_ref(), table.file().name(), &entry.unpack())? {
        tell(TablePart { span: entry.span(), name: "hole, was a slice", said: Ok(Said::Nothing) });
        return Ok(());
    }
    let mut at = entry.data().offset;
    while at < entry.data().end() {
        let unit = Span { offset: at, bytes: UNIT_BYTES as u64 };
        let unit = read_exact(storage.as_ref(), table.file().name(), unit)?;
        let left = entry.data().end() - at;
        let claimed = data::extent_claimed(&unit).map(|bytes| bytes as u64).filter(|bytes| *bytes <= left);
        let Some(bytes) = claimed else {
            let what = "extent of a data block";
            let error = Error::corrupt(table.file().name(), at, what, left, "none that fits");
            let span = Span { offset: at, bytes: left };
            tell(TablePart { span, name: "data block", said: Err(error) });
            break;
        };
        let span = Span { offset: at, bytes };
        tell(TablePart { span, name: "data block", said: block(storage, table, span) });
        at += bytes;
    }
    let filter = (entry.filter_span(), u64::from(entry.filter.page_bytes), BlockKind::Filter, "filter page");
    let fence = (entry.fence_span(), u64::from(entry.fence_page_bytes()), BlockKind::Fence, "fence page");
    for (span, page_bytes, kind, name) in [filter, fence] {
        let mut offset = span.offset;
        while span.bytes > 0 && offset < span.end() {
            let page = Span { offset, bytes: page_bytes };
            let address = table.address(offset, page_bytes as u32, kind);
            let read = read_exact(storage.as_ref(), table.file().name(), page);
            let checked = read.and_then(|bytes| verify_block(&address, &bytes).map(|_| bytes));
            let (name, said) = match checked {
                Ok(bytes) => page_says(table, name, &bytes),
                Err(error) => (name, Err(error)),
            };
            tell(TablePart { span: page, name, said });
            offset += page_bytes;
        }
    }
    if entry.top().bytes > 0 {
        let pages = u64::from(entry.fence_pages);
        tell(TablePart { span: entry.top(), name: "top, fence pages", said: Ok(Said::Count(pages)) });
    }
    if let (Some(first), Some((_, end))) = (table.ranges().first(), table.ranges().last()) {
        let shown = |key| shown_key(table.tree().keyspace, key);
        let said = Said::Ranges { count: table.ranges().count(), first: shown(first), end: shown(end) };
        tell(TablePart { span: entry.ranges(), name: "range tombstones", said: Ok(said) });
    }
    Ok(())
}

/// The name and the contents of a filter or fence page.
fn page_says(table: &TableReader, name: &'static str, page: &[u8]) -> (&'static str, Result<Said>) {
    let count = |count: usize| Ok(Said::Count(count as u64));
    match claimed_tag(page) {
        Some(tag) if tag == BlockKind::Fence as u8 => match IndexPage::of(page) {
            IndexPage::Learned(learned) => ("learned page, blocks", count(learned.blocks())),
            IndexPage::Fences(fences) => ("fence page, blocks", count(fences.blocks())),
        },
        _ if table.has_columns() => ("filter page by column, runs", count(ColumnPage::of(page).runs())),
        _ => (name, Ok(Said::Nothing)),
    }
}

fn block(storage: &Arc<dyn Storage>, table: &Arc<TableReader>, span: Span) -> Result<Said> {
    let bytes = read_exact(storage.as_ref(), table.file().name(), span)?;
    let address = table.address(span.offset, span.bytes as u32, BlockKind::Data);
    let plain_bytes = verify_block(&address, &bytes)?.plain_bytes;
    let plain = match plain_bytes {
        None => bytes.to_vec(),
        Some(length) => {
            let mut plain = vec![0; length];
            decompress(&address, &bytes, &mut plain)?;
            plain
        }
    };
    let layout = Layout::of(&plain);
    let stored = |index| [layout.prefix(&plain), layout.suffix(&plain, index)].concat();
    let key = |index| match layout.leaves_places_out() {
        true => stored(index).escape_ascii().to_string(),
        false => shown_key(table.tree().keyspace, &stored(index)),
    };
    let items = layout.items();
    Ok(Said::Items { items, first: key(0), last: key(items - 1), plain_bytes })
}
