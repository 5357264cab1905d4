//! Obsolete table files: when they are removed, and how callers wait for a removal.
//!
//! A file is obsolete once no version names it. It stays while a reader holds a view that has it. The drop of
//! the last such view wakes the flush worker, which removes the file. A view that was replaced while readers
//! were pinned is dropped later, by the thread that advances the epoch. So the worker looks again at
//! intervals until no such view is left. Readers take no lock for any of this. `compact` and `settle` wait
//! here; `close` removes the remaining files that have no readers. A slice that leaves the version goes the
//! same way: its pages are given back to the file system (a punched hole) while its file stays for other
//! slices.
//!
//! Invariants:
//! 1. An obsolete file that no reader holds is removed without a further write.
//! 2. A file is removed, and a hole punched, on the flush worker or in `close`, never on a reader's thread.

use crate::base::sync::Ordering;

use super::Scheduler;

/// Interval of the flush worker's looks while a replaced view is not dropped yet. It doubles from the minimum
/// to the maximum.
const LOOK_NS_MIN: u64 = 1_000_000;
const LOOK_NS_MAX: u64 = 64_000_000;
/// Most holes that one look punches. A hole takes the file system a third of a millisecond; and a flush, or a
/// writer that waits for a memtable, waits for the look. Merges over many trees leave a hole for each slice
/// of their inputs; most of these files are removed whole before their holes have a turn.
const HOLES_MAX: usize = 4;
/// The same in `close`, which no writer waits behind.
const CLOSE_HOLES_MAX: usize = 256;
/// Most looks of one `close`.
const CLOSE_LOOKS_COUNT: u32 = 16;

/// When the flush worker looks again.
#[derive(Debug, Default)]
pub(in crate::engine) struct RemovalPace {
    last_ns: u64,
}

impl RemovalPace {
    /// Removes files without readers. Returns the time until the next look; `None` if the worker looks only
    /// when woken.
    pub(in crate::engine) fn look(&mut self, store: &Scheduler) -> Option<u64> {
        let is_done = store.remove_unread(HOLES_MAX);
        self.last_ns = if is_done { 0 } else { (2 * self.last_ns).clamp(LOOK_NS_MIN, LOOK_NS_MAX) };
        (!is_done).then_some(self.last_ns)
    }
}

impl Scheduler {
    /// Removes obsolete files that no reader holds; `false` if a replaced view may still hold others.
    fn remove_unread(&self, holes_max: usize) -> bool {
        let removals = &self.work.removals;
        let look = removals.looks_begun.fetch_add(1, Ordering::SeqCst) + 1;
        if !self.owner.discarded.is_empty() {
            self.epoch.collect();
        }
        let has_retired = self.epoch.has_retired();
        let files = self.owner.discarded.take();
        files.iter().for_each(|file| self.remove_quietly(*file));
        let has_holes = self.punch_holes(holes_max);
        if !files.is_empty() {
            // The tables have left memory, perhaps only now, if a reader or a merge held them: others may be
            // pinned.
            self.pin_more();
        }
        files.iter().for_each(|file| self.owner.discarded.forget(*file));
        let is_done = !has_holes && (!has_retired || self.owner.discarded.is_empty());
        if is_done {
            removals.look_done.store(look, Ordering::SeqCst);
        }
        removals.wake_waiting();
        is_done
    }

    /// Punches holes where dropped slices were, in files that hold other slices. A file that a checkpoint
    /// shares keeps the space until the store is opened next. Returns whether there are more holes: a flush
    /// does not wait for all of them.
    fn punch_holes(&self, holes_max: usize) -> bool {
        for (file, hole) in self.owner.discarded.take_holes(holes_max) {
            if let Err(error) = self.env.storage.punch_hole(file, hole.offset, hole.bytes) {
                log::warn!("{file} has {} bytes that are not needed and stay: {error}", hole.bytes);
            }
        }
        self.owner.discarded.end_holes()
    }

    /// Waits until the files are removed that are obsolete now and that no reader holds. That is the end of
    /// all worker turns under way, and of one look after them.
    pub(in crate::engine) fn await_removals(&self) {
        let removals = &self.work.removals;
        let _waiting = removals.wait();
        let (mut turns, mut wanted_look) = (removals.turns_under_way(), None);
        loop {
            let seen = removals.moved.seen();
            let is_over = self.work.is_stopped() || self.writer.latched().is_some();
            if is_over || self.owner.discarded.is_empty() {
                return;
            }
            turns.retain(|(turns, count)| turns.count() == *count);
            if turns.is_empty() {
                let look = *wanted_look.get_or_insert_with(|| {
                    let next = removals.looks_begun.load(Ordering::SeqCst) + 1;
                    self.owner.discarded.notify();
                    next
                });
                if removals.look_done.load(Ordering::SeqCst) >= look {
                    return;
                }
            }
            self.env.threads.wait(&removals.moved, seen, None);
        }
    }

    /// Removes the files without readers when the store is closed and no worker runs any more. Files with
    /// readers stay, and are removed when the store is opened next.
    pub(in crate::engine) fn remove_last(&self) {
        for _ in 0..CLOSE_LOOKS_COUNT {
            let seen = self.writer.changed.seen();
            if self.remove_unread(CLOSE_HOLES_MAX) {
                return;
            }
            // Calls that are under way end soon.
            self.env.threads.wait(&self.writer.changed, seen, Some(LOOK_NS_MIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{FileKind, ItemKind};
    use crate::base::sync::Arc;
    use crate::engine::Store;
    use crate::engine::tests::run;
    use crate::io::sim::SimDisk;
    use crate::io::storage::{DirectoryEntry, Storage};
    use crate::write::batch::BatchItems;

    fn tables(disk: &SimDisk) -> usize {
        let is_table = |entry: &DirectoryEntry| match entry {
            DirectoryEntry::Ours(file) => file.kind == FileKind::Table,
            DirectoryEntry::Foreign(_) => false,
        };
        disk.list().expect("no fault").iter().filter(|entry| is_table(entry)).count()
    }

    fn flush_item(store: &Arc<Store>) {
        let keyspace = store.open_keyspace("k", &[]).expect("is made");
        let mut items = BatchItems::default();
        items.push(keyspace.tree, ItemKind::Put, b"a", b"1").expect("is short");
        store.write(&items, None).expect("no fault");
        store.flush().expect("no fault");
    }

    /// A reader that is pinned while its tables become obsolete sends no notification when it ends. The
    /// worker looks again at growing intervals, and no more once the tables are removed.
    #[test]
    fn ends_of_pinned_readers_notify_no_thread() {
        let disk = SimDisk::new(1);
        let (store, threads) = run::open(&disk, None, 0, 1 << 20).expect("opens");
        flush_item(&store);
        threads.run_until_idle();
        assert_eq!(tables(&disk), 1);
        let pin = store.epoch.pin();
        store.drop_keyspace("k").expect("no fault");
        for _ in 0..20 {
            threads.clock().advance(LOOK_NS_MAX);
            threads.run_until_idle();
        }
        assert_eq!(tables(&disk), 1);
        drop(pin);
        threads.run_until_idle();
        threads.clock().advance(LOOK_NS_MAX);
        threads.run_until_idle();
        assert_eq!((tables(&disk), store.owner.discarded.is_empty()), (0, true));
        let turns = threads.turns();
        threads.clock().advance(LOOK_NS_MAX);
        threads.run_until_idle();
        assert_eq!(threads.turns(), turns, "nothing is looked for any more");
        store.close().expect("closes");
    }

    /// The interval between looks doubles up to its limit.
    #[test]
    fn looks_come_ever_more_seldom() {
        let (store, _threads) = run::open(&SimDisk::new(1), None, 0, 1 << 20).expect("opens");
        flush_item(&store);
        let pin = store.epoch.pin();
        store.drop_keyspace("k").expect("no fault");
        let mut pace = RemovalPace::default();
        let times: Vec<u64> = (0..9).filter_map(|_| pace.look(&store)).collect();
        assert_eq!(times[..3], [LOOK_NS_MIN, 2 * LOOK_NS_MIN, 4 * LOOK_NS_MIN]);
        assert_eq!((times.len(), times[8]), (9, LOOK_NS_MAX));
        drop(pin);
        assert_eq!((pace.look(&store), pace.last_ns), (None, 0));
        store.close().expect("closes");
    }
}
