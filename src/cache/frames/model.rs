//! Replacements of the region's slots and headers in models, since loom's atomics are no plain memory. A mark
//! for each frame detects reads of its bytes beside a write.

use crate::base::sync::{AtomicU8, AtomicU32, AtomicU64, Tracked};

use super::{FramePlan, Header, SLOTS_PER_FRAME};

pub(super) struct FramesModel {
    slots: Vec<AtomicU64>,
    headers: Vec<Header>,
    bytes: Vec<Tracked>,
}

impl FramesModel {
    pub(super) fn new(plan: &FramePlan) -> FramesModel {
        let header = |_| Header {
            file: AtomicU64::new(0),
            at: AtomicU64::new(0),
            start_bytes: AtomicU64::new(0),
            state: AtomicU32::new(0),
            units: AtomicU8::new(0),
            stored_units: AtomicU8::new(0),
            hit: AtomicU8::new(0),
        };
        FramesModel {
            slots: (0..plan.frame_count * SLOTS_PER_FRAME).map(|_| AtomicU64::new(0)).collect(),
            headers: (0..plan.frame_count).map(header).collect(),
            bytes: (0..plan.frame_count).map(|_| Tracked::new()).collect(),
        }
    }

    pub(super) fn slots(&self) -> &[AtomicU64] {
        &self.slots
    }

    pub(super) fn headers(&self) -> &[Header] {
        &self.headers
    }

    #[track_caller]
    pub(super) fn read_bytes(&self, frame: u32) {
        self.bytes[frame as usize].read();
    }

    #[track_caller]
    pub(super) fn write_bytes(&self, frame: u32) {
        self.bytes[frame as usize].write();
    }
}
