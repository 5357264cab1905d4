//! Bytes to structs and back; no file, clock, lock or thread.

pub(crate) mod frames;
#[cfg(test)]
pub(crate) mod golden;
pub(crate) mod header;
pub(crate) mod log;
pub(crate) mod manifest;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod witness;
