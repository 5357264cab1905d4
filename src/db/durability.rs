//! Durability of writes: the moment of their acknowledgement.

use crate::engine::Until;

/// The moment at which a write is acknowledged.
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
    /// Once the kernel has the write, which then survives the end of the process. Power loss may lose the
    /// latest writes, never older ones before them.
    #[default]
    Buffered,
    /// Once the device has the write durably, which then survives power loss.
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
