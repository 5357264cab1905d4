//! A scan: every source of a tree merged in key order, newest version of a key first, in one direction.
//!
//! Sources are the memtable generations, newest first, then the runs, newest first. The machine holds its
//! view from the start; between calls it keeps positions and counted blocks. Asks are numbered by source, so
//! the first blocks of all runs go out together.
//!
//! A source that goes on past its first block reads ahead: each time it finds a block missing, it asks for
//! four times as much of what follows, up to a MiB and a share of the cache, which holds what
//! is read ahead like any other block. So a scan of a few blocks reads few, and one of many few times. What
//! is much is read apart, by another thread, and asked for before it is needed: [`Scan::take_apart`].
//!
//! Invariants:
//! 1. A key is yielded only once every source stands at or past it.
//! 2. Of equal keys the newest source's is taken, the others are skipped; a tombstone yields nothing.
//! 3. What a range tombstone of a newer source hides is left by one seek of each source that has some of it,
//!    whatever is there. What one hides in its own memtable is left item by item, in memory.
//! 4. Items of the winner's block that come before every other source's are yielded without a match
//!    ([`lead`]); meanwhile `merge` has the winner where it was when it was found to lead, before all others
//!    as well.

mod lead;
mod passed;
mod range;
mod source;

use std::ops::Bound;

use crate::base::epoch::Pin;
use crate::base::error::{Error, Result};
use crate::base::id::ItemKind;
use crate::base::step::{Answer, BlockAddress, Direction, Read, Reads, SCAN_ASKS_MAX, Step};
use crate::base::sync::Arc;
use crate::cache::{BlockRef, Cache, Near};
use crate::levels::gaps::{Gaps, Sight};
use crate::levels::version::{Run, Tree};
use crate::levels::view::View;
use crate::merge::{Covers, Hidden, ITEM_SEQUENCE, LoserTree, RANGE_SEQUENCE, Stretch};
use crate::table::{Moved, TableCursor};

use lead::Lead;
use passed::Passed;
pub(crate) use range::Range;
use range::{SkipTo, expected_prefix, is_past, tighter};
use source::{BLOCK_LINES, RunSource, Source, key_of, kind_of};

/// Of the cache, the share that all sources of a scan may fill ahead.
const AHEAD_CACHE_SHARE: usize = 16;

/// What a source needs before it stands at an item or at its end.
enum Need {
    Nothing,
    Block(BlockAddress),
}

fn ahead_bytes_max(cache: &Cache) -> usize {
    cache.capacity_bytes() / AHEAD_CACHE_SHARE
}

/// The machine.
pub(crate) struct Scan {
    view: Arc<View>,
    sight: Sight,
    range: Range,
    direction: Direction,
    /// Where it was last told to begin.
    from: Bound<Vec<u8>>,
    sources: Vec<Source>,
    merge: LoserTree,
    covers: Covers,
    /// Where the winner goes on, if a newer source hides all that is before.
    skip_to: SkipTo,
    /// Sources not positioned yet, and those of them whose ask is in flight.
    unready: Vec<Waiting>,
    /// What a seek leads to has been asked of the processor.
    is_touched: bool,
    /// Everything is positioned and `merge` is built.
    is_merged: bool,
    /// The last key that was left while others may stand on it: older versions of it are skipped.
    key: Vec<u8>,
    has_key: bool,
    winner: Option<usize>,
    lead: Lead,
    /// Deleted keys that it has passed since it was last asked for an item.
    passed: Passed,
    /// See [`Scan::take_apart`].
    apart: Vec<BlockAddress>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Waiting {
    source: usize,
    /// The number of its ask in flight.
    ask: Option<u8>,
}

impl Scan {
    /// A scan that stands before the first item of `range` in `direction`; nothing is looked at before
    /// `advance`.
    pub(crate) fn new(view: Arc<View>, sight: Sight, range: Range, direction: Direction) -> Scan {
        let mut scan = Scan {
            view,
            sight,
            range,
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
            lead: Lead::default(),
            passed: Passed::default(),
            apart: Vec::new(),
        };
        scan.position();
        scan
    }

    /// What it reads from.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Goes on after the item it stands at, or from where it was to begin, in a view that holds the same
    /// items.
    pub(crate) fn replace_view(&mut self, view: Arc<View>) {
        let has_begun = self.winner.is_some() || self.has_key;
        let from = if has_begun { Bound::Excluded(self.key().to_vec()) } else { self.from.clone() };
        self.view = view;
        self.position_from(from.as_ref().map(Vec::as_slice));
    }

    /// Stands anew: before the first item at or after `key` (before it, going backward) that is in the range.
    pub(crate) fn seek(&mut self, from: Bound<&[u8]>, direction: Direction) {
        self.direction = direction;
        self.position_from(from);
    }

    /// The key of the item the scan stands at; else of the last one it left.
    pub(crate) fn key(&self) -> &[u8] {
        self.winner.and_then(|winner| key_of(&self.sources[winner], &self.view)).unwrap_or(&self.key)
    }

    /// Its value.
    pub(crate) fn value(&self) -> &[u8] {
        let winner = self.winner.expect("the scan stands at an item");
        match &self.sources[winner] {
            Source::Memory { generation, position } => {
                let position = position.expect("the winner stands at an item");
                self.view.generations[*generation].item(position).value
            }
            Source::Run(run) => run.cursor.as_ref().expect("the winner stands at an item").value(),
        }
    }

    /// Whether the next item was found to come next.
    #[cfg(test)]
    pub(super) fn is_ahead(&self) -> bool {
        self.lead.is_ahead()
    }

    /// Goes to the next item if the blocks at hand have it, which needs no pin; `false` if it has to look
    /// further: `advance` then goes on.
    #[inline]
    pub(crate) fn advance_at_hand(&mut self, cache: &Cache) -> bool {
        let Some(winner) = self.winner else { return false };
        let Source::Run(run) = &mut self.sources[winner] else { return false };
        if self.lead.take() {
            return run.advance_in_block(cache);
        }
        if !self.covers.is_empty() || self.merge.may_be_tied() {
            return false;
        }
        if !run.advance_in_block(cache) {
            return false;
        }
        let (sources, view) = (&self.sources, &self.view);
        self.merge.update(|index| key_of(&sources[index], view));
        let before = winner;
        let winner = self.merge.winner().expect("a source that stands at an item is not at its end");
        let key = key_of(&sources[winner], view).expect("the winner stands at an item");
        let is_item = kind_of(&sources[winner], view) == ItemKind::Put;
        if is_item && !is_past(key, &self.range, self.direction) {
            self.winner = Some(winner);
            if self.lead.note(winner == before)
                && let Source::Run(run) = &sources[winner]
            {
                self.lead.look(run, &self.merge, &self.range, self.direction);
            }
            return true;
        }
        // Wherever it goes on, it is behind this one.
        self.winner = None;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.has_key = true;
        false
    }

    /// Goes to the next item; `Done(false)` at the end of the range.
    pub(crate) fn advance(&mut self, cache: &Cache, pin: &Pin, gaps: &Gaps) -> Step<Reads, Result<bool>> {
        self.passed.begin();
        self.lead.end();
        let left = self.leave_winner(cache, pin);
        if !self.is_touched && gaps.is_any(self.sight.tree) {
            self.skip_at_start(gaps);
        }
        match left {
            Ok(()) => self.run(cache, pin, gaps),
            Err(error) => Step::Done(Err(error)),
        }
    }

    /// Goes on with a block that was asked for.
    pub(crate) fn resume(
        &mut self,
        cache: &Cache,
        pin: &Pin,
        gaps: &Gaps,
        answer: Answer<BlockRef, Error>,
    ) -> Step<Reads, Result<bool>> {
        match answer.result.and_then(|block| self.supply(answer.ask, block, cache, pin)) {
            Ok(()) => self.run(cache, pin, gaps),
            Err(error) => {
                // The driver lets go of the rest; a later call asks again.
                self.unready.iter_mut().for_each(|waiting| waiting.ask = None);
                Step::Done(Err(error))
            }
        }
    }

    fn position(&mut self) {
        let start = match self.direction {
            Direction::Forward => self.range.0.clone(),
            Direction::Backward => self.range.1.clone(),
        };
        self.position_from(start.as_ref().map(Vec::as_slice));
    }

    fn position_from(&mut self, from: Bound<&[u8]>) {
        let from = tighter(from, &self.range, self.direction);
        self.sources.clear();
        self.has_key = false;
        self.winner = None;
        self.lead = Lead::default();
        self.is_merged = false;
        for (index, generation) in self.view.generations.iter().enumerate() {
            let position = generation.seek(
                self.sight.tree,
                from.as_ref().map(Vec::as_slice),
                self.direction,
                self.sight.bound,
            );
            self.sources.push(Source::Memory { generation: index, position });
        }
        let version = Arc::clone(&self.view.version);
        let tree = version.tree(self.sight.tree);
        let levels = tree.map_or(&[][..], Tree::levels);
        let runs = levels.iter().flat_map(|runs| runs.iter());
        let all = (runs.clone().map(Run::bytes).sum(), runs.count() as u64);
        for (level, runs) in levels.iter().enumerate() {
            for (index, run) in runs.iter().enumerate() {
                let from = from.as_ref().map(Vec::as_slice);
                let mut source = RunSource::seek(run, (level, index), from, self.direction);
                source.expect(run.bytes(), all);
                source.cursor.iter().for_each(TableCursor::prefetch_fences);
                self.sources.push(Source::Run(source));
            }
        }
        self.is_touched = false;
        self.unready = (0..self.sources.len()).map(|source| Waiting { source, ask: None }).collect();
        let prefix =
            tree.map_or(&[][..], |tree| expected_prefix(tree.shared_prefix(), tree.key_bytes(), &self.range));
        self.merge = LoserTree::with_prefix(self.sources.len(), self.direction, prefix);
        self.from = from;
        let has_ranges = |source: &Source| match source {
            Source::Memory { generation, .. } => {
                self.view.generations[*generation].has_ranges(self.sight.bound)
            }
            Source::Run(run) => run.of(&self.view, self.sight.tree).has_ranges(),
        };
        self.covers = Covers::new((0..self.sources.len()).filter(|index| has_ranges(&self.sources[*index])));
    }

    /// Moves the source that yielded the last item.
    fn leave_winner(&mut self, cache: &Cache, pin: &Pin) -> Result<()> {
        let Some(winner) = self.winner.take() else {
            return Ok(());
        };
        self.key.clear();
        self.key.extend_from_slice(key_of(&self.sources[winner], &self.view).unwrap_or_default());
        self.has_key = true;
        match &mut self.sources[winner] {
            Source::Memory { generation, position } => {
                let at = position.expect("the winner stands at an item");
                let generation = &self.view.generations[*generation];
                *position = generation.step(self.sight.tree, at, self.direction, self.sight.bound);
                self.merge_again();
                Ok(())
            }
            Source::Run(run) => {
                run.cursor.as_mut().expect("the winner stands at an item").advance();
                self.ready(winner, cache, pin)
            }
        }
    }

    /// Moves the winner past what a newer source hides.
    fn leave_stretch(&mut self, cache: &Cache, pin: &Pin) -> Result<()> {
        let winner = self.winner.take().expect("the winner is hidden");
        let from = self.skip_to.from(self.direction);
        match &mut self.sources[winner] {
            Source::Memory { generation, position } => {
                let generation = &self.view.generations[*generation];
                *position = from.and_then(|from| {
                    generation.seek(self.sight.tree, from, self.direction, self.sight.bound)
                });
                self.merge_again();
                Ok(())
            }
            Source::Run(run) => {
                match from {
                    None => run.cursor = None,
                    Some(from) => {
                        let place = (run.level, run.run);
                        *run =
                            RunSource::seek(run.of(&self.view, self.sight.tree), place, from, self.direction);
                    }
                }
                self.ready(winner, cache, pin)
            }
        }
    }

    /// Brings a source to its next item from cached blocks, or notes that it waits.
    fn ready(&mut self, source: usize, cache: &Cache, pin: &Pin) -> Result<()> {
        match self.poll(source, None, cache, pin)? {
            Need::Nothing => self.merge_again(),
            Need::Block(_) => self.unready.push(Waiting { source, ask: None }),
        }
        Ok(())
    }

    /// After the winner moved.
    fn merge_again(&mut self) {
        if self.is_merged {
            let (sources, view) = (&self.sources, &self.view);
            self.merge.update(|index| key_of(&sources[index], view));
        }
    }

    fn supply(&mut self, ask: u8, block: BlockRef, cache: &Cache, pin: &Pin) -> Result<()> {
        let index = self.unready.iter().position(|waiting| waiting.ask == Some(ask));
        let index = index.expect("answers come to asks");
        self.unready[index].ask = None;
        match self.poll(self.unready[index].source, Some(block), cache, pin)? {
            Need::Block(_) => {}
            Need::Nothing => {
                self.unready.swap_remove(index);
                self.merge_again();
            }
        }
        Ok(())
    }

    fn run(&mut self, cache: &Cache, pin: &Pin, gaps: &Gaps) -> Step<Reads, Result<bool>> {
        loop {
            match self.settle(cache, pin) {
                Err(error) => return Step::Done(Err(error)),
                Ok(Some(step)) => return step,
                Ok(None) => {}
            }
            let left = match self.take_winner() {
                Taken::Item => {
                    self.learn_gap(gaps);
                    return Step::Done(Ok(true));
                }
                Taken::End => {
                    self.learn_gap(gaps);
                    return Step::Done(Ok(false));
                }
                Taken::Deleted if self.pass_deleted(gaps) => Ok(()),
                Taken::Deleted | Taken::Skip => self.leave_winner(cache, pin),
                Taken::Hidden => self.leave_stretch(cache, pin),
            };
            if let Err(error) = left {
                return Step::Done(Err(error));
            }
        }
    }

    /// Positions every source; `None` once all stand at an item or their end.
    fn settle(&mut self, cache: &Cache, pin: &Pin) -> Result<Option<Step<Reads, Result<bool>>>> {
        if self.unready.is_empty() && self.is_merged {
            return Ok(None);
        }
        if !self.is_touched {
            self.touch(cache);
        }
        let mut asks = Reads::new();
        let mut index = 0;
        let share_bytes = ahead_bytes_max(cache);
        while let Some(Waiting { source, ask: None }) = self.next_unasked(&mut index) {
            let Some(ask) = self.free_ask() else { break };
            match self.poll(source, None, cache, pin)? {
                Need::Nothing => {
                    self.unready.swap_remove(index);
                    self.merge_again();
                }
                Need::Block(block) => {
                    asks.push(Read { ask, block });
                    self.unready[index].ask = Some(ask);
                    let Source::Run(run) = &mut self.sources[source] else { continue };
                    // What is on its way, or came since it was looked for, was asked for, and what comes
                    // after it. It is in the cache before it is on its way no more.
                    if cache.is_being_read(&block) || cache.holds(&block) {
                        run.renew(&block, share_bytes, &mut self.apart);
                    } else {
                        run.ask_ahead(&block, share_bytes, &mut asks, &mut self.apart);
                    }
                }
            }
        }
        if !asks.is_empty() {
            return Ok(Some(Step::Ask(asks)));
        }
        if !self.unready.is_empty() {
            return Ok(Some(Step::Wait));
        }
        if !self.is_merged {
            let (sources, view) = (&self.sources, &self.view);
            self.merge.rebuild(|index| key_of(&sources[index], view));
            self.is_merged = true;
        }
        Ok(None)
    }

    /// What was found to be read ahead by another thread since it was last asked: it is answered to nobody.
    pub(crate) fn take_apart(&mut self) -> Vec<BlockAddress> {
        std::mem::take(&mut self.apart)
    }

    /// After a seek: hints of what comes next in each run, one step of all of them at a time, so that their
    /// misses of memory overlap.
    fn touch(&mut self, cache: &Cache) {
        self.is_touched = true;
        let targets = self.sources.iter_mut().filter_map(|source| match source {
            Source::Memory { .. } => None,
            Source::Run(run) => run.cursor.as_mut()?.target(),
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

    fn take_winner(&mut self) -> Taken {
        let Some(winner) = self.merge.winner() else {
            return Taken::End;
        };
        let Some(key) = key_of(&self.sources[winner], &self.view) else {
            return Taken::End;
        };
        if is_past(key, &self.range, self.direction) {
            return Taken::End;
        }
        self.winner = Some(winner);
        if self.has_key && self.key == key {
            return Taken::Skip;
        }
        let (sources, view, tree, bound) = (&self.sources, &*self.view, self.sight.tree, self.sight.bound);
        let sequence = match &sources[winner] {
            Source::Memory { generation, position } => {
                let position = position.expect("the winner stands at an item");
                view.generations[*generation].item(position).sequence
            }
            Source::Run(_) => ITEM_SEQUENCE,
        };
        let look = |index: usize, key: &[u8], stretch: &mut Stretch| match &sources[index] {
            Source::Memory { generation, .. } => {
                let found = view.generations[*generation].stretch(tree, key, bound);
                stretch.set(found.cover, found.from, found.to);
            }
            Source::Run(run) => {
                let found = run.of(view, tree).around(key);
                stretch.set(found.is_covered.then_some(RANGE_SEQUENCE), found.from, found.to);
            }
        };
        match self.covers.hidden(key, winner, sequence, look) {
            None => {}
            Some(Hidden::ByOwn) => return Taken::Skip,
            Some(Hidden::ByNewer(stretch)) => {
                self.skip_to.set(stretch, &self.range, self.direction);
                return Taken::Hidden;
            }
        }
        match kind_of(&self.sources[winner], &self.view) {
            ItemKind::Put => Taken::Item,
            ItemKind::Delete | ItemKind::DeleteRange => Taken::Deleted,
        }
    }

    /// Moves a source on with the block given, or with what the cache has.
    fn poll(&mut self, source: usize, mut block: Option<BlockRef>, cache: &Cache, pin: &Pin) -> Result<Need> {
        let share_bytes = ahead_bytes_max(cache);
        let Source::Run(run) = &mut self.sources[source] else {
            return Ok(Need::Nothing);
        };
        let tables = run.of(&self.view, self.sight.tree);
        while let Some(cursor) = &mut run.cursor {
            match cursor.poll(block.take())? {
                Moved::Ready => return Ok(Need::Nothing),
                Moved::End => run.next_table(tables),
                Moved::Need(address) => {
                    let cached = if run.has_asked(&address) {
                        cache.lookup_once(&address, pin)
                    } else {
                        cache.lookup_counted(&address, pin)
                    };
                    match cached {
                        Some(cached) => {
                            run.renew(&address, share_bytes, &mut self.apart);
                            run.note_following(cache);
                            block = Some(cached);
                        }
                        None => return Ok(Need::Block(address)),
                    }
                }
            }
        }
        Ok(Need::Nothing)
    }
}

enum Taken {
    Item,
    Skip,
    /// The key of the winner was deleted.
    Deleted,
    /// The winner is to go past a stretch.
    Hidden,
    End,
}
