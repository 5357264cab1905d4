//! A machine that does not exist, for tests: a whole store runs in it on one thread, every step decided by a
//! seed.
//!
//! It is for the store's own tests and for those of programs that embed it; with the feature `sim` only. It
//! says nothing about speed. One thread drives a world: a store opened in one is not to be used by several.
//!
//! A [`World`] is a disk that keeps what is durable apart from what is only written, a clock that stands
//! still unless something waits, a scheduler that gives the store's background work its turns, and a stream
//! of random numbers. The same calls on a world of the same seed do the same, to the byte. So a test can stop
//! the store at any of its calls of the disk, cut the power, and look at what the next process finds; and a
//! failure is replayed from its seed.
//!
//! ```
//! use trine::sim::{Crash, Stop, World};
//! # fn main() -> trine::Result<()> {
//! let world = World::new(7);
//! let db = world.builder().memory_bytes(256 << 10).open()?;
//! let users = db.ordered("users").open()?;
//! users.put("ann", "1")?;
//! db.sync()?;
//! world.stop(Stop::Amid, 0);
//! assert!(users.put("bob", "2").is_err(), "the process stopped amid the write");
//!
//! // What a power cut leaves, in a world of its own; another seed loses other pages.
//! let after = world.crash(Crash::Power, 1);
//! let db = after.builder().memory_bytes(256 << 10).open()?;
//! let users = db.ordered("users").open()?;
//! assert_eq!(users.get("ann")?.as_deref(), Some(&b"1"[..]));
//! # Ok(()) }
//! ```

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::{FileKind, FileName};
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, Mutex};
use crate::engine::{Env, OpenOptions, Store};
use crate::inspect::{Report, Salvaged, salvage_in, verify_in};
use crate::io::sim::{Plan, Select, SimDisk, SimRng, SimThreads, sim_env};

use super::builder::{Access, Builder, Create};
use super::database::Db;
use super::durability::Durability;

pub use crate::io::sim::{Crash, FailedSync, Failure, Operation, Repeat, Stop};

/// Least memory of a simulated store, in bytes: its write buffers are 16 KiB.
const MEMORY_BYTES_MIN: u64 = 128 << 10;

/// Memory of a store that a salvage makes, in bytes: its batches fit half a write buffer.
const SALVAGE_MEMORY_BYTES: u64 = 3 << 20;

/// A simulated machine. See the module.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// use trine::sim::World;
/// let (one, two) = (World::new(7), World::new(7));
/// for world in [&one, &two] {
///     world.start_log();
///     world.builder().open()?.ordered("users").open()?.put("ann", "1")?;
/// }
/// assert_eq!(one.log(), two.log());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct World {
    disk: Arc<SimDisk>,
    process: Mutex<Process>,
}

#[derive(Debug)]
struct Process {
    seed: u64,
    rng: SimRng,
    /// Scheduler of the store opened last.
    threads: Option<Arc<SimThreads>>,
}

impl World {
    /// A machine with an empty disk.
    ///
    /// ```
    /// let world = trine::sim::World::new(1);
    /// assert_eq!((world.calls(), world.used_bytes()), (0, 0));
    /// ```
    pub fn new(seed: u64) -> World {
        World::on(SimDisk::new(seed), seed)
    }

    fn on(disk: Arc<SimDisk>, seed: u64) -> World {
        let process = Process { seed, rng: SimRng::new(seed), threads: None };
        World { disk, process: Mutex::new(process) }
    }

    /// A builder of the store on this machine's disk.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// let world = trine::sim::World::new(1);
    /// let db = world.builder().set("manifest_bytes", 16 << 10).open()?;
    /// assert!(matches!(world.builder().open(), Err(trine::Error::Locked { .. })));
    /// # Ok(()) }
    /// ```
    pub fn builder(&self) -> WorldBuilder<'_> {
        let builder = Builder::new(Path::new("simulated"));
        WorldBuilder { world: self, builder, memory_bytes: None, cache_bytes: None }
    }

    /// A store of the lab on this machine's disk, opened or made.
    ///
    /// # Errors
    /// As [`crate::lab::Lab::open`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// let world = trine::sim::World::new(1);
    /// let mut lab = world.open_lab(&trine::lab::Preset::LemurLeveling.knobs())?;
    /// lab.put(b"0001", &[7; 20])?;
    /// assert!(lab.contains(b"0001")?);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "lab")]
    pub fn open_lab(&self, knobs: &crate::lab::Knobs) -> Result<crate::lab::Lab> {
        crate::lab::Lab::open_in(self.env(), knobs)
    }

    /// Gives background work of the store opened last one turn. `false` if none of it has anything to do.
    ///
    /// Calls that wait (`flush`, `settle`, a write that needs room) give turns by themselves. Between such
    /// calls nothing moves but by this.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// world.run_until_idle();
    /// assert!(!world.run_one());
    /// # Ok(()) }
    /// ```
    pub fn run_one(&self) -> bool {
        let threads = self.process.lock().threads.clone();
        threads.is_some_and(|threads| threads.run_one())
    }

    /// Gives background work turns until it has nothing to do.
    ///
    /// # Panics
    /// If it never comes to rest.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// world.run_until_idle();
    /// assert!(!world.run_one());
    /// # Ok(()) }
    /// ```
    pub fn run_until_idle(&self) {
        let threads = self.process.lock().threads.clone();
        if let Some(threads) = threads {
            threads.run_until_idle();
        }
    }

    /// Lets time pass for the store opened last.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// world.set_capacity_bytes(Some(world.used_bytes()));
    /// users.put("ann", "1")?;
    /// assert!(db.flush().is_err());
    /// world.set_capacity_bytes(None);
    /// world.advance_ns(1_000_000_000);
    /// world.run_until_idle();
    /// assert!(db.flush().is_ok(), "it was tried again after a while");
    /// # Ok(()) }
    /// ```
    pub fn advance_ns(&self, ns: u64) {
        let threads = self.process.lock().threads.clone();
        if let Some(threads) = threads {
            threads.clock().advance(ns);
        }
    }

    /// A machine of its own with the same disk, as it is now. No store is open there, though the lock is as
    /// it was: a [`crash`](World::crash) is what opens it again.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// let fork = world.fork();
    /// let before = fork.calls();
    /// users.put("ann", "1")?;
    /// assert_eq!(fork.calls(), before);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fork(&self) -> World {
        World::on(self.disk.fork(), self.process.lock().seed)
    }

    /// A machine with the disk as the next process finds it, were this one to end here. This one goes on.
    ///
    /// The seed decides what of the unsynced writes and names a power cut leaves, and what the next process
    /// does.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// let after = world.crash(trine::sim::Crash::Process, 2);
    /// let db = after.builder().open()?;
    /// assert!(db.keyspace("users")?.contains("ann")?, "the kernel had it");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn crash(&self, crash: Crash, seed: u64) -> World {
        let disk = self.disk.fork();
        disk.crash(crash, seed);
        World::on(disk, seed)
    }

    /// A machine whose store's directory is the one called `path` beside this one's, as it is now: where
    /// [`Db::checkpoint`] of that path has put its store. As of a process that has ended.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// db.ordered("users").open()?.put("ann", "1")?;
    /// db.checkpoint("copy")?;
    /// let copy = world.beside("copy").builder().open()?;
    /// assert!(copy.keyspace("users")?.contains("ann")?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn beside(&self, path: impl AsRef<Path>) -> World {
        let disk = self.disk.directory_beside(path.as_ref()).fork();
        disk.crash(Crash::Process, 0);
        World::on(disk, self.process.lock().seed)
    }

    /// The process stops at call `index` of the disk from now, counting from 0: that call and all after it
    /// fail. Replaces what was planned before.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// world.stop(trine::sim::Stop::Before, 0);
    /// assert!(users.put("ann", "1").is_err());
    /// assert!(world.is_stopped());
    /// # Ok(()) }
    /// ```
    pub fn stop(&self, stop: Stop, index: u64) {
        self.disk.plan(Plan::stop(stop, index));
    }

    /// From now on calls of the disk fail as the faults say. Replaces what was planned before; none: all is
    /// well again.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// use trine::sim::{Failure, Fault, Operation};
    /// world.fail(&[Fault::of(Operation::Sync, Failure::Io)]);
    /// users.put("ann", "1")?;
    /// assert!(matches!(db.sync(), Err(trine::Error::Io { .. })));
    /// assert!(matches!(users.put("bob", "2"), Err(trine::Error::Latched { .. })));
    /// # Ok(()) }
    /// ```
    pub fn fail(&self, faults: &[Fault]) {
        let plan = faults.iter().fold(Plan::default(), |plan, fault| {
            let plan = plan.and_fail(fault.select, fault.index, fault.failure, fault.repeat);
            plan.with_failed_sync(fault.failed_sync)
        });
        self.disk.plan(plan);
    }

    /// Whether the process was stopped.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// world.stop(trine::sim::Stop::After, 0);
    /// assert!(!world.is_stopped());
    /// assert!(users.put("ann", "1").is_err());
    /// assert!(world.is_stopped());
    /// # Ok(()) }
    /// ```
    pub fn is_stopped(&self) -> bool {
        self.disk.is_stopped()
    }

    /// Calls of the disk so far.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// let before = world.calls();
    /// users.put("ann", "1")?;
    /// assert!(world.calls() > before);
    /// # Ok(()) }
    /// ```
    pub fn calls(&self) -> u64 {
        self.disk.calls()
    }

    /// Keeps a log of calls from now on.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// users.put("ann", "1")?;
    /// assert!(world.log().is_empty());
    /// world.start_log();
    /// users.put("ann", "2")?;
    /// assert!(!world.log().is_empty());
    /// # Ok(()) }
    /// ```
    pub fn start_log(&self) {
        self.disk.start_log();
    }

    /// The log so far, a line a call, with a checksum of what was written.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// world.start_log();
    /// users.put("ann", "1")?;
    /// assert!(world.log()[0].contains("Write log-"));
    /// # Ok(()) }
    /// ```
    pub fn log(&self) -> Vec<String> {
        self.disk.log().iter().map(ToString::to_string).collect()
    }

    /// How large all files together may grow; `None`: without limit.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// world.set_capacity_bytes(Some(world.used_bytes()));
    /// users.put("ann", "1")?;
    /// assert!(matches!(db.flush(), Err(trine::Error::Full { .. })));
    /// # Ok(()) }
    /// ```
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.disk.set_capacity_bytes(capacity_bytes);
    }

    /// How large all files together are.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// let before = world.used_bytes();
    /// users.put("ann", "1")?;
    /// db.flush()?;
    /// assert!(world.used_bytes() > before);
    /// # Ok(()) }
    /// ```
    pub fn used_bytes(&self) -> u64 {
        self.disk.used_bytes()
    }

    /// Names of the store's files, in order.
    ///
    /// # Errors
    /// `Missing` while there is no directory.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// assert!(matches!(world.files(), Err(trine::Error::Missing { .. })));
    /// let db = world.builder().open()?;
    /// assert!(world.files()?.iter().any(|name| name == "STORE"));
    /// # Ok(()) }
    /// ```
    pub fn files(&self) -> Result<Vec<String>> {
        self.disk.names()
    }

    /// As [`inspect::verify`](crate::inspect::verify), of the store on this machine's disk.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// world.builder().open()?.close()?;
    /// assert!(world.verify()?.findings.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn verify(&self) -> Result<Report> {
        verify_in(&self.env(), |_| {})
    }

    /// As [`inspect::salvage`](crate::inspect::salvage), of the store on this machine's disk, to that of
    /// another.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # use trine::sim::World;
    /// let (world, target) = (World::new(1), World::new(2));
    /// let db = world.builder().open()?;
    /// db.ordered("users").open()?.put("ann", "1")?;
    /// db.close()?;
    /// assert_eq!(world.salvage(&target)?.writes, 1);
    /// assert!(target.builder().open()?.keyspace("users")?.contains("ann")?);
    /// # Ok(()) }
    /// ```
    pub fn salvage(&self, target: &World) -> Result<Salvaged> {
        let (from, to) = (self.env(), target.env());
        // Damaged files are read in pieces of any length.
        self.disk.take_any_alignment();
        let settings = StoreSettings { memory_bytes: SALVAGE_MEMORY_BYTES, ..StoreSettings::default() };
        salvage_in(&from, to, settings, &mut |_| {})
    }

    /// A process on this machine.
    fn env(&self) -> Env {
        let mut process = self.process.lock();
        let (env, threads) = sim_env(&self.disk, process.rng.u64());
        process.threads = Some(threads);
        env
    }

    /// The bytes of a file; `None` if there is none of that name.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// let header = world.contents("STORE").unwrap();
    /// assert_eq!(header[..8], *b"\x89Trine\r\n");
    /// assert!(world.contents("log-00000000000000ff").is_none());
    /// # Ok(()) }
    /// ```
    pub fn contents(&self, file: &str) -> Option<Vec<u8>> {
        self.disk.contents(FileName::parse(file, 0)?)
    }

    /// Makes, replaces or (with `None`) removes a file, durably: for damage.
    ///
    /// # Panics
    /// If no file of a store has such a name.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// db.close()?;
    /// let mut bytes = world.contents("STORE").unwrap();
    /// bytes[20] ^= 1;
    /// world.set_contents("STORE", Some(&bytes));
    /// assert!(matches!(world.builder().open(), Err(trine::Error::Corrupt(_))));
    /// # Ok(()) }
    /// ```
    pub fn set_contents(&self, file: &str, bytes: Option<&[u8]>) {
        let file = FileName::parse(file, 0).expect("the name of a store's file");
        self.disk.set_contents(file, bytes);
    }
}

/// Settings to choose before a simulated store is opened.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let world = trine::sim::World::new(1);
/// let db = world.builder().memory_bytes(256 << 10).open()?;
/// assert_eq!(db.stats().memory.budget_bytes, 256 << 10);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct WorldBuilder<'w> {
    world: &'w World,
    builder: Builder,
    memory_bytes: Option<u64>,
    cache_bytes: Option<u64>,
}

impl WorldBuilder<'_> {
    /// As [`Builder::memory_bytes`], from 128 KiB on: write buffers are then 16 KiB, and flushes and merges
    /// come after a few hundred items.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// assert!(world.builder().memory_bytes(1).open().is_err());
    /// let db = world.builder().memory_bytes(128 << 10).open()?;
    /// assert_eq!(db.stats().memory.budget_bytes, 128 << 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Of the budget, what the cache, filters and fences have at most, in bytes: what else they would have
    /// stays unused. So a store can be much larger than the memory for its reads, without flushes and merges
    /// as small as that. Without effect if they would have less anyway.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// let db = world.builder().memory_bytes(32 << 20).cache_bytes(64 << 10).open()?;
    /// let memory = db.stats().memory;
    /// let cache = memory.roles.iter().find(|role| role.name == "cache").unwrap();
    /// assert_eq!((memory.budget_bytes, cache.limit_bytes), (32 << 20, 64 << 10));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// As [`Builder::durability`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// use trine::sim::Crash;
    /// let db = world.builder().durability(trine::Durability::Sync).open()?;
    /// db.ordered("users").open()?.put("ann", "1")?;
    /// let db = world.crash(Crash::Power, 2).builder().open()?;
    /// assert!(db.keyspace("users")?.contains("ann")?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.builder = self.builder.durability(durability);
        self
    }

    /// As [`Builder::create`].
    ///
    /// ```
    /// # let world = trine::sim::World::new(1);
    /// let never = world.builder().create(trine::Create::Never).open();
    /// assert!(matches!(never, Err(trine::Error::Missing { .. })));
    /// ```
    #[must_use]
    pub fn create(mut self, create: Create) -> Self {
        self.builder = self.builder.create(create);
        self
    }

    /// As [`Builder::access`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// world.builder().open()?.close()?;
    /// let db = world.builder().access(trine::Access::ReadOnly).open()?;
    /// assert!(matches!(db.sync(), Err(trine::Error::ReadOnly)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.builder = self.builder.access(access);
        self
    }

    /// As [`Builder::set`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// assert!(world.builder().set("no_such_setting", 1).open().is_err());
    /// let db = world.builder().set("open_files_max", 16).open()?;
    /// assert!(db.settings().iter().any(|one| one.name == "open_files_max" && one.value == 16));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn set(mut self, name: &str, value: u64) -> Self {
        self.builder = self.builder.set(name, value);
        self
    }

    /// Opens the store; its background work is then what the world's scheduler runs.
    ///
    /// # Errors
    /// As [`Builder::open`].
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// let db = world.builder().open()?;
    /// db.ordered("users").open()?;
    /// assert_eq!(db.keyspaces().len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn open(self) -> Result<Db> {
        let mut options = self.builder.options()?;
        if let Some(memory_bytes) = self.memory_bytes {
            if memory_bytes < MEMORY_BYTES_MIN {
                let fault =
                    format!("memory_bytes is {memory_bytes}, and must be at least {MEMORY_BYTES_MIN}");
                return Err(Error::Invalid { faults: vec![fault] });
            }
            options = OpenOptions::new(StoreSettings { memory_bytes, ..options.settings }, options.mode);
        }
        if let Some(bytes) = self.cache_bytes {
            options.budget = options.budget.with_cache_bytes(bytes);
        }
        Ok(Db::new(Store::open(self.world.env(), options)?))
    }
}

/// Calls of the disk that fail.
///
/// ```
/// use trine::sim::{Failure, Fault, Operation, World};
/// # fn main() -> trine::Result<()> {
/// let world = World::new(1);
/// let db = world.builder().open()?;
/// let users = db.ordered("users").open()?;
/// world.fail(&[Fault::of(Operation::Write, Failure::Full).in_files("log")]);
/// assert!(matches!(users.put("ann", "1"), Err(trine::Error::Full { .. })));
/// users.put("ann", "1")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    select: Select,
    index: u64,
    failure: Failure,
    repeat: Repeat,
    failed_sync: FailedSync,
}

impl Fault {
    /// The next call of that kind fails, once.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// use trine::sim::{Failure, Fault, Operation};
    /// world.fail(&[Fault::of(Operation::Write, Failure::Full)]);
    /// assert!(users.put("ann", "1").is_err());
    /// assert!(users.put("ann", "1").is_ok());
    /// # Ok(()) }
    /// ```
    pub fn of(operation: Operation, failure: Failure) -> Fault {
        Fault {
            select: Select::operation(operation),
            index: 0,
            failure,
            repeat: Repeat::Once,
            failed_sync: FailedSync::default(),
        }
    }

    /// Only calls on files of a kind are meant: "STORE", "manifest", "log" or "table".
    ///
    /// # Panics
    /// If there is no such kind.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// use trine::sim::{Failure, Fault, Operation};
    /// users.put("ann", "1")?;
    /// world.fail(&[Fault::of(Operation::Create, Failure::Full).in_files("table")]);
    /// let Err(trine::Error::Full { file }) = db.flush() else { panic!() };
    /// assert!(file.starts_with("table-"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn in_files(mut self, kind: &str) -> Fault {
        let found = FileKind::ALL.into_iter().find(|one| one.word() == kind);
        self.select.kind = Some(found.expect("a kind of file"));
        self
    }

    /// So many of those calls are let through first.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// use trine::sim::{Failure, Fault, Operation};
    /// world.fail(&[Fault::of(Operation::Write, Failure::Full).in_files("log").after(1)]);
    /// assert!(users.put("ann", "1").is_ok());
    /// assert!(users.put("bob", "2").is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn after(mut self, count: u64) -> Fault {
        self.index = count;
        self
    }

    /// Once, or from then on.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// use trine::sim::{Failure, Fault, Operation, Repeat};
    /// world.fail(&[Fault::of(Operation::Write, Failure::Full).repeat(Repeat::Always)]);
    /// assert!(users.put("ann", "1").is_err() && users.put("ann", "1").is_err());
    /// world.fail(&[]);
    /// assert!(users.put("ann", "1").is_ok());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Fault {
        self.repeat = repeat;
        self
    }

    /// What a failed sync leaves. It holds for all faults planned together: the last one's counts.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let world = trine::sim::World::new(1);
    /// # let db = world.builder().open()?;
    /// # let users = db.ordered("users").open()?;
    /// use trine::sim::{FailedSync, Failure, Fault, Operation};
    /// let sync = Fault::of(Operation::Sync, Failure::Io).in_files("log");
    /// world.fail(&[sync.leaves(FailedSync::Reverted)]);
    /// users.put("ann", "1")?;
    /// assert!(db.sync().is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn leaves(mut self, failed_sync: FailedSync) -> Fault {
        self.failed_sync = failed_sync;
        self
    }
}
