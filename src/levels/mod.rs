//! Versions, edits, manifest, view.

pub(crate) mod manifest;
pub(crate) mod store;
