//! The workload device: what the device does without the store.
//!
//! Every figure comes from blocking requests; depth is the number of threads that have one each. A device
//! that needs the ring to reach its limit shows less here: the report says how it was asked.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::direct::{self, Aligned, Mode};
use super::stop_if_asked;
use crate::arguments::Bench;
use crate::dice::Dice;
use crate::failure::Failure;
use crate::plot::{Axis, Bars, Chart, Series};
use crate::progress;
use crate::screen::{Screen, table};
use crate::text::{bytes, count, nanoseconds};

/// Reads in flight, each measured in turn.
const DEPTHS: [usize; 4] = [1, 16, 64, 128];

/// Of a random read, and what a store asks for most.
const PAGE_BYTES: usize = 4096;

/// Of a sequential request.
const EXTENT_BYTES: usize = 1 << 20;

/// Seconds of a measurement where none are given.
const SECONDS: u64 = 2;

/// Threads of random reads need little stack.
const STACK_BYTES: usize = 64 << 10;

const FILE_NAME: &str = "device.tmp";

/// What one run of the workload found.
pub(super) struct Device {
    file_bytes: u64,
    mode: Mode,
    write_bytes_a_second: f64,
    read_bytes_a_second: f64,
    random: Vec<Random>,
    syncs_a_second: f64,
}

/// Random reads with so many in flight.
struct Random {
    depth: usize,
    reads: u64,
    seconds: f64,
}

impl Random {
    fn a_second(&self) -> f64 {
        self.reads as f64 / self.seconds
    }

    /// The mean time of a read.
    fn ns(&self) -> u64 {
        (self.seconds * 1e9 * self.depth as f64 / self.reads.max(1) as f64) as u64
    }
}

/// The file, removed at the end whatever happened.
struct Scratch<'a> {
    path: &'a Path,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // A file that cannot be removed is in the user's own directory, under a name that tells what it is.
        let _ = std::fs::remove_file(self.path);
    }
}

pub(super) fn measure(arguments: &Bench, directory: &Path) -> Result<Device, Failure> {
    let path = directory.join(FILE_NAME);
    let failed = |operation| {
        let path = path.clone();
        move |source| Failure::file(operation, &path, source)
    };
    let (file, mode) = direct::create(&path).map_err(failed("create"))?;
    let scratch = Scratch { path: &path };
    let extents = (arguments.device_bytes / EXTENT_BYTES as u64).max(1);
    let time = Duration::from_secs(arguments.seconds.unwrap_or(SECONDS));
    let operations_max = arguments.operations.unwrap_or(u64::MAX);
    let bar = progress::endless();
    let say = |what: &'static str| {
        bar.set_message(what);
        bar.tick();
    };
    say("writing sequentially");
    let write_bytes_a_second = write_all(&file, extents, arguments.seed).map_err(failed("write"))?;
    stop_if_asked()?;
    say("reading sequentially");
    let read_bytes_a_second = read_all(&file, extents, time).map_err(failed("read"))?;
    say("reading at random");
    let mut random = Vec::new();
    for depth in DEPTHS {
        stop_if_asked()?;
        let pages = extents * (EXTENT_BYTES / PAGE_BYTES) as u64;
        let limits = Limits { time, operations_max };
        random.push(read_at_random(&file, pages, depth, limits, arguments.seed).map_err(failed("read"))?);
    }
    stop_if_asked()?;
    say("syncing");
    let syncs_a_second = sync(&file, Limits { time, operations_max }).map_err(failed("sync"))?;
    bar.finish_and_clear();
    drop(scratch);
    let file_bytes = extents * EXTENT_BYTES as u64;
    Ok(Device { file_bytes, mode, write_bytes_a_second, read_bytes_a_second, random, syncs_a_second })
}

/// When a measurement ends: whichever is first.
#[derive(Clone, Copy)]
struct Limits {
    time: Duration,
    operations_max: u64,
}

/// Writes the whole file with what no device can compress or fold, and syncs it.
fn write_all(file: &File, extents: u64, seed: u64) -> std::io::Result<f64> {
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

/// Overwrites a page and syncs it, again and again: what a commit with a sync costs at least.
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
    /// What the figures are not.
    fn remarks(&self) -> Vec<&'static str> {
        let mut remarks = vec!["random reads are blocking, one thread each: no io_uring"];
        if self.mode == Mode::Buffered {
            remarks.push("direct requests are refused here: all figures are those of the page cache");
        }
        remarks
    }
}

pub(super) fn to_json(device: &Device) -> Value {
    let random = |random: &Random| {
        json!({
            "depth": random.depth,
            "reads": random.reads,
            "seconds": random.seconds,
            "reads_a_second": random.a_second(),
            "mean_ns": random.ns(),
        })
    };
    json!({
        "name": "device",
        "file_bytes": device.file_bytes,
        "direct_io": device.mode == Mode::Direct,
        "sequential_write_bytes_a_second": device.write_bytes_a_second,
        "sequential_read_bytes_a_second": device.read_bytes_a_second,
        "random_reads": device.random.iter().map(random).collect::<Vec<Value>>(),
        "syncs_a_second": device.syncs_a_second,
        "remarks": device.remarks(),
    })
}

pub(super) fn print(device: &Device, screen: &mut Screen) -> Result<(), Failure> {
    screen.line(format_args!("Device, a file of {}", bytes(device.file_bytes)))?;
    let mut table = table(["measured", "a second", "one takes"]);
    let rate = |rate: f64| format!("{}/s", bytes(rate as u64));
    let row = |name: &str, rate: String| [name.to_string(), rate, String::new()];
    table.add_row(row("sequential writes of 1 MiB", rate(device.write_bytes_a_second)));
    table.add_row(row("sequential reads of 1 MiB", rate(device.read_bytes_a_second)));
    for random in &device.random {
        let name = format!("random reads of 4 KiB, {} in flight", random.depth);
        table.add_row([name, count(random.a_second() as u64), nanoseconds(random.ns())]);
    }
    let sync_ns = (1e9 / device.syncs_a_second) as u64;
    let syncs = count(device.syncs_a_second as u64);
    table.add_row(["synced writes of 4 KiB".to_string(), syncs, nanoseconds(sync_ns)]);
    screen.line(table)?;
    for remark in device.remarks() {
        screen.line(format_args!("Note: {remark}."))?;
    }
    screen.line("")
}

/// `device-random` and `device-sequential`, SVG and CSV: a line, or a bar, for each time it was measured.
pub(super) fn plot(measured: &[Device], directory: &Path) -> Result<(), Failure> {
    if measured.is_empty() {
        return Ok(());
    }
    let series = |(index, device): (usize, &Device)| Series {
        name: run_name(index),
        points: device.random.iter().map(|random| (random.depth as f64, random.a_second())).collect(),
    };
    let chart = Chart {
        title: "Random reads of 4 KiB".to_string(),
        x: Axis::logarithmic("reads in flight"),
        y: Axis::linear("reads a second"),
        series: measured.iter().enumerate().map(series).collect(),
    };
    chart.write_svg(&directory.join("device-random.svg"))?;
    chart.write_csv(&directory.join("device-random.csv"))?;
    let rates = |(index, device): (usize, &Device)| {
        let rates = [device.write_bytes_a_second, device.read_bytes_a_second];
        (run_name(index), rates.map(|rate| Some(rate / 1e6)).to_vec())
    };
    let bars = Bars {
        title: "Sequential requests of 1 MiB".to_string(),
        y: Axis::linear("MB/s"),
        groups: vec!["write".to_string(), "read".to_string()],
        series: measured.iter().enumerate().map(rates).collect(),
    };
    bars.write_svg(&directory.join("device-sequential.svg"))?;
    bars.write_csv(&directory.join("device-sequential.csv"))
}

fn run_name(index: usize) -> String {
    format!("run {}", index + 1)
}
