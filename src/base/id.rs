//! Identities: keyspaces, partitions, trees, files, kinds of item, sequence numbers.
//!
//! Ids are never reused, so an id found in a file names one thing for ever.

use std::fmt;

/// A keyspace's number; 0 is never given out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct KeyspaceId(pub(crate) u32);

impl KeyspaceId {
    /// The bit set in ids of hashed keyspaces, so that every tree id tells how its keys are stored (see
    /// `base::place`).
    pub(crate) const HASHED: u32 = 1 << 31;

    /// Whether its keys lie in the order of their hashes.
    #[inline]
    pub(crate) fn is_hashed(self) -> bool {
        self.0 & KeyspaceId::HASHED != 0
    }

    /// The number in the order of creation.
    pub(crate) fn number(self) -> u32 {
        self.0 & !KeyspaceId::HASHED
    }
}

/// A partition's number; 0 is never given out. Unique in the store, not only in its keyspace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PartitionId(pub(crate) u32);

impl PartitionId {
    /// Never given out. It stands for the partition that the key will name, until that partition is known.
    pub(crate) const OF_KEY: PartitionId = PartitionId(u32::MAX);
}

/// A partition of a keyspace: it has levels of its own, and is the unit of compaction and of dropping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct TreeId {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) partition: PartitionId,
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace.number(), self.partition.0)
    }
}

/// Position of a write in the one order of all writes; 56 bits. 0 is before the first write.
pub(crate) type Sequence = u64;

/// The largest sequence number: a log record keeps it beside an 8-bit kind.
pub(crate) const SEQUENCE_MAX: Sequence = (1 << 56) - 1;

/// The kind of a file; the number stands in its header and in manifest names. 0 is never valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub(crate) enum FileKind {
    Lock = 1,
    Store = 2,
    Manifest = 3,
    Log = 4,
    Table = 5,
    Cluster = 6,
    Blob = 7,
    History = 8,
    /// A file of the lab's engine, which is no part of a store.
    Lab = 9,
}

impl FileKind {
    pub(crate) const ALL: [FileKind; 9] = [
        FileKind::Lock,
        FileKind::Store,
        FileKind::Manifest,
        FileKind::Log,
        FileKind::Table,
        FileKind::Cluster,
        FileKind::Blob,
        FileKind::History,
        FileKind::Lab,
    ];

    /// The traits that all files of the kind share. A new kind states all of them here.
    pub(crate) const fn traits(self) -> FileTraits {
        let (word, layout, is_paged) = match self {
            FileKind::Lock => ("LOCK", FileLayout::Empty, false),
            FileKind::Store => ("STORE", FileLayout::Slots, false),
            FileKind::Manifest => ("manifest", FileLayout::Frames, false),
            FileKind::Log => ("log", FileLayout::Frames, false),
            FileKind::Table => ("table", FileLayout::Table, true),
            FileKind::Cluster => ("cluster", FileLayout::Unwritten, false),
            FileKind::Blob => ("blob", FileLayout::Unwritten, false),
            FileKind::History => ("history", FileLayout::Table, false),
            FileKind::Lab => ("lab", FileLayout::Lab, true),
        };
        let is_numbered = !matches!(self, FileKind::Lock | FileKind::Store);
        FileTraits { word, is_numbered, layout, is_paged }
    }

    pub(crate) fn word(self) -> &'static str {
        self.traits().word
    }

    pub(crate) fn is_numbered(self) -> bool {
        self.traits().is_numbered
    }
}

/// See [`FileKind::traits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileTraits {
    /// The first part of the file's name.
    pub(crate) word: &'static str,
    /// LOCK and STORE are one of a kind; every other file carries a number.
    pub(crate) is_numbered: bool,
    pub(crate) layout: FileLayout,
    /// The file is read page by page at random: past the kernel's page cache where the settings say so.
    pub(crate) is_paged: bool,
}

/// Layout of a file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileLayout {
    /// No bytes.
    Empty,
    /// A header and two slots.
    Slots,
    /// A header and framed records.
    Frames,
    /// A header, blocks, and a footer with their offsets.
    Table,
    /// The lab's own layout.
    Lab,
    /// No release writes such a file.
    Unwritten,
}

/// A file of the store. Names on disk are made from this type and never taken from bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FileName {
    pub(crate) kind: FileKind,
    /// From one counter for all kinds, never reused; 0 for LOCK and STORE.
    pub(crate) number: u64,
    /// Index of the store's directory that has the file; 0 is the store's own.
    pub(crate) path: u16,
}

impl FileName {
    pub(crate) const LOCK: FileName = FileName { kind: FileKind::Lock, number: 0, path: 0 };
    pub(crate) const STORE: FileName = FileName { kind: FileKind::Store, number: 0, path: 0 };

    pub(crate) fn new(kind: FileKind, number: u64) -> FileName {
        FileName { kind, number, path: 0 }
    }

    /// The file that a directory entry names, or `None` for a name that is not ours.
    pub(crate) fn parse(name: &str, path: u16) -> Option<FileName> {
        for kind in FileKind::ALL {
            if !kind.is_numbered() {
                if name == kind.word() {
                    return Some(FileName { kind, number: 0, path });
                }
                continue;
            }
            let Some(digits) = name.strip_prefix(kind.word()).and_then(|rest| rest.strip_prefix('-')) else {
                continue;
            };
            let lower_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
            if digits.len() == 16 && digits.bytes().all(lower_hex) {
                let number = u64::from_str_radix(digits, 16).ok()?;
                return Some(FileName { kind, number, path });
            }
        }
        None
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.is_numbered() {
            write!(f, "{}-{:016x}", self.kind.word(), self.number)
        } else {
            f.write_str(self.kind.word())
        }
    }
}

/// The kind of an item. The numbers stand in logs and tables; 0 is never valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum ItemKind {
    Put = 1,
    Delete = 2,
    /// Deletes the keys from the item's key up to, not including, its value; with an empty value, all keys
    /// from its key on. In logs and memtables only: tables keep range tombstones apart.
    DeleteRange = 3,
}

impl ItemKind {
    /// Number 4 (blob pointer) is reserved for the issue that writes it.
    pub(crate) fn from_u8(byte: u8) -> Option<ItemKind> {
        match byte {
            1 => Some(ItemKind::Put),
            2 => Some(ItemKind::Delete),
            3 => Some(ItemKind::DeleteRange),
            _ => None,
        }
    }
}

/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 65_535;
/// The greatest possible key.
pub(crate) static KEY_GREATEST: [u8; KEY_BYTES_MAX] = [u8::MAX; KEY_BYTES_MAX];
/// Longest value, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A name survives printing and parsing, and nothing else parses.
    #[test]
    fn file_names_round_trip_and_foreign_names_are_refused() {
        for kind in FileKind::ALL {
            let number = if kind.is_numbered() { 0xabcdef } else { 0 };
            let name = FileName::new(kind, number);
            assert_eq!(FileName::parse(&name.to_string(), 0), Some(name));
        }
        for foreign in [
            "",
            "log",
            "log-",
            "log-1",
            "log-000000000000000G",
            "LOG-0000000000000001",
            "STORE2",
            "log-+000000000000001",
            "log-0000000000000ABC",
            "../STORE",
        ] {
            assert_eq!(FileName::parse(foreign, 0), None, "{foreign}");
        }
        assert_eq!(ItemKind::from_u8(0), None);
        assert_eq!(ItemKind::from_u8(4), None);
    }
}
