//! Looking into a store's files: is everything there that was written, and if not, what is at risk?
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
//! What a get of one key did, and what each place it looked at said, is told by
//! [`Keyspace::explain`](crate::Keyspace::explain).
//!
//! Nothing here changes a file. Damage is never an error of the check: it is a finding, and the check goes
//! on.

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
