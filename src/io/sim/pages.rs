//! Sparse bytes in 4 KiB pages. Pages of zeros are not stored; stored pages are shared between copies until
//! written.
//!
//! Durability is not handled here: an inode has two contents. Plain data, no locks.
//!
//! 1. A stored page has a byte that is not zero.
//! 2. Bytes past the length may be stored; a read does not return them.

use std::collections::BTreeMap;

#[cfg(test)]
use xxhash_rust::xxh3::Xxh3;

use crate::base::sync::Arc;

/// Size of a page of the simulated page cache, in bytes: the unit that is lost or kept.
pub(super) const PAGE_BYTES: usize = 4096;

pub(super) type Page = Arc<[u8; PAGE_BYTES]>;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Whether all of `bytes`, at most a page, are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes == &ZEROS[..bytes.len()]
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Content {
    pages: BTreeMap<u64, Page>,
    length: u64,
}

impl Content {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Grows to `length` if the content is shorter.
    pub(super) fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Truncates or extends to `length`; no bytes stay stored past it.
    pub(super) fn set_length(&mut self, length: u64) {
        self.length = length;
        let (last, kept_bytes) = (length / PAGE_BYTES as u64, (length % PAGE_BYTES as u64) as usize);
        self.pages.split_off(&(last + 1));
        if self.pages.contains_key(&last) {
            self.write(last, kept_bytes, &ZEROS[kept_bytes..]);
        }
    }

    pub(super) fn page(&self, index: u64) -> Option<&Page> {
        self.pages.get(&index)
    }

    /// The page's bytes, zeros for a page that is not stored.
    pub(super) fn page_bytes(&self, index: u64) -> &[u8; PAGE_BYTES] {
        self.pages.get(&index).map_or(&ZEROS, |page| page)
    }

    /// All stored pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.values()
    }

    /// Adds length and bytes to a checksum.
    #[cfg(test)]
    pub(super) fn add_to(&self, sum: &mut Xxh3) {
        sum.update(&self.length.to_le_bytes());
        for (index, page) in &self.pages {
            sum.update(&index.to_le_bytes());
            sum.update(&page[..]);
        }
    }

    /// Copies the page from `other`.
    pub(super) fn copy_page(&mut self, index: u64, other: &Content) {
        match other.page(index) {
            Some(page) => self.pages.insert(index, Arc::clone(page)),
            None => self.pages.remove(&index),
        };
    }

    /// Writes within one page; the length stays.
    pub(super) fn write(&mut self, index: u64, start: usize, bytes: &[u8]) {
        if is_zero(bytes) && !self.pages.contains_key(&index) {
            return;
        }
        let page = self.pages.entry(index).or_insert_with(|| Arc::new(ZEROS));
        Arc::make_mut(page)[start..start + bytes.len()].copy_from_slice(bytes);
        if is_zero(&page[..]) {
            self.pages.remove(&index);
        }
    }

    /// Fills `buffer` from `offset`, up to the end of the content, and returns the number of bytes.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let left_bytes = self.length.saturating_sub(offset);
        let bytes = left_bytes.min(buffer.len() as u64) as usize;
        for piece in pieces(offset, bytes) {
            let from = &self.page_bytes(piece.page)[piece.start..piece.start + piece.range.len()];
            buffer[piece.range].copy_from_slice(from);
        }
        bytes
    }
}

/// The part of a byte range that lies in one page.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) page: u64,
    /// Offset in the page.
    pub(super) start: usize,
    /// Position in the byte range.
    pub(super) range: std::ops::Range<usize>,
}

/// Splits the `bytes` bytes at `offset` at the page boundaries.
pub(super) fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut done_bytes = 0;
    std::iter::from_fn(move || {
        if done_bytes == bytes {
            return None;
        }
        let at = offset + done_bytes as u64;
        let (page, start) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
        let range = done_bytes..bytes.min(done_bytes + PAGE_BYTES - start);
        done_bytes = range.end;
        Some(Piece { page, start, range })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(content: &mut Content, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            content.write(piece.page, piece.start, &bytes[piece.range]);
        }
        content.grow(offset + bytes.len() as u64);
    }

    /// Pages of zeros are not stored, including pages that are zeroed again.
    #[test]
    fn zero_pages_are_not_stored() {
        let mut content = Content::default();
        write(&mut content, 0, &vec![0; 1 << 20]);
        assert_eq!((content.length(), content.pages().count()), (1 << 20, 0));
        write(&mut content, 5000, b"x");
        assert_eq!(content.pages().count(), 1);
        write(&mut content, 5000, &[0]);
        assert_eq!(content.pages().count(), 0);
    }

    /// Truncated bytes read as zeros when the content grows again.
    #[test]
    fn cut_bytes_are_gone() {
        let mut content = Content::default();
        write(&mut content, 4000, &[7; 9000]);
        content.set_length(5000);
        content.grow(20_000);
        let mut buffer = vec![1; 20_000];
        assert_eq!(content.read(0, &mut buffer), 20_000);
        assert!(buffer[4000..5000].iter().all(|byte| *byte == 7));
        assert!(is_zero(&buffer[5000..9000]) && is_zero(&buffer[..4000]));
        content.set_length(4096);
        assert_eq!(content.pages().count(), 1);
    }
}
