//! The state that a scan keeps between two steps: blocks granted to it, and its current item.
//!
//! The grant changes only after a step that took or dropped a block. Without room the scan drops its blocks
//! and sources, keeps its item, and seeks again at the next step.

use crate::base::reserve::{Grant, Reserve, Role};
use crate::base::sync::{Arc, Weak};
use crate::table::TableCursor;

use super::ScanMachine;
use super::source::{ScanSource, key_of};

/// Memory for a copied value that an iterator keeps between steps.
const VALUE_BYTES_KEPT: usize = 1 << 10;

impl ScanMachine {
    /// At the end of a step: obtains a grant for the blocks held, or drops them.
    pub(crate) fn fit(&mut self, reserve: &Arc<Reserve>) {
        if !std::mem::take(&mut self.is_held_anew) && !self.sources.is_empty() {
            return;
        }
        let held_bytes: u64 = self.sources.iter().map(ScanSource::held_bytes).sum();
        let granted_bytes = self.grant.as_ref().map_or(0, Grant::bytes);
        if held_bytes == 0 {
            self.grant = None;
        } else if held_bytes > granted_bytes || held_bytes < granted_bytes / 2 {
            let has_room = match &mut self.grant {
                Some(grant) => grant.try_set(held_bytes),
                None => {
                    self.grant = reserve.try_grant(Role::Iterators, held_bytes);
                    self.grant.is_some()
                }
            };
            if !has_room {
                self.let_go();
            }
        }
    }

    fn let_go(&mut self) {
        if let Some(winner) = self.winner.take() {
            self.key.clear();
            self.key.extend_from_slice(key_of(&self.sources[winner]).unwrap_or_default());
            self.has_key = true;
            if let ScanSource::Run(run) = &self.sources[winner] {
                self.value.clear();
                self.value.extend_from_slice(run.cursor.as_ref().map_or(&[][..], TableCursor::value));
            }
        }
        self.sources.clear();
        self.view = Weak::new();
        self.grant = None;
    }

    /// The value was copied: frees memory beyond the need of most values.
    pub(crate) fn forget_value(&mut self) {
        if self.value.capacity() > VALUE_BYTES_KEPT {
            self.value = Vec::new();
        }
    }
}
