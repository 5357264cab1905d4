//! The choice of the next log when one is full.

use super::*;

/// A log that fills is followed by a longer one with the same memtable. The longer log is made once the first
/// is half full. Sealing the memtable seals all of its logs.
#[test]
fn logs_follow_each_other() {
    let least = RECORDS_FROM + 4096;
    let world = World::with_logs(least, LogLengths { least, most: 3 * least });
    let put = |number: u32| put(&number.to_be_bytes(), &[7; 900], Until::Written);
    let requests = |bytes: Option<u64>, memtable| StandbyRequests {
        log: bytes.map(|bytes| NextLog { bytes, least_bytes: least }),
        memtable,
    };
    (0..2).for_each(|number| world.run(&put(number)).expect("there is room"));
    assert_eq!(world.writer.requests(), requests(None, false), "less than half full");
    world.run(&put(2)).expect("there is room");
    // Four times as long, limited by the maximum length.
    assert_eq!(world.writer.requests(), requests(Some(3 * least), false));
    world.put_log(2, 3 * least);
    (3..24).for_each(|number| world.run(&put(number)).expect("there is room"));
    let generation = Arc::clone(&world.views.load(&world.epoch.pin()).get().generations[0]);
    assert_eq!(generation.items(), 24, "the memtable is the same");
    assert!(world.writer.oldest_sealed().is_none());
    assert!(world.writer.requests().log.is_some(), "half full");

    world.put_standby(3);
    assert!(world.writer.try_seal());
    let sealed = world.writer.oldest_sealed().expect("sealed");
    let logs: Vec<(u64, u64)> = sealed.logs.iter().map(|log| (log.file.number, log.bytes)).collect();
    assert_eq!((logs, sealed.last_sequence), (vec![(1, least), (2, 3 * least)], 24));
    let hash = |number: u32| world.writer.secret.hash(&number.to_be_bytes());
    for number in 0..24u32 {
        assert!(sealed.generation.get(TREE, &number.to_be_bytes(), hash(number), 24).is_some());
    }
}

/// A batch too long for the next log requests the length that it needs.
#[test]
fn a_long_batch_names_the_log_it_needs() {
    let least = RECORDS_FROM + 4096;
    let world = World::with_logs(least, LogLengths { least, most: least });
    let long = put(b"long", &[7; 9000], Until::Written);
    let mut waiting = world.start(&long);
    assert!(matches!(waiting.ask(), WriteAsk::Room { .. }));
    let needed = world.writer.requests().log.expect("it waits for one").least_bytes;
    assert_eq!(needed, RECORDS_FROM + 3 * 4096);
    world.put_log(2, needed);
    waiting.obey();
    waiting.run().expect("there is room");
    assert!(world.value(b"long").is_some());
}
