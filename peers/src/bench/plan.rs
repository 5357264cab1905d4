//! The plan of all measurements: the groups of rows in their order, the stages of each, and all sizes.

use clap::ValueEnum;
use trine_workload::keys::Shape;

use super::rows;

/// The length of a value, except in rows by value size.
pub(super) const VALUE_BYTES: usize = 100;
pub(super) const SHAPE: Shape = Shape { key_bytes: 16, compressible_percent: 0 };

/// Keys of a multi-get.
pub(super) const MULTI_KEYS: u64 = 64;

/// Items of a scan.
pub(super) const SCAN_ITEMS: u64 = 100;
pub(super) const RANGE_ITEMS: u64 = 10;

/// Puts a second beside the reader of readwhilewriting.
pub(super) const BESIDE_PUTS_A_SECOND: u64 = 50_000;

/// Writers of synced puts.
pub(super) const SYNCED_WRITERS: u64 = 16;

/// Seeks during the deletes of the delete queue, and while it is emptied.
pub(super) const QUEUE_SEEKS: u64 = 1000;

/// The least memory that Trine opens with. At small scales all stores have it, and the ratio to the data is
/// not kept.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// The work of one process: rows that are measured one after the other, or the making of a store.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(super) enum Stage {
    Load,
    EnsureBig,
    Cold,
    ReopenWrite,
    Reopen,
    Fill,
    MakeSmall,
    EnsureSmall,
    Cached,
    Beside,
    Mixgraph,
    Queue,
    Synced,
    YcsbLoad,
    Ycsb,
    Space,
    Flight,
    FlightHalf,
    EnsureSizes,
    Sizes,
    SizesHalf,
    KeyspacesOne,
    KeyspacesSome,
    KeyspacesMany,
    KeyspacesReopen,
    KeyspacesReopenLarger,
    KeyspacesReopenLarge,
    PartitionsOne,
    PartitionsSome,
    PartitionsMany,
    PartitionsMemory,
    PartitionsDrop,
    PartitionsDropMany,
    PartitionsBusy,
    PartitionsNine,
}

/// Rows that belong together; `--only` chooses among them.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(super) enum Group {
    /// Puts in random order.
    Load,
    /// Data 18 times the memory: gets, absent keys, multi-get, scans, everything in order.
    Cold,
    /// Opening to the first get, after a kill with 32 MiB in logs.
    Reopen,
    /// Puts in the order of keys, then random overwrites.
    Fill,
    /// Data half the memory: gets, Zipf, two threads, absent keys, multi-get, scans, seeks.
    Cached,
    /// Gets beside a thread that puts.
    Beside,
    /// The mix of Facebook's social graph.
    Mixgraph,
    /// Point deletes in the order of keys, and seeks to the first key.
    Queue,
    /// Puts that survive a power cut, by one thread and by 16.
    Synced,
    /// YCSB, data 10 times the memory, two threads.
    Ycsb,
    /// Space on disk during random overwrites of everything.
    Space,
    /// Gets by many threads, in multi-gets, and by one thread with many in flight; data 18 times the memory
    /// and twice.
    Flight,
    /// Gets by the size of values, 16 B to 16 KiB; data 20 times the memory and twice.
    Sizes,
    /// Load and cached gets over 1, 1,000 and 10,000 keyspaces; reopening 10,000 of 1 KB, creating and
    /// dropping one.
    Keyspaces,
    /// Reopening 10,000 keyspaces of 100 KB and of 1 MB.
    KeyspacesLarge,
    /// Drops of partitions of 1 KB, 1 MB and 1 GB, idle and under load; gets and scans after drops of nine of
    /// ten; load, gets and memory over 1, 1,000 and 10,000.
    Partitions,
}

impl Group {
    pub(super) fn all() -> &'static [Group] {
        Group::value_variants()
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The group's processes, one after the other; the last one measures, or all do.
    pub(super) fn stages(self) -> &'static [Stage] {
        match self {
            Group::Load => &[Stage::Load],
            Group::Cold => &[Stage::EnsureBig, Stage::Cold],
            Group::Reopen => &[Stage::EnsureBig, Stage::ReopenWrite, Stage::Reopen],
            Group::Fill => &[Stage::Fill],
            Group::Cached => &[Stage::MakeSmall, Stage::Cached],
            Group::Beside => &[Stage::EnsureSmall, Stage::Beside],
            Group::Mixgraph => &[Stage::EnsureSmall, Stage::Mixgraph],
            Group::Queue => &[Stage::Queue],
            Group::Synced => &[Stage::Synced],
            Group::Ycsb => &[Stage::YcsbLoad, Stage::Ycsb],
            Group::Space => &[Stage::Space],
            Group::Flight => &[Stage::EnsureBig, Stage::Flight, Stage::FlightHalf],
            Group::Sizes => &[Stage::EnsureSizes, Stage::Sizes, Stage::SizesHalf],
            Group::Keyspaces => {
                &[Stage::KeyspacesOne, Stage::KeyspacesSome, Stage::KeyspacesMany, Stage::KeyspacesReopen]
            }
            Group::KeyspacesLarge => &[Stage::KeyspacesReopenLarger, Stage::KeyspacesReopenLarge],
            Group::Partitions => &[
                Stage::PartitionsOne,
                Stage::PartitionsSome,
                Stage::PartitionsMany,
                Stage::PartitionsMemory,
                Stage::PartitionsDrop,
                Stage::PartitionsDropMany,
                Stage::PartitionsBusy,
                Stage::PartitionsNine,
            ],
        }
    }

    /// Whether the group needs the order of keys, apart from single rows that can be left out.
    pub(super) fn needs_order(self) -> bool {
        matches!(self, Group::Mixgraph | Group::Queue | Group::Ycsb | Group::Space)
    }

    /// Bytes of a value; the group's processes run for each size.
    pub(super) fn value_sizes(self) -> Vec<usize> {
        match self {
            Group::Sizes => rows::SIZES.iter().map(|one| one.value_bytes).collect(),
            _ => vec![VALUE_BYTES],
        }
    }
}

impl Stage {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether the process must kill itself at the end.
    pub(super) fn ends_killed(self) -> bool {
        self == Stage::ReopenWrite
    }

    /// Whether the data of its rows is larger than the memory.
    pub(super) fn is_cold(self) -> bool {
        self == Stage::YcsbLoad || self.is_held()
    }

    /// Whether the page cache of stores that use it should be held to the row's memory. A load is not held,
    /// since dirty pages cannot be dropped.
    pub(super) fn is_held(self) -> bool {
        use Stage::{Cold, Flight, FlightHalf, Mixgraph, Sizes, SizesHalf, Ycsb};
        matches!(self, Cold | Mixgraph | Ycsb | Flight | FlightHalf | Sizes | SizesHalf)
    }

    /// Whether it reads the device after large writes, and so starts with a pause.
    pub(super) fn is_rested(self) -> bool {
        self == Stage::Reopen || self.is_held() && !self.is_half()
    }

    /// Whether its memory is half of the data.
    pub(super) fn is_half(self) -> bool {
        matches!(self, Stage::FlightHalf | Stage::SizesHalf)
    }

    /// The memory that a store of this stage may use.
    pub(super) fn memory_bytes(self, plan: Plan) -> u64 {
        match self {
            Stage::Cold | Stage::Flight => plan.memory_bytes(128 << 20),
            Stage::FlightHalf => plan.memory_bytes(plan.bytes(BIG_ITEMS) / 2),
            Stage::Mixgraph => plan.memory_bytes(plan.bytes(SMALL_ITEMS) / 10),
            Stage::YcsbLoad | Stage::Ycsb => plan.memory_bytes(plan.bytes(YCSB_ITEMS) / 10),
            Stage::Sizes => plan.memory_bytes(SIZES_BYTES / 20),
            Stage::SizesHalf => plan.memory_bytes(SIZES_BYTES / 2),
            // The ratio of cold rows: data 18 times the memory.
            Stage::Space => plan.memory_bytes((128 << 20) * SMALL_ITEMS / BIG_ITEMS),
            Stage::PartitionsMemory => plan.memory_bytes(256_000_000),
            _ => plan.memory_bytes(1 << 30),
        }
    }
}

const BIG_ITEMS: u64 = 20_000_000;
const SMALL_ITEMS: u64 = 5_000_000;
const YCSB_ITEMS: u64 = 10_000_000;
const QUEUE_ITEMS: u64 = 10_000_000;
const SYNCED_ITEMS: u64 = 100_000;
const KEYSPACES_MIN: u64 = 10;

/// Keys and values of a store in the rows by value size; a twentieth of them is more than the least memory.
const SIZES_BYTES: u64 = 704 << 20;

/// Sizes, all scaled by one factor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) scale: f64,
    pub(super) value_bytes: usize,
}

impl Plan {
    /// The plan with the value size of nearly all rows.
    pub(super) fn new(scale: f64) -> Plan {
        Plan { scale, value_bytes: VALUE_BYTES }
    }

    /// Bytes of keys and values of so many items.
    pub(super) fn bytes(self, items: u64) -> u64 {
        items * item_bytes(self.value_bytes)
    }

    fn items(self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(1000)
    }

    fn memory_bytes(self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(MEMORY_BYTES_MIN)
    }

    /// Whether no stage's scaled memory is below the least memory.
    pub(super) fn keeps_ratios(self) -> bool {
        let least = Stage::value_variants().iter().map(|stage| stage.memory_bytes(Plan::new(1.0))).min();
        least.unwrap_or(0) as f64 * self.scale >= MEMORY_BYTES_MIN as f64
    }

    /// Items of load, cold rows, reopen and fillseq.
    pub(super) fn big_items(self) -> u64 {
        self.items(BIG_ITEMS)
    }

    /// Items of cached rows, mixgraph and space.
    pub(super) fn small_items(self) -> u64 {
        self.items(SMALL_ITEMS)
    }

    pub(super) fn ycsb_items(self) -> u64 {
        self.items(YCSB_ITEMS)
    }

    /// Items that are deleted from the front of a queue.
    pub(super) fn queue_items(self) -> u64 {
        self.items(QUEUE_ITEMS)
    }

    pub(super) fn synced_items(self) -> u64 {
        self.items(SYNCED_ITEMS)
    }

    /// Keyspaces of a store that has `full` of them at full scale.
    pub(super) fn keyspaces(self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(full.min(KEYSPACES_MIN))
    }

    /// Items of rows by value size.
    pub(super) fn sizes_items(self) -> u64 {
        self.items(SIZES_BYTES / item_bytes(self.value_bytes))
    }
}

/// Bytes of a key and a value of this length.
pub(super) fn item_bytes(value_bytes: usize) -> u64 {
    (SHAPE.key_bytes + value_bytes) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At full scale the sizes are those of the bars, and data and memory scale together.
    #[test]
    fn sizes_scale_together() {
        let (full, half) = (Plan::new(1.0), Plan::new(0.5));
        assert_eq!((full.big_items(), full.small_items()), (20_000_000, 5_000_000));
        assert_eq!(Stage::Cold.memory_bytes(full), 128 << 20);
        assert_eq!(Stage::Cold.memory_bytes(half), 64 << 20);
        assert_eq!(Stage::Cached.memory_bytes(full), 1 << 30);
        assert_eq!(half.big_items(), 10_000_000);
        assert_eq!([1, 10, 1000].map(|count| half.keyspaces(count)), [1, 10, 500]);
        let ratio = full.bytes(full.ycsb_items()) as f64 / Stage::Ycsb.memory_bytes(full) as f64;
        assert!((ratio - 10.0).abs() < 0.01, "{ratio}");
        assert!(full.keeps_ratios() && !Plan::new(0.01).keeps_ratios());
        assert_eq!(Stage::Cold.memory_bytes(Plan::new(0.01)), MEMORY_BYTES_MIN);
    }

    /// Every value size has as much data, 20 times the memory and twice, and every store has more than the
    /// least memory.
    #[test]
    fn sizes_have_one_ratio() {
        let sizes = Group::Sizes.value_sizes();
        assert_eq!(sizes, [16, 64, 256, 1024, 4096, 16384]);
        for value_bytes in sizes {
            let plan = Plan { value_bytes, ..Plan::new(1.0) };
            for (stage, ratio) in [(Stage::Sizes, 20.0), (Stage::SizesHalf, 2.0)] {
                let memory_bytes = stage.memory_bytes(plan);
                let measured = plan.bytes(plan.sizes_items()) as f64 / memory_bytes as f64;
                assert!((measured - ratio).abs() < 0.01, "{value_bytes}, {stage:?}: {measured}");
                assert!(memory_bytes > MEMORY_BYTES_MIN);
            }
        }
        assert_eq!(Group::Cold.value_sizes(), [VALUE_BYTES]);
    }

    /// Every stage belongs to a group.
    #[test]
    fn stages_are_all_run() {
        let used: Vec<Stage> = Group::all().iter().flat_map(|group| group.stages()).copied().collect();
        assert!(Stage::value_variants().iter().all(|stage| used.contains(stage)));
    }
}
