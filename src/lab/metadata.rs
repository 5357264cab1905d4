//! The metadata record: the live files on disk, and the items in memory at the time of the save.
//!
//! A save writes one whole file. The file with the highest number that can be read is live; the others are
//! removed once it is durable. The papers' record holds value size, number of items and of components, their
//! sizes and counts, and the Bloom filter. Here an opening rebuilds the filters instead.
//!
//! ```text
//! offset size type  name: meaning (little-endian)
//! 0      4096       header (format::header, kind lab)
//! 4096   4    u32   checksum: of bytes 4100.. under (the file's uid, offset 4096, tag 1)
//! 4100   8    u64   length: of the whole file, in bytes
//! 4108   2    u16   length of a key
//! 4110   2    u16   length of a value
//! 4112   1    u8    layout: 1 sorted, 2 append
//! 4113   8    u64   operations: writes accepted so far
//! 4121              items of the memory component, then of the buffer: u32 count, then {key, kind u8, value}
//!                   each; then u32 components, each u32 arrays, newest first, each {layout u8, u64 count,
//!                   u64 keys' number, u64 uid, u8 1 if values are apart, their u64 number and u64 uid or
//!                   zeros, least key, greatest key}
//! ```
//! Invariant: decoding never trusts a count beyond the bytes available.

use crate::base::checksum::Context;
use crate::base::codec::{ByteReader, Malformed};
use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName, ItemKind};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::io::storage::{Storage, read_whole};
use crate::merge::MergeItem;

use super::array::ArrayMeta;
use super::knobs::ItemOrder;
use super::memory::{ItemList, Lengths};
use super::pages::{CONTENT_BYTES, metadata_name};

const TAG: u8 = 1;

/// The decoded record; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Metadata {
    pub(super) store_id: u128,
    pub(super) layout: ItemOrder,
    pub(super) operations: u64,
    pub(super) memory: ItemList,
    pub(super) buffer: ItemList,
    /// Arrays of each component, newest first.
    pub(super) components: Vec<Vec<ArrayMeta>>,
}

impl Metadata {
    /// Writes the record as a file of its own. With `sync`, makes the file and all earlier names durable.
    pub(super) fn save(&self, storage: &dyn Storage, number: u64, uid: u64, sync: bool) -> Result<u64> {
        let file = metadata_name(number);
        let bytes = self.encode(uid);
        storage.create(file)?;
        storage.write(file, 0, &bytes)?;
        if sync {
            storage.sync(file)?;
            storage.sync_directory()?;
        }
        Ok(bytes.len() as u64)
    }

    /// Reads and checks the file.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged, `Unsupported` if a newer release wrote it.
    pub(super) fn load(storage: &dyn Storage, number: u64) -> Result<Metadata> {
        let file = metadata_name(number);
        let length = storage.length(file)?.unwrap_or(0);
        let bytes = read_whole(storage, file, length)?;
        let header = FileHeader::decode(file, &bytes, FileKind::Lab)?;
        let body = bytes.get(PAGE_BYTES..).unwrap_or_default();
        decode(file, header, body, length)
    }

    fn encode(&self, uid: u64) -> Vec<u8> {
        let lengths = self.memory.lengths;
        let mut out = FileHeader { kind: FileKind::Lab, store_id: self.store_id, uid, features: 0 }.encode();
        let body_at = out.len();
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&(lengths.key_bytes as u16).to_le_bytes());
        out.extend_from_slice(&(lengths.value_bytes as u16).to_le_bytes());
        out.push(layout_byte(self.layout));
        out.extend_from_slice(&self.operations.to_le_bytes());
        for items in [&self.memory, &self.buffer] {
            put_items(&mut out, items);
        }
        out.extend_from_slice(&(self.components.len() as u32).to_le_bytes());
        for arrays in &self.components {
            out.extend_from_slice(&(arrays.len() as u32).to_le_bytes());
            arrays.iter().for_each(|array| put_array(&mut out, array));
        }
        let length = out.len() as u64;
        out[body_at + 4..body_at + 12].copy_from_slice(&length.to_le_bytes());
        let context = Context { file_uid: uid, offset: body_at as u64, tag: TAG };
        let checksum = context.checksum(&[&out[body_at + 4..]]);
        out[body_at..body_at + 4].copy_from_slice(&checksum.to_le_bytes());
        out
    }
}

fn layout_byte(layout: ItemOrder) -> u8 {
    match layout {
        ItemOrder::Sorted => 1,
        ItemOrder::Append => 2,
    }
}

fn put_items(out: &mut Vec<u8>, items: &ItemList) {
    out.extend_from_slice(&(items.len() as u32).to_le_bytes());
    for index in 0..items.len() {
        let item = items.item(index);
        out.extend_from_slice(item.key);
        out.push(item.kind as u8);
        out.extend_from_slice(item.value);
        out.resize(out.len() + items.lengths.value_bytes - item.value.len(), 0);
    }
}

pub(super) fn put_array(out: &mut Vec<u8>, array: &ArrayMeta) {
    out.push(layout_byte(array.layout));
    out.extend_from_slice(&array.count.to_le_bytes());
    let (values, apart) = (array.values.unwrap_or_default(), u8::from(array.values.is_some()));
    for word in [array.keys.0, array.keys.1] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.push(apart);
    for word in [values.0, values.1] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&array.least);
    out.extend_from_slice(&array.greatest);
}

fn decode(file: FileName, header: FileHeader, body: &[u8], length: u64) -> Result<Metadata> {
    let malformed = |bad: Malformed| Error::malformed(file, PAGE_BYTES as u64, bad);
    let mut reader = ByteReader::new(body);
    let stored = reader.u32("the metadata's checksum").map_err(malformed)?;
    let checked = body.get(4..).unwrap_or_default();
    let context = Context { file_uid: header.uid, offset: PAGE_BYTES as u64, tag: TAG };
    let found = context.checksum(&[checked]);
    if stored != found {
        return Err(Error::corrupt(file, PAGE_BYTES as u64, "the metadata's checksum", stored, found));
    }
    let stored_length = reader.u64("the metadata's length").map_err(malformed)?;
    if stored_length != length {
        return Err(Error::corrupt(file, 0, "the metadata's length", stored_length, length));
    }
    contents(header.store_id, &mut reader).map_err(malformed)
}

fn contents(store_id: u128, reader: &mut ByteReader<'_>) -> std::result::Result<Metadata, Malformed> {
    let key_bytes = usize::from(reader.u16("the length of keys")?);
    let value_bytes = usize::from(reader.u16("the length of values")?);
    if key_bytes == 0 || key_bytes + 1 + value_bytes > CONTENT_BYTES {
        return Err(reader.malformed("the length of keys", 1, key_bytes as u64));
    }
    let lengths = Lengths { key_bytes, value_bytes };
    let layout = get_layout(reader)?;
    let operations = reader.u64("the number of operations")?;
    let memory = get_items(reader, lengths)?;
    let buffer = get_items(reader, lengths)?;
    let mut components = Vec::new();
    for _ in 0..reader.u32("the number of components")? {
        let mut arrays = Vec::new();
        for _ in 0..reader.u32("the number of arrays")? {
            arrays.push(get_array(reader, lengths)?);
        }
        components.push(arrays);
    }
    if reader.remaining() > 0 {
        return Err(reader.malformed("the end of the metadata", 0, reader.remaining() as u64));
    }
    Ok(Metadata { store_id, layout, operations, memory, buffer, components })
}

fn get_layout(reader: &mut ByteReader<'_>) -> std::result::Result<ItemOrder, Malformed> {
    match reader.u8("the layout")? {
        1 => Ok(ItemOrder::Sorted),
        2 => Ok(ItemOrder::Append),
        byte => Err(reader.malformed("the layout", 1, u64::from(byte))),
    }
}

fn get_items(reader: &mut ByteReader<'_>, lengths: Lengths) -> std::result::Result<ItemList, Malformed> {
    let mut items = ItemList::new(lengths);
    for _ in 0..reader.u32("the number of items")? {
        let key = reader.bytes(lengths.key_bytes, "a key")?;
        let byte = reader.u8("an item's kind")?;
        let value = reader.bytes(lengths.value_bytes, "a value")?;
        match ItemKind::from_u8(byte) {
            Some(kind @ ItemKind::Put) => items.push(MergeItem { key, kind, value }),
            Some(kind @ ItemKind::Delete) => items.push(MergeItem { key, kind, value: &[] }),
            _ => return Err(reader.malformed("an item's kind", 1, u64::from(byte))),
        }
    }
    Ok(items)
}

pub(super) fn get_array(
    reader: &mut ByteReader<'_>,
    lengths: Lengths,
) -> std::result::Result<ArrayMeta, Malformed> {
    let layout = get_layout(reader)?;
    let count = reader.u64("the number of an array's items")?;
    // The limit keeps file lengths computed from the count from overflowing.
    if count == 0 || count > 1 << 40 {
        return Err(reader.malformed("the number of an array's items", 1, count));
    }
    let number = |reader: &mut ByteReader<'_>| {
        let number = reader.u64("a file's number")?;
        if number >= 1 << 62 { Err(reader.malformed("a file's number", 0, number)) } else { Ok(number) }
    };
    let keys = (number(reader)?, reader.u64("a file's uid")?);
    let apart = reader.u8("whether values are apart")?;
    let values = (number(reader)?, reader.u64("a file's uid")?);
    if apart > 1 {
        return Err(reader.malformed("whether values are apart", 1, u64::from(apart)));
    }
    let least = reader.bytes(lengths.key_bytes, "the least key")?.to_vec();
    let greatest = reader.bytes(lengths.key_bytes, "the greatest key")?.to_vec();
    Ok(ArrayMeta { layout, count, keys, values: (apart == 1).then_some(values), least, greatest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::SimDisk;

    fn sample() -> Metadata {
        let lengths = Lengths { key_bytes: 2, value_bytes: 3 };
        let mut memory = ItemList::new(lengths);
        memory.push(MergeItem { key: b"ab", kind: ItemKind::Put, value: b"123" });
        memory.push(MergeItem { key: b"aa", kind: ItemKind::Delete, value: b"" });
        let array = |number, values| ArrayMeta {
            layout: ItemOrder::Sorted,
            count: 3,
            keys: (number, 77),
            values,
            least: b"aa".to_vec(),
            greatest: b"zz".to_vec(),
        };
        Metadata {
            store_id: 9,
            layout: ItemOrder::Sorted,
            operations: 12,
            buffer: memory.sorted(),
            memory,
            components: vec![vec![array(3, None), array(2, Some((4, 5)))], vec![], vec![array(1, None)]],
        }
    }

    /// A record decodes to itself; a record with any bit flipped or any cut is an error.
    #[test]
    fn round_trip_flips_and_cuts() {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("an empty disk");
        let metadata = sample();
        metadata.save(&*disk, 6, 55, true).expect("room");
        assert_eq!(Metadata::load(&*disk, 6).expect("as written"), metadata);
        let name = metadata_name(6);
        let good = disk.contents(name).expect("it is there");
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            disk.set_contents(name, Some(&bytes));
            assert!(Metadata::load(&*disk, 6).is_err(), "bit {bit}");
        }
        for length in (0..good.len()).step_by(7) {
            disk.set_contents(name, Some(&good[..length]));
            assert!(Metadata::load(&*disk, 6).is_err(), "{length} bytes");
        }
    }

    /// Crafted contents under a right checksum are errors or decode; none panics or makes the decoder trust a
    /// count.
    #[test]
    fn crafted_contents_are_checked() {
        let good = sample().encode(55);
        let header = FileHeader { kind: FileKind::Lab, store_id: 9, uid: 55, features: 0 };
        let (mut refused, mut taken) = (0, 0);
        for at in PAGE_BYTES + 12..good.len() {
            for byte in [0, 1, 2, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                let context = Context { file_uid: 55, offset: PAGE_BYTES as u64, tag: TAG };
                let checksum = context.checksum(&[&bytes[PAGE_BYTES + 4..]]);
                bytes[PAGE_BYTES..PAGE_BYTES + 4].copy_from_slice(&checksum.to_le_bytes());
                match decode(metadata_name(6), header, &bytes[PAGE_BYTES..], bytes.len() as u64) {
                    Ok(_) => taken += 1,
                    Err(Error::Corrupt(_)) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(refused > 50 && taken > 50, "{refused} refused, {taken} taken");
    }
}
