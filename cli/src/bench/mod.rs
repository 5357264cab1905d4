//! The command bench: workloads by the names that users of db_bench know, in the order given.

mod device;
mod direct;

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::arguments::{self, Global, Workload};
use crate::failure::Failure;
use crate::interrupt;
use crate::screen::Screen;

/// Where the bench works; a temporary directory is removed when this is dropped.
enum Place {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn make(arguments: &arguments::Bench) -> Result<Place, Failure> {
        match &arguments.dir {
            Some(directory) => {
                make_directory(directory)?;
                Ok(Place::Given(directory.clone()))
            }
            None => {
                let directory = tempfile::Builder::new().prefix("trine-bench-").tempdir();
                Ok(Place::Temporary(directory.map_err(|source| {
                    Failure::file("create a directory in", &std::env::temp_dir(), source)
                })?))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Place::Given(directory) => directory,
            Place::Temporary(directory) => directory.path(),
        }
    }
}

fn make_directory(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|source| Failure::file("create", directory, source))
}

fn stop_if_asked() -> Result<(), Failure> {
    if interrupt::asked() { Err(Failure::Interrupted("stopped".to_string())) } else { Ok(()) }
}

pub(crate) fn run(global: &Global, arguments: arguments::Bench) -> Result<(), Failure> {
    interrupt::watch()?;
    let place = Place::make(&arguments)?;
    if let Some(directory) = &arguments.plot {
        make_directory(directory)?;
    }
    let mut measured = Vec::new();
    for workload in &arguments.workloads {
        match workload {
            Workload::Device => measured.push(device::measure(&arguments, place.path())?),
        }
    }
    if let Some(directory) = &arguments.plot {
        device::plot(&measured, directory)?;
    }
    let mut screen = Screen::new();
    if global.json {
        let workloads: Vec<_> = measured.iter().map(device::to_json).collect();
        screen.json(&json!({"workloads": workloads}))?;
    } else {
        for device in &measured {
            device::print(device, &mut screen)?;
        }
    }
    screen.finish()
}
