//! Table files: built once by a flush or a merge, then opened, searched, scanned, and discarded when no
//! version names them any more.
//!
//! This module does not define bytes (`format::table`), does not choose the tables that a read searches
//! (`levels`), and is no cache. `write` and `compact` build and stream tables; `read` searches and scans
//! them. No search reads a device: a search that lacks a block returns its [`BlockAddress`], and the driver
//! reads the block. A [`TableReader`] is immutable and shared freely between threads.
//!
//! 1. Search, cursor and stream use only blocks that have passed the checks of `verify`: a damaged or
//!    crafted block is an error where it is read, never a panic later.
//! 2. A table's items are strictly ascending by key; a table holds at most one item of a key.
//! 3. No type of this module keeps a reference into a cache; cursors hold counted blocks.

mod admission;
mod ahead;
mod build;
mod columns;
mod cursor;
mod fences;
mod gather;
mod identity;
mod load;
mod memory;
mod open;
mod output;
mod packed;
mod parts;
mod rescue;
mod resident;
mod scrub;
mod search;
mod spot;
mod stream;
mod verify;
mod windows;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod tests;

pub(crate) use admission::CacheAdmission;
pub(crate) use build::{BuiltTable, IndexPlan, OpenWith, SliceShape, TableBuilder};
pub(crate) use columns::NodeRuns;
pub(crate) use cursor::{Moved, TableCursor};
pub(crate) use identity::{TableIdentity, TableSummary};
pub(crate) use load::{load_pages, open_files};
pub(crate) use memory::{PageBudget, PageRank};
pub(crate) use open::{Discarded, TableFile, TableOwner, is_hole};
pub(crate) use parts::{Said, TablePart, table_parts};
pub(crate) use rescue::{Good, good_extents, read_past_faults, slice_entries};
pub(crate) use resident::Otherwise;
pub(crate) use scrub::{Damage, corrupt, scrub};
pub(crate) use search::{DataBlock, FenceLine, Fenced, Filtered, TableReader};
pub(crate) use spot::{BlockSpot, MissingPage};
pub(crate) use stream::TableStream;
pub(crate) use verify::complete_read;
pub(crate) use windows::Windows;
