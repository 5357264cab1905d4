//! Queues: a consumer that removes items one by one from an end passes each deleted key once.

use super::crash::scan_of;
use super::run;
use crate::base::id::ItemKind;
use crate::base::step::Direction;
use crate::io::sim::SimDisk;
use crate::write::batch::BatchItems;

/// As many pops as there are items, all from one end, with puts in between, pass each deleted key once.
#[test]
fn pops_pass_deleted_keys_once() {
    for direction in [Direction::Forward, Direction::Backward] {
        let (store, _threads) = run::open_in(&SimDisk::new(1), 1, (8 << 20, 0), |_| ()).expect("no fault");
        let keyspace = store.open_keyspace("queue", &[]).expect("no fault");
        let write = |kind, key: &[u8]| {
            let mut items = BatchItems::default();
            items.push(keyspace.tree, kind, key, b"").expect("is short");
            store.write(&items, None).expect("no fault");
        };
        const COUNT: u32 = 3000;
        let in_order = |number: u32| match direction {
            Direction::Forward => number,
            Direction::Backward => u32::MAX - number,
        };
        (0..COUNT).for_each(|number| write(ItemKind::Put, &in_order(number).to_be_bytes()));
        store.flush().expect("no fault");
        let (mut passed, mut next) = (0, COUNT);
        for number in 0..2 * COUNT {
            let point = store.point();
            let mut scan = scan_of(&keyspace, &point, direction);
            assert!(store.advance(&point, &mut scan).expect("no fault"));
            assert_eq!(scan.key(), in_order(number).to_be_bytes());
            passed += scan.keys_passed();
            write(ItemKind::Delete, &in_order(number).to_be_bytes());
            if number % 2 == 0 && next < 2 * COUNT {
                write(ItemKind::Put, &in_order(next).to_be_bytes());
                next += 1;
            }
            if number % 1000 == 999 {
                store.flush().expect("no fault");
            }
            if number + 1 == next {
                break;
            }
        }
        assert!(next > COUNT + 1000, "{next}");
        // At most one pass per key. A flush drops cached gaps that are unused, and these are used.
        assert!(passed <= u64::from(next), "{passed} deleted keys passed by {next} pops");
        store.close().expect("closes");
    }
}
