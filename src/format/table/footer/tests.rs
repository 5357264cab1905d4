//! Footer and tail: encoded and decoded, byte for byte, and with every check tripped.

use super::*;
use crate::base::checksum::Context;
use crate::base::place::NodeId;
use crate::format::golden::Golden;
use crate::format::table::seal;

/// A slice of two blocks with all parts, directly behind the header.
fn slice() -> SliceEntry {
    SliceEntry {
        tree: TreeId { keyspace: KeyspaceId(3), partition: PartitionId(5) },
        items: 70,
        tombstones: 2,
        key_value_bytes: 8000,
        data: Span { offset: 4096, bytes: 8192 },
        data_blocks: 2,
        filter_offset: 12_288,
        filter: FilterShape {
            kind: FilterKind::Line,
            pages: 1,
            page_bytes: 512,
            probes: 6,
            ..FilterShape::NONE
        },
        fence_offset: 12_800,
        fence_pages: 1,
        fence_page_bytes: 512,
        top: Span { offset: 13_312, bytes: 512 },
        ranges_count: 3,
        ranges: Span { offset: 13_824, bytes: 512 },
        min: (*b"aa").into(),
        max: (*b"mmm").into(),
    }
}

/// A slice of one item behind the first slice.
fn small() -> SliceEntry {
    SliceEntry {
        tree: TreeId { keyspace: KeyspaceId(3), partition: PartitionId(6) },
        items: 1,
        tombstones: 0,
        key_value_bytes: 2,
        data: Span { offset: 14_336, bytes: 512 },
        data_blocks: 1,
        filter_offset: 0,
        filter: FilterShape::NONE,
        fence_offset: 0,
        fence_pages: 0,
        fence_page_bytes: 0,
        top: Span::default(),
        ranges_count: 0,
        ranges: Span::default(),
        min: (*b"k").into(),
        max: (*b"k").into(),
    }
}

const OFFSET: u64 = 14_848;

fn footer() -> Footer {
    Footer { blocks_checksum: 0x0102_0304, slices: vec![slice(), small()] }
}

/// A footer and a tail decode to themselves.
#[test]
fn footers_round_trip() {
    let footer = footer();
    assert_eq!(Footer::decode(&footer.encode(), OFFSET), Ok(footer.clone()));
    assert_eq!(footer.slices[0].span(), Span { offset: 4096, bytes: 10_240 });
    let span = Span { offset: OFFSET, bytes: 512 };
    assert_eq!(decode_tail(&encode_tail(span), OFFSET + 512), Ok(span));
}

/// Captions of a footer and its slices.
fn footer_fields(golden: &mut Golden, heading: &str, footer: &Footer) {
    golden.heading(heading);
    for (caption, count) in [
        ("checksum", 4),
        ("tag", 1),
        ("zero", 3),
        ("used", 4),
        ("slices", 4),
        ("blocks checksum", 4),
        ("zero", 4),
    ] {
        golden.field(caption, count);
    }
    for slice in &footer.slices {
        golden.heading("slice");
        for (caption, count) in [
            ("keyspace", 4),
            ("partition", 4),
            ("items", 8),
            ("tombstones", 8),
            ("key and value bytes", 8),
            ("data offset", 8),
            ("data bytes", 8),
            ("data blocks", 4),
            ("filter pages", 4),
            ("filter offset", 8),
            ("filter page bytes", 4),
            ("filter probes", 1),
            ("filter kind", 1),
            ("zero", 2),
            ("fence offset", 8),
            ("fence pages", 4),
            ("fence page bytes", 4),
            ("top offset", 8),
            ("top bytes", 4),
            ("ranges", 4),
            ("ranges offset", 8),
            ("ranges bytes", 4),
            ("length of the first key", 2),
            ("length of the last key", 2),
            ("first key", slice.min.len()),
            ("last key", slice.max.len()),
        ] {
            golden.field(caption, count);
        }
    }
}

/// Footer and tail byte for byte.
#[test]
fn golden() {
    let mut block = footer().encode();
    seal(&mut block, Context { file_uid: 7, offset: OFFSET, tag: FOOTER_TAG });
    let mut golden = Golden::new("table_footer", &block);
    footer_fields(&mut golden, "footer at offset 14848 of file uid 7", &footer());
    golden.zeros_to("padding", 512);
    golden.check();
    let mut page = encode_tail(Span { offset: OFFSET, bytes: 512 });
    seal(&mut page, Context { file_uid: 7, offset: OFFSET + 512, tag: TAIL_TAG });
    let mut golden = Golden::new("table_tail", &page);
    golden.heading("tail page at offset 15360 of file uid 7");
    for (caption, count) in
        [("checksum", 4), ("tag", 1), ("zero", 3), ("footer offset", 8), ("footer bytes", 4)]
    {
        golden.field(caption, count);
    }
    golden.zeros_to("zero", 4096);
    golden.check();
}

/// Slices of three nodes of one hashed tree: children 1, 2 and 6 of the root.
fn footer_of_nodes() -> Footer {
    let tree = TreeId { keyspace: KeyspaceId(KeyspaceId::HASHED | 4), partition: PartitionId(7) };
    let slices = [1u64, 2, 6].into_iter().zip(0..).map(|(child, number)| {
        let key =
            |last: u8| [&NodeId::ROOT.child(child as usize).first()[..], &[last]].concat().into_boxed_slice();
        let data = Span { offset: 4096 + 512 * number, bytes: 512 };
        SliceEntry { tree, items: 2, key_value_bytes: 40, data, min: key(b'a'), max: key(b'z'), ..small() }
    });
    Footer { blocks_checksum: 0x0102_0304, slices: slices.collect() }
}

/// The footer of a table with slices of a trie, byte for byte. Slices of nodes ascend by their keys; no node
/// may appear twice, and an ordered tree may have only one slice.
#[test]
fn golden_of_nodes() {
    let footer = footer_of_nodes();
    let offset = 4096 + 3 * 512;
    let mut block = footer.encode();
    assert_eq!(Footer::decode(&block, offset), Ok(footer.clone()));
    seal(&mut block, Context { file_uid: 7, offset, tag: FOOTER_TAG });
    let mut golden = Golden::new("table_footer_nodes", &block);
    footer_fields(&mut golden, "footer at offset 5632 of file uid 7", &footer);
    golden.zeros_to("padding", 512);
    golden.check();
    let of = |change: fn(&mut Vec<SliceEntry>)| {
        let mut changed = footer_of_nodes();
        change(&mut changed.slices);
        Footer::decode(&changed.encode(), offset).map_err(|error| error.what)
    };
    let order = Err("order of slices");
    assert_eq!(of(|slices| slices[1].min = slices[0].max.clone()), order);
    assert_eq!(of(|slices| slices.iter_mut().for_each(|slice| slice.tree.keyspace = KeyspaceId(4))), order);
}

/// Every check of a slice has a slice that trips it.
#[test]
fn malformed_slices_are_refused() {
    type Change = fn(&mut SliceEntry);
    let changes: [(&str, Change); 31] = [
        ("ids of a slice", |slice| slice.tree.keyspace.0 = 0),
        ("ids of a slice", |slice| slice.tree.partition.0 = 0),
        ("items of a slice", |slice| slice.items = 0),
        ("items of a slice", |slice| slice.tombstones = 71),
        ("data blocks of a slice", |slice| slice.data_blocks = 0),
        ("data blocks of a slice", |slice| slice.data_blocks = 71),
        ("order of the first and last key", |slice| slice.min = (*b"n").into()),
        ("order of the first and last key", |slice| slice.min = slice.max.clone()),
        ("order of the first and last key", |slice| {
            (slice.items, slice.tombstones, slice.data_blocks) = (1, 0, 1)
        }),
        ("filter of a slice", |slice| slice.filter.probes = 17),
        ("filter of a slice", |slice| slice.filter.page_bytes = 100),
        ("filter of a slice", |slice| slice.filter.kind = FilterKind::None),
        ("filter of a slice", |slice| slice.filter.kind = FilterKind::Fuse),
        ("filter of a slice", |slice| slice.filter = FilterShape { page_bytes: 512, ..FilterShape::NONE }),
        ("fence pages of a slice", |slice| slice.data_blocks = 1),
        ("fence pages of a slice", |slice| slice.fence_pages = 0),
        ("fence pages of a slice", |slice| slice.fence_pages = 3),
        ("fence page bytes", |slice| slice.fence_page_bytes = 0),
        ("fence page bytes", |slice| slice.fence_page_bytes = 100),
        ("fence page bytes", |slice| slice.fence_pages = 2),
        ("place of a part of a slice", |slice| slice.data.offset = 0),
        ("place of a part of a slice", |slice| slice.data.offset = 4100),
        ("place of a part of a slice", |slice| slice.data.bytes = 8191),
        ("place of a part of a slice", |slice| slice.filter_offset = 4096),
        ("place of a part of a slice", |slice| slice.fence_offset = 12_288),
        ("place of a part of a slice", |slice| slice.top.offset = 12_288 + 4096 + 1024),
        ("place of a part of a slice", |slice| slice.top.bytes = 0),
        ("place of a part of a slice", |slice| slice.top.bytes = 1536),
        ("place of a part of a slice", |slice| slice.ranges.bytes = 0),
        ("end of a part of a slice", |slice| slice.ranges.bytes = 1536),
        ("end of a part of a slice", |slice| slice.data.bytes = u64::MAX - 511),
    ];
    for (what, change) in changes {
        let mut footer = footer();
        change(&mut footer.slices[0]);
        let found = Footer::decode(&footer.encode(), OFFSET).map(|_| ()).map_err(|bad| bad.what);
        assert_eq!(found, Err(what));
    }
    let changes: [(&str, Change); 5] = [
        ("offset of an absent part", |slice| slice.filter_offset = 512),
        ("offset of an absent part", |slice| slice.top.bytes = 512),
        ("offset of an absent part", |slice| slice.ranges.offset = 14_848),
        ("fence page bytes", |slice| slice.fence_page_bytes = 512),
        ("data bytes of one block", |slice| slice.data.bytes = 2 << 20),
    ];
    for (what, change) in changes {
        let mut footer = footer();
        change(&mut footer.slices[1]);
        let found = Footer::decode(&footer.encode(), OFFSET).map(|_| ()).map_err(|bad| bad.what);
        assert_eq!(found, Err(what));
    }
}

/// Every check of the footer itself, and of the tail, has bytes that trip it.
#[test]
fn malformed_footers_are_refused() {
    let good = footer().encode();
    for (at, byte, what) in [
        (5, 1, "padding of a footer"),
        (8, 1, "used bytes of a footer"),
        (12, 0, "slices of a footer"),
        (12, 1, "used bytes of a footer"),
        (12, 3, "ids of a slice"),
        (20, 1, "padding of a footer"),
        (24 + 69, 5, "filter kind"),
        (24 + 69, 4, "filter of a slice"),
        (24 + 70, 1, "filter of a slice"),
        (24 + 71, 1, "filter of a slice"),
        (24 + 116, 255, "order of the first and last key"),
        (24 + 117, 255, "first key of a slice"),
        (24 + 119, 255, "last key of a slice"),
        (511, 1, "padding of a footer"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        let found = Footer::decode(&bad, OFFSET).map(|_| ()).map_err(|bad| bad.what);
        assert_eq!(found, Err(what), "byte {at} = {byte}");
    }
    let mut swapped = footer();
    swapped.slices[1].tree = swapped.slices[0].tree;
    assert!(Footer::decode(&swapped.encode(), OFFSET).is_err(), "trees ascend");
    assert!(Footer::decode(&good[..10], OFFSET).is_err(), "short");
    let span = Span { offset: OFFSET, bytes: 512 };
    let tail = encode_tail(span);
    for at in [5, 8, 9, 16, 20, 4095] {
        let mut bad = tail.clone();
        bad[at] ^= 1;
        assert!(decode_tail(&bad, OFFSET + 512).is_err(), "byte {at}");
    }
    assert!(decode_tail(&tail, OFFSET).is_err(), "elsewhere");
    assert!(decode_tail(&tail[..4000], OFFSET + 512).is_err(), "short");
    assert!(decode_tail(&[&tail[..], &[0]].concat(), OFFSET + 512).is_err(), "long");
    let low = encode_tail(Span { offset: 512, bytes: 512 });
    assert!(decode_tail(&low, 1024).is_err(), "in the header");
    let none = encode_tail(Span { offset: OFFSET, bytes: 0 });
    assert!(decode_tail(&none, OFFSET).is_err(), "empty");
}
