//! A simulated machine for tests: a whole store runs in it on one thread, and a seed determines every step.
//!
//! The simulator serves the store's own tests and tests of programs that embed the store. It needs the
//! feature `sim`. It does not model speed. One thread drives a world: a store in a world must not be used by
//! several threads.
//!
//! A [`World`] has a disk that distinguishes durable bytes from bytes only written. Its clock stands still
//! unless a call waits. Its scheduler gives turns to the store's background work, and its random numbers come
//! from the seed. The same calls on a world with the same seed have the same effects, to the byte. So a test
//! can stop the store at any disk call, cut the power, and examine the state that the next process finds. A
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
//! // The disk after a power cut, in a separate world; another seed loses other pages.
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
use crate::io::sim::{FaultPlan, Select, SimDisk, SimRng, SimThreads, sim_env};

use super::builder::{Access, Builder, Create};
use super::database::Db;
use super::durability::Durability;

pub use crate::io::sim::{Crash, FailedSync, Failure, Operation, Repeat, Stop};

/// Minimum memory of a simulated store, in bytes: its write buffers are then 16 KiB.
const MEMORY_BYTES_MIN: u64 = 128 << 10;

/// Memory of a store made by salvage, in bytes: a salvage batch fits half a write buffer.
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
    /// Scheduler of the most recently opened store.
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

    /// Opens or makes a store of the lab on this machine's disk.
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

    /// Gives one turn to background work of the most recently opened store. `false` if no work is due.
    ///
    /// Calls that wait (`flush`, `settle`, a write that needs room) give turns by themselves. Between such
    /// calls background work runs only by this method.
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

    /// Gives turns to background work until no work is due.
    ///
    /// # Panics
    /// If the work never ends.
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

    /// Advances the clock of the most recently opened store.
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

    /// A separate machine with a copy of the disk as it is now. No store is open there, but the copied lock
    /// is still held: a [`crash`](World::crash) releases it.
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

    /// A separate machine with the disk as the next process would find it if this process ended now. This
    /// machine continues unchanged.
    ///
    /// The seed determines which unsynced writes and names survive a power cut, and the random choices of the
    /// next process.
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

    /// A separate machine with a copy of the directory `path` beside this machine's store, where
    /// [`Db::checkpoint`] of that path has made its store. The copy is as after the end of the process.
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

    /// The process stops at disk call `index`, counting from 0 at the next call: that call and all later ones
    /// fail. Replaces any earlier plan.
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
        self.disk.plan(FaultPlan::stop(stop, index));
    }

    /// From now on disk calls fail according to `faults`. Replaces any earlier plan; without faults all calls
    /// succeed again.
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
        let plan = faults.iter().fold(FaultPlan::default(), |plan, fault| {
            let plan = plan.and_fail(fault.select, fault.index, fault.failure, fault.repeat);
            plan.with_failed_sync(fault.failed_sync)
        });
        self.disk.plan(plan);
    }

    /// Whether the process has stopped.
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

    /// Number of disk calls so far.
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

    /// Records a log of disk calls from now on.
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

    /// The log so far, one line per call, with a checksum of the bytes written.
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

    /// Sets the limit of the total size of all files; `None`: no limit.
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

    /// The total size of all files.
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

    /// As [`inspect::salvage`](crate::inspect::salvage), from the store on this machine's disk to the disk of
    /// another machine.
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

    /// The environment of a new process on this machine.
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

    /// Makes, replaces or (with `None`) removes a file, durably: to simulate damage.
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

/// A builder to set options before opening a simulated store.
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
    /// As [`Builder::memory_bytes`], with a minimum of 128 KiB: write buffers are then 16 KiB, and flushes
    /// and merges happen after a few hundred items.
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

    /// Maximum memory of the cache, filters and fences, in bytes; the rest of their share of the budget stays
    /// unused. So a store can be much larger than its cache, without equally small flushes and merges. Has no
    /// effect if their share is smaller anyway.
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

    /// Opens the store. The world's scheduler then runs its background work.
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

/// A rule that makes disk calls fail.
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

    /// Restricts the fault to calls on files of a kind: "STORE", "manifest", "log" or "table".
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

    /// Lets the first `count` matching calls succeed.
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

    /// Whether the fault occurs once or from then on.
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

    /// The state of unsynced bytes after a failed sync. It applies to all faults of one plan: the last
    /// fault's value counts.
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
