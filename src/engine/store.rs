//! One open store: all layers, its recovery and its close.

use std::marker::PhantomData;
use std::ops::Deref;
use std::task::Waker;

use crate::base::sync::Arc;
use crate::write::writer::Until;

use super::background::{Scheduler, workers};
use super::closing::Close;
use super::commit::Committer;
use super::commit::async_writes::{AsyncItems, WriteStart};
use super::commit::worker::CommitWork;
use super::publish::Publisher;
use super::recovery::Recovery;

/// One open store.
pub(crate) struct Store {
    pub(super) committer: Committer,
    pub(super) recovery: Recovery,
    pub(super) close: Close,
}

impl Store {
    /// Does the write of a future at once if it need not wait, or queues it.
    pub(crate) fn begin_write(
        self: &Arc<Store>,
        what: AsyncItems,
        until: Option<Until>,
        waker: &Waker,
    ) -> WriteStart {
        self.begin_write_with(what, until, waker, || {
            let committer = StoreLayer::<Committer>::new(self);
            let work = CommitWork::new(committer.clone());
            workers::spawn(StoreLayer::<Scheduler>::new(self), committer, "trine-commit", work)
        })
    }
}

impl Deref for Store {
    type Target = Committer;

    #[inline]
    fn deref(&self) -> &Committer {
        &self.committer
    }
}

impl AsRef<Committer> for Store {
    fn as_ref(&self) -> &Committer {
        self
    }
}

impl AsRef<Scheduler> for Store {
    fn as_ref(&self) -> &Scheduler {
        self
    }
}

impl AsRef<Publisher> for Store {
    fn as_ref(&self) -> &Publisher {
        self
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.storage().path()).finish_non_exhaustive()
    }
}

/// A store as one of its layers, for a worker: it keeps the store open and gives access to that layer only.
pub(super) struct StoreLayer<W>(Arc<Store>, PhantomData<fn() -> W>);

impl<W> StoreLayer<W> {
    pub(super) fn new(store: &Arc<Store>) -> StoreLayer<W> {
        StoreLayer(Arc::clone(store), PhantomData)
    }
}

impl<W> Clone for StoreLayer<W> {
    fn clone(&self) -> StoreLayer<W> {
        StoreLayer::new(&self.0)
    }
}

impl<W> Deref for StoreLayer<W>
where
    Store: AsRef<W>,
{
    type Target = W;

    fn deref(&self) -> &W {
        AsRef::<W>::as_ref(&*self.0)
    }
}
