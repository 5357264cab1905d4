//! The payload of a log record: one batch, with the partitions that it creates and a run of items.
//!
//! The framing of records is in `frames`. The write path encodes, replay decodes. Pure.
//!
//! ```text
//! partition: size type   name: meaning (little-endian)
//! 4     u32    keyspace: not 0
//! 4     u32    partition: not 0
//! 1     u8     kind: 5
//! 1..2  varint name bytes: 255 at most
//! ..    bytes  name
//!
//! item: size type   name: meaning (little-endian)
//! 4     u32    keyspace: not 0
//! 4     u32    partition: not 0
//! 1     u8     kind: ItemKind
//! 1..3  varint key bytes
//! 1..3  varint value bytes: Put and DeleteRange only
//! ..    bytes  key: of a DeleteRange the first that is deleted
//! ..    bytes  value: Put and DeleteRange only; of a DeleteRange what comes after the last key that is
//!              deleted, so a greater key, or empty if nothing does
//! ```
//! Partitions come before items. Replay creates the partitions that the manifest has never had. If the
//! manifest does not have an item's partition yet, every record with such an item names that partition.
//!
//! Invariants: 1. a batch has at least one item; 2. item i of a record has sequence number first + i;
//! partitions have no sequence numbers.

use crate::base::codec::{ByteReader, Malformed, put_varint};
use crate::base::id::{ItemKind, KEY_BYTES_MAX, KeyspaceId, PartitionId, TreeId, VALUE_BYTES_MAX};
use crate::base::rule::PARTITION_NAME_BYTES_MAX;

/// One write of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) tree: TreeId,
    pub(crate) kind: ItemKind,
    pub(crate) key: &'a [u8],
    /// Empty for a delete; the exclusive end of a range delete.
    pub(crate) value: &'a [u8],
}

/// Kind of an entry that creates a partition.
const PARTITION: u8 = 5;
/// Offset of the kind in an entry.
const KIND_AT: usize = 8;

/// A partition that a record creates, unless its id was used before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MadePartition<'a> {
    pub(crate) tree: TreeId,
    pub(crate) name: &'a [u8],
}

/// Appends a partition. Call it before any [`put_item`]; the name must be one that a partition may have.
pub(crate) fn put_partition(out: &mut Vec<u8>, made: MadePartition<'_>) {
    debug_assert!(made.name.len() <= PARTITION_NAME_BYTES_MAX);
    out.extend_from_slice(&made.tree.keyspace.0.to_le_bytes());
    out.extend_from_slice(&made.tree.partition.0.to_le_bytes());
    out.push(PARTITION);
    put_varint(out, made.name.len() as u64);
    out.extend_from_slice(made.name);
}

/// Appends one item. The value of a delete must be empty, and lengths must be within their limits.
pub(crate) fn put_item(out: &mut Vec<u8>, tree: TreeId, kind: ItemKind, key: &[u8], value: &[u8]) {
    debug_assert!(key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX);
    debug_assert!(kind != ItemKind::Delete || value.is_empty());
    debug_assert!(kind != ItemKind::DeleteRange || value.is_empty() || key < value);
    out.extend_from_slice(&tree.keyspace.0.to_le_bytes());
    out.extend_from_slice(&tree.partition.0.to_le_bytes());
    out.push(kind as u8);
    put_varint(out, key.len() as u64);
    if kind != ItemKind::Delete {
        put_varint(out, value.len() as u64);
    }
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// The items of a fully checked payload.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    /// All of the payload.
    whole: ByteReader<'a>,
    rest: ByteReader<'a>,
    count: u64,
}

impl<'a> Items<'a> {
    /// Checks the whole payload. Cost: one pass over the heads of the items.
    pub(crate) fn new(payload: &'a [u8]) -> Result<Items<'a>, Malformed> {
        let mut reader = ByteReader::new(payload);
        while is_partition(&reader) {
            decode_partition(&mut reader)?;
        }
        let mut count = 0;
        while count == 0 || reader.remaining() > 0 {
            decode_item(&mut reader)?;
            count += 1;
        }
        Ok(Items::encoded(payload, count))
    }

    /// The items of a payload of `count` items that [`put_item`] made. Checks nothing in advance.
    pub(crate) fn encoded(payload: &'a [u8], count: u64) -> Items<'a> {
        let whole = ByteReader::new(payload);
        let mut rest = whole.clone();
        while is_partition(&rest) {
            decode_partition(&mut rest).expect(DECODED);
        }
        Items { rest, whole, count }
    }

    /// The partitions that the record creates.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = MadePartition<'a>> + use<'a> {
        let mut rest = self.whole.clone();
        std::iter::from_fn(move || is_partition(&rest).then(|| decode_partition(&mut rest).expect(DECODED)))
    }

    /// Bytes of the payload before the next item.
    pub(crate) fn offset(&self) -> usize {
        self.rest.at()
    }

    /// The item at an offset that [`Items::offset`] returned.
    pub(crate) fn at(&self, offset: usize) -> Item<'a> {
        let mut reader = self.whole.clone();
        reader.bytes(offset, "the items before").expect("an offset in the payload");
        decode_item(&mut reader).expect(DECODED)
    }

    /// Items not yet taken.
    pub(crate) fn count_left(&self) -> u64 {
        self.count
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        self.count = self.count.checked_sub(1)?;
        Some(decode_item(&mut self.rest).expect(DECODED))
    }
}

const DECODED: &str = "these bytes were decoded, or encoded, before";

/// Whether the next entry creates a partition.
#[inline]
fn is_partition(reader: &ByteReader<'_>) -> bool {
    reader.peek(KIND_AT) == Some(PARTITION)
}

fn decode_partition<'a>(reader: &mut ByteReader<'a>) -> Result<MadePartition<'a>, Malformed> {
    let tree = decode_tree(reader)?;
    reader.u8("the kind of an entry")?;
    let name_bytes =
        reader.varint_up_to(PARTITION_NAME_BYTES_MAX as u64, "the length of a partition's name")?;
    let name = reader.bytes(name_bytes as usize, "the name of a partition")?;
    Ok(MadePartition { tree, name })
}

fn decode_tree(reader: &mut ByteReader<'_>) -> Result<TreeId, Malformed> {
    let mut id = |what| {
        let before = reader.clone();
        match reader.u32(what)? {
            0 => Err(before.malformed(what, 1, 0)),
            id => Ok(id),
        }
    };
    Ok(TreeId { keyspace: KeyspaceId(id("the keyspace")?), partition: PartitionId(id("the partition")?) })
}

fn decode_item<'a>(reader: &mut ByteReader<'a>) -> Result<Item<'a>, Malformed> {
    let tree = decode_tree(reader)?;
    let before = reader.clone();
    let kind = reader.u8("the kind of item")?;
    let Some(kind) = ItemKind::from_u8(kind) else {
        return Err(before.malformed("the kind of item", ItemKind::Put as u64, kind.into()));
    };
    let key_bytes = reader.varint_up_to(KEY_BYTES_MAX as u64, "the key's length")?;
    let value_bytes = match kind {
        ItemKind::Put => reader.varint_up_to(VALUE_BYTES_MAX as u64, "the value's length")?,
        ItemKind::DeleteRange => reader.varint_up_to(KEY_BYTES_MAX as u64, "the end's length")?,
        ItemKind::Delete => 0,
    };
    let key = reader.bytes(key_bytes as usize, "the key")?;
    let before = reader.clone();
    let value = reader.bytes(value_bytes as usize, "the value")?;
    if kind == ItemKind::DeleteRange && !value.is_empty() && value <= key {
        return Err(before.malformed("the end of a range", key_bytes, value_bytes));
    }
    Ok(Item { tree, kind, key, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::golden::Golden;

    const TREE: TreeId = TreeId { keyspace: KeyspaceId(0x11), partition: PartitionId(0x2122) };

    fn batch() -> Vec<u8> {
        let mut out = Vec::new();
        put_item(&mut out, TREE, ItemKind::Put, b"key", b"value");
        put_item(&mut out, TREE, ItemKind::Delete, b"gone", b"");
        put_item(&mut out, TREE, ItemKind::DeleteRange, b"m", b"mz");
        put_item(&mut out, TREE, ItemKind::DeleteRange, b"x", b"");
        out
    }

    /// The put of both goldens.
    fn golden_put(golden: &mut Golden) {
        golden.heading("put");
        for (caption, count) in [("keyspace", 4), ("partition", 4), ("kind: put", 1), ("key bytes", 1)] {
            golden.field(caption, count);
        }
        for (caption, count) in [("value bytes", 1), ("key", 3), ("value", 5)] {
            golden.field(caption, count);
        }
    }

    /// The bytes of a batch.
    #[test]
    fn golden() {
        let bytes = batch();
        let mut golden = Golden::new("log_batch", &bytes);
        golden_put(&mut golden);
        golden.heading("delete");
        for (caption, count) in [("keyspace", 4), ("partition", 4), ("kind: delete", 1), ("key bytes", 1)] {
            golden.field(caption, count);
        }
        golden.field("key", 4);
        for (title, kind, end_bytes) in [("range", "kind: delete range", 2), ("range without end", "kind", 0)]
        {
            golden.heading(title);
            for (caption, count) in [("keyspace", 4), ("partition", 4), (kind, 1), ("start bytes", 1)] {
                golden.field(caption, count);
            }
            golden.field("end bytes", 1);
            golden.field("start", 1);
            golden.field("end", end_bytes);
        }
        golden.check();
    }

    const MADE: MadePartition<'_> = MadePartition { tree: TREE, name: b"t042" };

    /// A batch that creates two partitions, one without a name.
    fn batch_that_makes() -> Vec<u8> {
        let mut out = Vec::new();
        put_partition(&mut out, MADE);
        put_partition(&mut out, MadePartition { tree: TREE, name: b"" });
        put_item(&mut out, TREE, ItemKind::Put, b"key", b"value");
        out
    }

    /// The bytes of a batch that creates partitions.
    #[test]
    fn golden_of_partitions() {
        let bytes = batch_that_makes();
        let mut golden = Golden::new("log_partitions", &bytes);
        for (title, name_bytes) in [("partition", 4), ("partition without a name", 0)] {
            golden.heading(title);
            for (caption, count) in
                [("keyspace", 4), ("partition", 4), ("kind: partition", 1), ("name bytes", 1)]
            {
                golden.field(caption, count);
            }
            if name_bytes > 0 {
                golden.field("name", name_bytes);
            }
        }
        golden_put(&mut golden);
        golden.check();
    }

    /// Partitions come before items and do not count as items; each check of them has an input that trips it.
    #[test]
    fn partitions_come_first() {
        let bytes = batch_that_makes();
        let items = Items::new(&bytes).expect("decodes");
        let names: Vec<&[u8]> = items.partitions().map(|made| made.name).collect();
        assert_eq!((names, items.count_left()), (vec![&b"t042"[..], b""], 1));
        let encoded = Items::encoded(&bytes, 1);
        assert_eq!((items.offset(), encoded.offset()), (24, 24));
        assert_eq!(encoded.partitions().next(), Some(MADE));
        assert!(items.clone().eq(encoded) && items.at(24).key == b"key");
        let what = |bytes: &[u8]| Items::new(bytes).expect_err("refused").what;
        assert_eq!(what(&bytes[..24]), "the keyspace", "a batch has an item");
        assert_eq!(what(&bytes[..12]), "the name of a partition");
        assert_eq!(what(&[&bytes[..9], &[0x80, 0x02][..]].concat()), "the length of a partition's name");
        let mut behind = batch();
        put_partition(&mut behind, MADE);
        assert_eq!(what(&behind), "the kind of item");
        for at in [0, 4] {
            let mut none = bytes.clone();
            none[at] = 0;
            if at == 4 {
                none[5] = 0;
            }
            assert_eq!(what(&none), if at == 0 { "the keyspace" } else { "the partition" });
        }
    }

    /// Items with keys and values of every boundary length decode to themselves.
    #[test]
    fn round_trip() {
        let long = vec![7u8; VALUE_BYTES_MAX];
        let (mut out, mut items) = (Vec::new(), Vec::new());
        for key_bytes in [0, 1, 127, 128, KEY_BYTES_MAX] {
            for value_bytes in [0, 127, 128, VALUE_BYTES_MAX] {
                let (key, value) = (&long[..key_bytes], &long[..value_bytes]);
                items.push(Item { tree: TREE, kind: ItemKind::Put, key, value });
                items.push(Item { tree: TREE, kind: ItemKind::Delete, key, value: b"" });
                items.push(Item { tree: TREE, kind: ItemKind::DeleteRange, key, value: b"" });
            }
        }
        for item in &items {
            put_item(&mut out, item.tree, item.kind, item.key, item.value);
        }
        let decoded = Items::new(&out).expect("decodes");
        assert_eq!(decoded.count_left(), items.len() as u64);
        assert!(decoded.eq(items));
    }

    /// Encoding refuses items that no batch may hold.
    #[test]
    #[cfg(debug_assertions)]
    fn items_that_no_batch_may_hold_panic() {
        let refused = |kind, key: &[u8], value: &[u8]| {
            std::panic::catch_unwind(|| put_item(&mut Vec::new(), TREE, kind, key, value)).is_err()
        };
        let (key, value) = (vec![1; KEY_BYTES_MAX + 1], vec![1; VALUE_BYTES_MAX + 1]);
        assert!(!refused(ItemKind::Put, &key[1..], &value[1..]));
        assert!(refused(ItemKind::Put, &key, b""));
        assert!(refused(ItemKind::Put, b"", &value));
        assert!(refused(ItemKind::Delete, b"k", b"v"));
        for (end, is_refused) in [(&b"a"[..], true), (b"k", true), (b"l", false), (b"", false)] {
            assert_eq!(refused(ItemKind::DeleteRange, b"k", end), is_refused);
        }
    }

    /// Every check has an input that trips it; no cut of a batch between its items is accepted as an item.
    #[test]
    fn checks() {
        let what = |bytes: &[u8]| Items::new(bytes).expect_err("refused").what;
        let edited = |at: usize, byte: u8| {
            let mut bytes = batch();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(what(&[]), "the keyspace");
        assert_eq!(what(&edited(0, 0)), "the keyspace");
        assert_eq!(what(&[1, 0, 0, 0, 0, 0, 0, 0, 1]), "the partition");
        for kind in [0, 4, 255] {
            assert_eq!(what(&edited(8, kind)), "the kind of item");
        }
        assert_eq!(what(&[&batch()[..9], &[0x80, 0x80, 0x04][..]].concat()), "the key's length");
        assert_eq!(what(&[&batch()[..10], &[0x81, 0x80, 0x40][..]].concat()), "the value's length");
        let range_at = batch().len() - 12 - 14;
        assert_eq!(batch()[range_at + 8], ItemKind::DeleteRange as u8);
        let end_length = [&batch()[..range_at + 10], &[0x80, 0x80, 0x04][..]].concat();
        assert_eq!(what(&end_length), "the end's length");
        for (at, byte) in [(range_at + 11, b'n'), (range_at + 12, b'l')] {
            assert_eq!(what(&edited(at, byte)), "the end of a range");
        }
        let mut same = Vec::new();
        put_item(&mut same, TREE, ItemKind::Put, b"k", b"k");
        same[8] = ItemKind::DeleteRange as u8;
        assert_eq!(what(&same), "the end of a range");
        assert_eq!(what(&batch()[..13]), "the key");
        assert_eq!(what(&batch()[..18]), "the value");
        let bytes = batch();
        let ends = [19, 33, 47];
        for cut in 0..bytes.len() {
            assert_eq!(Items::new(&bytes[..cut]).is_ok(), ends.contains(&cut), "cut at {cut}");
        }
    }
}
