//! A trace of an object store's metadata: placement groups that are filled, read and migrated away.
//!
//! It is a trace and not a cluster: no network, no replicas, no objects, only the keys of a metadata store.
//! Keys are `GROUP/OBJECT` as text, with the group's number in 8 hexadecimal digits. Groups are made in the
//! order of their numbers and migrate away in that order, so those from `oldest` up to `next`, exclusive,
//! exist. One thread migrates while another reads; reads check every answer.
//!
//! Invariants: 1. a group below `oldest` may be gone, one from `oldest` up to `next`, exclusive, is complete;
//! 2. the value of an object follows from its group and number.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use trine::{Db, Durability, Keyspace, Ordered, Partitioning, Prefix};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::system;

use super::Job;
use super::deletion::Way;
use super::trident_store::{is_right, value};
use super::windows::Window;
use crate::lab::stop_if_asked;

/// Bytes of a value: about the size of an object's metadata.
pub(super) const VALUE_BYTES: usize = 400;
/// Digits of a group's number, which is the name of its partition.
const GROUP_BYTES: usize = 8;
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = GROUP_BYTES + 1 + OBJECT.len() + 12;
const OBJECT: &str = "rbd_data.";
/// Objects in a listing.
pub(super) const LISTED: usize = 100;
const BATCH_ITEMS: usize = 256;

/// Rates and latencies of the three kinds of reads.
pub(super) struct Reads {
    pub(super) gets: Window,
    /// Listings that begin in an existing group.
    pub(super) in_group: Window,
    /// Listings that begin in any group that ever existed.
    pub(super) over_pool: Window,
}

pub(super) struct ObjectStore {
    db: Db,
    objects: Keyspace<Ordered>,
    index: Keyspace<Ordered>,
    way: Way,
    /// Objects in each group, and entries in each index.
    per_group: u32,
    oldest: AtomicU32,
    next: AtomicU32,
    place: PathBuf,
}

fn group_name(group: u32) -> String {
    format!("{group:0GROUP_BYTES$x}")
}

fn key(group: u32, object: u32) -> String {
    format!("{}/{OBJECT}{object:012}", group_name(group))
}

/// The group and object of a key; `None` if the key is not of the trace.
fn parse(key: &[u8]) -> Option<(u32, u32)> {
    let (group, object) = std::str::from_utf8(key).ok()?.split_once('/')?;
    let object = object.strip_prefix(OBJECT)?.parse().ok()?;
    Some((u32::from_str_radix(group, 16).ok()?, object))
}

fn number(group: u32, object: u32) -> u64 {
    u64::from(group) << 32 | u64::from(object)
}

impl ObjectStore {
    /// A store with `groups` groups and as many indexes of a tenth of a group each, at rest.
    pub(super) fn fill(
        job: &mut Job,
        way: Way,
        (groups, per_group): (u32, u32),
        memory_bytes: u64,
    ) -> Result<ObjectStore, Failure> {
        let place = job.workshop.place();
        let db = Db::builder(&place).memory_bytes(memory_bytes).open()?;
        let objects = match way {
            Way::DropPartition => {
                db.ordered("objects").partition_by(Partitioning::prefix(GROUP_BYTES)).open()?
            }
            Way::DeleteRange | Way::PointDeletes => db.ordered("objects").open()?,
        };
        let index = db.ordered("index").open()?;
        let (oldest, next) = (AtomicU32::new(0), AtomicU32::new(groups));
        let store = ObjectStore { db, objects, index, way, per_group, oldest, next, place };
        // Clients write to all groups at once.
        let mut batch = store.db.batch();
        for object in 0..per_group {
            for group in 0..groups {
                batch.put(&store.objects, key(group, object), value(number(group, object), VALUE_BYTES))?;
                if object % 10 == 0 {
                    batch.put(&store.index, key(group, object), b"")?;
                }
                if batch.len() >= BATCH_ITEMS {
                    batch.commit()?;
                    stop_if_asked()?;
                }
            }
        }
        batch.commit()?;
        store.db.flush()?;
        store.db.settle()?;
        Ok(store)
    }

    /// Reads of all kinds, in rounds, until `is_over` returns true after a round.
    pub(super) fn read(&self, dice: &mut Dice, is_over: impl Fn() -> bool) -> Result<Reads, Failure> {
        const GETS: u32 = 16;
        let [mut gets, mut in_group, mut over_pool] = [const { Vec::new() }; 3];
        let timed = |latencies: &mut Vec<Duration>, read: &mut dyn FnMut() -> Result<(), Failure>| {
            let started = Instant::now();
            read()?;
            latencies.push(started.elapsed());
            Ok::<(), Failure>(())
        };
        loop {
            stop_if_asked()?;
            for _ in 0..GETS {
                let (group, object) = (self.draw_group(dice), dice.below(u64::from(self.per_group)) as u32);
                timed(&mut gets, &mut || self.get(group, object))?;
            }
            let (group, object) = (self.draw_group(dice), dice.below(u64::from(self.per_group)) as u32);
            timed(&mut in_group, &mut || self.list(&key(group, object)))?;
            let any = dice.below(u64::from(self.next.load(Ordering::Acquire))) as u32;
            timed(&mut over_pool, &mut || self.list(&key(any, object)))?;
            if is_over() {
                let [gets, in_group, over_pool] = [gets, in_group, over_pool].map(|one| Window::of(&one));
                return Ok(Reads { gets, in_group, over_pool });
            }
        }
    }

    fn draw_group(&self, dice: &mut Dice) -> u32 {
        let (oldest, next) = (self.oldest.load(Ordering::Acquire), self.next.load(Ordering::Acquire));
        oldest + dice.below(u64::from(next - oldest)) as u32
    }

    fn get(&self, group: u32, object: u32) -> Result<(), Failure> {
        let found = self.objects.get(key(group, object))?;
        let is_migrated = || group < self.oldest.load(Ordering::Acquire);
        if is_right(found.as_deref(), number(group, object), VALUE_BYTES)
            || (found.is_none() && is_migrated())
        {
            return Ok(());
        }
        Err(Failure::Other(format!("object {object} of group {group} has another value than was put")))
    }

    /// Reads up to 100 objects from a key on; checks that they ascend and have the right values.
    fn list(&self, start: &str) -> Result<(), Failure> {
        let mut cursor = self.objects.cursor(start..);
        let mut before = Vec::new();
        for _ in 0..LISTED {
            let Some((found, value)) = cursor.next()? else { return Ok(()) };
            let is_object = parse(found)
                .is_some_and(|(group, object)| is_right(Some(value), number(group, object), VALUE_BYTES));
            if !is_object || found < start.as_bytes() || found <= &before[..] {
                return Err(Failure::Other(format!("a listing from {start} has a wrong object")));
            }
            before.clear();
            before.extend_from_slice(found);
        }
        Ok(())
    }

    /// Fills a new group and migrates the oldest one away; returns the time of the deletion.
    pub(super) fn migrate(&self) -> Result<Duration, Failure> {
        let new = self.next.load(Ordering::Acquire);
        if self.way == Way::DropPartition {
            self.objects.create_partition(group_name(new))?;
        }
        let mut batch = self.db.batch();
        for object in 0..self.per_group {
            batch.put(&self.objects, key(new, object), value(number(new, object), VALUE_BYTES))?;
            if batch.len() == BATCH_ITEMS {
                batch.commit()?;
                stop_if_asked()?;
            }
        }
        batch.commit()?;
        self.next.store(new + 1, Ordering::Release);
        let old = self.oldest.fetch_add(1, Ordering::AcqRel);
        self.delete(&self.objects, self.way, old, 1)
    }

    /// Deletes the index of a group: by its prefix, or key by key if the store uses point deletes.
    pub(super) fn delete_index(&self, group: u32) -> Result<Duration, Failure> {
        let way = if self.way == Way::PointDeletes { Way::PointDeletes } else { Way::DeleteRange };
        let taken = self.delete(&self.index, way, group, 10)?;
        match self.index.prefix(group_name(group)).next().transpose()? {
            None => Ok(taken),
            Some(_) => Err(Failure::Other(format!("the index of group {group} has entries after its end"))),
        }
    }

    /// Durably deletes all keys of a group, which has one for each `step`-th object.
    fn delete(
        &self,
        keyspace: &Keyspace<Ordered>,
        way: Way,
        group: u32,
        step: usize,
    ) -> Result<Duration, Failure> {
        let started = Instant::now();
        match way {
            Way::DropPartition => {
                if !keyspace.drop_partition(group_name(group))? {
                    return Err(Failure::Other(format!("group {group} has no partition")));
                }
            }
            Way::DeleteRange => {
                let mut batch = self.db.batch();
                batch.delete_range(keyspace, Prefix::new(group_name(group)))?;
                batch.commit_with(Durability::Sync)?;
            }
            Way::PointDeletes => {
                let mut batch = self.db.batch();
                for object in (0..self.per_group).step_by(step) {
                    batch.delete(keyspace, key(group, object))?;
                    if batch.len() == BATCH_ITEMS {
                        batch.commit()?;
                    }
                }
                batch.commit()?;
                self.db.sync()?;
            }
        }
        Ok(started.elapsed())
    }

    /// Checks that exactly the objects of the existing groups are there.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut expected = (self.oldest.load(Ordering::Acquire), 0);
        let mut cursor = self.objects.cursor(..);
        while let Some((found, _)) = cursor.next()? {
            if parse(found) != Some(expected) {
                return Err(Failure::Other(format!("the store does not have object {expected:?} next")));
            }
            let is_last = expected.1 + 1 == self.per_group;
            expected = if is_last { (expected.0 + 1, 0) } else { (expected.0, expected.1 + 1) };
        }
        if expected == (self.next.load(Ordering::Acquire), 0) {
            return Ok(());
        }
        Err(Failure::Other(format!("the store ends before object {expected:?}")))
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        system::disk_bytes(&self.place)
    }

    pub(super) fn remove(self, job: &Job) -> Result<(), Failure> {
        let ObjectStore { db, objects, index, place, .. } = self;
        drop((objects, index));
        db.close()?;
        job.workshop.clear(&place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key contains its group and object, has its length, and is ordered by both.
    #[test]
    fn keys_say_their_group() {
        for (group, object) in [(0, 0), (10, 3), (255, 4_000_000_000), (u32::MAX, 1)] {
            let key = key(group, object);
            assert_eq!((key.len(), parse(key.as_bytes())), (KEY_BYTES, Some((group, object))));
        }
        assert!(key(9, 10) < key(10, 2) && key(10, 2) < key(10, 11));
        assert_eq!((parse(b"0000000a/other"), parse(b"rbd_data.1"), parse(b"\xff")), (None, None, None));
    }
}
