//! Merges from memory into the first component, and from each full component into the next.
//!
//! Merges are whole and recursive, as in the papers: all items of a component go into the next one when the
//! component has no room for another arrival. A merge into an empty component is a move. The cascade works on
//! a copy of the list of components and writes new files beside the live ones. The caller saves first and
//! then replaces its list by the copy.
//!
//! Invariants: 1. the cascade changes or removes no live file; 2. a component except the last never holds
//! more items than its capacity, or more arrays than its limit; 3. a merge drops a deletion only if no older
//! items lie below; 4. a merge writes each key once, its newest item.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::base::error::Result;
use crate::base::id::{FileName, ItemKind};
use crate::base::sync::Arc;
use crate::io::storage::Storage;
use crate::merge::{Merge, MergeItem, MergeSource};

use super::array::{Array, ArrayShape, ArrayStream, ArrayWriter};
use super::filter::Bloom;
use super::knobs::{FilterScope, ItemOrder, Knob, Knobs};
use super::memory::{ItemList, ItemsSource};
use super::pages::{PageReader, array_name};

/// One component: its arrays, newest first, and their shared filter.
#[derive(Clone, Default, Debug)]
pub(super) struct Component {
    pub(super) arrays: Vec<Arc<Array>>,
    pub(super) filter: Option<Arc<Bloom>>,
}

impl Component {
    pub(super) fn items(&self) -> u64 {
        self.arrays.iter().map(|array| array.meta.count).sum()
    }

    pub(super) fn add_newest(&mut self, array: Arc<Array>, filter: Option<Arc<Bloom>>) {
        self.arrays.insert(0, array);
        self.filter = match (self.filter.take(), filter) {
            (Some(old), Some(new)) => {
                let mut both = Arc::unwrap_or_clone(old);
                both.unite(&new);
                Some(Arc::new(both))
            }
            (old, new) => old.or(new),
        };
    }
}

/// Items that component `index` receives at a time: the size of the component above it.
fn arrival(knobs: &Knobs, index: usize) -> u64 {
    let above = index as u32 + u32::from(knobs.is_on(Knob::Buffer));
    let ratio = knobs.number(Knob::Ratio);
    knobs.number(Knob::MemoryItems).saturating_mul(ratio.saturating_pow(above))
}

/// Capacity of component `index`, in items.
pub(super) fn capacity(knobs: &Knobs, index: usize) -> u64 {
    arrival(knobs, index).saturating_mul(knobs.number(Knob::Ratio))
}

/// Counters of merges.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct CascadeCounts {
    pub(super) merges: u64,
    pub(super) items: u64,
    pub(super) bytes: u64,
}

/// A cascade in planning.
pub(super) struct Cascade<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) reader: &'a Arc<PageReader>,
    pub(super) knobs: &'a Knobs,
    pub(super) shape: ArrayShape,
    pub(super) store_id: u128,
    pub(super) next_number: &'a mut u64,
    pub(super) next_uid: &'a mut dyn FnMut() -> u64,
    /// Files written so far. No component refers to them until the caller accepts the plan.
    pub(super) made: &'a mut Vec<FileName>,
    pub(super) counts: &'a mut CascadeCounts,
}

/// The input of a merge: sorted items from memory, or all arrays of the component above.
enum Carry<'i> {
    Items(&'i ItemList),
    Component(Component),
}

impl<'a> Cascade<'a> {
    /// Merges `items` into the first of `components`, then each full component into the next. The items are
    /// sorted, unless arrays are appended.
    pub(super) fn push_down(&mut self, items: &ItemList, components: &mut Vec<Component>) -> Result<()> {
        let last = self.knobs.count(Knob::Components).max(components.len()) - 1;
        let mut carry = Carry::Items(items);
        for index in 0.. {
            if components.len() <= index {
                components.resize_with(index + 1, Component::default);
            }
            let (above, below) = components.split_at_mut(index + 1);
            let target = &mut above[index];
            let is_bottom = below.iter().all(|one| one.arrays.is_empty());
            self.take_in(carry, target, is_bottom)?;
            if !self.is_full(target, index) {
                return Ok(());
            }
            if index == last {
                return self.shrink_last(target);
            }
            carry = Carry::Component(std::mem::take(target));
        }
        Ok(())
    }

    fn is_stacked(&self) -> bool {
        self.shape.layout == ItemOrder::Append || self.knobs.number(Knob::Arrays) > 1
    }

    fn is_full(&self, target: &Component, index: usize) -> bool {
        if self.shape.layout == ItemOrder::Sorted && self.is_stacked() {
            return target.arrays.len() >= self.knobs.count(Knob::Arrays);
        }
        target.items().saturating_add(arrival(self.knobs, index)) > capacity(self.knobs, index)
    }

    /// The last component has none below it: merges its sorted arrays into one.
    fn shrink_last(&mut self, target: &mut Component) -> Result<()> {
        if self.shape.layout == ItemOrder::Sorted && target.arrays.len() > 1 {
            let all = std::mem::take(target);
            self.merge(None, &all, target, true)?;
        }
        Ok(())
    }

    fn take_in(&mut self, carry: Carry<'_>, target: &mut Component, is_bottom: bool) -> Result<()> {
        let stacked = self.is_stacked();
        match carry {
            Carry::Component(mut above)
                if above.arrays.len() == 1 && (stacked || target.arrays.is_empty()) =>
            {
                let array = above.arrays.swap_remove(0);
                target.add_newest(array, above.filter);
                Ok(())
            }
            Carry::Component(mut above) => {
                if !stacked {
                    above.arrays.append(&mut target.arrays);
                    *target = Component::default();
                }
                let drop_deletions = is_bottom && target.arrays.is_empty();
                self.merge(None, &above, target, drop_deletions)
            }
            Carry::Items(items) => {
                let old = if stacked { Component::default() } else { std::mem::take(target) };
                let drop_deletions = is_bottom && target.arrays.is_empty();
                self.merge(Some(items), &old, target, drop_deletions)
            }
        }
    }

    /// Writes the newest items of `items` and `old` as one array, which becomes the newest of `target`.
    fn merge(
        &mut self,
        items: Option<&ItemList>,
        old: &Component,
        target: &mut Component,
        drop_deletions: bool,
    ) -> Result<()> {
        let mut writer = self.writer()?;
        // An appended array may hold older items of a key beside its deletion, so deletions stay.
        let drop_deletions = drop_deletions && self.shape.layout == ItemOrder::Sorted;
        let mut keep = |item: MergeItem<'_>| {
            if drop_deletions && item.kind == ItemKind::Delete { Ok(()) } else { writer.push(item) }
        };
        let in_memory = items.map(ItemsSource::new);
        if self.shape.layout == ItemOrder::Append {
            for array in old.arrays.iter().rev() {
                copy(&mut self.stream(array)?, &mut keep)?;
            }
            in_memory.map_or(Ok(()), |mut items| copy(&mut items, &mut keep))?;
        } else {
            let mut sources: Vec<Box<dyn MergeSource + '_>> = Vec::new();
            sources.extend(in_memory.map(|items| Box::new(items) as Box<dyn MergeSource + '_>));
            for array in &old.arrays {
                sources.push(Box::new(self.stream(array)?));
            }
            match self.knobs.is_on(Knob::Merge) {
                true => merge_by_heap(sources, &mut keep)?,
                false => merge_by_tree(sources, &mut keep)?,
            }
        }
        let count = writer.count();
        self.counts.merges += 1;
        self.counts.items += count;
        // Without items the files get no name, and the next save removes them.
        if count > 0 {
            let (array, filter) = writer.finish(self.storage, self.store_id, self.knobs.is_on(Knob::Sync))?;
            self.counts.bytes += array.bytes();
            target.add_newest(Arc::new(array), filter.map(Arc::new));
        }
        Ok(())
    }

    fn stream(&self, array: &Arc<Array>) -> Result<ArrayStream> {
        ArrayStream::new(Arc::clone(array), Arc::clone(self.reader))
    }

    fn writer(&mut self) -> Result<ArrayWriter<'a>> {
        let keys = self.new_file();
        let values = self.shape.columns.then(|| self.new_file());
        let wants_filter = self.knobs.filter() == FilterScope::Component;
        let filter = wants_filter.then(|| Bloom::new(self.knobs));
        ArrayWriter::create(self.storage, self.store_id, self.shape, keys, values, filter)
    }

    /// Number and uid of a new file.
    fn new_file(&mut self) -> (u64, u64) {
        let number = *self.next_number;
        *self.next_number += 1;
        self.made.push(array_name(number));
        (number, (self.next_uid)())
    }
}

/// The callback that receives each item of a merge.
type Keep<'k> = dyn FnMut(MergeItem<'_>) -> Result<()> + 'k;

fn copy(source: &mut dyn MergeSource, keep: &mut Keep<'_>) -> Result<()> {
    while let Some(item) = source.item() {
        keep(item)?;
        source.advance()?;
    }
    Ok(())
}

fn merge_by_tree(sources: Vec<Box<dyn MergeSource + '_>>, keep: &mut Keep<'_>) -> Result<()> {
    let mut merge = Merge::with_prefix(sources, &[]);
    while let Some(item) = merge.item() {
        keep(item)?;
        merge.advance()?;
    }
    Ok(())
}

/// A merge by a heap of the sources' keys, as in Drizard's section 2.7.
fn merge_by_heap(mut sources: Vec<Box<dyn MergeSource + '_>>, keep: &mut Keep<'_>) -> Result<()> {
    let entry = |sources: &[Box<dyn MergeSource + '_>], index: usize| {
        sources[index].item().map(|item| Reverse((item.key.to_vec(), index)))
    };
    let mut heap: BinaryHeap<_> = (0..sources.len()).filter_map(|index| entry(&sources, index)).collect();
    let mut kept: Option<Vec<u8>> = None;
    // Of equal keys, the source of the lower index comes out first; it is the newer one.
    while let Some(Reverse((key, index))) = heap.pop() {
        if kept.as_ref() != Some(&key) {
            keep(sources[index].item().expect("it stands on the key that came out"))?;
            kept = Some(key);
        }
        sources[index].advance()?;
        heap.extend(entry(&sources, index));
    }
    Ok(())
}
