//! Keys and values made from an item's number, so that every answer can be checked without a second copy.
//!
//! A key is its number, doubled, as eight big-endian bytes, then `0` up to its length (8 at least). Odd
//! numbers are never written, so that absent keys lie between present ones. Key and length determine a value.
//!
//! 1. Two numbers never share a key; the order of keys is the order of numbers.
//! 2. A value of another key, or one with a changed byte, is detected almost certainly.

use xxhash_rust::xxh3::xxh3_64;

use crate::dice::Dice;

/// Sizes and compressibility of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Length of each key, in bytes; 8 at least.
    pub key_bytes: usize,
    /// Percentage of each value that repeats earlier bytes of it.
    pub compressible_percent: u64,
}

impl Shape {
    /// Writes the key of that number into `key`.
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        self.key_of(number << 1, key);
    }

    /// Writes an absent key, the next one above the key of that number, into `key`.
    pub fn missing_key(&self, number: u64, key: &mut Vec<u8>) {
        self.key_of(number << 1 | 1, key);
    }

    fn key_of(&self, word: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&word.to_be_bytes());
        key.resize(self.key_bytes, b'0');
    }

    /// Writes the value of `key` with `value_bytes` bytes into `value`.
    pub fn value(&self, key: &[u8], value_bytes: usize, value: &mut Vec<u8>) {
        value.clear();
        let fresh = self.fresh_bytes(value_bytes);
        let mut dice = Dice::new(xxh3_64(key));
        while value.len() < fresh {
            value.extend_from_slice(&dice.next().to_le_bytes());
        }
        value.truncate(fresh);
        while value.len() < value_bytes {
            let more = fresh.min(value_bytes - value.len());
            value.extend_from_within(..more);
        }
    }

    /// Whether the value is the one that key and length determine.
    pub fn is_value(&self, key: &[u8], value: &[u8]) -> bool {
        let fresh = self.fresh_bytes(value.len());
        let mut dice = Dice::new(xxh3_64(key));
        let (head, tail) = value.split_at(fresh);
        // Whole words first, for speed: a benchmark checks each value that it reads.
        let (words, rest) = head.as_chunks::<8>();
        let is_head = words.iter().all(|word| u64::from_le_bytes(*word) == dice.next())
            && *rest == dice.next().to_le_bytes()[..rest.len()];
        is_head && (tail.is_empty() || tail.chunks(fresh).all(|chunk| *chunk == head[..chunk.len()]))
    }

    fn fresh_bytes(&self, value_bytes: usize) -> usize {
        let fresh = value_bytes as u64 * (100 - self.compressible_percent.min(100)) / 100;
        (fresh as usize).max(8).min(value_bytes)
    }
}

/// A random permutation of the numbers below a bound, in no memory. It applies four rounds of a Feistel
/// network over the least power of two above the numbers, until the result is below the bound: twice at most,
/// on average.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    bound: u64,
    /// Bits of the two halves of a number, the higher half first. For an odd number of bits they differ by
    /// one.
    bits: [u32; 2],
    seed: u64,
}

impl Permutation {
    /// A permutation of the numbers below `bound`.
    pub fn new(bound: u64, seed: u64) -> Permutation {
        let bits = 64 - bound.max(2).saturating_sub(1).leading_zeros();
        Permutation { bound: bound.max(1), bits: [bits / 2, bits.div_ceil(2)], seed }
    }

    /// The position of `number`, which is below the bound, in the permuted order.
    pub fn of(&self, number: u64) -> u64 {
        let mut walked = self.mixed(number);
        while walked >= self.bound {
            walked = self.mixed(walked);
        }
        walked
    }

    fn mixed(&self, number: u64) -> u64 {
        let low_bits = self.bits[1];
        let [high_mask, low_mask] = self.bits.map(|bits| (1 << bits) - 1);
        let (mut high, mut low) = (number >> low_bits, number & low_mask);
        // Each half is mixed by the other in turn, so both keep their lengths.
        for round in 0..2_u64 {
            high ^= Dice::new(self.seed ^ low ^ round << 57).next() & high_mask;
            low ^= Dice::new(self.seed ^ high ^ round << 57 ^ 1 << 56).next() & low_mask;
        }
        high << low_bits | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { key_bytes: 16, compressible_percent: 0 };

    fn key(number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        SHAPE.key(number, &mut key);
        key
    }

    /// Keys are ordered like their numbers and have the requested length; absent keys lie between them.
    #[test]
    fn keys_are_ordered() {
        let mut missing = Vec::new();
        for number in [0, 1, 255, 256, 1 << 40] {
            SHAPE.missing_key(number, &mut missing);
            assert!(key(number) < missing && missing < key(number + 1));
            assert_eq!((missing.len(), key(number).len()), (16, 16));
        }
    }

    /// Values of every length and compressibility pass the check; a changed byte, a cut or the value of
    /// another key fails.
    #[test]
    fn values_are_checked() {
        let mut value = Vec::new();
        for compressible_percent in [0, 50, 100] {
            let shape = Shape { compressible_percent, ..SHAPE };
            for value_bytes in [0, 1, 7, 8, 9, 43, 100, 1024] {
                shape.value(&key(7), value_bytes, &mut value);
                assert_eq!(value.len(), value_bytes);
                assert!(shape.is_value(&key(7), &value), "{compressible_percent} {value_bytes}");
                for at in 0..value_bytes {
                    value[at] ^= 1;
                    assert!(!shape.is_value(&key(7), &value));
                    value[at] ^= 1;
                }
                assert!(value_bytes < 7 || !shape.is_value(&key(8), &value));
            }
        }
    }

    /// A permutation contains each number below its bound once, differs between seeds, and is not the
    /// identity.
    #[test]
    fn permutations_give_each_number_once() {
        for bound in [1, 2, 3, 10, 1000, 1024, 1025] {
            let order = Permutation::new(bound, 1);
            let mut all: Vec<u64> = (0..bound).map(|number| order.of(number)).collect();
            let other: Vec<u64> = (0..bound).map(|number| Permutation::new(bound, 2).of(number)).collect();
            assert!(bound < 1000 || (all != other && !all.is_sorted()));
            all.sort_unstable();
            assert_eq!(all, (0..bound).collect::<Vec<u64>>());
        }
    }
}
