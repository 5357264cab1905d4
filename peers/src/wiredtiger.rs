//! A safe wrapper of WiredTiger's C interface; no other file calls it.
//!
//! 1. A session holds its connection, which is closed after the last session. A session closes its cursor
//!    before itself.
//! 2. One thread at a time uses a session: all of its methods take it mutably.
//! 3. A key or value that a session lends is valid until the session is used again.
//! 4. A cursor reads a key or value of the caller only during the call that has it; a cursor whose call fails
//!    is reset.
#![expect(unsafe_code, reason = "WiredTiger is a library in C, and its handles are structs of functions")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engines::{Answer, told};

mod sys {
    #![expect(
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        non_camel_case_types,
        non_upper_case_globals,
        unreachable_pub,
        reason = "it is made from the header, whose names it has"
    )]

    include!(concat!(env!("OUT_DIR"), "/wiredtiger.rs"));
}

/// The one table of a store, from bytes to bytes.
const TABLE: &CStr = c"table:items";
const TABLE_CONFIG: &CStr = c"type=file,key_format=u,value_format=u";

/// A reader sees one state of the store; a writer gets an error if another has changed its key.
const SESSION_CONFIG: &CStr = c"isolation=snapshot";

const EVERY_METHOD: &str = "the library sets every function of a handle";

/// Bytes written since the connection was opened, to everything but the log.
pub(crate) const TABLE_BYTES: u32 = sys::WT_STAT_CONN_BLOCK_BYTE_WRITE;
/// Bytes written to the log since then.
pub(crate) const LOG_BYTES: u32 = sys::WT_STAT_CONN_LOG_BYTES_WRITTEN;

/// A failed call, by WiredTiger's error number or the system's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault(c_int);

impl Fault {
    /// Another transaction changed the same key; this transaction may be tried again.
    const CONFLICT: Fault = Fault(sys::WT_ROLLBACK);
}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// The library has one buffer for the messages of all unknown numbers.
        static TELLING: Mutex<()> = Mutex::new(());
        let _telling = TELLING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the function takes any number and returns a terminated string; the lock keeps other threads
        // from changing it.
        let words = unsafe { CStr::from_ptr(sys::wiredtiger_strerror(self.0)) };
        write!(out, "{}", words.to_string_lossy())
    }
}

fn checked(code: c_int) -> Result<(), Fault> {
    if code == 0 { Ok(()) } else { Err(Fault(code)) }
}

/// Whether the call found an item; `WT_NOTFOUND` is no fault.
fn found(code: c_int) -> Result<bool, Fault> {
    if code == sys::WT_NOTFOUND { Ok(false) } else { checked(code).map(|()| true) }
}

/// Calls a function of a handle, with the handle as its first argument. Unsafe: the handle must be open and,
/// unless it is a connection, without another user. Arguments must be of the function's types, and a pointer
/// among them must be valid until the function returns.
macro_rules! call {
    ($handle:expr, $function:ident $(, $argument:expr)*) => {{
        let handle = $handle.as_ptr();
        ((*handle).$function.expect(EVERY_METHOD))(handle $(, $argument)*)
    }};
}

fn item(bytes: &[u8]) -> sys::WT_ITEM {
    sys::WT_ITEM { data: bytes.as_ptr().cast(), size: bytes.len(), ..empty() }
}

fn empty() -> sys::WT_ITEM {
    sys::WT_ITEM { data: null(), size: 0, mem: null_mut(), memsize: 0, flags: 0 }
}

/// The version of the loaded library.
pub(crate) fn version() -> String {
    let [major, minor, patch] = numbers();
    format!("wiredtiger {major}.{minor}.{patch}")
}

fn numbers() -> [c_int; 3] {
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: the function writes three numbers, which outlive the call.
    unsafe { sys::wiredtiger_version(&raw mut major, &raw mut minor, &raw mut patch) };
    [major, minor, patch]
}

/// Fails if the library has another version than the header: its handles may have other functions at other
/// offsets.
fn is_of_the_header() -> Answer<()> {
    let made = [sys::WIREDTIGER_VERSION_MAJOR, sys::WIREDTIGER_VERSION_MINOR, sys::WIREDTIGER_VERSION_PATCH];
    let is_same = numbers().into_iter().zip(made).all(|(own, made)| u32::try_from(own) == Ok(made));
    is_same.then_some(()).ok_or_else(|| format!("built for WiredTiger {made:?}, not for {}", version()))
}

/// An open store, shared by threads.
pub(crate) struct Connection(NonNull<sys::WT_CONNECTION>);

// SAFETY: the header says that a connection may be shared between threads.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    pub(crate) fn open(directory: &Path, config: &str) -> Answer<Arc<Connection>> {
        is_of_the_header()?;
        let home = CString::new(directory.as_os_str().as_bytes()).map_err(told)?;
        let config = CString::new(config).map_err(told)?;
        let mut opened = null_mut();
        // SAFETY: both strings outlive the call; without an event handler, WiredTiger uses its own.
        let code =
            unsafe { sys::wiredtiger_open(home.as_ptr(), null_mut(), config.as_ptr(), &raw mut opened) };
        checked(code).map_err(told)?;
        Ok(Arc::new(Connection(NonNull::new(opened).ok_or("WiredTiger opened nothing")?)))
    }

    /// Makes the table, unless it exists.
    pub(crate) fn make_table(self: &Arc<Self>) -> Answer<()> {
        let session = self.raw_session()?;
        // SAFETY: the session was just opened, and both strings are static.
        let made = checked(unsafe { call!(session, create, TABLE.as_ptr(), TABLE_CONFIG.as_ptr()) });
        // SAFETY: the session is open, has no other user, and is not used again.
        made.and(checked(unsafe { call!(session, close, null()) })).map_err(told)
    }

    /// Opens a session, for one thread at a time.
    pub(crate) fn session(self: &Arc<Self>) -> Answer<Session> {
        let handle = self.raw_session()?;
        let mut session = Session { cursor: None, handle, _connection: Arc::clone(self) };
        session.cursor = Some(session.open_cursor(TABLE, null()).map_err(told)?);
        Ok(session)
    }

    fn raw_session(&self) -> Answer<NonNull<sys::WT_SESSION>> {
        let mut opened = null_mut();
        // SAFETY: the connection is open until it is dropped; the configuration is static.
        let code =
            unsafe { call!(self.0, open_session, null_mut(), SESSION_CONFIG.as_ptr(), &raw mut opened) };
        checked(code).map_err(told)?;
        NonNull::new(opened).ok_or_else(|| "WiredTiger opened no session".to_owned())
    }

    /// Closes the connection; an error if one of its sessions is not dropped.
    pub(crate) fn close(self: Arc<Self>) -> Answer<()> {
        let connection = Arc::into_inner(self).ok_or("a session is still open")?;
        let handle = connection.0;
        std::mem::forget(connection);
        // SAFETY: the connection is open, and no session holds it. It is forgotten, so it is closed once.
        let closed = checked(unsafe { call!(handle, close, null()) });
        // The allocator keeps the memory of a closed cache, in pieces that fit the next cache badly. A
        // reopened store would seem to use twice its memory.
        // SAFETY: the function takes any number, and releases only free memory.
        unsafe { sys::malloc_trim(0) };
        closed.map_err(told)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the connection is open, and no session is, since each would hold it. No caller can take an
        // error here.
        let _ = unsafe { call!(self.0, close, null()) };
    }
}

/// A session of one thread, with a cursor of the table.
pub(crate) struct Session {
    /// A cursor of the table; `None` only until it is opened.
    cursor: Option<NonNull<sys::WT_CURSOR>>,
    handle: NonNull<sys::WT_SESSION>,
    _connection: Arc<Connection>,
}

// SAFETY: a session and its cursor are bound to no thread. Two threads must not use them at once, and every
// method takes the session mutably.
unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            // SAFETY: the cursor is open and not used again. No caller can take an error here.
            let _ = unsafe { call!(cursor, close) };
        }
        // SAFETY: as above. An open transaction is rolled back.
        let _ = unsafe { call!(self.handle, close, null()) };
    }
}

impl Session {
    fn open_cursor(&mut self, of: &CStr, config: *const c_char) -> Result<NonNull<sys::WT_CURSOR>, Fault> {
        let mut opened = null_mut();
        // SAFETY: the session is open until it is dropped; the callers' strings are static.
        let code =
            unsafe { call!(self.handle, open_cursor, of.as_ptr(), null_mut(), config, &raw mut opened) };
        checked(code)?;
        Ok(NonNull::new(opened).expect("a call that succeeds opens a cursor"))
    }

    fn cursor(&mut self) -> NonNull<sys::WT_CURSOR> {
        self.cursor.expect("it is opened with the session")
    }

    /// The cursor with its key set; the call that uses the key must come before `key` ends.
    fn at(&mut self, key: &[u8]) -> NonNull<sys::WT_CURSOR> {
        let (cursor, key) = (self.cursor(), item(key));
        // SAFETY: the cursor is open; with keys of format `u` it takes one item, of which it copies the
        // pointer and the length.
        unsafe { call!(cursor, set_key, &raw const key) };
        cursor
    }

    /// The outcome of a call; the cursor is reset if the call failed or found nothing.
    fn after(&mut self, code: c_int) -> Result<bool, Fault> {
        let outcome = found(code);
        if outcome != Ok(true) {
            self.reset()?;
        }
        outcome
    }

    /// Releases the cursor's position and the state of the store that it reads.
    pub(crate) fn reset(&mut self) -> Result<(), Fault> {
        // SAFETY: the cursor is open.
        checked(unsafe { call!(self.cursor(), reset) })
    }

    /// Puts an item, whether the key exists or not.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let (cursor, value) = (self.at(key), item(value));
        // SAFETY: the cursor is open and has a key that outlives both calls, as the value does.
        let code = unsafe {
            call!(cursor, set_value, &raw const value);
            call!(cursor, insert)
        };
        self.after(code).map(drop)
    }

    /// Deletes a key, whether it exists or not.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), Fault> {
        let cursor = self.at(key);
        // SAFETY: the cursor is open and has a key that outlives the call.
        let code = unsafe { call!(cursor, remove) };
        self.after(code)?;
        self.reset()
    }

    /// The value, lent until the session is used again; the cursor stays at the key until then.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Fault> {
        let cursor = self.at(key);
        // SAFETY: the cursor is open and has a key that outlives the call.
        let code = unsafe { call!(cursor, search) };
        if self.after(code)? { self.item().map(|(_, value)| Some(value)) } else { Ok(None) }
    }

    /// Moves to the first key at or after `from`; returns whether there is one.
    pub(crate) fn seek(&mut self, from: &[u8]) -> Result<bool, Fault> {
        let (cursor, mut side) = (self.at(from), 0);
        // SAFETY: the cursor is open and has a key that outlives the call, which writes the number.
        let code = unsafe { call!(cursor, search_near, &raw mut side) };
        if !self.after(code)? {
            return Ok(false);
        }
        if side < 0 { self.next() } else { Ok(true) }
    }

    /// Moves to the next key, or to the first one after a reset; returns whether there is one.
    pub(crate) fn next(&mut self) -> Result<bool, Fault> {
        // SAFETY: the cursor is open.
        let code = unsafe { call!(self.cursor(), next) };
        self.after(code)
    }

    /// Key and value at the cursor, lent until the session is used again.
    pub(crate) fn item(&mut self) -> Result<(&[u8], &[u8]), Fault> {
        let (cursor, mut key, mut value) = (self.cursor(), empty(), empty());
        // SAFETY: the cursor is open; with keys and values of format `u` each call writes one item.
        unsafe {
            checked(call!(cursor, get_key, &raw mut key))?;
            checked(call!(cursor, get_value, &raw mut value))?;
        }
        Ok((self.lent(&key), self.lent(&value)))
    }

    /// The bytes of an item that the cursor has just returned.
    fn lent(&self, item: &sys::WT_ITEM) -> &[u8] {
        if item.size == 0 {
            return &[];
        }
        // SAFETY: the bytes are valid until the cursor is used again. That takes the session mutably, and the
        // session is borrowed while the bytes are lent.
        unsafe { std::slice::from_raw_parts(item.data.cast(), item.size) }
    }

    /// Begins a transaction: all further reads of this session see the present state of the store.
    pub(crate) fn hold(&mut self) -> Result<(), Fault> {
        // SAFETY: the session is open; inside a transaction the call is refused.
        checked(unsafe { call!(self.handle, begin_transaction, null()) })
    }

    /// Applies all changes of `change` or none; tries again after a conflict with another transaction.
    pub(crate) fn transact(
        &mut self,
        commit: &CStr,
        mut change: impl FnMut(&mut Session) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        loop {
            self.hold()?;
            let outcome = match change(self) {
                // SAFETY: the session is open; a failed commit has rolled back.
                Ok(()) => checked(unsafe { call!(self.handle, commit_transaction, commit.as_ptr()) }),
                Err(why) => {
                    // SAFETY: the session and its transaction are open.
                    checked(unsafe { call!(self.handle, rollback_transaction, null()) })?;
                    Err(why)
                }
            };
            if outcome != Err(Fault::CONFLICT) {
                return outcome;
            }
        }
    }

    /// Writes all changes to the table's file, and waits until they are durable.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Fault> {
        // SAFETY: the session is open; inside a transaction the call is refused.
        checked(unsafe { call!(self.handle, checkpoint, null()) })
    }

    /// Moves data from the end of the table's file into free space before it.
    pub(crate) fn compact(&mut self) -> Result<(), Fault> {
        // SAFETY: the session is open, and the name is static; inside a transaction the call is refused.
        checked(unsafe { call!(self.handle, compact, TABLE.as_ptr(), null()) })
    }

    /// Counters of the library, if the connection was opened with statistics.
    pub(crate) fn statistics<const N: usize>(&mut self, of: [u32; N]) -> Result<[u64; N], Fault> {
        let cursor = self.open_cursor(c"statistics:", c"statistics=(fast)".as_ptr())?;
        let mut numbers = [0; N];
        let asked = of.into_iter().zip(&mut numbers).try_for_each(|(which, number)| {
            let (mut name, mut text) = (null::<c_char>(), null::<c_char>());
            // SAFETY: the cursor is open; its key is a number, its value two strings and a number.
            unsafe {
                call!(cursor, set_key, which);
                checked(call!(cursor, search))?;
                checked(call!(cursor, get_value, &raw mut name, &raw mut text, &raw mut *number))
            }
        });
        // SAFETY: the cursor is open and not used again.
        let closed = checked(unsafe { call!(cursor, close) });
        asked.and(closed).map(|()| numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(directory: &Path) -> Arc<Connection> {
        let connection = Connection::open(directory, "create,log=(enabled),statistics=(fast)");
        let connection = connection.expect("it opens");
        connection.make_table().expect("it is made");
        connection
    }

    /// A missing store has WiredTiger's own message, and a number without a meaning has one too.
    #[test]
    fn faults_are_told() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let why = Connection::open(directory.path(), "").err().expect("there is none");
        assert_eq!(why, "No such file or directory");
        assert!(Fault::CONFLICT.to_string().starts_with("WT_ROLLBACK"), "{}", Fault::CONFLICT);
        assert!(!Fault(12_345).to_string().is_empty());
        assert!(version().starts_with("wiredtiger "));
    }

    /// Keys and values are any bytes, also none, in the order of bytes; seeks find the next key.
    #[test]
    fn bytes_come_back() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let connection = opened(directory.path());
        let mut session = connection.session().expect("it opens");
        assert_eq!(session.seek(b"a"), Ok(false));
        let items: [(&[u8], &[u8]); 4] = [(b"\0", b""), (b"\0\0", b"\0x\0"), (b"a", b"one"), (b"\xff", b"z")];
        for (key, value) in items.iter().rev() {
            session.put(key, value).expect("it puts");
        }
        session.put(b"b", b"gone").expect("it puts");
        session.delete(b"b").expect("it deletes");
        session.delete(b"never there").expect("it deletes nothing");
        assert_eq!(session.get(b"b"), Ok(None));
        assert_eq!(session.get(b"\0"), Ok(Some(&b""[..])));
        assert_eq!(session.seek(b"a\0"), Ok(true));
        assert_eq!(session.item(), Ok(items[3]));
        assert_eq!(session.next(), Ok(false));
        for (key, value) in items {
            assert_eq!(session.next(), Ok(true));
            assert_eq!(session.item(), Ok((key, value)));
        }
        assert_eq!(session.next(), Ok(false));
    }

    /// A failed transaction leaves no change; a transaction with a conflict is done again, whole.
    #[test]
    fn transactions_are_whole() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let connection = opened(directory.path());
        let mut own = connection.session().expect("it opens");
        let mut other = connection.session().expect("it opens");
        let failed = own.transact(c"", |own| {
            own.put(b"a", b"half")?;
            Err(Fault(5))
        });
        assert_eq!((failed, own.get(b"a")), (Err(Fault(5)), Ok(None)));
        let mut tries = 0;
        let done = own.transact(c"sync=on", |own| {
            tries += 1;
            own.put(b"b", b"own")?;
            if tries == 1 {
                other.put(b"a", b"other")?;
            }
            own.put(b"a", b"own")
        });
        assert_eq!((done, tries), (Ok(()), 2));
        assert_eq!(other.get(b"a"), Ok(Some(&b"own"[..])));
        assert_eq!(other.get(b"b"), Ok(Some(&b"own"[..])));
    }

    /// A held state does not change, written bytes are counted, and a connection with an open session is not
    /// closed.
    #[test]
    fn states_are_held() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let connection = opened(directory.path());
        let mut own = connection.session().expect("it opens");
        let mut other = connection.session().expect("it opens");
        own.put(b"a", b"before").expect("it puts");
        other.hold().expect("it holds");
        assert_eq!(other.get(b"a"), Ok(Some(&b"before"[..])));
        own.put(b"a", b"after").expect("it puts");
        assert_eq!(other.get(b"a"), Ok(Some(&b"before"[..])));
        drop(other);
        let [tables, log] = own.statistics([TABLE_BYTES, LOG_BYTES]).expect("they are counted");
        own.checkpoint().expect("it is written");
        let [more, as_much] = own.statistics([TABLE_BYTES, LOG_BYTES]).expect("they are counted");
        assert!(more > tables && log > 0 && as_much >= log, "{tables} {more} {log} {as_much}");
        assert!(Arc::clone(&connection).close().is_err());
        drop(own);
        connection.close().expect("it closes");
        let connection = Connection::open(directory.path(), "").expect("it opens");
        assert_eq!(connection.session().expect("it opens").get(b"a"), Ok(Some(&b"after"[..])));
    }
}
