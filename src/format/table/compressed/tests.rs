//! Compressed blocks: round trips, limits of allocation, every check tripped, and the bytes.

use super::*;
use crate::base::checksum::Context;
use crate::base::id::ItemKind;
use crate::format::golden::Golden;
use crate::format::table::data::{self, extent_claimed};
use crate::format::table::data_build::DataBuilder;
use crate::format::table::{check_seal, seal};

const CONTEXT: Context = Context { file_uid: 7, offset: 4096, tag: 1 };

/// A block of `items` values of `bytes` bytes, each repeating itself after `period` bytes.
fn block(compression: Compression, items: u32, bytes: usize, period: u32) -> Vec<u8> {
    let mut builder = DataBuilder::new(65_536, compression);
    let mut state = 1u32;
    let mut noise = Vec::new();
    for _ in 0..period {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.push((state >> 24) as u8);
    }
    for n in 0..items {
        let value: Vec<u8> = noise.iter().cycle().skip(n as usize * bytes).take(bytes).copied().collect();
        builder.add(&n.to_be_bytes(), n as u8, ItemKind::Put, &value);
    }
    let mut out = Vec::new();
    let checksum = builder.encode(items as usize, CONTEXT, &mut out);
    assert_eq!(check_seal(&out, CONTEXT), Ok(checksum));
    assert_eq!(extent_claimed(&out), Some(out.len()));
    out
}

/// A decompressed block equals the uncompressed one byte for byte, except for the checksum, at every size.
#[test]
fn blocks_come_out_as_they_went_in() {
    for (items, bytes) in [(1, 4000), (30, 100), (1, 1 << 20), (500, 100), (7, 1008), (2000, 7)] {
        let plain = block(Compression::None, items, bytes, 16);
        let stored = block(Compression::Lz4, items, bytes, 16);
        assert_eq!(plain_bytes(&plain), Ok(None));
        assert_eq!(plain_bytes(&stored), Ok(Some(plain.len())), "{items} of {bytes} shrink");
        assert!(stored.len() * 8 <= plain.len() * 7);
        // Old bytes of the buffer leave no trace.
        let mut out = vec![0xaa; plain.len()];
        decompress(&stored, &mut out).expect("sound");
        assert_eq!(out[..4], [0; 4]);
        assert_eq!(out[4..], plain[4..]);
        assert!(data::check(&out).is_ok());
    }
}

/// A block is compressed only if that saves an eighth of its units: never with noise, and never with one
/// unit.
#[test]
fn incompressible_blocks_are_stored_plain() {
    for (items, bytes, period) in [(30, 100, 3001), (1, 20, 1), (1, 0, 1), (1, 70_000, 70_000)] {
        let (stored, plain) =
            (block(Compression::Lz4, items, bytes, period), block(Compression::None, items, bytes, period));
        assert_eq!(plain_bytes(&stored), Ok(None), "{items} of {bytes}, period {period}");
        assert_eq!(stored, plain);
    }
    // With eight units, the share of noise decides: seven units are small enough, one byte more is not.
    let stored_units = |noise: u32| block(Compression::Lz4, 1, 4050, noise).len() / UNIT_BYTES;
    let units: Vec<usize> = (3300..3700).step_by(10).map(stored_units).collect();
    assert!(units.contains(&7) && units.contains(&8), "{units:?}");
    assert!(units.is_sorted(), "{units:?}");
}

/// Every check has bytes that trip it, and no length beyond the limits is ever returned.
#[test]
fn malformed_blocks_are_refused() {
    let good = block(Compression::Lz4, 30, 100, 16);
    let plain = plain_bytes(&good).expect("sound").expect("compressed");
    let used = u32::from_le_bytes([good[8], good[9], good[10], good[11]]) as usize;
    for (at, byte, what) in [
        (5, COMPRESSED | 1, "flags of a compressed block"),
        (6, 1, "unused bytes of a compressed block"),
        (7, 1, "unused bytes of a compressed block"),
        (8, 16, "extent of a compressed block"),
        (9, 255, "extent of a compressed block"),
        (used, 1, "padding of a compressed block"),
        (14, 255, "plain length of a compressed block"),
        (15, 255, "plain length of a compressed block"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        if at == 8 {
            bad[9] = 0;
        }
        assert_eq!(plain_bytes(&bad).map_err(|bad| bad.what), Err(what), "byte {at} = {byte}");
        let refused = decompress(&bad, &mut vec![0; plain]);
        assert_eq!(refused.map_err(|bad| bad.what), Err(what), "byte {at} = {byte}");
    }
    let mut short = good.clone();
    short[12..16].copy_from_slice(&(good.len() as u32).to_le_bytes());
    assert_eq!(plain_bytes(&short).map_err(|bad| bad.what), Err("plain length of a compressed block"));
    assert!(plain_bytes(&good[..12]).is_err(), "short");
    assert!(plain_bytes(&[&good[..], &[0; UNIT_BYTES]].concat()).is_err(), "a unit too long");
    // The longest valid claim: 255 times the stored bytes, and never more than the largest block.
    let mut claim = good.clone();
    let limit = SKIPPED_BYTES + (used - HEADER_BYTES) * RATIO_MAX;
    for (claimed, is_refused) in [(limit, false), (limit + 1, true)] {
        claim[12..16].copy_from_slice(&(claimed as u32).to_le_bytes());
        assert_eq!(plain_bytes(&claim).is_err(), is_refused);
    }
    let mut claim = block(Compression::Lz4, 1, 1 << 20, 60_000);
    for (claimed, is_refused) in [(DATA_BLOCK_BYTES_MAX, false), (DATA_BLOCK_BYTES_MAX + 1, true)] {
        claim[12..16].copy_from_slice(&(claimed as u32).to_le_bytes());
        assert_eq!(plain_bytes(&claim).is_err(), is_refused);
    }
}

/// A wrong plain length and invalid LZ4 bytes are refused; no flipped byte causes a panic.
#[test]
fn damaged_blocks_never_panic() {
    let good = block(Compression::Lz4, 30, 100, 16);
    let plain = plain_bytes(&good).expect("sound").expect("compressed");
    let used = u32::from_le_bytes([good[12], good[13], good[14], good[15]]);
    for claimed in [used - 1, used + 1, used * 2] {
        let mut bad = good.clone();
        bad[12..16].copy_from_slice(&claimed.to_le_bytes());
        let bytes = plain_bytes(&bad).expect("within the limits").expect("compressed");
        assert!(decompress(&bad, &mut vec![0; bytes]).is_err(), "{claimed} in place of {used}");
    }
    let mut refused = 0;
    for at in HEADER_BYTES..good.len() {
        for flip in [1u8, 0x10, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            let mut out = vec![0; plain];
            match decompress(&bad, &mut out) {
                Ok(()) => drop(data::check(&out)),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// A compressed block byte for byte.
#[test]
fn golden() {
    let mut builder = DataBuilder::new(4096, Compression::Lz4);
    for n in 0..8u8 {
        builder.add(&[b'k', n], n, ItemKind::Put, &[b'v'; 100]);
    }
    let mut stored = Vec::new();
    builder.encode(8, CONTEXT, &mut stored);
    let used = u32::from_le_bytes([stored[8], stored[9], stored[10], stored[11]]) as usize;
    let mut golden = Golden::new("table_data_compressed", &stored);
    golden.heading("compressed data block at offset 4096 of file uid 7");
    for (caption, count) in
        [("checksum", 4), ("tag", 1), ("flags", 1), ("zero", 2), ("used", 4), ("plain", 4)]
    {
        golden.field(caption, count);
    }
    golden.field("compressed", used - HEADER_BYTES);
    golden.zeros_to("padding", UNIT_BYTES);
    golden.check();
}

/// LZ4 of another encoder is read: one match that overlaps itself, between literals.
#[test]
fn any_lz4_is_read() {
    let plain = block(Compression::None, 1, 4000, 1);
    let used = extent_used(&plain);
    let body = &plain[SKIPPED_BYTES..used];
    // 21 literals up to and with the first byte of the value, a match of 3994 bytes, and 5 literals.
    assert_eq!(body.len(), 20 + 4000);
    let mut lz4 = vec![0xff, 21 - 15];
    lz4.extend_from_slice(&body[..21]);
    lz4.extend_from_slice(&[1, 0]);
    lz4.extend_from_slice(&[255; 15]);
    lz4.extend_from_slice(&[(3994 - 19 - 15 * 255) as u8, 5 << 4]);
    lz4.extend_from_slice(&body[body.len() - 5..]);
    let mut stored = vec![0, 0, 0, 0, 1, COMPRESSED, 0, 0];
    stored.extend_from_slice(&((HEADER_BYTES + lz4.len()) as u32).to_le_bytes());
    stored.extend_from_slice(&(used as u32).to_le_bytes());
    stored.extend_from_slice(&lz4);
    stored.resize(extent_bytes(stored.len()), 0);
    seal(&mut stored, CONTEXT);
    let mut out = vec![0; plain_bytes(&stored).expect("sound").expect("compressed")];
    decompress(&stored, &mut out).expect("sound");
    assert_eq!(out[4..], plain[4..]);
}

fn extent_used(plain: &[u8]) -> usize {
    u32::from_le_bytes([plain[8], plain[9], plain[10], plain[11]]) as usize
}
