//! History in whole stores: sharing between points, and the time at which it is written.

use super::*;
use crate::base::id::ItemKind;
use crate::engine::Store;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::tests::run;
use crate::io::sim::SimDisk;
use crate::write::batch::BatchItems;

fn put(store: &Store, keyspace: &KeyspaceState, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut items = BatchItems::default();
        items.push(keyspace.tree, ItemKind::Put, &number.to_be_bytes(), &[7; 1000]).expect("is short");
        store.write(&items, None).expect("no fault");
    }
}

fn made() -> (Arc<Store>, Arc<crate::io::sim::SimThreads>, Arc<KeyspaceState>) {
    let (store, threads) = run::open(&SimDisk::new(1), None, 1, 2 << 20).expect("opens");
    let keyspace = store.open_keyspace("k", &[]).expect("is made");
    (store, threads, keyspace)
}

/// Points of a buffer read from one file. Points that see the same items share a view, and all share the
/// levels that history does not change. A point from before the first write of a buffer reads none of its
/// items.
#[test]
fn snapshot_points_share_equal_views_and_levels() {
    let (store, threads, keyspace) = made();
    put(&store, &keyspace, 0..500);
    store.compact().expect("no fault");
    // An empty buffer, then two writes with a point after each, and a second point after the first write.
    let before = store.snapshot_point();
    put(&store, &keyspace, 500..501);
    let (one, same) = (store.snapshot_point(), store.snapshot_point());
    put(&store, &keyspace, 501..502);
    let two = store.snapshot_point();
    put(&store, &keyspace, 600..2000);
    threads.run_until_idle();
    assert_eq!(store.work.histories.load(Ordering::Relaxed), 1);
    let views = [&before, &one, &same, &two].map(|point| store.view_of(point));
    assert!(views.iter().all(|view| view.generations.is_empty()));
    assert!(Arc::ptr_eq(&views[1], &views[2]));
    let trees = [0, 1, 3].map(|view| views[view].version.tree(keyspace.tree).expect("it is there"));
    let history = |tree: &crate::levels::version::Tree| {
        tree.levels()[0]
            .iter()
            .flat_map(|run| run.tables())
            .filter(|one| one.table.file().name().kind == FileKind::History)
            .count()
    };
    assert_eq!(trees.map(history), [0, 1, 2]);
    let deep = trees[0].levels().len() - 1;
    assert!(deep > 0 && trees.iter().all(|tree| Arc::ptr_eq(&tree.levels()[deep], &trees[0].levels()[deep])));
    store.close().expect("closes");
}

/// History comes before the next flush: however far writers are ahead, snapshots alone never keep more than
/// the one write buffer that was flushed last.
#[test]
fn history_comes_before_the_next_flush() {
    let (store, _threads, keyspace) = made();
    let (mut taken, mut kept_max, mut ahead) = (Vec::new(), 0, 0);
    for number in 0..3000 {
        // Background work runs only while a writer waits for room, so buffers always wait for a flush.
        put(&store, &keyspace, number..number + 1);
        if number % 50 == 0 {
            taken.push(store.snapshot_point());
        }
        let kept = store.kept_bytes() / store.budget.generation_bytes;
        ahead += u32::from(kept > 0 && store.writer.sealed_count() > 1);
        kept_max = kept_max.max(kept);
    }
    assert_eq!(kept_max, 1);
    assert!(ahead > 100, "{ahead}");
    assert!(store.work.histories.load(Ordering::Relaxed) > 3);
    store.close().expect("closes");
}
