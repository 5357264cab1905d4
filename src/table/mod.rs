//! Immutable files of items.
