//! A temporary directory that is removed with its owner.

use std::path::{Path, PathBuf};

/// The temporary directory; see the module.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates an empty directory for this process.
    pub(crate) fn new(name: &str) -> Result<Scratch, String> {
        let path = std::env::temp_dir().join(format!("trine-{name}-{}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Scratch { path }),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{}: {error}", self.path.display());
        }
    }
}
