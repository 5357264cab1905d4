//! The reference to a store that all its handles share.

use crate::base::sync::Arc;
use crate::engine::Store;

/// The shared part of every handle. The store closes when the last reference is dropped.
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
            // The store and its files belong to the parent process. Its threads do not exist here and cannot
            // be joined.
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        // There is no caller to return the error to; `Db::close` returns it.
        if let Err(error) = self.store.close() {
            log::warn!("closing the store: {error}");
        }
    }
}
