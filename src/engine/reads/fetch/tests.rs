//! Waits for other callers' reads whose blocks are evicted. The simulation reports a wait that never ends.

use super::*;
use crate::base::id::{FileKind, FileName};
use crate::base::reserve::Role;
use crate::base::step::BlockKind;
use crate::cache::ReadSlot;
use crate::engine::tests::run;
use crate::io::env::{Threads, Turn, Worker};
use crate::io::sim::SimDisk;

/// Longer than a frame, so that only its waiters hold it.
const BLOCK_BYTES: u32 = 1 << 20;

/// Ends a read at its turn.
struct Ends(Option<ReadSlot>);

impl Worker for Ends {
    fn turn(&mut self) -> Turn {
        drop(self.0.take().map(ReadSlot::complete));
        Turn::Done
    }
}

fn block(offset: u64, bytes: u32) -> BlockAddress {
    let file = FileName::new(FileKind::Table, 99);
    BlockAddress { file, file_uid: 99, offset, bytes, kind: BlockKind::Data }
}

/// A thread whose block was evicted, and is being read again by another thread, is woken when that read ends.
#[test]
fn blocks_that_were_let_go_of_are_waited_for_again() {
    let disk = SimDisk::new(1);
    let (store, threads) = run::open(&disk, None, 1, 64 << 20).expect("opens");
    let blocks = &store.blocks;
    let slot_of = |address: &BlockAddress| match blocks.cache.claim(address) {
        Claim::Read(slot) => slot,
        Claim::Ready(_) | Claim::Wait(_) => panic!("nobody has read it"),
    };
    let (mut fetches, mut answered) = (Fetches::new(blocks), Vec::new());
    let wanted = block(0, BLOCK_BYTES);
    let slot = slot_of(&wanted);
    fetches.ask(7, &wanted, &mut answered);
    // Unpolled futures share this read, and a second read that takes all the room there is.
    let idle = slot.waiter();
    assert!(answered.is_empty() && idle.may_idle());
    drop(slot.complete());
    let limit = blocks.cache.reserve().limit_bytes(Role::Untaken) as u32;
    let slot = slot_of(&block(1 << 30, limit.next_multiple_of(4096)));
    let large = slot.waiter();
    assert!(large.may_idle());
    drop(slot.complete());
    assert!(idle.is_gone() && !large.is_gone());
    threads.spawn("ends", Box::new(Ends(Some(slot_of(&wanted))))).expect("no limit");
    fetches.wait(&mut answered);
    assert!(matches!(answered[..], [(7, Ok(_))]), "{answered:?}");
    drop((answered, idle, large));
    store.close().expect("closes");
}
