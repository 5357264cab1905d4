//! An edit of the scheduler's catalog, and its bytes in the manifest.
//!
//! This module does not check whether an edit fits a catalog; `catalog` does.
//!
//! ```text
//! type  name: meaning (little-endian; each list is a u32 count and its members)
//! list  created: {u32 partition}
//! list  compacted: {u32 partition, list of components, each a list of arrays as in `lab::metadata`}: its
//!       level 0 is empty, its sub-tree has these
//! list  files: {u64 number, u64 uid, u8 1 if keys have a file, its u64 number and u64 uid or zeros}
//! list  runs: {u64 file, u32 first page, u32 first page of keys, list of blocks, each {u32 partition or 0 if
//!       the block is dead, u16 items, u32 checksum}}: blocks that were appended together
//! list  dropped: {u32 partition}
//! list  pins: {u32 partition, u64 oldest log that its flush buffer needs, or 0}
//! list  log ends: {u64 log, u64 bytes}
//! u64   scheduled log: the newest whose items went into flush buffers; 0: as before
//! u32   next partition: lower ids were allotted before; 0: as before
//! ```
//! Invariant: decoding never trusts a count beyond the bytes available.

use crate::base::codec::{ByteReader, Malformed};
use crate::lab::array::ArrayMeta;
use crate::lab::memory::Lengths;
use crate::lab::metadata::{get_array, put_array};

type Decoded<T> = std::result::Result<T, Malformed>;

/// A file of level 0, and the file of the keys of its blocks if the index is persistent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct L0FileMeta {
    pub(super) number: u64,
    pub(super) uid: u64,
    pub(super) keys: Option<(u64, u64)>,
}

/// A block of level 0; its position in the run gives its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockEntry {
    /// 0 if the block is dead.
    pub(super) partition: u32,
    pub(super) count: u16,
    pub(super) checksum: u32,
}

/// Blocks that were appended together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BlockRun {
    pub(super) file: u64,
    pub(super) first_page: u32,
    /// First page in the file of keys.
    pub(super) first_key_page: u32,
    pub(super) blocks: Vec<BlockEntry>,
}

/// An edit; see the module.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct SchedulerEdit {
    pub(super) created: Vec<u32>,
    pub(super) compacted: Vec<(u32, Vec<Vec<ArrayMeta>>)>,
    pub(super) files: Vec<L0FileMeta>,
    pub(super) runs: Vec<BlockRun>,
    pub(super) dropped: Vec<u32>,
    pub(super) pins: Vec<(u32, u64)>,
    pub(super) log_ends: Vec<(u64, u64)>,
    pub(super) scheduled_log: u64,
    pub(super) next_partition: u32,
}

impl SchedulerEdit {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_list(&mut out, &self.created, |out, id| put_u32(out, *id));
        put_list(&mut out, &self.compacted, |out, (id, components)| {
            put_u32(out, *id);
            put_list(out, components, |out, arrays| put_list(out, arrays, put_array));
        });
        put_list(&mut out, &self.files, |out, file| {
            put_u64(out, file.number);
            put_u64(out, file.uid);
            out.push(u8::from(file.keys.is_some()));
            let (number, uid) = file.keys.unwrap_or_default();
            put_u64(out, number);
            put_u64(out, uid);
        });
        put_list(&mut out, &self.runs, |out, run| {
            put_u64(out, run.file);
            put_u32(out, run.first_page);
            put_u32(out, run.first_key_page);
            put_list(out, &run.blocks, |out, block| {
                put_u32(out, block.partition);
                out.extend_from_slice(&block.count.to_le_bytes());
                put_u32(out, block.checksum);
            });
        });
        put_list(&mut out, &self.dropped, |out, id| put_u32(out, *id));
        put_list(&mut out, &self.pins, |out, (id, log)| {
            put_u32(out, *id);
            put_u64(out, *log);
        });
        put_list(&mut out, &self.log_ends, |out, (log, end)| {
            put_u64(out, *log);
            put_u64(out, *end);
        });
        put_u64(&mut out, self.scheduled_log);
        put_u32(&mut out, self.next_partition);
        out
    }

    pub(super) fn decode(bytes: &[u8], lengths: Lengths) -> Decoded<SchedulerEdit> {
        let mut reader = ByteReader::new(bytes);
        let reader = &mut reader;
        let arrays = |reader: &mut ByteReader<'_>| get_list(reader, |reader| get_array(reader, lengths));
        let edit = SchedulerEdit {
            created: get_list(reader, |reader| reader.u32("a partition"))?,
            compacted: get_list(reader, |reader| {
                Ok((reader.u32("a partition")?, get_list(reader, arrays)?))
            })?,
            files: get_list(reader, get_file)?,
            runs: get_list(reader, get_run)?,
            dropped: get_list(reader, |reader| reader.u32("a partition"))?,
            pins: get_list(reader, |reader| Ok((reader.u32("a partition")?, reader.u64("a log")?)))?,
            log_ends: get_list(reader, |reader| Ok((reader.u64("a log")?, reader.u64("its end")?)))?,
            scheduled_log: reader.u64("the scheduled log")?,
            next_partition: reader.u32("the next partition")?,
        };
        if reader.remaining() > 0 {
            return Err(reader.malformed("the end of an edit", 0, reader.remaining() as u64));
        }
        Ok(edit)
    }
}

fn put_u32(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_u32(out, list.len() as u32);
    list.iter().for_each(|one| put(out, one));
}

fn get_list<T>(
    reader: &mut ByteReader<'_>,
    mut get: impl FnMut(&mut ByteReader<'_>) -> Decoded<T>,
) -> Decoded<Vec<T>> {
    let mut list = Vec::new();
    for _ in 0..reader.u32("a list's length")? {
        list.push(get(reader)?);
    }
    Ok(list)
}

fn get_file(reader: &mut ByteReader<'_>) -> Decoded<L0FileMeta> {
    let (number, uid) = (reader.u64("a file's number")?, reader.u64("a file's uid")?);
    let has_keys = reader.u8("whether keys lie beside")?;
    let keys = (reader.u64("a file's number")?, reader.u64("a file's uid")?);
    if has_keys > 1 {
        return Err(reader.malformed("whether keys lie beside", 1, u64::from(has_keys)));
    }
    Ok(L0FileMeta { number, uid, keys: (has_keys == 1).then_some(keys) })
}

fn get_run(reader: &mut ByteReader<'_>) -> Decoded<BlockRun> {
    Ok(BlockRun {
        file: reader.u64("a file's number")?,
        first_page: reader.u32("a run's first page")?,
        first_key_page: reader.u32("a run's first page of keys")?,
        blocks: get_list(reader, |reader| {
            Ok(BlockEntry {
                partition: reader.u32("a block's partition")?,
                count: reader.u16("a block's items")?,
                checksum: reader.u32("a block's checksum")?,
            })
        })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::knobs::ItemOrder;

    const LENGTHS: Lengths = Lengths { key_bytes: 2, value_bytes: 3 };

    fn sample() -> SchedulerEdit {
        let array = ArrayMeta {
            layout: ItemOrder::Sorted,
            count: 3,
            keys: (8, 77),
            values: None,
            least: b"aa".to_vec(),
            greatest: b"zz".to_vec(),
        };
        let block = |partition| BlockEntry { partition, count: 30, checksum: 0x0102_0304 };
        SchedulerEdit {
            created: vec![4, 5],
            compacted: vec![(3, vec![vec![array], vec![]])],
            files: vec![
                L0FileMeta { number: 9, uid: 1, keys: None },
                L0FileMeta { number: 10, uid: 2, keys: Some((11, 3)) },
            ],
            runs: vec![BlockRun {
                file: 9,
                first_page: 1,
                first_key_page: 2,
                blocks: vec![block(4), block(0)],
            }],
            dropped: vec![2],
            pins: vec![(5, 12)],
            log_ends: vec![(12, 4096)],
            scheduled_log: 12,
            next_partition: 6,
        }
    }

    /// An edit decodes to itself; every cut of it is an error, and so is an extra byte.
    #[test]
    fn edits_come_back() {
        let bytes = sample().encode();
        assert_eq!(SchedulerEdit::decode(&bytes, LENGTHS), Ok(sample()));
        let empty = SchedulerEdit::default();
        assert_eq!(SchedulerEdit::decode(&empty.encode(), LENGTHS), Ok(empty));
        for length in 0..bytes.len() {
            assert!(SchedulerEdit::decode(&bytes[..length], LENGTHS).is_err(), "{length} bytes");
        }
        assert!(SchedulerEdit::decode(&[&bytes[..], &[0]].concat(), LENGTHS).is_err());
    }

    /// With any byte changed, decoding returns an error or an edit, and trusts no count.
    #[test]
    fn crafted_edits_are_errors_or_edits() {
        let good = sample().encode();
        let (mut refused, mut taken) = (0, 0);
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                match SchedulerEdit::decode(&bytes, LENGTHS) {
                    Ok(_) => taken += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 50 && taken > 50, "{refused} refused, {taken} taken");
    }
}
