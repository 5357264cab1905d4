//! The scenarios: short runs of a whole store, each on one subject, for crashes and failures at every call.
//!
//! A scenario is a mix of random steps and deliberate acts between them. Stores are small: write buffers of
//! 16 KiB, logs of 36 KiB and manifests of 16 KiB, so that few steps fill them.

mod mixes;

use super::run::{Act, Mix};
use mixes::*;

/// See the module.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) memory_bytes: u64,
    /// Memory of the store after a crash.
    pub(super) memory_after: u64,
    /// Background bytes a second; 0: unlimited.
    pub(super) cap: u64,
    pub(super) mix: Mix,
    /// Writes may find the disk full.
    pub(super) may_be_full: bool,
    pub(super) acts: &'static [Act],
}

const SMALL: u64 = 128 << 10;
const LARGER: u64 = 512 << 10;

const PLAIN: Scenario = Scenario {
    name: "",
    memory_bytes: SMALL,
    memory_after: SMALL,
    cap: 0,
    mix: Mix::WRITES,
    may_be_full: false,
    acts: &[],
};

const TWICE_OPENED: &[Act] = &[
    Act::Make("a"),
    Act::Go(80),
    Act::Reopen(SMALL),
    Act::Go(50),
    Act::Make("b"),
    Act::Reopen(SMALL),
    Act::Go(50),
];

/// The number of scenarios in every test run; they come first.
pub(super) const ALWAYS_COUNT: usize = 30;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "rotate", mix: COARSE, acts: &[Act::Make("a"), Act::Go(230)], ..PLAIN },
    Scenario {
        name: "group_commits",
        mix: SYNCED,
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(260)],
        ..PLAIN
    },
    Scenario {
        name: "flush",
        acts: &[Act::Make("a"), Act::Go(60), Act::Flush, Act::Go(60), Act::Flush, Act::Go(30), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "leveled",
        mix: Mix { given: LEVELED, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(260), Act::Settle, Act::Go(60), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "tiered",
        mix: Mix { given: TIERED, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(330), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "lazy_leveled",
        mix: Mix { given: LAZY, ..COARSE },
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(330), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "ranges",
        mix: Mix { given: LEVELED, ..RANGES },
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(260), Act::Settle, Act::Go(40), Act::Compact],
        ..PLAIN
    },
    Scenario {
        name: "clear",
        mix: COARSE,
        acts: &[
            Act::Make("a"),
            Act::Make("b"),
            Act::Go(120),
            Act::Clear("a"),
            Act::Go(30),
            Act::Flush,
            Act::Settle,
            Act::Clear("b"),
            Act::Go(40),
            Act::Compact,
        ],
        ..PLAIN
    },
    Scenario {
        name: "drop",
        mix: COARSE,
        acts: &[
            Act::Make("a"),
            Act::Make("b"),
            Act::Go(130),
            Act::Drop("a"),
            Act::Go(50),
            Act::Make("a"),
            Act::Go(50),
            Act::Drop("b"),
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "order",
        mix: Mix::ORDER,
        acts: &[
            Act::Make("a"),
            Act::Make("b"),
            Act::Go(60),
            Act::Copy,
            Act::Go(120),
            Act::Copy,
            Act::Go(60),
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario { name: "keyspaces", mix: NAMES, acts: &[Act::Make("a"), Act::Go(440), Act::Settle], ..PLAIN },
    Scenario {
        name: "settings",
        mix: SETTINGS,
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(460), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "manifest",
        mix: COARSE,
        acts: &[
            Act::Make("a"),
            Act::Go(60),
            Act::Rewrite,
            Act::Go(60),
            Act::Rewrite,
            Act::Rewrite,
            Act::Go(40),
            Act::Flush,
        ],
        ..PLAIN
    },
    Scenario {
        name: "snapshot",
        mix: COARSE,
        acts: &[
            Act::Make("a"),
            Act::Go(60),
            Act::Look,
            Act::Go(90),
            Act::Flush,
            Act::Rest,
            Act::LookAgain,
            Act::Look,
            Act::Go(60),
            Act::Compact,
            Act::LookAgain,
            Act::LookAway,
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "ingest",
        mix: COARSE,
        acts: &[
            Act::Make("a"),
            Act::Ingest,
            Act::Rest,
            Act::Go(40),
            Act::Ingest,
            Act::Rest,
            Act::Go(40),
            Act::Ingest,
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "ingest_beside",
        mix: INGESTS,
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(240), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "checkpoint",
        mix: COARSE,
        acts: &[
            Act::Make("a"),
            Act::Make("b"),
            Act::Go(90),
            Act::Checkpoint("first"),
            Act::Go(60),
            Act::Drop("b"),
            Act::Checkpoint("second"),
            Act::Go(20),
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario { name: "reopen", mix: COARSE, acts: TWICE_OPENED, ..PLAIN },
    Scenario {
        name: "logs",
        mix: Mix { turns: 40, ..COARSE },
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(150), Act::Kill, Act::Go(50), Act::Kill, Act::Go(40)],
        ..PLAIN
    },
    // A full disk is cleared.
    Scenario {
        name: "full_cleared",
        mix: RANGES,
        may_be_full: true,
        acts: &[Act::Make("a"), Act::Go(60), Act::Room(Some(0)), Act::Go(90), Act::Room(None), Act::Go(30)],
        ..PLAIN
    },
    // A generation spans several logs, each longer than the one before, and goes on in the last one.
    Scenario {
        name: "log_switches",
        memory_bytes: LARGER,
        memory_after: LARGER,
        mix: Mix { turns: 40, value_bytes: 2500, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(60), Act::Kill, Act::Go(50), Act::Reopen(LARGER), Act::Go(70)],
        ..PLAIN
    },
    Scenario {
        name: "smaller",
        memory_bytes: LARGER,
        mix: Mix { turns: 60, value_bytes: 5000, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(110), Act::Reopen(SMALL), Act::Go(10)],
        ..PLAIN
    },
    Scenario {
        name: "full",
        mix: COARSE,
        may_be_full: true,
        acts: &[
            Act::Make("a"),
            Act::Go(60),
            Act::Room(Some(9000)),
            Act::Go(120),
            Act::Room(None),
            Act::Pass(1),
            Act::Go(60),
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "large",
        memory_bytes: 256 << 10,
        memory_after: 256 << 10,
        mix: Mix { large_one_in: 3, large_bytes: 10_000, items_max: 2, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(130), Act::Settle, Act::Go(20)],
        ..PLAIN
    },
    Scenario {
        name: "packed",
        mix: Mix { given: PACKED, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(200), Act::Settle, Act::Read],
        ..PLAIN
    },
    Scenario {
        name: "capped",
        cap: 100_000,
        mix: Mix { given: LEVELED, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(200), Act::Pass(1), Act::Turns(20), Act::Go(40), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "reads",
        mix: COARSE,
        acts: &[
            Act::Make("a"),
            Act::Go(120),
            Act::Read,
            Act::Settle,
            Act::Read,
            Act::Verify,
            Act::Reopen(SMALL),
            Act::Read,
        ],
        ..PLAIN
    },
    Scenario {
        name: "kills",
        mix: Mix::EVERYTHING,
        acts: &[Act::Make("a"), Act::Go(150), Act::Kill, Act::Go(60), Act::Kill, Act::Go(120), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "everything",
        mix: Mix::EVERYTHING,
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(400), Act::Settle],
        ..PLAIN
    },
    Scenario { name: "tries", mix: TRIES, acts: TRIED, ..PLAIN },
    // The scenarios from here on run on request.
    Scenario {
        name: "tries_and_names",
        mix: Mix { hashed: true, names: 20, ..TRIES },
        acts: &[Act::Make("a"), Act::Make("h"), Act::Go(330), Act::Drop("h"), Act::Go(40), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "deletes_age",
        mix: Mix { given: FORGETFUL, deletes: 3, ..COARSE },
        acts: &[
            Act::Make("a"),
            Act::Go(150),
            Act::Pass(3),
            Act::Settle,
            Act::Go(60),
            Act::Pass(9),
            Act::Rest,
        ],
        ..PLAIN
    },
    Scenario {
        name: "compactions",
        mix: Mix { compacts: 20, ..COARSE },
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(300), Act::Compact, Act::Go(40), Act::Compact],
        ..PLAIN
    },
    Scenario {
        name: "unfiltered",
        mix: Mix { given: UNFILTERED, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(250), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "fused",
        mix: Mix { given: FUSED, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(250), Act::Settle, Act::Compact],
        ..PLAIN
    },
    Scenario {
        name: "huge",
        memory_bytes: 2 << 20,
        memory_after: 2 << 20,
        mix: Mix { large_one_in: 4, large_bytes: 100_000, value_bytes: 3000, items_max: 2, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(60), Act::Flush, Act::Go(20), Act::Compact],
        ..PLAIN
    },
    Scenario {
        name: "tiny",
        mix: Mix { value_bytes: 4, keys_count: 60, synced_tenths: 3, ..Mix::WRITES },
        acts: &[Act::Make("a"), Act::Make("b"), Act::Make("c"), Act::Go(400), Act::Flush],
        ..PLAIN
    },
    Scenario { name: "empty", acts: &[Act::Sync, Act::Flush, Act::Reopen(SMALL), Act::Compact], ..PLAIN },
    Scenario {
        name: "one_writer",
        mix: Mix { writers_count: 1, ..COARSE },
        acts: &[Act::Make("a"), Act::Go(250), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "eight_writers",
        mix: Mix { writers_count: 8, turns: 100, ..SYNCED },
        acts: &[Act::Make("a"), Act::Make("b"), Act::Go(500)],
        ..PLAIN
    },
    Scenario {
        name: "manifest_fills",
        mix: SETTINGS,
        acts: &[Act::Make("a"), Act::FillManifest, Act::Go(120), Act::Flush, Act::Go(60)],
        ..PLAIN
    },
    Scenario {
        name: "ingest_clear",
        mix: INGESTS,
        acts: &[
            Act::Make("a"),
            Act::Go(120),
            Act::Clear("a"),
            Act::Ingest,
            Act::Rest,
            Act::Go(60),
            Act::Drop("a"),
            Act::Make("a"),
            Act::Ingest,
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "snapshot_clear",
        mix: RANGES,
        acts: &[
            Act::Make("a"),
            Act::Make("b"),
            Act::Go(100),
            Act::Look,
            Act::Clear("a"),
            Act::Go(80),
            Act::LookAgain,
            Act::Drop("b"),
            Act::Go(60),
            Act::LookAgain,
            Act::Compact,
            Act::LookAgain,
        ],
        ..PLAIN
    },
    Scenario {
        name: "checkpoint_full",
        mix: COARSE,
        may_be_full: true,
        acts: &[
            Act::Make("a"),
            Act::Go(100),
            Act::Room(Some(30_000)),
            Act::Checkpoint("first"),
            Act::Go(60),
            Act::Room(None),
            Act::Pass(1),
            Act::Checkpoint("second"),
            Act::Go(20),
        ],
        ..PLAIN
    },
    Scenario {
        name: "full_reopen",
        mix: Mix::EVERYTHING,
        may_be_full: true,
        acts: &[
            Act::Make("a"),
            Act::Go(80),
            Act::Room(Some(4000)),
            Act::Go(60),
            Act::Room(Some(60_000)),
            Act::Reopen(SMALL),
            Act::Go(60),
            Act::Room(None),
            Act::Pass(1),
            Act::Go(40),
        ],
        ..PLAIN
    },
    Scenario {
        name: "policies_change",
        mix: SETTINGS,
        acts: &[
            Act::Make("a"),
            Act::Go(100),
            Act::Set("a", TIERED),
            Act::Go(100),
            Act::Set("a", LEVELED),
            Act::Settle,
            Act::Set("a", PACKED),
            Act::Go(60),
            Act::Settle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "larger",
        memory_after: 512 << 10,
        mix: Mix::EVERYTHING,
        acts: &[Act::Make("a"), Act::Go(150), Act::Reopen(LARGER), Act::Go(100), Act::Settle],
        ..PLAIN
    },
    Scenario {
        name: "looks",
        mix: Mix::EVERYTHING,
        acts: &[
            Act::Make("a"),
            Act::Make("b"),
            Act::Go(60),
            Act::Look,
            Act::Go(60),
            Act::Look,
            Act::Go(60),
            Act::Look,
            Act::Go(60),
            Act::LookAgain,
            Act::Checkpoint("first"),
            Act::LookAgain,
            Act::LookAway,
            Act::Settle,
        ],
        ..PLAIN
    },
];

/// The scenario of that name.
pub(super) fn named(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

/// Names are unique, and there are as many scenarios as documented.
#[test]
fn scenarios_have_names() {
    let names: std::collections::BTreeSet<&str> = SCENARIOS.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), SCENARIOS.len());
    assert!(SCENARIOS.len() >= 40 && ALWAYS_COUNT >= 24, "{}", SCENARIOS.len());
}
