//! STORE: the file that names the live manifest, in two slots, and the choice between them.
//!
//! The protocol of changing STORE is in `levels::store`. The readers of logs decode the witness. Pure.
//!
//! ```text
//! offset size  name: meaning (little-endian)
//! 0      4096  header page (kind STORE)
//! 4096   4096  slot 0
//! 8192   4096  slot 1
//! 12288  4096  witness: see there; zeros in a new store
//!
//! slot: offset size type  name: meaning
//! 0      8    u64   turn: larger is newer; 0 is never valid
//! 8      16   u128  store id
//! 24     16   bytes hash secret: seed of the key hash
//! 40     8    u64   manifest number
//! 48     8    u64   manifest uid
//! 56     8    u64   manifest bytes: length of the file
//! 64     8    u64   next file number: none at or above it was ever given out
//! 72     4    u32   checksum: of bytes 0..72 under (uid of STORE, offset of the slot, SLOT_TAG)
//! 76     4020       reserved, zero
//! ```
//! Invariants: 1. a slot that does not decode is ignored, and one good slot is enough, because a change is
//! durable in one slot before the other is written; 2. two good slots of one turn are equal.

use crate::base::checksum::Context;
use crate::base::codec::{ByteReader, Malformed};
use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};

use super::header::{FileHeader, PAGE_BYTES};
use super::witness::WITNESS_OFFSET;

/// Length of STORE, in bytes.
pub(crate) const STORE_BYTES: usize = WITNESS_OFFSET as usize + PAGE_BYTES;
/// Offsets of the two slots.
pub(crate) const SLOT_OFFSETS: [u64; 2] = [PAGE_BYTES as u64, 2 * PAGE_BYTES as u64];

pub(crate) const SLOT_TAG: u8 = 0xf0;
/// Bytes of a slot that its checksum covers. The checksum follows them.
pub(crate) const SLOT_CHECKED_BYTES: usize = 72;

/// The live manifest, which is in the store's own directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ManifestPlace {
    pub(crate) number: u64,
    pub(crate) uid: u64,
    pub(crate) bytes: u64,
}

/// The fields of a slot.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) turn: u64,
    pub(crate) store_id: u128,
    pub(crate) hash_secret: [u8; 16],
    pub(crate) manifest: ManifestPlace,
    pub(crate) next_file_number: u64,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live")
            .field("turn", &self.turn)
            .field("manifest", &self.manifest)
            .field("next_file_number", &self.next_file_number)
            .finish_non_exhaustive()
    }
}

/// A STORE that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundStore {
    /// Uid of STORE itself.
    pub(crate) uid: u64,
    pub(crate) live: Live,
    /// Index of the slot that `live` was read from.
    pub(crate) slot: usize,
    /// The slots differ. The other slot must be rewritten before any other write.
    pub(crate) unequal: bool,
}

impl Live {
    /// The page of one slot; `uid` is that of STORE.
    pub(crate) fn encode(&self, uid: u64, slot: usize) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&self.turn.to_le_bytes());
        page.extend_from_slice(&self.store_id.to_le_bytes());
        page.extend_from_slice(&self.hash_secret);
        for number in [self.manifest.number, self.manifest.uid, self.manifest.bytes, self.next_file_number] {
            page.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = slot_context(uid, slot).checksum(&[&page]);
        page.extend_from_slice(&checksum.to_le_bytes());
        page.resize(PAGE_BYTES, 0);
        page
    }

    /// Decodes both slots of STORE; `uid` is that of STORE.
    pub(crate) fn both(bytes: &[u8], uid: u64) -> [std::result::Result<Live, Malformed>; 2] {
        [0, 1].map(|index| {
            let page = bytes.chunks_exact(PAGE_BYTES).nth(index + 1).unwrap_or_default();
            Live::decode(page, uid, index)
        })
    }

    fn decode(page: &[u8], uid: u64, slot: usize) -> std::result::Result<Live, Malformed> {
        let checked = ByteReader::new(page).bytes(SLOT_CHECKED_BYTES, "the slot")?;
        let mut reader = ByteReader::new(page);
        let turn = reader.u64("the slot's turn")?;
        let store_id = reader.u128("the store id")?;
        let hash_secret = reader.bytes(16, "the hash secret")?;
        let hash_secret = <[u8; 16]>::try_from(hash_secret).expect("bytes(16) returns 16 bytes");
        let number = reader.u64("the manifest number")?;
        let uid_of_manifest = reader.u64("the manifest uid")?;
        let bytes = reader.u64("the manifest length")?;
        let next_file_number = reader.u64("the next file number")?;
        let expected = slot_context(uid, slot).checksum(&[checked]);
        let at_checksum = reader.clone();
        let found = reader.u32("the slot's checksum")?;
        if expected != found {
            return Err(at_checksum.malformed("the slot's checksum", expected.into(), found.into()));
        }
        reader.zeros(reader.remaining(), "the rest of the slot")?;
        if turn == 0 {
            return Err(Malformed { at: 0, what: "the slot's turn", expected: 1, found: 0 });
        }
        if number == 0 || number >= next_file_number {
            let expected = next_file_number.saturating_sub(1);
            return Err(Malformed { at: 40, what: "the manifest number", expected, found: number });
        }
        let manifest = ManifestPlace { number, uid: uid_of_manifest, bytes };
        Ok(Live { turn, store_id, hash_secret, manifest, next_file_number })
    }
}

fn slot_context(uid: u64, slot: usize) -> Context {
    Context { file_uid: uid, offset: SLOT_OFFSETS[slot], tag: SLOT_TAG }
}

/// The whole of STORE, with equal slots and without a witness.
pub(crate) fn encode(uid: u64, live: &Live) -> Vec<u8> {
    let mut bytes = FileHeader { kind: FileKind::Store, store_id: live.store_id, uid, features: 0 }.encode();
    bytes.extend(live.encode(uid, 0));
    bytes.extend(live.encode(uid, 1));
    bytes.resize(STORE_BYTES, 0);
    bytes
}

/// Decodes the whole of STORE and chooses the live slot.
///
/// # Errors
/// `Corrupt` if no slot is good or the slots contradict each other; `Corrupt` or `Unsupported` as in
/// [`FileHeader::decode`].
pub(crate) fn decode(bytes: &[u8]) -> Result<FoundStore> {
    let file = FileName::STORE;
    let header = FileHeader::decode(file, bytes, FileKind::Store)?;
    if bytes.len() != STORE_BYTES {
        return Err(Error::corrupt(
            file,
            bytes.len() as u64,
            "the length of STORE",
            STORE_BYTES,
            bytes.len(),
        ));
    }
    let [first, second] = Live::both(bytes, header.uid);
    let (live, slot, unequal) = match (first, second) {
        (Err(bad), Err(_)) => return Err(Error::malformed(file, SLOT_OFFSETS[0], bad)),
        (Ok(live), Err(_)) => (live, 0, true),
        (Err(_), Ok(live)) => (live, 1, true),
        (Ok(first), Ok(second)) => {
            let agree = first.store_id == second.store_id && first.hash_secret == second.hash_secret;
            if !agree || (first.turn == second.turn && first != second) {
                let what = "what both slots must agree on";
                return Err(Error::corrupt(file, SLOT_OFFSETS[1], what, "as in slot 0", "different"));
            }
            let unequal = first != second;
            if second.turn > first.turn { (second, 1, unequal) } else { (first, 0, unequal) }
        }
    };
    if live.store_id != header.store_id {
        let at = SLOT_OFFSETS[slot] + 8;
        return Err(Error::corrupt(file, at, "the store id", "as in the header", "different"));
    }
    Ok(FoundStore { uid: header.uid, live, slot, unequal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::golden::Golden;

    const UID: u64 = 0x2827_2625_2423_2221;

    fn live() -> Live {
        Live {
            turn: 3,
            store_id: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
            hash_secret: *b"sixteen secrets.",
            manifest: ManifestPlace { number: 5, uid: 0x55, bytes: 1 << 20 },
            next_file_number: 1025,
        }
    }

    fn pair(first: &Live, second: &Live) -> Vec<u8> {
        let mut bytes = encode(UID, first);
        bytes[2 * PAGE_BYTES..3 * PAGE_BYTES].copy_from_slice(&second.encode(UID, 1));
        bytes
    }

    fn corrupt_part(bytes: &[u8]) -> &'static str {
        match decode(bytes) {
            Err(Error::Corrupt(at)) => at.what,
            other => panic!("not corrupt: {other:?}"),
        }
    }

    /// The bytes of STORE.
    #[test]
    fn golden() {
        let bytes = encode(UID, &live());
        let mut golden = Golden::new("store", &bytes);
        golden.heading("header page: see header.txt");
        golden.field("header", 52);
        golden.zeros_to("reserved", PAGE_BYTES);
        for slot in 0..2 {
            golden.heading(["slot 0", "slot 1"][slot]);
            for (caption, count) in [
                ("turn", 8),
                ("store id", 16),
                ("hash secret", 16),
                ("manifest number", 8),
                ("manifest uid", 8),
                ("manifest bytes", 8),
                ("next file number", 8),
                ("checksum", 4),
            ] {
                golden.field(caption, count);
            }
            golden.zeros_to("reserved", (slot + 2) * PAGE_BYTES);
        }
        golden.heading("witness: none yet");
        golden.zeros_to("zeros", STORE_BYTES);
        golden.check();
    }

    /// Equal slots need no repair. Of unequal slots the one with the larger turn is live, in either position.
    #[test]
    fn the_larger_turn_is_live() {
        let (old, new) = (live(), Live { turn: 4, next_file_number: 2049, ..live() });
        let found = decode(&pair(&old, &old)).expect("decodes");
        assert_eq!(found, FoundStore { uid: UID, live: old.clone(), slot: 0, unequal: false });
        let found = decode(&pair(&new, &old)).expect("decodes");
        assert_eq!(found, FoundStore { uid: UID, live: new.clone(), slot: 0, unequal: true });
        let found = decode(&pair(&old, &new)).expect("decodes");
        assert_eq!(found, FoundStore { uid: UID, live: new, slot: 1, unequal: true });
    }

    /// Any single flipped bit, and any single destroyed slot, is an error or changes nothing.
    #[test]
    fn every_flip_is_detected_or_harmless() {
        let mut bytes = encode(UID, &live());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match decode(&bytes) {
                Ok(found) => {
                    assert!(bit / 8 >= PAGE_BYTES, "bit {bit}");
                    assert_eq!(found.live, live(), "bit {bit}");
                    assert_eq!(found.unequal, bit / 8 < WITNESS_OFFSET as usize, "bit {bit}");
                }
                Err(_) => assert!(bit / 8 < PAGE_BYTES, "bit {bit}"),
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for (slot, other) in [(1, 1), (2, 0)] {
            let mut bytes = bytes.clone();
            bytes[slot * PAGE_BYTES..(slot + 1) * PAGE_BYTES].fill(0xee);
            let found = decode(&bytes).expect("one slot is enough");
            assert_eq!((found.live, found.slot, found.unequal), (live(), other, true));
        }
    }

    /// Every check has an input that trips it.
    #[test]
    fn checks() {
        let bytes = encode(UID, &live());
        assert_eq!(corrupt_part(&bytes[..8192]), "the length of STORE");
        assert_eq!(corrupt_part(&[bytes.clone(), vec![0]].concat()), "the length of STORE");
        let mut both = bytes.clone();
        both[PAGE_BYTES..].fill(0);
        assert_eq!(corrupt_part(&both), "the slot's checksum");
        let same = |live: &Live| pair(live, live);
        assert_eq!(corrupt_part(&same(&Live { turn: 0, ..live() })), "the slot's turn");
        let manifest = ManifestPlace { number: 0, ..live().manifest };
        assert_eq!(corrupt_part(&same(&Live { manifest, ..live() })), "the manifest number");
        assert_eq!(corrupt_part(&same(&Live { next_file_number: 5, ..live() })), "the manifest number");
        let mut padded = bytes.clone();
        (padded[2 * PAGE_BYTES - 1], padded[3 * PAGE_BYTES - 1]) = (1, 1);
        assert_eq!(corrupt_part(&padded), "the rest of the slot");
        let agree = "what both slots must agree on";
        assert_eq!(corrupt_part(&pair(&live(), &Live { next_file_number: 9, ..live() })), agree);
        assert_eq!(corrupt_part(&pair(&live(), &Live { turn: 4, store_id: 1, ..live() })), agree);
        assert_eq!(corrupt_part(&pair(&live(), &Live { turn: 4, hash_secret: [1; 16], ..live() })), agree);
        let mut other_store = bytes;
        other_store.truncate(PAGE_BYTES);
        other_store.extend(Live { store_id: 1, ..live() }.encode(UID, 0));
        other_store.extend(Live { store_id: 1, ..live() }.encode(UID, 1));
        other_store.resize(STORE_BYTES, 0);
        assert_eq!(corrupt_part(&other_store), "the store id");
        for slot in 0..2 {
            let mut one = other_store.clone();
            one[(2 - slot) * PAGE_BYTES..][..PAGE_BYTES].fill(0);
            match decode(&one) {
                Err(Error::Corrupt(at)) => assert_eq!(at.offset, SLOT_OFFSETS[slot] + 8),
                other => panic!("not corrupt: {other:?}"),
            }
        }
    }

    /// Debug output never contains the secret; it contains the other fields.
    #[test]
    fn debug_hides_the_secret() {
        let text = format!("{:?}", live());
        assert!(!text.contains("115") && text.contains("turn: 3"), "{text}");
    }
}
