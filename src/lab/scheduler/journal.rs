//! An append-only file of frames: the scheduler's log and its manifest are such files.
//!
//! This module does not know the meaning of a frame's body.
//!
//! ```text
//! offset size type  name: meaning (little-endian)
//! 0      4096       header (format::header, kind lab)
//! 4096              frames, one after another:
//! +0     4    u32   length of the body, in bytes; never 0
//! +4     4    u32   checksum: of the length and the body under (the file's uid, the frame's offset, a tag)
//! +8                body
//! ```
//! Invariants: 1. reading ends at the first incomplete frame; 2. only the process that made a file appends to
//! it, so that no frame from before a crash follows one from after it.

use crate::base::checksum::Context;
use crate::base::error::Result;
use crate::base::id::{FileKind, FileName};
use crate::base::sync::Arc;
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::io::storage::{Storage, read_whole};

/// Bytes before a frame's body.
const FRAME_BYTES: usize = 8;
/// Bytes that collect before a write.
const PENDING_BYTES: usize = 64 << 10;

/// A journal open for appends; see the module.
pub(super) struct Journal {
    storage: Arc<dyn Storage>,
    file: FileName,
    uid: u64,
    tag: u8,
    pending: Vec<u8>,
    written_bytes: u64,
    is_synced: bool,
    is_name_durable: bool,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Journal({}, {} bytes)", self.file, self.bytes())
    }
}

impl Journal {
    pub(super) fn create(
        storage: Arc<dyn Storage>,
        file: FileName,
        tag: u8,
        (store_id, uid): (u128, u64),
    ) -> Result<Journal> {
        let header = FileHeader { kind: FileKind::Lab, store_id, uid, features: 0 };
        storage.create(file)?;
        let mut journal = Journal {
            storage,
            file,
            uid,
            tag,
            pending: header.encode(),
            written_bytes: 0,
            is_synced: false,
            is_name_durable: false,
        };
        journal.write()?;
        Ok(journal)
    }

    /// A placeholder until the first file is made; nothing is appended to it.
    pub(super) fn none(storage: Arc<dyn Storage>) -> Journal {
        let file = FileName::LOCK;
        let pending = Vec::new();
        Journal {
            storage,
            file,
            uid: 0,
            tag: 0,
            pending,
            written_bytes: 0,
            is_synced: true,
            is_name_durable: true,
        }
    }

    /// Length of the file once all pending bytes are written.
    pub(super) fn bytes(&self) -> u64 {
        self.written_bytes + self.pending.len() as u64
    }

    /// Renames the file.
    pub(super) fn rename(&mut self, file: FileName) -> Result<()> {
        self.storage.rename(self.file, file)?;
        self.file = file;
        Ok(())
    }

    /// Appends a frame, whose body is given in parts.
    pub(super) fn append(&mut self, body: &[&[u8]]) -> Result<()> {
        let length = (body.iter().map(|part| part.len()).sum::<usize>() as u32).to_le_bytes();
        let context = Context { file_uid: self.uid, offset: self.bytes(), tag: self.tag };
        let parts: Vec<&[u8]> = std::iter::once(&length[..]).chain(body.iter().copied()).collect();
        let checksum = context.checksum(&parts);
        self.pending.extend_from_slice(&length);
        self.pending.extend_from_slice(&checksum.to_le_bytes());
        body.iter().for_each(|part| self.pending.extend_from_slice(part));
        if self.pending.len() >= PENDING_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.storage.write(self.file, self.written_bytes, &self.pending)?;
        self.written_bytes += self.pending.len() as u64;
        self.pending.clear();
        self.is_synced = false;
        Ok(())
    }

    /// Makes all appended frames and the file's name durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.write()?;
        }
        if !self.is_synced {
            self.storage.sync(self.file)?;
            self.is_synced = true;
        }
        if !self.is_name_durable {
            self.storage.sync_directory()?;
            self.is_name_durable = true;
        }
        Ok(())
    }
}

/// The frames of a file.
pub(super) struct JournalFrames {
    pub(super) header: FileHeader,
    tag: u8,
    bytes: Vec<u8>,
    /// Start and end of each body.
    bodies: Vec<(usize, usize)>,
}

impl JournalFrames {
    /// Reads a file up to its last whole frame.
    ///
    /// # Errors
    /// `Corrupt` if the header is not whole.
    pub(super) fn read(storage: &dyn Storage, file: FileName, tag: u8) -> Result<JournalFrames> {
        let bytes = read_whole(storage, file, storage.length(file)?.unwrap_or(0))?;
        let header = FileHeader::decode(file, &bytes, FileKind::Lab)?;
        let mut bodies = Vec::new();
        let mut at = PAGE_BYTES;
        while let Some(end) = whole_frame(&bytes, at, header.uid, tag) {
            bodies.push((at + FRAME_BYTES, end));
            at = end;
        }
        Ok(JournalFrames { header, tag, bytes, bodies })
    }

    /// Bodies with their offsets.
    pub(super) fn bodies(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.bodies.iter().map(|(start, end)| (*start as u64, &self.bytes[*start..*end]))
    }

    /// Whether a whole frame follows the end, at any offset. If each frame was durable before the next, such
    /// a frame shows damage before it.
    pub(super) fn has_frame_behind(&self) -> bool {
        let end = self.end() as usize;
        (end + 1..self.bytes.len())
            .any(|at| whole_frame(&self.bytes, at, self.header.uid, self.tag).is_some())
    }

    /// End of the last whole frame.
    pub(super) fn end(&self) -> u64 {
        self.bodies.last().map_or(PAGE_BYTES, |(_, end)| *end) as u64
    }
}

/// The end of the frame at `at`, if the frame is whole.
fn whole_frame(bytes: &[u8], at: usize, uid: u64, tag: u8) -> Option<usize> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
    let length = word(at)? as usize;
    let end = (at + FRAME_BYTES).checked_add(length)?;
    let body = bytes.get(at + FRAME_BYTES..end).filter(|body| !body.is_empty())?;
    let context = Context { file_uid: uid, offset: at as u64, tag };
    (context.checksum(&[&(length as u32).to_le_bytes(), body]) == word(at + 4)?).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::SimDisk;
    use crate::lab::pages::array_name;

    /// Frames read back; a file cut at any byte, or with any bit flipped, ends before that frame.
    #[test]
    fn torn_frames_end_the_file() {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("an empty disk");
        let file = array_name(5);
        let mut journal = Journal::create(disk.clone(), file, 9, (7, 55)).expect("room");
        let ends: Vec<usize> = (1..=6u8)
            .map(|number| {
                journal.append(&[&[number; 3], &vec![number; usize::from(number)]]).expect("room");
                journal.bytes() as usize
            })
            .collect();
        journal.sync().expect("room");
        let good = disk.contents(file).expect("it is there");
        let read = || {
            let frames = JournalFrames::read(&*disk, file, 9).expect("a whole header");
            (frames.bodies().count(), frames.end() as usize)
        };
        assert_eq!(read(), (6, good.len()));
        assert_eq!(
            JournalFrames::read(&*disk, file, 8).expect("a whole header").bodies().count(),
            0,
            "another tag"
        );
        for at in PAGE_BYTES..good.len() {
            let whole = ends.iter().filter(|end| **end <= at).count();
            let expected = (whole, if whole == 0 { PAGE_BYTES } else { ends[whole - 1] });
            disk.set_contents(file, Some(&good[..at]));
            assert_eq!(read(), expected, "cut at {at}");
            let mut flipped = good.clone();
            flipped[at] ^= 1 << (at % 8);
            disk.set_contents(file, Some(&flipped));
            assert_eq!(read(), expected, "flipped at {at}");
        }
        let mut flipped = good.clone();
        flipped[ends[3] + FRAME_BYTES] ^= 1;
        for (bytes, is_behind) in [(&flipped[..], true), (&flipped[..ends[4] + 9], false), (&good[..], false)]
        {
            disk.set_contents(file, Some(bytes));
            let frames = JournalFrames::read(&*disk, file, 9).expect("a whole header");
            assert_eq!(frames.has_frame_behind(), is_behind);
        }
        disk.set_contents(file, Some(&good[..PAGE_BYTES - 1]));
        assert!(JournalFrames::read(&*disk, file, 9).is_err());
    }
}
