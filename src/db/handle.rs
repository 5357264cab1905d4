//! The part of a store that each of its handles holds.

use crate::base::sync::Arc;
use crate::engine::Store;

/// What every handle holds: the store closes with the last of them.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(super) store: Arc<Store>,
}

impl std::ops::Deref for Handle {
    type Target = Arc<Store>;

    fn deref(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.store.is_forked() {
            // The store is the other process's, and so are its files; its threads are not here to be joined.
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        // Nobody is left to be told; `close` tells.
        if let Err(error) = self.store.close() {
            log::warn!("closing the store: {error}");
        }
    }
}
