//! Reads in flight through io_uring: each borrower has a ring, and submits and reaps by itself.
//!
//! There is no driver thread and no sharing: a ring comes from the set in `readers`, belongs to one
//! [`RingReader`] at a time, and is returned empty. Rings move between threads. So they are not set up with
//! `SINGLE_ISSUER`, which binds a ring to one thread, nor with `DEFER_TASKRUN`, which needs it. If the kernel
//! supports `COOP_TASKRUN`, completions are delivered when the borrower enters the kernel.
//!
//! A bell is an eventfd that the ring polls, from its first use on. The kernel writes no memory for that
//! poll.
//!
//! Invariants:
//! 1. A flight owns target, descriptor and vector from before its submission until its completion is reaped.
//!    If the kernel refuses further submissions, flights that it has not taken are read without the ring.
//! 2. A ring has at most as many flights as entries, so neither queue overflows.
//! 3. In a forked process a ring belongs to the parent: reads in flight fail, and the ring is left alone.
//! 4. A plain read completes requests that the ring cannot: after a short read, a read that the kernel
//!    interrupted or refused for now, or an alignment that the device refuses.

#![expect(unsafe_code, reason = "hands memory to the kernel and takes it back")]

#[cfg(test)]
use std::os::fd::FromRawFd;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::task::{Wake, Waker};
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::base::error::Error;
use crate::base::few::Few;
use crate::base::id::FileName;
use crate::base::sync::{Arc, Ordering};

use super::super::reader::{Completed, Reader, Request, Target, fill_rest, perform};
use super::super::storage::Storage;
use super::files::OpenFile;
use super::storage::{OsStorage, RETRIES_COUNT_MAX};

/// `POLLIN`: the descriptor is readable.
const POLL_IN: u32 = 1;
/// Limit of reads in flight, about as many as a device handles at once.
const ENTRIES: usize = 128;
/// Size of the submission queue: the reads and the bell, rounded up to a power of two.
const SUBMISSIONS: u32 = 2 * ENTRIES as u32;

/// Longest timeout passed to the kernel, whose clock cannot represent much later times.
const WAIT_NS_MAX: u64 = 3_600_000_000_000;
/// Longest wait without a bell, in nanoseconds.
const DEAF_NS: u64 = 1_000_000;
/// Time between two looks for completions of a ring that takes no more submissions.
const TAKEN_LOOK: Duration = Duration::from_micros(100);
/// User data of the bell's submission.
const BELL: u64 = u64::MAX;

/// Ends a wait of the ring from any thread.
struct Bell(OwnedFd);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        // Only a full counter refuses the write: the bell is already rung then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// How the kernel notices submissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Polls {
    /// Each submission is a system call.
    Nobody,
    /// A kernel thread polls for submissions, until there were none for a while.
    Kernel,
}

/// How long the kernel thread polls without submissions before it sleeps.
const POLL_IDLE_MS: u32 = 50;

/// A buffer of a read, laid out as the system's `iovec`.
#[repr(C)]
struct IoVec {
    start: *mut u8,
    bytes: usize,
}

/// A read that the kernel may be performing.
struct Flight {
    file: FileName,
    offset: u64,
    bytes: usize,
    is_direct: bool,
    /// Keeps the file open while the kernel reads from it.
    _open: Arc<OpenFile>,
    /// Made from a box. No code here touches it until the flight has landed.
    target: NonNull<dyn Target>,
    /// One part inline, or several on the heap, where the kernel finds them even if the flight is moved.
    parts: Few<IoVec>,
}

/// A ring with no reads in flight, or with those of its reader.
pub(super) struct Ring {
    uring: IoUring,
    polls: Polls,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Submissions that the kernel has not taken yet, in order.
    untaken: Vec<u64>,
    bell: Option<Arc<Bell>>,
    /// The kernel polls the bell.
    is_listening: bool,
}

// SAFETY: a flight's pointers are to memory that it owns alone and that may go to any thread (`Target` is
// `Send`); the ring's own mappings are tied to no thread, since it is set up without `SINGLE_ISSUER`.
unsafe impl Send for Ring {}

impl Ring {
    /// # Errors
    /// The system's error: no such call, not permitted, or no descriptors or memory left.
    pub(super) fn new(polls: Polls) -> std::io::Result<Ring> {
        let mut builder = IoUring::builder();
        let is_unknown = |error: &std::io::Error| error.raw_os_error() == Some(Errno::INVAL.raw_os_error());
        let uring = match polls {
            Polls::Kernel => builder.setup_sqpoll(POLL_IDLE_MS).build(SUBMISSIONS)?,
            Polls::Nobody => match builder.setup_coop_taskrun().build(SUBMISSIONS) {
                // Kernels before 5.19 do not know the flag.
                Err(error) if is_unknown(&error) => IoUring::new(SUBMISSIONS)?,
                made => made?,
            },
        };
        let mut probe = Probe::new();
        // Kernels before 5.6 have rings without some of the operations used here.
        uring.submitter().register_probe(&mut probe)?;
        if ![opcode::Read::CODE, opcode::Readv::CODE, opcode::PollAdd::CODE]
            .iter()
            .all(|code| probe.is_supported(*code))
        {
            return Err(Errno::OPNOTSUPP.into());
        }
        let flights = (0..ENTRIES).map(|_| None).collect();
        Ok(Ring {
            uring,
            polls,
            flights,
            free: (0..ENTRIES).collect(),
            untaken: Vec::new(),
            bell: None,
            is_listening: false,
        })
    }

    fn in_flight(&self) -> usize {
        ENTRIES - self.free.len()
    }

    fn push(&mut self, flight: Flight) {
        let slot = self.free.pop().expect("the reader asked for room");
        let descriptor = types::Fd(flight._open.descriptor().as_raw_fd());
        let entry = match flight.parts.as_slice() {
            [one] => {
                let bytes = u32::try_from(one.bytes).expect("a request is of some MiB at most");
                opcode::Read::new(descriptor, one.start, bytes).offset(flight.offset).build()
            }
            parts => opcode::Readv::new(descriptor, parts.as_ptr().cast(), parts.len() as u32)
                .offset(flight.offset)
                .build(),
        };
        self.flights[slot] = Some(flight);
        // SAFETY: descriptor, vector and buffers belong to the flight. They stay in place, untouched, until
        // its completion is reaped (invariant 1); moving the flight does not move them.
        let pushed = unsafe { self.uring.submission().push(&entry.user_data(slot as u64)) };
        self.untaken.push(slot as u64);
        pushed.expect("no more flights than entries, and the kernel takes all at each submission");
    }

    /// Submits the pushed reads, and waits for `wait_for` completions or for `ns`. Kernels without timeouts
    /// (before 5.11) wait for the completions. A signal may end the wait early.
    fn enter(&mut self, wait_for: usize, ns: Option<u64>) -> std::io::Result<()> {
        let ns = ns.filter(|_| self.uring.params().is_feature_ext_arg());
        for _ in 0..RETRIES_COUNT_MAX {
            let entered = match ns {
                None => self.uring.submit_and_wait(wait_for),
                Some(ns) => {
                    let time = types::Timespec::from(Duration::from_nanos(ns.min(WAIT_NS_MAX)));
                    self.uring
                        .submitter()
                        .submit_with_args(wait_for, &types::SubmitArgs::new().timespec(&time))
                }
            };
            let left = self.uring.submission().len();
            self.untaken.drain(..self.untaken.len() - left);
            match entered.as_ref().map_err(Errno::from_io_error) {
                Ok(_) | Err(Some(Errno::TIME | Errno::INTR)) => return Ok(()),
                Err(Some(Errno::AGAIN | Errno::BUSY)) => {}
                Err(_) => return entered.map(drop),
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Makes the kernel poll the bell, for the first time or again; `false` if there can be no bell.
    fn listen(&mut self) -> bool {
        if self.bell.is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            self.bell = eventfd(0, flags).ok().map(|descriptor| Arc::new(Bell(descriptor)));
        }
        let Some(bell) = &self.bell else { return false };
        if !self.is_listening {
            let entry = opcode::PollAdd::new(types::Fd(bell.0.as_raw_fd()), POLL_IN).build();
            // SAFETY: the entry has no memory, and the descriptor is open as long as the ring.
            let pushed = unsafe { self.uring.submission().push(&entry.user_data(BELL)) };
            self.is_listening = pushed.is_ok();
            self.untaken.extend(self.is_listening.then_some(BELL));
        }
        self.is_listening
    }

    /// A flight that has landed, with the kernel's result. Completions of the bell's poll on the way are
    /// noted.
    fn land(&mut self) -> Option<(Flight, i32)> {
        let mut entry = self.uring.completion().next()?;
        while entry.user_data() == BELL {
            self.is_listening = false;
            if let Some(bell) = &self.bell {
                // The count of rings is not needed.
                let _ = rustix::io::read(&bell.0, &mut [0; 8]);
            }
            entry = self.uring.completion().next()?;
        }
        let slot = entry.user_data() as usize;
        let flight = self.flights[slot].take().expect("the kernel completes each request once");
        self.free.push(slot);
        Some((flight, entry.result()))
    }
}

impl Flight {
    /// The target, which the kernel no longer uses.
    fn into_target(self) -> Box<dyn Target> {
        // SAFETY: made by `Box::into_raw`, and the flight is consumed.
        unsafe { Box::from_raw(self.target.as_ptr()) }
    }
}

/// See the module.
pub(super) struct RingReader {
    storage: Arc<OsStorage>,
    /// `None` once the kernel has refused further submissions. Each read is then performed when it is pushed.
    ring: Option<Ring>,
    /// Requests that failed before their submission, or that were performed without the ring.
    done: Vec<Completed>,
}

impl RingReader {
    pub(super) fn new(storage: Arc<OsStorage>, ring: Ring) -> RingReader {
        RingReader { storage, ring: Some(ring), done: Vec::new() }
    }

    /// In a forked process, abandons the ring: its queues are memory shared with the parent. Reads in flight
    /// have failed, because the kernel writes to the parent's memory, not to the targets here.
    fn leave_if_forked(&mut self) {
        if !self.storage.is_forked() {
            return;
        }
        let Some(mut ring) = self.ring.take() else { return };
        for flight in ring.flights.iter_mut().filter_map(Option::take) {
            self.done.push(Completed { result: Err(Error::Forked), target: flight.into_target() });
        }
        std::mem::forget(ring);
    }

    /// Enters the kernel, and collects the reads that have landed.
    fn go_on(&mut self, wait_for: usize, ns: Option<u64>, completed: &mut Vec<Completed>) {
        let Some(mut ring) = self.ring.take() else { return };
        let entered = ring.enter(wait_for, ns);
        self.land_all(&mut ring, completed);
        match entered {
            Ok(()) => self.ring = Some(ring),
            Err(error) => self.end(ring, &error, completed),
        }
    }

    fn land_all(&self, ring: &mut Ring, completed: &mut Vec<Completed>) {
        while let Some((flight, result)) = ring.land() {
            completed.push(self.settle(flight, result));
        }
    }

    /// The kernel takes no more submissions: waits for the flights that it has taken, and reads the others
    /// without it.
    fn end(&self, mut ring: Ring, error: &std::io::Error, completed: &mut Vec<Completed>) {
        // A kernel thread may still take them.
        let untaken =
            if ring.polls == Polls::Kernel { Vec::new() } else { std::mem::take(&mut ring.untaken) };
        for slot in untaken.into_iter().filter(|slot| *slot != BELL) {
            let flight = ring.flights[slot as usize].take().expect("pushed requests are in flight");
            ring.free.push(slot as usize);
            // Settled as cancelled: the ring is never entered again, so the kernel does not read it.
            completed.push(self.settle(flight, -Errno::CANCELED.raw_os_error()));
        }
        while ring.in_flight() > 0 {
            // Completions are delivered when the thread is in the kernel, for any call.
            #[expect(clippy::disallowed_methods, reason = "of a thread that reads, and of no simulation")]
            std::thread::sleep(TAKEN_LOOK);
            self.land_all(&mut ring, completed);
        }
        self.storage.readers.lose(error);
    }

    fn settle(&self, flight: Flight, result: i32) -> Completed {
        let (file, offset, bytes) = (flight.file, flight.offset, flight.bytes);
        let is_direct = flight.is_direct;
        let mut target = flight.into_target();
        let result = match usize::try_from(result) {
            Ok(read) if read == bytes || read == 0 => Ok(read),
            Ok(read) => fill_rest(&*self.storage, file, offset, &mut target.buffers(), read),
            Err(_) => match Errno::from_raw_os_error(result.wrapping_neg()) {
                Errno::INTR | Errno::AGAIN | Errno::CANCELED | Errno::OPNOTSUPP => {
                    fill_rest(&*self.storage, file, offset, &mut target.buffers(), 0)
                }
                // The device may need a larger alignment: a plain read finds out.
                Errno::INVAL if is_direct => {
                    fill_rest(&*self.storage, file, offset, &mut target.buffers(), 0)
                }
                errno => Err(self.storage.fault("read", file, offset, errno)),
            },
        };
        self.storage.counters.reads.fetch_add(1, Ordering::Relaxed);
        if let Ok(read) = result {
            self.storage.counters.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        }
        Completed { result, target }
    }
}

impl Reader for RingReader {
    fn room(&self) -> usize {
        self.ring.as_ref().map_or(1, |ring| ring.free.len())
    }

    fn push(&mut self, request: Request) {
        self.leave_if_forked();
        let Some(ring) = &mut self.ring else {
            return self.done.push(perform(&*self.storage, request));
        };
        let Request { file, offset, mut target } = request;
        let (parts, bytes, is_direct) = {
            let buffers = target.buffers();
            let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
            let is_direct = self.storage.is_direct(file, offset, &buffers);
            (parts_of(buffers), bytes, is_direct)
        };
        match self.storage.open_to_read(file, offset, bytes, is_direct) {
            Err(error) => self.done.push(Completed { result: Err(error), target }),
            Ok(open) => {
                let target = NonNull::from(Box::leak(target));
                ring.push(Flight { file, offset, bytes, is_direct, _open: open, target, parts });
            }
        }
    }

    fn submit(&mut self) {
        self.leave_if_forked();
        let mut done = std::mem::take(&mut self.done);
        self.go_on(0, None, &mut done);
        self.done = done;
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        self.leave_if_forked();
        completed.append(&mut self.done);
        // The wait may end with a bell left by an earlier borrower, or with a signal.
        while self.ring.as_ref().is_some_and(|ring| ring.in_flight() > 0) {
            self.go_on(usize::from(completed.is_empty()), None, completed);
            if !completed.is_empty() {
                return;
            }
        }
    }

    fn reap_or_bell(&mut self, completed: &mut Vec<Completed>, timeout_ns: Option<u64>) {
        self.leave_if_forked();
        completed.append(&mut self.done);
        let Some(ring) = &mut self.ring else { return };
        let has_bell = ring.listen();
        let is_awaited = completed.is_empty() && ring.in_flight() > 0;
        // Without a bell the wait is kept short.
        let timeout_ns = if has_bell { timeout_ns } else { Some(timeout_ns.unwrap_or(DEAF_NS).min(DEAF_NS)) };
        match timeout_ns {
            Some(0) => self.go_on(0, None, completed),
            ns => self.go_on(usize::from(is_awaited), ns, completed),
        }
    }

    fn bell(&mut self) -> Waker {
        self.leave_if_forked();
        let Some(ring) = &mut self.ring else { return Waker::noop().clone() };
        ring.listen();
        ring.bell.as_ref().map_or_else(|| Waker::noop().clone(), |bell| Waker::from(Arc::clone(bell)))
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.leave_if_forked();
        let mut completed = Vec::new();
        while self.ring.as_ref().is_some_and(|ring| ring.in_flight() > 0) {
            self.go_on(1, None, &mut completed);
        }
        if let Some(ring) = self.ring.take() {
            self.storage.readers.give_back(ring);
        }
    }
}

/// The buffers as parts; adjacent buffers become one part.
fn parts_of(buffers: Few<&mut [u8]>) -> Few<IoVec> {
    let mut parts: Few<IoVec> = Few::with_capacity(buffers.len());
    for buffer in buffers {
        match parts.last_mut() {
            Some(last) if last.start.wrapping_add(last.bytes) == buffer.as_mut_ptr() => {
                last.bytes += buffer.len();
            }
            _ => parts.push(IoVec { start: buffer.as_mut_ptr(), bytes: buffer.len() }),
        }
    }
    parts
}

/// Reason why a ring could not be made; `None` if a later attempt may succeed.
pub(super) fn refusal(error: &std::io::Error) -> Option<String> {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR) => None,
        _ => Some(format!("the kernel refuses io_uring: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reader::ReaderKind;
    use super::super::storage::{DirectIo, FileUse};
    use super::*;
    use crate::base::id::FileKind;

    const COUNT: u64 = 100;

    struct Buffer([u8; 8]);

    impl Target for Buffer {
        fn buffers(&mut self) -> Few<&mut [u8]> {
            Few::from_buf([&mut self.0])
        }
    }

    /// Makes the ring's descriptor number refer to another file: the kernel takes no more submissions.
    fn refuse(ring: &Ring) {
        let nothing = eventfd(0, EventfdFlags::CLOEXEC).expect("makes");
        // SAFETY: the number stays open, and the ring closes the file that the number then refers to.
        let mut descriptor = unsafe { OwnedFd::from_raw_fd(ring.uring.as_raw_fd()) };
        rustix::io::dup2(&nothing, &mut descriptor).expect("names it so");
        std::mem::forget(descriptor);
    }

    /// If the kernel refuses further submissions, before or after it has taken some reads, no read is lost.
    /// Later reads go another way.
    #[test]
    fn f10_a_ring_may_be_refused_late() {
        for taken in [0, COUNT / 2, COUNT] {
            let parent = tempfile::tempdir().expect("makes");
            let file_use = FileUse::new(DirectIo::Off, 16, super::super::ReadWith::Auto);
            let storage = Arc::new(OsStorage::new(&parent.path().join("store"), file_use));
            let table = FileName::new(FileKind::Table, 1);
            storage.create_directory().expect("makes");
            storage.create(table).expect("makes");
            let bytes: Vec<u8> = (0..COUNT).flat_map(u64::to_le_bytes).collect();
            storage.write(table, 0, &bytes).expect("writes");
            let Ok(ring) = Ring::new(Polls::Nobody) else { return };
            let mut reader = RingReader::new(Arc::clone(&storage), ring);
            let mut completed = Vec::new();
            for number in 0..COUNT {
                reader.push(Request { file: table, offset: 8 * number, target: Box::new(Buffer([0; 8])) });
                if number + 1 == taken {
                    reader.submit();
                }
            }
            refuse(reader.ring.as_ref().expect("it has one"));
            while completed.len() < COUNT as usize {
                reader.reap(&mut completed);
            }
            reader.push(Request { file: table, offset: 8, target: Box::new(Buffer([0; 8])) });
            reader.bell().wake();
            while completed.len() == COUNT as usize {
                reader.reap_or_bell(&mut completed, None);
            }
            assert!(reader.ring.is_none() && reader.room() > 0);
            let read = completed.into_iter().map(|Completed { result, mut target }| {
                assert_eq!(result.expect("reads"), 8);
                u64::from_le_bytes(target.buffers().concat().try_into().expect("eight"))
            });
            let mut read: Vec<u64> = read.collect();
            assert_eq!(read.pop(), Some(1));
            read.sort_unstable();
            assert_eq!(read, (0..COUNT).collect::<Vec<u64>>());
            let (kind, why) = storage.reader_kind();
            assert_eq!(kind, ReaderKind::Pool);
            assert!(why.starts_with("the kernel refuses io_uring"), "{why}");
        }
    }
}
