//! The one error type of the store. Each variant is a case that a caller handles in its own way.

use std::fmt;

use super::sync::Arc;

/// Why an operation failed.
///
/// Cloning is cheap: one failed read may answer many waiters.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// match db.keyspace("names") {
///     Err(trine::Error::NoKeyspace { name }) => assert_eq!(name, "names"),
///     other => panic!("{other:?}"),
/// }
/// let error = users.put([0; 70_000], b"1").unwrap_err();
/// assert!(matches!(error, trine::Error::TooLarge { what: "key", limit: 65_535, given: 70_000 }));
/// assert!(error.to_string().starts_with("a key of 70000 bytes is over the limit of 65535"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Bytes on disk differ from the bytes written. Reads of other blocks go on; see the file and offset.
    /// [`inspect::salvage`](crate::inspect::salvage) copies the undamaged items to a new store.
    Corrupt(Box<Corrupt>),
    /// The operating system refused a read, write or sync.
    Io {
        /// The failed operation: "read", "write", "sync", ...
        operation: &'static str,
        /// The file, relative to the store's directory.
        file: String,
        /// Offset in the file, in bytes, where the operation has one.
        offset: u64,
        /// The operating system's own error.
        source: Arc<std::io::Error>,
    },
    /// The disk or quota is full. Free space and try again; nothing acknowledged was lost.
    Full {
        /// The file that could not grow.
        file: String,
    },
    /// A key, value or batch is over its limit. Nothing was written.
    TooLarge {
        /// "key", "value" or "batch".
        what: &'static str,
        /// Largest allowed size, in bytes.
        limit: u64,
        /// Size given, in bytes.
        given: u64,
    },
    /// The memory budget (`memory_bytes`) has no room for the request, and no work under way makes room.
    /// Nothing was written.
    Memory {
        /// The role that lacks memory, as `stats` names it.
        role: &'static str,
        /// Limit of the role, in bytes.
        limit: u64,
        /// Bytes that the role would hold with the request.
        wanted: u64,
    },
    /// A key of an ingest does not come after the one before it. Nothing of the ingest was written.
    NotAscending {
        /// Number of items put before.
        items: u64,
        /// The key.
        key: Vec<u8>,
        /// The key before it.
        before: Vec<u8>,
    },
    /// An option fixed at creation was given another value on reopen.
    Mismatch {
        /// Name of the option.
        name: &'static str,
        /// Value the keyspace was created with.
        stored: String,
        /// Value given now.
        given: String,
    },
    /// A setting or name is out of its range; every fault is listed.
    Invalid {
        /// One sentence a fault.
        faults: Vec<String>,
    },
    /// The store was written by another release whose format this one does not read, or uses a feature
    /// unknown to this release.
    Unsupported {
        /// The file with the unsupported format or feature.
        file: String,
        /// Name of the unsupported format or feature.
        what: String,
    },
    /// The directory does not exist, and the options do not create the store.
    Missing {
        /// The directory.
        path: String,
    },
    /// There is a store already, and a new one was asked for.
    Exists {
        /// The directory.
        path: String,
    },
    /// The directory holds other files than a store's, and no file of a store.
    Foreign {
        /// The directory.
        path: String,
        /// Its foreign contents, in words.
        found: String,
    },
    /// The store has no file LOCK, which readers and writers lock, and this reader may not make one: it does
    /// not own the directory, or cannot write to it. A writer makes LOCK. The directory's owner may make it,
    /// too: an empty file of that name is enough.
    LockMissing {
        /// The directory.
        path: String,
    },
    /// Another process, or another handle in this one, has the store open.
    Locked {
        /// The directory.
        path: String,
    },
    /// The operating system does not permit the operation.
    Permission {
        /// The refused operation.
        operation: &'static str,
        /// The file or directory.
        file: String,
    },
    /// The file system takes no writes: it was mounted read-only, or became read-only after an error of its
    /// device. The store can be opened for reading.
    ReadOnlyFileSystem {
        /// The refused operation.
        operation: &'static str,
        /// The file or directory.
        file: String,
    },
    /// No keyspace of that name.
    NoKeyspace {
        /// The name.
        name: String,
    },
    /// A function of keys divides the keyspace, and no opener has given its code: the partitions of writes
    /// and of reads of single keys are unknown. Scans work.
    Unrouted {
        /// The name of the function.
        name: String,
    },
    /// A read that needs an order of keys was called on a hashed keyspace.
    Unordered {
        /// The keyspace.
        name: String,
    },
    /// The keyspace or partition was dropped; its handles stay dropped.
    Dropped {
        /// Its name; for a partition: the keyspace's name, a slash, and the partition's name.
        name: String,
    },
    /// The store was opened read-only.
    ReadOnly,
    /// A sync, or a write of log or manifest, failed, or a background thread panicked. The store takes no
    /// writes until it is reopened.
    Latched {
        /// The first failure.
        cause: Box<Error>,
    },
    /// The limit of reads in flight is reached, and the caller does not wait.
    WouldBlock,
    /// The deadline of an operation has passed. Blocks being read for the operation go to the cache.
    TimedOut,
    /// The store was closed.
    Closed,
    /// The process was forked off the process that opened the store, and its handles do not work here.
    /// Nothing was read or written. Open the store again in this process, once the other one has closed it.
    Forked,
    /// A background thread of the store panicked. In [`Error::Latched`] this error is the cause.
    Panicked {
        /// The thread's name.
        thread: &'static str,
        /// The message of the panic.
        message: String,
    },
}

/// Bytes on disk that differ from the bytes written.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// # let db = trine::Db::open(&path)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.flush()?;
/// # db.close()?;
/// # for file in std::fs::read_dir(&path)?.map(|entry| entry.unwrap().path()) {
/// #     if file.file_name().unwrap().to_string_lossy().starts_with("table-") {
/// #         let mut bytes = std::fs::read(&file)?;
/// #         bytes[4096 + 20] ^= 1;
/// #         std::fs::write(&file, bytes)?;
/// #     }
/// # }
/// let db = trine::Db::open(&path)?;
/// let Err(trine::Error::Corrupt(at)) = db.keyspace("users")?.get(b"ann") else { panic!() };
/// assert!(at.file.starts_with("table"));
/// assert_ne!(at.expected, at.found);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corrupt {
    /// The file, relative to the store's directory.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Name of the damaged structure or field.
    pub what: &'static str,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
}

/// The store's result.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// # let users = db.ordered("users").open()?;
/// fn rename(users: &trine::Keyspace<trine::Ordered>, old: &str, new: &str) -> trine::Result<bool> {
///     let Some(value) = users.get(old)? else { return Ok(false) };
///     users.put(new, value)?;
///     users.delete(old)?;
///     Ok(true)
/// }
/// assert!(!rename(&users, "ann", "bob")?);
/// # Ok(()) }
/// ```
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn corrupt(
        file: impl fmt::Display,
        offset: u64,
        what: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Error {
        Error::Corrupt(Box::new(Corrupt {
            file: file.to_string(),
            offset,
            what,
            expected: expected.to_string(),
            found: found.to_string(),
        }))
    }

    /// A decoder's error for bytes that began at `base` of `file`.
    pub(crate) fn malformed(file: impl fmt::Display, base: u64, bad: super::codec::Malformed) -> Error {
        Error::corrupt(file, base + bad.at as u64, bad.what, bad.expected, bad.found)
    }

    /// One word for the kind of error. The word never changes: for counters, logs and machine-readable
    /// answers.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// assert_eq!(db.keyspace("users").unwrap_err().kind(), "no_keyspace");
    /// # Ok(()) }
    /// ```
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Corrupt(_) => "corrupt",
            Error::Io { .. } => "io",
            Error::Full { .. } => "full",
            Error::TooLarge { .. } => "too_large",
            Error::Mismatch { .. } => "mismatch",
            Error::Invalid { .. } => "invalid",
            Error::Unsupported { .. } => "unsupported",
            Error::Missing { .. } => "missing",
            Error::Exists { .. } => "exists",
            Error::Foreign { .. } => "foreign",
            Error::Locked { .. } => "locked",
            Error::Permission { .. } => "permission",
            Error::LockMissing { .. } => "lock_missing",
            Error::Memory { .. } => "memory",
            Error::NotAscending { .. } => "not_ascending",
            Error::Forked => "forked",
            Error::Panicked { .. } => "panicked",
            Error::ReadOnlyFileSystem { .. } => "read_only_file_system",
            Error::NoKeyspace { .. } => "no_keyspace",
            Error::Unrouted { .. } => "unrouted",
            Error::Unordered { .. } => "unordered",
            Error::Dropped { .. } => "dropped",
            Error::ReadOnly => "read_only",
            Error::Latched { .. } => "latched",
            Error::WouldBlock => "would_block",
            Error::TimedOut => "timed_out",
            Error::Closed => "closed",
        }
    }

    /// The error for a thread that panicked, with the panic's message.
    pub(crate) fn panicked(thread: &'static str, panic: &(dyn std::any::Any + Send)) -> Error {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Error::Panicked { thread, message: text.unwrap_or("without a message").to_owned() }
    }

    /// The error of writes after `self` has latched the store.
    pub(crate) fn latched(&self) -> Error {
        match self {
            Error::Latched { .. } => self.clone(),
            other => Error::Latched { cause: Box::new(other.clone()) },
        }
    }
}

fn not_ascending(f: &mut fmt::Formatter<'_>, items: u64, key: &[u8], before: &[u8]) -> fmt::Result {
    write!(
        f,
        "item {} of an ingest, with the key {}, does not come after the one before it, with the key {}; \
         nothing of the ingest was written. Sort its items by the bytes of their keys, each key once",
        items + 1,
        shown(key),
        shown(before)
    )
}

fn unordered(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "keyspace {name:?} is hashed, so its keys have no order. Choose an ordered one for ranges")
}

fn unrouted(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(
        f,
        "the key function {name:?} partitions the keyspace, and was not given; open it with \
         Partitioning::function"
    )
}

fn latched(f: &mut fmt::Formatter<'_>, cause: &Error) -> fmt::Result {
    let why = if matches!(cause, Error::Panicked { .. }) { "" } else { " an earlier one failed:" };
    write!(f, "the store takes no writes until it is reopened, because{why} {cause}")
}

fn too_large(f: &mut fmt::Formatter<'_>, what: &str, limit: u64, given: u64) -> fmt::Result {
    write!(
        f,
        "a {what} of {given} bytes is over the limit of {limit}; nothing was written. \
         Make it smaller, or split it"
    )
}

fn memory(f: &mut fmt::Formatter<'_>, role: &str, limit: u64, wanted: u64) -> fmt::Result {
    write!(
        f,
        "no memory: {role} would have {wanted} bytes, and may have {limit}; nothing was written. Give the \
         store more memory_bytes, or release some: trine stats lists the bytes of each role"
    )
}

fn corrupt(f: &mut fmt::Formatter<'_>, at: &Corrupt) -> fmt::Result {
    write!(
        f,
        "{} is damaged at offset {}: {} should be {} and is {}. Restore the file from a backup, or \
         copy the undamaged data to a new store: trine salvage, inspect::salvage",
        at.file, at.offset, at.what, at.expected, at.found
    )
}

/// A failed sync of a full disk is no [`Error::Full`]: freed space does not bring back the data that the sync
/// may have lost.
fn io(
    f: &mut fmt::Formatter<'_>,
    operation: &str,
    place: (&str, u64),
    source: &std::io::Error,
) -> fmt::Result {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let (file, offset) = place;
    write!(f, "could not {operation} {file}")?;
    if matches!(operation, "read" | "write") {
        write!(f, " at offset {offset}")?;
    }
    match source.kind() {
        StorageFull | QuotaExceeded | FileTooLarge if operation == "sync" => write!(
            f,
            ": space was missing ({source}), and bytes written to it since its last sync may be lost. \
             Free space, then close the store and open it again"
        ),
        _ => write!(f, ": {source}. Check the path, the device and its file system"),
    }
}

/// An error about a directory.
fn place(f: &mut fmt::Formatter<'_>, error: &Error, path: &str) -> fmt::Result {
    match error {
        Error::Missing { .. } => {
            write!(f, "there is no store at {path}. Check the path, or let opening make one")
        }
        Error::Foreign { found, .. } => {
            write!(f, "{path} is not a store: it holds {found}. Choose an empty or new directory")
        }
        _ => write!(f, "there is a store at {path} already. Choose another directory, or open that one"),
    }
}

const FORKED_TEXT: &str = "this process was forked off the one that opened the store, and cannot use it; \
                           open it again here, once the other process has closed it";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Corrupt(at) => corrupt(f, at),
            Error::Io { operation, file, offset, source } => io(f, operation, (file, *offset), source),
            Error::Full { file } => {
                write!(f, "no space left for {file}. Free space and try again; nothing acknowledged was lost")
            }
            Error::TooLarge { what, limit, given } => too_large(f, what, *limit, *given),
            Error::Memory { role, limit, wanted } => memory(f, role, *limit, *wanted),
            Error::NotAscending { items, key, before } => not_ascending(f, *items, key, before),
            Error::Mismatch { name, stored, given } => write!(
                f,
                "{name} is fixed at creation: the store has {stored}, {given} was asked for. \
                 Open it with {stored}"
            ),
            Error::Invalid { faults } => {
                let faults = faults.join("; ");
                write!(f, "invalid settings, nothing was done: {faults}. Correct them and try again")
            }
            Error::Unsupported { file, what } => write!(
                f,
                "{file} needs {what}, which this release does not support. Open it with the release that \
                 wrote it, or a newer one"
            ),
            Error::Missing { path } | Error::Exists { path } | Error::Foreign { path, .. } => {
                place(f, self, path)
            }
            Error::Locked { path } => {
                write!(f, "the store at {path} is open elsewhere. Close the other process or handle first")
            }
            Error::Permission { operation, file } => {
                write!(f, "no permission to {operation} {file}. Check its owner and mode")
            }
            Error::LockMissing { path } => write!(
                f,
                "the store at {path} has no file LOCK, and this reader may not make one. Open the store for \
                 writing once, or make an empty file LOCK there as the directory's owner"
            ),
            Error::ReadOnlyFileSystem { operation, file } => write!(
                f,
                "could not {operation} {file}: its file system is read-only. Check the device and mount it \
                 for writing, or open the store for reading"
            ),
            Error::NoKeyspace { name } => write!(
                f,
                "there is no keyspace named {name:?}. Check the name, or open it with its kind to make it"
            ),
            Error::Unrouted { name } => unrouted(f, name),
            Error::Unordered { name } => unordered(f, name),
            Error::Dropped { name } => write!(f, "keyspace {name:?} was dropped; open it anew"),
            Error::ReadOnly => f.write_str("the store was opened read-only; open it for writing"),
            Error::Latched { cause } => latched(f, cause),
            Error::WouldBlock => {
                f.write_str("as much is in flight as may be. Wait for some of it, or raise reads_in_flight")
            }
            Error::TimedOut => {
                f.write_str("the deadline passed before it was read. Try again, or give it more time")
            }
            Error::Closed => f.write_str("the store was closed; open it again"),
            Error::Forked => f.write_str(FORKED_TEXT),
            Error::Panicked { thread, message } => {
                write!(
                    f,
                    "the background thread {thread} panicked: {message}. Report it, and reopen the store"
                )
            }
        }
    }
}

/// Most bytes of a key that a message shows.
const SHOWN_BYTES_MAX: usize = 48;

/// A key as text, cut short.
fn shown(key: &[u8]) -> String {
    let (start, more) = match key.get(..SHOWN_BYTES_MAX) {
        Some(start) if key.len() > SHOWN_BYTES_MAX => (start, ".."),
        _ => (key, ""),
    };
    format!("\"{}{more}\"", start.escape_ascii())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source.as_ref()),
            Error::Latched { cause } => Some(cause.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Error> {
        let text = || "this".to_owned();
        let source = || Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let full = Error::Full { file: text() };
        vec![
            Error::corrupt("table-0000000000000001", 4096, "the checksum", 1, 2),
            Error::Io { operation: "read", file: text(), offset: 8, source: source() },
            Error::Io { operation: "create", file: text(), offset: 0, source: source() },
            full.clone(),
            Error::TooLarge { what: "key", limit: 1, given: 2 },
            Error::Memory { role: "manifest", limit: 1, wanted: 2 },
            Error::NotAscending { items: 7, key: b"b".to_vec(), before: vec![255; 60_000] },
            Error::Mismatch { name: "this", stored: text(), given: text() },
            Error::Invalid { faults: vec![text(), text()] },
            Error::Unsupported { file: text(), what: text() },
            Error::Missing { path: text() },
            Error::Foreign { path: text(), found: text() },
            Error::Locked { path: text() },
            Error::Permission { operation: "open", file: text() },
            Error::LockMissing { path: text() },
            Error::ReadOnlyFileSystem { operation: "write", file: text() },
            Error::Io {
                operation: "sync",
                file: text(),
                offset: 0,
                source: Arc::new(std::io::ErrorKind::StorageFull.into()),
            },
            Error::NoKeyspace { name: text() },
            Error::Unrouted { name: text() },
            Error::Unordered { name: text() },
            Error::Dropped { name: text() },
            Error::ReadOnly,
            full.latched(),
            Error::WouldBlock,
            Error::TimedOut,
            Error::Closed,
            Error::Forked,
            Error::Panicked { thread: "trine-flush", message: text() },
        ]
    }

    /// Every error is a sentence that names its object and advises what to do. It ends without a full stop,
    /// so that a longer sentence can quote it.
    #[test]
    fn each_error_gives_advice() {
        let advice = [
            "Restore",
            "Check",
            "Free",
            "Make",
            "Open it",
            "Open the store",
            "Correct",
            "Sort",
            "Give",
            "newer release",
            "Choose",
            "Close",
            "open it",
            "reopened",
            "Wait",
            "Try again",
            "Report",
        ];
        for error in one_of_each() {
            let text = error.to_string();
            assert!(advice.iter().any(|words| text.contains(words)), "no advice: {text}");
            assert!(!text.ends_with('.') && !text.contains("  ") && !text.contains('\n'), "form: {text}");
            assert!(text.len() > 30 && !text.contains(" at offset 0"), "content: {text}");
        }
    }

    /// Only a sync that lacks space is reported as a possible loss; damage leads to `salvage`.
    #[test]
    fn errors_of_missing_space_and_damage_give_advice() {
        let io = |operation, kind: std::io::ErrorKind| {
            let (file, source) = ("log-0000000000000002".to_owned(), Arc::new(kind.into()));
            Error::Io { operation, file, offset: 0, source }.to_string()
        };
        use std::io::ErrorKind::{FileTooLarge, Interrupted, QuotaExceeded, StorageFull};
        for kind in [StorageFull, QuotaExceeded, FileTooLarge] {
            assert!(io("sync", kind).contains("space was missing"), "{}", io("sync", kind));
            assert!(!io("read", kind).contains("space was missing"), "{}", io("read", kind));
        }
        assert!(!io("sync", Interrupted).contains("space was missing"));
        assert!(Error::corrupt("STORE", 48, "the header checksum", 1, 2).to_string().contains("salvage"));
    }

    /// The first failure stands in the message once, however often it is passed on, and is the source of
    /// later errors of writes.
    #[test]
    fn a_latch_tells_the_first_failure() {
        let first = Error::Full { file: "log-0000000000000002".to_owned() };
        let twice = first.latched().latched();
        assert_eq!(twice.to_string(), first.latched().to_string());
        let source = std::error::Error::source(&twice).expect("it has a cause");
        assert_eq!(source.to_string(), first.to_string());
    }
}
