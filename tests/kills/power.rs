//! Power cuts on a real file system: ext4 on a loop device, ended without its journal being written, which is
//! what xfstests do to simulate a crash. Whatever was only in the kernel's memory is lost, and the next mount
//! replays the journal.
//!
//! The process that mounts has a mount namespace of its own and loop devices that go with their last use, so
//! that nothing of it outlives the process, whatever ends it. Skipped, with a word, where that is not
//! allowed.

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

/// Runs a program of the system; `false` if it fails or is not there.
fn does(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The disk image, and where it is mounted.
struct Disk {
    image: String,
    mounted: String,
}

impl Disk {
    /// Places for both in a new directory, the image's in memory, so that the many syncs are none of a
    /// device; `None`, told why, where nobody may mount.
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

    /// Makes an empty file system, mounted with these options; `false`, told why, where that cannot be.
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

    /// Nothing more reaches the device.
    fn cut(&self) -> std::io::Result<()> {
        end_file_system(&File::open(&self.mounted)?)
    }
}

/// The process with the namespace.
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

/// After the power was cut everything synced is there, and of the rest a first part that all threads agree
/// on.
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

/// The process with the namespace, and with the store.
pub(crate) fn ended(data: &Path) {
    let Some(disk) = Disk::new(data) else { return };
    for options in ["loop", "loop,nodelalloc", "loop,data=journal"] {
        if !disk.make(options) {
            continue;
        }
        let path = data.join("disk/store");
        let db = trine::Db::builder(&path).memory_bytes(32 << 20).open().unwrap();
        let space = db.ordered("space").open().unwrap();
        // So much that the end of the log is mapped.
        let put = |from: u32| (from..from + 9000).map(|key| space.put(key.to_be_bytes(), [7; 50])).collect();
        let done: Vec<_> = put(0);
        assert!(done.iter().all(Result::is_ok));
        // As the kernel does in its own time: what was written is clean then, and the next store is a fault.
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
        // It may fail, as what it would write has no place.
        let _ = db.close();
        disk.unmount();
    }
}

/// A file system that ends below an open store is an error to who writes, and no signal.
#[test]
fn a_file_system_that_ends_ends_no_process() {
    let scratch = Scratch::new();
    let output = child::run(&["unshare", "--mount"], "ended", &scratch.data());
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success() || complaint.contains("unshare"), "{}: {complaint}", output.status);
}
