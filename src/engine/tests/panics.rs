//! Panics of background threads, on real threads, and their effect on waiting callers.

use std::future::poll_fn;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::settings::StoreSettings;
use crate::base::sync::{Arc, AtomicBool, Event, Mutex, Ordering};
use crate::io::env::Clock;
use crate::read::get::GetMode;
use crate::read::trace::NoTrace;
use crate::write::batch::BatchItems;

use super::super::{OpenMode, OpenOptions, Store};
use crate::engine::reads::callback;
use crate::engine::reads::later::{LaterKey, Patience};
use crate::engine::reads::local;

const KEYS: u64 = 400;
const VALUE: [u8; 4000] = [7; 4000];
/// Most puts before one must be refused: more than all write buffers hold.
const PUTS_MAX: u64 = 100_000;

/// A clock that panics when the named thread reads it.
struct Panicky {
    inner: Arc<dyn Clock>,
    thread: &'static str,
    is_armed: AtomicBool,
}

impl Clock for Panicky {
    fn now_ns(&self) -> u64 {
        let is_planned = self.is_armed.load(Ordering::SeqCst)
            && std::thread::current().name().is_some_and(|name| name == self.thread);
        assert!(!is_planned, "planned for {}", self.thread);
        self.inner.now_ns()
    }

    fn unix_s(&self) -> u64 {
        self.inner.unix_s()
    }
}

impl Panicky {
    fn plan(&self, is_armed: bool) {
        self.is_armed.store(is_armed, Ordering::SeqCst);
    }
}

/// The store in `path`, with one thread that will panic.
fn open(path: &Path, thread: &'static str) -> (Arc<Store>, Arc<Panicky>) {
    let settings = StoreSettings { memory_bytes: 32 << 20, ..StoreSettings::default() };
    let mut env = settings.env(path).expect("a system");
    let inner = Arc::clone(&env.clock);
    let clock = Arc::new(Panicky { inner, thread, is_armed: AtomicBool::new(false) });
    env.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = Store::open(env, OpenOptions::new(settings, OpenMode::CreateIfMissing)).expect("opens");
    store.open_keyspace("a", &[]).expect("makes");
    (store, clock)
}

fn put(store: &Store, number: u64) -> Result<()> {
    let mut items = BatchItems::default();
    items.push(store.keyspace("a")?.tree, ItemKind::Put, &number.to_be_bytes(), &VALUE)?;
    store.write(&items, None)
}

fn get(store: &Store, number: u64) -> Result<bool> {
    let keyspace = store.keyspace("a")?;
    let wanted = (&number.to_be_bytes()[..], GetMode::Value);
    store.get(&keyspace, wanted, None, &mut NoTrace, |value| value.is_some())
}

/// A get that blocks no thread.
async fn get_later(store: Arc<Store>, number: u64) -> Result<bool> {
    let (keyspace, key, mut later) = (store.keyspace("a")?, number.to_be_bytes(), None);
    poll_fn(|context| {
        let of = LaterKey { keyspace: &keyspace, key: &key, mode: GetMode::Value };
        store.poll_get(&mut later, of, (None, Patience::default()), context, |value| value.is_some())
    })
    .await
}

/// The error names the thread and gives its message.
#[track_caller]
fn assert_told(thread: &str, result: Result<()>) {
    let Err(Error::Latched { cause }) = &result else { panic!("{thread}: {result:?}") };
    let Error::Panicked { thread: named, message } = &**cause else { panic!("{thread}: {cause}") };
    assert!(*named == thread && message.contains(&format!("planned for {thread}")), "{cause}");
}

/// Puts until one is refused, like a put that waits for room at the panic.
fn put_until_told(store: &Store) -> Result<()> {
    (KEYS..PUTS_MAX).try_for_each(|number| put(store, number))
}

/// A panic of a background thread latches the store. Writers that wait for room, flushes, compactions,
/// futures and callbacks under way all end. Those without an answer end with the panic's message. Reads go on
/// and `close` returns the message. The store opens again with every acknowledged write.
#[test]
fn a_panic_of_a_background_thread_latches_the_store() {
    for thread in ["trine-flush", "trine-merge", "trine-reads"] {
        let directory = tempfile::tempdir().expect("makes");
        let path = directory.path().join("store");
        let (store, _) = open(&path, thread);
        (0..KEYS).for_each(|number| put(&store, number).expect("writes"));
        store.flush().expect("flushes");
        store.close().expect("closes");
        drop(store);

        // The cache of this store is cold.
        let (store, clock) = open(&path, thread);
        put(&store, KEYS).expect("writes");
        clock.plan(true);
        let (answers, answered) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Event::new()));
        for number in 0..KEYS {
            let (answers, answered) = (Arc::clone(&answers), Arc::clone(&answered));
            callback::run(get_later(Arc::clone(&store), number), move |answer| {
                answers.lock().push(answer);
                answered.notify();
            });
        }
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| put_until_told(&store));
            let flusher = scope.spawn(|| store.flush().and_then(|()| store.compact()));
            assert_told(thread, writer.join().expect("it does not panic"));
            assert_told(thread, flusher.join().expect("it does not panic"));
        });
        while answered.seen() < KEYS {
            store.wait(&answered, answered.seen());
        }
        // Blocks that the thread was reading at the panic stay unread.
        for answer in &*answers.lock() {
            assert!(matches!(answer, Ok(true) | Err(Error::Io { .. })), "{answer:?}");
        }
        assert_told(thread, put(&store, 0));
        assert_told(thread, store.flush());
        assert_told(thread, store.compact());
        assert_told(thread, store.sync_log());
        assert_told(thread, store.drop_keyspace("a"));
        if let Err(error) = store.settle() {
            assert_told(thread, Err(error));
        }
        assert!((0..=KEYS).all(|number| matches!(get(&store, number), Ok(true))));
        assert!(matches!(local::block_on(get_later(Arc::clone(&store), 7)), Ok(true)));
        assert_told(thread, store.close());
        drop(store);

        let (store, _) = open(&path, thread);
        assert!((0..=KEYS).all(|number| matches!(get(&store, number), Ok(true))));
        store.close().expect("closes");
    }
}
