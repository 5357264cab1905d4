//! The knobs of a lab store: one table with the name, range and description of each; and the presets.
//!
//! The table holds values and does not act on them. A value is a number or one of a few words. Both are set
//! and read as text, by name. Plain values.

use crate::base::error::{Error, Result};

/// The allowed values of a knob.
#[derive(Clone, Copy, Debug)]
enum Range {
    Number(u64, u64),
    Words(&'static [&'static str]),
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    name: &'static str,
    range: Range,
    about: &'static str,
}

macro_rules! knobs {
    ($($knob:ident $name:literal $range:expr, $about:literal;)*) => {
        /// A knob, as an index into the table.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Knob { $($knob,)* }

        const ROWS: &[Row] = &[$(Row { name: $name, range: $range, about: $about },)*];
    };
}

const OFF_ON: Range = Range::Words(&["off", "on"]);

knobs! {
    KeyBytes "key_bytes" Range::Number(1, 256), "Length of every key, in bytes.";
    ValueBytes "value_bytes" Range::Number(0, 2048), "Length of every value, in bytes.";
    Memory "memory" Range::Words(&["unsorted", "sorted", "append"]),
        "Items in memory: an unsorted array changed in place, a sorted array, or an array appended to.";
    MemoryItems "memory_items" Range::Number(1, 1 << 24), "Items in memory before they are merged down.";
    Ratio "ratio" Range::Number(2, 64), "How many times larger each component is than the one before.";
    Buffer "buffer" OFF_ON, "A sorted buffer in memory of ratio x memory_items, before the first component.";
    Layout "layout" Range::Words(&["sorted", "append"]),
        "Components on disk: sorted and searched by halves, or appended to and searched from end to start.";
    Arrays "arrays" Range::Number(1, 64),
        "Sorted arrays a component. 1: everything is merged into one. More: merged at once into the next.";
    Components "components" Range::Number(1, 32), "Most components; the last one takes the rest.";
    Columns "columns" OFF_ON, "Keys and values in files of their own.";
    Merge "merge" Range::Words(&["tree", "heap"]), "Arrays are merged by a loser tree or by a binary heap.";
    Filter "filter" Range::Words(&["none", "global", "component"]),
        "Bloom filter: none, one of the whole store, or one a component.";
    FilterBits "filter_bits" Range::Number(64, 1 << 32), "Bits of each filter.";
    FilterHashes "filter_hashes" Range::Number(1, 30), "Bits set an item in a filter.";
    Fences "fences" OFF_ON, "The first key of each page in memory.";
    Bounds "bounds" OFF_ON, "A component whose smallest and largest key exclude a key is not looked into.";
    ReadBy "read_by" Range::Words(&["pread", "mmap"]),
        "Pages are read by a call, or copied out of a mapping of the file.";
    DirectIo "direct_io" OFF_ON, "Reads by call go past the kernel's page cache where it allows.";
    CacheBytes "cache_bytes" Range::Number(0, 1 << 32), "Cache of pages that were read. 0: none.";
    ParallelReads "parallel_reads" Range::Number(1, 16), "Components looked into at a time by a get.";
    ParallelPollSteps "parallel_poll_steps" Range::Number(0, 1 << 20),
        "A search looks after so many pages whether a newer component has the key. 0: never.";
    SaveEvery "save_every" Range::Number(0, 1 << 40),
        "Writes after which everything is saved. 0: only on demand, and when a merge reaches the disk.";
    Sync "sync" OFF_ON, "Saved means durable; off: handed to the kernel.";
}

/// The structure of the memory component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemoryKind {
    Unsorted,
    Sorted,
    Append,
}

/// Order of items in arrays on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ItemOrder {
    Sorted,
    Append,
}

/// The scope of Bloom filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FilterScope {
    None,
    Global,
    Component,
}

/// A paper's choice of parts.
///
/// ```
/// use trine::lab::Preset;
/// assert_eq!(Preset::named("drizard")?, Preset::Drizard);
/// assert!(Preset::named("lizard").is_err());
/// # Ok::<(), trine::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Preset {
    /// Drizard, "Reads optimized LSM-tree in C": an unsorted array of 1,000 items, a sorted buffer, one
    /// sorted array in each component, ratio 5.
    Drizard,
    /// Lemur when leveling: a sorted array, sorted components, one filter for each, fences.
    LemurLeveling,
    /// Lemur when "tiering": arrays that are appended to and searched from end to start.
    LemurTiering,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 3] = [Preset::Drizard, Preset::LemurLeveling, Preset::LemurTiering];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Drizard => "drizard",
            Preset::LemurLeveling => "lemur-leveling",
            Preset::LemurTiering => "lemur-tiering",
        }
    }

    /// The preset with this name.
    ///
    /// # Errors
    /// `Invalid` if there is no such preset.
    pub fn named(name: &str) -> Result<Preset> {
        Preset::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| {
            let all = Preset::ALL.map(Preset::name).join(", ");
            invalid(format!("there is no preset {name:?}; there are {all}"))
        })
    }

    /// The preset's values for all knobs.
    pub fn knobs(self) -> Knobs {
        let mut knobs = Knobs { values: [0; ROWS.len()] };
        for (knob, value) in COMMON {
            knobs.values[*knob as usize] = *value;
        }
        let own: &[(Knob, u64)] = match self {
            Preset::Drizard => DRIZARD,
            Preset::LemurLeveling => LEMUR_LEVELING,
            Preset::LemurTiering => LEMUR_TIERING,
        };
        for (knob, value) in own {
            knobs.values[*knob as usize] = *value;
        }
        knobs
    }
}

/// Common to all presets.
const COMMON: &[(Knob, u64)] = &[
    (Knob::KeyBytes, 4),
    (Knob::Arrays, 1),
    (Knob::Components, 12),
    (Knob::Columns, 1),
    (Knob::FilterBits, 1 << 20),
    (Knob::FilterHashes, 4),
    (Knob::ParallelReads, 1),
    (Knob::Sync, 1),
];
/// The best of the paper's six architectures.
const DRIZARD: &[(Knob, u64)] = &[
    (Knob::ValueBytes, 32),
    (Knob::Memory, MemoryKind::Unsorted as u64),
    (Knob::MemoryItems, 1000),
    (Knob::Ratio, 5),
    (Knob::Buffer, 1),
    (Knob::FilterBits, 10_000_000),
    (Knob::FilterHashes, 7),
    (Knob::ReadBy, 1),
];
const LEMUR_LEVELING: &[(Knob, u64)] = &[
    (Knob::ValueBytes, 20),
    (Knob::Memory, MemoryKind::Sorted as u64),
    (Knob::MemoryItems, 8192),
    (Knob::Ratio, 4),
    (Knob::Filter, FilterScope::Component as u64),
    (Knob::Fences, 1),
];
const LEMUR_TIERING: &[(Knob, u64)] = &[
    (Knob::ValueBytes, 20),
    (Knob::Memory, MemoryKind::Append as u64),
    (Knob::MemoryItems, 8192),
    (Knob::Ratio, 4),
    (Knob::Layout, ItemOrder::Append as u64),
    (Knob::Filter, FilterScope::Component as u64),
];

/// A knob's name and value, as text.
///
/// ```
/// let all = trine::lab::Preset::Drizard.knobs().values();
/// let memory = all.iter().find(|one| one.name == "memory").unwrap();
/// assert_eq!(memory.value, "unsorted");
/// assert!(memory.allowed.contains("sorted"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KnobValue {
    /// Its name.
    pub name: &'static str,
    /// Its value: a number or a word.
    pub value: String,
    /// Its allowed values.
    pub allowed: String,
    /// Its description.
    pub about: &'static str,
}

/// A value for every knob.
///
/// ```
/// let mut knobs = trine::lab::Preset::Drizard.knobs();
/// knobs.set("ratio", "7")?;
/// assert_eq!(knobs.get("ratio")?, "7");
/// assert!(knobs.set("ratio", "1").is_err());
/// assert!(knobs.set("colour", "red").is_err());
/// # Ok::<(), trine::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knobs {
    values: [u64; ROWS.len()],
}

impl Knobs {
    /// Sets a knob by name.
    ///
    /// # Errors
    /// `Invalid` if there is no such knob, or it does not allow the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let index = index_of(name)?;
        let row = &ROWS[index];
        let parsed = match row.range {
            Range::Words(words) => words.iter().position(|word| *word == value).map(|at| at as u64),
            Range::Number(min, max) => value.parse().ok().filter(|number| (min..=max).contains(number)),
        };
        let Some(parsed) = parsed else {
            return Err(invalid(format!("{name} is {value:?}, and must be {}", allowed(row))));
        };
        self.values[index] = parsed;
        Ok(())
    }

    /// The value of a knob by name, as text.
    ///
    /// # Errors
    /// `Invalid` if there is no such knob.
    pub fn get(&self, name: &str) -> Result<String> {
        let index = index_of(name)?;
        Ok(text(&ROWS[index], self.values[index]))
    }

    /// All knobs and their values.
    pub fn values(&self) -> Vec<KnobValue> {
        let one = |(row, value): (&Row, &u64)| KnobValue {
            name: row.name,
            value: text(row, *value),
            allowed: allowed(row),
            about: row.about,
        };
        ROWS.iter().zip(&self.values).map(one).collect()
    }

    /// # Errors
    /// `Invalid`, with every fault, if the values contradict each other.
    pub(super) fn validate(&self) -> Result<()> {
        let mut faults = Vec::new();
        if self.layout() == ItemOrder::Append {
            for (is_wrong, what) in [
                (self.is_on(Knob::Buffer), "buffer is on"),
                (self.number(Knob::Arrays) > 1, "arrays is over 1"),
                (self.is_on(Knob::Fences), "fences is on"),
            ] {
                if is_wrong {
                    faults.push(format!("{what}, and layout is append: appended arrays are not sorted"));
                }
            }
        }
        if self.is_on(Knob::DirectIo) && self.is_on(Knob::ReadBy) {
            faults.push("direct_io is on, and read_by is mmap: a mapping is the page cache".to_owned());
        }
        if faults.is_empty() { Ok(()) } else { Err(Error::Invalid { faults }) }
    }

    pub(super) fn number(&self, knob: Knob) -> u64 {
        self.values[knob as usize]
    }

    /// A number that fits `usize` by its range.
    pub(super) fn count(&self, knob: Knob) -> usize {
        usize::try_from(self.number(knob)).expect("the range of a count fits any machine")
    }

    pub(super) fn is_on(&self, knob: Knob) -> bool {
        self.number(knob) == 1
    }

    pub(super) fn memory(&self) -> MemoryKind {
        match self.number(Knob::Memory) {
            0 => MemoryKind::Unsorted,
            1 => MemoryKind::Sorted,
            _ => MemoryKind::Append,
        }
    }

    pub(super) fn layout(&self) -> ItemOrder {
        if self.number(Knob::Layout) == 0 { ItemOrder::Sorted } else { ItemOrder::Append }
    }

    pub(super) fn filter(&self) -> FilterScope {
        match self.number(Knob::Filter) {
            0 => FilterScope::None,
            1 => FilterScope::Global,
            _ => FilterScope::Component,
        }
    }
}

fn index_of(name: &str) -> Result<usize> {
    ROWS.iter().position(|row| row.name == name).ok_or_else(|| {
        let all: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        invalid(format!("there is no knob {name:?}; there are {}", all.join(", ")))
    })
}

fn allowed(row: &Row) -> String {
    match row.range {
        Range::Number(min, max) => format!("from {min} to {max}"),
        Range::Words(words) => words.join(" or "),
    }
}

fn text(row: &Row, value: u64) -> String {
    match row.range {
        Range::Number(..) => value.to_string(),
        Range::Words(words) => words.get(value as usize).map_or_else(String::new, |word| (*word).to_owned()),
    }
}

pub(super) fn invalid(fault: String) -> Error {
    Error::Invalid { faults: vec![fault] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every knob of every preset can be read, set to its own value, and rejects a value outside its range by
    /// name.
    #[test]
    fn every_knob_is_set_and_read_by_name() {
        for preset in Preset::ALL {
            let knobs = preset.knobs();
            assert!(knobs.validate().is_ok(), "{}", preset.name());
            assert_eq!(Preset::named(preset.name()).expect("its own name"), preset);
            for one in knobs.values() {
                let mut copy = knobs.clone();
                copy.set(one.name, &one.value).expect("its own value");
                assert_eq!((copy.get(one.name).expect("it is there"), &copy), (one.value, &knobs));
                let refused = copy.set(one.name, "-1").expect_err("no knob takes it").to_string();
                assert!(refused.contains(one.name) && refused.contains(&one.allowed), "{refused}");
            }
        }
    }

    /// All contradictions between knobs are reported in one error.
    #[test]
    fn faults_are_told_together() {
        let mut knobs = Preset::LemurTiering.knobs();
        for (name, value) in [("buffer", "on"), ("arrays", "3"), ("fences", "on"), ("direct_io", "on")] {
            knobs.set(name, value).expect("in range");
        }
        knobs.set("read_by", "mmap").expect("in range");
        let Err(Error::Invalid { faults }) = knobs.validate() else { panic!("four faults") };
        assert_eq!(faults.len(), 4);
        assert!(Preset::named("lemur").is_err() && knobs.get("nothing").is_err());
    }
}
