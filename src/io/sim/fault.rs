//! Planned failures of simulated calls, planned stops of the process, and the log of calls.
//!
//! A plan decides and counts; `state` applies the effects of a failure to the disk. Plain data, no locks.

use std::fmt;

use crate::base::id::{FileKind, FileName};

/// A call by a store to a disk. It may be made to fail, or to be the last one.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let world = trine::sim::World::new(1);
/// # let db = world.builder().open()?;
/// # let users = db.ordered("users").open()?;
/// use trine::sim::{Failure, Fault, Operation};
/// world.fail(&[Fault::of(Operation::Sync, Failure::Io)]);
/// users.put("ann", "1")?;
/// assert!(db.sync().is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Makes the store's directory.
    CreateDirectory,
    /// Asks whether the directory exists.
    Exists,
    /// Takes the lock.
    Lock,
    /// Lists the directory.
    List,
    /// Makes a file.
    Create,
    /// Reads from a file.
    Read,
    /// Writes to a file.
    Write,
    /// Starts writeback, without waiting.
    StartWriteback,
    /// Returns pages of a file to the file system.
    PunchHole,
    /// Makes a file's bytes durable.
    Sync,
    /// Asks for a file's length.
    Length,
    /// Gives a file another name.
    Rename,
    /// Gives a file a name in another directory as well.
    Link,
    /// Removes a file.
    Remove,
    /// Makes the directory's names durable.
    SyncDirectory,
}

/// A call that reached the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DiskCall {
    /// Index of the call; the first is 0.
    pub(crate) index: u64,
    pub(crate) operation: Operation,
    /// `None` for a call on the directory.
    pub(crate) file: Option<FileName>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Checksum of the written bytes, so that two logs are equal only if the bytes are.
    pub(crate) checksum: u32,
    /// Outcome: "ok", "error", or the step of the plan that intervened.
    pub(crate) outcome: &'static str,
}

impl fmt::Display for DiskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {:?}", self.index, self.operation)?;
        if let Some(file) = self.file {
            write!(f, " {file}")?;
        }
        use Operation::{PunchHole, Read, StartWriteback, Write};
        if matches!(self.operation, Read | Write | StartWriteback | PunchHole) {
            write!(f, " at {}, {} bytes", self.offset, self.bytes)?;
        }
        if self.operation == Operation::Write {
            write!(f, ", crc {:08x}", self.checksum)?;
        }
        write!(f, ": {}", self.outcome)
    }
}

/// The moment of a call at which the process stops.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let world = trine::sim::World::new(1);
/// # let db = world.builder().open()?;
/// # let users = db.ordered("users").open()?;
/// use trine::sim::{Crash, Stop};
/// world.stop(Stop::After, 0);
/// assert!(users.put("ann", "1").is_err(), "nobody hears of it");
/// let after = world.crash(Crash::Process, 1);
/// let users = after.builder().open()?.ordered("users").open()?;
/// assert!(users.contains("ann")?, "it was written all the same");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Nothing of the call is done.
    Before,
    /// A write is partly done. A call without parts is done or not.
    Amid,
    /// All of the call is done, but it returns an error.
    After,
}

/// The error of a failing call. A sync returns `Io` also for a full disk, and when it is interrupted.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let world = trine::sim::World::new(1);
/// # let db = world.builder().open()?;
/// # let users = db.ordered("users").open()?;
/// use trine::sim::{Failure, Fault, Operation};
/// world.fail(&[Fault::of(Operation::Write, Failure::Io)]);
/// assert!(matches!(users.put("ann", "1"), Err(trine::Error::Io { .. })));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The device fails; a write, and a sync, may have been done in part.
    Io,
    /// The disk is full; a write may have been done in part.
    Full,
    /// The process has no file descriptor left: the call has no effect.
    NoDescriptor,
    /// The file system has become read-only: a call that would change it has no effect.
    ReadOnly,
    /// A sync is interrupted, and may have been partly done. Other calls are repeated when interrupted.
    Interrupted,
}

/// How often a call fails.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let world = trine::sim::World::new(1);
/// # let db = world.builder().open()?;
/// # let users = db.ordered("users").open()?;
/// use trine::sim::{Failure, Fault, Operation, Repeat};
/// world.fail(&[Fault::of(Operation::Write, Failure::Full).repeat(Repeat::Always)]);
/// assert!(users.put("ann", "1").is_err());
/// assert!(users.put("ann", "1").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// This call, and none after it.
    Once,
    /// This call and every one after it.
    Always,
}

/// State of the pages that a failed sync lost.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let world = trine::sim::World::new(1);
/// # let db = world.builder().open()?;
/// # let users = db.ordered("users").open()?;
/// use trine::sim::{FailedSync, Failure, Fault, Operation};
/// world.fail(&[Fault::of(Operation::Sync, Failure::Io).leaves(FailedSync::Readable)]);
/// users.put("ann", "1")?;
/// assert!(db.sync().is_err());
/// assert!(users.contains("ann")?, "reads go on");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FailedSync {
    /// They read as written, and are never durable unless written again (as on ext4).
    #[default]
    Readable,
    /// They read as they were at the last sync (as on Btrfs).
    Reverted,
}

/// Selects calls by operation and kind of file; `None` selects all.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Select {
    pub(crate) operation: Option<Operation>,
    pub(crate) kind: Option<FileKind>,
}

impl Select {
    pub(crate) const ANY: Select = Select { operation: None, kind: None };

    pub(crate) fn operation(operation: Operation) -> Select {
        Select { operation: Some(operation), ..Select::ANY }
    }

    fn takes(self, operation: Operation, file: Option<FileName>) -> bool {
        self.operation.is_none_or(|wanted| wanted == operation)
            && self.kind.is_none_or(|wanted| file.is_some_and(|file| file.kind == wanted))
    }
}

/// A plan's decision about one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Go,
    Stop(Stop),
    Fail(Failure),
}

#[derive(Clone, Debug)]
struct Fault {
    select: Select,
    /// Calls of `select` still to be let through.
    left_count: u64,
    verdict: Verdict,
    repeat: Repeat,
    /// After the fault has struck once, it selects only calls of the same operation.
    narrows: bool,
}

/// Planned failures. Calls are counted from the moment the disk gets the plan. A crash ends the plan.
#[derive(Clone, Default, Debug)]
pub(crate) struct FaultPlan {
    faults: Vec<Fault>,
    failed_sync: FailedSync,
}

impl FaultPlan {
    /// The process stops at call `index` from now, counting from 0.
    pub(crate) fn stop(stop: Stop, index: u64) -> FaultPlan {
        FaultPlan::default().and(Select::ANY, index, Verdict::Stop(stop), Repeat::Once)
    }

    /// Fails the call with this index among those that `select` takes; with `Always` also all calls after it.
    #[cfg(test)]
    pub(crate) fn fail(select: Select, index: u64, failure: Failure, repeat: Repeat) -> FaultPlan {
        FaultPlan::default().and_fail(select, index, failure, repeat)
    }

    /// As [`FaultPlan::fail`], in addition to the faults planned already.
    pub(crate) fn and_fail(self, select: Select, index: u64, failure: Failure, repeat: Repeat) -> FaultPlan {
        self.and(select, index, Verdict::Fail(failure), repeat)
    }

    /// As [`FaultPlan::and_fail`] for any call, and then for every later call of the same operation.
    #[cfg(test)]
    pub(crate) fn and_fail_alike(mut self, index: u64, failure: Failure) -> FaultPlan {
        let (verdict, repeat) = (Verdict::Fail(failure), Repeat::Always);
        self.faults.push(Fault { select: Select::ANY, left_count: index, verdict, repeat, narrows: true });
        self
    }

    fn and(mut self, select: Select, index: u64, verdict: Verdict, repeat: Repeat) -> FaultPlan {
        self.faults.push(Fault { select, left_count: index, verdict, repeat, narrows: false });
        self
    }

    pub(crate) fn with_failed_sync(self, failed_sync: FailedSync) -> FaultPlan {
        FaultPlan { failed_sync, ..self }
    }

    pub(super) fn failed_sync(&self) -> FailedSync {
        self.failed_sync
    }

    /// Judges the next call. If several faults apply to it, the first planned decides; the others count the
    /// call.
    pub(super) fn judge(&mut self, operation: Operation, file: Option<FileName>) -> Verdict {
        let mut verdict = Verdict::Go;
        self.faults.retain_mut(|fault| {
            if !fault.select.takes(operation, file) {
                return true;
            }
            if fault.left_count > 0 {
                fault.left_count -= 1;
                return true;
            }
            if verdict == Verdict::Go {
                verdict = fault.verdict;
            }
            if fault.narrows {
                fault.select.operation = Some(operation);
            }
            fault.repeat == Repeat::Always
        });
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults count only the calls they select, and strike once or always.
    #[test]
    fn faults_count_only_selected_calls() {
        let log = Some(FileName::new(FileKind::Log, 1));
        let logs = Select { operation: Some(Operation::Write), kind: Some(FileKind::Log) };
        let mut plan = FaultPlan::fail(logs, 1, Failure::Full, Repeat::Once).and_fail(
            Select::operation(Operation::SyncDirectory),
            0,
            Failure::Io,
            Repeat::Always,
        );
        let mut judge = |operation, file| plan.judge(operation, file);
        assert_eq!(judge(Operation::Write, log), Verdict::Go);
        assert_eq!(judge(Operation::Write, Some(FileName::STORE)), Verdict::Go);
        assert_eq!(judge(Operation::Read, log), Verdict::Go);
        assert_eq!(judge(Operation::Write, log), Verdict::Fail(Failure::Full));
        assert_eq!(judge(Operation::Write, log), Verdict::Go);
        for _ in 0..3 {
            assert_eq!(judge(Operation::SyncDirectory, None), Verdict::Fail(Failure::Io));
        }
        let mut plan = FaultPlan::stop(Stop::Amid, 2);
        let verdicts: Vec<_> = (0..4).map(|_| plan.judge(Operation::Read, log)).collect();
        assert_eq!(verdicts, [Verdict::Go, Verdict::Go, Verdict::Stop(Stop::Amid), Verdict::Go]);
    }

    /// A call prints as one line with operation, file, position and outcome.
    #[test]
    fn calls_print_as_one_line() {
        let file = Some(FileName::STORE);
        let call = DiskCall {
            index: 3,
            operation: Operation::Write,
            file,
            offset: 4096,
            bytes: 8,
            checksum: 0xab,
            outcome: "ok",
        };
        assert_eq!(call.to_string(), "#3 Write STORE at 4096, 8 bytes, crc 000000ab: ok");
        let call = DiskCall { operation: Operation::List, file: None, ..call };
        assert_eq!(call.to_string(), "#3 List: ok");
    }
}
