//! The rows of the tables, by name and in their order.

use super::engines::partitions::DropBy;

pub(super) const LOAD: &str = "load, random order";
pub(super) const COLD_GET: &str = "cold get";
/// Bare reads, in turns with the gets; for Trine alone, whose gets have a bar against them.
pub(super) const COLD_BARE: &str = "cold get: bare reads of a page, in turns with it";
pub(super) const COLD_GET_HALF: &str = "cold get, write buffer half full";
pub(super) const COLD_ABSENT: &str = "cold get, absent key";
pub(super) const COLD_MULTI: &str = "cold multi-get of 64";
pub(super) const COLD_SCAN: &str = "cold scan of 100";
pub(super) const COLD_ALL: &str = "everything in order, cold";
pub(super) const REOPEN: &str = "reopen after a kill, to the first get";
pub(super) const FILLSEQ: &str = "fillseq";
pub(super) const OVERWRITE: &str = "overwrite, random";
pub(super) const GET: &str = "cached get, uniform";
pub(super) const GET_ZIPF: &str = "cached get, Zipf 0.99";
pub(super) const GET_TWO: &str = "cached get, two threads";
pub(super) const GET_FUTURE: &str = "cached get, one future";
pub(super) const GET_ABSENT: &str = "cached get, absent key";
pub(super) const MULTI: &str = "cached multi-get of 64";
pub(super) const SCAN: &str = "cached scan of 100";
pub(super) const SCAN_OWNED: &str = "cached scan of 100, owned pairs";
pub(super) const RANGE: &str = "cached range of 10";
pub(super) const RANGE_OWNED: &str = "cached range of 10, owned pairs";
pub(super) const SEEK: &str = "cached seek";
pub(super) const GET_HALF: &str = "cached get, write buffer half full";
pub(super) const RANGE_HALF: &str = "cached range of 10, write buffer half full";
pub(super) const BESIDE: &str = "readwhilewriting";
pub(super) const MIXGRAPH: &str = "mixgraph";
pub(super) const QUEUE_BEFORE: &str = "delete queue: seek before";
pub(super) const QUEUE_DELETES: &str = "delete queue: deletes";
pub(super) const QUEUE_AMID: &str = "delete queue: seek amid";
pub(super) const QUEUE_AFTER: &str = "delete queue: seek after";
pub(super) const QUEUE_POP: &str = "delete queue: seek, and delete what it found";
pub(super) const QUEUE_SETTLED: &str = "delete queue: seek after, settled";
pub(super) const SYNCED: &str = "synced puts, one writer";
pub(super) const SYNCED_MANY: &str = "synced puts, 16 writers";
pub(super) const YCSB_LOAD: &str = "YCSB Load";
pub(super) const YCSB_A: &str = "YCSB A";
pub(super) const YCSB_B: &str = "YCSB B";
pub(super) const YCSB_C: &str = "YCSB C";
pub(super) const YCSB_D: &str = "YCSB D";
pub(super) const YCSB_E: &str = "YCSB E";
pub(super) const YCSB_F: &str = "YCSB F";
pub(super) const SPACE: &str = "space, random overwrites of everything";

pub(super) const KEYSPACES_LOAD_ONE: &str = "many keyspaces: load over one, settled";
pub(super) const KEYSPACES_LOAD_SOME: &str = "many keyspaces: load over 1,000, settled";
pub(super) const KEYSPACES_LOAD_MANY: &str = "many keyspaces: load over 10,000, settled";
pub(super) const KEYSPACES_GET_ONE: &str = "many keyspaces: cached get over one";
pub(super) const KEYSPACES_GET_SOME: &str = "many keyspaces: cached get over 1,000";
pub(super) const KEYSPACES_GET_MANY: &str = "many keyspaces: cached get over 10,000";
pub(super) const KEYSPACES_REOPEN_1_KB: &str = "many keyspaces: reopen 10,000 of 1 KB";
pub(super) const KEYSPACES_REOPEN_100_KB: &str = "many keyspaces: reopen 10,000 of 100 KB";
pub(super) const KEYSPACES_REOPEN_1_MB: &str = "many keyspaces: reopen 10,000 of 1 MB";

/// Rows of one process, in its order.
pub(super) const KEYSPACES_REOPEN_AND_MAKE: [&str; 5] = [
    KEYSPACES_REOPEN_1_KB,
    "many keyspaces: make one beside 10",
    "many keyspaces: drop one beside 10",
    "many keyspaces: make one beside 10,000",
    "many keyspaces: drop one beside 10,000",
];

/// All rows of many keyspaces, in the order of their table.
pub(super) const KEYSPACES: [&str; 13] = {
    let [reopen, make_few, drop_few, make_many, drop_many] = KEYSPACES_REOPEN_AND_MAKE;
    [
        KEYSPACES_LOAD_ONE,
        KEYSPACES_LOAD_SOME,
        KEYSPACES_LOAD_MANY,
        KEYSPACES_GET_ONE,
        KEYSPACES_GET_SOME,
        KEYSPACES_GET_MANY,
        reopen,
        KEYSPACES_REOPEN_100_KB,
        KEYSPACES_REOPEN_1_MB,
        make_few,
        drop_few,
        make_many,
        drop_many,
    ]
};

/// The row of the same store with one keyspace, for rows that are compared with it.
pub(super) fn over_one(row: &str) -> Option<&'static str> {
    match row {
        KEYSPACES_LOAD_SOME | KEYSPACES_LOAD_MANY => Some(KEYSPACES_LOAD_ONE),
        KEYSPACES_GET_SOME | KEYSPACES_GET_MANY => Some(KEYSPACES_GET_ONE),
        PARTITIONS_LOAD_SOME | PARTITIONS_LOAD_MANY => Some(PARTITIONS_LOAD_ONE),
        PARTITIONS_GET_SOME | PARTITIONS_GET_MANY => Some(PARTITIONS_GET_ONE),
        _ => None,
    }
}

/// Names in `more`: keyspaces of the store, keyspaces of a median, and seconds in which keyspaces were
/// created.
pub(super) const KEYSPACES_COUNT: &str = "keyspaces";
pub(super) const KEYSPACES_MADE: &str = "keyspaces_made";
pub(super) const KEYSPACES_MADE_S: &str = "keyspaces_made_s";

/// Name in `more`: seconds until background work was finished.
pub(super) const SETTLE_S: &str = "settle_s";

/// Name in `more`: the store's files in the page cache when the row ends.
pub(super) const PAGE_CACHE_MIB: &str = "page_cache_MiB";

/// Name in `more`: contents of the store's write buffers when the row ends.
pub(super) const BUFFERED_MIB: &str = "write_buffers_MiB";

/// Name in `more`: items in the log that an opening replays.
pub(super) const LOG_ITEMS: &str = "log_items";

/// Names in `more`: table bytes per byte of keys and values, at the worst of ten settled points, and
/// compacted.
pub(super) const SPACE_SETTLED_WORST: &str = "space_settled_worst";
pub(super) const SPACE_COMPACTED: &str = "space_compacted";

/// The remark of a row whose page cache has no limit.
pub(super) const NOT_HELD: &str = "its page cache was not held to the memory of the row";

/// The way in which gets of a row are in flight, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Threads that wait, each for its own get.
    Threads(u64),
    /// Keys of one multi-get.
    Together(u64),
    /// Futures of one thread under the store's own executor.
    BlockOn(u64),
    /// Futures of one thread under tokio's single-threaded executor.
    Tokio(u64),
}

impl Way {
    /// The way of stores without futures that is compared with this one: as many keys in a multi-get.
    pub(super) fn of_peers(self) -> Way {
        match self {
            Way::BlockOn(count) | Way::Tokio(count) => Way::Together(count),
            Way::Threads(_) | Way::Together(_) => self,
        }
    }

    pub(super) fn in_flight(self) -> u64 {
        match self {
            Way::Threads(count) | Way::Together(count) | Way::BlockOn(count) | Way::Tokio(count) => count,
        }
    }

    pub(super) fn has_futures(self) -> bool {
        matches!(self, Way::BlockOn(_) | Way::Tokio(_))
    }
}

/// A row of gets in flight together: `cold` with memory of an eighteenth or a twentieth of the data, `half`
/// with memory of half of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) way: Way,
    /// The way in words.
    pub(super) told: &'static str,
    pub(super) cold: &'static str,
    pub(super) half: &'static str,
}

macro_rules! flight {
    ($way:expr, $name:literal) => {
        Flight {
            way: $way,
            told: $name,
            cold: concat!("in flight: ", $name),
            half: concat!("in flight, half cached: ", $name),
        }
    };
}

/// Rows with one get in flight are measured in turns, the others one after the other: the speed of devices
/// changes.
pub(super) const FLIGHT: [Flight; 19] = [
    flight!(Way::Threads(1), "one thread"),
    flight!(Way::BlockOn(1), "one future, block_on"),
    flight!(Way::Tokio(1), "one future, tokio"),
    flight!(Way::Threads(2), "2 threads"),
    flight!(Way::Threads(4), "4 threads"),
    flight!(Way::Threads(8), "8 threads"),
    flight!(Way::Threads(16), "16 threads"),
    flight!(Way::Threads(32), "32 threads"),
    flight!(Way::Together(16), "16 keys together"),
    flight!(Way::Together(64), "64 keys together"),
    flight!(Way::Together(256), "256 keys together"),
    flight!(Way::BlockOn(16), "16 futures, block_on"),
    flight!(Way::BlockOn(64), "64 futures, block_on"),
    flight!(Way::BlockOn(128), "128 futures, block_on"),
    flight!(Way::BlockOn(256), "256 futures, block_on"),
    flight!(Way::Tokio(16), "16 futures, tokio"),
    flight!(Way::Tokio(64), "64 futures, tokio"),
    flight!(Way::Tokio(128), "128 futures, tokio"),
    flight!(Way::Tokio(256), "256 futures, tokio"),
];

pub(super) const FLIGHT_ONE: &str = "in flight: one thread";
pub(super) const FLIGHT_BLOCK_ON_ONE: &str = "in flight: one future, block_on";
pub(super) const FLIGHT_TOKIO_ONE: &str = "in flight: one future, tokio";

/// Rows of gets of values of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueSize {
    pub(super) value_bytes: usize,
    pub(super) gets: [Flight; 7],
}

macro_rules! sized {
    ($bytes:literal) => {
        ValueSize {
            value_bytes: $bytes,
            gets: [
                sized!($bytes, Way::Threads(1), "one thread"),
                sized!($bytes, Way::Threads(2), "2 threads"),
                sized!($bytes, Way::Threads(4), "4 threads"),
                sized!($bytes, Way::Threads(8), "8 threads"),
                sized!($bytes, Way::Threads(16), "16 threads"),
                sized!($bytes, Way::Together(64), "64 keys together"),
                sized!($bytes, Way::BlockOn(64), "64 futures, block_on"),
            ],
        }
    };
    ($bytes:literal, $way:expr, $name:literal) => {
        Flight {
            way: $way,
            told: $name,
            cold: concat!("values of ", $bytes, " B, 5 % cached: ", $name),
            half: concat!("values of ", $bytes, " B, 50 % cached: ", $name),
        }
    };
}

pub(super) static SIZES: [ValueSize; 6] =
    [sized!(16), sized!(64), sized!(256), sized!(1024), sized!(4096), sized!(16384)];

/// Rows of one way to drop partitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionRows {
    pub(super) by: DropBy,
    /// On an idle store: drops of 1 KB, 1 MB and 1 GB beside ten partitions.
    pub(super) drops: [&'static str; 3],
    /// Drops of 1 KB beside 10,000 partitions.
    pub(super) drop_of_many: &'static str,
    /// Drops of 1 MB beside a thread that puts as fast as it can, and the puts of that thread.
    pub(super) busy: [&'static str; 2],
    /// Gets and scans in one of ten partitions: before the other nine are dropped, and after.
    pub(super) gets: [&'static str; 2],
    pub(super) scans: [&'static str; 2],
}

macro_rules! dropped {
    ($by:expr, $name:literal) => {
        PartitionRows {
            by: $by,
            drops: [
                concat!("partitions, ", $name, ": drop 1 KB"),
                concat!("partitions, ", $name, ": drop 1 MB"),
                concat!("partitions, ", $name, ": drop 1 GB"),
            ],
            drop_of_many: concat!("partitions, ", $name, ": drop 1 KB of 10,000"),
            busy: [
                concat!("partitions, ", $name, ": drop 1 MB under load"),
                concat!("partitions, ", $name, ": puts beside those drops"),
            ],
            gets: [
                concat!("partitions, ", $name, ": get in one of ten"),
                concat!("partitions, ", $name, ": get, nine dropped"),
            ],
            scans: [
                concat!("partitions, ", $name, ": scan of 100 in one of ten"),
                concat!("partitions, ", $name, ": scan of 100, nine dropped"),
            ],
        }
    };
}

/// The rows that have bars of Trine.
pub(super) const WHOLE: PartitionRows = dropped!(DropBy::Whole, "whole");

pub(super) static PARTITION_WAYS: [PartitionRows; 3] =
    [WHOLE, dropped!(DropBy::Range, "range delete"), dropped!(DropBy::Keys, "key by key")];

pub(super) const PARTITIONS_LOAD_ONE: &str = "partitions: load over one, settled";
pub(super) const PARTITIONS_LOAD_SOME: &str = "partitions: load over 1,000, settled";
pub(super) const PARTITIONS_LOAD_MANY: &str = "partitions: load over 10,000, settled";
pub(super) const PARTITIONS_GET_ONE: &str = "partitions: cached get over one";
pub(super) const PARTITIONS_GET_SOME: &str = "partitions: cached get over 1,000";
pub(super) const PARTITIONS_GET_MANY: &str = "partitions: cached get over 10,000";
pub(super) const PARTITIONS_MEMORY_ONE: &str = "partitions: load of 1 GB in 256 MB over one";
pub(super) const PARTITIONS_MEMORY_SOME: &str = "partitions: load of 1 GB in 256 MB over 1,000";
pub(super) const PARTITIONS_MEMORY_MANY: &str = "partitions: load of 10,000 of 1 KB in 256 MB";

/// Rows of stores with partitions, in the order of their table.
pub(super) fn partition_rows() -> impl Iterator<Item = &'static str> {
    let spread = [
        PARTITIONS_LOAD_ONE,
        PARTITIONS_LOAD_SOME,
        PARTITIONS_LOAD_MANY,
        PARTITIONS_GET_ONE,
        PARTITIONS_GET_SOME,
        PARTITIONS_GET_MANY,
        PARTITIONS_MEMORY_ONE,
        PARTITIONS_MEMORY_SOME,
        PARTITIONS_MEMORY_MANY,
    ];
    let of_way = |one: &'static PartitionRows| {
        let drops = one.drops.into_iter().chain([one.drop_of_many]);
        drops.chain(one.busy).chain(one.gets).chain(one.scans)
    };
    PARTITION_WAYS.iter().flat_map(of_way).chain(spread)
}

/// Names in `more`: memory of everything but the cache, and seconds until the files have lost nine tenths of
/// the dropped bytes.
pub(super) const ROLES_MIB: &str = "memory_beside_cache_MiB";
pub(super) const FREED_S: &str = "freed_s";

/// The row of other stores that a row is compared with: for futures by value size the multi-get of as many
/// keys, for other rows the same row.
pub(super) fn peers_row(row: &'static str) -> &'static str {
    let among = |gets: &'static [Flight]| {
        let own = gets.iter().find(|one| one.cold == row || one.half == row)?;
        let theirs = gets.iter().find(|one| one.way == own.way.of_peers())?;
        Some(if own.cold == row { theirs.cold } else { theirs.half })
    };
    SIZES.iter().find_map(|size| among(&size.gets)).unwrap_or(row)
}

/// All rows but those by value size, of many keyspaces and of partitions, in their order.
pub(super) fn standard_rows() -> impl Iterator<Item = &'static str> {
    let flight = FLIGHT.iter().flat_map(|one| [one.cold, one.half]);
    FIRST.into_iter().chain(flight)
}

/// All rows, in their order.
pub(super) fn all_rows() -> impl Iterator<Item = &'static str> {
    let sizes = SIZES
        .iter()
        .flat_map(|size| size.gets.iter().map(|one| one.cold).chain(size.gets.iter().map(|one| one.half)));
    standard_rows().chain(KEYSPACES).chain(partition_rows()).chain(sizes)
}

const FIRST: [&str; 42] = [
    LOAD,
    FILLSEQ,
    OVERWRITE,
    COLD_GET,
    COLD_BARE,
    COLD_GET_HALF,
    COLD_ABSENT,
    COLD_MULTI,
    COLD_SCAN,
    COLD_ALL,
    REOPEN,
    GET,
    GET_ZIPF,
    GET_TWO,
    GET_FUTURE,
    GET_ABSENT,
    MULTI,
    SCAN,
    SCAN_OWNED,
    RANGE,
    RANGE_OWNED,
    SEEK,
    GET_HALF,
    RANGE_HALF,
    BESIDE,
    MIXGRAPH,
    QUEUE_BEFORE,
    QUEUE_DELETES,
    QUEUE_AMID,
    QUEUE_AFTER,
    QUEUE_POP,
    QUEUE_SETTLED,
    SYNCED,
    SYNCED_MANY,
    YCSB_LOAD,
    YCSB_A,
    YCSB_B,
    YCSB_C,
    YCSB_D,
    YCSB_E,
    YCSB_F,
    SPACE,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// No two rows share a name, and rows by value size name their size and their way.
    #[test]
    fn rows_are_told_apart() {
        let mut names: Vec<&str> = all_rows().collect();
        let count = names.len();
        assert_eq!(count, standard_rows().count() + KEYSPACES.len() + partition_rows().count() + 84);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(peers_row("values of 64 B, 50 % cached: 64 futures, block_on"), SIZES[1].gets[5].half);
        assert_eq!(peers_row(SIZES[2].gets[1].cold), SIZES[2].gets[1].cold);
        assert_eq!(peers_row(COLD_GET), COLD_GET);
        assert_eq!(SIZES[0].gets[0].cold, "values of 16 B, 5 % cached: one thread");
        assert_eq!(SIZES[5].gets[6].half, "values of 16384 B, 50 % cached: 64 futures, block_on");
    }
}
