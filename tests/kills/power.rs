//! Power cuts on a real file system: ext4 on a loop device, shut down without writing its journal, as
//! xfstests simulate a crash. All data only in the kernel's memory is lost, and the next mount replays the
//! journal.
//!
//! The process that mounts has a mount namespace of its own, and loop devices that are freed with their last
//! use. So nothing of it outlives the process, however it ends. Without the permission to mount, the test is
//! skipped with a message.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::child;
use crate::raw::end_file_system;
use crate::support::Scratch;

use super::check::Crash;
use super::{Told, Victim, scale};

const CYCLES: u64 = 10;
const DISK_BYTES: u64 = 192 << 20;
const SKIPPED: &str = "skipped:";

/// Runs a system program; `false` if it fails or does not exist.
fn does(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The disk image and its mount point.
struct Disk {
    image: String,
    mounted: String,
}

impl Disk {
    /// Makes the directories for both. The image is in memory, so that the many syncs reach no device. Prints
    /// the reason and returns `None` if mounting is not permitted.
    fn new(data: &Path) -> Option<Disk> {
        fs::create_dir(data).unwrap();
        let at = |name: &str| data.join(name).into_os_string().into_string().unwrap();
        let (memory, mounted) = (at("memory"), at("disk"));
        fs::create_dir(&memory).unwrap();
        fs::create_dir(&mounted).unwrap();
        if !does("mount", &["-t", "tmpfs", "tmpfs", &memory]) {
            println!("{SKIPPED} this machine lets nobody mount");
            return None;
        }
        Some(Disk { image: format!("{memory}/image"), mounted })
    }

    /// Makes an empty file system and mounts it with these options. Prints the reason and returns `false` if
    /// that fails.
    fn make(&self, options: &str) -> bool {
        File::create(&self.image).and_then(|file| file.set_len(DISK_BYTES)).unwrap();
        if !does("mkfs.ext4", &["-q", "-F", &self.image]) {
            println!("{SKIPPED} this machine makes no ext4");
            return false;
        }
        if !self.mount(options) {
            println!("{SKIPPED} this machine has no loop devices to give, or does not know {options}");
            return false;
        }
        true
    }

    fn mount(&self, options: &str) -> bool {
        does("mount", &["-t", "ext4", "-o", options, &self.image, &self.mounted])
    }

    fn unmount(&self) {
        assert!(does("umount", &[&self.mounted]), "nobody uses it");
    }

    /// Cuts the power: no more writes reach the device.
    fn cut(&self) -> std::io::Result<()> {
        end_file_system(&File::open(&self.mounted)?)
    }
}

/// The process with the mount namespace.
pub(crate) fn machine(data: &Path) {
    let Some(disk) = Disk::new(data) else { return };
    for seed in 6_000_000..6_000_000 + scale() {
        if !disk.make("loop") {
            return;
        }
        let told = Told { io: "auto", seed };
        let mut victim = Victim::new(&data.join("memory"), &data.join("disk/store"), "auto", seed);
        for _ in 0..CYCLES {
            let mut cut = Ok(());
            let witness = victim.live(false, |child| {
                cut = disk.cut();
                child.kill();
            });
            if let Err(error) = cut {
                println!("{SKIPPED} this kernel ends no file system: {error}");
                return;
            }
            disk.unmount();
            assert!(disk.mount("loop"), "the journal is replayed");
            victim.look(&witness, Crash::Power);
        }
        disk.unmount();
        drop(told);
        println!("ext4, seed {seed}: {:?}", victim.tally);
    }
}

/// After a power cut all synced operations are there, and of the others a prefix that all threads agree on.
#[test]
fn power_cuts_lose_nothing_synced() {
    let scratch = Scratch::new();
    let output = child::run(&["unshare", "--mount"], "power cuts", &scratch.data());
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{printed}");
    if complaint.contains("unshare") || printed.contains(SKIPPED) {
        println!("{SKIPPED} power cuts are not tried here; {complaint}");
        return;
    }
    assert!(output.status.success(), "{complaint}");
}

/// The process with the mount namespace and the store.
pub(crate) fn ended(data: &Path) {
    let Some(disk) = Disk::new(data) else { return };
    for options in ["loop", "loop,nodelalloc", "loop,data=journal"] {
        if !disk.make(options) {
            continue;
        }
        let path = data.join("disk/store");
        let db = trine::Db::builder(&path).memory_bytes(32 << 20).open().unwrap();
        let space = db.ordered("space").open().unwrap();
        // Enough writes that the end of the log is mapped.
        let put = |from: u32| (from..from + 9000).map(|key| space.put(key.to_be_bytes(), [7; 50])).collect();
        let done: Vec<_> = put(0);
        assert!(done.iter().all(Result::is_ok));
        // The kernel writes back in its own time: the pages are clean then, and the next store to them
        // faults.
        for entry in fs::read_dir(&path).unwrap() {
            File::open(entry.unwrap().path()).unwrap().sync_data().unwrap();
        }
        if let Err(error) = disk.cut() {
            println!("{SKIPPED} this kernel ends no file system: {error}");
            return;
        }
        let _: Vec<trine::Result<()>> = put(9000);
        assert_eq!(space.get(5u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 50][..]), "reads go on");
        drop(space);
        // It may fail, because its writes have no device.
        let _ = db.close();
        disk.unmount();
    }
}

/// The shutdown of a file system under an open store is an error for the writer, and no signal.
#[test]
fn a_file_system_that_ends_ends_no_process() {
    let scratch = Scratch::new();
    let output = child::run(&["unshare", "--mount"], "ended", &scratch.data());
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success() || complaint.contains("unshare"), "{}: {complaint}", output.status);
}
