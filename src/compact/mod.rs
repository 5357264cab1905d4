//! Merges between the levels of one tree: which one is due (`pick`; `push` in a trie), and doing it in
//! bounded turns (`job`).
//! Tables that need no merge to go (`unseen`).
//!
//! It installs nothing: what a job made becomes visible by a manifest edit of its caller. It never imports
//! read or write. Called by the engine's background work. Plain values of one thread; one job a tree at a
//! time.

mod bounds;
pub(crate) mod job;
pub(crate) mod pick;
pub(crate) mod place;
pub(crate) mod push;
pub(crate) mod shape;
pub(crate) mod unseen;
