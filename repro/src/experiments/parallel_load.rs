//! Load of the device and of the processors during a run, as `iostat` and `mpstat` report it.
//!
//! Counts are the kernel's, of the whole device and of all processors, so they include other work on the
//! machine. The caller is the experiment on parallel search.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::throttle::whole_device;

/// The kernel's counts at one moment.
struct Counts {
    /// Completed reads, milliseconds of all reads, milliseconds with any request in flight, milliseconds of
    /// all requests in flight.
    disk: [u64; 4],
    /// User, system, waiting for I/O, interrupts, idle; in ticks.
    processors: [u64; 5],
}

/// The load of device and processors during a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineLoad {
    pub(super) reads_a_second: f64,
    /// The average number of requests in flight.
    pub(super) queue: f64,
    pub(super) read_ms: f64,
    /// The percentage of time with requests in flight.
    pub(super) used: f64,
    /// Processor time in percent: user, system, waiting for I/O, interrupts, idle.
    pub(super) processors: [f64; 5],
}

fn number(field: Option<&&str>) -> Option<u64> {
    field?.parse().ok()
}

/// The counts of a device in the lines of `/proc/diskstats`.
fn disk_counts(lines: &str, device: &str) -> Option<[u64; 4]> {
    let (major, minor) = device.split_once(':')?;
    let mut all = lines.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let fields = all.find(|fields| fields.starts_with(&[major, minor]))?;
    let of = |index: usize| number(fields.get(index));
    Some([of(3)?, of(6)?, of(12)?, of(13)?])
}

/// The ticks of all processors in the lines of `/proc/stat`.
fn processor_ticks(lines: &str) -> Option<[u64; 5]> {
    let fields: Vec<&str> = lines.lines().next()?.split_whitespace().collect();
    let of = |index: usize| number(fields.get(index));
    Some([of(1)? + of(2)?, of(3)?, of(5)?, of(6)? + of(7)?, of(4)?])
}

impl Counts {
    fn now(directory: &Path) -> Option<Counts> {
        let device = whole_device(rustix::fs::stat(directory).ok()?.st_dev);
        let disk = disk_counts(&fs::read_to_string("/proc/diskstats").ok()?, &device)?;
        let processors = processor_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Counts { disk, processors })
    }

    fn load_until(&self, end: &Counts, time: Duration) -> MachineLoad {
        let ms = time.as_secs_f64().max(1e-9) * 1e3;
        let [reads, read_ms, used_ms, queue_ms] =
            [0, 1, 2, 3].map(|index| end.disk[index].saturating_sub(self.disk[index]) as f64);
        let ticks = [0, 1, 2, 3, 4]
            .map(|index: usize| end.processors[index].saturating_sub(self.processors[index]) as f64);
        let all = ticks.iter().sum::<f64>().max(1.0);
        MachineLoad {
            reads_a_second: reads * 1e3 / ms,
            queue: queue_ms / ms,
            read_ms: read_ms / reads.max(1.0),
            used: 100.0 * used_ms / ms,
            processors: ticks.map(|ticks| 100.0 * ticks / all),
        }
    }
}

impl MachineLoad {
    /// Calls `run`; returns its result and the load, `None` if the kernel has no such counts.
    pub(super) fn during<T>(directory: &Path, run: impl FnOnce() -> T) -> (T, Option<MachineLoad>) {
        let (before, started) = (Counts::now(directory), Instant::now());
        let result = run();
        let time = started.elapsed();
        let load = before.and_then(|before| Some(before.load_until(&Counts::now(directory)?, time)));
        (result, load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of both files are parsed, and a load is the difference between two moments.
    #[test]
    fn loads_are_differences() {
        let lines = " 253 0 vda 100 1 800 50 7 0 9 6 0 40 56 0 0\n 253 1 vda1 9 9 9 9 9 9 9 9 9 9 9\n";
        assert_eq!(disk_counts(lines, "253:0"), Some([100, 50, 40, 56]));
        assert_eq!(disk_counts(lines, "8:0"), None);
        assert_eq!(processor_ticks("cpu  10 2 5 70 3 1 1 0 0 0\ncpu0 1\n"), Some([12, 5, 3, 2, 70]));
        let before = Counts { disk: [100, 50, 40, 56], processors: [12, 5, 3, 2, 70] };
        let after = Counts { disk: [1100, 250, 290, 1056], processors: [22, 15, 23, 2, 130] };
        let load = before.load_until(&after, Duration::from_millis(500));
        let told = [load.reads_a_second, load.queue, load.read_ms, load.used];
        for (told, expected) in told.into_iter().zip([2000.0, 2.0, 0.2, 50.0]) {
            assert!((told - expected).abs() < 1e-6, "{load:?}");
        }
        assert_eq!(load.processors, [10.0, 10.0, 20.0, 0.0, 60.0]);
    }
}
