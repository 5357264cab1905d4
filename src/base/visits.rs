//! For tests: how many trees were looked at, so that work which follows a change is seen not to follow the
//! size of the store.

use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// A tree was looked at.
pub(crate) fn count() {
    VISITS.set(VISITS.get() + 1);
}

/// How many were, on this thread, since this was asked last.
pub(crate) fn take() -> u64 {
    VISITS.take()
}
