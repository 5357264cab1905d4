//! Checkpoints beside writes that make partitions.

use super::*;
use crate::base::rule::Rule;
use crate::engine::commit::routing::tests::write;
use crate::engine::tests::run;
use crate::io::sim::SimDisk;

/// A partition that a write makes after the checkpoint's turn is not in the copy. Earlier ones are, even if
/// the manifest was never told of them.
#[test]
fn later_partitions_are_left_out() {
    let disk = SimDisk::new(1);
    let (store, threads) = run::open(&disk, None, 1, 1 << 20).expect("opens");
    let divided = store.open_divided("d", &[], &Rule::Prefix(1)).expect("made");
    write(&store, &divided, b"a1");
    let mut checkpoint = Checkpoint::start(&store, Path::new("copy")).expect("starts");
    while !matches!(checkpoint.stage, Stage::Flush(..)) {
        assert!(!checkpoint.turn().expect("no fault"));
        // The checkpoint may wait for a standby write buffer.
        threads.run_one();
    }
    write(&store, &divided, b"b1");
    while !checkpoint.turn().expect("no fault") {
        assert!(threads.run_one(), "it waits for the flush alone");
    }
    drop(checkpoint);
    assert_eq!(divided.partitions().expect("it is divided").names().len(), 2);
    let copy = disk.directory_beside(Path::new("copy")).fork();
    let (copied, _threads) = run::open(&copy, None, 2, 1 << 20).expect("opens");
    let kept = copied.open_divided("d", &[], &Rule::Prefix(1)).expect("it is there");
    assert_eq!(kept.partitions().expect("it is divided").names(), [Box::from(&b"a"[..])]);
    copied.close().expect("closes");
    drop(divided);
    store.close().expect("closes");
}
