//! Versions of one key: a list from the newest on, with jumps.
//!
//! A key that is overwritten very often under an older snapshot has a list as long as it was overwritten.
//! Each version but the first has, beside the one before it, a jump further back, so that a search passes n
//! versions in O(log n) steps: the skew-binary jump pointers of E. Myers, "An applicative random-access
//! stack" (1983). A key that is written once has no jump.
//!
//! It changes nothing; the inserter writes entry and jump before it publishes them, and neither changes
//! after.

use crate::base::id::Sequence;

use super::arena::{Arena, Entry, Jump, Offset};

/// The newest version, of `newest` and those before it, with a sequence of at most `bound`.
#[inline]
pub(super) fn visible(arena: &Arena, newest: Offset, bound: Sequence) -> Option<(Offset, Entry<'_>)> {
    let entry = arena.entry(newest);
    if entry.sequence <= bound { Some((newest, entry)) } else { older_visible(arena, newest, bound) }
}

#[cold]
fn older_visible(arena: &Arena, mut at: Offset, bound: Sequence) -> Option<(Offset, Entry<'_>)> {
    loop {
        at = step(arena, at, bound)?;
        let entry = arena.entry(at);
        if entry.sequence <= bound {
            return Some((at, entry));
        }
    }
}

/// From a version above the bound to an older one that is the one looked for, or above the bound too.
fn step(arena: &Arena, at: Offset, bound: Sequence) -> Option<Offset> {
    let jump = arena.jump(at).to;
    if jump != at && arena.entry(jump).sequence > bound {
        return Some(jump);
    }
    let older = arena.entry(at).older;
    (older != 0).then_some(older)
}

/// The jump of a version that is added to the list that begins with `older`.
pub(super) fn jump_of_next(arena: &Arena, older: Offset) -> Jump {
    let before = arena.jump(older);
    let further = arena.jump(before.to);
    let furthest = arena.jump(further.to);
    // Two jumps of one length become one over both.
    let is_pair = before.depth - further.depth == further.depth - furthest.depth;
    Jump { to: if is_pair { further.to } else { older }, depth: before.depth + 1 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::ItemKind;
    use crate::base::region::Region;

    /// A list of versions with these sequences, oldest first, and where each lies.
    fn list(arena: &Arena, bump: &mut crate::memtable::arena::Bump, sequences: &[Sequence]) -> Vec<Offset> {
        let mut versions: Vec<Offset> = Vec::new();
        for &sequence in sequences {
            let older = versions.last().copied().unwrap_or(0);
            let entry = Entry { sequence, kind: ItemKind::Put, older, key: b"hot", value: b"" };
            versions.push(match older {
                0 => bump.entry(arena, &entry),
                older => bump.version(arena, &entry, jump_of_next(arena, older)),
            });
        }
        versions
    }

    proptest::proptest! {
        /// Every bound finds what a walk of the plain list finds, also where sequences are equal.
        #[test]
        fn jumps_find_what_the_list_has(gaps in proptest::collection::vec(0u64..3, 1..200)) {
            let mut sequence = 1;
            let sequences: Vec<Sequence> = gaps.iter().map(|gap| { sequence += gap; sequence }).collect();
            let (arena, mut bump) = Arena::new(Region::heap(64 << 10).expect("small allocation"));
            let versions = list(&arena, &mut bump, &sequences);
            let newest = *versions.last().expect("one at least");
            for bound in 0..=sequence + 1 {
                let expected = sequences.iter().rposition(|one| *one <= bound).map(|index| versions[index]);
                let found = visible(&arena, newest, bound).map(|(at, _)| at);
                proptest::prop_assert_eq!(found, expected, "bound {} of {:?}", bound, &sequences);
            }
        }
    }

    /// A search over n versions takes at most 3 log2(n) steps, about 40 for 400,000, to whichever it goes.
    #[test]
    fn many_versions_are_few_steps() {
        let count: u64 = if cfg!(miri) { 300 } else { 400_000 };
        let (arena, mut bump) = Arena::new(Region::heap(16 << 20).expect("small allocation"));
        let sequences: Vec<Sequence> = (1..=count).collect();
        let newest = *list(&arena, &mut bump, &sequences).last().expect("one at least");
        let steps_max = 3 * count.ilog2() as usize;
        let bounds = (0..count).step_by(997).chain(count.saturating_sub(100)..count);
        for bound in bounds {
            let steps = std::iter::successors(Some(newest), |at| {
                if arena.entry(*at).sequence <= bound { None } else { step(&arena, *at, bound) }
            });
            let path: Vec<Offset> = steps.collect();
            assert!(path.len() <= steps_max, "{} steps to {bound}", path.len());
            let last = arena.entry(*path.last().expect("the newest at least"));
            assert_eq!(last.sequence, bound.max(1));
        }
    }
}
