//! Linearizability: whether a history of concurrent calls could result from a sequence of the calls, each
//! made at some moment between its begin and its end (M. Herlihy, J. Wing, "Linearizability", TOPLAS 1990).
//!
//! There are two checkers. [`find_order`] searches for such an order (J. Wing, C. Gong, "Testing and
//! Verifying Concurrent Objects", 1993) and remembers the states it has tried (G. Lowe, "Testing for
//! linearizability", 2017). Each thread makes one call at a time, so a prefix of the order is a number of
//! calls for each thread. [`is_stale`] checks the gets and writes of unique values of one key, in the time of
//! a sort. It reports only real faults, but not all.
//!
//! A call without an end was in flight when the process was killed: it may be in the order or not.

use std::collections::HashSet;

pub(crate) const KEYS: usize = 4;
/// The key in a keyspace of its own, which is dropped and made again.
pub(crate) const SIDE: usize = KEYS - 1;

/// The value of each key, 0 if absent; every write has a unique value.
pub(crate) type State = [u64; KEYS];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Get(usize),
    Put(usize, u64),
    Delete(usize),
    /// A batch of two puts.
    PutBoth(usize, usize, u64),
    /// Gets of two keys at one snapshot.
    GetBoth(usize, usize),
    /// The keys from the first up to the second, exclusive.
    DeleteRange(usize, usize),
    /// Drops the keyspace that holds [`SIDE`].
    DropSide,
    /// Drops the partitions of the keys from the first up to the second, exclusive.
    DropPartitions(usize, usize),
    /// Reads all keys in one checkpoint.
    Checkpoint,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) call: Call,
    pub(crate) begin: u64,
    /// `u64::MAX`: never.
    pub(crate) end: u64,
    /// The values read; a checkpoint has all of them.
    pub(crate) result: State,
}

/// The calls of each thread, in order.
pub(crate) type History = Vec<Vec<Event>>;

impl Event {
    fn is_over(&self) -> bool {
        self.end != u64::MAX
    }

    /// The state after the call; `None` if the call could not have returned its result.
    fn apply(&self, mut state: State) -> Option<State> {
        let is_right = match self.call {
            Call::Get(key) => !self.is_over() || state[key] == self.result[0],
            Call::GetBoth(one, other) => !self.is_over() || [state[one], state[other]] == self.result[..2],
            Call::Checkpoint => !self.is_over() || state == self.result,
            Call::Put(key, value) => {
                state[key] = value;
                true
            }
            Call::Delete(key) => {
                state[key] = 0;
                true
            }
            Call::PutBoth(one, other, value) => {
                (state[one], state[other]) = (value, value);
                true
            }
            Call::DeleteRange(from, to) | Call::DropPartitions(from, to) => {
                state[from..to].fill(0);
                true
            }
            Call::DropSide => {
                state[SIDE] = 0;
                true
            }
        };
        is_right.then_some(state)
    }
}

/// Whether the calls have a valid order.
pub(crate) fn find_order(history: &History) -> bool {
    let mut tried: HashSet<(Vec<usize>, State)> = HashSet::new();
    let mut open = vec![(vec![0; history.len()], [0; KEYS])];
    while let Some((done, state)) = open.pop() {
        let next = |thread: usize| history[thread].get(done[thread]);
        if (0..history.len()).all(|thread| next(thread).is_none_or(|event| !event.is_over())) {
            return true;
        }
        // The next call must begin before any other remaining call ends.
        let first_end = (0..history.len()).filter_map(next).map(|event| event.end).min();
        for thread in 0..history.len() {
            let Some(event) = next(thread).filter(|event| Some(event.begin) <= first_end) else { continue };
            let Some(after) = event.apply(state) else { continue };
            let mut done = done.clone();
            done[thread] += 1;
            if tried.insert((done.clone(), after)) {
                open.push((done, after));
            }
        }
    }
    false
}

/// Whether a get of the key returned an impossible value: one never written or of a put that began later, one
/// certainly overwritten before the get began, or one older than an earlier get's.
pub(crate) fn is_stale(history: &History, key: usize) -> bool {
    let events: Vec<&Event> = history.iter().flatten().collect();
    let written = |event: &Event| match event.call {
        Call::Put(at, value) if at == key => Some(value),
        Call::PutBoth(one, other, value) if one == key || other == key => Some(value),
        Call::Delete(at) if at == key => Some(0),
        Call::DeleteRange(from, to) | Call::DropPartitions(from, to) if (from..to).contains(&key) => Some(0),
        Call::DropSide if key == SIDE => Some(0),
        _ => None,
    };
    let read = |event: &Event| match event.call {
        Call::Get(at) if at == key => Some(event.result[0]),
        Call::GetBoth(at, _) if at == key => Some(event.result[0]),
        Call::GetBoth(_, at) if at == key => Some(event.result[1]),
        Call::Checkpoint => Some(event.result[key]),
        _ => None,
    };
    let mut reads: Vec<(&Event, u64)> = events
        .iter()
        .filter(|event| event.is_over())
        .filter_map(|event| read(event).filter(|value| *value != 0).map(|value| (*event, value)))
        .collect();
    reads.sort_by_key(|(event, _)| event.begin);
    // The latest begin of the writes that have ended: values of writes that ended before it are overwritten.
    let mut ended: Vec<&Event> =
        events.iter().copied().filter(|event| event.is_over() && written(event).is_some()).collect();
    ended.sort_by_key(|event| event.end);
    // Likewise for writes whose values earlier gets have returned.
    let mut shown: Vec<(u64, u64)> = Vec::new();
    let (mut next_ended, mut newest_begin) = (0, 0);
    for (get, value) in &reads {
        let put = events.iter().find(|event| written(event) == Some(*value));
        let Some(put) = put.filter(|put| put.begin < get.end) else { return true };
        while ended.get(next_ended).is_some_and(|write| write.end < get.begin) {
            newest_begin = newest_begin.max(ended[next_ended].begin);
            next_ended += 1;
        }
        let seen = shown.iter().filter(|(end, _)| *end < get.begin).map(|(_, begin)| *begin).max();
        if put.end < newest_begin || seen.is_some_and(|begin| put.end < begin) {
            return true;
        }
        shown.push((get.end, put.begin));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(call: Call, begin: u64, end: u64, [one, other]: [u64; 2]) -> Event {
        Event { call, begin, end, result: [one, other, 0, 0] }
    }

    fn checkpoint(begin: u64, end: u64, result: State) -> Event {
        Event { call: Call::Checkpoint, begin, end, result }
    }

    fn put(key: usize, value: u64, begin: u64, end: u64) -> Event {
        event(Call::Put(key, value), begin, end, [0; 2])
    }

    fn get(key: usize, value: u64, begin: u64, end: u64) -> Event {
        event(Call::Get(key), begin, end, [value, 0])
    }

    const NEVER: u64 = u64::MAX;

    /// Valid histories: a get concurrent with a put may return the old or the new value, a call in flight may
    /// count or not, and a batch is there whole.
    #[test]
    fn good_histories_pass() {
        let both = event(Call::PutBoth(0, 1, 7), 1, 4, [0; 2]);
        for history in [
            vec![vec![put(0, 5, 1, 10)], vec![get(0, 0, 2, 3), get(0, 5, 4, 5)]],
            vec![vec![put(0, 5, 1, NEVER)], vec![get(0, 0, 2, 3)]],
            vec![vec![put(0, 5, 1, NEVER)], vec![get(0, 0, 2, 3), get(0, 5, 4, 5)], vec![get(0, 5, 20, 21)]],
            vec![vec![both], vec![event(Call::GetBoth(0, 1), 2, 3, [7, 7])]],
            vec![vec![both], vec![event(Call::DeleteRange(0, 4), 2, 6, [0; 2]), get(1, 7, 7, 8)]],
            vec![vec![both], vec![event(Call::DropPartitions(0, 2), 2, 6, [0; 2]), get(1, 0, 7, 8)]],
            vec![vec![put(0, 1, 1, 4), put(0, 2, 5, 6)], vec![put(0, 3, 2, 9)], vec![get(0, 3, 10, 11)]],
            vec![
                vec![event(Call::PutBoth(0, SIDE, 7), 1, 2, [0; 2]), event(Call::DropSide, 3, 8, [0; 2])],
                vec![checkpoint(4, 5, [7, 0, 0, 7]), checkpoint(6, 9, [7, 0, 0, 0])],
            ],
        ] {
            assert!(find_order(&history), "{history:?}");
            assert!((0..KEYS).all(|key| !is_stale(&history, key)), "{history:?}");
        }
    }

    /// Histories without a valid order, and whether the quick checker finds them too.
    #[test]
    fn bad_histories_are_refused() {
        let both = event(Call::PutBoth(0, 1, 7), 1, 4, [0; 2]);
        let snapshot = |begin, result| event(Call::GetBoth(0, 1), begin, begin + 8, result);
        for (history, is_quick) in [
            // A lost acknowledged write.
            (vec![vec![put(0, 5, 1, 2)], vec![get(0, 0, 3, 4)]], false),
            // A write lost in favour of an older one.
            (vec![vec![put(0, 5, 1, 2), put(0, 6, 3, 4)], vec![get(0, 5, 5, 6)]], true),
            // A value never written, and one read before it was put.
            (vec![vec![get(0, 9, 1, 2)]], true),
            (vec![vec![get(0, 5, 1, 2)], vec![put(0, 5, 3, 4)]], true),
            // The new value and then the old one, concurrent with the put.
            (vec![vec![put(0, 1, 1, 2), put(0, 5, 3, 20)], vec![get(0, 5, 4, 5), get(0, 1, 6, 7)]], true),
            // Two threads that see two puts in different orders.
            (
                vec![
                    vec![put(0, 1, 1, 20)],
                    vec![put(0, 2, 1, 20)],
                    vec![get(0, 1, 3, 4), get(0, 2, 5, 6), get(0, 1, 7, 8)],
                ],
                false,
            ),
            // Half a batch, in a snapshot and in two gets.
            (vec![vec![both], vec![snapshot(2, [7, 0])]], false),
            (vec![vec![both], vec![get(0, 7, 2, 3), snapshot(5, [7, 0])]], false),
            // A snapshot of two different times.
            (vec![vec![put(0, 1, 1, 2), put(1, 2, 3, 4)], vec![snapshot(1, [0, 2])]], false),
            // A deleted value comes back, after a crash too.
            (vec![vec![put(0, 5, 1, 2), event(Call::Delete(0), 3, 4, [0; 2])], vec![get(0, 5, 5, 6)]], true),
            (
                vec![
                    vec![put(2, 5, 1, 2), event(Call::DeleteRange(0, 3), 3, 4, [0; 2])],
                    vec![put(1, 6, 5, NEVER)],
                    vec![get(2, 5, 30, 31)],
                ],
                true,
            ),
            // A checkpoint that has a drop but not the write before it.
            (
                vec![
                    vec![put(SIDE, 5, 1, 2), put(0, 6, 3, 4), event(Call::DropSide, 5, 6, [0; 2])],
                    vec![checkpoint(1, 20, [0; KEYS]), checkpoint(21, 22, [0; KEYS])],
                ],
                false,
            ),
            // Half a batch over two keyspaces, one of which was dropped.
            (
                vec![
                    vec![event(Call::DropSide, 1, 2, [0; 2]), event(Call::PutBoth(0, SIDE, 7), 3, 4, [0; 2])],
                    vec![get(0, 7, 5, 6), get(SIDE, 0, 7, 8)],
                ],
                false,
            ),
            // A drop of partitions that removed one key and not the other, and one whose keys come back.
            (
                vec![
                    vec![both, event(Call::DropPartitions(0, 2), 5, 8, [0; 2])],
                    vec![event(Call::GetBoth(0, 1), 6, 7, [0, 7])],
                ],
                false,
            ),
            (
                vec![
                    vec![put(1, 5, 1, 2), event(Call::DropPartitions(0, 2), 3, 4, [0; 2])],
                    vec![put(0, 6, 5, NEVER)],
                    vec![get(1, 5, 30, 31)],
                ],
                true,
            ),
            // A call in flight that took effect and then did not.
            (vec![vec![put(0, 5, 1, NEVER)], vec![get(0, 5, 2, 3)], vec![get(0, 0, 30, 31)]], false),
        ] {
            assert!(!find_order(&history), "{history:?}");
            assert_eq!((0..KEYS).any(|key| is_stale(&history, key)), is_quick, "{history:?}");
        }
    }
}
