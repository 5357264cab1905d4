//! Hints: the frames where blocks were last found.

use super::*;

/// A hint is set when its block is found, replaces the index lookup from then on, and follows the block to
/// another frame.
#[test]
fn a_hint_follows_its_block() {
    let (cache, epoch) = cache_of(256 << 10);
    let (wanted, hint) = (block(1, 8 * UNIT), FrameHint::default());
    let mut frames = std::collections::BTreeSet::new();
    for round in 0..50 {
        cache.insert(&wanted, &bytes_of(&wanted));
        let near = cache.prefetch(&wanted, Some(&hint), Near::Nothing, 1);
        assert_eq!(near, if round == 0 { Near::Slot } else { Near::Block });
        assert_eq!(cache.prefetch(&wanted, Some(&hint), Near::Slot, 1), Near::Block);
        assert_right(&wanted, cache.lookup_at(&wanted, &hint, &epoch.pin()).expect("it is here"));
        let frame = hint.frame().expect("it was found");
        assert_eq!(cache.frames.find(Key::of(&wanted)), Some(frame), "round {round}");
        frames.insert(frame);
        let mut others = 0;
        while cache.holds(&wanted) {
            others += 1;
            cache.insert(
                &block(round * 1000 + others, 8 * UNIT),
                &bytes_of(&block(round * 1000 + others, 8 * UNIT)),
            );
        }
        assert!(cache.lookup_at(&wanted, &hint, &epoch.pin()).is_none(), "another has its frame");
        assert_eq!(hint.frame(), Some(frame), "who does not find it changes nothing");
    }
    assert!(frames.len() > 1, "it never moved: {frames:?}");
}
