//! Which tables make up the store: versions, the manifest that records their changes, STORE, and the view a
//! reader pins.
//!
//! It is not the place where tables are picked, merged or read. Called by write, read, compact and engine.

pub(crate) mod filter_bits;
pub(crate) mod gaps;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod store;
pub(crate) mod version;
pub(crate) mod view;
