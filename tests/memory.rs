//! The memory budget: whatever a program does, what the store has stays within what it was given.

use trine::sim::World;
use trine::{Db, Error, MemoryRole};

fn open(world: &World) -> Db {
    world.builder().memory_bytes(2 << 20).open().unwrap()
}

fn role(db: &Db, name: &str) -> MemoryRole {
    db.stats().memory.roles.into_iter().find(|role| role.name == name).unwrap()
}

/// Asserts that all roles together have the budget and a tenth more at most.
fn check(db: &Db, what: &str) {
    let memory = db.stats().memory;
    assert!(memory.used_bytes <= memory.budget_bytes / 10 * 11, "{what}: {memory:?}");
}

/// What is handed a value may write as much as it likes: no write buffer is kept for it, whether the value is
/// copied or lies in a block.
#[test]
fn closures_keep_no_write_buffer() {
    let world = World::new(1);
    let db = open(&world);
    let items = db.ordered("a").set("block_bytes", 16 << 10).open().unwrap();
    let long = vec![7; 9000];
    items.put("short", "1").unwrap();
    items.put("long", &long).unwrap();
    let snapshot = db.snapshot();
    let write = || {
        for number in 0..6000u32 {
            items.put((number % 500).to_be_bytes(), [3; 1000]).unwrap();
            if number % 500 == 0 {
                check(&db, "in a closure");
            }
        }
        check(&db, "at the end of a closure");
    };
    for round in 0..2 {
        // In the first round they are in a write buffer, in the second in a table.
        for (key, value) in [("short", &b"1"[..]), ("long", &long)] {
            let taken = items.get_with(key, |found| {
                assert_eq!(found, value, "round {round}");
                write();
                assert_eq!(found, value, "round {round}");
            });
            assert_eq!(taken.unwrap(), Some(()));
        }
        let mut seen = 0;
        items
            .multi_get_with(&["long", "none", "short"], |number, found| {
                write();
                let wanted = [Some(&long[..]), None, Some(&b"1"[..])];
                assert_eq!(found, wanted[number], "round {round}");
                seen += 1;
            })
            .unwrap();
        assert_eq!(seen, 3);
        let then = items.at(&snapshot);
        let length = then.get_with("long", |found| {
            write();
            found.len()
        });
        assert_eq!(length.unwrap(), Some(9000));
        let mut seen = 0;
        then.multi_get_with(&["long"], |_, found| {
            write();
            seen += usize::from(found == Some(&long[..]));
        })
        .unwrap();
        assert_eq!(seen, 1);
        db.flush().unwrap();
    }
}

/// What is read inside a closure has memory of its own.
#[test]
fn closures_read_too() {
    let world = World::new(2);
    let items = open(&world).ordered("a").open().unwrap();
    items.put("a", "1").unwrap();
    items.put("b", "22").unwrap();
    let both = items.get_with("a", |a| {
        let b = items.get_with("b", |b| (a.to_vec(), b.to_vec())).unwrap();
        (a.to_vec(), b)
    });
    assert_eq!(both.unwrap(), Some((b"1".to_vec(), Some((b"1".to_vec(), b"22".to_vec())))));
}

/// Keyspaces are made as long as there is room for what the store knows of them; then the error says whose
/// room it is, nothing is made, and once one is dropped there is room again.
#[test]
fn keyspaces_are_as_many_as_there_is_room_for() {
    let world = World::new(3);
    let db = open(&world);
    let name = |number: u32| format!("k{number}");
    let mut made = 0;
    let refused = loop {
        match db.ordered(&name(made)).open() {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    let Error::Memory { role: whose, limit, wanted } = &refused else { panic!("{refused}") };
    assert_eq!((*whose, wanted > limit, made > 1000), ("manifest", true, true));
    assert!(refused.to_string().contains("memory_bytes"), "{refused}");
    let manifest = role(&db, "manifest");
    assert!(manifest.bytes <= manifest.limit_bytes && manifest.refusals == 1, "{manifest:?}");
    assert!(matches!(db.keyspace(&name(made)), Err(Error::NoKeyspace { .. })));
    assert!(db.ordered(&name(0)).open().is_ok(), "it is there");
    db.drop_keyspace(&name(0)).unwrap();
    db.ordered(&name(made)).open().unwrap();
}
