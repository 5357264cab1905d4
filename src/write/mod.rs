//! Commit and flush.

pub(crate) mod flush;
