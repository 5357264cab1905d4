//! Replacement of a region's words in models, since loom's atomics are no plain memory. It has a word of each
//! width at each place where one may begin. A mark for each entry detects reads of its bytes before or during
//! their write.

use crate::base::sync::{AtomicU32, AtomicU64, Tracked};

use super::Offset;

#[derive(Debug)]
pub(super) struct ArenaModel {
    words: Vec<AtomicU64>,
    halves: Vec<AtomicU32>,
    entries: Vec<Tracked>,
}

impl ArenaModel {
    pub(super) fn new(bytes: usize) -> ArenaModel {
        ArenaModel {
            words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect(),
            halves: (0..bytes / 4).map(|_| AtomicU32::new(0)).collect(),
            entries: (0..bytes / 8).map(|_| Tracked::new()).collect(),
        }
    }

    pub(super) fn words(&self, at: Offset, count: usize) -> &[AtomicU64] {
        &self.words[at as usize / 8..][..count]
    }

    pub(super) fn halves(&self, at: Offset, count: usize) -> &[AtomicU32] {
        &self.halves[at as usize / 4..][..count]
    }

    #[track_caller]
    pub(super) fn read_entry(&self, at: Offset) {
        self.entries[at as usize / 8].read();
    }

    #[track_caller]
    pub(super) fn write_entry(&self, at: Offset) {
        self.entries[at as usize / 8].write();
    }
}
