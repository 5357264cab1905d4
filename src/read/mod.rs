//! Lookups and scans as state machines.
