//! Blocks without places.

use super::*;

/// A block without places, with deletes and keys of many lengths: each item is found by its stored key, by
/// index and by both bounds, and the block contains no place.
#[test]
fn blocks_leave_places_out() {
    let secret = HashSecret::expand([4; 16]);
    let stored = |key: &[u8]| {
        let mut stored = Vec::new();
        put_placed(&secret, (b"", key), &mut stored);
        stored
    };
    for given in models() {
        let fits = |key: &&Vec<u8>| key.len() <= PLACED_KEY_BYTES_MAX;
        let model: Model = given.keys().filter(fits).map(|key| (stored(key), given[key].clone())).collect();
        if model.is_empty() {
            continue;
        }
        let mut builder = DataBuilder::without_places(4096, Compression::None);
        model.iter().for_each(|(key, (kind, value))| builder.add(key, tag(key), *kind, value));
        let (mut out, used) = (Vec::new(), builder.pending_bytes());
        builder.encode(model.len(), CONTEXT, &mut out);
        assert_eq!(out.len(), extent_bytes(used));
        let whole = block(&model);
        assert!(u32_at(&out, 8) + 8 * model.len() as u32 <= u32_at(&whole, 8) + 30, "places are left out");
        let layout = check(&out).expect("built blocks are sound");
        assert!(layout.leaves_places_out());
        for (index, (key, (kind, value))) in model.iter().enumerate() {
            let found = find(&out, key, tag(key), None).expect("it is there");
            assert_eq!((found.kind, &out[found.value]), (*kind, value.as_slice()));
            assert_eq!(layout.key(&out, index, &secret), *key);
            assert_eq!(layout.lower_bound_by(&out, key, &secret), index);
            assert_eq!(layout.upper_bound_by(&out, key, &secret), index + 1);
            let other = [key, &b"\0"[..]].concat();
            let found = find(&out, &other, tag(&other), None).is_some();
            // A lookup finds a key only under the tag of an item with that key.
            let has_tag = model.keys().any(|key| key[11..] == other[11..] && tag(key) == tag(&other));
            assert_eq!(found, has_tag);
        }
        assert_eq!(find(&out, b"short", 0, None), None);
    }
}

/// A block without places, byte for byte.
#[test]
fn golden_without_places() {
    let mut builder = DataBuilder::without_places(4096, Compression::None);
    for (place, key) in [(1, "key-2"), (2, "key-1"), (3, "key-33")] {
        builder.add(&[&[place; 11], key.as_bytes()].concat(), place, ItemKind::Put, b"value");
    }
    let mut block = Vec::new();
    builder.encode(3, CONTEXT, &mut block);
    let mut golden = Golden::new("table_data_without_places", &block);
    golden.heading("data block at offset 4096 of file uid 7");
    for (caption, count) in [
        ("checksum", 4),
        ("tag", 1),
        ("flags", 1),
        ("items", 2),
        ("used", 4),
        ("prefix length", 2),
        ("suffix length", 2),
        ("value length", 4),
        ("tags", 3),
        ("suffix ends", 6),
        ("prefix", 4),
        ("suffixes", 4),
        ("values", 15),
    ] {
        golden.field(caption, count);
    }
    golden.zeros_to("padding", 512);
    golden.check();
    let mut long = block.clone();
    long[27..29].copy_from_slice(&[255, 255]);
    assert!(check(&long).is_err(), "ends beyond the values");
}
