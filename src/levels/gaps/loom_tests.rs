//! A loom model of a put beside a scan that learns a gap over its key, and of a reader after the put.

use super::*;
use crate::base::id::{KeyspaceId, PartitionId};
use crate::base::sync::{Arc, explore_deep};

const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };

/// A reader that sees the put is never told to skip it, whether the gap was learned before, during or after
/// the put.
#[test]
fn loom_a_put_is_in_no_gap() {
    explore_deep(|| {
        let gaps = Arc::new(Gaps::new());
        let visible = Arc::new(AtomicU64::new(0));
        let sight = |bound| Sight { tree: TREE, bound, era: 0 };
        let learn = {
            let (gaps, visible) = (Arc::clone(&gaps), Arc::clone(&visible));
            move || {
                let bound = visible.load(Ordering::Acquire);
                if bound == 0 {
                    gaps.learn(
                        sight(bound),
                        KeySpan { from: b"a".to_vec(), to: GapEnd::Before(b"c".to_vec()) },
                    );
                }
            }
        };
        let put = {
            let (gaps, visible) = (Arc::clone(&gaps), Arc::clone(&visible));
            move || {
                gaps.begin(1);
                gaps.cut(TREE, b"b");
                visible.store(1, Ordering::Release);
            }
        };
        let threads = [loom::thread::spawn(learn), loom::thread::spawn(put)];
        let bound = visible.load(Ordering::Acquire);
        let found = gaps.beyond(sight(bound), Bound::Included(b"b"), Direction::Forward);
        assert!(bound == 0 || found.is_none(), "a put that is visible is skipped");
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let found = gaps.beyond(sight(1), Bound::Included(b"b"), Direction::Forward);
        assert!(found.is_none(), "a put that is visible is skipped");
    });
}
