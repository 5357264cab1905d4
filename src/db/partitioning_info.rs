//! Partitionings of keyspaces, as callers read them.

use crate::base::rule::{KeyFunction, Rule};

/// The partitioning of a keyspace: [`KeyspaceInfo::partitioning`](crate::KeyspaceInfo).
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// use trine::{Partitioning, PartitioningInfo};
///
/// db.ordered("events").partition_by(Partitioning::prefix(7)).open()?;
/// db.ordered("users").open()?;
/// let all: Vec<_> = db.keyspaces().into_iter().map(|one| one.partitioning).collect();
/// assert_eq!(all, [Some(PartitioningInfo::Prefix { bytes: 7 }), None]);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PartitioningInfo {
    /// By [`Partitioning::explicit`](crate::Partitioning::explicit).
    Explicit,
    /// By [`Partitioning::prefix`](crate::Partitioning::prefix).
    Prefix {
        /// Length of the prefix.
        bytes: usize,
    },
    /// By [`Partitioning::ranges`](crate::Partitioning::ranges).
    Ranges {
        /// The keys at which partitions begin, ascending.
        bounds: Vec<Vec<u8>>,
    },
    /// By [`Partitioning::function`](crate::Partitioning::function).
    Function {
        /// Name of the function.
        name: String,
        /// Version of the function.
        version: u32,
    },
}

impl PartitioningInfo {
    pub(super) fn of(rule: &Rule) -> PartitioningInfo {
        match rule {
            Rule::Explicit => PartitioningInfo::Explicit,
            Rule::Prefix(bytes) => PartitioningInfo::Prefix { bytes: usize::from(*bytes) },
            Rule::Ranges(bounds) => {
                let bounds = bounds.iter().map(|bound| bound.to_vec()).collect();
                PartitioningInfo::Ranges { bounds }
            }
            Rule::Function(KeyFunction { name, version, .. }) => {
                PartitioningInfo::Function { name: name.to_string(), version: *version }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Each rule is reported with its parameters: length, bounds, or name and version.
    #[test]
    fn rules_are_told() {
        let prefix = Rule::prefix(7).expect("a length");
        assert_eq!(PartitioningInfo::of(&prefix), PartitioningInfo::Prefix { bytes: 7 });
        let ranges = Rule::ranges(vec![b"g"[..].into(), b"m"[..].into()]).expect("ascending");
        let bounds = vec![b"g".to_vec(), b"m".to_vec()];
        assert_eq!(PartitioningInfo::of(&ranges), PartitioningInfo::Ranges { bounds });
        let function = Rule::Function(KeyFunction::named("month", 3));
        let told = PartitioningInfo::Function { name: "month".to_owned(), version: 3 };
        assert_eq!(PartitioningInfo::of(&function), told);
        assert_eq!(PartitioningInfo::of(&Rule::Explicit), PartitioningInfo::Explicit);
    }
}
