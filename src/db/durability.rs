//! When a write is acknowledged.

use crate::engine::Until;

/// When a write is acknowledged.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// let db = trine::Db::builder(&path).durability(trine::Durability::Sync).open()?;
/// let users = db.ordered("users").open()?;
/// let before = db.stats().io.syncs;
/// users.put(b"ann", b"1")?;
/// assert!(db.stats().io.syncs > before);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Once the kernel has it: it survives the process. Power loss may take the latest writes, never older
    /// ones before them.
    #[default]
    Buffered,
    /// Once the device has it: it survives power loss.
    Sync,
}

impl Durability {
    pub(crate) fn until(self) -> Until {
        match self {
            Durability::Buffered => Until::Written,
            Durability::Sync => Until::Synced,
        }
    }
}
