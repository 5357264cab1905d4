//! The write mixes of the scenarios, the settings of their keyspaces, and long lists of acts. Plain data.

use super::super::run::{Act, Mix};

pub(super) const LEVELED: &[(&str, u64)] =
    &[("level0_runs", 1), ("size_ratio", 2), ("runs_per_level", 1), ("runs_in_last_level", 1)];
pub(super) const TIERED: &[(&str, u64)] =
    &[("level0_runs", 2), ("size_ratio", 3), ("runs_per_level", 63), ("runs_in_last_level", 63)];
pub(super) const LAZY: &[(&str, u64)] =
    &[("level0_runs", 2), ("size_ratio", 3), ("runs_per_level", 63), ("runs_in_last_level", 1)];
pub(super) const PACKED: &[(&str, u64)] =
    &[("level0_runs", 2), ("size_ratio", 2), ("compression", 1), ("block_bytes", 16 << 10)];
pub(super) const UNFILTERED: &[(&str, u64)] =
    &[("level0_runs", 2), ("size_ratio", 2), ("filter_bits_per_key", 0)];
pub(super) const FUSED: &[(&str, u64)] = &[("level0_runs", 2), ("size_ratio", 2), ("filter_kind", 4)];
pub(super) const FORGETFUL: &[(&str, u64)] =
    &[("level0_runs", 4), ("size_ratio", 3), ("delete_persist_within", 2)];

pub(super) const BY_COLUMN: &[(&str, u64)] = &[("filter_kind", 5)];

/// Few large values: buffers fill in few writes.
pub(super) const COARSE: Mix = Mix { value_bytes: 1400, items_max: 3, ..Mix::WRITES };
pub(super) const SYNCED: Mix = Mix { synced_tenths: 5, turns: 100, value_bytes: 200, ..Mix::WRITES };
/// Values so large that a few hundred steps fill the root of a trie.
pub(super) const TRIES: Mix =
    Mix { given: BY_COLUMN, value_bytes: 3500, items_max: 6, keys_count: 200, turns: 300, ..Mix::WRITES };
pub(super) const RANGES: Mix = Mix { ranges: 2, ..COARSE };
pub(super) const INGESTS: Mix = Mix { ingests: 15, ingest_turns: 150, turns: 250, ..COARSE };
pub(super) const NAMES: Mix = Mix { names: 60, ..COARSE };
pub(super) const SETTINGS: Mix = Mix { settings: 100, ..COARSE };

/// A trie that is pushed under a snapshot, and cleared.
pub(super) const TRIED: &[Act] = &[
    Act::Make("h"),
    Act::Go(300),
    Act::Look,
    Act::Go(60),
    Act::Settle,
    Act::LookAgain,
    Act::LookAway,
    Act::Clear("h"),
    Act::Go(40),
    Act::Settle,
];
