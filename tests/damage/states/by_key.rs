//! Stores with keyspaces that are partitioned by key.

use trine::{ByKey, Partitioning};

use super::{Maker, PartitionOf, SMALL, State, ordered, value, vouched_bytes};

/// Fills a keyspace partitioned by key: partitions in tables and in the log, one dropped and made again, one
/// dropped for good, one empty.
fn divide_by_key(maker: &mut Maker, name: &str, rule: Partitioning<ByKey>, [again, gone]: [&str; 2]) {
    let keyspace = maker.db.ordered(name).partition_by(rule).open().expect("a new keyspace");
    maker.write(name, (60, 1), 0, 25);
    maker.db.flush().expect("a flush");
    maker.mark();
    assert_eq!(keyspace.drop_partitions([again, gone]).expect("a drop"), 2);
    let last = maker.key(name, 61);
    keyspace.put(&last, value(name, 61, 1, 20)).expect("a write");
    let first = [again, "5"].concat();
    maker.keys.entry(name.to_owned()).or_default().insert(first.clone().into_bytes());
    keyspace.put(&first, format!("{name} is there again")).expect("a write");
    assert!(keyspace.partitions().expect("it is there").iter().any(|one| one == again.as_bytes()));
    assert!(keyspace.get([gone, "5"].concat()).expect("a read").is_none());
}

pub(super) fn divided_by_prefix() -> State {
    let mut maker = Maker::new(SMALL);
    maker.keyspace("left", &[]);
    divide_by_key(&mut maker, "days", Partitioning::prefix(4), ["0002", "0003"]);
    ordered(&maker.db, "days").create_partition("9999").expect("a new partition");
    maker.write("left", (30, 2), 1, 40);
    State { partition_of: Some(|key| &key[..key.len().min(4)]), ..maker.closed("divided by prefix") }
}

const DAYS: [&str; 4] = ["00015", "00020", "00030", "00060"];

pub(super) fn divided_by_ranges() -> State {
    let mut maker = Maker::new(SMALL);
    let bounds = Partitioning::ranges(DAYS);
    divide_by_key(&mut maker, "days", bounds, ["00020", "00030"]);
    let (keyspace, mut batch) = (ordered(&maker.db, "days"), maker.db.batch());
    for index in [3, 44] {
        batch.put(&keyspace, maker.key("days", index), value("days", index, 2, 30)).expect("small");
    }
    batch.delete_range(&keyspace, "00013".."00017").expect("small");
    batch.commit().expect("a write");
    let name_of: PartitionOf =
        |key| DAYS.iter().rev().map(|bound| bound.as_bytes()).find(|bound| *bound <= key).unwrap_or(b"");
    State { partition_of: Some(name_of), ..maker.closed("divided by ranges") }
}

/// The manifest and the log of a store with a keyspace of each rule.
pub(crate) fn files_by_keys() -> [Vec<u8>; 2] {
    let mut maker = Maker::new(SMALL);
    divide_by_key(&mut maker, "days", Partitioning::prefix(4), ["0002", "0003"]);
    let bounds = Partitioning::ranges(DAYS);
    divide_by_key(&mut maker, "rows", bounds, ["00020", "00030"]);
    let state = maker.closed("divided by both");
    let log = state.files.iter().rfind(|(name, _)| name.starts_with("log")).expect("there is one");
    [state.files[vouched_bytes(&state.files).1].clone(), log.1.clone()]
}
