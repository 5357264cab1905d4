//! The payload of a manifest record: an edit, which is a run of changes. The state is in `manifest/state.rs`.
//!
//! The file itself is in `levels::manifest`; readers use `levels::version`. Pure.
//!
//! ```text
//! edit: size type name: meaning (little-endian)
//! 8     u64  chain: of all records before this one
//! ..         changes, at least one, each a tag and its fields:
//!
//! u8 tag             fields
//! 1 Keyspace         u32 id, u8 kind (1 ordered; 2 hashed, whose id has bit 31 and no other has; the file's
//!                    header has feature bit 1), u8 name bytes, name (UTF-8), settings
//! 2 KeyspaceSettings u32 id, settings
//! 3 DropKeyspace     u32 id
//! 4 Partition        u32 id, u32 keyspace, varint name bytes, name
//! 5 DropPartition    u32 id
//! 6 Log              u64 number, u16 path, u64 uid, u64 bytes
//! 7 LogPromised      u64 number, u64 durable to, u64 chain
//! 8 LogRemoved       u64 number
//! 9 Table            u64 number, u16 path, u64 uid, u64 bytes, u32 checksum
//! 10 Slice           u64 table, u32 slice, u32 keyspace, u32 partition, u8 level, varint run, varint items,
//!                    varint tombstones, varint oldest tombstone, varint dense tombstones,
//!                    varint key and value bytes,
//!                    varint first sequence, varint last sequence, varint min key bytes,
//!                    varint max key bytes, min key, max key;
//!                    65,536 max key bytes: a range tombstone without an end, no max key follows
//! 11 SliceMoved      u64 table, u32 slice, u8 level, varint run
//! 12 SliceRemoved    u64 table, u32 slice
//! 13 Ids             u32 next keyspace, u32 next partition
//! 14 Flushed         varint sequence
//! 15 TableRemoved    u64 number: all its slices; since version 4 of the format
//! 16 PartitionRule   u32 keyspace, u8 rule (1 explicit; 2 prefix; 3 ranges, not of a hashed keyspace;
//!                    4 function), then of prefix: u8 bytes, not 0; of ranges: varint count, not 0, then
//!                    u8 bytes, not 0, and a key of each, ascending; of function: u32 version, u8 name
//!                    bytes, not 0, name (UTF-8). The file's header has feature bit 0
//! 17 RetainFrom      u32 keyspace, u8 name bytes, name: a partition's name, those before which were dropped.
//!                    The file's header has feature bit 0
//! 18..63             reserved for later releases, which set a feature bit in the file's header
//! settings: varint count, then u16 id, varint value of each, ids ascending
//! run: of the slices of a partition on one level, those with one number are a run, and the greater number is
//!     the newer; 0 on level 0, where each slice is a run and sequences say which is newer
//! oldest tombstone: seconds since 1970 from which its age counts; 0 without tombstones
//! dense tombstones: the most of them among 128 consecutive items
//! ```
//! Invariants: 1. an edit is one record, so it is applied whole or not at all; 2. a change has one encoding,
//! so equal states have equal snapshots.

mod rules;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use crate::base::codec::{ByteReader, Malformed, put_varint};
use crate::base::error::{Error, Result};
use crate::base::id::{FileName, KEY_BYTES_MAX, KeyspaceId, PartitionId, SEQUENCE_MAX, Sequence};
use crate::base::place::NodeId;
use crate::base::rule::Rule;

use rules::{decode_rule, decode_short_name, encode_rule, encode_short_name};
pub(crate) use state::{Inconsistent, Log, ManifestKeyspace, ManifestState, Table};

use super::frames::FramePoint;
use super::header::{FEATURE_HASHED, FEATURE_MADE_PARTITIONS, FEATURE_PARTITIONS};

/// Deepest level of a tree; no merge goes deeper.
pub(crate) const LEVEL_MAX: u8 = 15;
/// Longest name of a keyspace, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// How a keyspace orders its items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum KeyspaceKind {
    Ordered = 1,
    Hashed = 2,
}

/// Id and value of each stored setting, ids ascending.
pub(crate) type Settings = Vec<(u16, u64)>;

/// A slice of a table: the part that belongs to one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) partition: PartitionId,
    pub(crate) level: u8,
    /// Number of the run: on a level ≥ 1 the newer run has the greater number; 0 on level 0.
    pub(crate) run: u64,
    /// Tombstones included; at least 1.
    pub(crate) items: u64,
    pub(crate) tombstones: u64,
    /// Upper bound on the write time of the oldest tombstone, in seconds since 1970; 0 without tombstones.
    pub(crate) oldest_tombstone_s: u64,
    /// Most tombstones among 128 consecutive items.
    pub(crate) tombstones_dense: u64,
    pub(crate) key_value_bytes: u64,
    pub(crate) first_sequence: Sequence,
    pub(crate) last_sequence: Sequence,
    pub(crate) min_key: Box<[u8]>,
    /// `None`: the slice has no upper bound.
    pub(crate) max_key: Option<Box<[u8]>>,
}

impl Slice {
    /// The node that holds the slice's keys, if the keyspace is hashed.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.keyspace.is_hashed().then(|| NodeId::of(usize::from(self.level), &self.min_key))
    }

    /// The node that holds the slice's last key.
    pub(crate) fn max_node(&self) -> Option<NodeId> {
        match &self.max_key {
            Some(max_key) => Some(NodeId::of(usize::from(self.level), max_key)),
            None => (self.level == 0).then_some(NodeId::ROOT),
        }
    }
}

/// One change of the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ManifestChange {
    Keyspace {
        id: KeyspaceId,
        kind: KeyspaceKind,
        name: String,
        settings: Settings,
    },
    KeyspaceSettings {
        id: KeyspaceId,
        settings: Settings,
    },
    /// Also drops the partitions of the keyspace, and their slices.
    DropKeyspace {
        id: KeyspaceId,
    },
    /// The name is empty for the only partition of an unpartitioned keyspace.
    Partition {
        id: PartitionId,
        keyspace: KeyspaceId,
        name: Box<[u8]>,
    },
    /// Also drops the slices of the partition.
    DropPartition {
        id: PartitionId,
    },
    Log {
        number: u64,
        path: u16,
        uid: u64,
        bytes: u64,
    },
    /// The log is sealed and durable, and its records end at `end`.
    LogPromised {
        number: u64,
        end: FramePoint,
    },
    LogRemoved {
        number: u64,
    },
    /// The slices of the table follow in the same edit.
    Table {
        number: u64,
        path: u16,
        uid: u64,
        bytes: u64,
        checksum: u32,
    },
    Slice {
        table: u64,
        index: u32,
        slice: Slice,
    },
    SliceMoved {
        table: u64,
        index: u32,
        level: u8,
        run: u64,
    },
    /// Removing the last slice removes the table.
    SliceRemoved {
        table: u64,
        index: u32,
    },
    /// Removes the table and all its remaining slices.
    TableRemoved {
        number: u64,
    },
    /// No id at or above these was ever assigned.
    Ids {
        next_keyspace: u32,
        next_partition: u32,
    },
    /// Every write up to this sequence number is in tables.
    Flushed {
        sequence: Sequence,
    },
    /// The rule that divides a keyspace, which must not have a partition yet.
    PartitionRule {
        keyspace: KeyspaceId,
        rule: Rule,
    },
    /// Partitions whose names come before this one are to be dropped.
    RetainFrom {
        keyspace: KeyspaceId,
        name: Box<[u8]>,
    },
}

impl ManifestChange {
    /// Whether the change releases files or needs no space. A full disk must not prevent such a change.
    pub(crate) fn frees(&self) -> bool {
        match self {
            ManifestChange::DropKeyspace { .. }
            | ManifestChange::DropPartition { .. }
            | ManifestChange::LogPromised { .. }
            | ManifestChange::LogRemoved { .. }
            | ManifestChange::SliceRemoved { .. }
            | ManifestChange::TableRemoved { .. }
            | ManifestChange::RetainFrom { .. }
            | ManifestChange::Flushed { .. } => true,
            ManifestChange::Keyspace { .. }
            | ManifestChange::KeyspaceSettings { .. }
            | ManifestChange::Partition { .. }
            | ManifestChange::Log { .. }
            | ManifestChange::Table { .. }
            | ManifestChange::Slice { .. }
            | ManifestChange::SliceMoved { .. }
            | ManifestChange::PartitionRule { .. }
            | ManifestChange::Ids { .. } => false,
        }
    }

    /// Feature bits that the change requires in the header of its manifest.
    pub(crate) fn features(&self) -> u64 {
        match self {
            ManifestChange::PartitionRule { rule, .. } if rule.is_by_key() => {
                FEATURE_PARTITIONS | FEATURE_MADE_PARTITIONS
            }
            ManifestChange::PartitionRule { .. } | ManifestChange::RetainFrom { .. } => FEATURE_PARTITIONS,
            ManifestChange::Keyspace { kind: KeyspaceKind::Hashed, .. } => FEATURE_HASHED,
            _ => 0,
        }
    }
}

mod tag {
    pub(super) const KEYSPACE: u8 = 1;
    pub(super) const KEYSPACE_SETTINGS: u8 = 2;
    pub(super) const DROP_KEYSPACE: u8 = 3;
    pub(super) const PARTITION: u8 = 4;
    pub(super) const DROP_PARTITION: u8 = 5;
    pub(super) const LOG: u8 = 6;
    pub(super) const LOG_PROMISED: u8 = 7;
    pub(super) const LOG_REMOVED: u8 = 8;
    pub(super) const TABLE: u8 = 9;
    pub(super) const SLICE: u8 = 10;
    pub(super) const SLICE_MOVED: u8 = 11;
    pub(super) const SLICE_REMOVED: u8 = 12;
    pub(super) const IDS: u8 = 13;
    pub(super) const FLUSHED: u8 = 14;
    pub(super) const TABLE_REMOVED: u8 = 15;
    pub(super) const PARTITION_RULE: u8 = 16;
    pub(super) const RETAIN_FROM: u8 = 17;
    /// Tags reserved for later releases.
    pub(super) const RESERVED_FIRST: u8 = 18;
    pub(super) const RESERVED_LAST: u8 = 63;
}

/// Stored in place of the last key's length: the slice has no last key.
const UNBOUNDED: u64 = KEY_BYTES_MAX as u64 + 1;

/// Bytes of the payload of one edit.
pub(crate) fn edit_bytes(changes: &[ManifestChange]) -> u64 {
    encode_edit(0, changes).len() as u64
}

/// The payload of one edit; `chain` is the chain of all records before it.
pub(crate) fn encode_edit(chain: u64, changes: &[ManifestChange]) -> Vec<u8> {
    let mut out = chain.to_le_bytes().to_vec();
    for change in changes {
        encode_change(change, &mut out);
    }
    out
}

/// Appends fixed-width numbers.
macro_rules! put {
    ($out:expr, $($number:expr),*) => {{ $($out.extend_from_slice(&$number.to_le_bytes());)* }};
}

fn encode_change(change: &ManifestChange, out: &mut Vec<u8>) {
    match change {
        ManifestChange::Keyspace { id, kind, name, settings } => {
            let name_bytes = u8::try_from(name.len()).expect("the name was checked when it was given");
            put!(out, tag::KEYSPACE, id.0, *kind as u8, name_bytes);
            out.extend_from_slice(name.as_bytes());
            encode_settings(settings, out);
        }
        ManifestChange::KeyspaceSettings { id, settings } => {
            put!(out, tag::KEYSPACE_SETTINGS, id.0);
            encode_settings(settings, out);
        }
        ManifestChange::DropKeyspace { id } => put!(out, tag::DROP_KEYSPACE, id.0),
        ManifestChange::Partition { id, keyspace, name } => {
            put!(out, tag::PARTITION, id.0, keyspace.0);
            put_varint(out, name.len() as u64);
            out.extend_from_slice(name);
        }
        ManifestChange::DropPartition { id } => put!(out, tag::DROP_PARTITION, id.0),
        ManifestChange::Log { number, path, uid, bytes } => put!(out, tag::LOG, number, path, uid, bytes),
        ManifestChange::LogPromised { number, end } => {
            put!(out, tag::LOG_PROMISED, number, end.bytes, end.chain)
        }
        ManifestChange::LogRemoved { number } => put!(out, tag::LOG_REMOVED, number),
        ManifestChange::Table { number, path, uid, bytes, checksum } => {
            put!(out, tag::TABLE, number, path, uid, bytes, checksum);
        }
        ManifestChange::Slice { table, index, slice } => {
            put!(out, tag::SLICE, table, index, slice.keyspace.0, slice.partition.0, slice.level);
            for number in [
                slice.run,
                slice.items,
                slice.tombstones,
                slice.oldest_tombstone_s,
                slice.tombstones_dense,
                slice.key_value_bytes,
                slice.first_sequence,
                slice.last_sequence,
                slice.min_key.len() as u64,
                slice.max_key.as_ref().map_or(UNBOUNDED, |key| key.len() as u64),
            ] {
                put_varint(out, number);
            }
            out.extend_from_slice(&slice.min_key);
            out.extend_from_slice(slice.max_key.as_deref().unwrap_or_default());
        }
        ManifestChange::SliceMoved { table, index, level, run } => {
            put!(out, tag::SLICE_MOVED, table, index, level);
            put_varint(out, *run);
        }
        ManifestChange::SliceRemoved { table, index } => put!(out, tag::SLICE_REMOVED, table, index),
        ManifestChange::TableRemoved { number } => put!(out, tag::TABLE_REMOVED, number),
        ManifestChange::Ids { next_keyspace, next_partition } => {
            put!(out, tag::IDS, next_keyspace, next_partition)
        }
        ManifestChange::Flushed { sequence } => {
            put!(out, tag::FLUSHED);
            put_varint(out, *sequence);
        }
        ManifestChange::PartitionRule { keyspace, rule } => {
            put!(out, tag::PARTITION_RULE, keyspace.0);
            encode_rule(rule, out);
        }
        ManifestChange::RetainFrom { keyspace, name } => {
            put!(out, tag::RETAIN_FROM, keyspace.0);
            encode_short_name(name, out);
        }
    }
}

fn encode_settings(settings: &Settings, out: &mut Vec<u8>) {
    debug_assert!(settings.is_sorted_by(|one, next| one.0 < next.0), "ids ascending");
    put_varint(out, settings.len() as u64);
    for (id, value) in settings {
        put!(out, id);
        put_varint(out, *value);
    }
}

/// The changes of one edit, decoded one at a time. Ends after the first error.
#[derive(Clone, Debug)]
pub(crate) struct Changes<'a> {
    file: FileName,
    /// Offset of the payload in the file.
    base: u64,
    reader: ByteReader<'a>,
    failed: bool,
}

impl<'a> Changes<'a> {
    /// The changes of `payload`, at offset `base` of the manifest `file`. The scan that found the record has
    /// compared the chain.
    pub(crate) fn new(file: FileName, base: u64, payload: &'a [u8]) -> Result<Changes<'a>> {
        let mut reader = ByteReader::new(payload);
        reader
            .u64("the chain")
            .and_then(
                |_| if reader.remaining() == 0 { Err(reader.malformed("an edit", 1, 0)) } else { Ok(()) },
            )
            .map_err(|bad| Error::malformed(file, base, bad))?;
        Ok(Changes { file, base, reader, failed: false })
    }
}

impl Iterator for Changes<'_> {
    type Item = Result<ManifestChange>;

    fn next(&mut self) -> Option<Result<ManifestChange>> {
        if self.failed || self.reader.remaining() == 0 {
            return None;
        }
        let change = decode_change(&mut self.reader).map_err(|fault| match fault {
            Fault::Malformed(bad) => Error::malformed(self.file, self.base, bad),
            Fault::Unsupported(what) => {
                Error::Unsupported { file: self.file.to_string(), what: what.to_owned() }
            }
        });
        self.failed = change.is_err();
        Some(change)
    }
}

enum Fault {
    Malformed(Malformed),
    Unsupported(String),
}

impl From<Malformed> for Fault {
    fn from(bad: Malformed) -> Fault {
        Fault::Malformed(bad)
    }
}

type Decoded<T> = std::result::Result<T, Fault>;

fn decode_change(reader: &mut ByteReader<'_>) -> Decoded<ManifestChange> {
    let before = reader.clone();
    let tag = reader.u8("the kind of change")?;
    Ok(match tag {
        tag::KEYSPACE => decode_keyspace(reader)?,
        tag::KEYSPACE_SETTINGS => {
            ManifestChange::KeyspaceSettings { id: keyspace_id(reader)?, settings: decode_settings(reader)? }
        }
        tag::DROP_KEYSPACE => ManifestChange::DropKeyspace { id: keyspace_id(reader)? },
        tag::PARTITION => {
            let (id, keyspace) = (partition_id(reader)?, keyspace_id(reader)?);
            let name_bytes = reader.varint_up_to(KEY_BYTES_MAX as u64, "the partition's name length")?;
            let name = reader.bytes(name_bytes as usize, "the partition's name")?;
            ManifestChange::Partition { id, keyspace, name: name.into() }
        }
        tag::DROP_PARTITION => ManifestChange::DropPartition { id: partition_id(reader)? },
        tag::LOG => {
            let (number, path) = (file_number(reader)?, reader.u16("the log's path")?);
            ManifestChange::Log {
                number,
                path,
                uid: reader.u64("the log's uid")?,
                bytes: reader.u64("the log's length")?,
            }
        }
        tag::LOG_PROMISED => {
            let number = file_number(reader)?;
            let (bytes, chain) = (reader.u64("the promised length")?, reader.u64("the promised chain")?);
            ManifestChange::LogPromised { number, end: FramePoint { bytes, chain } }
        }
        tag::LOG_REMOVED => ManifestChange::LogRemoved { number: file_number(reader)? },
        tag::TABLE => ManifestChange::Table {
            number: file_number(reader)?,
            path: reader.u16("the table's path")?,
            uid: reader.u64("the table's uid")?,
            bytes: reader.u64("the table's length")?,
            checksum: reader.u32("the table's checksum")?,
        },
        tag::SLICE => decode_slice(reader)?,
        tag::SLICE_MOVED => {
            let (table, index) = slice_place(reader)?;
            let level = reader.u8("the slice's level")?;
            ManifestChange::SliceMoved { table, index, level, run: reader.varint("the slice's run")? }
        }
        tag::SLICE_REMOVED => {
            let (table, index) = slice_place(reader)?;
            ManifestChange::SliceRemoved { table, index }
        }
        tag::IDS => ManifestChange::Ids {
            next_keyspace: reader.u32("the next keyspace")?,
            next_partition: reader.u32("the next partition")?,
        },
        tag::FLUSHED => {
            ManifestChange::Flushed { sequence: reader.varint_up_to(SEQUENCE_MAX, "the flushed sequence")? }
        }
        tag::TABLE_REMOVED => ManifestChange::TableRemoved { number: file_number(reader)? },
        tag::PARTITION_RULE => {
            ManifestChange::PartitionRule { keyspace: keyspace_id(reader)?, rule: decode_rule(reader)? }
        }
        tag::RETAIN_FROM => {
            ManifestChange::RetainFrom { keyspace: keyspace_id(reader)?, name: decode_short_name(reader)? }
        }
        tag::RESERVED_FIRST..=tag::RESERVED_LAST => {
            return Err(Fault::Unsupported(format!("a change of kind {tag} in the manifest")));
        }
        _ => {
            return Err(before.malformed("the kind of change", tag::RETAIN_FROM.into(), tag.into()).into());
        }
    })
}

fn decode_keyspace(reader: &mut ByteReader<'_>) -> Decoded<ManifestChange> {
    let id = keyspace_id(reader)?;
    let before = reader.clone();
    let kind = match reader.u8("the kind of keyspace")? {
        kind if kind == KeyspaceKind::Ordered as u8 => KeyspaceKind::Ordered,
        kind if kind == KeyspaceKind::Hashed as u8 => KeyspaceKind::Hashed,
        kind => return Err(before.malformed("the kind of keyspace", 1, kind.into()).into()),
    };
    if (kind == KeyspaceKind::Hashed) != id.is_hashed() {
        return Err(before
            .malformed("the kind of keyspace", u64::from(id.is_hashed()) + 1, kind as u64)
            .into());
    }
    let before = reader.clone();
    let name_bytes = reader.u8("the keyspace's name length")?;
    if name_bytes == 0 {
        return Err(before.malformed("the keyspace's name length", 1, 0).into());
    }
    let before = reader.clone();
    let name = reader.bytes(name_bytes.into(), "the keyspace's name")?;
    let name = std::str::from_utf8(name).map_err(|bad| {
        before.malformed("the keyspace's name", name.len() as u64, bad.valid_up_to() as u64)
    })?;
    Ok(ManifestChange::Keyspace { id, kind, name: name.to_owned(), settings: decode_settings(reader)? })
}

fn decode_settings(reader: &mut ByteReader<'_>) -> Decoded<Settings> {
    let count = reader.varint_up_to(u16::MAX.into(), "the number of settings")?;
    let mut settings = Settings::new();
    for _ in 0..count {
        let before = reader.clone();
        let id = reader.u16("a setting's id")?;
        let lowest = settings.last().map_or(1, |(last, _)| u64::from(*last) + 1);
        if u64::from(id) < lowest {
            return Err(before.malformed("a setting's id", lowest, id.into()).into());
        }
        settings.push((id, reader.varint("a setting's value")?));
    }
    Ok(settings)
}

fn decode_slice(reader: &mut ByteReader<'_>) -> Decoded<ManifestChange> {
    let (table, index) = slice_place(reader)?;
    let (keyspace, partition) = (keyspace_id(reader)?, partition_id(reader)?);
    let level = reader.u8("the slice's level")?;
    let run = reader.varint("the slice's run")?;
    let before = reader.clone();
    let items = reader.varint("the slice's items")?;
    if items == 0 {
        return Err(before.malformed("the slice's items", 1, 0).into());
    }
    let tombstones = reader.varint_up_to(items, "the slice's tombstones")?;
    let oldest_tombstone_s = reader.varint("the slice's oldest tombstone")?;
    let tombstones_dense = reader.varint_up_to(tombstones, "the slice's dense tombstones")?;
    let key_value_bytes = reader.varint("the slice's key and value bytes")?;
    let before = reader.clone();
    let first_sequence = reader.varint("the slice's first sequence")?;
    let last_sequence = reader.varint_up_to(SEQUENCE_MAX, "the slice's last sequence")?;
    if first_sequence == 0 || first_sequence > last_sequence {
        return Err(before.malformed("the slice's first sequence", last_sequence, first_sequence).into());
    }
    let min_key_bytes = reader.varint_up_to(KEY_BYTES_MAX as u64, "the slice's min key length")?;
    let max_key_bytes = reader.varint_up_to(UNBOUNDED, "the slice's max key length")?;
    let before = reader.clone();
    let min_key = reader.bytes(min_key_bytes as usize, "the slice's min key")?;
    let max_key = match max_key_bytes {
        UNBOUNDED => None,
        bytes => Some(reader.bytes(bytes as usize, "the slice's max key")?),
    };
    if max_key.is_some_and(|max_key| min_key > max_key) {
        return Err(before.malformed("the order of the slice's keys", max_key_bytes, min_key_bytes).into());
    }
    let (min_key, max_key) = (min_key.into(), max_key.map(Box::from));
    let slice = Slice {
        keyspace,
        partition,
        level,
        run,
        items,
        tombstones,
        oldest_tombstone_s,
        tombstones_dense,
        key_value_bytes,
        first_sequence,
        last_sequence,
        min_key,
        max_key,
    };
    Ok(ManifestChange::Slice { table, index, slice })
}

fn slice_place(reader: &mut ByteReader<'_>) -> Decoded<(u64, u32)> {
    Ok((file_number(reader)?, reader.u32("the slice's index")?))
}

fn file_number(reader: &mut ByteReader<'_>) -> Decoded<u64> {
    let before = reader.clone();
    match reader.u64("a file's number")? {
        0 => Err(before.malformed("a file's number", 1, 0).into()),
        number => Ok(number),
    }
}

fn keyspace_id(reader: &mut ByteReader<'_>) -> Decoded<KeyspaceId> {
    let before = reader.clone();
    match KeyspaceId(reader.u32("a keyspace's id")?) {
        id if id.number() == 0 => Err(before.malformed("a keyspace's id", 1, 0).into()),
        id => Ok(id),
    }
}

fn partition_id(reader: &mut ByteReader<'_>) -> Decoded<PartitionId> {
    let before = reader.clone();
    match reader.u32("a partition's id")? {
        0 => Err(before.malformed("a partition's id", 1, 0).into()),
        id => Ok(PartitionId(id)),
    }
}
