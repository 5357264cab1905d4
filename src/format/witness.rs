//! The witness: the durable position of the last-synced log, kept in the last page of STORE.
//!
//! Like the slots of a log, the witness is only evidence. It is written after a sync of a log whose slot
//! already covers a record in the same page; another slot would be a second page for the next sync to write.
//! No sync waits for the witness. After a crash of the process the kernel still has it; after a crash of the
//! system STORE may hold an older witness. Pure.
//!
//! ```text
//! offset size type  name: meaning (little-endian)
//! 0      8    u64   log uid
//! 8      8    u64   durable to: offset up to which that log is known durable
//! 16     8    u64   chain: of the records up to there
//! 24     16   u128  boot id: of the system that wrote the witness; 0 if unknown
//! 40     4    u32   checksum: of bytes 0..40 under (log uid, offset of the witness in STORE, WITNESS_TAG)
//! 44     4052       reserved, zero
//! ```
//! Invariants: 1. the witness is written only after the sync that makes its content true; 2. a witness that
//! does not decode, such as the zeros of a new store, or that names another log, is ignored.

use crate::base::checksum::Context;
use crate::base::codec::{ByteReader, Malformed};

use super::frames::FramePoint;
use super::header::PAGE_BYTES;

/// Offset of the witness in STORE.
pub(crate) const WITNESS_OFFSET: u64 = 3 * PAGE_BYTES as u64;
pub(crate) const WITNESS_TAG: u8 = 0xf2;
/// Bytes of a witness that its checksum covers. The checksum follows them.
pub(crate) const WITNESS_CHECKED_BYTES: usize = 40;

/// The durable position of one log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Witness {
    /// Uid of the log.
    pub(crate) uid: u64,
    pub(crate) durable: FramePoint,
    pub(crate) boot_id: u128,
}

impl Witness {
    /// The page.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&self.uid.to_le_bytes());
        page.extend_from_slice(&self.durable.bytes.to_le_bytes());
        page.extend_from_slice(&self.durable.chain.to_le_bytes());
        page.extend_from_slice(&self.boot_id.to_le_bytes());
        let checksum = context(self.uid).checksum(&[&page]);
        page.extend_from_slice(&checksum.to_le_bytes());
        page.resize(PAGE_BYTES, 0);
        page
    }

    pub(crate) fn decode(page: &[u8]) -> Result<Witness, Malformed> {
        let checked = ByteReader::new(page).bytes(WITNESS_CHECKED_BYTES, "the witness")?;
        let mut reader = ByteReader::new(page);
        let uid = reader.u64("the log of the witness")?;
        let bytes = reader.u64("the durable length of the witness")?;
        let chain = reader.u64("the chain of the witness")?;
        let boot_id = reader.u128("the boot id of the witness")?;
        let expected = context(uid).checksum(&[checked]);
        let before = reader.clone();
        let found = reader.u32("the checksum of the witness")?;
        if expected != found {
            return Err(before.malformed("the checksum of the witness", expected.into(), found.into()));
        }
        reader.zeros(reader.remaining(), "the rest of the witness")?;
        Ok(Witness { uid, durable: FramePoint { bytes, chain }, boot_id })
    }
}

fn context(uid: u64) -> Context {
    Context { file_uid: uid, offset: WITNESS_OFFSET, tag: WITNESS_TAG }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::golden::Golden;

    fn witness() -> Witness {
        let durable = FramePoint { bytes: 12_344, chain: 0x1817_1615_1413_1211 };
        Witness { uid: 0x3837_3635_3433_3231, durable, boot_id: 7 }
    }

    /// The bytes of a witness.
    #[test]
    fn golden() {
        let bytes = witness().encode();
        let mut golden = Golden::new("witness", &bytes);
        golden.heading("witness");
        for (caption, count) in
            [("log uid", 8), ("durable to", 8), ("chain", 8), ("boot id", 16), ("checksum", 4)]
        {
            golden.field(caption, count);
        }
        golden.zeros_to("reserved", PAGE_BYTES);
        golden.check();
    }

    /// A witness decodes to itself. Zeros, any flipped bit and any truncation of its fields are refused.
    #[test]
    fn damaged_witnesses_are_refused() {
        let what = |page: &[u8]| Witness::decode(page).map_err(|bad| bad.what);
        let page = witness().encode();
        assert_eq!(what(&page), Ok(witness()));
        assert_eq!(what(&[0; PAGE_BYTES]), Err("the checksum of the witness"));
        let mut flipped = page.clone();
        for bit in 0..page.len() * 8 {
            flipped[bit / 8] ^= 1 << (bit % 8);
            let expected =
                if bit / 8 < 44 { "the checksum of the witness" } else { "the rest of the witness" };
            assert_eq!(what(&flipped), Err(expected), "bit {bit}");
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..44 {
            assert!(what(&page[..length]).is_err(), "{length}");
        }
    }
}
