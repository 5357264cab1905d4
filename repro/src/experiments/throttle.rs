//! Limits this process to a number of reads, or of written bytes, a second of a device, while a value lives.
//! It uses the kernel's control groups (version 1, `blkio`) and needs root. Written bytes are those of direct
//! writes and of syncs; the writeback of unsynced writes counts as the kernel's own.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup/blkio";

/// The limited quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    ReadsASecond(u64),
    WriteBytesASecond(u64),
}

impl Limit {
    /// The file of the control group, and its number.
    fn rule(self) -> (&'static str, u64) {
        match self {
            Limit::ReadsASecond(reads) => ("blkio.throttle.read_iops_device", reads),
            Limit::WriteBytesASecond(bytes) => ("blkio.throttle.write_bps_device", bytes),
        }
    }
}

/// An active limit; dropping it ends the limit.
pub(super) struct Throttle {
    group: PathBuf,
}

impl Throttle {
    /// Limits the device of `directory`.
    ///
    /// # Errors
    /// The reason why this is not possible here, in words.
    pub(super) fn of(directory: &Path, limit: Limit) -> Result<Throttle, String> {
        let said = |what: &str| {
            let what = what.to_string();
            move |error: std::io::Error| format!("{what}: {error}")
        };
        let status = rustix::fs::stat(directory).map_err(std::io::Error::from);
        let device = whole_device(status.map_err(said("the store's directory"))?.st_dev);
        let group = Path::new(ROOT).join(format!("trine-repro-{}", std::process::id()));
        fs::create_dir(&group).map_err(said("no control group of version 1 for devices"))?;
        let throttle = Throttle { group };
        let (file, number) = limit.rule();
        fs::write(throttle.group.join(file), format!("{device} {number}"))
            .map_err(said("the device takes no limit"))?;
        fs::write(throttle.group.join("cgroup.procs"), std::process::id().to_string())
            .map_err(said("this process cannot be moved"))?;
        Ok(throttle)
    }
}

/// The numbers of the whole disk, of which the device may be a partition.
pub(super) fn whole_device(device: rustix::fs::Dev) -> String {
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let link = fs::canonicalize(format!("/sys/dev/block/{numbers}"));
    let part = link.ok().filter(|path| path.join("partition").exists());
    let whole = part.and_then(|path| fs::read_to_string(path.parent()?.join("dev")).ok());
    whole.map_or(numbers, |whole| whole.trim().to_string())
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Moves the process back to the root group. Only an empty group can be removed; errors are ignored.
        drop(fs::write(Path::new(ROOT).join("cgroup.procs"), std::process::id().to_string()));
        drop(fs::remove_dir(&self.group));
    }
}
