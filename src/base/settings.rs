//! Every setting, in one table: name with unit, default, range, effect. Docs, parsing, printing and checks
//! come from the table.

use super::error::{Error, Result};

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its number in the manifest; never reused. 0 for settings that are not stored.
    pub(crate) id: u16,
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    /// Names of the values from 0 on, if they have names. Their order is stored and never changes.
    pub(crate) words: &'static [&'static str],
    pub(crate) about: &'static str,
}

impl Setting {
    /// The number that the input means; its range is checked later.
    fn number(&self, input: SettingInput<'_>) -> Result<u64> {
        let text = match input {
            SettingInput::Number(number) => return Ok(number),
            SettingInput::Text(text) => text,
            SettingInput::Negative(number) => {
                return Err(Error::Invalid { faults: vec![self.fault(&number.to_string())] });
            }
        };
        let word = self.words.iter().position(|word| *word == text);
        let number = word.map(|index| index as u64).or_else(|| text.parse().ok());
        number.ok_or_else(|| Error::Invalid { faults: vec![self.fault(&format!("{text:?}"))] })
    }

    fn fault(&self, given: &str) -> String {
        let Setting { name, min, max, words, .. } = self;
        match words {
            [] => format!("{name} is {given}, and must be from {min} to {max}"),
            words => format!("{name} is {given}, and must be one of {}", words.join(", ")),
        }
    }
}

/// The text of a value: its name if it has one.
pub(crate) fn text(words: &[&str], value: u64) -> String {
    let word = usize::try_from(value).ok().and_then(|index| words.get(index));
    word.map_or_else(|| value.to_string(), |word| (*word).to_owned())
}

/// A setting's new value: a number, or a text with the name of a value or a decimal number.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// use trine::SettingInput;
/// let builder = db.ordered("users").set("size_ratio", 10).set("level0_runs", "2");
/// builder.set("block_bytes", SettingInput::Number(8192)).open()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SettingInput<'a> {
    /// The number itself.
    Number(u64),
    /// The name of a value, as [`SettingValue::words`](crate::SettingValue::words) lists them, or a number.
    Text(&'a str),
    /// A negative number, which no setting accepts.
    Negative(i32),
}

impl From<usize> for SettingInput<'_> {
    fn from(number: usize) -> Self {
        SettingInput::Number(number as u64)
    }
}

impl From<u32> for SettingInput<'_> {
    fn from(number: u32) -> Self {
        SettingInput::Number(number.into())
    }
}

impl From<i32> for SettingInput<'_> {
    fn from(number: i32) -> Self {
        u64::try_from(number).map_or(SettingInput::Negative(number), SettingInput::Number)
    }
}

/// `true` is 1, `false` is 0.
impl From<bool> for SettingInput<'_> {
    fn from(is_on: bool) -> Self {
        SettingInput::Number(is_on.into())
    }
}

impl From<u64> for SettingInput<'_> {
    fn from(number: u64) -> Self {
        SettingInput::Number(number)
    }
}

impl<'a> From<&'a str> for SettingInput<'a> {
    fn from(text: &'a str) -> Self {
        SettingInput::Text(text)
    }
}

macro_rules! settings {
    ($kind:ident, $doc:literal:
        $($field:ident $id:literal = $default:expr, $min:expr, $max:expr,
            $([$($word:literal),*],)? $about:literal;)*) => {
        #[doc = $doc]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub(crate) struct $kind { $(#[doc = $about] pub(crate) $field: u64,)* }

        impl Default for $kind {
            fn default() -> $kind { $kind { $($field: $default,)* } }
        }

        impl $kind {
            pub(crate) const TABLE: &'static [Setting] = &[$(Setting {
                id: $id, name: stringify!($field),
                default: $default, min: $min, max: $max, words: &[$($($word),*)?], about: $about,
            },)*];

            /// Name and value of every setting, in the table's order.
            pub(crate) fn values(&self) -> Vec<(&'static Setting, u64)> {
                Self::TABLE.iter().zip([$(self.$field,)*]).collect()
            }

            /// Sets one setting by name; an unknown name is refused.
            pub(crate) fn set(&mut self, name: &str, value: u64) -> Result<()> {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => return Err(Error::Invalid { faults: vec![format!("there is no setting {name:?}")] }),
                }
                Ok(())
            }

            /// The number that `input` means for the setting `name`.
            pub(crate) fn number(name: &str, input: SettingInput<'_>) -> Result<u64> {
                match Self::TABLE.iter().find(|setting| setting.name == name) {
                    Some(setting) => setting.number(input),
                    None => Err(Error::Invalid { faults: vec![format!("there is no setting {name:?}")] }),
                }
            }

            /// Reports every value out of its range at once.
            pub(crate) fn validate(&self) -> Result<()> { check(&self.values()) }
        }
    };
}

settings! { StoreSettings, "Settings of one open store.":
    memory_bytes 0 = 256 << 20, 32 << 20, 1 << 44,
        "Memory for everything the store keeps. Each of three write buffers has 1/16 (4 to 64 MiB), \
         flushes and merges 1/8; cache, filters and indexes have the rest. The largest batch takes 1/4, at \
         most 256 MiB. When memory is short, reads go to the device and writers wait for a flush. Resident \
         memory may exceed the setting by about 10 %. Larger: fewer device reads and merges. Smaller: less \
         memory.";
    sync_every_commit 0 = 0, 0, 1,
        "1: a commit is acknowledged when it survives power loss. 0: when the kernel has it.";
    direct_io 0 = 1, 0, 1,
        "1: tables are read with O_DIRECT where the file system allows it. 0: through the kernel's page \
         cache.";
    map_log 0 = 1, 0, 1,
        "1: short log writes are copied into a mapping of the log's end (Linux, ext4). Copied bytes \
         survive the process as written ones do. 0: each log write is a call, as on other systems.";
    io 0 = 0, 0, 4, ["auto", "pread", "ring", "pool", "ring_poll"],
        "How parallel reads are submitted. ring: io_uring. pool: a pool of threads. pread: one after \
         another; ring falls back to it if the kernel refuses a ring. auto: ring if the kernel allows it, \
         else pool. ring_poll: rings polled by a kernel thread, which occupies a processor during load; an \
         experiment, refused without the feature lab.";
    reads_in_flight 0 = 256, 1, 1 << 16,
        "Most asynchronous reads in flight in the store, and in each block_on; further reads queue in FIFO \
         order. Larger: a faster device stays busy. Smaller: lower latency of a read, less memory.";
    search 0 = 0, 0, 4, ["adaptive", "serial", "parallel_2", "parallel_4", "parallel_8"],
        "How many runs a get reads from the device at once. serial: one after another, the fewest reads. \
         parallel_2, 4, 8: that many; lowest latency where a get needs several runs, but some reads are \
         wasted. adaptive: two while the run with the key is uncertain (no filter in memory) and few reads \
         are in flight; otherwise one, and always one if io is pread.";
    open_files_max 0 = 512, 16, 1 << 20,
        "Files kept open at once. Smaller: reads of cold tables open files more often.";
    background_threads 0 = 2, 1, 64,
        "Threads for flushes and merges.";
    background_bytes_per_second 0 = 0, 0, 1 << 40,
        "Most bytes a second that merges read and write, counting bytes that flushes write; flushes never \
         wait. Larger: merges keep up with more writes. Smaller: merges disturb reads less, writers are \
         slowed sooner. 0: no cap.";
    manifest_bytes 0 = 64 << 10, 16 << 10, 1 << 30,
        "Smallest length of a manifest file. Smaller: the manifest is rewritten more often.";
}

settings! { KeyspaceSettings, "Settings of one keyspace, stored in the manifest.":
    table_bytes 1 = 64 << 20, 64 << 10, 1 << 30,
        "Target size of a table file that a merge writes; at most a quarter more. Larger: fewer files. \
         Smaller: merges in smaller steps.";
    size_ratio 2 = 8, 2, 64,
        "Size of each level over the size of the level above. Larger: fewer levels to read, more \
         rewriting.";
    level0_runs 3 = 4, 1, 64,
        "Flushed runs that start a merge into level 1. Larger: less rewriting, more runs to search.";
    filter_bits_per_key 4 = 10, 0, 24,
        "Filter bits an item, averaged over all levels. Larger: fewer reads for absent keys, more memory. \
         0: no filter. The default of a hashed keyspace is 16, as a get asks more filters there.";
    block_bytes 5 = 4096, 4096, 65536,
        "Target size of a data block. Larger: less index memory, more bytes a read.";
    filter_kind 6 = 0, 0, 5, ["auto", "none", "bloom", "cache_line_bloom", "binary_fuse", "column_bloom"],
        "The kind of filter of new tables. cache_line_bloom: a probe touches one cache line. bloom: fewer \
         false positives, one cache line a probe bit. binary_fuse: 0.4 % false positives at 10.9 bits, \
         independent of filter_bits_per_key; slow to build. column_bloom: in hashed keyspaces, one page a \
         node, read on demand; in ordered keyspaces cache_line_bloom. auto: binary_fuse in the last level \
         if its bits are about those, else cache_line_bloom; in a hashed keyspace column_bloom if memory \
         cannot hold all filters.";
    filter_probes 7 = 0, 0, 16,
        "Bits that an item sets in its Bloom filter. 0: the best number for the filter's bits.";
    filter_allocation 8 = 1, 0, 1, ["uniform", "monkey"],
        "Distribution of filter bits over levels. monkey: more bits an item in smaller levels, for the \
         fewest reads for absent keys. uniform: the same in all levels.";
    compression 10 = 0, 0, 1, ["none", "lz4"],
        "Compression of blocks in new tables. none: blocks are stored as they are. lz4: LZ4, where it \
         saves an eighth or more; the cache holds blocks decompressed. A larger block_bytes compresses \
         better.";
    index_kind 11 = 0, 0, 2, ["fences", "learned", "auto"],
        "The index of blocks in new tables. fences: a few bytes of the first key of each block. learned: a \
         model of the keys decides block boundaries and finds the block of a key, page by page; fences \
         where they are smaller. Flushes and merges buffer 4 MiB more. auto: learned in merges while \
         memory cannot hold fences or their sketches and no writer waits. Hashed keyspaces have fences.";
    runs_per_level 20 = 0, 0, 63,
        "Runs of each level above the last, at most `size_ratio` - 1. Larger: less rewriting, more runs to \
         search. 1: leveled; 63: tiered. 0, and 0 for the last level: chosen from the observed writes: \
         tiered while new keys arrive, leveled under overwrites and at rest.";
    runs_in_last_level 21 = 0, 0, 63,
        "Runs of the last level. Larger: less rewriting, more runs to search, and overwritten items keep \
         their space for longer. With runs_per_level at 63: 1 is lazy-leveled, 63 is tiered. 0 while \
         runs_per_level is above 0: 1. In a hashed keyspace 1: leaves merge as under overwrites; more: \
         leaves never merge.";
    delete_persist_within 22 = 86400, 0, 1 << 40,
        "Seconds within which a delete, and the items it covers, are gone from disk; hashed keyspaces \
         ignore it. Larger: less rewriting. Smaller: deleted data leaves sooner. 0: no bound.";
}

/// Bits of filter in a hashed keyspace. A get asks up to some twenty filters while a trie grows. With 10
/// bits, one of them gives a false positive in a fifth of all gets; with 16 bits, in a fiftieth.
const HASHED_FILTER_BITS: u64 = 16;

impl KeyspaceSettings {
    /// Settings of a new keyspace, where none are given.
    pub(crate) fn of_new(is_hashed: bool) -> KeyspaceSettings {
        let mut settings = KeyspaceSettings::default();
        if is_hashed {
            settings.filter_bits_per_key = HASHED_FILTER_BITS;
        }
        settings
    }
}

fn check(values: &[(&'static Setting, u64)]) -> Result<()> {
    let faults: Vec<String> = values
        .iter()
        .filter(|(setting, value)| !(setting.min..=setting.max).contains(value))
        .map(|(setting, value)| setting.fault(&value.to_string()))
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
            let last_word = one.words.len().checked_sub(1).map(|last| last as u64);
            assert!(last_word.is_none_or(|last| one.min == 0 && one.max == last), "{}", one.name);
        }
        let mut settings = KeyspaceSettings::default();
        settings.set("size_ratio", 1).expect("known name");
        settings.set("table_bytes", 0).expect("known name");
        assert!(settings.set("no_such", 1).is_err());
        let Err(Error::Invalid { faults }) = settings.validate() else { panic!("two faults") };
        assert_eq!(faults.len(), 2);
    }

    /// Values with names are set and shown by name, others by number. The error for an unknown name lists the
    /// known ones.
    #[test]
    fn values_may_have_names() {
        let number = Setting { id: 0, name: "count", default: 1, min: 1, max: 9, words: &[], about: "" };
        let named = Setting { name: "kind", max: 1, min: 0, words: &["none", "bloom"], ..number };
        let texts = [text(named.words, 1), text(named.words, 2), text(number.words, 1)];
        assert_eq!(texts, ["bloom", "2", "1"]);
        assert_eq!(named.number("bloom".into()).expect("a name"), 1);
        assert_eq!(named.number("0".into()).expect("a number"), 0);
        assert_eq!(number.number("12".into()).expect("its range is checked later"), 12);
        for (setting, given, fault) in [
            (&named, "blom", "kind is \"blom\", and must be one of none, bloom"),
            (&number, "x", "count is \"x\", and must be from 1 to 9"),
        ] {
            let Err(Error::Invalid { faults }) = setting.number(given.into()) else { panic!("{given}") };
            assert_eq!(faults, [fault]);
        }
        assert!(KeyspaceSettings::number("no_such", 1.into()).is_err());
    }
}
