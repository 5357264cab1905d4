//! A watchdog that reports a hanging case and aborts the process.
//!
//! It has no influence on a case that ends. It counts its own turns, at most one a second, and gives up on a
//! case that was there for very many of them.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, Once};
use std::time::Duration;

/// Far more than any case takes on the slowest machine.
const TURNS_MAX: u32 = 120;

static WATCHED: Mutex<BTreeMap<u64, (u32, String)>> = Mutex::new(BTreeMap::new());
static NEVER: Condvar = Condvar::new();
static STARTED: Once = Once::new();

/// The case under test, until it is dropped.
pub(crate) struct Watched(u64);

pub(crate) fn over(what: String) -> Watched {
    STARTED.call_once(|| drop(std::thread::spawn(watch)));
    let mut watched = WATCHED.lock().unwrap();
    let number = watched.last_key_value().map_or(0, |(last, _)| last + 1);
    watched.insert(number, (0, what));
    Watched(number)
}

impl Drop for Watched {
    fn drop(&mut self) {
        WATCHED.lock().unwrap().remove(&self.0);
    }
}

fn watch() {
    let mut watched = WATCHED.lock().unwrap();
    loop {
        watched = NEVER.wait_timeout(watched, Duration::from_secs(1)).unwrap().0;
        for (turns, what) in watched.values_mut() {
            *turns += 1;
            if *turns > TURNS_MAX {
                eprintln!("VIOLATION it does not come to an end: {what}");
                std::process::abort();
            }
        }
    }
}
