//! Ctrl-C as a flag, which long commands check between batches.
//!
//! The first signal sets the flag; a second one ends the process at once, as without a handler.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Installs the handler: from now on the first signal only sets the flag.
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
