//! Names of keyspaces and partitions on the command line: KEYSPACE, or KEYSPACE/PARTITION where the keyspace
//! is divided into partitions.

use trine::{Db, Error, Explicit, Keyspace, Ordered, Partitioned, Partitioning};
use trine_workload::failure::Failure;

/// Opens the keyspace or partition of that name, which exists.
pub(crate) fn find(db: &Db, name: &str) -> Result<Keyspace<Ordered>, Failure> {
    if let Some((keyspace, partition)) = divided(db, name)? {
        let found = keyspace.find_partition(partition)?;
        return found.ok_or_else(|| Error::NoKeyspace { name: name.to_owned() }.into());
    }
    check_whole(db, name)?;
    Ok(db.keyspace(name)?.ordered()?)
}

/// Opens the keyspace or partition of that name, or makes it. The keyspace of a partition is not made.
pub(crate) fn open(db: &Db, name: &str) -> Result<Keyspace<Ordered>, Failure> {
    if let Some((keyspace, partition)) = divided(db, name)? {
        return Ok(keyspace.partition(partition)?);
    }
    check_whole(db, name)?;
    Ok(db.ordered(name).open()?)
}

fn check_whole(db: &Db, name: &str) -> Result<(), Failure> {
    if !is_partitioned(db, name) {
        return Ok(());
    }
    let message = format!(
        "the keyspace {name:?} is divided: name a partition, {name}/PARTITION; `trine partitions` lists them"
    );
    Err(Failure::Usage(message))
}

/// Opens a keyspace that is divided, or makes it.
pub(crate) fn partitioned(db: &Db, name: &str) -> trine::Result<Partitioned> {
    let rule: Partitioning<Explicit> = Partitioning::explicit();
    db.ordered(name).partition_by(rule).open()
}

/// Whether there is a keyspace of that name that is divided.
pub(crate) fn is_partitioned(db: &Db, name: &str) -> bool {
    db.keyspaces().iter().any(|one| one.is_partitioned && one.name == name)
}

/// The keyspace itself, or all its partitions if it is divided.
pub(crate) fn maps_of(db: &Db, name: &str, is_partitioned: bool) -> trine::Result<Vec<Keyspace<Ordered>>> {
    if !is_partitioned {
        return Ok(vec![db.keyspace(name)?.ordered()?]);
    }
    let divided = partitioned(db, name)?;
    let all = divided.partitions()?.into_iter().map(|partition| divided.find_partition(partition));
    all.filter_map(Result::transpose).collect()
}

/// Keyspace and partition, if the name is that of a partition: the longest of the store's keyspaces before a
/// slash, and that one is divided.
fn divided<'n>(db: &Db, name: &'n str) -> trine::Result<Option<(Partitioned, &'n str)>> {
    if db.contains_keyspace(name) {
        return Ok(None);
    }
    for (at, _) in name.rmatch_indices('/') {
        let (keyspace, partition) = (&name[..at], &name[at + 1..]);
        if is_partitioned(db, keyspace) {
            return Ok(Some((partitioned(db, keyspace)?, partition)));
        }
    }
    Ok(None)
}
