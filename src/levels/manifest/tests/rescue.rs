//! The recoverable contents of a damaged manifest.

use super::*;
use crate::format::manifest::Slice;

/// Edits that add a table of three slices; the last edit does not fit.
fn edits() -> [Vec<ManifestChange>; 5] {
    let table = ManifestChange::Table { number: 7, path: 0, uid: 1, bytes: 4096, checksum: 0 };
    let slice = |index| ManifestChange::Slice {
        table: 7,
        index,
        slice: Slice {
            keyspace: KeyspaceId(1),
            partition: PartitionId(1),
            level: 0,
            run: 0,
            items: 1,
            tombstones: 0,
            oldest_tombstone_s: 0,
            tombstones_dense: 0,
            key_value_bytes: 1,
            first_sequence: 10 * u64::from(index) + 1,
            last_sequence: 10 * u64::from(index) + 9,
            min_key: Box::default(),
            max_key: Some(Box::default()),
        },
    };
    [
        vec![partition(1)],
        vec![table, slice(0), slice(1), slice(2)],
        vec![ManifestChange::SliceRemoved { table: 7, index: 1 }],
        vec![partition(2)],
        vec![
            ManifestChange::DropPartition { id: PartitionId(2) },
            ManifestChange::DropKeyspace { id: KeyspaceId(9) },
        ],
    ]
}

/// A manifest of all edits that fit, and the offset of each.
fn written() -> (Kept, Vec<usize>) {
    let (mut kept, mut starts) = (Kept::new(), Vec::new());
    for changes in &edits()[..4] {
        starts.push(kept.manifest.framer.tail().bytes as usize);
        kept.state.apply_edit(changes).expect("consistent");
        kept.manifest.append(&kept.storage, changes).expect("no fault");
    }
    (kept, starts)
}

fn rescue(kept: &Kept, header: Option<FileHeader>) -> Rescued {
    ManifestFile::rescue(&kept.storage, FILE, header).expect("readable")
}

/// All of a whole manifest is found, with its own header or with STORE's.
#[test]
fn a_whole_manifest_is_found() {
    let (kept, _) = written();
    let header = *kept.manifest.framer.header();
    for given in [Some(header), None] {
        let found = rescue(&kept, given);
        assert_eq!((found.state, found.header, found.is_whole), (kept.state.clone(), header, true));
        assert!(found.dropped.is_empty() && found.unplaced.is_empty());
    }
    let mut bytes = kept.storage.bytes(FILE);
    bytes[..PAGE_BYTES].fill(0xee);
    kept.storage.put(FILE, &bytes);
    assert!(rescue(&kept, Some(header)).is_whole, "STORE says what the header should");
    assert_eq!(corrupt_part(ManifestFile::rescue(&kept.storage, FILE, None)), "the header checksum");
}

/// From a damaged manifest, every change that can be read and fits is recovered, with drops and unplaced
/// slices.
#[test]
fn readable_changes_are_rescued() {
    let (mut kept, starts) = written();
    let header = *kept.manifest.framer.header();
    let whole = kept.storage.bytes(FILE);
    let with = |damaged: &[usize]| {
        let mut bytes = whole.clone();
        for edit in damaged {
            bytes[starts[*edit] + RECORD_HEAD_BYTES] ^= 1;
        }
        kept.storage.put(FILE, &bytes);
        rescue(&kept, Some(header))
    };
    // Without the table's edit none of its slices fit; removed slices are not missed.
    let found = with(&[1]);
    assert!(!found.is_whole && found.state.tables.is_empty() && found.unplaced.is_empty());
    assert_eq!(found.state.partitions.len(), 2);
    // Without the partition its slices are unplaced, except the removed one.
    let found = with(&[0]);
    assert!(!found.is_whole);
    assert!(found.unplaced.keys().eq(&[(7, 0), (7, 2)]), "{:?}", found.unplaced);
    let found = with(&[3]);
    assert_eq!((found.is_whole, found.state.partitions.len()), (false, 1));
    kept.storage.put(FILE, &whole);
    kept.manifest.append(&kept.storage, &edits()[4]).expect("the file does not know the state");
    let found = rescue(&kept, Some(header));
    assert_eq!((found.is_whole, found.dropped), (false, BTreeSet::from([KeyspaceId(9)])));
    assert_eq!(found.dropped_partitions, BTreeSet::from([PartitionId(2)]));
    assert_eq!(found.state, {
        let mut state = kept.state.clone();
        state.apply_edit(&edits()[4][..1]).expect("consistent");
        state
    });
}

/// A manifest is not whole if an edit has an unreadable change or a wrong number.
#[test]
fn unreadable_edits_make_a_manifest_incomplete() {
    let mut kept = Kept::new();
    let header = *kept.manifest.framer.header();
    let (at, chain) = (kept.manifest.framer.tail().bytes, kept.manifest.framer.tail().chain);
    let mut payload = encode_edit(chain, &[partition(1)]);
    payload.push(99);
    let mut record = Vec::new();
    kept.manifest.framer.frame(2, &payload, &mut record);
    kept.storage.write(FILE, at, &record).expect("no fault");
    let found = rescue(&kept, Some(header));
    assert_eq!((found.is_whole, found.state.partitions.len()), (false, 1));
    let mut kept = Kept::new();
    kept.manifest.next_edit = 3;
    kept.append(1);
    let found = rescue(&kept, Some(header));
    assert_eq!((found.is_whole, found.state.partitions.len()), (false, 1));
    let missing = FileName::new(FileKind::Manifest, 9);
    assert_eq!(corrupt_part(ManifestFile::rescue(&kept.storage, missing, None)), "the file");
}
