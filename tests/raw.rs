//! The system calls that the tests make directly, and all their unsafe code: memory shared with a child, the
//! shutdown of a file system, a fork.

#![expect(unsafe_code, reason = "maps a file, and makes calls that no library wraps")]

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file mapped as 64-bit words, shared by every process that maps it. The kernel keeps the words when one
/// of these processes is killed.
pub(crate) struct SharedWords {
    start: *mut AtomicU64,
    count: usize,
}

// SAFETY: atomics may be used from any thread, and the mapping lives until the drop.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `count` words of a file at least as long.
    pub(crate) fn map(file: &File, count: usize) -> SharedWords {
        assert!(file.metadata().unwrap().len() >= count as u64 * 8, "a file shorter than its mapping");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let place = std::ptr::null_mut();
        // SAFETY: no address is requested, so no existing mapping is replaced.
        let start = unsafe { mmap(place, count * 8, protection, MapFlags::SHARED, file, 0) }.unwrap();
        SharedWords { start: start.cast(), count }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `count` words long, aligned to a page, and lives as long as `self`; all
        // other users of the file use atomics too.
        unsafe { std::slice::from_raw_parts(self.start, self.count) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: this unmaps exactly the mapping made in `map`; no borrow of it outlives `self`.
        unsafe { munmap(self.start.cast(), self.count * 8) }.unwrap();
    }
}

/// Shuts down the file system of the file or directory, as a power cut would: no further write reaches its
/// device, not even its journal, and all data only in memory is lost.
///
/// # Errors
/// The kernel's error, if that file system cannot be shut down this way.
pub(crate) fn end_file_system(file: &File) -> io::Result<()> {
    const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);
    const WITHOUT_THE_LOG: u32 = 2;
    // SAFETY: this call takes a pointer to a `u32`, as defined in `include/uapi/linux/fs.h`.
    unsafe {
        let call = rustix::ioctl::Setter::<SHUTDOWN, u32>::new(WITHOUT_THE_LOG);
        rustix::ioctl::ioctl(file, call)?;
    }
    Ok(())
}

/// Has the kernel kill the calling process when the thread that started it ends.
pub(crate) fn die_with_parent() {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
}

/// Makes `command` run `wait` in the forked child before it executes the new program. All descriptors of the
/// parent are open there.
pub(crate) fn before_exec(command: &mut Command, mut wait: impl FnMut() + Send + Sync + 'static) {
    // SAFETY: callers read from a descriptor and write to one, which is allowed after a fork.
    unsafe {
        command.pre_exec(move || {
            wait();
            Ok(())
        });
    }
}
