//! Every setting, in one table: name with unit, default, range, what it does. Docs, parsing, printing and
//! checks come from it.

use super::error::{Error, Result};

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its number in the manifest; never reused. 0 for what is not stored.
    pub(crate) id: u16,
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) about: &'static str,
}

macro_rules! settings {
    ($kind:ident, $doc:literal:
        $($field:ident $id:literal = $default:expr, $min:expr, $max:expr, $about:literal;)*) => {
        #[doc = $doc]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub(crate) struct $kind { $(#[doc = $about] pub(crate) $field: u64,)* }

        impl Default for $kind {
            fn default() -> $kind { $kind { $($field: $default,)* } }
        }

        impl $kind {
            pub(crate) const TABLE: &'static [Setting] = &[$(Setting {
                id: $id, name: stringify!($field),
                default: $default, min: $min, max: $max, about: $about,
            },)*];

            /// Name and value of every setting, in the table's order.
            pub(crate) fn values(&self) -> Vec<(&'static Setting, u64)> {
                Self::TABLE.iter().zip([$(self.$field,)*]).collect()
            }

            /// Sets one by name; an unknown name is refused.
            pub(crate) fn set(&mut self, name: &str, value: u64) -> Result<()> {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => return Err(Error::Invalid { faults: vec![format!("there is no setting {name:?}")] }),
                }
                Ok(())
            }

            /// Reports every value out of its range at once.
            pub(crate) fn validate(&self) -> Result<()> { check(&self.values()) }
        }
    };
}

settings! { StoreSettings, "Settings of one open store.":
    memory_bytes 0 = 256 << 20, 32 << 20, 1 << 44,
        "Memory for everything: write buffers, cache, filters, indexes, merges. \
         Larger: fewer device reads and merges. Smaller: less memory.";
    sync_every_commit 0 = 0, 0, 1,
        "1: every commit is acknowledged only when it would survive power loss. 0: when the kernel has it.";
    direct_io 0 = 1, 0, 1,
        "1: tables are read past the kernel's page cache where the file system allows. 0: through it.";
    open_files_max 0 = 512, 16, 1 << 20,
        "Files kept open at once. Smaller: more opens on reads of cold tables.";
    background_threads 0 = 2, 1, 64,
        "Threads for flushes and merges.";
    manifest_bytes 0 = 1 << 20, 16 << 10, 1 << 30,
        "Smallest length of a manifest file. Smaller: rewritten more often.";
}

settings! { KeyspaceSettings, "Settings of one keyspace, stored in the manifest.":
    table_bytes 1 = 64 << 20, 64 << 10, 1 << 30,
        "Largest table file that a merge writes. Larger: fewer files. Smaller: merges in smaller steps.";
    size_ratio 2 = 8, 2, 64,
        "How many times larger each level is than the one above. \
         Larger: fewer levels to read, more rewriting.";
    level0_runs 3 = 4, 1, 64,
        "Flushed runs that start a merge into level 1. Larger: less rewriting, more runs to look into.";
    filter_bits_per_key 4 = 10, 0, 24,
        "Bits of Bloom filter an item. Larger: fewer reads for absent keys, more memory. 0: no filter.";
    block_bytes 5 = 4096, 4096, 65536,
        "Size a data block aims at. Larger: less index memory, more bytes a read.";
}

fn check(values: &[(&'static Setting, u64)]) -> Result<()> {
    let faults: Vec<String> = values
        .iter()
        .filter(|(setting, value)| !(setting.min..=setting.max).contains(value))
        .map(|(setting, value)| {
            format!("{} is {value}, and must be from {} to {}", setting.name, setting.min, setting.max)
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::Invalid { faults }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Defaults are in range, ids and names are unique, every fault is reported at once, unknown names are
    /// refused.
    #[test]
    fn the_table_is_sound() {
        assert!(StoreSettings::default().validate().is_ok());
        assert!(KeyspaceSettings::default().validate().is_ok());
        let all: Vec<&Setting> = StoreSettings::TABLE.iter().chain(KeyspaceSettings::TABLE).collect();
        for (index, one) in all.iter().enumerate() {
            assert!(
                all[..index]
                    .iter()
                    .all(|other| other.name != one.name && (one.id == 0 || other.id != one.id))
            );
        }
        let mut settings = KeyspaceSettings::default();
        settings.set("size_ratio", 1).expect("known name");
        settings.set("table_bytes", 0).expect("known name");
        assert!(settings.set("no_such", 1).is_err());
        let Err(Error::Invalid { faults }) = settings.validate() else { panic!("two faults") };
        assert_eq!(faults.len(), 2);
    }
}
