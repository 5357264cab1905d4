//! Figures of the operating system about this process and a directory; `None` if the system has no such
//! figure.

use std::fs;
use std::path::Path;

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Peak of the resident memory, in bytes.
pub fn resident_peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Processor time of all threads of this process.
pub fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Device I/O of this process, as the kernel counts it.
#[derive(Clone, Copy, Debug)]
pub struct KernelIo {
    /// Bytes read from devices; hits of the page cache do not count.
    pub read_bytes: u64,
}

/// The kernel's I/O counters of this process.
pub fn kernel_io() -> Option<KernelIo> {
    let counts = fs::read_to_string("/proc/self/io").ok()?;
    let count = |field| counts.lines().find_map(|line: &str| line.strip_prefix(field))?.trim().parse().ok();
    Some(KernelIo { read_bytes: count("read_bytes:")? })
}

/// Bytes on disk of the files in a directory without subdirectories.
pub fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| allocated_bytes(&metadata)).sum()
}

#[cfg(unix)]
fn allocated_bytes(metadata: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    if metadata.is_file() { metadata.blocks() * 512 } else { 0 }
}

#[cfg(not(unix))]
fn allocated_bytes(metadata: &fs::Metadata) -> u64 {
    if metadata.is_file() { metadata.len() } else { 0 }
}
