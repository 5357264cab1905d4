//! The bytes of a table's file: writing all of it, and reading all of it except the buckets.
//!
//! The file consists of checksummed pages (`lab::pages`), each with 4092 bytes of content:
//!
//! ```text
//! page            content
//! 0               head, see below; zeros behind it
//! 1..             buckets, by number (`bucket`)
//! 1 + buckets..   marks by source, 341 a page: u16 source, u16 target, u32 least order, u32 items that left
//!
//! offset size type  name: meaning of a head (little-endian)
//! 0      4    u32   bits of a bucket's number
//! 4      4    u32   marks
//! 8      8    u64   items
//! 16     8    u64   item bytes: of items in buckets, with lengths
//! 24     8    u64   bytes of keys and values
//! 32     8    u64   items away from home
//! 40     8    u64   hops: migrations of all items
//! 48     4    u32   most hops of an item
//! 52     4    u32   buckets overloaded before migration
//! 56     4    u32   rounds
//! ```

use crate::base::codec::{ByteReader, Malformed};
use crate::base::error::{Error, Result};
use crate::base::id::FileName;
use crate::io::storage::Storage;

use super::super::pages::{Buffer, CONTENT_BYTES, PageFile, PageReader, PageWriter, array_name};
use super::balance::{Balanced, Bucket};
use super::bucket::encode;
use super::item::{BUCKET_BITS_MAX, HTableItem, home};
use super::marks::{BucketMark, CountedMark};

/// Bytes of a mark in the file.
const MARK_BYTES: usize = 12;
const MARKS_A_PAGE: usize = CONTENT_BYTES / MARK_BYTES;

/// The only file in a table's directory.
pub(super) fn table_name() -> FileName {
    array_name(1)
}

/// The head of a table's file; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) bucket_bits: u32,
    pub(super) marks: u32,
    pub(super) items: u64,
    pub(super) item_bytes: u64,
    pub(super) key_value_bytes: u64,
    pub(super) away: u64,
    pub(super) hops: u64,
    pub(super) hops_max: u32,
    pub(super) overloaded: u32,
    pub(super) rounds: u32,
}

impl Head {
    pub(super) fn of(balanced: &Balanced, bucket_bits: u32, items: &[HTableItem]) -> Head {
        let residents = || balanced.buckets.iter().flat_map(|bucket| &bucket.residents);
        let is_away = |number: usize, bucket: &Bucket| {
            let away = |order| usize::from(home(order, bucket_bits)) != number;
            bucket.residents.iter().filter(|resident| away(resident.order)).count() as u64
        };
        Head {
            bucket_bits,
            marks: balanced.buckets.iter().filter(|bucket| bucket.mark.is_some()).count() as u32,
            items: items.len() as u64,
            item_bytes: balanced.buckets.iter().map(|bucket| bucket.bytes).sum(),
            key_value_bytes: items.iter().map(|item| (item.key.len() + item.value.len()) as u64).sum(),
            away: balanced.buckets.iter().enumerate().map(|(number, one)| is_away(number, one)).sum(),
            hops: residents().map(|resident| u64::from(resident.hops)).sum(),
            hops_max: residents().map(|resident| resident.hops).max().unwrap_or(0),
            overloaded: balanced.overloaded,
            rounds: balanced.rounds,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.bucket_bits.to_le_bytes());
        out.extend_from_slice(&self.marks.to_le_bytes());
        for number in [self.items, self.item_bytes, self.key_value_bytes, self.away, self.hops] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.hops_max, self.overloaded, self.rounds] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    fn decode(content: &[u8]) -> std::result::Result<Head, Malformed> {
        let mut reader = ByteReader::new(content);
        Ok(Head {
            bucket_bits: reader.u32("bits of a bucket's number")?,
            marks: reader.u32("a count of marks")?,
            items: reader.u64("a count of items")?,
            item_bytes: reader.u64("bytes of items")?,
            key_value_bytes: reader.u64("bytes of keys and values")?,
            away: reader.u64("a count of items away from home")?,
            hops: reader.u64("a count of hops")?,
            hops_max: reader.u32("most hops")?,
            overloaded: reader.u32("a count of overloaded buckets")?,
            rounds: reader.u32("a count of rounds")?,
        })
    }

    pub(super) fn buckets(&self) -> usize {
        1 << self.bucket_bits
    }

    fn pages(&self) -> u64 {
        (1 + self.buckets() + (self.marks as usize).div_ceil(MARKS_A_PAGE)) as u64
    }
}

/// The page number of a bucket.
pub(super) fn page_of(bucket: u16) -> u64 {
    1 + u64::from(bucket)
}

/// Writes the file, syncs it and renames it to its final name.
pub(super) fn write(
    storage: &dyn Storage,
    (store_id, uid): (u128, u64),
    head: &Head,
    balanced: &Balanced,
    items: &[HTableItem],
) -> Result<()> {
    let file = PageFile::new(table_name(), uid, CONTENT_BYTES);
    let mut writer = PageWriter::create(storage, file, store_id)?;
    writer.push(&[&head.encode()])?;
    for (number, bucket) in balanced.buckets.iter().enumerate() {
        let item = |index: u32| {
            let item = &items[index as usize];
            (&item.key[..], &item.value[..])
        };
        let residents = bucket.residents.iter().map(|resident| item(resident.item));
        let mark = bucket.mark.map(|counted| counted.mark);
        writer.push(&[&encode(number as u16, mark, residents)])?;
    }
    let marks: Vec<CountedMark> = balanced.buckets.iter().filter_map(|bucket| bucket.mark).collect();
    for some in marks.chunks(MARKS_A_PAGE) {
        let mut content = Vec::with_capacity(CONTENT_BYTES);
        for CountedMark { mark, moved } in some {
            content.extend_from_slice(&mark.source.to_le_bytes());
            content.extend_from_slice(&mark.target.to_le_bytes());
            content.extend_from_slice(&mark.least.to_le_bytes());
            content.extend_from_slice(&moved.to_le_bytes());
        }
        writer.push(&[&content])?;
    }
    writer.finish(true)?;
    storage.sync_directory()
}

/// Reads the head and all marks, and checks that they agree.
pub(super) fn read(storage: &dyn Storage, reader: &PageReader) -> Result<(PageFile, Head, Vec<CountedMark>)> {
    let name = table_name();
    let (file, pages) = PageFile::find(storage, name, CONTENT_BYTES)?;
    let mut buffer = Buffer::pages(1);
    reader.page(&file, 0, &mut buffer)?;
    let malformed = |page: u64| move |bad| Error::malformed(name, (1 + page) * 4096, bad);
    let head = Head::decode(buffer.content(0)).map_err(malformed(0))?;
    if head.bucket_bits > BUCKET_BITS_MAX {
        let expected = format_args!("at most {BUCKET_BITS_MAX}").to_string();
        return Err(Error::corrupt(name, 4096, "bits of a bucket's number", expected, head.bucket_bits));
    }
    if pages != head.pages() {
        return Err(Error::corrupt(name, 0, "the count of pages", head.pages(), pages));
    }
    let mut marks = Vec::new();
    for page in page_of(0) + head.buckets() as u64..pages {
        reader.page(&file, page, &mut buffer)?;
        let count = (head.marks as usize - marks.len()).min(MARKS_A_PAGE);
        let mut decoder = ByteReader::new(buffer.content(0));
        for _ in 0..count {
            marks.push(decode_mark(&mut decoder).map_err(malformed(page))?);
        }
    }
    check_marks(&marks, head.buckets())?;
    Ok((file, head, marks))
}

fn decode_mark(decoder: &mut ByteReader<'_>) -> std::result::Result<CountedMark, Malformed> {
    let mark = BucketMark {
        source: decoder.u16("a mark's source")?,
        target: decoder.u16("a mark's target")?,
        least: decoder.u32("a mark's order")?,
    };
    Ok(CountedMark { mark, moved: decoder.u32("a count of items that left")? })
}

/// Checks that sources ascend, all buckets exist, and every chain of marks ends.
fn check_marks(marks: &[CountedMark], buckets: usize) -> Result<()> {
    let corrupt =
        |what, source: u16| Error::corrupt(table_name(), 0, what, "one of a balanced table", source);
    if !marks.is_sorted_by(|a, b| a.mark.source < b.mark.source) {
        return Err(corrupt("the order of marks", 0));
    }
    let mut target_of = vec![None; buckets];
    for CountedMark { mark, .. } in marks {
        if usize::from(mark.source.max(mark.target)) >= buckets {
            return Err(corrupt("a mark's bucket", mark.source));
        }
        target_of[usize::from(mark.source)] = Some(mark.target);
    }
    for CountedMark { mark, .. } in marks {
        let chain = std::iter::successors(Some(mark.source), |bucket| target_of[usize::from(*bucket)]);
        if chain.take(buckets + 1).count() > buckets {
            return Err(corrupt("a chain of marks", mark.source));
        }
    }
    Ok(())
}
