//! CLOCK counters: how often the hand passes a block before it is evicted.

use super::*;

/// Blocks hit at times stay, though three times the cache is read once in between.
#[test]
fn blocks_hit_at_times_outlive_blocks_read_once() {
    let (cache, epoch) = cache_of(1 << 20);
    let frames = cache.stats().capacity_bytes / 4096;
    let hot = frames / 8;
    for index in 0..hot {
        get(&cache, &block(index, 4096));
        assert!(is_cached(&cache, &epoch, &block(index, 4096)));
    }
    let mut next = 1_000_000;
    for _ in 0..5 {
        for _ in 0..frames * 3 {
            get(&cache, &block(next, 4096));
            next += 1;
        }
        let kept = (0..hot).filter(|index| is_cached(&cache, &epoch, &block(*index, 4096))).count();
        assert_eq!(kept as u64, hot);
    }
}

/// If all candidates were hit, the blocks hit longest ago are evicted first.
#[test]
fn blocks_hit_longest_ago_are_evicted_first() {
    let (cache, epoch) = cache_of(64 << 10);
    let frames = cache.stats().capacity_bytes / 4096;
    for index in 0..frames {
        get(&cache, &block(index, 4096));
    }
    (0..frames).for_each(|index| assert!(is_cached(&cache, &epoch, &block(index, 4096))));
    // The hand decrements the counters of all of them for this.
    get(&cache, &block(1_000, 4096));
    assert!(is_cached(&cache, &epoch, &block(1_000, 4096)));
    let left: Vec<u64> = (0..frames).filter(|index| cache.holds(&block(*index, 4096))).collect();
    let (again, others): (Vec<u64>, Vec<u64>) = left.iter().partition(|index| *index % 2 == 0);
    assert!(!again.is_empty() && !others.is_empty(), "{left:?}");
    let mut next = 2_000;
    while others.iter().any(|index| cache.holds(&block(*index, 4096))) {
        for index in &again {
            assert!(is_cached(&cache, &epoch, &block(*index, 4096)), "{index} of {again:?}, {others:?}");
        }
        get(&cache, &block(next, 4096));
        assert!(is_cached(&cache, &epoch, &block(next, 4096)));
        next += 1;
        assert!(next < 3_000, "{others:?} stay");
    }
}
