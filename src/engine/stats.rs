//! Statistics: plain numbers, gathered when asked for.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::reserve::Role;
use crate::base::sync::{Arc, Ordering};
use crate::levels::version::{Placed, Run, Tree};
use crate::levels::view::View;

use super::store::Store;
use crate::engine::budget::GENERATION_COUNT;
use crate::engine::publish::keyspace::KeyspaceState;
use crate::engine::publish::snapshot::PointKind;
use crate::engine::reads::length::in_memory;
use crate::engine::space::{SpaceStats, placed};

/// Counters and sizes of an open store. Counters are since it was opened.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let stats = db.stats();
/// assert_eq!((stats.keyspaces[0].items, stats.write.items), (1, 1));
/// assert!(stats.memory.used_bytes <= stats.memory.budget_bytes);
/// assert!(stats.io.writes > 0 && stats.space.table_bytes > 0);
/// assert_eq!(stats.background.error, None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Each keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Memory by role, beside the budget.
    pub memory: MemoryStats,
    /// Reads, writes and syncs that reached the operating system.
    pub io: IoStats,
    /// The write path.
    pub write: WriteStats,
    /// Space on disk.
    pub space: SpaceStats,
    /// The recovery when the store was opened.
    pub recovery: RecoveryStats,
    /// Snapshots.
    pub snapshots: SnapshotStats,
    /// Flushes and merges.
    pub background: BackgroundStats,
    /// Largest batch that a commit takes, in bytes of [`Batch::memory_bytes`](crate::Batch::memory_bytes).
    pub batch_bytes_max: u64,
}

/// One keyspace.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let stats = users.stats()?;
/// assert_eq!((&*stats.name, stats.items, stats.key_value_bytes), ("users", 1, 4));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name; for a partition the keyspace's name, a slash, and its own name.
    pub name: String,
    /// Whether its keys have no order, see [`Hashed`](crate::Hashed): its levels are the heights of a trie.
    pub is_hashed: bool,
    /// Items: every version and tombstone in tables, every key in each write buffer.
    pub items: u64,
    /// Bytes of their keys and values.
    pub key_value_bytes: u64,
    /// Bytes of its tables.
    pub table_bytes: u64,
    /// Number of its tables.
    pub tables: u64,
    /// How far its merges are behind: 0 not at all, 1000 as far as they may be. This pressure slows its
    /// writers, beside the pressure that slows all writers.
    pub pressure: u64,
    /// Each level that has tables.
    pub levels: Vec<LevelStats>,
}

/// One level of a keyspace.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let level = users.stats()?.levels[0];
/// assert_eq!((level.tables, level.items, level.tombstones), (1, 1, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// Its number; flushes write to level 0. In a hashed keyspace, the height of nodes; the root has 0.
    pub level: u64,
    /// Trees that have runs in it: one, or several if the keyspace has partitions. In a hashed keyspace,
    /// nodes of this height that have runs.
    pub nodes: u64,
    /// Runs in it: tables with disjoint key ranges, searched as one.
    pub runs: u64,
    /// Most runs of one of the nodes: a get searches no more of them here.
    pub node_runs_max: u64,
    /// Tables in it.
    pub tables: u64,
    /// Items in them, tombstones included.
    pub items: u64,
    /// Tombstones in them.
    pub tombstones: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Their filters.
    pub filters: PageStats,
    /// Their fences.
    pub fences: PageStats,
    /// Of the fence pages that are kept in memory, bytes of the pages that are models of the keys: setting
    /// `index_kind`.
    pub models_bytes: u64,
    /// Bytes of sketches of fence pages, where the pages have no room in memory: a sketch gives the block of
    /// most keys, and the page is read for the other keys.
    pub sketches_bytes: u64,
}

/// Pages of filters or fences: a get looks at one of each run, beside a block. Pages that are not kept in
/// memory are in the cache like data, or read.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let filters = users.stats()?.levels[0].filters;
/// assert_eq!((filters.pinned_bytes, filters.reason), (filters.bytes, "all are in memory"));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PageStats {
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes of those that are kept in memory.
    pub pinned_bytes: u64,
    /// Why no more are kept.
    pub reason: &'static str,
}

/// Memory.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let memory = db.stats().memory;
/// assert_eq!(memory.roles.iter().map(|role| role.bytes).sum::<u64>(), memory.used_bytes);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// Memory that the store may use.
    pub budget_bytes: u64,
    /// Memory that it uses now.
    pub used_bytes: u64,
    /// By role. A limit is the most that a role may have; all roles together stay within the budget. The
    /// cache's limit is the memory that the roles around it leave now. Filters and fences stay in memory
    /// while they take no more than 3/4 of the cache's limit without them; the rest of them is in the cache
    /// like data. "table bounds", the least and the greatest key of each table, its range tombstones and a
    /// separator for every 1.6 MB of it, are always in memory and leave less for the other roles: they slow
    /// writers. While there is nothing to flush or to merge, the cache has most of the memory that write
    /// buffers and merges leave, and their limits are so much less.
    pub roles: Vec<MemoryRole>,
}

/// Memory of one role.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let roles = db.stats().memory.roles;
/// let cache = roles.iter().find(|role| role.name == "cache").unwrap();
/// assert!(cache.bytes <= cache.limit_bytes);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryRole {
    /// Its name.
    pub name: &'static str,
    /// In use now.
    pub bytes: u64,
    /// Most memory that it may have of the budget.
    pub limit_bytes: u64,
    /// Times, since the store was opened, that a caller waited for others to give memory of the role back.
    pub waits: u64,
    /// Times that a caller did without the memory: it was refused with
    /// [`Error::Memory`](crate::Error::Memory), or took another way.
    pub refusals: u64,
}

/// Reads, writes and syncs that reached the operating system.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// let before = db.stats().io;
/// users.put(b"ann", b"1")?;
/// db.sync()?;
/// let after = db.stats().io;
/// assert!(after.writes > before.writes && after.syncs > before.syncs);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IoStats {
    /// Blocks that gets and scans read from the device, because no memory held them.
    pub device_reads: u64,
    /// Their bytes.
    pub device_read_bytes: u64,
    /// All reads of files, those of merges and of opening included.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Files open now.
    pub open_files: u64,
    /// Tables are read past the kernel's page cache.
    pub direct_io: bool,
    /// How reads that are issued together run: "ring", "ring_poll", "pool" or "pread"; "simulated" in a
    /// simulated world.
    pub reads_with: &'static str,
    /// Why reads do not use a ring; empty if they do, or are simulated.
    pub reads_with_why: String,
    /// Reads of futures in flight now, at most `reads_in_flight`; without reads of `block_on`, whose threads
    /// read for themselves.
    pub reads_in_flight: u64,
    /// Reads of futures that wait for their turn, likewise without reads of `block_on`.
    pub reads_waiting: u64,
    /// Requests of gets, scans and futures that are not answered yet.
    pub requests_now: u64,
    /// Requests of merges whose bytes no merge has taken yet. With many of the other requests merges go
    /// slower.
    pub merge_requests_now: u64,
}

/// The write path.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"12")?;
/// let write = db.stats().write;
/// assert_eq!((write.commits, write.items, write.key_value_bytes), (1, 1, 5));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WriteStats {
    /// Batches committed; a put is a batch of one.
    pub commits: u64,
    /// Items in them.
    pub items: u64,
    /// Bytes of their keys and values.
    pub key_value_bytes: u64,
    /// Bytes appended to logs.
    pub log_bytes: u64,
    /// Bytes written by flushes.
    pub flush_bytes: u64,
    /// Bytes read by merges.
    pub merge_read_bytes: u64,
    /// Bytes written by merges.
    pub merge_write_bytes: u64,
    /// Bytes written by ingests that were finished.
    pub ingest_bytes: u64,
    /// Time writers were slowed because background work was behind, in nanoseconds.
    pub delayed_ns: u64,
    /// How far background work is behind now: 0 not at all, 1000 as far as it may be. The worst of several
    /// pressures: memory that waits for its flush slows all writers, and the merges of a keyspace slow its
    /// writers.
    pub pressure: u64,
}

/// The recovery when the store was opened.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// let db = trine::Db::open(&path)?;
/// db.ordered("users").open()?.put(b"ann", b"1")?;
/// db.close()?;
/// assert_eq!(trine::Db::open(&path)?.stats().recovery.replayed_items, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RecoveryStats {
    /// Items replayed from logs.
    pub replayed_items: u64,
    /// Bytes of logs that were replayed.
    pub replayed_bytes: u64,
    /// Bytes behind a torn write that were not used; they were never acknowledged as durable.
    pub discarded_bytes: u64,
    /// Time to open, in nanoseconds.
    pub open_ns: u64,
}

/// Snapshots.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let snapshot = db.snapshot();
/// assert_eq!(db.stats().snapshots.alive, 1);
/// drop(snapshot);
/// assert_eq!(db.stats().snapshots.alive, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SnapshotStats {
    /// Snapshots alive.
    pub alive: u64,
    /// Nanoseconds since the oldest of them was taken.
    pub oldest_ns: u64,
    /// Memtable generations that only snapshots and iterators keep in memory. The cache leaves room for them;
    /// past a sixteenth of the budget they are written to files of history.
    pub generations: u64,
    /// Their bytes.
    pub generation_bytes: u64,
    /// Table files that only snapshots and iterators keep.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Files of history written since the store was opened, each for all snapshots of a generation.
    pub history_tables: u64,
}

/// Flushes and merges.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// db.settle()?;
/// let background = db.stats().background;
/// assert_eq!((background.flushes, background.sealed, background.error), (1, 0, None));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackgroundStats {
    /// Generations that wait for their flush.
    pub sealed: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Merges done.
    pub merges: u64,
    /// Bytes of merges after which merges waited, for an even pace or for the cap.
    pub paced_bytes: u64,
    /// Bytes a second that merges may read and write now: by how far they are behind, and by
    /// `background_bytes_per_second`. 0: as many as they can.
    pub bytes_per_second: u64,
    /// Ingests finished.
    pub ingests: u64,
    /// The error that keeps background work from going on, if there is one.
    pub error: Option<String>,
}

impl Store {
    pub(crate) fn stats(&self) -> Stats {
        let pin = self.epoch.pin();
        let view = self.views.load(&pin).get();
        let keyspaces: Vec<Arc<KeyspaceState>> = self.catalog.names().values().cloned().collect();
        let keyspaces = keyspaces.iter().map(|one| self.stats_of(one, view)).collect();
        let files: BTreeMap<u64, u64> = placed(&view.version).map(file_bytes).collect();
        drop(pin);
        let memory = self.memory_stats();
        Stats {
            keyspaces,
            memory,
            io: self.io_stats(),
            write: self.write_stats(),
            space: self.space_stats(&files),
            recovery: RecoveryStats {
                replayed_items: self.recovery.replayed_items,
                replayed_bytes: self.recovery.replayed_bytes,
                discarded_bytes: self.recovery.discarded_bytes,
                open_ns: self.recovery.open_ns,
            },
            snapshots: self.snapshot_stats(&files),
            background: BackgroundStats {
                sealed: self.writer.sealed_count() as u64,
                flushes: self.work.flushes.load(Ordering::Relaxed),
                merges: self.work.merges.load(Ordering::Relaxed),
                paced_bytes: self.pacer.paced_bytes(),
                bytes_per_second: self.pacer.rate(self.env.clock.now_ns(), self.urgency()),
                ingests: self.work.ingests.load(Ordering::Relaxed),
                error: self.work.error(0, |_| true).map(|error| error.to_string()),
            },
            batch_bytes_max: self.budget.batch_bytes_max() as u64,
        }
    }

    pub(crate) fn keyspace_stats(&self, keyspace: &KeyspaceState) -> KeyspaceStats {
        let pin = self.epoch.pin();
        self.stats_of(keyspace, self.views.load(&pin).get())
    }

    fn stats_of(&self, keyspace: &KeyspaceState, view: &View) -> KeyspaceStats {
        let trees = match keyspace.partitions() {
            Some(partitions) => partitions.all().iter().map(|partition| partition.tree).collect(),
            None => vec![keyspace.tree],
        };
        let pressure = trees.iter().map(|tree| self.writer.pressures.of(*tree)).max().unwrap_or(0);
        let in_tables = trees.iter().filter_map(|tree| view.version.tree(*tree));
        let mut stats = keyspace_stats(keyspace, in_tables, pressure);
        for tree in trees {
            let (items, key_value_bytes) = in_memory(view, tree);
            stats.items += items;
            stats.key_value_bytes += key_value_bytes;
        }
        stats
    }

    /// Memory and files that only snapshots and iterators keep; `files` are those of the present version.
    fn snapshot_stats(&self, files: &BTreeMap<u64, u64>) -> SnapshotStats {
        let (mut stats, mut kept) = (SnapshotStats::default(), BTreeMap::new());
        let now_ns = self.env.clock.now_ns();
        for point in self.points.alive() {
            if let PointKind::Snapshot { taken_ns } = point.kind() {
                stats.alive += 1;
                stats.oldest_ns = stats.oldest_ns.max(now_ns.saturating_sub(taken_ns));
            }
            let view = self.view_of(&point);
            kept.extend(placed(&view.version).map(file_bytes).filter(|(file, _)| !files.contains_key(file)));
        }
        (stats.files, stats.file_bytes) = (kept.len() as u64, kept.values().sum());
        stats.generation_bytes = self.kept_bytes();
        stats.generations = stats.generation_bytes / self.budget.generation_bytes;
        stats.history_tables = self.work.histories.load(Ordering::Relaxed);
        stats
    }

    /// Bytes in use in the write buffers of the present view.
    fn buffers_bytes(&self) -> u64 {
        let pin = self.epoch.pin();
        let view = self.views.load(&pin).get();
        view.generations.iter().map(|generation| generation.bytes_used() as u64).sum()
    }

    /// Memory by role.
    fn memory_stats(&self) -> MemoryStats {
        let (buffers_bytes, reserve) = (self.buffers_bytes(), self.cache.reserve());
        let kept_bytes = self.kept_bytes();
        let cache = self.cache.stats();
        // Memory of other roles that the cache has for now.
        let lent = self.quiet.lent(cache.annex_bytes);
        let hints_bytes = self.pages.hints_bytes().min(reserve.bytes(Role::Tables));
        let fences_bytes = cache.pinned_bytes + hints_bytes;
        let (budget, around_bytes) = (&self.budget, cache.pinned_bytes + cache.lent_bytes);
        let held_bytes = reserve.bytes(Role::Iterators) + reserve.bytes(Role::Untaken);
        let cache_bytes = (cache.used_bytes + cache.index_bytes).saturating_sub(held_bytes);
        let fixed = |name, bytes, limit_bytes| MemoryRole { name, bytes, limit_bytes, waits: 0, refusals: 0 };
        let mut roles = vec![
            fixed(
                "write buffers",
                buffers_bytes,
                GENERATION_COUNT * budget.generation_bytes - lent.generations_bytes,
            ),
            fixed(
                "cache",
                cache_bytes,
                (budget.cache_bytes + cache.annex_bytes).saturating_sub(around_bytes),
            ),
            fixed("filters and fences", fences_bytes, fences_bytes),
            fixed(
                "merges",
                self.work.memory_bytes.load(Ordering::Relaxed),
                budget.work_bytes + reserve.bytes(Role::Ingests) - lent.work_bytes,
            ),
        ];
        roles.extend(Role::ALL.into_iter().map(|role| {
            let counts = reserve.counts(role);
            let bytes = match role {
                Role::Kept => kept_bytes,
                Role::Tables => counts.bytes - hints_bytes.min(counts.bytes),
                // Counted with merges as far as it is in use.
                Role::Ingests => 0,
                _ => counts.bytes,
            };
            let (waits, refusals) = (counts.waits, counts.refusals);
            MemoryRole { name: role.name(), bytes, limit_bytes: counts.limit_bytes, waits, refusals }
        }));
        let used_bytes = roles.iter().map(|role| role.bytes).sum();
        MemoryStats { budget_bytes: budget.memory_bytes, used_bytes, roles }
    }

    fn io_stats(&self) -> IoStats {
        let counts = self.env.storage.counts();
        let (reads_with, reads_with_why) = self.env.storage.reader_kind();
        let (in_flight, reads_waiting) = self.blocks.queue.admission.counts();
        IoStats {
            reads_with: reads_with.name(),
            reads_with_why,
            reads_in_flight: in_flight.reads,
            reads_waiting,
            requests_now: self.blocks.load.awaited(),
            merge_requests_now: self.blocks.load.merges(),
            device_reads: self.blocks.counts.block_reads.load(Ordering::Relaxed),
            device_read_bytes: self.blocks.counts.block_read_bytes.load(Ordering::Relaxed),
            reads: counts.reads,
            read_bytes: counts.read_bytes,
            writes: counts.writes,
            write_bytes: counts.write_bytes,
            syncs: counts.syncs,
            open_files: counts.open_files,
            direct_io: self.env.storage.direct_io(),
        }
    }

    fn write_stats(&self) -> WriteStats {
        let (counts, work) = (&self.writer.counts, &self.work);
        WriteStats {
            commits: counts.commits.load(Ordering::Relaxed),
            items: counts.items.load(Ordering::Relaxed),
            key_value_bytes: counts.key_value_bytes.load(Ordering::Relaxed),
            log_bytes: counts.log_bytes.load(Ordering::Relaxed),
            flush_bytes: work.flush_bytes.load(Ordering::Relaxed),
            merge_read_bytes: work.merge_read_bytes.load(Ordering::Relaxed),
            merge_write_bytes: work.merge_write_bytes.load(Ordering::Relaxed),
            ingest_bytes: work.ingest_bytes.load(Ordering::Relaxed),
            delayed_ns: counts.delayed_ns.load(Ordering::Relaxed),
            pressure: self.writer.pressures.worst(),
        }
    }
}

const NO_PAGES: PageStats = PageStats { bytes: 0, pinned_bytes: 0, reason: "there are none" };
const NO_LEVEL: LevelStats = LevelStats {
    level: 0,
    nodes: 0,
    runs: 0,
    node_runs_max: 0,
    tables: 0,
    items: 0,
    tombstones: 0,
    table_bytes: 0,
    filters: NO_PAGES,
    fences: NO_PAGES,
    models_bytes: 0,
    sketches_bytes: 0,
};

impl PageStats {
    fn add(&mut self, (bytes, pinned_bytes): (u64, u64)) {
        self.bytes += bytes;
        self.pinned_bytes += pinned_bytes;
    }

    fn give_reason(&mut self, are_last_filters: bool, are_by_column: bool) {
        self.reason = match (self.bytes - self.pinned_bytes, are_last_filters) {
            (0, _) if self.bytes == 0 => NO_PAGES.reason,
            (0, _) => "all are in memory",
            _ if are_by_column => "filters by column are read when they are asked for",
            (_, true) => "fences, filters of upper levels and room for data go first",
            (_, false) => "three quarters of the cache are taken by such pages and table bounds",
        };
    }
}

/// Number and length of the file that a table lies in.
fn file_bytes(placed: &Placed) -> (u64, u64) {
    (placed.name().0, placed.table.file().bytes())
}

fn keyspace_stats<'v>(
    keyspace: &KeyspaceState,
    trees: impl Iterator<Item = &'v Tree>,
    pressure: u64,
) -> KeyspaceStats {
    let mut stats = KeyspaceStats {
        name: keyspace.full_name(),
        is_hashed: keyspace.id.is_hashed(),
        items: 0,
        key_value_bytes: 0,
        table_bytes: 0,
        tables: 0,
        pressure,
        levels: Vec::new(),
    };
    let (mut levels, mut by_column): (Vec<LevelStats>, BTreeSet<usize>) = Default::default();
    for (level, runs) in trees.flat_map(Tree::piles_by_level) {
        while level >= levels.len() {
            levels.push(LevelStats { level: levels.len() as u64, ..NO_LEVEL });
        }
        let one = &mut levels[level];
        one.nodes += 1;
        one.runs += runs.len() as u64;
        one.node_runs_max = one.node_runs_max.max(runs.len() as u64);
        for table in runs.iter().flat_map(Run::tables).map(|placed| &placed.table) {
            one.tables += 1;
            one.items += table.items();
            one.tombstones += table.tombstones();
            one.table_bytes += table.slice_bytes();
            one.filters.add(table.filter_bytes());
            one.fences.add(table.fence_bytes());
            one.models_bytes += table.models_bytes();
            one.sketches_bytes += table.sketches_bytes();
            by_column.extend(table.has_columns().then_some(level));
            stats.key_value_bytes += table.key_value_bytes();
        }
    }
    let last = levels.len().saturating_sub(1);
    for (level, mut one) in levels.into_iter().enumerate().filter(|(_, one)| one.runs > 0) {
        stats.items += one.items;
        stats.tables += one.tables;
        stats.table_bytes += one.table_bytes;
        one.filters.give_reason(level == last, by_column.contains(&level));
        one.fences.give_reason(false, false);
        stats.levels.push(one);
    }
    stats
}
