//! Types every layer shares: ids, key hash, checksum, codec, errors, settings, the protocol's plain types,
//! memory regions and grants, lists of one, and the source of atomics and locks.
//!
//! It is not a place for logic of the store: nothing here knows a file format, a level or a thread. Every
//! module imports it, and it imports no module of the project.

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
