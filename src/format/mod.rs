//! Bytes to structs and back; no file, clock, lock or thread.

pub(crate) mod frames;
pub(crate) mod header;
pub(crate) mod log;
pub(crate) mod manifest;
pub(crate) mod store;
pub(crate) mod table;
