//! How a keyspace is divided into partitions.
//!
//! Pure. A rule is fixed when its keyspace is made, and stands in the manifest.

use std::fmt;

/// Longest name of a partition, in bytes.
pub(crate) const PARTITION_NAME_BYTES_MAX: usize = 255;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// The caller names the partition of each item: its identity is partition and key.
    Explicit,
}

impl Rule {
    /// Whether a partition may have the name.
    pub(crate) fn has_name(self, name: &[u8]) -> bool {
        match self {
            Rule::Explicit => name.len() <= PARTITION_NAME_BYTES_MAX,
        }
    }
}

/// A partition's name in messages.
pub(crate) fn partition_name(keyspace: &str, partition: &[u8]) -> String {
    format!("{keyspace}/{}", partition.escape_ascii())
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Explicit => f.write_str("explicit"),
        }
    }
}
