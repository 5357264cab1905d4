//! For tests: counts visits of trees and trie nodes. Tests check that work which follows a change does not
//! grow with the size of the store.

use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a visit of a tree, or of a trie node.
pub(crate) fn count() {
    VISITS.set(VISITS.get() + 1);
}

/// Runs a check that only tests make, without counting its visits.
pub(crate) fn uncounted<R>(check: impl FnOnce() -> R) -> R {
    let before = VISITS.get();
    let result = check();
    VISITS.set(before);
    result
}

/// Returns the visits on this thread since the last call.
pub(crate) fn take() -> u64 {
    VISITS.take()
}
