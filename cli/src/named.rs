//! Names of keyspaces and partitions on the command line: KEYSPACE, or KEYSPACE/PARTITION for an explicitly
//! partitioned keyspace.

use trine::{Db, Error, Explicit, Kind, Partitioning, PartitioningInfo};
use trine_workload::failure::Failure;

use crate::any_keyspace::{AnyKeyspace, AnyPartitioned};
use crate::rule;

/// The keyspace that a command makes if none of the name exists.
#[derive(Clone, Copy)]
pub(crate) struct Make<'r> {
    /// Whether the keyspace is hashed. An existing one must be hashed too; without this it keeps its kind.
    pub(crate) hashed: bool,
    /// The partitioning rule. An existing keyspace keeps its own.
    pub(crate) rule: Option<&'r PartitioningInfo>,
}

/// Opens an existing keyspace or partition.
pub(crate) fn find(db: &Db, name: &str) -> Result<AnyKeyspace, Failure> {
    if let Some((keyspace, partition)) = divided(db, name)? {
        let found = keyspace.find_partition(partition)?;
        return found.ok_or_else(|| Error::NoKeyspace { name: name.to_owned() }.into());
    }
    check_whole(db, name)?;
    Ok(find_whole(db, name)?)
}

/// Opens an existing keyspace that is not partitioned, or is partitioned by key.
fn find_whole(db: &Db, name: &str) -> trine::Result<AnyKeyspace> {
    let any = db.keyspace(name)?;
    Ok(if is_hashed(db, name) {
        AnyKeyspace::Hashed(any.hashed()?)
    } else {
        AnyKeyspace::Ordered(any.ordered()?)
    })
}

/// Opens or makes the keyspace or partition of that name. Without a rule the keyspace of a partition is not
/// made.
pub(crate) fn open(db: &Db, name: &str, make: Make<'_>) -> Result<AnyKeyspace, Failure> {
    let Make { hashed, rule } = make;
    if let Some((keyspace, partition)) = divided(db, name)? {
        if hashed && !keyspace.is_hashed() {
            return Err(Failure::Usage(format!("{name} is a partition of a keyspace that is not hashed")));
        }
        check_rule(db, keyspace.name(), rule)?;
        return Ok(keyspace.partition(partition)?);
    }
    check_rule(db, name, rule)?;
    let hashed = hashed || is_hashed(db, name);
    match rule {
        Some(PartitioningInfo::Explicit) => {
            let Some((keyspace, partition)) = name.rsplit_once('/') else {
                let message = format!("--partition-by explicit wants a partition, {name}/PARTITION");
                return Err(Failure::Usage(message));
            };
            check_rule(db, keyspace, rule)?;
            Ok(partitioned(db, keyspace, hashed)?.partition(partition)?)
        }
        Some(rule) => make_by_key(db, name, (hashed, rule)),
        None => {
            check_whole(db, name)?;
            Ok(match hashed {
                true => AnyKeyspace::Hashed(db.hashed(name).open()?),
                false => AnyKeyspace::Ordered(db.ordered(name).open()?),
            })
        }
    }
}

/// Makes a keyspace partitioned by the rule, unless it exists. Without a rule an existing keyspace keeps its
/// own, and a new one is `explicit`.
pub(crate) fn make_divided(db: &Db, name: &str, make: Make<'_>) -> Result<(), Failure> {
    check_rule(db, name, make.rule)?;
    let hashed = make.hashed || is_hashed(db, name);
    match make.rule {
        None if db.contains_keyspace(name) && !make.hashed => Ok(()),
        // The opening compares the kind.
        None if db.contains_keyspace(name) && !is_partitioned(db, name) => {
            Ok(db.hashed(name).open().map(drop)?)
        }
        None | Some(PartitioningInfo::Explicit) => Ok(partitioned(db, name, hashed).map(drop)?),
        Some(rule) => make_by_key(db, name, (hashed, rule)).map(drop),
    }
}

fn make_by_key(
    db: &Db,
    name: &str,
    (hashed, rule): (bool, &PartitioningInfo),
) -> Result<AnyKeyspace, Failure> {
    let partitioning = rule::by_key(rule);
    let partitioning = partitioning.ok_or_else(|| Failure::Usage("this rule is not by keys".to_owned()))?;
    Ok(match hashed {
        true => AnyKeyspace::Hashed(db.hashed(name).partition_by(partitioning).open()?),
        false => AnyKeyspace::Ordered(db.ordered(name).partition_by(partitioning).open()?),
    })
}

/// Refuses a rule that differs from that of an existing keyspace.
fn check_rule(db: &Db, name: &str, given: Option<&PartitioningInfo>) -> Result<(), Failure> {
    let found = db.keyspaces().into_iter().find(|one| one.name == name);
    let (Some(found), Some(given)) = (found, given) else { return Ok(()) };
    if found.partitioning.as_ref() == Some(given) {
        return Ok(());
    }
    let stored = found.partitioning.map_or_else(|| "none".to_owned(), |stored| rule::text(&stored));
    Err(Error::Mismatch { name: "--partition-by", stored, given: rule::text(given) }.into())
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

/// Opens or makes an explicitly partitioned keyspace of this kind.
pub(crate) fn partitioned(db: &Db, name: &str, hashed: bool) -> trine::Result<AnyPartitioned> {
    let rule: Partitioning<Explicit> = Partitioning::explicit();
    match hashed {
        true => db.hashed(name).partition_by(rule).open().map(AnyPartitioned::Hashed),
        false => db.ordered(name).partition_by(rule).open().map(AnyPartitioned::Ordered),
    }
}

/// Whether an explicitly partitioned keyspace of that name exists.
pub(crate) fn is_partitioned(db: &Db, name: &str) -> bool {
    db.keyspaces().iter().any(|one| one.is_partitioned && one.name == name)
}

/// Whether a hashed keyspace of that name exists.
pub(crate) fn is_hashed(db: &Db, name: &str) -> bool {
    db.keyspaces().iter().any(|one| one.kind == Kind::Hashed && one.name == name)
}

/// The keyspace itself, or all its partitions if it is explicitly partitioned.
pub(crate) fn maps_of(db: &Db, name: &str, is_partitioned: bool) -> trine::Result<Vec<AnyKeyspace>> {
    if !is_partitioned {
        return Ok(vec![find_whole(db, name)?]);
    }
    let divided = partitioned(db, name, is_hashed(db, name))?;
    let all = divided.partitions()?.into_iter().map(|partition| divided.find_partition(partition));
    all.filter_map(Result::transpose).collect()
}

/// Splits the name of a partition into keyspace and partition: the keyspace is the longest existing one
/// before a slash, and is explicitly partitioned. `None` if the name is not that of a partition.
///
/// # Errors
/// `Usage` if the keyspace is partitioned by key: its keys name the partitions.
fn divided<'n>(db: &Db, name: &'n str) -> Result<Option<(AnyPartitioned, &'n str)>, Failure> {
    let all = db.keyspaces();
    let find = |name: &str| all.iter().find(|one| one.name == name);
    if find(name).is_some() {
        return Ok(None);
    }
    for (at, _) in name.rmatch_indices('/') {
        let (keyspace, partition) = (&name[..at], &name[at + 1..]);
        let Some(found) = find(keyspace).filter(|one| one.partitioning.is_some()) else { continue };
        if found.is_partitioned {
            return Ok(Some((partitioned(db, keyspace, found.kind == Kind::Hashed)?, partition)));
        }
        let part = match found.kind {
            Kind::Hashed => "",
            _ => "; `trine scan --prefix`, --from and --to read a part",
        };
        return Err(Failure::Usage(format!(
            "the keys of {keyspace:?} name its partitions: give {keyspace} without a partition{part}"
        )));
    }
    Ok(None)
}
