//! Performance of the device without a store: sequential and random reads, synced writes.
//!
//! Every figure comes from blocking requests; the depth is the number of threads, each with one request. A
//! device that reaches its limit only with a ring of asynchronous requests shows less here. The module does
//! not depend on the program around it: the comparison with other stores also calibrates the device with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::direct::{self, Aligned, Mode};

/// Numbers of reads in flight, measured one after another.
const DEPTHS: [usize; 4] = [1, 16, 64, 128];

/// Bytes of a random read: the size of most requests of a store.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a sequential request.
const EXTENT_BYTES: usize = 1 << 20;

/// Threads of random reads need little stack.
const STACK_BYTES: usize = 64 << 10;

const FILE_NAME: &str = "device.tmp";

/// Results of the probe.
pub struct Device {
    /// Length of the file, in bytes.
    pub file_bytes: u64,
    /// Whether requests bypassed the page cache.
    pub mode: Mode,
    /// Sequential writes, in bytes a second.
    pub write_bytes_a_second: f64,
    /// Sequential reads, in bytes a second.
    pub read_bytes_a_second: f64,
    /// Random reads, by depth.
    pub random: Vec<Random>,
    /// Synced writes of one page, a second.
    pub syncs_a_second: f64,
}

/// Results of random reads at one depth.
pub struct Random {
    /// Reads in flight.
    pub depth: usize,
    /// Reads completed.
    pub reads: u64,
    /// Elapsed time, in seconds.
    pub seconds: f64,
}

impl Random {
    /// Reads a second.
    pub fn a_second(&self) -> f64 {
        self.reads as f64 / self.seconds
    }

    /// Mean latency of a read, in nanoseconds.
    pub fn ns(&self) -> u64 {
        (self.seconds * 1e9 * self.depth as f64 / self.reads.max(1) as f64) as u64
    }
}

/// The file of the probe, removed on drop.
struct Scratch<'a> {
    path: &'a Path,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // If the removal fails, the file stays in the user's own directory, under a descriptive name.
        let _ = std::fs::remove_file(self.path);
    }
}

/// Parameters of a probe.
#[derive(Clone, Copy)]
pub struct Probe {
    /// Length of the file in bytes, rounded to whole extents.
    pub bytes: u64,
    /// Time limit of each measurement.
    pub time: Duration,
    /// Operation limit of each measurement; the first limit reached ends it.
    pub operations_max: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// An I/O error of the probe.
#[derive(Debug)]
pub struct Trouble {
    /// The failed operation, as a verb.
    pub operation: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: std::io::Error,
}

/// Measures the device in `directory`. Each measurement first passes its name to `step`, which may stop the
/// probe.
pub fn measure<E: From<Trouble>>(
    probe: &Probe,
    directory: &Path,
    mut step: impl FnMut(&'static str) -> Result<(), E>,
) -> Result<Device, E> {
    let path = directory.join(FILE_NAME);
    let failed = |operation| {
        let path = path.clone();
        move |source| Trouble { operation, path, source }
    };
    let (file, mode) = direct::create(&path).map_err(failed("create"))?;
    let scratch = Scratch { path: &path };
    let extents = extents(probe.bytes);
    let limits = Limits { time: probe.time, operations_max: probe.operations_max };
    step("writing sequentially")?;
    let write_bytes_a_second = write_all(&file, probe.bytes, probe.seed).map_err(failed("write"))?;
    step("reading sequentially")?;
    let read_bytes_a_second = read_all(&file, extents, limits.time).map_err(failed("read"))?;
    let mut random = Vec::new();
    for depth in DEPTHS {
        step("reading at random")?;
        let pages = extents * (EXTENT_BYTES / PAGE_BYTES) as u64;
        random.push(read_at_random(&file, pages, depth, limits, probe.seed).map_err(failed("read"))?);
    }
    step("syncing")?;
    let syncs_a_second = sync(&file, limits).map_err(failed("sync"))?;
    drop(scratch);
    let file_bytes = extents * EXTENT_BYTES as u64;
    Ok(Device { file_bytes, mode, write_bytes_a_second, read_bytes_a_second, random, syncs_a_second })
}

/// Limits of a measurement; the first one reached ends it.
#[derive(Clone, Copy)]
struct Limits {
    time: Duration,
    operations_max: u64,
}

/// Extents of a file of `bytes` bytes, at least one.
fn extents(bytes: u64) -> u64 {
    (bytes / EXTENT_BYTES as u64).max(1)
}

/// Writes `bytes` bytes, in whole extents, and syncs them; returns bytes a second. No device can compress or
/// deduplicate the bytes.
pub fn write_all(file: &File, bytes: u64, seed: u64) -> std::io::Result<f64> {
    let extents = extents(bytes);
    let mut buffer = Aligned::new(EXTENT_BYTES);
    let mut dice = Dice::new(seed);
    for chunk in buffer.bytes().chunks_exact_mut(8) {
        chunk.copy_from_slice(&dice.next().to_le_bytes());
    }
    let started = Instant::now();
    for extent in 0..extents {
        for page in buffer.bytes().chunks_exact_mut(PAGE_BYTES) {
            page[..8].copy_from_slice(&dice.next().to_le_bytes());
        }
        direct::write_at(file, buffer.bytes(), extent * EXTENT_BYTES as u64)?;
    }
    file.sync_data()?;
    Ok((extents * EXTENT_BYTES as u64) as f64 / started.elapsed().as_secs_f64())
}

fn read_all(file: &File, extents: u64, time: Duration) -> std::io::Result<f64> {
    let mut buffer = Aligned::new(EXTENT_BYTES);
    let started = Instant::now();
    let mut read_bytes = 0;
    for extent in 0..extents {
        direct::read_at(file, buffer.bytes(), extent * EXTENT_BYTES as u64)?;
        read_bytes += EXTENT_BYTES as u64;
        if started.elapsed() > time {
            break;
        }
    }
    Ok(read_bytes as f64 / started.elapsed().as_secs_f64())
}

fn read_at_random(
    file: &File,
    pages: u64,
    depth: usize,
    limits: Limits,
    seed: u64,
) -> std::io::Result<Random> {
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let read = |thread: u64| -> std::io::Result<()> {
        let mut dice = Dice::new(seed ^ (thread + 1).wrapping_mul(depth as u64) << 32);
        let mut buffer = Aligned::new(PAGE_BYTES);
        while !is_over.load(Ordering::Relaxed) {
            if done.fetch_add(1, Ordering::Relaxed) >= limits.operations_max {
                done.fetch_sub(1, Ordering::Relaxed);
                break;
            }
            direct::read_at(file, buffer.bytes(), dice.below(pages) * PAGE_BYTES as u64)?;
            if started.elapsed() >= limits.time {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let read = &read;
        let spawn = |thread: u64| {
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || read(thread))
        };
        let threads: Vec<_> = (0..depth as u64).map(spawn).collect();
        for thread in threads {
            thread?.join().expect("a reading thread has nothing to panic about")?;
        }
        Ok::<(), std::io::Error>(())
    })?;
    let reads = done.load(Ordering::Relaxed);
    Ok(Random { depth, reads, seconds: started.elapsed().as_secs_f64() })
}

/// Overwrites and syncs one page repeatedly: the lower bound on the cost of a synced commit.
fn sync(file: &File, limits: Limits) -> std::io::Result<f64> {
    let mut buffer = Aligned::new(PAGE_BYTES);
    let started = Instant::now();
    let mut syncs = 0_u64;
    while syncs < limits.operations_max && (syncs == 0 || started.elapsed() < limits.time) {
        buffer.bytes()[..8].copy_from_slice(&syncs.to_le_bytes());
        direct::write_at(file, buffer.bytes(), 0)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(syncs as f64 / started.elapsed().as_secs_f64())
}

impl Device {
    /// Remarks on the limits of the figures.
    pub fn remarks(&self) -> Vec<&'static str> {
        let mut remarks = vec!["random reads are blocking, one thread each: no io_uring"];
        if self.mode == Mode::Buffered {
            remarks.push("direct requests are refused here: all figures are those of the page cache");
        }
        remarks
    }
}
