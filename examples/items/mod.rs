//! The items that the examples load and get.

/// The 16-byte key of an item: 8 random bytes, then 8 more.
pub(crate) fn key(number: u64) -> [u8; 16] {
    let mut state = number;
    let mut key = [0; 16];
    for half in key.chunks_exact_mut(8) {
        half.copy_from_slice(&mix(&mut state).to_be_bytes());
    }
    key
}

pub(crate) fn value(number: u64) -> [u8; 100] {
    let mut state = number ^ 0x5555_5555;
    let mut value = [0; 100];
    for part in value.chunks_mut(8) {
        let bytes = mix(&mut state).to_le_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    }
    value
}

/// SplitMix64.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(crate) fn next(state: &mut u64) -> u64 {
    mix(state) >> 8
}
