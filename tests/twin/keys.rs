//! Shapes of keys: each keyspace has one shape, so that its keys repeat.

use crate::rng::Rng;

/// The shape of a keyspace's keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// Up to `letters` letters out of two: prefixes of each other, and the empty key.
    Tiny { letters: usize },
    /// A long shared prefix and a number.
    Prefixed { count: usize },
    /// Eight bytes, big-endian.
    Numbers { count: usize },
    /// Eight bytes that look random, of `count` numbers; see [`Keys::numbered`].
    Many { count: usize },
    /// Any bytes, often the smallest and the largest one.
    Bytes { length: usize },
    /// Up to the longest allowed keys.
    Long,
}

const KEY_BYTES_MAX: usize = 65_535;

impl Keys {
    pub(crate) fn any(rng: &mut Rng) -> Keys {
        match rng.below(9) {
            0 | 1 => Keys::Tiny { letters: 1 + rng.below(8) },
            2 | 3 => Keys::Prefixed { count: 1 + rng.below(3000) },
            4 | 5 => Keys::Numbers { count: 1 + rng.below(2000) },
            6 | 7 => Keys::Bytes { length: 1 + rng.below(12) },
            _ => Keys::Long,
        }
    }

    pub(crate) fn one(self, rng: &mut Rng) -> Vec<u8> {
        match self {
            Keys::Tiny { letters } => (0..rng.below(letters + 1)).map(|_| *rng.choose(b"ab")).collect(),
            Keys::Prefixed { count } => {
                format!("tenants/0000000000000042/users/{:05}/name", rng.below(count)).into_bytes()
            }
            Keys::Numbers { count } => (rng.below(count) as u64).wrapping_mul(1 << 50).to_be_bytes().to_vec(),
            Keys::Many { count } => Keys::numbered(rng.below(count)),
            Keys::Bytes { length } => {
                let bytes = rng.below(length + 1);
                (0..bytes).map(|_| *rng.choose(&[0, 0, 1, 0x7f, 0x80, 0xff, 0xff])).collect()
            }
            Keys::Long => {
                let bytes = match rng.below(20) {
                    0 => KEY_BYTES_MAX,
                    1 => rng.below(KEY_BYTES_MAX),
                    _ => rng.below(300),
                };
                let mut key = vec![b'k'; bytes];
                if let Some(last) = key.last_mut() {
                    *last = rng.below(4) as u8;
                }
                key
            }
        }
    }

    /// A key of [`Keys::Many`].
    pub(crate) fn numbered(number: usize) -> Vec<u8> {
        (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
    }
}
