//! How a store is opened, and the operating-system environment that its settings ask for.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::settings::StoreSettings;
use crate::io::env::Env;
use crate::io::os::{DirectIo, FileUse, ReadWith};

use super::budget::Budget;

/// How a store is opened.
#[derive(Clone, Debug)]
pub(crate) struct OpenOptions {
    pub(crate) settings: StoreSettings,
    pub(crate) mode: OpenMode,
    pub(crate) budget: Budget,
    /// The hash secret of a new store; `None` draws a random one.
    pub(crate) hash_secret: Option<[u8; 16]>,
}

impl OpenOptions {
    pub(crate) fn new(settings: StoreSettings, mode: OpenMode) -> OpenOptions {
        let budget = Budget::divide(settings.memory_bytes);
        OpenOptions { settings, mode, budget, hash_secret: None }
    }
}

/// The access that the opener asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenMode {
    /// Creates the store if there is none; reads and writes.
    CreateIfMissing,
    /// Creates the store and fails if there is one; reads and writes.
    CreateNew,
    /// Opens an existing store; reads and writes.
    Existing,
    /// Opens an existing store and writes nothing.
    ReadOnly,
}

impl OpenMode {
    /// Whether this mode creates a missing store.
    pub(crate) fn makes(self) -> bool {
        matches!(self, OpenMode::CreateIfMissing | OpenMode::CreateNew)
    }
}

impl StoreSettings {
    /// The operating-system environment for a store in `path` with these settings.
    pub(crate) fn env(&self, path: &Path) -> Result<Env> {
        let direct_io = if self.direct_io == 1 { DirectIo::WhereSupported } else { DirectIo::Off };
        let read_with = self.read_with(cfg!(feature = "lab"))?;
        let (open_files_max, maps_logs) = (self.open_files_max as usize, self.map_log == 1);
        Env::os(path, FileUse { direct_io, open_files_max, read_with, maps_logs })
    }

    pub(super) fn read_with(&self, has_lab: bool) -> Result<ReadWith> {
        Ok(match self.io {
            1 => ReadWith::Plain,
            2 => ReadWith::Ring,
            3 => ReadWith::Pool,
            4 if has_lab => ReadWith::RingPoll,
            4 => {
                let fault =
                    "the setting \"io\" is \"ring_poll\": only for experiments, with the feature \"lab\"";
                return Err(Error::Invalid { faults: vec![fault.to_owned()] });
            }
            _ => ReadWith::Auto,
        })
    }
}
