//! Merges within one tree: the choice of the next one (`pick`; `push` in a trie), its execution in bounded
//! turns (`job`), and the choice of tables that need no merge to be removed (`fully_covered`).
//!
//! This module installs nothing: a job's output becomes visible by a manifest edit of the caller. It never
//! imports read or write. Called by the engine's background work. Plain values of one thread; one job a tree
//! at a time.

mod bounds;
pub(crate) mod fully_covered;
pub(crate) mod job;
pub(crate) mod pick;
pub(crate) mod place;
pub(crate) mod push;
pub(crate) mod shape;
