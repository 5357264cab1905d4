//! Waiting for several runs at once: the parallel search of LSM-trie's and Drizard's authors without their
//! threads, as asks of one step.
//!
//! A get comes here when it needs a block that is not in memory and may be wide (`read::breadth`). Where it
//! stands becomes a lane, and the search goes on behind it, in memory, to the next table that needs a block:
//! another lane. Their reads are in flight together.
//!
//! In a trie a filter page by column tells of all older runs of its node: such a lane has the node, and the
//! next lane begins in the node below.
//!
//! 1. The newest lane decides, once it has something of the key. If it has nothing it goes, the next is the
//!    newest, and one more is made behind the last: nothing is read that many runs ahead of the newest lane.
//! 2. Behind a lane that has something of the key, or whose read failed, there is none: whatever they say,
//!    it is nobody's. Their reads are in flight until they are answered, and answered to nobody; so a failure
//!    of theirs ends nothing.
//! 3. Lanes are never more than may be, and asks in flight no more than that; their numbers differ.

use std::collections::VecDeque;

use crate::base::error::{Error, Result};
use crate::base::step::{Answer, BlockAddress, Read, Reads, Step};
use crate::cache::BlockRef;
use crate::levels::version::{Run, Tree};
use crate::levels::view::View;
use crate::read::breadth::Chance;
use crate::read::trace::Tracer;

use super::probe::{Call, Position, Probed, Seek};
use super::{Get, Lookup, Op, Waits};

/// The runs that a get waits for, newest first.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: VecDeque<Lane>,
    /// The numbers of asks in flight, a bit each.
    asks: u8,
    /// Whether what is behind the last lane may matter.
    is_open: bool,
}

/// A table that may have something of the key; after it, where its filter page tells of the older runs of its
/// node, those.
#[derive(Debug)]
struct Lane {
    at: Position,
    /// The run that is behind it.
    end: usize,
    state: State,
}

impl Lane {
    /// Looks into its runs from the present one on.
    fn look<T: Tracer>(&mut self, tree: &Tree, call: &mut Call<'_, '_, T>) -> State {
        loop {
            let state = State::of(self.at.look(tree, call));
            if !matches!(state, State::Missed) || !self.at.go_to_table(tree, call.op.key, self.end) {
                return state;
            }
        }
    }
}

#[derive(Debug)]
enum State {
    /// It needs the block, which was not asked for yet.
    Needs(BlockAddress),
    Asked {
        ask: u8,
        block: BlockAddress,
    },
    /// It has nothing of the key.
    Missed,
    /// It has the key in memory that only a pin keeps: it is looked for again when its turn comes.
    AtHand,
    Found(Result<Lookup<'static>>),
}

impl State {
    fn of(probed: Probed<'_>) -> State {
        match probed {
            Probed::Not => State::Missed,
            Probed::Touched => unreachable!("who takes turns with others is not wide"),
            Probed::Read(block) => State::Needs(block),
            // An empty value needs no pin: presence is told so, by fences that nothing else may keep.
            Probed::Hit(Lookup::Pinned([])) => State::Found(Ok(Lookup::Pinned(&[]))),
            Probed::Hit(Lookup::Pinned(_)) => State::AtHand,
            Probed::Hit(Lookup::Absent) => State::Found(Ok(Lookup::Absent)),
            Probed::Hit(Lookup::Counted(block, range)) => State::Found(Ok(Lookup::Counted(block, range))),
        }
    }

    /// Whether nothing behind it matters.
    fn decides(&self) -> bool {
        matches!(self, State::AtHand | State::Found(_))
    }
}

impl Position {
    /// How many runs a get that needs a block here may wait for.
    pub(super) fn lanes_max(&self, tree: &Tree, op: &Op<'_>) -> usize {
        let Some(breadth) = op.breadth else { return 1 };
        let table = self.table(tree, op.key);
        breadth.lanes_max(match self.seek {
            Seek::Filter if table.has_columns() => Chance::Node,
            Seek::Filter => Chance::Open,
            _ if table.has_filter() => Chance::Likely,
            _ => Chance::Open,
        })
    }

    /// The run behind those that the block needed here speaks for.
    fn end(&self, tree: &Tree, key: &[u8]) -> usize {
        let is_of_node = matches!(self.seek, Seek::Filter) && self.table(tree, key).has_columns();
        let pile = tree.piles(key).nth(self.level).filter(|_| is_of_node);
        pile.map_or(self.run + 1, <[Run]>::len)
    }

    /// Goes to the next run of the level, before that one, with a table that may have the key.
    fn go_to_table(&mut self, tree: &Tree, key: &[u8], end: usize) -> bool {
        while self.run + 1 < end {
            self.run += 1;
            if let Some(table) = tree.run(self.level, self.run, key).and_then(|run| run.find(key)) {
                (self.table, self.seek) = (table, Seek::Filter);
                return true;
            }
        }
        false
    }

    /// As `probe`, out of the way of those that are in memory.
    fn look<'p, T: Tracer>(&mut self, tree: &Tree, call: &mut Call<'_, 'p, T>) -> Probed<'p> {
        self.look_into(self.table(tree, call.op.key), call)
    }
}

impl Get {
    /// The search needs the block, and may wait for more.
    #[cold]
    pub(super) fn widen<'p, T: Tracer>(
        &mut self,
        block: BlockAddress,
        tree: &Tree,
        call: &mut Call<'_, 'p, T>,
    ) -> Step<Reads, Result<Lookup<'p>>> {
        let first = Lane { at: self.at, end: self.at.end(tree, call.op.key), state: State::Needs(block) };
        self.go_to_run(first.end);
        let lanes = Lanes { lanes: VecDeque::from([first]), asks: 0, is_open: true };
        self.go_on(Box::new(lanes), tree, call)
    }

    /// A read of a lane has ended, or of one that is gone.
    #[cold]
    pub(super) fn resume_lanes<'p, T: Tracer>(
        &mut self,
        mut lanes: Box<Lanes>,
        view: &View,
        call: &mut Call<'_, 'p, T>,
        answer: Answer<BlockRef, Error>,
    ) -> Step<Reads, Result<Lookup<'p>>> {
        let tree = view.version.tree(call.op.tree).expect("the view of a get stays as it is");
        lanes.take(answer, tree, call);
        self.go_on(lanes, tree, call)
    }

    fn go_on<'p, T: Tracer>(
        &mut self,
        mut lanes: Box<Lanes>,
        tree: &Tree,
        call: &mut Call<'_, 'p, T>,
    ) -> Step<Reads, Result<Lookup<'p>>> {
        let lanes_max = loop {
            if lanes.lanes.is_empty() && lanes.is_open {
                self.open_lane(&mut lanes, tree, call);
            }
            let Some(mut first) = lanes.lanes.pop_front() else { return Step::Done(Ok(Lookup::Absent)) };
            match first.state {
                State::Missed => continue,
                State::Found(found) => return Step::Done(found),
                State::AtHand => match first.at.look(tree, call) {
                    Probed::Hit(found) => return Step::Done(Ok(found)),
                    // It was evicted meanwhile.
                    probed => first.state = State::of(probed),
                },
                State::Needs(_) | State::Asked { .. } => {
                    let lanes_max = first.at.lanes_max(tree, call.op);
                    lanes.lanes.push_front(first);
                    break lanes_max;
                }
            }
            lanes.lanes.push_front(first);
        };
        let reads = self.ask(&mut lanes, lanes_max, tree, call);
        self.waits = Waits::Lanes(lanes);
        if reads.is_empty() { Step::Wait } else { Step::Ask(reads) }
    }

    /// What lanes need, and more of them, so that there are so many if they may matter.
    fn ask<T: Tracer>(
        &mut self,
        lanes: &mut Lanes,
        lanes_max: usize,
        tree: &Tree,
        call: &mut Call<'_, '_, T>,
    ) -> Reads {
        let mut reads = Reads::new();
        for index in 0..lanes_max {
            if index == lanes.lanes.len() && lanes.is_open {
                self.open_lane(lanes, tree, call);
            }
            let Some(lane) = lanes.lanes.get_mut(index) else { break };
            if let State::Needs(block) = lane.state {
                let ask = lanes.asks.trailing_ones() as u8;
                lanes.asks |= 1 << ask;
                lane.state = State::Asked { ask, block };
                reads.push(Read { ask, block });
            }
        }
        reads
    }

    /// Searches behind the last lane for the next, if there is one.
    #[cold]
    #[inline(never)]
    fn open_lane<T: Tracer>(&mut self, lanes: &mut Lanes, tree: &Tree, call: &mut Call<'_, '_, T>) {
        let state = self.advance(tree, call).map(State::of);
        lanes.is_open = state.as_ref().is_some_and(|state| !state.decides());
        if let Some(state) = state {
            let end = self.at.end(tree, call.op.key);
            lanes.lanes.push_back(Lane { at: self.at, end, state });
            self.go_to_run(end);
        }
    }
}

impl Lanes {
    /// Takes an answer to the lane that asked, if it is still there.
    fn take<T: Tracer>(&mut self, answer: Answer<BlockRef, Error>, tree: &Tree, call: &mut Call<'_, '_, T>) {
        self.asks &= !(1 << answer.ask);
        let asked = self.lanes.iter_mut().enumerate().find_map(|(index, lane)| match lane.state {
            State::Asked { ask, block } if ask == answer.ask => Some((index, block, lane)),
            _ => None,
        });
        let Some((index, block, lane)) = asked else { return };
        lane.state = match answer.result {
            Ok(read) => {
                call.answer = Some((block, read));
                let state = lane.look(tree, call);
                // It was for this table, even if a page of it needed no block any more.
                call.answer = None;
                state
            }
            Err(error) => State::Found(Err(error)),
        };
        if lane.state.decides() {
            self.is_open = false;
            self.lanes.truncate(index + 1);
        }
    }
}
