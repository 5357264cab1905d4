//! The header page of every file but LOCK: it gives the file's kind and identity.
//!
//! The header does not describe the rest of the file; each kind has its own module for that. Writers encode
//! one. Readers decode it first and compare it with the identity recorded where the file is named
//! ([`FileHeader::check`]). Pure.
//!
//! ```text
//! offset size type  name: meaning (little-endian)
//! 0      8    bytes magic: 89 54 72 69 6e 65 0d 0a
//! 8      1    u8    kind: FileKind; the tag of the checksum
//! 9      3          reserved, zero
//! 12     4    u32   version: of the format, 4; 3 is read
//! 16     8    u64   features: bits a reader must know. 0: partitions, 1: hashed keyspaces, both in a
//!                      manifest that has some; 3: learned pages, 4: filters by column, both in a table
//!                      that has some; 5: records of logs may make partitions, in a manifest that has
//!                      some by key. Kept for later: 2 renamed keyspaces
//! 24     16   u128  store id: random, one a store
//! 40     8    u64   uid: random, one a life of a file; context of all its checksums
//! 48     4    u32   checksum: of bytes 0..48 under (uid, offset 0, kind)
//! 52     4044       reserved, zero
//! ```
//! Invariants: 1. bytes 0..52 mean the same in every version, so that a reader can refuse a newer version by
//! its number; 2. the checksum is checked before any field is used; it is computed over the right magic,
//! which distinguishes a damaged magic from a file of another program ([`is_foreign`]).

use crate::base::checksum::Context;
use crate::base::codec::ByteReader;
use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};

/// Unit of headers and slots, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

pub(crate) const MAGIC: [u8; 8] = *b"\x89Trine\r\n";
const VERSION: u32 = 4;
/// The oldest version that this release reads. Versions before release 1.0 are not supported forever.
const VERSION_OLDEST: u32 = 3;
/// Feature bit of a manifest with partition rules. A bit is never reused.
pub(crate) const FEATURE_PARTITIONS: u64 = 1;
/// Feature bit of a manifest with hashed keyspaces.
pub(crate) const FEATURE_HASHED: u64 = 1 << 1;
/// Feature bit of a table with learned pages.
pub(crate) const FEATURE_LEARNED: u64 = 1 << 3;
/// Feature bit of a table with filters by column.
pub(crate) const FEATURE_COLUMNS: u64 = 1 << 4;
/// Feature bit of a manifest with partitions by key: records of its logs may create partitions.
pub(crate) const FEATURE_MADE_PARTITIONS: u64 = 1 << 5;
pub(crate) const CHECKED_BYTES: usize = 48;

/// The fields of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileHeader {
    pub(crate) kind: FileKind,
    pub(crate) store_id: u128,
    pub(crate) uid: u64,
    /// The bits of the features that a reader must know, all of them known to this release.
    pub(crate) features: u64,
}

impl FileHeader {
    /// The header page.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&MAGIC);
        page.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        page.extend_from_slice(&VERSION.to_le_bytes());
        page.extend_from_slice(&self.features.to_le_bytes());
        page.extend_from_slice(&self.store_id.to_le_bytes());
        page.extend_from_slice(&self.uid.to_le_bytes());
        let checksum = Context { file_uid: self.uid, offset: 0, tag: self.kind as u8 }.checksum(&[&page]);
        page.extend_from_slice(&checksum.to_le_bytes());
        page.resize(PAGE_BYTES, 0);
        page
    }

    /// Decodes the first page of `file`; `bytes` may be longer.
    ///
    /// # Errors
    /// `Unsupported` for another version or an unknown feature, else `Corrupt`.
    pub(crate) fn decode(file: FileName, bytes: &[u8], kind: FileKind) -> Result<FileHeader> {
        let malformed = |bad| Error::malformed(file, 0, bad);
        let page = ByteReader::new(bytes).bytes(PAGE_BYTES, "the file header").map_err(malformed)?;
        let mut reader = ByteReader::new(page);
        let magic = reader.bytes(MAGIC.len(), "the magic").map_err(malformed)?;
        let checked = ByteReader::new(page).bytes(CHECKED_BYTES, "the file header").map_err(malformed)?;
        let found_kind = reader.u8("the file kind").map_err(malformed)?;
        let reserved = reader.clone();
        reader.bytes(3, "reserved bytes").map_err(malformed)?;
        let version = reader.u32("the format version").map_err(malformed)?;
        let features = reader.u64("the feature bits").map_err(malformed)?;
        let store_id = reader.u128("the store id").map_err(malformed)?;
        let uid = reader.u64("the file uid").map_err(malformed)?;
        let expected = Context { file_uid: uid, offset: 0, tag: found_kind }
            .checksum(&[&MAGIC, checked.get(MAGIC.len()..).unwrap_or_default()]);
        let found = reader.u32("the header checksum").map_err(malformed)?;
        if expected != found {
            return Err(Error::corrupt(file, CHECKED_BYTES as u64, "the header checksum", expected, found));
        }
        if magic != MAGIC {
            return Err(Error::corrupt(file, 0, "the magic", MAGIC.escape_ascii(), magic.escape_ascii()));
        }
        supported(file, (found_kind, version, features))?;
        if found_kind != kind as u8 {
            return Err(Error::corrupt(file, 8, "the file kind", kind as u8, found_kind));
        }
        reserved.clone().zeros(3, "reserved bytes").map_err(malformed)?;
        reader.zeros(reader.remaining(), "the rest of the header page").map_err(malformed)?;
        Ok(FileHeader { kind, store_id, uid, features })
    }

    /// Whether a decoded page has an older version than this release writes.
    pub(crate) fn is_older(page: &[u8]) -> bool {
        let version = page.get(12..16).and_then(|bytes| bytes.first_chunk());
        version.is_some_and(|version| u32::from_le_bytes(*version) < VERSION)
    }

    /// Like [`FileHeader::decode`], for the kind in the header itself.
    pub(crate) fn decode_any(file: FileName, bytes: &[u8]) -> Result<FileHeader> {
        let found = bytes.get(MAGIC.len()).copied();
        let kind = FileKind::ALL.into_iter().find(|kind| Some(*kind as u8) == found);
        FileHeader::decode(file, bytes, kind.unwrap_or(file.kind))
    }

    /// Compares the header with the file's identity in the manifest or STORE.
    pub(crate) fn check(&self, file: FileName, expected: &FileHeader) -> Result<()> {
        if self.store_id != expected.store_id {
            let (expected, found) = (expected.store_id, self.store_id);
            return Err(Error::corrupt(
                file,
                24,
                "the store id",
                format_args!("{expected:032x}"),
                format_args!("{found:032x}"),
            ));
        }
        if self.uid != expected.uid {
            let (expected, found) = (expected.uid, self.uid);
            return Err(Error::corrupt(
                file,
                40,
                "the file uid",
                format_args!("{expected:016x}"),
                format_args!("{found:016x}"),
            ));
        }
        Ok(())
    }
}

/// Whether the first page looks like another program's file: its magic is another one and not zeros, and the
/// checksum is wrong even with the right magic. A damaged page of this store may look like this too.
pub(crate) fn is_foreign(bytes: &[u8]) -> bool {
    let magic = bytes.get(..MAGIC.len().min(bytes.len())).unwrap_or_default();
    let is_changed = magic.iter().zip(MAGIC).any(|(found, ours)| *found != ours);
    is_changed && magic.iter().any(|byte| *byte != 0) && !has_right_checksum(bytes)
}

/// Whether the checksum is right if the magic is replaced by the right one.
fn has_right_checksum(bytes: &[u8]) -> bool {
    let mut reader = ByteReader::new(bytes);
    let mut fields = || {
        let checked = reader.bytes(CHECKED_BYTES, "the file header").ok()?;
        Some((checked, reader.u32("the header checksum").ok()?))
    };
    let Some((checked, found)) = fields() else { return false };
    let kind = checked.get(MAGIC.len()).copied().unwrap_or(0);
    let uid = checked.last_chunk::<8>().map_or(0, |uid| u64::from_le_bytes(*uid));
    let context = Context { file_uid: uid, offset: 0, tag: kind };
    context.checksum(&[&MAGIC, checked.get(MAGIC.len()..).unwrap_or_default()]) == found
}

/// Feature bits that this release knows in a file of this kind.
fn features_known(kind: u8) -> u64 {
    match kind {
        kind if kind == FileKind::Manifest as u8 => {
            FEATURE_PARTITIONS | FEATURE_HASHED | FEATURE_MADE_PARTITIONS
        }
        kind if kind == FileKind::Table as u8 => FEATURE_LEARNED | FEATURE_COLUMNS,
        _ => 0,
    }
}

fn supported(file: FileName, (kind, version, features): (u8, u32, u64)) -> Result<()> {
    let unsupported = |what: String| Err(Error::Unsupported { file: file.to_string(), what });
    if version == 0 {
        return Err(Error::corrupt(file, 12, "the format version", VERSION, version));
    }
    if !(VERSION_OLDEST..=VERSION).contains(&version) {
        return unsupported(format!("format version {version}"));
    }
    let unknown = features & !features_known(kind);
    if unknown != 0 {
        return unsupported(format!("feature bit {}", unknown.trailing_zeros()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::golden::Golden;

    const NAME: FileName = FileName { kind: FileKind::Table, number: 9, path: 0 };
    const HEADER: FileHeader = FileHeader {
        kind: FileKind::Table,
        store_id: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
        uid: 0x1817_1615_1413_1211,
        features: 0,
    };

    /// Changes bytes and recomputes the checksum.
    fn edited(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut page = HEADER.encode();
        edit(&mut page);
        let checksum = Context { file_uid: HEADER.uid, offset: 0, tag: page[8] }.checksum(&[&page[..48]]);
        page[48..52].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    fn corrupt_part(result: Result<FileHeader>) -> &'static str {
        match result {
            Err(Error::Corrupt(at)) => at.what,
            other => panic!("not corrupt: {other:?}"),
        }
    }

    /// The bytes of the header.
    #[test]
    fn golden() {
        let page = HEADER.encode();
        let mut golden = Golden::new("header", &page);
        for (caption, count) in [
            ("magic", 8),
            ("kind: table", 1),
            ("reserved", 3),
            ("version", 4),
            ("features", 8),
            ("store id", 16),
            ("uid", 8),
            ("checksum", 4),
        ] {
            golden.field(caption, count);
        }
        golden.zeros_to("reserved", PAGE_BYTES);
        golden.check();
    }

    /// A header decodes to itself; every flipped bit of its page is an error.
    #[test]
    fn round_trip_and_every_flip() {
        let mut page = HEADER.encode();
        assert_eq!(FileHeader::decode(NAME, &page, FileKind::Table).expect("decodes"), HEADER);
        assert_eq!(FileHeader::decode_any(FileName::STORE, &page).expect("any name decodes"), HEADER);
        for bit in 0..PAGE_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::decode(NAME, &page, FileKind::Table).is_err(), "bit {bit}");
            assert!(FileHeader::decode_any(NAME, &page).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Every check has an input that trips it, and names the field.
    #[test]
    fn checks() {
        let decode = |page: &[u8]| FileHeader::decode(NAME, page, FileKind::Table);
        assert_eq!(corrupt_part(decode(&HEADER.encode()[..4095])), "the file header");
        assert_eq!(corrupt_part(decode(&[0; 4096])), "the header checksum");
        assert_eq!(corrupt_part(decode(&edited(|page| page[9] = 1))), "reserved bytes");
        assert_eq!(corrupt_part(decode(&edited(|page| page[12] = 0))), "the format version");
        assert_eq!(corrupt_part(decode(&edited(|page| page[8] = 4))), "the file kind");
        assert_eq!(corrupt_part(decode(&edited(|page| page[4095] = 1))), "the rest of the header page");
        let mut page = HEADER.encode();
        page[0] ^= 1;
        assert_eq!(corrupt_part(decode(&page)), "the magic");
        for (edited, name) in [
            (edited(|page| page[12] = 5), "format version 5"),
            (edited(|page| page[12] = 2), "format version 2"),
            (edited(|page| page[16] = 1), "feature bit 0"),
            (edited(|page| page[17] = 1), "feature bit 8"),
        ] {
            match decode(&edited) {
                Err(Error::Unsupported { what, .. }) => assert_eq!(what, name),
                other => panic!("not refused: {other:?}"),
            }
        }
    }

    /// A manifest may have partitions and hashed keyspaces; no other bit is known there.
    #[test]
    fn manifests_may_have_partitions_and_hashed_keyspaces() {
        let name = FileName::new(FileKind::Manifest, 9);
        let with = |features| FileHeader { kind: FileKind::Manifest, features, ..HEADER };
        for features in [FEATURE_PARTITIONS, FEATURE_HASHED, FEATURE_PARTITIONS | FEATURE_HASHED] {
            let page = with(features).encode();
            assert_eq!(FileHeader::decode(name, &page, FileKind::Manifest).expect("decodes"), with(features));
        }
        match FileHeader::decode(name, &with(7).encode(), FileKind::Manifest) {
            Err(Error::Unsupported { what, .. }) => assert_eq!(what, "feature bit 2"),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// A header of the previous version is read, and recognized as older.
    #[test]
    fn version_3_is_read() {
        let page = edited(|page| page[12] = 3);
        assert_eq!(FileHeader::decode(NAME, &page, FileKind::Table).expect("decodes"), HEADER);
        assert!(FileHeader::is_older(&page) && !FileHeader::is_older(&HEADER.encode()));
    }

    /// A page of another program is distinguished from a damaged one of ours, as far as its bytes allow.
    /// Decoding either is `Corrupt`.
    #[test]
    fn foreign_is_told_from_damaged() {
        let decode = |page: &[u8]| FileHeader::decode(FileName::STORE, page, FileKind::Store);
        assert!(is_foreign(&[b'x'; 4096]) && is_foreign(b"hello") && is_foreign(b"\x89Trone\r\nand more"));
        assert_eq!(corrupt_part(decode(&[b'x'; 4096])), "the header checksum");
        assert_eq!(corrupt_part(decode(b"hello")), "the file header");
        for ours in [&MAGIC[..], &MAGIC[..3], &[], &[0; 4096]] {
            assert!(!is_foreign(ours), "{ours:?}");
        }
        assert_eq!(corrupt_part(decode(&MAGIC)), "the file header");
        assert_eq!(corrupt_part(decode(&[0; 4096])), "the header checksum");
        let mut page = HEADER.encode();
        for bit in 0..PAGE_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_foreign(&page), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// A header of another store or another life of the file is refused.
    #[test]
    fn check_compares_identity() {
        assert!(HEADER.check(NAME, &HEADER).is_ok());
        let found = HEADER.check(NAME, &FileHeader { store_id: 1, ..HEADER });
        assert_eq!(corrupt_part(found.map(|()| HEADER)), "the store id");
        let found = HEADER.check(NAME, &FileHeader { uid: 1, ..HEADER });
        assert_eq!(corrupt_part(found.map(|()| HEADER)), "the file uid");
    }
}
