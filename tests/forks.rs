//! Forked processes while a store is open, and threads that end. Handles are used where the store's threads,
//! or the thread's own memory, are gone.

use std::cell::RefCell;
use std::future::Future;
use std::io::{PipeWriter, Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use trine::{
    Batch, Completions, Cursor, Db, Error, GetAsync, Ingest, Keyspace, KeyspaceAt, MultiGetAsync, Ordered,
    Range, RangeAsync, Snapshot, block_on,
};

use crate::raw::before_exec;
use crate::support::{Scratch, contents, reader, refused, small};

/// Long values, so that a block holds few of them.
const VALUE: [u8; 1000] = [7; 1000];
const KEYS: u64 = 2000;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A store with items in tables, reopened with an empty cache.
fn filled(path: &Path) -> (Db, Keyspace<Ordered>) {
    let db = small(path).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (0..KEYS).for_each(|number| items.put(key(number), VALUE).unwrap());
    db.flush().unwrap();
    drop(items);
    db.close().unwrap();
    let db = small(path).open().unwrap();
    let items = db.ordered("items").open().unwrap();
    (db, items)
}

/// All handles of a store that a fork can copy, in the middle of their use.
struct Held {
    db: Db,
    items: Keyspace<Ordered>,
    snapshot: Snapshot,
    before: KeyspaceAt<Ordered>,
    range: Range,
    cursor: Cursor,
    batch: Option<Batch>,
    ingest: Option<Ingest>,
    get: Option<GetAsync>,
    gets: Option<MultiGetAsync>,
    items_ahead: RangeAsync,
    queue: Completions,
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

impl Held {
    fn new(path: &Path) -> Held {
        let (db, items) = filled(path);
        let snapshot = db.snapshot();
        let before = items.at(&snapshot);
        let (mut range, mut cursor) = (items.iter(), items.cursor(..));
        assert_eq!(range.next().unwrap().unwrap().0, key(0)[..]);
        assert_eq!(cursor.next().unwrap().unwrap().0, key(0));
        let mut batch = db.batch();
        batch.put(&items, b"batch", VALUE).unwrap();
        let loaded = db.ordered("loaded").open().unwrap();
        let mut ingest = loaded.ingest().unwrap();
        (0..KEYS).for_each(|number| ingest.put(key(number), VALUE).unwrap());
        let (mut get, mut gets) = (items.get_async(key(900)), items.multi_get_async(&[key(1200), key(1500)]));
        // The device decides whether these reads are still in flight.
        let (get, gets) =
            (poll(&mut get).is_pending().then_some(get), poll(&mut gets).is_pending().then_some(gets));
        let items_ahead = items.range_async(..);
        let queue = Completions::default();
        let (batch, ingest) = (Some(batch), Some(ingest));
        Held { db, items, snapshot, before, range, cursor, batch, ingest, get, gets, items_ahead, queue }
    }

    /// Makes every call in the forked process; returns the names of calls that did not answer `Forked`.
    fn not_refused(&mut self) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        let mut look = |name, is_forked: bool| wrong.extend((!is_forked).then_some(name));
        let items = &self.items;
        look("put", is_forked(&items.put(b"child", b"1")));
        look("delete", is_forked(&items.delete(key(1))));
        look("clear", is_forked(&items.clear()));
        look("delete_range", is_forked(&items.delete_range(key(0)..key(9))));
        look("get", is_forked(&items.get(key(1))));
        look("get_with", is_forked(&items.get_with(key(1), <[u8]>::len)));
        look("contains", is_forked(&items.contains(key(1))));
        look("multi_get", is_forked(&items.multi_get(&[key(1)])));
        look("first", is_forked(&items.first()));
        look("approximate_len", is_forked(&items.approximate_len()));
        look("stats", is_forked(&items.stats()));
        look("get as of", is_forked(&self.before.get(key(1))));
        look("iter as of", items.at(&self.snapshot).iter().next().is_some_and(|item| is_forked(&item)));
        look("snapshot", is_forked(&items.at(&self.db.snapshot()).get(key(1))));
        look("range", self.range.next().is_some_and(|item| is_forked(&item)));
        look("cursor", is_forked(&self.cursor.next()) && is_forked(&self.cursor.seek(key(7))));
        look("cursor, new", is_forked(&items.cursor(..).prev()));
        look("batch", self.batch.take().is_some_and(|mut batch| is_forked(&batch.commit())));
        let ingest = self.ingest.as_mut().expect("begun");
        look("ingest put", is_forked(&ingest.put(key(KEYS), VALUE)));
        look("ingest", self.ingest.take().is_some_and(|ingest| is_forked(&ingest.finish())));
        look("ingest, new", is_forked(&items.ingest()));
        look("get in flight", self.get.take().is_none_or(|get| is_forked(&block_on(get))));
        look("gets in flight", self.gets.take().is_none_or(|gets| is_forked(&block_on(gets))));
        look("get_async", is_forked(&block_on(items.get_async(key(1)))));
        look("range_async", block_on(self.items_ahead.next()).is_some_and(|item| is_forked(&item)));
        let told = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&told);
        items.get_callback(key(1), move |result| *answer.lock().unwrap() = Some(is_forked(&result)));
        look("get_callback", *told.lock().unwrap() == Some(true));
        items.get_queued(key(1), 7, &self.queue);
        let mut answers = Vec::new();
        while self.queue.wait(&mut answers) {}
        look("queue", !answers.is_empty() && answers.iter().all(|answer| is_forked(&answer.result)));
        let db = &self.db;
        look("keyspace", is_forked(&db.keyspace("items")));
        look("ordered", is_forked(&db.ordered("new").open()));
        look("drop_keyspace", is_forked(&db.drop_keyspace("items")));
        look("sync", is_forked(&db.sync()));
        look("flush", is_forked(&db.flush()));
        look("compact", is_forked(&db.compact()));
        look("settle", is_forked(&db.settle()));
        look("verify", is_forked(&db.verify(|_| {})));
        look("checkpoint", is_forked(&db.checkpoint("nowhere/at/all")));
        look("empty batch", is_forked(&db.batch().commit()));
        look("close", is_forked(&db.clone().close()));
        wrong
    }
}

fn is_forked<T>(result: &trine::Result<T>) -> bool {
    matches!(result, Err(Error::Forked))
}

/// Runs `call` with the held handles in a forked process, which then drops them and ends. Returns the result
/// of `call`.
fn in_fork(held: &Arc<Mutex<Option<Held>>>, call: fn(&mut Held) -> Vec<&'static str>) -> String {
    let (mut said, says) = std::io::pipe().unwrap();
    let mut command = Command::new("true");
    let (held, says) = (Arc::clone(held), Mutex::new(says));
    before_exec(&mut command, move || {
        let mut own = held.lock().unwrap().take().expect("the parent's copy is its own");
        let wrong = call(&mut own).join(", ");
        drop(own);
        let mut says: std::sync::MutexGuard<'_, PipeWriter> = says.lock().unwrap();
        says.write_all(format!("{wrong}.").as_bytes()).unwrap();
    });
    assert!(command.status().unwrap().success());
    // Drops the parent's copy of the pipe's writing end.
    drop(command);
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    text
}

/// In a forked process every call of every handle answers `Forked`, and dropping a handle does nothing. The
/// parent's store, with all its operations in flight, goes on as without a fork.
#[test]
fn f18_forked_handles_are_refused_and_harm_nothing() {
    let scratch = Scratch::new();
    let held = Arc::new(Mutex::new(Some(Held::new(&scratch.data()))));
    assert_eq!(in_fork(&held, Held::not_refused), ".");
    // A child that uses no handle, as one that returns from `main`.
    assert_eq!(in_fork(&held, |_| Vec::new()), ".");
    assert!(matches!(refused(small(&scratch.data())), Error::Locked { .. }), "the lock is the parent's");

    let held = held.lock().unwrap().take().unwrap();
    let Held { db, items, before, mut range, mut cursor, batch, ingest, get, gets, mut items_ahead, .. } =
        held;
    assert_eq!(range.next().unwrap().unwrap().0, key(1)[..]);
    assert_eq!(cursor.next().unwrap().unwrap().0, key(1));
    assert_eq!(block_on(items_ahead.next()).unwrap().unwrap().0, key(0)[..]);
    assert!(get.is_none_or(|get| block_on(get).unwrap().is_some_and(|value| *value == VALUE)));
    assert!(gets.is_none_or(|gets| block_on(gets).unwrap().iter().flatten().count() == 2));
    batch.unwrap().commit().unwrap();
    ingest.unwrap().finish().unwrap();
    items.put(b"after", b"1").unwrap();
    assert_eq!(before.iter().count() as u64, KEYS);
    assert_eq!(before.get(key(5)).unwrap().as_deref(), Some(&VALUE[..]));
    drop((before, range, cursor, items_ahead));
    let expected = contents(&items);
    assert_eq!(expected.len() as u64, KEYS + 2);
    drop(items);
    db.close().unwrap();
    let db = reader(&scratch.data()).open().unwrap();
    assert_eq!(contents(&db.keyspace("items").unwrap().ordered().unwrap()), expected);
    assert_eq!(contents(&db.keyspace("loaded").unwrap().ordered().unwrap()).len() as u64, KEYS);
}

/// A program started by the process inherits none of the store's descriptors.
#[test]
fn f18_started_programs_have_no_descriptor_of_the_store() {
    let scratch = Scratch::new();
    let (_db, items) = filled(&scratch.data());
    // Opens the tables, the log and, with io_uring, a ring and its eventfd.
    let all: Vec<_> = (0..KEYS).map(key).collect();
    items.multi_get(&all).unwrap();
    items.put(b"a", b"1").unwrap();
    assert!(block_on(items.get_async(key(3))).unwrap().is_some());
    let output = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && listed.contains("->"), "{listed}");
    let root = scratch.root().to_str().unwrap();
    assert!(
        !listed.contains(root) && !listed.contains("io_uring") && !listed.contains("eventfd"),
        "{listed}"
    );
}

/// The results of a thread-local's destructor, by call.
type Told = Arc<Mutex<Vec<(&'static str, bool)>>>;

/// Uses the store when its thread ends.
struct OnExit {
    db: Db,
    items: Keyspace<Ordered>,
    told: Told,
}

thread_local! {
    static LAST: RefCell<Option<OnExit>> = const { RefCell::new(None) };
}

impl Drop for OnExit {
    fn drop(&mut self) {
        let OnExit { db, items, told } = self;
        let tell = |name, is_right| told.lock().unwrap().push((name, is_right));
        let snapshot = db.snapshot();
        tell("put", items.put(b"bye", b"1").is_ok());
        tell("get", items.get(b"bye").is_ok_and(|value| value.as_deref() == Some(b"1")));
        tell("cold get", items.get(key(77)).is_ok_and(|value| value.as_deref() == Some(&VALUE[..])));
        tell("delete", items.delete(b"bye").is_ok() && items.get(b"bye").is_ok_and(|value| value.is_none()));
        tell("delete_range", items.delete_range(key(10)..key(20)).is_ok());
        tell(
            "multi_get",
            items.multi_get(&[key(9), key(15), key(500)]).is_ok_and(|values| {
                values.iter().map(Option::is_some).collect::<Vec<_>>() == [true, false, true]
            }),
        );
        tell("range", items.range(key(5)..key(25)).filter(Result::is_ok).count() == 10);
        tell("snapshot", items.at(&snapshot).iter().filter(Result::is_ok).count() as u64 == KEYS);
        let (mut batch, now) = (db.batch(), Arc::new(Mutex::new(0)));
        tell("batch", batch.put(items, b"batch", b"1").and_then(|()| batch.commit()).is_ok());
        let both = async { (items.get_async(key(1000)).await, items.get_async(key(1900)).await) };
        let (one, other) = block_on(both);
        tell("block_on", one.is_ok_and(|value| value.is_some()) && other.is_ok_and(|value| value.is_some()));
        // A callback that begins another get.
        let (inner, next) = (items.clone(), Arc::clone(&now));
        items.get_callback(b"batch", move |value| {
            assert!(value.unwrap().is_some());
            inner.get_callback(b"batch", move |value| *next.lock().unwrap() += value.unwrap().unwrap().len());
        });
        tell("get_callback", *now.lock().unwrap() == 1);
        tell("clear", items.clear().is_ok() && items.iter().next().is_none());
    }
}

/// A destructor of a thread-local may use the store, even after the store's own thread-locals are destroyed.
/// It may also be the one that closes the store.
#[test]
fn destructors_of_thread_locals_use_the_store() {
    let scratch = Scratch::new();
    let told = Told::default();
    for _ in 0..2 {
        let (db, items) = filled(&scratch.data());
        let told = Arc::clone(&told);
        let thread = std::thread::spawn(move || {
            // Made before the store's own thread-locals, so it is destroyed after them.
            LAST.with_borrow_mut(|last| *last = Some(OnExit { db, items: items.clone(), told }));
            items.put(b"first", b"1").unwrap();
            items.delete(b"first").unwrap();
            assert!(block_on(items.get_async(key(0))).unwrap().is_some());
            items.get_callback(key(0), |value| assert!(value.unwrap().is_some()));
        });
        thread.join().unwrap();
    }
    let told = told.lock().unwrap();
    let wrong: Vec<_> = told.iter().filter(|(_, is_right)| !is_right).collect();
    assert!(wrong.is_empty() && told.len() == 24, "{told:?}");
    // The destructor held the last handle.
    assert!(contents(&small(&scratch.data()).open().unwrap().ordered("items").open().unwrap()).is_empty());
}
