//! A store's directory in memory: every file with its bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::engines::{Answer, told};

pub(super) const PAGE_BYTES: usize = 4096;

/// Files by their path in the directory, and the directory's folders.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    folders: Vec<String>,
}

impl Image {
    pub(super) fn read(directory: &Path) -> Answer<Image> {
        let mut image = Image::default();
        image.read_folder(directory, "")?;
        Ok(image)
    }

    fn read_folder(&mut self, directory: &Path, folder: &str) -> Answer<()> {
        for entry in fs::read_dir(directory.join(folder)).map_err(told)? {
            let entry = entry.map_err(told)?;
            let name = entry.file_name().into_string().map_err(|name| format!("{name:?} is no text"))?;
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if entry.file_type().map_err(told)?.is_dir() {
                self.folders.push(path.clone());
                self.read_folder(directory, &path)?;
            } else {
                self.files.insert(path, fs::read(entry.path()).map_err(told)?);
            }
        }
        Ok(())
    }

    /// Replaces the directory by these files. `changed` names one file and its other bytes; with `None` the
    /// file is left out.
    pub(super) fn write(&self, directory: &Path, changed: Option<(&str, Option<&[u8]>)>) -> Answer<()> {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(told)?;
        }
        fs::create_dir_all(directory).map_err(told)?;
        for folder in &self.folders {
            fs::create_dir_all(directory.join(folder)).map_err(told)?;
        }
        for (path, bytes) in &self.files {
            let bytes = match changed {
                Some((name, bytes)) if name == path => bytes,
                _ => Some(bytes.as_slice()),
            };
            if let Some(bytes) = bytes {
                write_sparse(&directory.join(path), bytes).map_err(told)?;
            }
        }
        Ok(())
    }
}

/// Pages of zeros become holes: some stores allocate far more than they write.
fn write_sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for page in written_pages(bytes) {
        let end = bytes.len().min(page + PAGE_BYTES);
        file.write_all_at(&bytes[page..end], page as u64)?;
    }
    Ok(())
}

/// Offsets of the pages that are not all zeros.
pub(super) fn written_pages(bytes: &[u8]) -> Vec<usize> {
    let pages = bytes.chunks(PAGE_BYTES).enumerate();
    pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0)).map(|(at, _)| at * PAGE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written files are read back, with holes and in folders, and a changed file has its new bytes or is
    /// gone.
    #[test]
    fn images_come_back() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut bytes = vec![0; 3 * PAGE_BYTES + 5];
        bytes[PAGE_BYTES] = 7;
        let mut image = Image { folders: vec!["a".into(), "a/b".into()], ..Image::default() };
        image.files.insert("a/b/c".into(), bytes.clone());
        image.files.insert("d".into(), b"text".to_vec());
        let data = directory.path().join("data");
        image.write(&data, None).expect("writes");
        assert_eq!(Image::read(&data).expect("reads").files, image.files);
        assert_eq!(written_pages(&bytes), [PAGE_BYTES]);
        image.write(&data, Some(("d", None))).expect("writes");
        assert!(!Image::read(&data).expect("reads").files.contains_key("d"));
        image.write(&data, Some(("d", Some(b"more")))).expect("writes");
        assert_eq!(Image::read(&data).expect("reads").files["d"], b"more");
    }
}
