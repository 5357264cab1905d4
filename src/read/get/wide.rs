//! Waiting for several runs at once: the parallel search of LSM-trie and Drizard without their threads, as
//! several asks in one step.
//!
//! A get comes here when it needs a block that is not in memory and `read::breadth` allows it more than one
//! lane. Its position becomes a lane. The search goes on behind it, in memory, to the next table that needs a
//! block: another lane. The reads of all lanes are in flight together.
//!
//! In a trie, a column page has the filters of the older runs of its node too. A lane that waits for such a
//! page stands for the whole node, and the next lane begins in the node below.
//!
//! A lane has an answer if its runs have a version of the key, or a range tombstone that covers it.
//!
//! Invariants:
//! 1. The newest lane decides, once it has an answer. If it has none, it is removed, the next lane is the
//!    newest, and one more is made behind the last. So reads are never further ahead of the newest lane than
//!    the limit of lanes.
//! 2. Behind a lane that has an answer, or whose read failed, there are no lanes: their answers would not
//!    matter. Their reads stay in flight, and the results are dropped; so a failure of such a read ends
//!    nothing.
//! 3. The limit may fall between steps. Only the first lanes, up to the present limit, ask; lanes opened
//!    under a higher limit stay. There are never more than 8 lanes or 8 asks in flight; the numbers of asks
//!    differ.

use std::collections::VecDeque;

use crate::base::error::{Error, Result};
use crate::base::step::{Answer, BlockAddress, MachineStep, Read, Reads};
use crate::cache::BlockRef;
use crate::levels::version::{Run, Tree};
use crate::levels::view::View;
use crate::read::breadth::Chance;
use crate::read::trace::Tracer;

use super::probe::{ProbeArgs, Probed, SearchPosition, Seek};
use super::{Get, Lookup, Op, Waits};

/// The runs that a get waits for, newest first.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: VecDeque<Lane>,
    /// Mask of the ask numbers in flight.
    asks: u8,
    /// Whether runs behind the last lane may matter.
    is_open: bool,
}

/// A table that may have an answer. If its filter page covers the older runs of its node, the lane has those
/// too.
#[derive(Debug)]
struct Lane {
    at: SearchPosition,
    /// The run behind the lane's last.
    end: usize,
    state: LaneState,
}

impl Lane {
    /// Searches its runs from the present one on.
    fn look<T: Tracer>(&mut self, tree: &Tree, args: &mut ProbeArgs<'_, '_, T>) -> LaneState {
        loop {
            let state = LaneState::of(self.at.look(tree, args));
            if !matches!(state, LaneState::Missed) || !self.at.go_to_table(tree, args.op.key, self.end) {
                return state;
            }
        }
    }
}

#[derive(Debug)]
enum LaneState {
    /// It needs the block, which was not asked for yet.
    Needs(BlockAddress),
    Asked {
        ask: u8,
        block: BlockAddress,
    },
    /// It has no answer.
    Missed,
    /// It has the key in memory that only a pin keeps: the search is repeated when the lane is the newest.
    AtHand,
    Found(Result<Lookup<'static>>),
}

impl LaneState {
    fn of(probed: Probed<'_>) -> LaneState {
        match probed {
            Probed::Not => LaneState::Missed,
            Probed::Touched => unreachable!("gets that take turns are not wide"),
            Probed::Read(block) => LaneState::Needs(block),
            // An empty value needs no pin. Presence is reported by one, from fences that may not be kept.
            Probed::Hit(Lookup::Pinned([])) => LaneState::Found(Ok(Lookup::Pinned(&[]))),
            Probed::Hit(Lookup::Pinned(_)) => LaneState::AtHand,
            Probed::Hit(Lookup::Absent) => LaneState::Found(Ok(Lookup::Absent)),
            Probed::Hit(Lookup::Counted(block, range)) => LaneState::Found(Ok(Lookup::Counted(block, range))),
        }
    }

    /// Whether lanes behind this one cannot matter.
    fn decides(&self) -> bool {
        matches!(self, LaneState::AtHand | LaneState::Found(_))
    }
}

impl SearchPosition {
    /// Most runs that a get which needs a block here may wait for.
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

    /// The run behind the runs that the needed block covers.
    fn end(&self, tree: &Tree, key: &[u8]) -> usize {
        let is_of_node = matches!(self.seek, Seek::Filter) && self.table(tree, key).has_columns();
        let pile = tree.piles(key).nth(self.level).filter(|_| is_of_node);
        pile.map_or(self.run + 1, <[Run]>::len)
    }

    /// Goes to the next run of the level, before `end`, with a table that may have the key.
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

    /// As `probe`, out of line, away from gets answered from memory.
    fn look<'p, T: Tracer>(&mut self, tree: &Tree, args: &mut ProbeArgs<'_, 'p, T>) -> Probed<'p> {
        self.look_into(self.table(tree, args.op.key), args)
    }
}

impl Get {
    /// The search needs the block, and may wait for more.
    #[cold]
    pub(super) fn widen<'p, T: Tracer>(
        &mut self,
        block: BlockAddress,
        tree: &Tree,
        args: &mut ProbeArgs<'_, 'p, T>,
    ) -> MachineStep<Reads, Result<Lookup<'p>>> {
        let first = Lane { at: self.at, end: self.at.end(tree, args.op.key), state: LaneState::Needs(block) };
        self.go_to_run(first.end);
        let lanes = Lanes { lanes: VecDeque::from([first]), asks: 0, is_open: true };
        self.go_on(Box::new(lanes), tree, args)
    }

    /// A read has ended, of a lane or of one that was removed.
    #[cold]
    pub(super) fn resume_lanes<'p, T: Tracer>(
        &mut self,
        mut lanes: Box<Lanes>,
        view: &View,
        args: &mut ProbeArgs<'_, 'p, T>,
        answer: Answer<BlockRef, Error>,
    ) -> MachineStep<Reads, Result<Lookup<'p>>> {
        let tree = view.version.tree(args.op.tree).expect("the view of a get stays as it is");
        lanes.take(answer, tree, args);
        self.go_on(lanes, tree, args)
    }

    fn go_on<'p, T: Tracer>(
        &mut self,
        mut lanes: Box<Lanes>,
        tree: &Tree,
        args: &mut ProbeArgs<'_, 'p, T>,
    ) -> MachineStep<Reads, Result<Lookup<'p>>> {
        let lanes_max = loop {
            if lanes.lanes.is_empty() && lanes.is_open {
                self.open_lane(&mut lanes, tree, args);
            }
            let Some(mut first) = lanes.lanes.pop_front() else {
                return MachineStep::Done(Ok(Lookup::Absent));
            };
            match first.state {
                LaneState::Missed => continue,
                LaneState::Found(found) => return MachineStep::Done(found),
                LaneState::AtHand => match first.at.look(tree, args) {
                    Probed::Hit(found) => return MachineStep::Done(Ok(found)),
                    // It was evicted meanwhile.
                    probed => first.state = LaneState::of(probed),
                },
                LaneState::Needs(_) | LaneState::Asked { .. } => {
                    let lanes_max = first.at.lanes_max(tree, args.op);
                    lanes.lanes.push_front(first);
                    break lanes_max;
                }
            }
            lanes.lanes.push_front(first);
        };
        let reads = self.ask(&mut lanes, lanes_max, tree, args);
        self.waits = Waits::Lanes(lanes);
        if reads.is_empty() { MachineStep::Wait } else { MachineStep::Ask(reads) }
    }

    /// Asks for the lanes' blocks, and opens lanes up to `lanes_max` while they may matter.
    fn ask<T: Tracer>(
        &mut self,
        lanes: &mut Lanes,
        lanes_max: usize,
        tree: &Tree,
        args: &mut ProbeArgs<'_, '_, T>,
    ) -> Reads {
        let mut reads = Reads::new();
        for index in 0..lanes_max {
            if index == lanes.lanes.len() && lanes.is_open {
                self.open_lane(lanes, tree, args);
            }
            let Some(lane) = lanes.lanes.get_mut(index) else { break };
            if let LaneState::Needs(block) = lane.state {
                let ask = lanes.asks.trailing_ones() as u8;
                lanes.asks |= 1 << ask;
                lane.state = LaneState::Asked { ask, block };
                reads.push(Read { ask, block });
            }
        }
        reads
    }

    /// Searches behind the last lane for the next, if there is one.
    #[cold]
    #[inline(never)]
    fn open_lane<T: Tracer>(&mut self, lanes: &mut Lanes, tree: &Tree, args: &mut ProbeArgs<'_, '_, T>) {
        let state = self.advance(tree, args).map(LaneState::of);
        lanes.is_open = state.as_ref().is_some_and(|state| !state.decides());
        if let Some(state) = state {
            let end = self.at.end(tree, args.op.key);
            lanes.lanes.push_back(Lane { at: self.at, end, state });
            self.go_to_run(end);
        }
    }
}

impl Lanes {
    /// Gives an answer to the lane that asked, if that lane still exists.
    fn take<T: Tracer>(
        &mut self,
        answer: Answer<BlockRef, Error>,
        tree: &Tree,
        args: &mut ProbeArgs<'_, '_, T>,
    ) {
        self.asks &= !(1 << answer.ask);
        let asked = self.lanes.iter_mut().enumerate().find_map(|(index, lane)| match lane.state {
            LaneState::Asked { ask, block } if ask == answer.ask => Some((index, block, lane)),
            _ => None,
        });
        let Some((index, block, lane)) = asked else { return };
        lane.state = match answer.result {
            Ok(read) => {
                args.answer = Some((block, read));
                let state = lane.look(tree, args);
                // The block was for this table, even if the table did not need it because a page is in memory
                // now.
                args.answer = None;
                state
            }
            Err(error) => LaneState::Found(Err(error)),
        };
        if lane.state.decides() {
            self.is_open = false;
            self.lanes.truncate(index + 1);
        }
    }
}
