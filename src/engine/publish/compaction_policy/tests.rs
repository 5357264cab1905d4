//! The merge policy that follows from a tree's writes.

use super::*;
use crate::base::settings::KeyspaceSettings;

const SECOND_NS: u64 = 1_000_000_000;

fn tiers(policy: CompactionPolicy) -> bool {
    policy.runs_in_last_level > 1
}

/// New keys make a tree tiered and overwritten keys make it leveled, each after a few flushes. Rest makes it
/// leveled too, and so does a caller that waits for merges.
#[test]
fn trees_are_tiered_while_they_grow() {
    let settings = KeyspaceSettings::default();
    let write_stats = TreeWriteStats::new();
    assert_eq!(write_stats.rests_in_ns(5), None, "nothing was flushed");
    assert!(!tiers(write_stats.policy(&settings, 5, false)));
    write_stats.note(SECOND_NS, 64, 0);
    assert!(tiers(write_stats.policy(&settings, SECOND_NS + 1, false)));
    assert!(!tiers(write_stats.policy(&settings, SECOND_NS + 1, true)), "it is waited for");
    assert_eq!(write_stats.rests_in_ns(SECOND_NS + 1), Some(REST_NS - 1));
    let at_rest = write_stats.policy(&settings, SECOND_NS + REST_NS, false);
    assert!(!tiers(at_rest) && at_rest.level0_runs == 2);
    assert_eq!(write_stats.rests_in_ns(SECOND_NS + REST_NS), None);
    write_stats.note(2 * SECOND_NS, 64, 0);
    let mut flushes = 0;
    while tiers(write_stats.policy(&settings, 2 * SECOND_NS, false)) {
        write_stats.note(2 * SECOND_NS, 64, 60);
        flushes += 1;
    }
    assert_eq!(flushes, 1, "most keys were there");
    assert_eq!(write_stats.policy(&settings, 2 * SECOND_NS, false).level0_runs, settings.level0_runs);
    while !tiers(write_stats.policy(&settings, 2 * SECOND_NS, false)) {
        write_stats.note(2 * SECOND_NS, 64, 0);
        flushes += 1;
    }
    assert!(flushes <= 4, "{flushes}");
}

/// Runs given by the settings stay, however the tree is written.
#[test]
fn given_runs_stay() {
    for (above, in_last, expected) in [(4, 1, (4, 1)), (0, 3, (1, 3)), (63, 0, (63, 1))] {
        let settings =
            KeyspaceSettings { runs_per_level: above, runs_in_last_level: in_last, ..Default::default() };
        let write_stats = TreeWriteStats::new();
        for rewritten in [0, 64] {
            write_stats.note(SECOND_NS, 64, rewritten);
            for (now_ns, is_awaited) in [(SECOND_NS, false), (SECOND_NS, true), (9 * SECOND_NS, false)] {
                let policy = write_stats.policy(&settings, now_ns, is_awaited);
                assert_eq!((policy.runs_per_level, policy.runs_in_last_level), expected);
                assert_eq!(policy.level0_runs, settings.level0_runs);
            }
        }
    }
}
