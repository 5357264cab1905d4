//! Ctrl-C, turned into a flag that long commands look at between batches.
//!
//! The first signal asks politely; a second one ends the process at once, as it would without a handler.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on the first signal only sets the flag.
pub fn watch() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .map_err(|error| Failure::Other(format!("could not watch for Ctrl-C: {error}")))
}

/// Whether the user asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
