//! One simulated file: its durable bytes, the bytes a reader sees, and the writes between the two.
//!
//! An inode has no name; a directory of `disk` gives it names. Plain data, no locks. Choices come from the
//! generator passed in.
//!
//! 1. `sync` makes the bytes a reader sees durable, except pages that a failed sync lost and that were not
//!    written again.
//! 2. After a power cut a page with unsynced writes holds its durable bytes with a prefix of those writes
//!    applied; the next write may be applied in part. Bytes that no unsynced write touched stay. Past the
//!    durable length any bytes may appear.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
use xxhash_rust::xxh3::Xxh3;

use crate::base::sync::Arc;

use super::fault::FailedSync;
use super::pages::{Content, PAGE_BYTES, Page, is_zero, pieces};
use super::random::SimRng;
use super::state::PowerCut;

/// Sector: the unit in which a device writes, in bytes. In the worst case even a sector is written in part.
const SECTOR_BYTES: usize = 512;

/// A write, or its part within one page.
#[derive(Clone, Debug)]
struct PageWrite {
    start: usize,
    bytes: WriteBytes,
}

#[derive(Clone, Debug)]
enum WriteBytes {
    Zeros(usize),
    Some(Arc<[u8]>),
}

impl PageWrite {
    fn new(start: usize, bytes: &[u8]) -> PageWrite {
        let bytes =
            if is_zero(bytes) { WriteBytes::Zeros(bytes.len()) } else { WriteBytes::Some(bytes.into()) };
        PageWrite { start, bytes }
    }

    fn bytes(&self) -> &[u8] {
        static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        match &self.bytes {
            WriteBytes::Zeros(count) => &ZEROS[..*count],
            WriteBytes::Some(bytes) => bytes,
        }
    }
}

/// The effect of a power cut on one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Lost,
    Kept,
    Independent,
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Inode {
    now: Content,
    durable: Content,
    /// Unsynced writes by page, in the order written.
    unsynced: BTreeMap<u64, Vec<PageWrite>>,
    /// Lengths the file grew to since its last sync.
    unsynced_lengths: Vec<u64>,
    /// Pages that are clean in the simulated page cache but never reached the disk.
    lost: BTreeSet<u64>,
    /// Punched pages, which take no space until they are written again. A power cut forgets them.
    holes: BTreeSet<u64>,
    is_poisoned: bool,
}

impl Inode {
    /// A file whose bytes are durable.
    pub(super) fn durable(bytes: &[u8]) -> Inode {
        let mut inode = Inode::default();
        inode.write(0, bytes);
        inode.sync();
        inode
    }

    pub(super) fn length(&self) -> u64 {
        self.now.length()
    }

    /// Space that the file takes on the disk.
    pub(super) fn held_bytes(&self) -> u64 {
        self.length() - (self.holes.len() * PAGE_BYTES) as u64
    }

    /// Makes the pages zeros that take no space.
    pub(super) fn punch_hole(&mut self, pages: std::ops::Range<u64>) {
        for page in pages {
            self.write(page * PAGE_BYTES as u64, &[0; PAGE_BYTES]);
            self.holes.insert(page);
        }
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        self.now.read(offset, buffer)
    }

    /// Pages that a device may still hold after the file is removed.
    pub(super) fn pages(&self) -> impl Iterator<Item = &Page> {
        self.now.pages()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// The process that saw the sync fail has ended.
    pub(super) fn forget_poison(&mut self) {
        self.is_poisoned = false;
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let bytes = &bytes[piece.range];
            self.holes.remove(&piece.page);
            self.now.write(piece.page, piece.start, bytes);
            let write = if self.lost.remove(&piece.page) {
                // The whole page is dirty again, including the bytes that a failed sync lost.
                PageWrite::new(0, self.now.page_bytes(piece.page))
            } else {
                PageWrite::new(piece.start, bytes)
            };
            self.unsynced.entry(piece.page).or_default().push(write);
        }
        let end = offset + bytes.len() as u64;
        if !bytes.is_empty() && end > self.now.length() {
            self.now.grow(end);
            self.unsynced_lengths.push(end);
        }
    }

    pub(super) fn sync(&mut self) {
        for page in std::mem::take(&mut self.unsynced).into_keys() {
            self.durable.copy_page(page, &self.now);
        }
        self.durable.grow(self.now.length());
        self.unsynced_lengths.clear();
    }

    /// A sync that fails: some pages reach the disk, the others are marked clean without reaching it.
    pub(super) fn fail_sync(&mut self, variant: FailedSync, rng: &mut SimRng) {
        self.is_poisoned = true;
        for page in std::mem::take(&mut self.unsynced).into_keys() {
            match variant {
                _ if rng.one_in(2) => self.durable.copy_page(page, &self.now),
                FailedSync::Readable => {
                    self.lost.insert(page);
                }
                FailedSync::Reverted => self.now.copy_page(page, &self.durable),
            }
        }
    }

    /// Whether a power cut would change no bytes of the file.
    pub(super) fn is_durable(&self) -> bool {
        self.unsynced.is_empty() && self.unsynced_lengths.is_empty() && self.lost.is_empty()
    }

    /// Adds the bytes a reader sees to a checksum.
    #[cfg(test)]
    pub(super) fn add_to(&self, sum: &mut Xxh3) {
        self.now.add_to(sum);
    }

    /// Reduces the file to its state after a power cut. `stale` are pages of removed files.
    pub(super) fn cut_power(&mut self, cut: PowerCut, rng: &mut SimRng, stale: &[Page]) {
        let length = match rng.below(4) {
            _ if cut != PowerCut::Any => self.now.length(),
            0 => self.durable.length(),
            1 if !self.unsynced_lengths.is_empty() => {
                self.unsynced_lengths[rng.index(self.unsynced_lengths.len())]
            }
            _ => self.now.length(),
        };
        let grown_from = self.durable.length();
        let fate = match (cut, rng.below(4)) {
            (PowerCut::Stale, _) | (PowerCut::Any, 0) => Fate::Lost,
            (PowerCut::Names, _) | (PowerCut::Any, 1) => Fate::Kept,
            _ => Fate::Independent,
        };
        for (page, writes) in std::mem::take(&mut self.unsynced) {
            let fate = match (fate, rng.below(4)) {
                (Fate::Independent, 0 | 1) if cut == PowerCut::Pages => Fate::Lost,
                (Fate::Independent, _) if cut == PowerCut::Pages => Fate::Kept,
                (Fate::Independent, 0) if cut == PowerCut::Any => Fate::Lost,
                (Fate::Independent, 1) if cut == PowerCut::Any => Fate::Kept,
                (fate, _) => fate,
            };
            // The number of writes that are applied whole, and the write that is applied in part.
            let whole_count = match fate {
                Fate::Lost => 0,
                Fate::Kept => writes.len(),
                Fate::Independent => rng.index(writes.len() + 1),
            };
            let is_torn = fate == Fate::Independent && (cut == PowerCut::Torn || rng.one_in(2));
            let torn = writes.get(whole_count).filter(|_| is_torn);
            if fate == Fate::Lost || torn.is_some() {
                self.lay_stale(page, grown_from, rng, stale);
            }
            for write in &writes[..whole_count] {
                self.durable.write(page, write.start, write.bytes());
            }
            if let Some(write) = torn {
                tear(&mut self.durable, page, write, rng);
            }
        }
        self.durable.set_length(length);
        *self = Inode {
            now: self.durable.clone(),
            durable: std::mem::take(&mut self.durable),
            ..Inode::default()
        };
    }

    /// Past the durable length, the length may have grown before the data: zeros, noise or a removed file's
    /// bytes.
    fn lay_stale(&mut self, page: u64, grown_from: u64, rng: &mut SimRng, stale: &[Page]) {
        let start = grown_from.saturating_sub(page * PAGE_BYTES as u64);
        if start >= PAGE_BYTES as u64 {
            return;
        }
        let start = start as usize;
        match rng.below(3) {
            0 => {
                let mut noise = [0; PAGE_BYTES];
                rng.fill(&mut noise);
                self.durable.write(page, start, &noise[start..]);
            }
            1 if !stale.is_empty() => {
                let old = &stale[rng.index(stale.len())];
                self.durable.write(page, start, &old[start..]);
            }
            _ => {}
        }
    }
}

/// Applies part of one write: its first or last bytes, or some of its sectors.
fn tear(content: &mut Content, page: u64, write: &PageWrite, rng: &mut SimRng) {
    let bytes = write.bytes();
    let cut = rng.index(bytes.len() + 1);
    match rng.below(3) {
        0 => content.write(page, write.start, &bytes[..cut]),
        1 => content.write(page, write.start + cut, &bytes[cut..]),
        _ => {
            let mut done_bytes = 0;
            while done_bytes < bytes.len() {
                let at = write.start + done_bytes;
                let sector_bytes = (SECTOR_BYTES - at % SECTOR_BYTES).min(bytes.len() - done_bytes);
                if rng.one_in(2) {
                    content.write(page, at, &bytes[done_bytes..done_bytes + sector_bytes]);
                }
                done_bytes += sector_bytes;
            }
        }
    }
}
