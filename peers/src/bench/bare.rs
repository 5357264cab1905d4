//! Bare reads of the device through a store's interface: the cost of a get that reads a page, without a
//! store.

use std::fs::File;
use std::path::PathBuf;

use trine_workload::direct::{self, Aligned, Mode};
use trine_workload::probe::{self, PAGE_BYTES};
use xxhash_rust::xxh3::xxh3_64;

use super::engines::{Changes, Compacted, Counts, Engine, Found, Look, Reader, Sees, Values};
use crate::engines::{Answer, told};

/// A file to read, removed on drop.
pub(super) struct Bare {
    file: File,
    path: PathBuf,
    mode: Mode,
    pages: u64,
}

impl Bare {
    /// Writes the file, in place of one that an earlier run left.
    pub(super) fn new(path: PathBuf, bytes: u64, seed: u64) -> Answer<Bare> {
        if path.exists() {
            std::fs::remove_file(&path).map_err(told)?;
        }
        let (file, mode) = direct::create(&path).map_err(told)?;
        let mut bare = Bare { file, path, mode, pages: 0 };
        probe::write_all(&bare.file, bytes, seed).map_err(told)?;
        // The file has whole extents only.
        bare.pages = bare.file.metadata().map_err(told)?.len() / PAGE_BYTES as u64;
        Ok(bare)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // A file that cannot be removed stays in the folder of the stores, and the next run replaces it.
        let _ = std::fs::remove_file(&self.path);
    }
}

struct BareReader<'a> {
    bare: &'a Bare,
    buffer: Aligned,
}

fn refused<T>() -> Answer<T> {
    Err("bare reads answer gets alone".to_owned())
}

impl Engine for Bare {
    fn put(&self, _: &[u8], _: &[u8]) -> Answer<()> {
        refused()
    }

    fn write(&self, _: &Changes) -> Answer<()> {
        refused()
    }

    fn reader(&self, _: Sees) -> Answer<Box<dyn Reader + '_>> {
        Ok(Box::new(BareReader { bare: self, buffer: Aligned::new(PAGE_BYTES) }))
    }

    fn settle(&self) -> Answer<()> {
        Ok(())
    }

    fn compact(&mut self) -> Answer<Compacted> {
        Ok(Compacted::No)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        None
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn lacks(&self, _: bool) -> Vec<String> {
        let refused = "direct requests are refused here: these are reads of the page cache".to_owned();
        (self.mode == Mode::Buffered).then_some(refused).into_iter().collect()
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}

impl Reader for BareReader<'_> {
    /// Reads the page that the key's hash selects.
    fn get(&mut self, key: &[u8], _: &mut Vec<u8>) -> Answer<Found> {
        let offset = xxh3_64(key) % self.bare.pages * PAGE_BYTES as u64;
        direct::read_at(&self.bare.file, self.buffer.bytes(), offset).map_err(told)?;
        Ok(Found::Unasked)
    }

    fn multi_get(&mut self, _: &[Vec<u8>], _: &mut Values) -> Answer<()> {
        refused()
    }

    fn scan(&mut self, _: &[u8], _: u64, _: &mut Look<'_>) -> Answer<Option<u64>> {
        refused()
    }

    fn scan_owned(&mut self, _: &[u8], _: u64, _: &mut Look<'_>) -> Answer<Option<u64>> {
        refused()
    }

    fn all(&mut self, _: &mut Look<'_>) -> Answer<Option<u64>> {
        refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gets read pages of the file by key, no other request is answered, and the file is removed on drop.
    #[test]
    fn gets_are_reads() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("bare");
        std::fs::write(&path, "of a run before").expect("it is written");
        let bare = Bare::new(path.clone(), (2 << 20) - 1, 1).expect("it is made");
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 1 << 20);
        let mut reader = bare.reader(Sees::Still).expect("it is made");
        let mut value = Vec::new();
        for number in 0..1000_u32 {
            assert_eq!(reader.get(&number.to_le_bytes(), &mut value), Ok(Found::Unasked));
        }
        assert!(reader.all(&mut |_, _| ()).is_err() && bare.put(b"key", b"value").is_err());
        bare.file.set_len(0).expect("it is cut");
        assert!(reader.get(b"key", &mut value).is_err());
        drop(reader);
        drop(bare);
        assert!(!path.exists());
    }
}
