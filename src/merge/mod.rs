//! Merging of sorted sources.
