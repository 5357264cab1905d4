//! Reads in flight on the simulated disk: they end in an order that the seed decides, some at once and some
//! late.
//!
//! Each is one call of the disk, made when it ends: planned failures hit it then. One borrowing of four is
//! refused its ring, and reads one after another. One thread.

use crate::base::sync::Arc;

use super::super::reader::{Completed, PlainReader, Reader, Request, perform};
use super::disk::SimDisk;
use super::random::SimRng;

const ROOM: usize = 128;
/// One borrowing of so many finds no ring.
const REFUSED_ONE_IN: u64 = 4;

/// See the module.
pub(super) struct SimReader {
    disk: Arc<SimDisk>,
    rng: SimRng,
    in_flight: Vec<Request>,
}

impl SimReader {
    pub(super) fn borrow(disk: Arc<SimDisk>, seed: u64) -> Box<dyn Reader> {
        let mut rng = SimRng::new(seed);
        if rng.below(REFUSED_ONE_IN) == 0 {
            return Box::new(PlainReader::new(disk));
        }
        Box::new(SimReader { disk, rng, in_flight: Vec::new() })
    }
}

impl Reader for SimReader {
    fn room(&self) -> usize {
        ROOM - self.in_flight.len()
    }

    fn push(&mut self, request: Request) {
        assert!(self.room() > 0, "a caller asks for room first");
        self.in_flight.push(request);
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        if self.in_flight.is_empty() {
            return;
        }
        for _ in 0..1 + self.rng.index(self.in_flight.len()) {
            let index = self.rng.index(self.in_flight.len());
            completed.push(perform(&*self.disk, self.in_flight.swap_remove(index)));
        }
    }
}
