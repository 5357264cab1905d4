//! The usual length and direction of a keyspace's ranges: those of the last range, as a hint for the next
//! one. The hint changes no answer. Any thread; written only when it changes.

use crate::base::step::Direction;
use crate::base::sync::{AtomicU8, Ordering};

const LONG: u8 = 1;
const BACKWARD: u8 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Usual(AtomicU8);

impl Usual {
    pub(crate) fn new() -> Usual {
        Usual(AtomicU8::new(0))
    }

    /// Whether more items are taken than are read at once.
    pub(crate) fn is_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LONG != 0
    }

    /// The end from which items are taken.
    pub(crate) fn direction(&self) -> Direction {
        match self.0.load(Ordering::Relaxed) & BACKWARD {
            0 => Direction::Forward,
            _ => Direction::Backward,
        }
    }

    pub(crate) fn learn(&self, is_long: bool, direction: Direction) {
        let backward = if direction == Direction::Backward { BACKWARD } else { 0 };
        let usual = backward | if is_long { LONG } else { 0 };
        if self.0.load(Ordering::Relaxed) != usual {
            self.0.store(usual, Ordering::Relaxed);
        }
    }
}
