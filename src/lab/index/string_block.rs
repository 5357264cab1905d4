//! A string index block in RocksDB's layout: the baseline for the other indexes.
//!
//! The facts come from RocksDB's format (format_version 4 and later); the code is new. An entry stands for a
//! data block. Its key is a short separator between the block's last key and the next block's first. Within a
//! restart interval, which is 1 by default, a key shares a prefix with the key before it. A block's handle is
//! its offset and size as varints. An entry with a shared prefix has only the change of the size. Restart
//! offsets and their count follow. A trailer has a compression type and a checksum. Keys have no sequence
//! numbers.
//!
//! ```text
//! entry:    varint shared, varint not shared, the key's bytes that are not shared, then
//!           varint offset, varint size           if nothing is shared
//!           zigzag varint of the size's change   otherwise
//! block:    entries, u32 offset of each restart, u32 restarts; trailer of 5 bytes
//! ```
//! A block in memory. Any thread.

use crate::base::codec::{ByteReader, put_varint};
use crate::base::key::common_prefix;

/// Compression type and checksum behind a block.
const TRAILER_BYTES: usize = 5;

/// An index block in memory.
#[derive(Debug)]
pub(super) struct StringIndexBlock {
    /// The encoded entries, without trailer and restarts; lookups use `restarts`.
    entries: Vec<u8>,
    restarts: Vec<u32>,
}

/// A separator, and the offset and size of its block.
pub(super) struct StringEntry<'k> {
    pub(super) separator: &'k [u8],
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl StringIndexBlock {
    /// Builds the block of these entries, whose separators ascend and whose blocks are adjacent.
    pub(super) fn build<'k>(
        entries: impl Iterator<Item = StringEntry<'k>>,
        restart_interval: usize,
    ) -> StringIndexBlock {
        let mut block = StringIndexBlock { entries: Vec::new(), restarts: Vec::new() };
        let (mut last, mut last_size) = (Vec::new(), 0);
        for (number, entry) in entries.enumerate() {
            let is_restart = number % restart_interval == 0;
            if is_restart {
                block.restarts.push(u32::try_from(block.entries.len()).expect("an index is below 4 GiB"));
            }
            let shared = if is_restart { 0 } else { common_prefix(&last, entry.separator) };
            let out = &mut block.entries;
            put_varint(out, shared as u64);
            put_varint(out, (entry.separator.len() - shared) as u64);
            out.extend_from_slice(&entry.separator[shared..]);
            if shared == 0 {
                put_varint(out, entry.offset);
                put_varint(out, entry.size);
            } else {
                let change = entry.size.wrapping_sub(last_size) as i64;
                put_varint(out, (change << 1 ^ change >> 63) as u64);
            }
            last.clear();
            last.extend_from_slice(entry.separator);
            last_size = entry.size;
        }
        block
    }

    /// Bytes in the file.
    pub(super) fn bytes(&self) -> usize {
        self.entries.len() + self.restarts.len() * 4 + 4 + TRAILER_BYTES
    }

    /// Offset and size of the first block whose separator is not before the key.
    pub(super) fn find(&self, key: &[u8]) -> Option<(u64, u64)> {
        let is_before = |at: &u32| {
            let mut reader = ByteReader::new(&self.entries[*at as usize..]);
            let (_, rest) = read_key(&mut reader);
            rest < key
        };
        // Starts at the last restart whose key is before the key, and scans entries from there.
        let restart = self.restarts.partition_point(is_before).saturating_sub(1);
        let start = *self.restarts.get(restart)?;
        let mut reader = ByteReader::new(&self.entries[start as usize..]);
        let (mut separator, mut offset, mut size) = (Vec::new(), 0u64, 0u64);
        while reader.remaining() > 0 {
            let (shared, rest) = read_key(&mut reader);
            if shared == 0 {
                offset = number(&mut reader);
                size = number(&mut reader);
            } else {
                let change = number(&mut reader);
                offset += size;
                size = size.wrapping_add(change >> 1 ^ (change & 1).wrapping_neg());
            }
            separator.truncate(shared);
            separator.extend_from_slice(rest);
            if separator.as_slice() >= key {
                return Some((offset, size));
            }
        }
        None
    }
}

fn number(reader: &mut ByteReader<'_>) -> u64 {
    reader.varint("number of an index block").expect("the block was built here")
}

fn read_key<'b>(reader: &mut ByteReader<'b>) -> (usize, &'b [u8]) {
    let shared = number(reader) as usize;
    let rest = number(reader) as usize;
    (shared, reader.bytes(rest, "key of an index block").expect("the block was built here"))
}

/// The short key that RocksDB's bytewise comparator finds in [last, next): `last` cut behind the first byte
/// that differs, which grows by one.
pub(super) fn shortest_separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let at = common_prefix(last, next);
    match (last.get(at), next.get(at)) {
        (Some(own), Some(other)) if at + 1 < next.len() || own + 1 < *other => {
            let mut separator = last[..=at].to_vec();
            separator[at] += 1;
            separator
        }
        // With that byte grown the key would not be before `next`, so the first later byte that can grow
        // does.
        (Some(_), Some(_)) => {
            let grows = last[at + 1..].iter().position(|byte| *byte < u8::MAX);
            grows.map_or_else(
                || last.to_vec(),
                |behind| {
                    let mut separator = last[..=at + 1 + behind].to_vec();
                    separator[at + 1 + behind] += 1;
                    separator
                },
            )
        }
        // One key is a prefix of the other.
        _ => last.to_vec(),
    }
}

/// A short key not before `last`: cut behind the first byte that can grow, which grows by one.
pub(super) fn short_successor(last: &[u8]) -> Vec<u8> {
    let Some(at) = last.iter().position(|byte| *byte < u8::MAX) else { return last.to_vec() };
    let mut successor = last[..=at].to_vec();
    successor[at] += 1;
    successor
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Separators lie between the two keys, and are short.
    #[test]
    fn separators() {
        for (last, next, expected) in [
            (&b"abcdef"[..], &b"abzz"[..], &b"abd"[..]),
            (b"abc", b"abcd", b"abc"),
            (b"abc1xyz", b"abc2", b"abc1y"),
            (b"abc1xyz", b"abc2z", b"abc2"),
            (b"abc1\xff\xffz", b"abc2", b"abc1\xff\xff{"),
            (b"abc1\xff", b"abc2", b"abc1\xff"),
            (b"a", b"c", b"b"),
        ] {
            let separator = shortest_separator(last, next);
            assert_eq!(separator, expected);
            assert!(last <= &separator[..] && &separator[..] < next);
        }
        assert_eq!(
            [&b"abc"[..], b"\xff\xffa", b"\xff"].map(short_successor),
            [b"b".to_vec(), b"\xff\xffb".to_vec(), b"\xff".to_vec()]
        );
    }

    /// Lookups agree with a linear search, with restarts at each entry and at each third.
    #[test]
    fn lookups() {
        let separators: Vec<String> = (0..50).map(|n| format!("key-{:03}", n * 3)).collect();
        for interval in [1, 3, 16] {
            let mut offset = 0;
            let entries = separators.iter().enumerate().map(|(number, separator)| {
                let size = 4000 + 100 * (number as u64 % 5);
                offset += size;
                StringEntry { separator: separator.as_bytes(), offset: offset - size, size }
            });
            let block = StringIndexBlock::build(entries, interval);
            for n in 0..150 {
                let block_of_key = usize::div_ceil(n, 3);
                let expected = (0..block_of_key as u64).map(|n| 4000 + 100 * (n % 5)).sum::<u64>();
                let found = block.find(format!("key-{n:03}").as_bytes());
                let size = 4000 + 100 * (block_of_key as u64 % 5);
                assert_eq!(found, (block_of_key < 50).then_some((expected, size)), "{n} {interval}");
            }
            assert_eq!(block.find(b""), Some((0, 4000)));
        }
    }

    /// The expected bytes of a block of two entries, written by hand.
    #[test]
    fn bytes_of_a_block() {
        let entry = |separator, offset, size| StringEntry { separator, offset, size };
        let block = |interval| {
            let entries = [entry(&b"ab"[..], 0, 4000), entry(b"ac", 4000, 3999)];
            StringIndexBlock::build(entries.into_iter(), interval)
        };
        let apart = block(1);
        assert_eq!(apart.entries, b"\x00\x02ab\x00\xa0\x1f\x00\x02ac\xa0\x1f\x9f\x1f");
        assert_eq!(apart.bytes(), 15 + 2 * 4 + 4 + 5);
        let together = block(2);
        assert_eq!(together.entries, b"\x00\x02ab\x00\xa0\x1f\x01\x01c\x01");
        assert_eq!(together.bytes(), 11 + 4 + 4 + 5);
    }
}
