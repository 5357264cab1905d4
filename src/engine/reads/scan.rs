//! Scans on the caller's thread: moves to the next item, with the reads that a move asks for.

use crate::base::error::Result;
use crate::base::step::{AHEAD, Answer, MachineStep, Read, Reads};
use crate::read::scan::ScanMachine;

use super::ReadDriver;
use super::fetch::Fetches;
use super::request::Answered;
use crate::engine::publish::snapshot::Point;

impl ReadDriver {
    /// Moves a scan of the point to its next item; `false` at its end.
    #[inline]
    pub(crate) fn advance(&self, point: &Point, scan: &mut ScanMachine) -> Result<bool> {
        if scan.advance_at_hand(&self.cache) { Ok(true) } else { self.advance_further(point, scan) }
    }

    /// As `advance`, if the blocks at hand are exhausted.
    #[inline(never)]
    fn advance_further(&self, point: &Point, scan: &mut ScanMachine) -> Result<bool> {
        let step = {
            let pin = self.epoch.pin();
            scan.advance(self.pinned(point, &pin))
        };
        let moved = match step {
            MachineStep::Done(moved) => {
                self.blocks.read_apart(&scan.take_apart());
                moved
            }
            step => self.advance_from_device(point, scan, step),
        };
        scan.fit(self.cache.reserve());
        moved
    }

    /// Completes a move that missed blocks. They are read together with read-ahead, and answered as they
    /// come.
    fn advance_from_device(
        &self,
        point: &Point,
        scan: &mut ScanMachine,
        mut step: MachineStep<Reads, Result<bool>>,
    ) -> Result<bool> {
        let mut fetches = Fetches::new(&self.blocks);
        let mut answered: Vec<Answered> = Vec::new();
        loop {
            match step {
                MachineStep::Done(moved) => {
                    fetches.finish();
                    self.blocks.read_apart(&scan.take_apart());
                    return moved;
                }
                MachineStep::Ask(reads) => {
                    for Read { ask, block } in reads {
                        match ask {
                            AHEAD => fetches.ask_ahead(&block),
                            ask => fetches.ask(usize::from(ask), &block, &mut answered),
                        }
                    }
                    let apart = scan.take_apart();
                    if !self.blocks.queue.has_room_ahead() {
                        // The worker would not read these blocks.
                        apart.iter().for_each(|block| fetches.ask_ahead(block));
                    }
                    fetches.send();
                    self.blocks.read_apart(&apart);
                }
                MachineStep::Wait | MachineStep::Touch => {}
            }
            if answered.is_empty() {
                fetches.wait(&mut answered);
            }
            let (ask, result) = answered.pop().expect("a scan that waits has an ask that was not answered");
            let ask = u8::try_from(ask).expect("it was one");
            let pin = self.epoch.pin();
            let pinned = self.pinned(point, &pin);
            step = if scan.is_of(pinned.view) {
                scan.resume(pinned, Answer { ask, result })
            } else {
                let step = scan.advance(pinned);
                drop(pin);
                // The reads in flight were requested for another view; the cache will have their blocks soon.
                std::mem::replace(&mut fetches, Fetches::new(&self.blocks)).finish();
                answered.clear();
                step
            };
        }
    }
}
