//! Behaviour specific to the file system: modes, links, descriptors, failed syncs.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use super::*;

struct Place {
    storage: OsStorage,
    /// The directory is removed on drop.
    parent: tempfile::TempDir,
}

fn place(direct_io: DirectIo, open_files_max: usize) -> Place {
    let parent = tempfile::tempdir().unwrap();
    let storage =
        OsStorage::new(&parent.path().join("store"), FileUse::new(direct_io, open_files_max, ReadWith::Auto));
    assert!(storage.create_directory().unwrap());
    Place { storage, parent }
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.parent.path().join("store").join(name)
    }

    fn mode(&self, name: &str) -> u32 {
        rustix::fs::stat(self.path(name)).unwrap().st_mode & 0o7777
    }
}

fn table(number: u64) -> FileName {
    FileName::new(FileKind::Table, number)
}

/// Two hundred files are read and written in mixed order through sixteen descriptors.
#[test]
fn many_files_through_few_descriptors() {
    let place = place(DirectIo::WhereSupported, 16);
    let storage = &place.storage;
    for number in 0..200u64 {
        storage.create(table(number)).unwrap();
        storage.write(table(number), 0, &number.to_le_bytes()).unwrap();
        storage.sync(table(number)).unwrap();
        assert!(storage.counts().open_files <= 16);
    }
    for step in 0..400u64 {
        let number = step * 77 % 200;
        let mut bytes = [0; 8];
        assert_eq!(storage.read(table(number), 0, &mut bytes).unwrap(), 8);
        assert_eq!(u64::from_le_bytes(bytes), number);
        assert!(storage.counts().open_files <= 16);
    }
}

/// When descriptors are short, an open closes an unused file and tries again; with none to close it fails.
#[test]
fn f10_short_of_descriptors() {
    let place = place(DirectIo::Off, 16);
    let storage = &place.storage;
    for number in 0..3 {
        storage.create(table(number)).unwrap();
    }
    for (errno, left_count) in [(Errno::INTR, 3), (Errno::MFILE, 1), (Errno::NFILE, 0)] {
        let mut fails_left = if errno == Errno::NFILE { 1 } else { 2 };
        let call = || {
            fails_left -= 1;
            if fails_left >= 0 { Err(errno) } else { Ok(()) }
        };
        assert_eq!(storage.retry(call), Ok(()));
        assert_eq!(storage.counts().open_files, left_count);
    }
    let mut calls_count = 0;
    let call = || -> rustix::io::Result<()> {
        calls_count += 1;
        Err(Errno::MFILE)
    };
    assert_eq!(storage.retry(call), Err(Errno::MFILE));
    assert_eq!(calls_count, 1);
}

/// Only the owner has access, independent of the umask.
#[test]
fn modes_are_the_owners_only() {
    let place = place(DirectIo::Off, 16);
    place.storage.create(FileName::STORE).unwrap();
    place.storage.create(table(1)).unwrap();
    place.storage.lock(LockMode::Exclusive).unwrap();
    assert_eq!(place.mode(""), 0o700);
    for name in ["STORE", "LOCK", "table-0000000000000001"] {
        assert_eq!(place.mode(name), 0o600, "{name}");
    }
}

/// A symbolic link under one of our names is refused by each call that would follow it, and is not changed.
#[test]
fn symbolic_links_are_refused() {
    let place = place(DirectIo::WhereSupported, 16);
    let storage = &place.storage;
    for name in ["LOCK", "STORE", "table-0000000000000001"] {
        rustix::fs::symlink("/etc/hostname", place.path(name)).unwrap();
    }
    let refused = |error: Error| matches!(error, Error::Foreign { .. });
    assert!(refused(storage.lock(LockMode::Exclusive).unwrap_err()));
    assert!(refused(storage.lock(LockMode::Shared).unwrap_err()));
    for file in [FileName::STORE, table(1)] {
        assert!(refused(storage.read(file, 0, &mut [0]).unwrap_err()));
        assert!(refused(storage.write(file, 0, &[0]).unwrap_err()));
        assert!(refused(storage.sync(file).unwrap_err()));
        assert!(refused(storage.length(file).unwrap_err()));
        assert!(storage.create(file).is_err());
    }
}

/// A pipe or a directory under one of our names blocks no call. A file in the directory's place is an error.
#[test]
fn pipes_and_directories_are_refused() {
    let place = place(DirectIo::Off, 16);
    let storage = &place.storage;
    let pipe = place.path("STORE");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, FILE_MODE, 0).unwrap();
    rustix::fs::mkdir(place.path("table-0000000000000001"), DIRECTORY_MODE).unwrap();
    for file in [FileName::STORE, table(1)] {
        let refused = |error: Error| matches!(error, Error::Foreign { .. });
        assert!(refused(storage.read(file, 0, &mut [0]).unwrap_err()));
        assert!(refused(storage.length(file).unwrap_err()));
        assert!(storage.write(file, 0, &[0]).is_err());
    }
    storage.create(table(2)).unwrap();
    let file =
        OsStorage::new(&place.path(&table(2).to_string()), FileUse::new(DirectIo::Off, 16, ReadWith::Auto));
    assert!(matches!(file.create_directory(), Err(Error::Foreign { .. })));
    assert!(matches!(file.exists(), Err(Error::Foreign { .. })));
    let nowhere = OsStorage::new(&place.path("no/such"), FileUse::new(DirectIo::Off, 16, ReadWith::Auto));
    assert!(matches!(nowhere.create_directory(), Err(Error::Io { .. })));
}

/// Names that are not ours are listed as foreign, also if they are not valid text.
#[test]
fn foreign_names_are_listed() {
    let place = place(DirectIo::Off, 16);
    let not_text = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff".as_slice());
    for name in [std::ffi::OsStr::new("notes.txt"), not_text] {
        rustix::fs::mkdir(place.path("").join(name), DIRECTORY_MODE).unwrap();
    }
    place.storage.create(table(3)).unwrap();
    let list = place.storage.list().unwrap();
    assert_eq!(list.len(), 3);
    assert!(list.contains(&DirectoryEntry::Ours(table(3))));
    assert!(list.contains(&DirectoryEntry::Foreign("notes.txt".to_owned())));
}

/// After a failed sync every later sync fails without a system call, even after eviction and renaming.
#[test]
fn f08_a_failed_sync_poisons_the_file() {
    let place = place(DirectIo::Off, 16);
    let storage = &place.storage;
    for number in [1, 2] {
        storage.create(table(number)).unwrap();
        storage.write(table(number), 0, b"x").unwrap();
    }
    for errno in [Errno::IO, Errno::NOSPC] {
        let failed = storage.sync_by(table(1), |_| Err(errno));
        assert!(matches!(failed, Err(Error::Io { operation: "sync", .. })));
    }
    // An interrupted sync is not repeated either, nor is one of the directory.
    storage.create(table(4)).unwrap();
    for (file, errno) in [(table(4), Errno::INTR), (table(5), Errno::NOSPC), (table(6), Errno::ROFS)] {
        let calls = AtomicU32::new(0);
        if file != table(4) {
            storage.create(file).unwrap();
        }
        let count = |_: &OwnedFd| {
            calls.fetch_add(1, Ordering::Relaxed);
            Err(errno)
        };
        let failed = [storage.sync_by(file, count), storage.sync_by(file, |_| Ok(()))];
        assert_eq!(calls.load(Ordering::Relaxed), 1, "{errno:?}");
        for error in failed.map(Result::unwrap_err) {
            let is_read_only = matches!(error, Error::ReadOnlyFileSystem { operation: "sync", .. });
            assert_eq!(is_read_only, errno == Errno::ROFS, "{error}");
            assert_eq!(error.to_string().contains("space was missing"), errno == Errno::NOSPC, "{error}");
        }
    }
    storage.files.clear();
    assert!(storage.sync(table(1)).is_err());
    storage.rename(table(1), table(3)).unwrap();
    assert!(storage.sync(table(3)).is_err());
    storage.sync(table(2)).unwrap();
    assert_eq!(storage.counts().syncs, 5, "four that failed, one of the other file");
    let mut byte = [0];
    assert_eq!(storage.read(table(3), 0, &mut byte).unwrap(), 1);

    storage.sync_directory().unwrap();
    assert!(storage.sync_directory_by(|_| Err(Errno::INTR)).is_err());
    assert!(storage.sync_directory().is_err());
}

/// Each kind of failure that callers handle has its own error.
#[test]
fn failures_are_told_apart() {
    let place = place(DirectIo::Off, 16);
    let fault = |errno| place.storage.fault("write", table(1), 0, errno);
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
        assert!(matches!(fault(errno), Error::Full { .. }));
    }
    for errno in [Errno::ACCESS, Errno::PERM] {
        assert!(matches!(fault(errno), Error::Permission { operation: "write", .. }));
    }
    assert!(matches!(fault(Errno::ROFS), Error::ReadOnlyFileSystem { operation: "write", .. }));
    assert!(matches!(fault(Errno::IO), Error::Io { operation: "write", .. }));
}

/// After a refused direct read, larger alignments are tried, then buffered reads; no read fails.
#[test]
fn direct_reads_are_given_up_step_by_step() {
    let place = place(DirectIo::WhereSupported, 16);
    let storage = &place.storage;
    assert_eq!(storage.direct_io(), cfg!(target_os = "linux"));
    storage.direct_alignment.store(512, Ordering::Relaxed);
    let mut memory = [0u8; 3 * 4096];
    let start = memory.as_ptr().align_offset(4096);
    let mut is_direct = |file, offset, lengths: &[usize]| {
        let mut rest = &mut memory[start..];
        let mut buffers = Vec::new();
        for length in lengths {
            let (one, behind) = std::mem::take(&mut rest).split_at_mut(*length);
            buffers.push(one);
            rest = behind;
        }
        storage.is_direct(file, offset, &buffers)
    };
    assert!(is_direct(table(1), 512, &[512]));
    assert!(is_direct(table(1), 512, &[512, 1024]));
    assert!(!is_direct(table(1), 513, &[512]));
    assert!(!is_direct(table(1), 512, &[511]));
    assert!(!is_direct(table(1), 512, &[511, 1]));
    assert!(!is_direct(FileName::STORE, 512, &[512]));
    storage.raise_direct_alignment();
    assert!(!is_direct(table(1), 512, &[512]));
    assert!(is_direct(table(1), 4096, &[4096, 4096]));
    storage.raise_direct_alignment();
    assert!(!storage.direct_io());
    storage.raise_direct_alignment();
    assert!(!storage.direct_io());
}

/// `Env::os` makes a complete, working environment.
#[test]
fn an_environment_is_made() {
    let parent = tempfile::tempdir().unwrap();
    let env =
        crate::io::env::Env::os(parent.path(), FileUse::new(DirectIo::Off, 16, ReadWith::Auto)).unwrap();
    assert!(env.storage.exists().unwrap());
    assert_ne!(env.random.u64(), env.random.u64());
    assert!(env.clock.now_ns() <= env.clock.now_ns());
    assert_eq!(env.memory.region(4096).unwrap().bytes(), 4096);
    env.threads.join();
}

/// Looks for mappings of the file after short consecutive writes: only logs are mapped, and only if allowed.
#[cfg(target_os = "linux")]
#[test]
fn only_logs_are_mapped_and_only_where_allowed() {
    let is_mapped = |maps_logs, kind| {
        let parent = tempfile::tempdir().unwrap();
        let how = FileUse { maps_logs, ..FileUse::new(DirectIo::Off, 16, ReadWith::Plain) };
        let storage = OsStorage::new(&parent.path().join("store"), how);
        assert!(storage.create_directory().unwrap());
        let file = FileName::new(kind, 1);
        storage.create(file).unwrap();
        crate::io::storage::write_zeros(&storage, file, 0, 1 << 20).unwrap();
        for offset in (0..512 << 10).step_by(1024) {
            storage.write(file, offset, &[7; 1024]).unwrap();
        }
        let maps = rustix::fs::open("/proc/self/maps", OFlags::RDONLY, Mode::empty()).unwrap();
        let (mut told, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            match rustix::io::read(&maps, &mut chunk).unwrap() {
                0 => break,
                count => told.extend_from_slice(&chunk[..count]),
            }
        }
        String::from_utf8_lossy(&told).contains(parent.path().to_str().unwrap())
    };
    if !is_mapped(true, FileKind::Log) {
        println!("skipped: nothing is mapped on this file system");
    }
    assert!(!is_mapped(false, FileKind::Log));
    assert!(!is_mapped(true, FileKind::Table));
}

/// A user with read permission who is not the owner can read a file, also with direct reads.
#[cfg(target_os = "linux")]
#[test]
fn files_of_others_are_read() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let place = place(DirectIo::WhereSupported, 16);
    place.storage.create(table(1)).unwrap();
    place.storage.write(table(1), 0, &[7; 8192]).unwrap();
    place.storage.sync(table(1)).unwrap();
    let nobody = rustix::fs::Uid::from_raw(65_534);
    if rustix::fs::chown(place.path(&table(1).to_string()), Some(nobody), None).is_err() {
        // Only root can change a file's owner.
        return;
    }
    let read = || {
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::FOWNER);
        // This affects only this thread.
        set_capabilities(None, own).unwrap();
        let flags = OFlags::RDONLY | OFlags::NOATIME;
        let refused = rustix::fs::open(place.path(&table(1).to_string()), flags, Mode::empty());
        assert_eq!(refused.unwrap_err(), Errno::PERM);
        let mut memory = [0u8; 8192];
        let at = memory.as_ptr().align_offset(4096);
        // A read of a whole page is direct, a shorter one goes through the page cache.
        for range in [at..at + 4096, at..at + 4095] {
            let page = &mut memory[range];
            assert_eq!(place.storage.read(table(1), 0, page).unwrap(), page.len());
            assert!(page.iter().all(|byte| *byte == 7));
            page.fill(0);
        }
    };
    std::thread::scope(|scope| scope.spawn(read).join().unwrap());
}
