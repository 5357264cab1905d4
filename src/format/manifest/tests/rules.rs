//! Partition rules: their bytes, and the inputs that are refused.

use super::*;
use crate::base::rule::KeyFunction;

/// One of each rule, with the fields of its change.
pub(super) fn each_rule() -> [(ManifestChange, &'static str, Fields); 5] {
    [
        (rule(1, Rule::Explicit), "PartitionRule: explicit", vec![("keyspace", 4), ("rule", 1)]),
        (
            rule(2, Rule::Prefix(7)),
            "PartitionRule: prefix",
            vec![("keyspace", 4), ("rule", 1), ("prefix bytes", 1)],
        ),
        (
            rule(3, Rule::ranges(vec![(*b"g").into(), (*b"mo").into()]).expect("ascending")),
            "PartitionRule: ranges",
            vec![
                ("keyspace", 4),
                ("rule", 1),
                ("bounds", 1),
                ("bound bytes", 1),
                ("bound", 1),
                ("bound bytes", 1),
                ("bound", 2),
            ],
        ),
        (
            rule(4, Rule::Function(KeyFunction::named("month", 7))),
            "PartitionRule: function",
            vec![("keyspace", 4), ("rule", 1), ("version", 4), ("name bytes", 1), ("name", 5)],
        ),
        (
            ManifestChange::RetainFrom { keyspace: KeyspaceId(1), name: (*b"east").into() },
            "RetainFrom",
            vec![("keyspace", 4), ("name bytes", 1), ("name", 4)],
        ),
    ]
}

fn corrupt_part(bytes: &[u8]) -> &'static str {
    match decoded(bytes) {
        Err(Error::Corrupt(at)) => at.what,
        other => panic!("not corrupt: {other:?}"),
    }
}

fn ranges() -> Rule {
    Rule::ranges(vec![(*b"g").into(), (*b"m").into()]).expect("ascending")
}

fn function() -> Rule {
    Rule::Function(KeyFunction::named("month", 7))
}

/// Every rule decodes to itself, and takes no more of a snapshot than the state counts for it.
#[test]
fn rules_are_read_back() {
    for one in [Rule::Explicit, Rule::Prefix(1), Rule::Prefix(255), ranges(), function()] {
        let edit = [rule(1, one.clone())];
        assert_eq!(decoded(&encode_edit(0, &edit)).expect("decodes"), edit);
        let mut state = state(&[IDS, keyspace(1, "one")]);
        state.apply_edit(&edit).expect("fits");
        assert_eq!(state.keyspaces[&KeyspaceId(1)].rule.as_ref(), Some(&one));
        assert!(encode_edit(0, &state.snapshot()).len() as u64 <= state.snapshot_bytes_max());
        let name = b"m";
        let edit = [ManifestChange::RetainFrom { keyspace: KeyspaceId(1), name: name[..].into() }];
        assert_eq!(decoded(&encode_edit(0, &edit)).expect("decodes"), edit);
        let before = state.snapshot_bytes_max();
        state.apply_edit(&edit).expect("fits");
        assert_eq!(*state.keyspaces[&KeyspaceId(1)].retained_from, *name);
        assert!(encode_edit(0, &state.snapshot()).len() as u64 <= state.snapshot_bytes_max());
        assert!(state.snapshot_bytes_max() > before);
    }
}

/// Every check of a partition rule has an input that trips it, and rules of later releases are refused by
/// name.
#[test]
fn checks_of_rules() {
    let divided = rule(1, Rule::Explicit);
    assert_eq!(corrupt_part(&edited(&divided, 1, &[0])), "a keyspace's id");
    assert_eq!(corrupt_part(&edited(&divided, 5, &[0])), "the kind of rule");
    assert_eq!(corrupt_part(&edited(&divided, 5, &[5])), "the kind of rule");
    let by_function = rule(1, function());
    assert_eq!(corrupt_part(&edited(&by_function, 10, &[0])), "the name of a function of keys");
    assert_eq!(corrupt_part(&edited(&by_function, 11, &[0xff])), "the name of a function of keys");
    assert_eq!(corrupt_part(&edited(&rule(1, Rule::Prefix(3)), 6, &[0])), "the bytes of a prefix");
    let bounds = rule(1, ranges());
    // The bounds descend; there are no bounds.
    for (at, byte) in [(8, b"z"), (6, b"\0")] {
        assert_eq!(corrupt_part(&edited(&bounds, at, byte)), "ascending bounds of partitions");
    }
    assert_eq!(corrupt_part(&edited(&bounds, 6, &[0xff, 0xff, 0x03])), "the number of bounds");
    let retain = |keyspace, name: &[u8]| {
        let (keyspace, name) = (KeyspaceId(keyspace), name.into());
        ManifestChange::RetainFrom { keyspace, name }
    };
    assert_eq!(corrupt_part(&edited(&retain(7, b"g"), 1, &[0])), "a keyspace's id");
    assert_eq!(corrupt_part(&edited(&retain(7, b"g"), 5, &[2])), "the partition's name");
    let mut state = state(&base());
    state.apply_edit(&[keyspace(7, "seven"), rule(7, ranges())]).expect("fits");
    let broken = [
        (rule(9, Rule::Explicit), "a rule of an unknown keyspace"),
        (rule(1, Rule::Explicit), "a rule of a keyspace that is divided already"),
        (rule(2, Rule::Explicit), "a rule of a keyspace that is divided already"),
        (retain(9, b"g"), "a bound for partitions of an unknown keyspace"),
        (retain(7, b"h"), "a bound for partitions that its rule does not give"),
        (retain(1, b"h"), "a bound for partitions that its rule does not give"),
        (partition(70, 7, b"h"), "a partition with a name that its rule does not give"),
        (partition(70, 2, &[1; 256]), "a partition with a name that its rule does not give"),
    ];
    for (change, expected) in broken {
        assert_eq!(state.clone().apply_edit(&[change]).expect_err("refused").what, expected);
    }
    state.apply_edit(&[partition(70, 7, b"g"), partition(71, 7, b"")]).expect("fits");
}

/// A hashed keyspace accepts every rule but ranges, whose partitions need an order of keys.
#[test]
fn hashed_keyspaces_have_no_ranges() {
    let hashed = |number: u32| {
        let ManifestChange::Keyspace { name, settings, .. } = keyspace(number, &format!("hashed {number}"))
        else {
            unreachable!("it makes a keyspace")
        };
        let id = KeyspaceId(number | KeyspaceId::HASHED);
        (id, ManifestChange::Keyspace { id, kind: KeyspaceKind::Hashed, name, settings })
    };
    let mut state = state(&base());
    for (number, one) in (10..).zip([Rule::Explicit, Rule::Prefix(2), function()]) {
        let (id, made) = hashed(number);
        state.apply_edit(&[made, rule(id.0, one.clone())]).expect("fits");
        assert_eq!(state.keyspaces[&id].rule.as_ref(), Some(&one));
    }
    let (id, made) = hashed(20);
    let refused = state.apply_edit(&[made, rule(id.0, ranges())]).expect_err("it has no order");
    assert_eq!(
        (refused.what, refused.number),
        ("a rule by ranges of keys in a hashed keyspace", id.0.into())
    );
}
