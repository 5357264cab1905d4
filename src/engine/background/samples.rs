//! Samples of flushed keys: whether a key is new decides how the merges of its tree go (`publish::bearing`).

use crate::base::id::{SEQUENCE_MAX, TreeId};
use crate::base::sync::Arc;
use crate::levels::version::Version;
use crate::levels::view::View;
use crate::read::get::Wants;
use crate::read::trace::NoTrace;

use super::Scheduler;
use crate::engine::publish::bearing::is_adaptive;
use crate::engine::publish::keyspace::Keyspace;
use crate::engine::publish::snapshot::Point;

impl Scheduler {
    /// After a flush: asks, for a few of the keys that it wrote, whether the tables before it had them.
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
            keyspace.bearing.note(self.env.clock.now_ns(), sampled, found);
            self.changed_trees.note(*tree);
        }
    }

    /// Whether the key was there; also if that cannot be read, which is told to who asks for the key.
    fn had(&self, keyspace: &Keyspace, key: &[u8], point: &Point) -> bool {
        let had =
            self.get(keyspace, (key, Wants::Presence), Some(point), &mut NoTrace, |value| value.is_some());
        had.unwrap_or(true)
    }
}
