//! Trees that have changed. Each change notes its tree here; the merge queue takes the trees and looks at
//! each again.

use std::collections::BTreeSet;

use crate::base::id::TreeId;
use crate::base::sync::Mutex;

/// See the module. Any thread.
#[derive(Default, Debug)]
pub(crate) struct ChangedTrees(Mutex<BTreeSet<TreeId>>);

impl ChangedTrees {
    /// Notes a tree that is to be looked at again.
    pub(in crate::engine) fn note(&self, tree: TreeId) {
        self.0.lock().insert(tree);
    }

    pub(in crate::engine) fn note_all(&self, trees: impl IntoIterator<Item = TreeId>) {
        self.0.lock().extend(trees);
    }

    /// The trees noted since the last call.
    pub(in crate::engine) fn take(&self) -> BTreeSet<TreeId> {
        std::mem::take(&mut *self.0.lock())
    }
}
