//! How far background work is behind, and how urgent merges are.

use crate::base::id::TreeId;
use crate::base::reserve::Role;
use crate::compact::push::PushSettings;
use crate::compact::shape::PickSettings;
use crate::io::pace::Urgency;
use crate::write::pace;

use crate::engine::publish::keyspace::KeyspaceState;

use super::Scheduler;

/// Merges yield while more reads of gets and scans than these are at the device: from some 48 on, a read
/// waits for other reads longer than it takes itself.
const READS_MANY: u64 = 48;

impl Scheduler {
    /// The urgency of merges.
    pub(in crate::engine) fn urgency(&self) -> Urgency {
        if self.work.is_awaited() {
            Urgency::Awaited
        } else if self.blocks.load.awaited() > READS_MANY {
            Urgency::Yielding
        } else {
            Urgency::No
        }
    }

    /// The settings for picking a merge of a tree; `None` if its keyspace was dropped.
    pub(in crate::engine) fn pick_settings(&self, tree: TreeId) -> Option<PickSettings> {
        let keyspace = self.keyspace_of(tree)?;
        Some(self.pick_settings_of(&keyspace, self.env.clock.now_ns(), self.work.is_awaited()))
    }

    /// The same for a tree of a keyspace; `is_awaited`: as if a caller waits for merges.
    pub(in crate::engine) fn pick_settings_of(
        &self,
        keyspace: &KeyspaceState,
        now_ns: u64,
        is_awaited: bool,
    ) -> PickSettings {
        let settings = keyspace.settings();
        let policy = keyspace.write_stats.policy(&settings, now_ns, is_awaited);
        PickSettings {
            size_ratio: settings.size_ratio,
            runs_per_level: policy.runs_per_level as usize,
            runs_in_last_level: policy.runs_in_last_level as usize,
            level0_runs: policy.level0_runs as usize,
            table_bytes: settings.table_bytes.min(self.budget.table_bytes_max()),
            base_level_bytes: settings.level0_runs * self.budget.generation_bytes / 2,
            delete_persist_within_s: settings.delete_persist_within,
            now_s: self.env.clock.unix_s(),
        }
    }

    /// The settings of pushes in a hashed keyspace's tree.
    pub(in crate::engine) fn push_settings_of(
        &self,
        keyspace: &KeyspaceState,
        now_ns: u64,
        is_awaited: bool,
    ) -> PushSettings {
        let policy = keyspace.write_stats.policy(&keyspace.settings(), now_ns, is_awaited);
        PushSettings {
            table_bytes: self.push_table_bytes(keyspace),
            stale_permille: policy.stale_permille,
            upper_permille: policy.upper_permille,
            is_highest_first: policy.is_at_rest,
        }
    }

    /// The size assumed for a table of a trie: the output of one flush, unless tables are to be smaller.
    pub(in crate::engine) fn push_table_bytes(&self, keyspace: &KeyspaceState) -> u64 {
        let most = self.budget.table_bytes_max().min(self.budget.generation_bytes);
        keyspace.settings().table_bytes.min(most)
    }

    /// How near to their limits the roles are whose memory background work gives back.
    fn memory_pressure(&self) -> u64 {
        let reserve = self.cache.reserve();
        let of = |role, from_part| {
            let limit_bytes = reserve.limit_bytes(role);
            pace::pressure(reserve.bytes(role), limit_bytes / 4 * from_part, limit_bytes)
        };
        // Write buffers are kept whole, and few fit the limit: they need an earlier start.
        of(Role::Kept, 2).max(of(Role::Tables, 3))
    }

    /// Measures how far background work is behind, for the pacing of merges and the slowdown of writers.
    pub(in crate::engine) fn measure_pressure(&self) {
        // Held to the end, so that the latest measurement takes effect last.
        let known = self.look_at_trees();
        self.pacer.set_debt(known.debt());
        let generation = self.budget.generation_bytes;
        let sealed = self.writer.sealed_count() as u64 * generation;
        let shared = pace::pressure(sealed, generation / 2, 3 * generation).max(self.memory_pressure());
        self.writer.pressures.set_shared(shared);
    }
}
