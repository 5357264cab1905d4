//! Memory that holds no blocks: pinned pages and loans.

use super::*;
use crate::base::reserve::{Grant, Role};

/// Pages are pinned up to the limit, also in a full cache. They keep their contents under any use of blocks,
/// and are frames again once they are given back.
#[test]
fn pages_are_pinned_out_of_a_full_cache() {
    let (cache, epoch) = cache_of(1 << 20);
    let capacity = cache.stats().capacity_bytes;
    fill_with(&cache, &epoch, 4096, 0, 2);
    let limit_bytes = capacity / 4 * 3;
    assert!(cache.pin_pages((limit_bytes / 4096) as usize + 1, 4096, limit_bytes).is_none());
    let mut pinned = Vec::new();
    while let Some(mut pages) = cache.pin_pages(7, 4096, limit_bytes) {
        let mark = pinned.len() as u8;
        (0..7).for_each(|index| pages.page_mut(index, 4096).fill(mark ^ index as u8));
        pinned.push(pages);
    }
    let stats = cache.stats();
    assert!(stats.pinned_bytes > limit_bytes - 7 * 4096 && stats.pinned_bytes <= limit_bytes, "{stats:?}");
    assert!(stats.pinned_bytes + stats.used_bytes <= capacity, "{stats:?}");
    fill_with(&cache, &epoch, 8192, 50_000, 3);
    cache.shared.pool.lock().check();
    for (mark, pages) in pinned.iter().enumerate() {
        for index in 0..7 {
            assert!(pages.page(index, 4096).iter().all(|byte| *byte == mark as u8 ^ index as u8));
        }
    }
    assert_eq!(pinned[0].page(1, 512).len(), 512);
    pinned.retain(|_| false);
    assert_eq!(cache.stats().pinned_bytes, 0);
    assert!(fill_with(&cache, &epoch, 4096, 100_000, FORGETS) > 0.9);
    cache.shared.pool.lock().check();
}

/// Lent slabs stay empty, of a full cache too, and are not pinned; then blocks use them again.
#[test]
fn loans_keep_slabs_empty() {
    let (cache, epoch) = cache_of(1 << 20);
    let capacity = cache.stats().capacity_bytes;
    fill_with(&cache, &epoch, 4096, 0, 2);
    let loans: Vec<Grant> = (0..10).map(|_| cache.reserve().grant(Role::Ingests, 50_000)).collect();
    fill_with(&cache, &epoch, 4096, 10_000, 3);
    let stats = cache.stats();
    assert_eq!(stats.lent_bytes, 500_000);
    assert!(stats.used_bytes + stats.lent_bytes <= capacity && stats.used_bytes > capacity / 3, "{stats:?}");
    assert!(cache.pin_pages(100, 4096, 800_000).is_none());
    cache.shared.pool.lock().check();
    drop(loans);
    assert!(fill_with(&cache, &epoch, 4096, 100_000, FORGETS) > 0.9);
    cache.shared.pool.lock().check();
}

/// Filter and fence pages that are hit at times outlive data that is hit as often, while both together exceed
/// the cache.
#[test]
fn pages_go_before_data() {
    let (cache, epoch) = cache_of(1 << 20);
    let frames = cache.stats().capacity_bytes / 4096;
    let page = |index: u64| BlockAddress { kind: BlockKind::Filter, ..block(500_000 + index, 4096) };
    let mut kept = [0, 0];
    for round in 0..12 {
        for index in 0..frames {
            for (which, wanted) in [page(index % (frames / 2)), block(index, 4096)].into_iter().enumerate() {
                if !is_cached(&cache, &epoch, &wanted) {
                    get(&cache, &wanted);
                } else if round > 5 {
                    kept[which] += 1;
                }
            }
        }
    }
    assert!(kept[0] as u64 > frames * 6 * 9 / 10, "{kept:?} of {}", frames * 6);
    cache.shared.pool.lock().check();
}

/// Short pages share frames, keep their contents, and free a frame when its last page goes.
#[test]
fn short_pages_share_frames() {
    let (cache, epoch) = cache_of(1 << 20);
    let limit_bytes = cache.stats().capacity_bytes / 2;
    let (mut dice, mut pinned) = (Dice(3), Vec::<(u8, usize, PinnedPages)>::new());
    fill_with(&cache, &epoch, 4096, 0, 2);
    for round in 0..4000u32 {
        if dice.below(5) < 3 {
            let (count, page_bytes) = (1 + dice.below(12) as usize, 512 * (1 + dice.below(8) as usize));
            if let Some(mut pages) = cache.pin_pages(count, page_bytes, limit_bytes) {
                (0..count).for_each(|index| pages.page_mut(index, page_bytes).fill(round as u8));
                pinned.push((round as u8, count, pages));
            }
        } else if !pinned.is_empty() {
            let (mark, count, pages) = pinned.swap_remove(dice.below(pinned.len() as u64) as usize);
            let page = |index| pages.page(index, 512);
            assert!((0..count).all(|index| page(index).iter().all(|byte| *byte == mark)), "{round}");
        }
        assert!(cache.stats().pinned_bytes <= limit_bytes);
        cache.shared.pool.lock().check();
    }
    pinned.clear();
    assert_eq!(cache.stats().pinned_bytes, 0);
    let eight = cache.pin_pages(8, 512, limit_bytes).expect("room");
    assert_eq!(cache.stats().pinned_bytes, 4096);
    let more = cache.pin_pages(1, 512, limit_bytes).expect("room");
    assert_eq!(cache.stats().pinned_bytes, 8192);
    drop(eight);
    assert_eq!(cache.stats().pinned_bytes, 4096, "the other frame is in use");
    drop(more);
    assert!(cache.pin_pages(5, 1024, 8192).is_some() && cache.pin_pages(9, 1024, 8192).is_none());
}
