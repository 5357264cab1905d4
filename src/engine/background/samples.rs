//! Samples of flushed keys: whether keys are new decides the merge policy of their tree
//! (`publish::compaction_policy`).

use crate::base::id::{SEQUENCE_MAX, TreeId};
use crate::base::sync::Arc;
use crate::levels::version::Version;
use crate::levels::view::View;
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;

use super::Scheduler;
use crate::engine::publish::compaction_policy::is_adaptive;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::Point;

impl Scheduler {
    /// After a flush: looks up a few of its keys in the tables before it, and records how many were there.
    pub(in crate::engine) fn note_flushed(
        &self,
        before: &Arc<Version>,
        trees: &[TreeId],
        keys: &[(TreeId, Vec<u8>)],
    ) {
        let view = Arc::new(View { generations: Vec::new(), version: Arc::clone(before) });
        let point = self.point_in(view, SEQUENCE_MAX);
        for tree in trees {
            let Some(keyspace) = self.keyspace_of(*tree).filter(|one| is_adaptive(&one.settings())) else {
                continue;
            };
            let keys = keys.iter().filter(|(one, _)| one == tree);
            let (mut sampled, mut found) = (0, 0);
            for (_, key) in keys {
                sampled += 1;
                found += u64::from(self.had(&keyspace, key, &point));
            }
            keyspace.write_stats.note(self.env.clock.now_ns(), sampled, found);
            self.changed_trees.note(*tree);
        }
    }

    /// Whether the key was there. A key that cannot be read counts as there; reads of that key return the
    /// error.
    fn had(&self, keyspace: &KeyspaceState, key: &[u8], point: &Point) -> bool {
        let had =
            self.get(keyspace, (key, GetMode::Presence), Some(point), &mut NoTrace, |value| value.is_some());
        had.unwrap_or(true)
    }
}
