//! For tests: how many trees, and nodes of tries, were looked at, so that work which follows a change is seen
//! not to follow the size of the store.

use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// A tree was looked at, or a node of one.
pub(crate) fn count() {
    VISITS.set(VISITS.get() + 1);
}

/// What a check looks at that only tests make.
pub(crate) fn uncounted<R>(check: impl FnOnce() -> R) -> R {
    let before = VISITS.get();
    let result = check();
    VISITS.set(before);
    result
}

/// How many were, on this thread, since this was asked last.
pub(crate) fn take() -> u64 {
    VISITS.take()
}
