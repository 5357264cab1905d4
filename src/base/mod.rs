//! Words every layer shares: ids, key hash, checksum, codec, errors, settings, the protocol's plain types,
//! memory handed in and granted, lists of one, and the door to atomics and locks.
//!
//! It is not a place for logic of the store: nothing here knows a file format, a level or a thread.
//! Everything imports it and it imports nothing of ours.

pub(crate) mod checksum;
pub(crate) mod codec;
pub(crate) mod epoch;
pub(crate) mod error;
pub(crate) mod few;
pub(crate) mod hash;
pub(crate) mod id;
pub(crate) mod key;
pub(crate) mod load;
pub(crate) mod place;
pub(crate) mod prefetch;
pub(crate) mod region;
pub(crate) mod reserve;
pub(crate) mod rule;
pub(crate) mod settings;
pub(crate) mod step;
pub(crate) mod sync;
#[cfg(test)]
pub(crate) mod visits;
