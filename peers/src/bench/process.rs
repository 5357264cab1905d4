//! The kernel's figures of this process and of a directory.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use rustix::time::{ClockId, clock_gettime};

use crate::engines::{Answer, told};

/// Resources used since the process began.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Spent {
    pub(super) cpu_ns: u64,
    /// Bytes read from devices, with the page cache's reads for this process.
    pub(super) read_bytes: Option<u64>,
    /// Bytes written to devices, or made dirty in the page cache.
    pub(super) write_bytes: Option<u64>,
}

pub(super) fn spent() -> Spent {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let count = |name| io.lines().find_map(|line: &str| line.strip_prefix(name)?.trim().parse().ok());
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_ns = u64::try_from(cpu.tv_sec).unwrap_or(0) * 1_000_000_000;
    Spent {
        cpu_ns: cpu_ns + u64::try_from(cpu.tv_nsec).unwrap_or(0),
        read_bytes: count("read_bytes:"),
        write_bytes: count("write_bytes:"),
    }
}

/// Resident memory of this process, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Memory {
    pub(super) anonymous: u64,
    /// Mapped pages of files.
    pub(super) file: u64,
    /// The greatest sum of both so far.
    pub(super) peak: u64,
}

impl Memory {
    pub(super) fn now() -> Memory {
        Memory::of(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn of(status: &str) -> Memory {
        let bytes = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
        };
        let bytes = |name| bytes(name).unwrap_or(0);
        Memory { anonymous: bytes("RssAnon:"), file: bytes("RssFile:"), peak: bytes("VmHWM:") }
    }

    /// The greater of each figure.
    pub(super) fn or_more(self, other: Memory) -> Memory {
        Memory {
            anonymous: self.anonymous.max(other.anonymous),
            file: self.file.max(other.file),
            peak: self.peak.max(other.peak),
        }
    }
}

/// Bytes on disk of the files in a directory, by class; files without the store's data have no class.
pub(super) fn disk_bytes(
    directory: &Path,
    class: fn(&str) -> Option<&'static str>,
) -> Answer<BTreeMap<&'static str, u64>> {
    let (mut bytes, mut rest) = (BTreeMap::new(), vec![directory.to_owned()]);
    while let Some(inside) = rest.pop() {
        for entry in std::fs::read_dir(&inside).map_err(told)? {
            let path = entry.map_err(told)?.path();
            // An open store may remove a file at any time.
            let Ok(about) = std::fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                rest.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).map_err(told)?.to_string_lossy().into_owned();
            if let Some(class) = class(&name) {
                *bytes.entry(class).or_insert(0) += about.blocks() * 512;
            }
        }
    }
    Ok(bytes)
}

/// Bytes of the directory's files in the page cache, read by any process. `None` without `fincore` of
/// util-linux, the program that asks the kernel.
pub(super) fn page_cache_bytes(directory: &Path) -> Option<u64> {
    let (mut bytes, mut rest) = (0, vec![directory.to_owned()]);
    while let Some(inside) = rest.pop() {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&inside).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() { rest.push(path) } else { files.push(path) }
        }
        if !files.is_empty() {
            let mut asked = Command::new("fincore");
            asked.args(["--bytes", "--noheadings", "--output=RES"]).args(files);
            let told = String::from_utf8(asked.output().ok()?.stdout).ok()?;
            bytes += told.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum::<u64>();
        }
    }
    Some(bytes)
}

/// Drops the files of a directory from the page cache, and no other files.
pub(super) fn forget(directory: &Path) -> Answer<()> {
    let top = std::fs::File::open(directory).map_err(told)?;
    rustix::fs::syncfs(&top).map_err(told)?;
    let mut rest = vec![directory.to_owned()];
    while let Some(inside) = rest.pop() {
        for entry in std::fs::read_dir(&inside).map_err(told)? {
            let path = entry.map_err(told)?.path();
            if path.is_dir() {
                rest.push(path);
                continue;
            }
            let file = std::fs::File::open(&path).map_err(told)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(told)?;
        }
    }
    Ok(())
}

/// Drops the page cache of the machine; the error says why it was not dropped.
pub(super) fn drop_page_cache() -> Result<(), String> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "1")
        .map_err(|error| format!("the page cache was not dropped: {error}"))
}

/// Whether this process has an io_uring.
#[cfg(feature = "rocksdb")]
pub(super) fn has_ring() -> bool {
    let links = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| link.to_string_lossy().contains("io_uring"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is read as the kernel writes it, and this process has some.
    #[test]
    fn memory_is_read() {
        let memory = Memory::of("VmHWM:\t  4000 kB\nRssAnon:\t     120 kB\nRssFile:\t    2056 kB\n");
        assert_eq!(memory, Memory { anonymous: 120 << 10, file: 2056 << 10, peak: 4000 << 10 });
        assert!(Memory::now().anonymous > 0 && spent().cpu_ns > 0);
    }

    /// Files are counted by class, also those in folders; files without a class are not counted.
    #[test]
    fn files_are_counted_by_class() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("deep")).expect("a folder");
        for name in ["a.log", "deep/b.log", "c.table", "lock"] {
            std::fs::write(directory.path().join(name), [1; 5000]).expect("a file");
        }
        let class =
            |name: &str| name.rsplit_once('.').map(|(_, end)| if end == "log" { "log" } else { "table" });
        let bytes = disk_bytes(directory.path(), class).expect("it is read");
        assert_eq!((bytes["log"], bytes["table"], bytes.len()), (16384, 8192, 2));
        // The files have just been written and nothing has evicted them; `fincore` may be missing.
        assert!(page_cache_bytes(directory.path()).is_none_or(|bytes| bytes >= 24576));
    }
}
