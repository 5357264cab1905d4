//! Edits and state: their bytes, and every kind of inconsistency.

mod rules;

use super::*;
use crate::base::id::FileKind;
use crate::format::frames::RECORDS_FROM;
use crate::format::golden::Golden;

const FILE: FileName = FileName { kind: FileKind::Manifest, number: 1, path: 0 };

fn keyspace(id: u32, name: &str) -> ManifestChange {
    let settings = vec![(1, 64), (4, 300)];
    ManifestChange::Keyspace {
        id: KeyspaceId(id),
        kind: KeyspaceKind::Ordered,
        name: name.to_owned(),
        settings,
    }
}

fn partition(id: u32, keyspace: u32, name: &[u8]) -> ManifestChange {
    ManifestChange::Partition { id: PartitionId(id), keyspace: KeyspaceId(keyspace), name: name.into() }
}

fn rule(keyspace: u32, rule: Rule) -> ManifestChange {
    ManifestChange::PartitionRule { keyspace: KeyspaceId(keyspace), rule }
}

fn table(number: u64) -> ManifestChange {
    ManifestChange::Table { number, path: 2, uid: 0x66, bytes: 8192, checksum: 0x7777_7777 }
}

fn log(number: u64) -> ManifestChange {
    ManifestChange::Log { number, path: 0, uid: 0x44, bytes: 1 << 20 }
}

fn log_end(number: u64, bytes: u64) -> ManifestChange {
    ManifestChange::LogPromised { number, end: FramePoint { bytes, chain: 0x55 } }
}

fn slice_of(partition: u32, level: u8, sequences: (u64, u64), keys: (&[u8], &[u8])) -> Slice {
    Slice {
        keyspace: KeyspaceId(1),
        partition: PartitionId(partition),
        level,
        run: u64::from(level.min(1)),
        items: 200,
        tombstones: 3,
        oldest_tombstone_s: 1000,
        tombstones_dense: 2,
        key_value_bytes: 4000,
        first_sequence: sequences.0,
        last_sequence: sequences.1,
        min_key: keys.0.into(),
        max_key: Some(keys.1.into()),
    }
}

fn slice(table: u64, index: u32, level: u8, sequences: (u64, u64), keys: (&[u8], &[u8])) -> ManifestChange {
    ManifestChange::Slice { table, index, slice: slice_of(1, level, sequences, keys) }
}

const IDS: ManifestChange = ManifestChange::Ids { next_keyspace: 1024, next_partition: 2048 };

/// A state with objects of every kind.
fn base() -> Vec<ManifestChange> {
    vec![
        IDS,
        ManifestChange::Flushed { sequence: 300 },
        keyspace(1, "one"),
        keyspace(2, "two"),
        rule(2, Rule::Explicit),
        partition(1, 1, b""),
        partition(2, 2, b"east"),
        partition(3, 2, b"west"),
        log(7),
        log_end(7, 12288 + 80),
        log(9),
        table(5),
        slice(5, 0, 0, (10, 20), (b"a", b"k")),
        ManifestChange::Slice {
            table: 5,
            index: 1,
            slice: Slice { keyspace: KeyspaceId(2), ..slice_of(2, 0, (10, 20), (b"a", b"k")) },
        },
        table(6),
        slice(6, 0, 1, (1, 9), (b"a", b"f")),
    ]
}

fn state(changes: &[ManifestChange]) -> ManifestState {
    let mut state = ManifestState::default();
    state.apply_edit(changes).expect("consistent");
    state
}

fn decoded(payload: &[u8]) -> Result<Vec<ManifestChange>> {
    Changes::new(FILE, 0, payload)?.collect()
}

/// Caption and length of each field.
type Fields = Vec<(&'static str, usize)>;

/// One of each change, with the captions of its fields.
fn each_change() -> Vec<(ManifestChange, &'static str, Fields)> {
    let settings = [("settings", 1), ("setting id", 2), ("value", 1), ("setting id", 2), ("value", 2)];
    let settings_change =
        ManifestChange::KeyspaceSettings { id: KeyspaceId(1), settings: vec![(1, 64), (4, 300)] };
    let mut keyspace_fields = vec![("id", 4), ("kind: ordered", 1), ("name bytes", 1), ("name", 3)];
    keyspace_fields.extend(settings);
    let mut settings_fields = vec![("id", 4)];
    settings_fields.extend(settings);
    let slice_fields = vec![
        ("table", 8),
        ("slice", 4),
        ("keyspace", 4),
        ("partition", 4),
        ("level", 1),
        ("run", 1),
        ("items", 2),
        ("tombstones", 1),
        ("oldest tombstone", 2),
        ("dense tombstones", 1),
        ("key and value bytes", 2),
        ("first sequence", 1),
        ("last sequence", 2),
        ("min key bytes", 1),
        ("max key bytes", 1),
        ("min key", 1),
        ("max key", 3),
    ];
    let place = vec![("table", 8), ("slice", 4)];
    let file = vec![("number", 8), ("path", 2), ("uid", 8), ("bytes", 8)];
    let with_last = |mut fields: Fields, last| {
        fields.push(last);
        fields
    };
    let mut changes = vec![
        (keyspace(1, "one"), "Keyspace", keyspace_fields),
        (settings_change, "KeyspaceSettings", settings_fields),
        (ManifestChange::DropKeyspace { id: KeyspaceId(1) }, "DropKeyspace", vec![("id", 4)]),
        (
            partition(0x21, 1, b"east"),
            "Partition",
            vec![("id", 4), ("keyspace", 4), ("name bytes", 1), ("name", 4)],
        ),
        (ManifestChange::DropPartition { id: PartitionId(0x21) }, "DropPartition", vec![("id", 4)]),
        (log(7), "Log", file.clone()),
        (log_end(7, 12368), "LogPromised", vec![("number", 8), ("durable to", 8), ("chain", 8)]),
        (ManifestChange::LogRemoved { number: 7 }, "LogRemoved", vec![("number", 8)]),
        (table(5), "Table", with_last(file, ("checksum", 4))),
        (slice(5, 1, 2, (100, 200), (b"a", b"key")), "Slice", slice_fields),
        (
            ManifestChange::SliceMoved { table: 5, index: 1, level: 3, run: 300 },
            "SliceMoved",
            with_last(with_last(place.clone(), ("level", 1)), ("run", 2)),
        ),
        (ManifestChange::SliceRemoved { table: 5, index: 1 }, "SliceRemoved", place),
        (IDS, "Ids", vec![("next keyspace", 4), ("next partition", 4)]),
        (ManifestChange::Flushed { sequence: 300 }, "Flushed", vec![("sequence", 2)]),
        (ManifestChange::TableRemoved { number: 5 }, "TableRemoved", vec![("number", 8)]),
    ];
    changes.extend(rules::each_rule());
    changes
}

/// The bytes of an edit with one of each change.
#[test]
fn golden() {
    let changes: Vec<ManifestChange> = each_change().into_iter().map(|(change, ..)| change).collect();
    let bytes = encode_edit(0x0706_0504_0302_0100, &changes);
    let mut golden = Golden::new("manifest_edit", &bytes);
    golden.field("chain before", 8);
    for (_, name, fields) in each_change() {
        golden.heading(name);
        golden.field("tag", 1);
        for (caption, count) in fields {
            golden.field(caption, count);
        }
    }
    golden.check();
}

/// Every change decodes to itself. An edit cut inside a change is refused, and no cut panics.
#[test]
fn round_trip_and_every_cut() {
    let (mut bytes, mut ends) = (encode_edit(1, &[]), Vec::new());
    let changes: Vec<ManifestChange> = each_change().into_iter().map(|(change, ..)| change).collect();
    for change in &changes {
        encode_change(change, &mut bytes);
        ends.push(bytes.len());
    }
    assert_eq!(decoded(&bytes).expect("decodes"), changes);
    for cut in 0..bytes.len() {
        let whole = ends.iter().position(|end| *end == cut);
        match decoded(&bytes[..cut]) {
            Ok(some) => assert_eq!(some, changes[..=whole.expect("between changes")]),
            Err(_) => assert_eq!(whole, None, "cut at {cut}"),
        }
    }
}

/// An edit with a flipped bit is refused or decodes to other changes, and never panics. Changes that decode
/// encode to the same bytes.
#[test]
fn flipped_edits_are_refused_or_encode_to_themselves() {
    let changes: Vec<ManifestChange> = each_change().into_iter().map(|(change, ..)| change).collect();
    let mut bytes = encode_edit(1, &changes);
    for bit in 64..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(found) = decoded(&bytes) {
            assert_eq!(encode_edit(1, &found), bytes, "bit {bit}: one encoding of a change");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

fn edited(change: &ManifestChange, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut edit = encode_edit(0, std::slice::from_ref(change));
    edit[8 + at..8 + at + bytes.len()].copy_from_slice(bytes);
    edit
}

/// Ids of hashed keyspaces have bit 31; no other ids have it.
#[test]
fn kinds_of_keyspaces_are_those_of_their_ids() {
    let one = keyspace(1, "one");
    let wrong: [(usize, &[u8], &str); 3] = [
        (5, &[2], "the kind of keyspace"),
        (4, &[0x80], "the kind of keyspace"),
        (1, &[0, 0, 0, 0x80], "a keyspace's id"),
    ];
    for (at, bytes, what) in wrong {
        let found = decoded(&edited(&one, at, bytes));
        assert!(matches!(found, Err(Error::Corrupt(found)) if found.what == what), "{at}");
    }
    let hashed = decoded(&edited(&one, 1, &[1, 0, 0, 0x80, 2])).expect("decodes");
    assert_eq!(hashed[0].features(), FEATURE_HASHED);
}

/// Every check of the decoder has an input that trips it.
#[test]
fn checks_of_the_decoder() {
    let what = |bytes: &[u8]| match decoded(bytes) {
        Err(Error::Corrupt(at)) => at.what,
        other => panic!("not corrupt: {other:?}"),
    };
    assert_eq!(what(&[0; 7]), "the chain");
    assert_eq!(what(&[0; 8]), "an edit");
    for tag in [0, 64, 255] {
        assert_eq!(what(&edited(&IDS, 0, &[tag])), "the kind of change");
    }
    for tag in [18, 63] {
        let later = decoded(&edited(&IDS, 0, &[tag]));
        let name = format!("a change of kind {tag} in the manifest");
        assert!(matches!(later, Err(Error::Unsupported { what, .. }) if what == name), "{tag}");
    }
    let one = keyspace(1, "one");
    assert_eq!(what(&edited(&one, 1, &[0])), "a keyspace's id");
    assert_eq!(what(&edited(&one, 5, &[0])), "the kind of keyspace");
    assert_eq!(what(&edited(&one, 5, &[3])), "the kind of keyspace");
    assert_eq!(what(&edited(&one, 6, &[0])), "the keyspace's name length");
    assert_eq!(what(&edited(&one, 7, &[0xff])), "the keyspace's name");
    assert_eq!(what(&edited(&one, 10, &[0xff, 0xff, 0x7f])), "the number of settings");
    assert_eq!(what(&edited(&one, 11, &[0])), "a setting's id");
    assert_eq!(what(&edited(&one, 14, &[1])), "a setting's id");
    let east = partition(1, 1, b"east");
    assert_eq!(what(&edited(&east, 1, &[0])), "a partition's id");
    assert_eq!(what(&edited(&east, 5, &[0])), "a keyspace's id");
    assert_eq!(what(&edited(&east, 9, &[0xff, 0xff, 0x7f])), "the partition's name length");
    for change in [
        log(1),
        log_end(1, 0),
        ManifestChange::LogRemoved { number: 1 },
        table(1),
        ManifestChange::TableRemoved { number: 1 },
    ] {
        assert_eq!(what(&edited(&change, 1, &[0])), "a file's number");
    }
    let part = slice(1, 0, 1, (5, 9), (b"b", b"c"));
    assert_eq!(what(&edited(&part, 1, &[0])), "a file's number");
    assert_eq!(what(&edited(&part, 23, &[0x80, 0])), "the slice's items");
    let none = Slice { items: 0, ..slice_of(1, 0, (5, 9), (b"b", b"c")) };
    assert_eq!(
        what(&encode_edit(0, &[ManifestChange::Slice { table: 1, index: 0, slice: none }])),
        "the slice's items"
    );
    let many = Slice { tombstones: 201, ..slice_of(1, 0, (5, 9), (b"b", b"c")) };
    assert_eq!(
        what(&encode_edit(0, &[ManifestChange::Slice { table: 1, index: 0, slice: many }])),
        "the slice's tombstones"
    );
    let dense = Slice { tombstones_dense: 4, ..slice_of(1, 0, (5, 9), (b"b", b"c")) };
    assert_eq!(
        what(&encode_edit(0, &[ManifestChange::Slice { table: 1, index: 0, slice: dense }])),
        "the slice's dense tombstones"
    );
    for (first, last) in [(0, 9), (10, 9)] {
        let bytes = encode_edit(0, &[slice(1, 0, 1, (first, last), (b"b", b"c"))]);
        assert_eq!(what(&bytes), "the slice's first sequence");
    }
    let late = encode_edit(0, &[slice(1, 0, 1, (1, SEQUENCE_MAX + 1), (b"b", b"c"))]);
    assert_eq!(what(&late), "the slice's last sequence");
    let turned = encode_edit(0, &[slice(1, 0, 1, (1, 2), (b"c", b"b"))]);
    assert_eq!(what(&turned), "the order of the slice's keys");
    let late = encode_edit(0, &[ManifestChange::Flushed { sequence: SEQUENCE_MAX + 1 }]);
    assert_eq!(what(&late), "the flushed sequence");
}

/// The replay of a snapshot gives an equal state, through bytes too, and is no longer than announced.
#[test]
fn a_snapshot_is_the_state() {
    let before = state(&base());
    let bytes = encode_edit(0, &before.snapshot());
    assert_eq!(state(&decoded(&bytes).expect("decodes")), before);
    let most = before.snapshot_bytes_max();
    assert!((bytes.len() as u64..=2 * bytes.len() as u64).contains(&most), "{} {most}", bytes.len());
    assert_eq!(ManifestState::default(), state(&ManifestState::default().snapshot()));
}

/// The bound on a snapshot's length holds for the longest objects of each kind, and is close.
#[test]
fn lengths_are_told_before() {
    let room = |state: &ManifestState| {
        let bytes = encode_edit(0, &state.snapshot()).len() as u64;
        assert_eq!(edit_bytes(&state.snapshot()), bytes);
        state.snapshot_bytes_max().checked_sub(bytes).expect("not more than was told")
    };
    let mut grown = state(&[ManifestChange::Ids { next_keyspace: 5000, next_partition: 5000 }]);
    assert!(room(&grown) < 32);
    let settings: Settings = (1..=100).map(|id| (id, u64::MAX)).collect();
    for id in 1..=20 {
        let name = format!("{id:0200}");
        let change = ManifestChange::Keyspace {
            id: KeyspaceId(id),
            kind: KeyspaceKind::Ordered,
            name,
            settings: settings.clone(),
        };
        grown.apply_edit(&[change]).expect("consistent");
        assert!(room(&grown) < 32 + 8 * u64::from(id));
    }
    let before = room(&grown);
    for id in 1..=20u32 {
        let name = [&id.to_le_bytes()[..], &[7; 20_000]].concat();
        grown.apply_edit(&[partition(id, 1, &name)]).expect("consistent");
        assert_eq!(room(&grown), before, "nothing is told for nothing");
    }
    for number in 1..=50 {
        grown.apply_edit(&[log(number), log_end(number, RECORDS_FROM)]).expect("consistent");
        assert_eq!(room(&grown), before);
    }
    let slice = Slice {
        run: u64::MAX,
        items: u64::MAX,
        tombstones: u64::MAX,
        oldest_tombstone_s: u64::MAX,
        tombstones_dense: u64::MAX,
        key_value_bytes: u64::MAX,
        ..slice_of(1, 1, (SEQUENCE_MAX, SEQUENCE_MAX), (&[1; 20_000], &[2; 20_000]))
    };
    for number in 101..=110 {
        let slice = |partition| ManifestChange::Slice {
            table: number,
            index: partition,
            slice: Slice { partition: PartitionId(partition), ..slice.clone() },
        };
        let partition = number as u32 - 100;
        let changes = [table(number), slice(partition), slice(partition + 10)];
        grown.apply_edit(&changes).expect("consistent");
        assert_eq!(room(&grown), before);
    }
}

/// Trees have levels down to the deepest one, and no deeper.
#[test]
fn levels_have_an_end() {
    for (level, is_refused) in [(LEVEL_MAX, false), (LEVEL_MAX + 1, true)] {
        let made = [slice(5, 7, level, (1, 2), (b"a", b"b"))];
        let moved = [ManifestChange::SliceMoved { table: 6, index: 0, level, run: 1 }];
        for changes in [made, moved] {
            assert_eq!(state(&base()).apply_edit(&changes).is_err(), is_refused, "{level} {changes:?}");
        }
    }
}

/// The recorded end of a log may be at any possible end of a record, from the first to the last.
#[test]
fn promises_stand_in_their_logs() {
    for bytes in [RECORDS_FROM, RECORDS_FROM + 8, 1 << 20] {
        state(&base()).apply_edit(&[log_end(9, bytes)]).expect("in the log");
    }
}

/// A snapshot does not depend on the history of the state.
#[test]
fn a_snapshot_does_not_remember() {
    let mut changed = state(&base());
    changed
        .apply_edit(&[
            keyspace(3, "short-lived"),
            partition(9, 3, b""),
            table(20),
            ManifestChange::Slice {
                table: 20,
                index: 0,
                slice: Slice { keyspace: KeyspaceId(3), ..slice_of(9, 1, (1, 2), (b"", b"z")) },
            },
            slice(20, 1, 2, (1, 2), (b"", b"z")),
        ])
        .expect("consistent");
    assert_eq!(changed.slices(PartitionId(1)).count(), 3);
    changed.apply_edit(&[ManifestChange::DropKeyspace { id: KeyspaceId(3) }]).expect("consistent");
    assert_eq!(changed.tables[&20].slices.len(), 1);
    assert_eq!(changed.tables[&20].file(20), FileName { kind: FileKind::Table, number: 20, path: 2 });
    changed.apply_edit(&[ManifestChange::SliceRemoved { table: 20, index: 1 }]).expect("consistent");
    assert_eq!(changed, state(&base()));
    assert_eq!(changed.snapshot(), state(&base()).snapshot());
}

/// A drop also removes all dependent objects, and a table goes with its last slice.
#[test]
fn drops_reach_down() {
    let mut dropped = state(&base());
    dropped.apply_edit(&[ManifestChange::DropPartition { id: PartitionId(2) }]).expect("consistent");
    assert_eq!(dropped.tables[&5].slices.keys().collect::<Vec<_>>(), [&0]);
    dropped.apply_edit(&[ManifestChange::DropKeyspace { id: KeyspaceId(1) }]).expect("consistent");
    assert!(dropped.tables.is_empty());
    assert_eq!(dropped.partitions.keys().collect::<Vec<_>>(), [&PartitionId(3)]);
    dropped.apply_edit(&[keyspace(4, "one"), partition(8, 4, b"")]).expect("names are free again");
    // Removing a table at once gives the same state as removing it slice by slice.
    let [mut whole, mut by_slice] = [state(&base()), state(&base())];
    whole.apply_edit(&[ManifestChange::TableRemoved { number: 5 }]).expect("consistent");
    let slices = [0, 1].map(|index| ManifestChange::SliceRemoved { table: 5, index });
    by_slice.apply_edit(&slices).expect("consistent");
    assert_eq!(whole, by_slice);
    assert!(!whole.tables.contains_key(&5) && whole.slices(PartitionId(2)).next().is_none());
    let mut moved = state(&base());
    let changes = [
        ManifestChange::SliceMoved { table: 5, index: 0, level: 2, run: 0 },
        ManifestChange::LogRemoved { number: 7 },
    ];
    moved.apply_edit(&changes).expect("consistent");
    assert_eq!(
        moved.slices(PartitionId(1)).map(|(table, _, slice)| (table, slice.level)).collect::<Vec<_>>(),
        [(5, 2), (6, 1)]
    );
    assert_eq!(moved.logs.keys().collect::<Vec<_>>(), [&9]);
}

/// Every inconsistency has an edit that shows it.
#[test]
fn checks_of_the_state() {
    let changed_settings = ManifestChange::KeyspaceSettings { id: KeyspaceId(9), settings: Vec::new() };
    let of_other_keyspace = Slice { keyspace: KeyspaceId(2), ..slice_of(1, 3, (1, 2), (b"a", b"b")) };
    let ids = |next_keyspace, next_partition| ManifestChange::Ids { next_keyspace, next_partition };
    let moved = |index, level| ManifestChange::SliceMoved { table: 5, index, level, run: 1 };
    let removed = |table, index| ManifestChange::SliceRemoved { table, index };
    let added = |slice| ManifestChange::Slice { table: 5, index: 9, slice };
    let cases: Vec<(Vec<ManifestChange>, &str)> = vec![
        (vec![keyspace(1, "again")], "a keyspace that is there already"),
        (vec![keyspace(3, "one")], "a keyspace with the name of another"),
        (vec![keyspace(1024, "far")], "a keyspace whose id was not reserved"),
        (vec![keyspace(0, "none")], "a keyspace whose id was not reserved"),
        (vec![keyspace(3, "")], "the length of a keyspace's name"),
        (vec![keyspace(3, &"x".repeat(256))], "the length of a keyspace's name"),
        (vec![changed_settings], "settings of an unknown keyspace"),
        (vec![ManifestChange::DropKeyspace { id: KeyspaceId(9) }], "a drop of an unknown keyspace"),
        (vec![partition(1, 2, b"new")], "a partition that is there already"),
        (vec![partition(9, 2, b"east")], "a partition with the name of another"),
        (vec![partition(9, 9, b"")], "a partition of an unknown keyspace"),
        (vec![partition(2048, 1, b"far")], "a partition whose id was not reserved"),
        (vec![ManifestChange::DropPartition { id: PartitionId(9) }], "a drop of an unknown partition"),
        (vec![log(7)], "a log whose number is taken"),
        (vec![log(5)], "a log whose number is taken"),
        (vec![log(0)], "a log whose number is taken"),
        (vec![log_end(8, 12288)], "a promise for an unknown log"),
        (vec![log_end(9, 12280)], "a promise outside of the log"),
        (vec![log_end(9, 12289)], "a promise outside of the log"),
        (vec![log_end(9, (1 << 20) + 8)], "a promise outside of the log"),
        (vec![log_end(7, 12288)], "a second promise for a log"),
        (vec![ManifestChange::LogRemoved { number: 8 }], "removal of an unknown log"),
        (vec![table(5)], "a table whose number is taken"),
        (vec![table(9)], "a table whose number is taken"),
        (vec![table(8)], "a table without slices"),
        (vec![slice(8, 0, 1, (1, 2), (b"a", b"b"))], "a slice of an unknown table"),
        (vec![slice(5, 1, 3, (1, 2), (b"a", b"b"))], "a slice that is there already in table"),
        (vec![added(slice_of(99, 0, (1, 2), (b"a", b"b")))], "a slice of an unknown partition"),
        (vec![added(of_other_keyspace)], "a slice of an unknown partition"),
        (vec![moved(9, 1)], "a move of an unknown slice of table"),
        (vec![removed(5, 9)], "removal of an unknown slice of table"),
        (vec![removed(99, 0)], "removal of an unknown slice of table"),
        (vec![ManifestChange::TableRemoved { number: 99 }], "removal of an unknown table"),
        (vec![ids(1023, 2048)], "reserved ids that go back"),
        (vec![ids(1024, 2047)], "reserved ids that go back"),
        (vec![ManifestChange::Flushed { sequence: 299 }], "a flushed sequence that goes back"),
        (
            vec![table(8), slice(8, 0, 0, (20, 30), (b"x", b"z"))],
            "overlapping sequences in level 0 of partition",
        ),
        (vec![table(8), slice(8, 0, 1, (1, 9), (b"f", b"z"))], "overlapping keys in one run of partition"),
        (vec![moved(0, 1)], "overlapping keys in one run of partition"),
        (vec![moved(0, 0)], "a numbered run in level 0 of partition"),
    ];
    for (changes, what) in cases {
        let found = state(&base()).apply_edit(&changes).expect_err(what);
        assert_eq!(found.what, what, "{changes:?}");
    }
    state(&base()).apply_edit(&[log_end(7, 12288 + 80)]).expect("the same promise again");
}

/// Slices may lie side by side where their keys do not touch, and on top of each other in several runs of a
/// level.
#[test]
fn neighbours_and_runs_are_consistent() {
    let beside = [table(8), slice(8, 0, 0, (21, 30), (b"a", b"k")), slice(8, 1, 1, (1, 9), (b"g", b"z"))];
    state(&base()).apply_edit(&beside).expect("neighbours that do not touch");
    let above = [ManifestChange::SliceMoved { table: 5, index: 0, level: 1, run: 2 }];
    state(&base()).apply_edit(&above).expect("another run of the level");
}

/// A slice without a last key, because of a range tombstone, decodes to itself, and no other slice of its run
/// may follow it.
#[test]
fn slices_may_have_no_last_key() {
    let endless = |table: u64, min_key: &[u8]| {
        let slice = Slice { max_key: None, ..slice_of(1, 3, (10, 20), (min_key, b"")) };
        ManifestChange::Slice { table, index: 7, slice }
    };
    let change = endless(5, b"q");
    let payload = encode_edit(0, std::slice::from_ref(&change));
    let decoded: Result<Vec<ManifestChange>> = Changes::new(FILE, 0, &payload).expect("an edit").collect();
    assert_eq!(decoded.expect("decodes"), std::slice::from_ref(&change));
    let mut state = ManifestState::default();
    state.apply_edit(&base()).expect("fits");
    state.apply_edit(&[change]).expect("fits");
    assert!(state.snapshot_bytes_max() >= edit_bytes(&state.snapshot()));
    let behind = ManifestChange::Slice { table: 5, index: 8, slice: slice_of(1, 3, (10, 20), (b"r", b"s")) };
    assert!(state.apply_edit(&[behind]).is_err());
}
