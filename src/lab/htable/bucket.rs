//! The bytes of a bucket's page, without the page's checksum.
//!
//! ```text
//! offset size type  name: meaning (little-endian)
//! 0      4082       items: varint key length, key, varint value length, value; zeros behind the last
//! 4082   2    u16   count of items
//! 4084   2    u16   source: this bucket's number
//! 4086   2    u16   target of items that left; the source if none did
//! 4088   4    u32   least order that left, 0 if none did
//! ```
//! The released code has 4088 bytes for items; here the count and the checksum take 6 of them. Pure.

use crate::base::codec::{ByteReader, Malformed, put_varint, varint_bytes};

use super::super::pages::CONTENT_BYTES;
use super::marks::BucketMark;

const TRAILER_BYTES: usize = 10;
/// Bytes of a bucket for items.
pub(super) const CAPACITY_BYTES: usize = CONTENT_BYTES - TRAILER_BYTES;

/// Bytes that an item takes in a bucket.
pub(super) fn item_bytes(key: &[u8], value: &[u8]) -> usize {
    let of = |part: &[u8]| varint_bytes(part.len() as u64) + part.len();
    of(key) + of(value)
}

/// Encodes items, which must fit, as a page's content.
pub(super) fn encode<'i>(
    source: u16,
    mark: Option<BucketMark>,
    items: impl Iterator<Item = (&'i [u8], &'i [u8])>,
) -> Vec<u8> {
    let mut content = Vec::with_capacity(CONTENT_BYTES);
    let mut count: u16 = 0;
    for (key, value) in items {
        for part in [key, value] {
            put_varint(&mut content, part.len() as u64);
            content.extend_from_slice(part);
        }
        count += 1;
    }
    assert!(content.len() <= CAPACITY_BYTES, "a balanced bucket fits its page");
    content.resize(CAPACITY_BYTES, 0);
    let (target, least) = mark.map_or((source, 0), |mark| (mark.target, mark.least));
    content.extend_from_slice(&count.to_le_bytes());
    content.extend_from_slice(&source.to_le_bytes());
    content.extend_from_slice(&target.to_le_bytes());
    content.extend_from_slice(&least.to_le_bytes());
    content
}

/// The decoded content of a page.
#[derive(Debug)]
pub(super) struct BucketPage<'p> {
    items: &'p [u8],
    count: u16,
    pub(super) source: u16,
    pub(super) mark: Option<BucketMark>,
}

impl<'p> BucketPage<'p> {
    pub(super) fn decode(content: &'p [u8]) -> Result<BucketPage<'p>, Malformed> {
        let mut reader = ByteReader::new(content);
        let items = reader.bytes(CAPACITY_BYTES, "a bucket's items")?;
        let count = reader.u16("a bucket's count")?;
        let source = reader.u16("a bucket's number")?;
        let target = reader.u16("a mark's target")?;
        let least = reader.u32("a mark's order")?;
        let mark = (target != source).then_some(BucketMark { source, target, least });
        Ok(BucketPage { items, count, source, mark })
    }

    /// Keys and values in the order of the page.
    pub(super) fn items(&self) -> impl Iterator<Item = Result<(&'p [u8], &'p [u8]), Malformed>> {
        let mut reader = ByteReader::new(self.items);
        (0..self.count).map(move |_| Ok((part(&mut reader)?, part(&mut reader)?)))
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<&'p [u8]>, Malformed> {
        for item in self.items() {
            let (other, value) = item?;
            if other == key {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

fn part<'p>(reader: &mut ByteReader<'p>) -> Result<&'p [u8], Malformed> {
    let bytes = reader.varint_up_to(CAPACITY_BYTES as u64, "a length in a bucket")?;
    reader.bytes(bytes as usize, "a key or value in a bucket")
}
