//! No store: the cost of the driver itself.

use std::path::Path;

use super::super::plan::{SCAN_ITEMS, SHAPE};
use super::{
    Asker, BESIDE_BYTES, Changes, Compacted, Contender, Counts, Engine, Executor, Found, Look, Reader, Sees,
    Settings, Values,
};
use crate::engines::Answer;

pub(super) const CONTENDER: Contender = Contender {
    name: "null",
    label: "null",
    peer: "",
    settings: "no store is asked; keys, values, clock and counting remain",
    tables: "",
    batch: 1,
    uses_page_cache: false,
    beside_bytes: BESIDE_BYTES,
    has_order: true,
    has_owned_iterator: true,
    has_futures: true,
    open: |_: &Path, settings: &Settings| Ok(Box::new(Null { value_bytes: settings.value_bytes })),
    open_keyspaces: None,
    open_partitions: None,
};

struct Null {
    value_bytes: usize,
}

/// Answers only scans, with items that are made once: the driver also pays for looking at items.
struct NullReader {
    items: Vec<(Vec<u8>, Vec<u8>)>,
}

impl NullReader {
    fn new(value_bytes: usize) -> NullReader {
        let item = |number| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            SHAPE.key(number, &mut key);
            SHAPE.value(&key, value_bytes, &mut value);
            (key, value)
        };
        NullReader { items: (0..SCAN_ITEMS).map(item).collect() }
    }
}

impl Engine for Null {
    fn put(&self, _: &[u8], _: &[u8]) -> Answer<()> {
        Ok(())
    }

    fn write(&self, _: &Changes) -> Answer<()> {
        Ok(())
    }

    fn reader(&self, _: Sees) -> Answer<Box<dyn Reader + '_>> {
        Ok(Box::new(NullReader::new(self.value_bytes)))
    }

    fn settle(&self) -> Answer<()> {
        Ok(())
    }

    fn compact(&mut self) -> Answer<Compacted> {
        Ok(Compacted::No)
    }

    fn write_buffer_bytes(&self) -> Option<u64> {
        None
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}

impl Reader for NullReader {
    fn get(&mut self, _: &[u8], _: &mut Vec<u8>) -> Answer<Found> {
        Ok(Found::Unasked)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> Answer<()> {
        keys.iter().for_each(|_| values.push_unasked());
        Ok(())
    }

    fn in_flight(&mut self, _: Executor, _: u64, asker: &mut dyn Asker) -> Answer<()> {
        let mut key = Vec::new();
        while let Some(asked) = asker.next(&mut key) {
            asker.answer(asked, Found::Unasked, &[]);
        }
        Ok(())
    }

    fn scan(&mut self, _: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        let count = usize::try_from(items_max).unwrap_or(usize::MAX);
        self.items.iter().take(count).for_each(|(key, value)| look(key, value));
        Ok(None)
    }

    fn scan_owned(&mut self, from: &[u8], items_max: u64, look: &mut Look<'_>) -> Answer<Option<u64>> {
        self.scan(from, items_max, look)
    }

    fn all(&mut self, _: &mut Look<'_>) -> Answer<Option<u64>> {
        Ok(None)
    }
}
