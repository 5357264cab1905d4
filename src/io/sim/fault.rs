//! When a simulated call fails or the process stops, and the log of calls.
//!
//! It decides and counts; what a failure does to the disk is the disk's business. Plain data, no locks.

use std::fmt;

use crate::base::id::{FileKind, FileName};

/// What a store does with a disk: a call that may be made to fail, or be the last one.
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
    /// Starts writing back, and does not wait.
    StartWriteback,
    /// Gives pages of a file back to the file system.
    PunchHole,
    /// Makes a file's bytes durable.
    Sync,
    /// Asks for a file's length.
    Length,
    /// Gives a file another name.
    Rename,
    /// Gives a file a name in another directory too.
    Link,
    /// Removes a file.
    Remove,
    /// Makes the directory's names durable.
    SyncDirectory,
}

/// A call that reached the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    /// The first is 0.
    pub(crate) index: u64,
    pub(crate) operation: Operation,
    /// None for those of the directory.
    pub(crate) file: Option<FileName>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Of what was written, so that two logs are the same only if the bytes are.
    pub(crate) checksum: u32,
    /// What came of it: "ok", "error", or where a plan stepped in.
    pub(crate) outcome: &'static str,
}

impl fmt::Display for Call {
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

/// Where in a call the process stops.
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
    /// A write is done in part; what has no parts is done or not.
    Amid,
    /// All of it is done, and nobody hears of it.
    After,
}

/// What a failing call answers. A sync answers `Io` also for a full disk, and when it is interrupted.
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
    /// The system has no descriptor left for it: nothing of it is done.
    NoDescriptor,
    /// The file system has become read-only: nothing of a call that changes something is done.
    ReadOnly,
    /// A sync is interrupted, and may have been done in part. Other calls are made again when they are.
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

/// What a failed sync leaves of the pages that it lost.
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

/// Which calls are meant: all, but for what is named.
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

/// What happens to one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Go,
    Stop(Stop),
    Fail(Failure),
}

#[derive(Clone, Debug)]
struct Fault {
    select: Select,
    /// Calls of `select` still let through.
    left_count: u64,
    verdict: Verdict,
    repeat: Repeat,
    /// Once it has come, it takes the calls alike only.
    narrows: bool,
}

/// What goes wrong, and when. Counted from the moment it is given to the disk; the end of a crash is the end
/// of it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Plan {
    faults: Vec<Fault>,
    failed_sync: FailedSync,
}

impl Plan {
    /// The process stops at call `index` from now, counting from 0.
    pub(crate) fn stop(stop: Stop, index: u64) -> Plan {
        Plan::default().and(Select::ANY, index, Verdict::Stop(stop), Repeat::Once)
    }

    /// Of the calls that `select` takes, the one with this index fails, and with `Always` all after it.
    #[cfg(test)]
    pub(crate) fn fail(select: Select, index: u64, failure: Failure, repeat: Repeat) -> Plan {
        Plan::default().and_fail(select, index, failure, repeat)
    }

    /// As [`Plan::fail`], beside what is planned already.
    pub(crate) fn and_fail(self, select: Select, index: u64, failure: Failure, repeat: Repeat) -> Plan {
        self.and(select, index, Verdict::Fail(failure), repeat)
    }

    /// As [`Plan::and_fail`] of any call, and after it every one of the same operation.
    #[cfg(test)]
    pub(crate) fn and_fail_alike(mut self, index: u64, failure: Failure) -> Plan {
        let (verdict, repeat) = (Verdict::Fail(failure), Repeat::Always);
        self.faults.push(Fault { select: Select::ANY, left_count: index, verdict, repeat, narrows: true });
        self
    }

    fn and(mut self, select: Select, index: u64, verdict: Verdict, repeat: Repeat) -> Plan {
        self.faults.push(Fault { select, left_count: index, verdict, repeat, narrows: false });
        self
    }

    pub(crate) fn with_failed_sync(self, failed_sync: FailedSync) -> Plan {
        Plan { failed_sync, ..self }
    }

    pub(super) fn failed_sync(&self) -> FailedSync {
        self.failed_sync
    }

    /// Judges the next call. Of several faults that meet in it the first planned decides; the others count
    /// it.
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

    /// Faults count their own calls only, once or for ever.
    #[test]
    fn faults_count_what_they_select() {
        let log = Some(FileName::new(FileKind::Log, 1));
        let logs = Select { operation: Some(Operation::Write), kind: Some(FileKind::Log) };
        let mut plan = Plan::fail(logs, 1, Failure::Full, Repeat::Once).and_fail(
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
        let mut plan = Plan::stop(Stop::Amid, 2);
        let verdicts: Vec<_> = (0..4).map(|_| plan.judge(Operation::Read, log)).collect();
        assert_eq!(verdicts, [Verdict::Go, Verdict::Go, Verdict::Stop(Stop::Amid), Verdict::Go]);
    }

    /// A call prints as one line that says what, where and what came of it.
    #[test]
    fn calls_print_as_one_line() {
        let file = Some(FileName::STORE);
        let call = Call {
            index: 3,
            operation: Operation::Write,
            file,
            offset: 4096,
            bytes: 8,
            checksum: 0xab,
            outcome: "ok",
        };
        assert_eq!(call.to_string(), "#3 Write STORE at 4096, 8 bytes, crc 000000ab: ok");
        let call = Call { operation: Operation::List, file: None, ..call };
        assert_eq!(call.to_string(), "#3 List: ok");
    }
}
