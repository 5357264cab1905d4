//! Differences between unixes: direct I/O flags, syncs, hints to the page cache, the boot id.
//!
//! Linux has all of them. Elsewhere a function does the nearest equivalent or nothing. `storage` is the only
//! user; any thread may call.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use super::files::DescriptorPurpose;

/// Flags to open a file with. Reads do not update the access time, because the kernel would read the clock
/// and the stored time for each.
#[cfg(target_os = "linux")]
pub(super) fn access_flags(purpose: DescriptorPurpose) -> OFlags {
    match purpose {
        DescriptorPurpose::Buffered => OFlags::RDONLY | OFlags::NOATIME,
        DescriptorPurpose::Write => OFlags::RDWR,
        DescriptorPurpose::Direct => OFlags::RDONLY | OFlags::NOATIME | OFlags::DIRECT,
    }
}

/// Flags to open a file with.
#[cfg(not(target_os = "linux"))]
pub(super) fn access_flags(purpose: DescriptorPurpose) -> OFlags {
    match purpose {
        DescriptorPurpose::Buffered | DescriptorPurpose::Direct => OFlags::RDONLY,
        DescriptorPurpose::Write => OFlags::RDWR,
    }
}

/// Makes data and length of a file durable.
#[cfg(target_vendor = "apple")]
pub(super) fn sync_data(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::fcntl_fullfsync(descriptor)
}

/// Makes data and length of a file durable.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn sync_data(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::fdatasync(descriptor)
}

/// Returns a part of a file to the file system; the file's length stays.
#[cfg(target_os = "linux")]
pub(super) fn punch_hole(descriptor: &OwnedFd, offset: u64, bytes: u64) -> rustix::io::Result<()> {
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(descriptor, flags, offset, bytes)
}

/// Returns a part of a file to the file system; the file's length stays.
#[cfg(not(target_os = "linux"))]
pub(super) fn punch_hole(_: &OwnedFd, _offset: u64, _bytes: u64) -> rustix::io::Result<()> {
    Err(rustix::io::Errno::OPNOTSUPP)
}

/// Makes everything on the file system of `directory` durable.
#[cfg(target_os = "linux")]
pub(super) fn sync_file_system(directory: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::syncfs(directory)
}

/// The nearest equivalent on this system to syncing a file system: it starts writing all dirty data.
#[cfg(not(target_os = "linux"))]
pub(super) fn sync_file_system(_directory: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

/// The kernel's id of this boot: 32 hex digits and dashes.
pub(super) fn read_boot_id() -> Option<u128> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open("/proc/sys/kernel/random/boot_id", flags, Mode::empty()).ok()?;
    let mut text = [0; 64];
    let bytes = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
    parse_boot_id(text.get(..bytes)?)
}

fn parse_boot_id(text: &[u8]) -> Option<u128> {
    let digits = std::str::from_utf8(text).ok()?.trim().replace('-', "");
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok()
}

/// Hints about the page cache. A failed hint never fails its caller.
#[cfg(target_os = "linux")]
pub(super) mod advice {
    use std::num::NonZeroU64;
    use std::os::fd::OwnedFd;

    use rustix::fs::{Advice, fadvise};

    /// Disables read-ahead, because blocks are read one by one.
    pub(in crate::io::os) fn will_read_anywhere(descriptor: &OwnedFd) {
        // A hint: reads work without it.
        let _ = fadvise(descriptor, 0, None, Advice::Random);
    }

    /// Drops the clean pages of the range and starts to write the dirty ones without waiting, as
    /// `sync_file_range(SYNC_FILE_RANGE_WRITE)` would. 0 bytes: to the end of the file.
    pub(in crate::io::os) fn will_not_read(descriptor: &OwnedFd, offset: u64, bytes: u64) {
        // A hint: without it the kernel writes the pages later.
        let _ = fadvise(descriptor, offset, NonZeroU64::new(bytes), Advice::DontNeed);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) mod advice {
    use std::os::fd::OwnedFd;

    pub(in crate::io::os) fn will_read_anywhere(_descriptor: &OwnedFd) {}

    pub(in crate::io::os) fn will_not_read(_descriptor: &OwnedFd, _offset: u64, _bytes: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A boot id is 32 hex digits; any other text is refused.
    #[test]
    fn boot_ids_are_parsed() {
        let text = b"6f1c2a34-0000-4abc-8def-0123456789ab\n";
        assert_eq!(parse_boot_id(text), Some(0x6f1c2a34_0000_4abc_8def_0123456789ab));
        for bad in [&b""[..], b"6f1c2a34", b"+f1c2a34-0000-4abc-8def-0123456789ab", b"\xff"] {
            assert_eq!(parse_boot_id(bad), None);
        }
        assert_eq!(read_boot_id().is_some(), cfg!(target_os = "linux"));
    }
}
