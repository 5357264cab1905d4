//! Range tombstones of a slice: joined, searched, encoded and decoded byte for byte, with every check
//! tripped.

use super::*;
use crate::base::checksum::Context;
use crate::format::golden::Golden;
use crate::format::table::{UNIT_BYTES, seal};

fn ranges(pairs: &[(&str, &str)]) -> Ranges {
    let mut ranges = Ranges::default();
    pairs.iter().for_each(|(start, end)| ranges.push(start.as_bytes(), end.as_bytes()));
    ranges
}

fn decoded(extents: &[Vec<u8>]) -> Result<Ranges, Malformed> {
    let mut ranges = Ranges::default();
    for extent in extents {
        assert_eq!(claimed_bytes(extent), Ok(extent.len()));
        ranges.decode_extent(extent)?;
    }
    Ok(ranges)
}

/// Ranges that touch, overlap or contain each other become one; a range without an end takes all ranges
/// behind it.
#[test]
fn ranges_are_joined() {
    let joined =
        ranges(&[("a", "c"), ("b", "d"), ("d", "e"), ("e0", "f"), ("e1", "e2"), ("x", ""), ("y", "z")]);
    let expected: [(&[u8], &[u8]); 3] = [(b"a", b"e"), (b"e0", b"f"), (b"x", b"")];
    assert!(joined.iter().eq(expected));
    assert_eq!(
        (joined.count(), joined.first(), joined.last()),
        (3, Some(&b"a"[..]), Some((&b"x"[..], &b""[..])))
    );
    assert!(ranges(&[("", "a"), ("", "")]).iter().eq([(&b""[..], &b""[..])]));
}

/// Search agrees with a check of each range, at and around every start and end.
#[test]
fn search_is_exact() {
    let sets: [&[(&str, &str)]; 7] = [
        &[],
        &[("", "")],
        &[("", "\0")],
        &[("a", "b"), ("b\0", "c"), ("cc", "ccc"), ("d", "")],
        &[("", "a"), ("k1", "k2"), ("k2\0\0", "k3")],
        // Keys that differ only behind the common prefix, some of them with equal heads.
        &[("prefix-a", "prefix-b"), ("prefix-longer-1", "prefix-longer-2"), ("prefix-longer-3", "")],
        &[("prefix", "prefix\0"), ("prefix\0\0", "prefix\0\0\0\0"), ("prefix\0\0\0\0\0", "prefix-")],
    ];
    for (set, is_indexed) in sets.into_iter().flat_map(|set| [(set, false), (set, true)]) {
        let mut ranges = ranges(set);
        if is_indexed {
            ranges.index();
        }
        let mut keys = vec![vec![], b"pref".to_vec(), b"prefiy".to_vec(), b"zz".to_vec()];
        for boundary in set.iter().flat_map(|(start, end)| [start, end]) {
            keys.push(boundary.as_bytes().to_vec());
            keys.push([boundary.as_bytes(), b"\0"].concat());
            keys.push([boundary.as_bytes(), b"m"].concat());
        }
        for key in &keys {
            let is_in = |(start, end): &(&str, &str)| {
                start.as_bytes() <= &key[..] && (end.is_empty() || &key[..] < end.as_bytes())
            };
            let expected = set.iter().any(is_in);
            assert_eq!(ranges.covers(key), expected, "{key:?} in {set:?}");
            let around = ranges.around(key);
            assert_eq!(around.is_covered, expected);
            assert!(around.from <= &key[..] && (around.to.is_empty() || &key[..] < around.to));
            let is_alike = |key: &[u8]| around.from <= key && (around.to.is_empty() || key < around.to);
            for other in keys.iter().filter(|key| is_alike(key)) {
                assert_eq!(ranges.covers(other), expected);
            }
        }
    }
}

/// Many ranges with the longest keys take several extents, each within its bound, and decode to themselves.
#[test]
fn extents_round_trip() {
    let mut many = Ranges::default();
    for number in 0..20_000u32 {
        many.push(&(2 * number).to_be_bytes(), &(2 * number + 1).to_be_bytes());
    }
    let long = [vec![1; KEY_BYTES_MAX], vec![2; KEY_BYTES_MAX], vec![3; KEY_BYTES_MAX]];
    let mut longest = Ranges::default();
    longest.push(b"", b"\0");
    longest.push(&long[0], &long[1]);
    longest.push(&long[2], b"");
    for ranges in [many, longest, ranges(&[("a", "b")])] {
        let extents = ranges.encode();
        assert!(extents.iter().all(|extent| extent.len() <= extent_bytes(EXTENT_BYTES_LIMIT)));
        let bytes: usize = extents.iter().map(Vec::len).sum();
        assert!(ranges.encoded_bytes() <= 2 * bytes as u64 && bytes as u64 <= 2 * ranges.encoded_bytes());
        assert_eq!(decoded(&extents), Ok(ranges));
    }
}

/// An extent of three ranges, the last without an end.
#[test]
fn golden() {
    let mut extents = ranges(&[("aa", "b"), ("key", "key\0"), ("y", "")]).encode();
    let [extent] = extents.as_mut_slice() else { panic!("few ranges fit one extent") };
    seal(extent, Context { file_uid: 7, offset: 20_480, tag: RANGES_TAG });
    let mut golden = Golden::new("table_ranges", extent);
    golden.heading("range block at offset 20480 of file uid 7");
    let head = [("checksum", 4), ("tag", 1), ("zero", 3), ("ranges", 4), ("used", 4)];
    for (caption, count) in head {
        golden.field(caption, count);
    }
    for _ in 0..3 {
        golden.field("length of the start", 2);
        golden.field("length of the end", 2);
    }
    for (caption, count) in [("start", 2), ("end", 1), ("start", 3), ("end", 4), ("start", 1)] {
        golden.field(caption, count);
    }
    golden.zeros_to("padding", UNIT_BYTES);
    golden.check();
}

/// Every check of the decoder has an input that trips it.
#[test]
fn malformed_extents_are_refused() {
    let good = ranges(&[("a", "bc"), ("d", "")]).encode().remove(0);
    let refused = |extent: &[u8], what| {
        let found = Ranges::default().decode_extent(extent).map_err(|bad| bad.what);
        assert_eq!(found, Err(what));
    };
    for (bytes, what) in [
        (4, "range block"),
        (7, "padding of a range block"),
        (11, "ranges of a range block"),
        (15, "used bytes of a range block"),
        (23, "lengths in a range block"),
        (24, "start of a range"),
        (26, "end of a range"),
        (511, "used bytes of a range block"),
    ] {
        refused(&good[..bytes], what);
    }
    for (at, byte, what) in [
        (5, 1, "padding of a range block"),
        (8, 0, "ranges of a range block"),
        (11, 255, "lengths in a range block"),
        (12, 27, "used bytes of a range block"),
        (13, 2, "used bytes of a range block"),
        (17, 255, "start of a range"),
        (19, 255, "end of a range"),
        // The end of the first range is missing, equal to its start, or before it.
        (18, 0, "order of ranges"),
        (25, b'a', "used bytes of a range block"),
        (24, b'c', "order of ranges"),
        (25, b'e', "order of ranges"),
        (511, 1, "padding of a range block"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        if (at, byte) == (25, b'a') {
            // "a" to "ac" is well-formed, so only the extent's length is wrong.
            assert!(Ranges::default().decode_extent(&bad).is_ok());
            bad.extend_from_slice(&[0; UNIT_BYTES]);
        }
        refused(&bad, what);
    }
    let touching = [ranges(&[("a", "b")]).encode(), ranges(&[("b", "c")]).encode()].concat();
    assert_eq!(decoded(&touching).map_err(|bad| bad.what), Err("order of ranges"));
    for (used, is_good) in [(0, false), (15, false), (16, true), (512, true), (513, false), (u32::MAX, false)]
    {
        let mut claims = good.clone();
        claims[12..16].copy_from_slice(&used.to_le_bytes());
        assert_eq!(claimed_bytes(&claims).is_ok(), is_good, "{used}");
    }
    assert!(claimed_bytes(&good[..15]).is_err());
    let huge = [&good[..12], &(1u32 << 20).to_le_bytes(), &vec![0; 2 << 20][..]].concat();
    assert!(claimed_bytes(&huge).is_err(), "extents are bounded");
}

/// The greatest key before an end is exact if it is short.
#[test]
fn last_keys() {
    assert_eq!(last_key(b"k\0"), Some(&b"k"[..]));
    assert_eq!(last_key(b"\0"), Some(&b""[..]));
    assert_eq!(last_key(b"k"), Some(&b"k"[..]));
    assert_eq!(last_key(b""), None);
}

/// Ranges of letters, in the order that `push` requires, some of them joined.
fn some_ranges() -> impl proptest::strategy::Strategy<Value = Ranges> {
    use proptest::prelude::*;
    let range = (0u8..40, 1u8..8).prop_map(|(start, count)| (start, start + count));
    prop::collection::vec(range, 0..8).prop_map(|mut list| {
        list.sort_unstable();
        let mut ranges = Ranges::default();
        for (start, end) in list {
            // The last letters stand for a missing end.
            let end: &[u8] = if end > 40 { &[] } else { &[end] };
            ranges.push(&[start], end);
        }
        ranges
    })
}

proptest::proptest! {
    /// The union of lists covers the keys that any list covers, in as few ranges as possible. A check of
    /// every list for each range of keys confirms it.
    #[test]
    fn unions_cover_the_keys_of_every_list(lists in proptest::collection::vec(some_ranges(), 0..6)) {
        let union = Ranges::union(&lists);
        let keys: Vec<Vec<u8>> = (0u8..50).flat_map(|key| [vec![key], vec![key, 0]]).collect();
        let is_in = |key: &[u8]| lists.iter().any(|list| list.covers(key));
        for key in &keys {
            proptest::prop_assert_eq!(union.covers(key), is_in(key), "{:?}", key);
        }
        proptest::prop_assert!(union.iter().zip(union.iter().skip(1)).all(|(one, next)| one.1 < next.0));
        let mut indexed = union.clone();
        indexed.index();
        let heads = indexed.index.as_ref().map_or(0, |index| index.heads.len());
        proptest::prop_assert!(indexed == union && heads + 1 >= 2 * union.count());
        for key in &keys {
            proptest::prop_assert_eq!(indexed.around(key), union.around(key));
        }
        let end_over = |key: &[u8]| lists.iter().map(|list| list.end_over(key)).fold(None, farther);
        for (at, first) in keys.iter().enumerate() {
            for (to, last) in keys.iter().enumerate().skip(at + 1) {
                let up_to_last = are_covered(first, Bound::Included(last), end_over);
                proptest::prop_assert_eq!(up_to_last, keys[at..=to].iter().all(|key| is_in(key)));
                let before_last = are_covered(first, Bound::Excluded(last), end_over);
                proptest::prop_assert_eq!(before_last, keys[at..to].iter().all(|key| is_in(key)));
            }
            let is_covered = are_covered(first, Bound::Unbounded, end_over);
            proptest::prop_assert_eq!(is_covered, keys[at..].iter().all(|key| is_in(key)));
        }
    }
}

/// A union of many lists reads each range about log2 of the number of lists times, not once for each list.
#[test]
fn a_union_of_many_lists_is_made_at_once() {
    let lists: Vec<Ranges> = (0..1000u32)
        .map(|list| {
            let mut ranges = Ranges::default();
            (0..50u32).for_each(|number| {
                let start = number * 10_000 + list * 2;
                ranges.push(&start.to_be_bytes(), &(start + 1).to_be_bytes());
            });
            ranges
        })
        .collect();
    let union = Ranges::union(&lists);
    assert_eq!(union.count(), 50_000);
    // The union allocated its memory once.
    assert_eq!((union.keys.capacity(), union.ends.capacity()), (union.keys.len(), union.ends.len()));
}

/// Lists in ascending order are concatenated; a range that continues in the next list becomes one range.
#[test]
fn lists_that_follow_each_other_are_appended() {
    let lists = [ranges(&[("a", "b"), ("c", "d")]), ranges(&[]), ranges(&[("d", "e")]), ranges(&[("x", "")])];
    let all = Ranges::concatenated(lists.iter());
    assert_eq!(all, ranges(&[("a", "b"), ("c", "e"), ("x", "")]));
}

/// A search among 60,000 indexed ranges reads few keys, even if the keys share long prefixes.
#[test]
fn few_keys_are_compared() {
    let key = |number: u64| format!("a/beginning/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut keys: Vec<String> = (0..60_000).map(key).collect();
    keys.sort_unstable();
    let mut ranges = Ranges::default();
    keys.iter().for_each(|key| ranges.push(key.as_bytes(), format!("{key}x").as_bytes()));
    ranges.index();
    let before = KEY_LOOKS.get();
    for key in keys.iter().step_by(60) {
        assert!(ranges.covers(key.as_bytes()) && !ranges.covers(format!("{key}y").as_bytes()));
    }
    let looks = (KEY_LOOKS.get() - before) / 2000;
    assert!(looks <= 8, "{looks} keys a search");
}
