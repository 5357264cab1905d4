//! Reads in flight on the simulated disk. The seed decides their order, and the reads that end short.
//!
//! Each read is one call of the disk, made when the read ends, or two calls if it ends short. Planned
//! failures apply to those calls. Some waits end before any read has ended, as if the bell were rung. One
//! `borrow` in four gets no ring, but a reader that does one read after another. One thread.

use crate::base::few::Few;
use crate::base::sync::Arc;

use super::super::reader::{Completed, PlainReader, Reader, Request, fill_rest, perform};
use super::super::storage::Storage;
use super::disk::SimDisk;
use super::random::SimRng;

const ROOM: usize = 128;
/// One `borrow` in this many gets no ring.
const REFUSED_ONE_IN: u64 = 4;
/// One read in this many ends short.
const SHORT_ONE_IN: u64 = 8;
/// Length of a short read is a multiple of this, in bytes; 0 as for a cancelled read.
const UNIT_BYTES: usize = 512;
/// One interruptible wait in this many ends as if the bell were rung.
const RUNG_ONE_IN: u64 = 4;

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

    /// A short read, as a kernel may do it: the read ends early, and a plain read gets the rest.
    fn perform_short(&mut self, request: Request) -> Completed {
        let Request { file, offset, mut target } = request;
        let units = target.buffers().iter().map(|buffer| buffer.len()).sum::<usize>() / UNIT_BYTES;
        let first_bytes = UNIT_BYTES * self.rng.index(units.max(1));
        let first = match first_bytes {
            0 => Ok(0),
            _ => self.disk.read_vectored(file, offset, &mut firsts(target.buffers(), first_bytes)),
        };
        let result = match first {
            Ok(read) if read == first_bytes => {
                fill_rest(&*self.disk, file, offset, &mut target.buffers(), first_bytes)
            }
            ended => ended,
        };
        Completed { result, target }
    }
}

/// The first `bytes` bytes of the buffers.
fn firsts(buffers: Few<&mut [u8]>, bytes: usize) -> Few<&mut [u8]> {
    let mut left = bytes;
    buffers
        .into_iter()
        .map(|buffer| {
            let part = left.min(buffer.len());
            left -= part;
            &mut buffer[..part]
        })
        .collect()
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
            let request = self.in_flight.swap_remove(index);
            let is_short = self.rng.one_in(SHORT_ONE_IN);
            let ended = if is_short { self.perform_short(request) } else { perform(&*self.disk, request) };
            completed.push(ended);
        }
    }

    fn reap_or_bell(&mut self, completed: &mut Vec<Completed>, _timeout_ns: Option<u64>) {
        if !self.rng.one_in(RUNG_ONE_IN) {
            self.reap(completed);
        }
    }
}
