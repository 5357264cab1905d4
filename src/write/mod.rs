//! Commit and flush.
