//! A scan: every source of a tree merged in key order, newest version of a key first, in one direction.
//!
//! Sources are the memtable generations, newest first, then the runs, newest first. The caller passes the
//! view at each step. Between steps the machine keeps positions, keys, table handles and counted blocks, but
//! no view: memtables can be freed while a scan is idle. Its positions belong to one view. In another view,
//! which has to hold the same items, it seeks behind the last key it left. Each source has an ask of its own,
//! so the first blocks of all runs go out together.
//!
//! The blocks that it keeps between steps are granted by the role `Iterators` ([`held`]).
//!
//! A source that goes on past its first block reads ahead. At each missing block it asks for four times as
//! many of the following bytes as before, up to a maximum and a share of the cache (see `source`). The cache
//! holds blocks read ahead like any others. So a short scan reads few blocks, and a long one needs few
//! requests. Large windows are read apart, by another thread, and asked for before they are needed:
//! [`ScanMachine::take_apart`].
//!
//! Invariants:
//! 1. A key is yielded only once every source stands at or past it.
//! 2. Of equal keys the newest source's item is taken, the others are skipped; a tombstone yields nothing.
//! 3. If a range tombstone of a newer source hides a stretch, each source with items in the stretch leaves it
//!    by one seek, for any number of items. Items hidden by a tombstone in their own memtable are passed one
//!    by one, in memory.
//! 4. Items of the winner's block that precede every other source's are yielded without a match of all
//!    sources ([`lead`]). Meanwhile `merge` has the winner at the item where the lead was found. That item
//!    precedes those of all other sources too.
//! 5. The current key of every source can be read without a view, and so can the value of the current item.

mod batch;
mod held;
mod lead;
mod merged;
mod passed;
mod pinned;
mod range;
mod region;
mod short;
mod source;

use std::ops::Bound;

use crate::base::epoch::Loaded;
use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::reserve::Grant;
use crate::base::step::{Answer, BlockAddress, Direction, MachineStep, Read, Reads, SCAN_ASKS_MAX};
use crate::base::sync::{Arc, Weak};
use crate::cache::{BlockRef, Cache, Near};
use crate::levels::gaps::Sight;
use crate::levels::version::{Run, Tree};
use crate::levels::view::View;
use crate::merge::{Covers, Hidden, LoserTree, RANGE_SEQUENCE, Stretch};
use crate::table::{Moved, TableCursor};

pub(crate) use batch::ItemBatch;
use lead::Lead;
pub(crate) use merged::Merged;
use passed::Passed;
pub(crate) use pinned::Pinned;
pub(crate) use range::{ScanRange, start_of, tighter};
use range::{SkipTo, expected_prefix, is_past};
use region::KeyRegion;
pub(crate) use short::{BatchExtent, BatchRequest, ITEMS_MAX, fill};
use source::{BLOCK_LINES, MemorySource, RunSource, ScanSource, key_of, kind_of, sequence_of};

/// The read-ahead of all sources of a scan is at most this fraction of the cache.
const AHEAD_CACHE_SHARE: usize = 16;

/// The block that a source needs before it stands at an item or at its end.
enum SourceNeed {
    Nothing,
    Block(BlockAddress),
}

fn ahead_bytes_max(cache: &Cache) -> usize {
    cache.capacity_bytes() / AHEAD_CACHE_SHARE
}

/// The machine.
pub(crate) struct ScanMachine {
    /// The view of the sources' positions; no other view has its address while this is kept.
    view: Weak<View>,
    sight: Sight,
    /// In a hashed tree, the part of the range within the region.
    range: ScanRange,
    region: Option<KeyRegion>,
    direction: Direction,
    /// The start given by the last seek.
    from: Bound<Vec<u8>>,
    sources: Vec<ScanSource>,
    merge: LoserTree,
    covers: Covers,
    /// The position to which the winner moves if a newer source hides it.
    skip_to: SkipTo,
    /// Sources not positioned yet, and their asks in flight.
    unready: Vec<Waiting>,
    /// The sources are positioned, and the memory that a seek leads to was prefetched.
    is_touched: bool,
    /// All sources stand at an item or their end, and `merge` is built.
    is_merged: bool,
    /// The last key left while other sources may stand on it: its older versions are skipped.
    key: Vec<u8>,
    has_key: bool,
    winner: Option<usize>,
    /// The value of the current item, unless the item is in a block held.
    value: Vec<u8>,
    /// The winner is the next item, in a memtable, and its value was not copied yet.
    is_found: bool,
    lead: Lead,
    /// The grant for the blocks held between steps.
    grant: Option<Grant>,
    /// The blocks held may differ from those granted.
    is_held_anew: bool,
    /// Deleted keys passed since the caller last asked for an item.
    passed: Passed,
    /// See [`ScanMachine::take_apart`].
    apart: Vec<BlockAddress>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Waiting {
    source: usize,
    /// The number of its ask in flight.
    ask: Option<u8>,
}

impl ScanMachine {
    /// A scan before the first item of `range` in `direction`; nothing is read before `advance`.
    pub(crate) fn new(sight: Sight, range: ScanRange, direction: Direction) -> ScanMachine {
        let mut scan = ScanMachine {
            view: Weak::new(),
            sight,
            range,
            region: None,
            direction,
            from: Bound::Unbounded,
            sources: Vec::new(),
            merge: LoserTree::new(0, direction),
            covers: Covers::default(),
            skip_to: SkipTo::default(),
            unready: Vec::new(),
            is_touched: false,
            is_merged: false,
            key: Vec::new(),
            has_key: false,
            winner: None,
            value: Vec::new(),
            is_found: false,
            lead: Lead::default(),
            grant: None,
            is_held_anew: false,
            passed: Passed::default(),
            apart: Vec::new(),
        };
        scan.position_from(Bound::Unbounded);
        scan
    }

    /// Whether the scan is positioned in that view: answers to its asks are valid in this view only.
    pub(crate) fn is_of(&self, view: Loaded<'_, View>) -> bool {
        std::ptr::eq(self.view.as_ptr(), view.get())
    }

    /// Repositions the scan: before the first item from `from` on in `direction`, within the range.
    pub(crate) fn seek(&mut self, from: Bound<&[u8]>, direction: Direction) {
        self.direction = direction;
        self.position_from(from);
    }

    /// The key of the current item; without one, of the last item left.
    pub(crate) fn key(&self) -> &[u8] {
        self.winner.and_then(|winner| key_of(&self.sources[winner])).unwrap_or(&self.key)
    }

    /// The value of the current item.
    pub(crate) fn value(&self) -> &[u8] {
        match self.winner.map(|winner| &self.sources[winner]) {
            Some(ScanSource::Run(run)) => run.cursor.as_ref().expect("the winner stands at an item").value(),
            Some(ScanSource::Memory(_)) | None => &self.value,
        }
    }

    /// Whether the next item is known to come next without a match.
    #[cfg(test)]
    pub(super) fn is_ahead(&self) -> bool {
        self.lead.is_ahead()
    }

    /// Goes to the next item if the blocks held have it, which needs no pin. `false` if the scan has to look
    /// further: `advance` then continues.
    #[inline]
    pub(crate) fn advance_at_hand(&mut self, cache: &Cache) -> bool {
        let Some(winner) = self.winner else { return false };
        let ScanSource::Run(run) = &mut self.sources[winner] else { return false };
        if self.lead.take() {
            return run.advance_in_block(cache);
        }
        if !self.covers.is_empty() || self.merge.may_be_tied() {
            return false;
        }
        if !run.advance_in_block(cache) {
            return false;
        }
        let sources = &self.sources;
        self.merge.update(|index| key_of(&sources[index]));
        let before = winner;
        let winner = self.merge.winner().expect("a source that stands at an item is not at its end");
        let key = key_of(&sources[winner]).expect("the winner stands at an item");
        let is_item = kind_of(&sources[winner]) == ItemKind::Put;
        let is_past = is_past(key, &self.range, self.direction);
        if is_item && !is_past {
            self.winner = Some(winner);
            let is_ahead = self.lead.note(winner == before);
            match &sources[winner] {
                ScanSource::Run(run) if is_ahead => {
                    self.lead.look(run, &self.merge, &self.range, self.direction);
                }
                ScanSource::Run(_) => {}
                ScanSource::Memory(_) => self.is_found = true,
            }
            return !self.is_found;
        }
        // The scan continues behind this key. If the key is past the region, it may belong to a later one,
        // with other keys before it: the scan then enters the next region.
        (self.winner, self.key, self.has_key) = (None, key.to_vec(), true);
        if is_past {
            self.enter_next_region();
        }
        false
    }

    /// Goes to the next item; `Done(false)` at the end of the range.
    pub(crate) fn advance(&mut self, pinned: Pinned<'_>) -> MachineStep<Reads, Result<bool>> {
        self.passed.begin();
        self.lead.end();
        let is_found = std::mem::take(&mut self.is_found);
        if self.is_touched && !self.is_of(pinned.view) {
            self.position_again(is_found);
        } else if is_found {
            self.copy_value(pinned.view.get());
            return MachineStep::Done(Ok(true));
        }
        let left = self.leave_winner(pinned);
        if !self.is_touched && pinned.gaps.is_any(self.sight.tree) {
            self.skip_at_start(pinned.gaps);
        }
        match left {
            Ok(()) => self.run(pinned),
            Err(error) => MachineStep::Done(Err(error)),
        }
    }

    /// Resumes with a block that was asked for, in the view of the ask: see [`ScanMachine::is_of`].
    pub(crate) fn resume(
        &mut self,
        pinned: Pinned<'_>,
        answer: Answer<BlockRef, Error>,
    ) -> MachineStep<Reads, Result<bool>> {
        match answer.result.and_then(|block| self.supply(answer.ask, block, pinned)) {
            Ok(()) => self.run(pinned),
            Err(error) => {
                // The driver drops the other asks; a later call asks again.
                self.unready.iter_mut().for_each(|waiting| waiting.ask = None);
                MachineStep::Done(Err(error))
            }
        }
    }

    /// Prepares a seek in another view: to the winner if it was not yielded yet, else behind the last item,
    /// or to the start.
    fn position_again(&mut self, is_found: bool) {
        let has_begun = self.winner.is_some() || self.has_key;
        let from = match has_begun {
            true if is_found => Bound::Included(self.key().to_vec()),
            true => Bound::Excluded(self.key().to_vec()),
            false => self.from.clone(),
        };
        self.position_from(from.as_ref().map(Vec::as_slice));
    }

    /// Prepares a seek, which needs a view.
    fn position_from(&mut self, from: Bound<&[u8]>) {
        KeyRegion::leave(&mut self.region, &mut self.range);
        self.from = tighter(from, &self.range, self.direction).map(<[u8]>::to_vec);
        self.sources.clear();
        self.unready.clear();
        (self.has_key, self.winner, self.is_found) = (false, None, false);
        self.is_held_anew = true;
        self.lead = Lead::default();
        (self.is_touched, self.is_merged) = (false, false);
    }

    /// Seeks in every source of the view.
    fn position(&mut self, loaded: Loaded<'_, View>) {
        if !self.is_of(loaded) {
            self.view = Arc::downgrade(&loaded.counted());
        }
        let (view, Sight { tree, bound, .. }) = (loaded.get(), self.sight);
        let from = self.from.as_ref().map(Vec::as_slice);
        let memtables = view.generations.iter().enumerate();
        self.sources.extend(memtables.map(|(index, generation)| {
            let position = generation.seek(tree, from, self.direction, bound);
            ScanSource::Memory(MemorySource::at(index, generation, position))
        }));
        let tree = view.version.tree(tree);
        if let Some(trie) = tree.and_then(Tree::trie) {
            self.region = Some(KeyRegion::enter(trie, &self.from, &mut self.range));
        }
        let piles = || tree.into_iter().flat_map(|tree| tree.piles(KeyRegion::way(&self.region)));
        let from = self.from.as_ref().map(Vec::as_slice);
        let runs = || piles().flatten();
        let all = (runs().map(Run::bytes).sum(), runs().count() as u64);
        for (level, runs) in piles().enumerate() {
            for (index, run) in runs.iter().enumerate() {
                let mut source = RunSource::seek(run, (level, index), from, self.direction);
                source.expect(run.bytes(), all);
                source.cursor.iter().for_each(TableCursor::prefetch_fences);
                self.sources.push(ScanSource::Run(source));
            }
        }
        self.unready = (0..self.sources.len()).map(|source| Waiting { source, ask: None }).collect();
        let prefix =
            tree.map_or(&[][..], |tree| expected_prefix(tree.shared_prefix(), tree.key_bytes(), &self.range));
        self.merge = LoserTree::with_prefix(self.sources.len(), self.direction, prefix);
        let has_ranges = |source: &ScanSource| match source {
            ScanSource::Memory(memory) => memory.of(view).has_ranges(bound),
            ScanSource::Run(run) => run.of(view, self.sight.tree, KeyRegion::way(&self.region)).has_ranges(),
        };
        self.covers = Covers::new((0..self.sources.len()).filter(|index| has_ranges(&self.sources[*index])));
    }

    /// At the end of a region: prepares a seek in the next; `false` if there is none.
    fn enter_next_region(&mut self) -> bool {
        let next = self.region.as_mut().and_then(KeyRegion::take_next);
        next.inspect(|next| self.position_from(Bound::Included(next))).is_some()
    }

    /// Moves the source that yielded the last item.
    fn leave_winner(&mut self, pinned: Pinned<'_>) -> Result<()> {
        let Some(winner) = self.winner.take() else {
            return Ok(());
        };
        self.key.clear();
        self.key.extend_from_slice(key_of(&self.sources[winner]).unwrap_or_default());
        self.has_key = true;
        match &mut self.sources[winner] {
            ScanSource::Memory(memory) => {
                memory.step(pinned.view.get(), self.sight, self.direction);
                self.merge_again();
                Ok(())
            }
            ScanSource::Run(run) => {
                run.cursor.as_mut().expect("the winner stands at an item").advance();
                self.ready(winner, pinned)
            }
        }
    }

    /// Moves the winner past a stretch that a newer source hides.
    fn leave_stretch(&mut self, pinned: Pinned<'_>) -> Result<()> {
        let winner = self.winner.take().expect("the winner is hidden");
        let from = self.skip_to.from(self.direction);
        match &mut self.sources[winner] {
            ScanSource::Memory(memory) => {
                memory.seek(pinned.view.get(), from, self.sight, self.direction);
                self.merge_again();
                Ok(())
            }
            ScanSource::Run(run) => {
                self.is_held_anew = true;
                match from {
                    None => run.cursor = None,
                    Some(from) => {
                        let place = (run.level, run.run);
                        let of = run.of(pinned.view.get(), self.sight.tree, KeyRegion::way(&self.region));
                        *run = RunSource::seek(of, place, from, self.direction);
                    }
                }
                self.ready(winner, pinned)
            }
        }
    }

    /// Moves a source to its next item within cached blocks, or notes that it waits.
    fn ready(&mut self, source: usize, pinned: Pinned<'_>) -> Result<()> {
        match self.poll(source, None, pinned)? {
            SourceNeed::Nothing => self.merge_again(),
            SourceNeed::Block(_) => self.unready.push(Waiting { source, ask: None }),
        }
        Ok(())
    }

    /// Updates the merge after the winner moved.
    fn merge_again(&mut self) {
        if self.is_merged {
            let sources = &self.sources;
            self.merge.update(|index| key_of(&sources[index]));
        }
    }

    fn supply(&mut self, ask: u8, block: BlockRef, pinned: Pinned<'_>) -> Result<()> {
        let index = self.unready.iter().position(|waiting| waiting.ask == Some(ask));
        let index = index.expect("answers come to asks");
        self.unready[index].ask = None;
        match self.poll(self.unready[index].source, Some(block), pinned)? {
            SourceNeed::Block(_) => {}
            SourceNeed::Nothing => {
                self.unready.swap_remove(index);
                self.merge_again();
            }
        }
        Ok(())
    }

    fn run(&mut self, pinned: Pinned<'_>) -> MachineStep<Reads, Result<bool>> {
        let gaps = pinned.gaps;
        loop {
            match self.settle(pinned) {
                Err(error) => return MachineStep::Done(Err(error)),
                Ok(Some(step)) => return step,
                Ok(None) => {}
            }
            let left = match self.take_winner(pinned.view.get()) {
                ItemOutcome::Item => {
                    self.copy_value(pinned.view.get());
                    self.learn_gap(gaps);
                    return MachineStep::Done(Ok(true));
                }
                ItemOutcome::End if self.enter_next_region() => Ok(()),
                ItemOutcome::End => {
                    self.learn_gap(gaps);
                    return MachineStep::Done(Ok(false));
                }
                ItemOutcome::Deleted if self.pass_deleted(gaps) => Ok(()),
                ItemOutcome::Deleted | ItemOutcome::Skip => self.leave_winner(pinned),
                ItemOutcome::Hidden => self.leave_stretch(pinned),
            };
            if let Err(error) = left {
                return MachineStep::Done(Err(error));
            }
        }
    }

    /// Positions every source; `None` once all stand at an item or their end.
    fn settle(&mut self, pinned: Pinned<'_>) -> Result<Option<MachineStep<Reads, Result<bool>>>> {
        if self.unready.is_empty() && self.is_merged {
            return Ok(None);
        }
        let cache = pinned.cache;
        if !self.is_touched {
            self.position(pinned.view);
            self.touch(cache);
        }
        let mut asks = Reads::new();
        let mut index = 0;
        let share_bytes = ahead_bytes_max(cache);
        while let Some(Waiting { source, ask: None }) = self.next_unasked(&mut index) {
            let Some(ask) = self.free_ask() else { break };
            match self.poll(source, None, pinned)? {
                SourceNeed::Nothing => {
                    self.unready.swap_remove(index);
                    self.merge_again();
                }
                SourceNeed::Block(block) => {
                    asks.push(Read { ask, block });
                    self.unready[index].ask = Some(ask);
                    let ScanSource::Run(run) = &mut self.sources[source] else { continue };
                    // If the block is being read, or was cached since the lookup, it was asked for before,
                    // and so were the blocks after it. A read block enters the cache before its read leaves
                    // the flight table.
                    if cache.is_being_read(&block) || cache.holds(&block) {
                        run.renew(&block, share_bytes, &mut self.apart);
                    } else {
                        run.ask_ahead(&block, share_bytes, &mut asks, &mut self.apart);
                    }
                }
            }
        }
        if !asks.is_empty() {
            return Ok(Some(MachineStep::Ask(asks)));
        }
        if !self.unready.is_empty() {
            return Ok(Some(MachineStep::Wait));
        }
        if !self.is_merged {
            let sources = &self.sources;
            self.merge.rebuild(|index| key_of(&sources[index]));
            self.is_merged = true;
        }
        Ok(None)
    }

    /// Takes the blocks that another thread is to read ahead. Their reads get no answer.
    pub(crate) fn take_apart(&mut self) -> Vec<BlockAddress> {
        std::mem::take(&mut self.apart)
    }

    /// After a seek: prefetches the next block of each run, one stage of all runs at a time, so that their
    /// cache misses overlap.
    fn touch(&mut self, cache: &Cache) {
        self.is_touched = true;
        let targets = self.sources.iter_mut().filter_map(|source| match source {
            ScanSource::Memory(_) => None,
            ScanSource::Run(run) => run.cursor.as_mut()?.target(),
        });
        let targets: Vec<BlockAddress> = targets.collect();
        for near in [Near::Nothing, Near::Slot] {
            for block in &targets {
                cache.prefetch(block, None, near, BLOCK_LINES);
            }
        }
    }

    /// The first source from `index` on that waits without an ask.
    fn next_unasked(&self, index: &mut usize) -> Option<Waiting> {
        while self.unready.get(*index)?.ask.is_some() {
            *index += 1;
        }
        self.unready.get(*index).copied()
    }

    /// A number that no ask in flight has.
    fn free_ask(&self) -> Option<u8> {
        (0..SCAN_ASKS_MAX as u8).find(|ask| self.unready.iter().all(|waiting| waiting.ask != Some(*ask)))
    }

    fn take_winner(&mut self, view: &View) -> ItemOutcome {
        let Some(winner) = self.merge.winner() else {
            return ItemOutcome::End;
        };
        let Some(key) = key_of(&self.sources[winner]) else {
            return ItemOutcome::End;
        };
        if is_past(key, &self.range, self.direction) {
            return ItemOutcome::End;
        }
        self.winner = Some(winner);
        if self.has_key && self.key == key {
            return ItemOutcome::Skip;
        }
        let (sources, Sight { tree, bound, .. }) = (&self.sources, self.sight);
        let look = |index: usize, key: &[u8], stretch: &mut Stretch| match &sources[index] {
            ScanSource::Memory(memory) => {
                let found = memory.of(view).stretch(tree, key, bound);
                stretch.set(found.cover, found.from, found.to);
            }
            ScanSource::Run(run) => {
                let found = run.of(view, tree, KeyRegion::way(&self.region)).around(key);
                stretch.set(found.is_covered.then_some(RANGE_SEQUENCE), found.from, found.to);
            }
        };
        let sequence = sequence_of(&sources[winner]);
        match self.covers.hidden(key, winner, sequence, look) {
            None => {}
            Some(Hidden::ByOwn) => return ItemOutcome::Skip,
            Some(Hidden::ByNewer(stretch)) => {
                self.skip_to.set(stretch, &self.range, self.direction);
                return ItemOutcome::Hidden;
            }
        }
        match kind_of(&self.sources[winner]) {
            ItemKind::Put => ItemOutcome::Item,
            ItemKind::Delete | ItemKind::DeleteRange => ItemOutcome::Deleted,
        }
    }

    /// Copies the value of the current item, so that it can be read without a view.
    fn copy_value(&mut self, view: &View) {
        if let Some(ScanSource::Memory(memory)) = self.winner.map(|winner| &self.sources[winner]) {
            self.value.clear();
            self.value.extend_from_slice(memory.value(view));
        }
    }

    /// Moves a source on with the block given, or with cached blocks.
    fn poll(&mut self, source: usize, mut block: Option<BlockRef>, pinned: Pinned<'_>) -> Result<SourceNeed> {
        let Pinned { cache, pin, .. } = pinned;
        let share_bytes = ahead_bytes_max(cache);
        let ScanSource::Run(run) = &mut self.sources[source] else {
            return Ok(SourceNeed::Nothing);
        };
        let tables = run.of(pinned.view.get(), self.sight.tree, KeyRegion::way(&self.region));
        self.is_held_anew |= block.is_some();
        while let Some(cursor) = &mut run.cursor {
            match cursor.poll(block.take())? {
                Moved::Ready => return Ok(SourceNeed::Nothing),
                Moved::End => {
                    self.is_held_anew = true;
                    run.next_table(tables);
                }
                Moved::Need(address) => {
                    let cached = if run.has_asked(&address) {
                        cache.lookup_once(&address, pin)
                    } else {
                        cache.lookup_counted(&address, pin)
                    };
                    match cached {
                        Some(cached) => {
                            self.is_held_anew = true;
                            run.renew(&address, share_bytes, &mut self.apart);
                            run.note_following(cache);
                            block = Some(cached);
                        }
                        None => return Ok(SourceNeed::Block(address)),
                    }
                }
            }
        }
        Ok(SourceNeed::Nothing)
    }
}

enum ItemOutcome {
    Item,
    Skip,
    /// The key of the winner was deleted.
    Deleted,
    /// The winner has to move past a stretch.
    Hidden,
    End,
}
