//! The set of tables that make up the store: versions, the manifest that records their changes, STORE, and
//! the view that a reader pins.
//!
//! Tables are not picked, merged or read here. Called by write, read, compact and engine.

pub(crate) mod filter_bits;
pub(crate) mod gaps;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod store;
pub(crate) mod version;
pub(crate) mod view;
