//! Reads in flight through io_uring: one ring a borrower, which submits and reaps itself.
//!
//! It is not a driver thread and not shared: a ring comes from the set in `readers`, belongs to one
//! [`RingReader`] at a time, and goes back empty. Rings change hands between threads, so they are not bound
//! to one (`SINGLE_ISSUER`, and with it `DEFER_TASKRUN`); completions are delivered when the borrower enters
//! the kernel (`COOP_TASKRUN`) where the kernel knows that.
//!
//! A bell is a descriptor whose readiness the ring waits for too, from the first time it is wanted on; the
//! kernel writes nothing for it.
//!
//! 1. A flight owns target, descriptor and vector from before the kernel hears of it until its completion was
//!    reaped. If reaping becomes impossible they are leaked, never freed.
//! 2. No more flights than the ring has entries, so neither queue overflows.
//! 3. What a completion cannot settle (a short read, an alignment the device refuses) is settled by a plain
//!    read.

#![expect(unsafe_code, reason = "hands memory to the kernel and takes it back")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::task::{Wake, Waker};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::base::id::FileName;
use crate::base::sync::{Arc, Ordering};

use super::super::reader::{Completed, Reader, Request, Target, fill_rest};
use super::files::OpenFile;
use super::storage::{OsStorage, RETRIES_COUNT_MAX};

/// The kernel's name for "can be read", as poll has it.
const POLL_IN: u32 = 1;
/// Reads in flight: as many as the device takes at once.
const ENTRIES: usize = 128;
/// Of the queue: those and the bell, as a power of two.
const SUBMISSIONS: u32 = 2 * ENTRIES as u32;

/// The kernel's clock has no time that is much later.
const WAIT_NS_MAX: u64 = 3_600_000_000_000;
/// How long a wait may be that no bell ends.
const DEAF_NS: u64 = 1_000_000;
/// What the kernel calls the bell by.
const BELL: u64 = u64::MAX;

/// Ends a wait of the ring from any thread.
struct Bell(OwnedFd);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        // Only a count that is full is refused: it was rung then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Who looks for what was pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Polls {
    /// The kernel is called.
    Nobody,
    /// A thread of the kernel's, until there was nothing for a while.
    Kernel,
}

/// How long the kernel's thread polls in vain before it sleeps.
const POLL_IDLE_MS: u32 = 50;

/// A part of a read, laid out as the system's `iovec`.
#[repr(C)]
struct Part {
    start: *mut u8,
    bytes: usize,
}

/// A read that the kernel may be doing.
struct Flight {
    file: FileName,
    offset: u64,
    bytes: usize,
    is_direct: bool,
    /// Open as long as the kernel reads from it.
    _open: Arc<OpenFile>,
    /// Made from a box; nobody touches it until the flight has landed.
    target: NonNull<dyn Target>,
    parts: Vec<Part>,
}

/// A ring with nothing in flight, or the flights of its reader.
pub(super) struct Ring {
    uring: IoUring,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    bell: Option<Arc<Bell>>,
    /// The kernel tells of the next ring.
    is_listening: bool,
}

// SAFETY: a flight's pointers are to memory that it owns alone and that may go to any thread (`Target` is
// `Send`); the ring's own mappings are tied to no thread, since it is set up without `SINGLE_ISSUER`.
unsafe impl Send for Ring {}

impl Ring {
    /// # Errors
    /// What the system says: no such call, not permitted, no descriptors or memory left.
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
        let flights = (0..ENTRIES).map(|_| None).collect();
        Ok(Ring { uring, flights, free: (0..ENTRIES).collect(), bell: None, is_listening: false })
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
        // SAFETY: descriptor, vector and buffers are the flight's, which stays where they are, untouched,
        // until its completion is reaped (invariant 1): moving the flight moves none of them.
        let pushed = unsafe { self.uring.submission().push(&entry.user_data(slot as u64)) };
        pushed.expect("no more flights than entries, and the kernel takes all at each submission");
    }

    /// Hands the kernel what was pushed, and waits until `wait_for` completions are there.
    fn enter(&self, wait_for: usize) -> std::io::Result<()> {
        for _ in 0..RETRIES_COUNT_MAX {
            match self.uring.submit_and_wait(wait_for) {
                Ok(_) => return Ok(()),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                    _ => return Err(error),
                },
            }
        }
        self.uring.submit_and_wait(wait_for).map(|_| ())
    }

    /// As `enter`, for so long at most; kernels that know no bound (before 5.11) wait for what is in flight.
    fn enter_for(&self, wait_for: usize, ns: u64) -> std::io::Result<()> {
        if !self.uring.params().is_feature_ext_arg() {
            return self.enter(wait_for);
        }
        let time = types::Timespec::from(Duration::from_nanos(ns.min(WAIT_NS_MAX)));
        let bound = types::SubmitArgs::new().timespec(&time);
        match self.uring.submitter().submit_with_args(wait_for, &bound) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Has the kernel tell of the bell, from now on or again; `false` if there can be none.
    fn listen(&mut self) -> bool {
        if self.bell.is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            self.bell = eventfd(0, flags).ok().map(|descriptor| Arc::new(Bell(descriptor)));
        }
        let Some(bell) = &self.bell else { return false };
        if !self.is_listening {
            let entry = opcode::PollAdd::new(types::Fd(bell.0.as_raw_fd()), POLL_IN).build();
            // SAFETY: it has no memory, and the descriptor is open as long as the ring.
            let pushed = unsafe { self.uring.submission().push(&entry.user_data(BELL)) };
            self.is_listening = pushed.is_ok();
        }
        self.is_listening
    }

    /// A flight that has landed, and what the kernel says of it; a bell that was rung on the way is noted.
    fn land(&mut self) -> Option<(Flight, i32)> {
        let mut entry = self.uring.completion().next()?;
        while entry.user_data() == BELL {
            self.is_listening = false;
            if let Some(bell) = &self.bell {
                // It says how often it was rung.
                let _ = rustix::io::read(&bell.0, &mut [0; 8]);
            }
            entry = self.uring.completion().next()?;
        }
        let slot = entry.user_data() as usize;
        let flight = self.flights[slot].take().expect("the kernel completes what it was given, once");
        self.free.push(slot);
        Some((flight, entry.result()))
    }
}

impl Flight {
    /// The target, which the kernel is done with.
    fn into_target(self) -> Box<dyn Target> {
        // SAFETY: made by `Box::into_raw`, and the flight is consumed.
        unsafe { Box::from_raw(self.target.as_ptr()) }
    }
}

/// See the module.
pub(super) struct RingReader {
    storage: Arc<OsStorage>,
    /// Taken by the drop only.
    ring: Option<Ring>,
    /// Requests that failed before they began.
    failed: Vec<Completed>,
}

impl RingReader {
    pub(super) fn new(storage: Arc<OsStorage>, ring: Ring) -> RingReader {
        RingReader { storage, ring: Some(ring), failed: Vec::new() }
    }

    fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("a reader has its ring until its drop")
    }

    fn land_all(&mut self, completed: &mut Vec<Completed>) {
        while let Some((flight, result)) = self.ring().land() {
            let settled = self.settle(flight, result);
            completed.push(settled);
        }
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
                // The device may want a larger alignment: a plain read finds out.
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
        self.ring.as_ref().map_or(0, |ring| ring.free.len())
    }

    fn push(&mut self, request: Request) {
        let Request { file, offset, mut target } = request;
        let (parts, bytes, is_direct) = {
            let buffers = target.buffers();
            let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
            let is_direct = self.storage.is_direct(file, offset, &buffers);
            (parts_of(buffers), bytes, is_direct)
        };
        match self.storage.open_to_read(file, offset, bytes, is_direct) {
            Err(error) => self.failed.push(Completed { result: Err(error), target }),
            Ok(open) => {
                let target = NonNull::from(Box::leak(target));
                self.ring().push(Flight { file, offset, bytes, is_direct, _open: open, target, parts });
            }
        }
    }

    fn submit(&mut self) {
        // What the kernel does not take now it takes, or refuses, at the next `reap`.
        let _ = self.ring().enter(0);
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        completed.append(&mut self.failed);
        if self.ring().in_flight() == 0 {
            return;
        }
        loop {
            let wait_for = usize::from(completed.is_empty());
            self.ring().enter(wait_for).expect("a ring that was made takes reads");
            self.land_all(completed);
            // What came may have been a bell that somebody has left.
            if !completed.is_empty() {
                return;
            }
        }
    }

    fn reap_or_bell(&mut self, completed: &mut Vec<Completed>, timeout_ns: Option<u64>) {
        completed.append(&mut self.failed);
        let has_bell = self.ring().listen();
        let wait_for = usize::from(completed.is_empty() && self.ring().in_flight() > 0);
        // Without a bell it is not waited for long.
        let timeout_ns = if has_bell { timeout_ns } else { Some(timeout_ns.unwrap_or(DEAF_NS).min(DEAF_NS)) };
        let entered = match timeout_ns {
            None => self.ring().enter(wait_for),
            Some(0) => self.ring().enter(0),
            Some(ns) => self.ring().enter_for(wait_for, ns),
        };
        entered.expect("a ring that was made takes reads");
        self.land_all(completed);
    }

    fn bell(&mut self) -> Waker {
        self.ring().listen();
        match &self.ring().bell {
            Some(bell) => Waker::from(Arc::clone(bell)),
            None => Waker::noop().clone(),
        }
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        let Some(mut ring) = self.ring.take() else { return };
        while ring.in_flight() > 0 {
            if let Err(error) = ring.enter(1) {
                // The kernel may still write into the targets: they are leaked with the ring, for good.
                log::error!("{} reads in flight cannot be reaped: {error}", ring.in_flight());
                std::mem::forget(ring);
                return;
            }
            while let Some((flight, _)) = ring.land() {
                drop(flight.into_target());
            }
        }
        self.storage.readers.give_back(ring);
    }
}

/// The buffers as parts, those that lie side by side as one.
fn parts_of(buffers: Vec<&mut [u8]>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        match parts.last_mut() {
            Some(last) if last.start.wrapping_add(last.bytes) == buffer.as_mut_ptr() => {
                last.bytes += buffer.len();
            }
            _ => parts.push(Part { start: buffer.as_mut_ptr(), bytes: buffer.len() }),
        }
    }
    parts
}

/// Why a ring could not be made, and whether asking again is of use.
pub(super) fn refusal(error: &std::io::Error) -> Option<String> {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR) => None,
        _ => Some(format!("the kernel refuses io_uring: {error}")),
    }
}
