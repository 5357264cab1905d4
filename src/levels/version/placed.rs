//! An opened slice of a table, with the manifest's facts about it.
//!
//! Conversions go both ways: from the manifest's form and to it. Plain values.

use crate::base::error::{Error, Result};
use crate::base::id::{FileName, Sequence, TreeId};
use crate::base::sync::Arc;
use crate::format::manifest;
use crate::table::TableReader;

use super::spot::Spot;

/// A table with its facts.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) table: Arc<TableReader>,
    pub(crate) first_sequence: Sequence,
    pub(crate) last_sequence: Sequence,
    /// Time from which the age of its oldest tombstone counts, in seconds since 1970: about the beginning of
    /// its write buffer; 0 without tombstones.
    pub(crate) oldest_tombstone_s: u64,
    /// The largest number of tombstones among consecutive items, counted when the table was built.
    pub(crate) tombstones_dense: u64,
}

impl Placed {
    /// The slices of a table file at the spots that the manifest gives.
    ///
    /// # Errors
    /// `Corrupt` if the slices of the file differ from the manifest's.
    pub(crate) fn all(
        table: &manifest::Table,
        file: FileName,
        opened: &[Arc<TableReader>],
    ) -> Result<Vec<(Spot, Placed)>> {
        let mut all = Vec::with_capacity(table.slices.len());
        for (index, slice) in &table.slices {
            let Some(table) = opened.get(*index as usize) else {
                return Err(Error::corrupt(file, 0, "a slice of the table", index, opened.len()));
            };
            let tree = TreeId { keyspace: slice.keyspace, partition: slice.partition };
            let is_bounded_alike =
                *table.min() == *slice.min_key && table.bounded_max() == slice.max_key.as_deref();
            if table.tree() != tree || !is_bounded_alike {
                let what = "tree and bounds of a slice";
                return Err(Error::corrupt(file, 0, what, "the manifest's", "others"));
            }
            if tree.keyspace.is_hashed() && slice.level > 0 && !table.ranges().is_empty() {
                return Err(Error::corrupt(file, 0, "range tombstones below the root of a trie", 0, index));
            }
            all.push(Placed::of(slice, table));
        }
        Ok(all)
    }

    /// An opened slice at the spot that the manifest gives.
    pub(crate) fn of(slice: &manifest::Slice, table: &Arc<TableReader>) -> (Spot, Placed) {
        let placed = Placed {
            table: Arc::clone(table),
            first_sequence: slice.first_sequence,
            last_sequence: slice.last_sequence,
            oldest_tombstone_s: slice.oldest_tombstone_s,
            tombstones_dense: slice.tombstones_dense,
        };
        (Spot { level: usize::from(slice.level), run: slice.run }, placed)
    }

    /// The manifest's entry for the slice.
    pub(crate) fn slice(&self, spot: Spot) -> manifest::Slice {
        let table = &*self.table;
        manifest::Slice {
            keyspace: table.tree().keyspace,
            partition: table.tree().partition,
            level: u8::try_from(spot.level).expect("a level fits a byte"),
            run: spot.run,
            items: table.items(),
            tombstones: table.tombstones(),
            oldest_tombstone_s: self.oldest_tombstone_s,
            tombstones_dense: self.tombstones_dense,
            key_value_bytes: table.key_value_bytes(),
            first_sequence: self.first_sequence,
            last_sequence: self.last_sequence,
            min_key: table.min().into(),
            max_key: table.bounded_max().map(Box::from),
        }
    }

    /// Its name in the manifest: file number and slice.
    pub(crate) fn name(&self) -> (u64, u32) {
        (self.table.file().name().number, self.table.index() as u32)
    }
}
