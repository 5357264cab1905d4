//! Versions of one key: a list, newest first, with jumps.
//!
//! A key that is overwritten very often has a long list, which readers of an older snapshot must pass. Each
//! version but the first has, besides the link to the one before it, a jump further back. So a search passes
//! n versions in O(log n) steps: the skew-binary jump pointers of E. Myers, "An applicative random-access
//! stack" (1983). A key that is written once has no jump.
//!
//! This module changes nothing. The inserter writes entry and jump before it publishes them, and neither
//! changes afterwards.

use crate::base::id::Sequence;

use super::arena::{Arena, ArenaEntry, Jump, Offset};

/// The newest version with a sequence of at most `bound`, from `newest` on backwards.
#[inline]
pub(super) fn visible(arena: &Arena, newest: Offset, bound: Sequence) -> Option<(Offset, ArenaEntry<'_>)> {
    let entry = arena.entry(newest);
    if entry.sequence <= bound { Some((newest, entry)) } else { older_visible(arena, newest, bound) }
}

#[cold]
fn older_visible(arena: &Arena, mut at: Offset, bound: Sequence) -> Option<(Offset, ArenaEntry<'_>)> {
    loop {
        at = step(arena, at, bound)?;
        let entry = arena.entry(at);
        if entry.sequence <= bound {
            return Some((at, entry));
        }
    }
}

/// Moves from a version above the bound to an older one, which is the wanted one or above the bound too.
fn step(arena: &Arena, at: Offset, bound: Sequence) -> Option<Offset> {
    let jump = arena.jump(at).to;
    if jump != at && arena.entry(jump).sequence > bound {
        return Some(jump);
    }
    let older = arena.entry(at).older;
    (older != 0).then_some(older)
}

/// The jump of a new version of the key whose newest version is `older`.
pub(super) fn jump_of_next(arena: &Arena, older: Offset) -> Jump {
    let before = arena.jump(older);
    let further = arena.jump(before.to);
    let furthest = arena.jump(further.to);
    // Two jumps of equal length are joined to one.
    let is_pair = before.depth - further.depth == further.depth - furthest.depth;
    Jump { to: if is_pair { further.to } else { older }, depth: before.depth + 1 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::id::ItemKind;
    use crate::base::region::Region;

    /// Adds versions with these sequences, oldest first; returns their offsets.
    fn list(arena: &Arena, bump: &mut crate::memtable::arena::Bump, sequences: &[Sequence]) -> Vec<Offset> {
        let mut versions: Vec<Offset> = Vec::new();
        for &sequence in sequences {
            let older = versions.last().copied().unwrap_or(0);
            let entry = ArenaEntry { sequence, kind: ItemKind::Put, older, key: b"hot", value: b"" };
            versions.push(match older {
                0 => bump.entry(arena, &entry),
                older => bump.version(arena, &entry, jump_of_next(arena, older)),
            });
        }
        versions
    }

    proptest::proptest! {
        /// Every bound finds the same version as a walk of the plain list, also where sequences are equal.
        #[test]
        fn jumps_find_the_version_of_a_list_walk(gaps in proptest::collection::vec(0u64..3, 1..200)) {
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

    /// A search over n versions takes at most 3 log2(n) steps, about 40 for 400,000, for any bound.
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
