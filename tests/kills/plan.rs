//! The operations of a thread of the child. The seed alone decides them, so that the parent can compute the
//! result of any number of operations.
//!
//! Every key belongs to one thread. In `left` a thread's keys are adjacent, so that it may delete ranges; in
//! `right` and `ingested` those of all threads are interleaved. Each thread also makes and drops keyspaces of
//! its own.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::rng::Rng;

use super::witness::Own;

/// The keys of a thread in a keyspace.
pub(crate) const NUMBERS: usize = 250;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Space {
    Left,
    Right,
    Ingested,
    Own(u32),
}

pub(crate) type Item = (Space, u16);

/// The contents of a thread's keys: the version of each present key.
pub(crate) type Held = BTreeMap<Item, u64>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Put(Item),
    Delete(Item),
    DeleteRange(Space, Range<u16>),
    Clear(Space),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// One change, or a batch.
    Write {
        changes: Vec<Change>,
        is_synced: bool,
    },
    /// In ascending order.
    Ingest(Vec<u16>),
    Sync,
    Make(u32),
    Drop(u32),
}

impl Op {
    /// Whether its acknowledgement means that it and all acknowledged operations before it survive a power
    /// cut.
    pub(crate) fn is_durable(&self) -> bool {
        matches!(self, Op::Sync | Op::Ingest(_) | Op::Write { is_synced: true, .. })
    }
}

/// The operations of one thread in one life of the child.
pub(crate) struct Plan {
    rng: Rng,
    own: Own,
}

impl Plan {
    pub(crate) fn new(seed: u64, cycle: u64, thread: usize, own: Own) -> Plan {
        let mut rng = Rng::new(seed ^ cycle << 8 ^ (thread as u64) << 40);
        // Adjacent seeds must not begin alike.
        rng.u64();
        Plan { rng, own }
    }

    pub(crate) fn own(&self) -> Own {
        self.own
    }

    fn space(&mut self) -> Space {
        match self.rng.below(10) {
            0..4 => Space::Left,
            4..7 => Space::Right,
            7 => Space::Ingested,
            _ => self.own.present.map_or(Space::Left, Space::Own),
        }
    }

    fn item(&mut self) -> Item {
        let space = self.space();
        // Some keys are written much more often than others.
        let number = if self.rng.one_in(3) { self.rng.below(10) } else { self.rng.below(NUMBERS) };
        (space, number as u16)
    }

    fn range(&mut self) -> Change {
        let space = match self.own.present {
            Some(own) if self.rng.one_in(2) => Space::Own(own),
            _ => Space::Left,
        };
        let from = self.rng.below(NUMBERS);
        let to = from + 1 + self.rng.below(NUMBERS - from);
        Change::DeleteRange(space, from as u16..to as u16)
    }

    fn change(&mut self) -> Change {
        match self.rng.below(20) {
            0..13 => Change::Put(self.item()),
            13..19 => Change::Delete(self.item()),
            _ => self.range(),
        }
    }

    fn write(&mut self, count: usize, is_synced: bool) -> Op {
        Op::Write { changes: (0..count).map(|_| self.change()).collect(), is_synced }
    }
}

impl Iterator for Plan {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        Some(match self.rng.below(1000) {
            0..750 => self.write(1, false),
            750..900 => {
                let count = 2 + self.rng.below(6);
                let is_synced = self.rng.one_in(16);
                self.write(count, is_synced)
            }
            900..940 => Op::Write { changes: vec![self.range()], is_synced: false },
            940..945 => match self.own.present {
                Some(own) => Op::Write { changes: vec![Change::Clear(Space::Own(own))], is_synced: false },
                None => Op::Sync,
            },
            945..965 => self.write(1, true),
            965..985 => Op::Sync,
            985..990 => {
                let share = 1 + self.rng.below(20);
                let numbers = 0..NUMBERS as u16;
                let chosen: Vec<u16> = numbers.filter(|_| self.rng.one_in(share)).collect();
                if chosen.is_empty() { Op::Sync } else { Op::Ingest(chosen) }
            }
            _ => match self.own.present.take() {
                Some(own) => Op::Drop(own),
                None => {
                    let own = self.own.next;
                    self.own = Own { present: Some(own), next: own + 1 };
                    Op::Make(own)
                }
            },
        })
    }
}

/// The version that an operation writes; no other operation writes it.
pub(crate) fn version(cycle: u64, thread: usize, op: usize) -> u64 {
    cycle << 40 | (thread as u64) << 32 | op as u64
}

/// Applies an operation to `held`, with `version` for its puts.
pub(crate) fn apply(op: &Op, version: u64, held: &mut impl Keys) {
    match op {
        Op::Sync | Op::Make(_) | Op::Drop(_) => {}
        Op::Ingest(numbers) => {
            numbers.iter().for_each(|number| held.set((Space::Ingested, *number), Some(version)));
        }
        Op::Write { changes, .. } => {
            for change in changes {
                match change {
                    Change::Put(item) => held.set(*item, Some(version)),
                    Change::Delete(item) => held.set(*item, None),
                    Change::DeleteRange(space, numbers) => held.clear(*space, numbers.clone()),
                    Change::Clear(space) => held.clear(*space, 0..NUMBERS as u16),
                }
            }
        }
    }
}

/// Keys that operations change.
pub(crate) trait Keys {
    fn set(&mut self, item: Item, version: Option<u64>);

    fn clear(&mut self, space: Space, numbers: Range<u16>) {
        numbers.for_each(|number| self.set((space, number), None));
    }
}

impl Keys for Held {
    fn set(&mut self, item: Item, version: Option<u64>) {
        match version {
            Some(version) => self.insert(item, version),
            None => self.remove(&item),
        };
    }
}

/// The keyspace's name.
pub(crate) fn name(space: Space, thread: usize) -> String {
    match space {
        Space::Left => "left".to_owned(),
        Space::Right => "right".to_owned(),
        Space::Ingested => "ingested".to_owned(),
        Space::Own(number) => format!("own {thread} {number}"),
    }
}

/// The key of an item; `number` may be one past the last, as the end of a range.
pub(crate) fn key(space: Space, thread: usize, number: u16) -> String {
    match space {
        Space::Left => format!("{thread}/{number:04}"),
        Space::Right | Space::Ingested => format!("{number:04}/{thread}"),
        Space::Own(_) => format!("{number:04}"),
    }
}

/// The thread, keyspace and number of a key that was found.
pub(crate) fn parse(name: &str, key: &[u8]) -> Option<(usize, Item)> {
    let key = std::str::from_utf8(key).ok()?;
    let mut words = name.split(' ');
    let (kind, thread, own) = (words.next()?, words.next(), words.next());
    let (thread, space, number) = match kind {
        "own" => (thread?, Space::Own(own?.parse().ok()?), key),
        "left" => {
            let (thread, number) = key.split_once('/')?;
            (thread, Space::Left, number)
        }
        _ => {
            let (number, thread) = key.split_once('/')?;
            (thread, if kind == "right" { Space::Right } else { Space::Ingested }, number)
        }
    };
    Some((thread.parse().ok()?, (space, number.parse().ok()?)))
}

/// The value of a version: most are small, some take several blocks, a few are stored separately.
pub(crate) fn value(version: u64, key: &str) -> Vec<u8> {
    let mut rng = Rng::new(version ^ u64::from(crc32c::crc32c(key.as_bytes())) << 20);
    let length = match rng.below(400) {
        0 => 70_000,
        1..20 => rng.below(9000),
        _ => rng.below(300),
    };
    let mut value = version.to_le_bytes().to_vec();
    let pattern = rng.u64().to_le_bytes();
    value.extend(pattern.iter().cycle().take(length));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and keys can be parsed back, the seed decides the plan, and versions differ.
    #[test]
    fn plans_can_be_told_again() {
        for item in [(Space::Left, 7), (Space::Right, 0), (Space::Ingested, 249), (Space::Own(3), 12)] {
            let (name, key) = (name(item.0, 2), key(item.0, 2, item.1));
            assert_eq!(parse(&name, key.as_bytes()), Some((2, item)));
        }
        let ops = |seed| Plan::new(seed, 1, 0, Own::default()).take(1000).collect::<Vec<_>>();
        assert_eq!(ops(1), ops(1));
        assert_ne!(ops(1), ops(2));
        assert_ne!(version(1, 0, 5), version(1, 1, 5));
        assert_eq!(value(9, "a"), value(9, "a"));
    }
}
