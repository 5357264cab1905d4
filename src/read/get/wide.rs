//! Waiting for several runs at once: the parallel search of LSM-trie's and Drizard's authors without their
//! threads, as asks of one step.
//!
//! A get comes here when it needs a block that is not in memory and may be wide (`read::breadth`). Where it
//! stands becomes a lane, and the search goes on behind it, in memory, to the next table that needs a block:
//! another lane. Their reads are in flight together.
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
use crate::levels::version::Tree;
use crate::levels::view::View;
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

/// A table that may have something of the key.
#[derive(Debug)]
struct Lane {
    at: Position,
    state: State,
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
        let is_likely = || !matches!(self.seek, Seek::Filter) && self.table(tree, op.key).has_filter();
        op.breadth.map_or(1, |breadth| breadth.lanes_max(is_likely()))
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
        let first = Lane { at: self.at, state: State::Needs(block) };
        self.next_run();
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
            lanes.lanes.push_back(Lane { at: self.at, state });
            self.next_run();
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
                let state = State::of(lane.at.look(tree, call));
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
