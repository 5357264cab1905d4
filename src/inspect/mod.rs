//! Inspection of a store's files: are all writes intact, and which data does damage put at risk?
//!
//! ```
//! # fn main() -> trine::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("data");
//! let db = trine::Db::open(&path)?;
//! db.ordered("users").open()?.put(b"ann", b"1")?;
//! db.close()?;
//! let report = trine::inspect::verify(&path, |_| {})?;
//! assert!(report.findings.is_empty());
//! assert_eq!(report.log_items, 1);
//! # Ok(()) }
//! ```
//!
//! [`Keyspace::explain`](crate::Keyspace::explain) reports the steps of a get of one key and the outcome of
//! each.
//!
//! Nothing here changes a file of the inspected store. Damage is never an error of the check: it becomes a
//! finding, and the check continues.

mod dump;
mod explain;
mod salvage;
mod verify;

pub use dump::{Part, dump};
pub(crate) use explain::Explainer;
pub use explain::{Explanation, Step};
#[cfg(any(test, feature = "sim"))]
pub(crate) use salvage::salvage_in;
pub use salvage::{Doubt, Doubtful, Salvaged, salvage};
#[cfg(any(test, feature = "sim"))]
pub(crate) use verify::verify_in;
pub(crate) use verify::verify_open;
pub use verify::{AtRisk, Finding, Progress, Report, verify};
