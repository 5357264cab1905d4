//! The expected answers of the store, kept small: hashes of every key and value, and a sample of whole keys.
//!
//! They are made from the records, never from the store. The order of the keys is taken from a checked scan:
//! as many items as records, each of them a record, strictly ascending; only one order satisfies that.

use std::collections::HashMap;

use trine_workload::failure::Failure;
use trine_workload::interrupt;
use xxhash_rust::xxh3::xxh3_64;

use super::records::{FILES, KEYSPACES, Record, SEPARATOR, Sources, WORDS, key_hash};

const SAMPLE: u64 = 20_000;
const PREFIXES: usize = 64;

pub(crate) struct Expectation {
    /// Hash of key and hash of value of every record, sorted.
    pairs: Vec<(u64, u64)>,
    /// The number of records of each keyspace.
    pub(crate) counts: [u64; KEYSPACES.len()],
    pub(crate) key_value_bytes: u64,
    /// A sample of the keys of `words`, sorted.
    pub(crate) sample: Vec<Sample>,
    /// Prefixes of keys of `words` (a word and the separator), with the number of keys of each.
    pub(crate) prefixes: Vec<(Vec<u8>, u64)>,
}

/// The keys of `words` in order, from a checked scan.
#[derive(Default)]
pub(crate) struct Order {
    pub(crate) hashes: Vec<u64>,
    /// The number of keys before each key of the sample.
    pub(crate) ranks: Vec<usize>,
}

pub(crate) struct Sample {
    pub(crate) key: Vec<u8>,
    pub(crate) value_hash: u64,
}

impl Expectation {
    pub(crate) fn new(sources: &Sources, seed: u64, records_max: u64) -> Result<Expectation, Failure> {
        let mut pairs = Vec::new();
        let mut counts = [0; KEYSPACES.len()];
        let mut key_value_bytes = 0;
        let mut sample = Vec::new();
        let mut words: HashMap<Vec<u8>, u64> = HashMap::new();
        let stride = records_max.div_ceil(SAMPLE);
        for record in sources.records(seed, records_max) {
            if pairs.len().is_multiple_of(4096) && interrupt::asked() {
                return Err(Failure::Interrupted("stopped".to_string()));
            }
            let hash = record.key_hash();
            let value_hash = xxh3_64(&record.value);
            pairs.push((hash, value_hash));
            counts[record.keyspace] += 1;
            key_value_bytes += (record.key.len() + record.value.len()) as u64;
            if record.keyspace == WORDS {
                count_word(&record, &mut words);
                if hash.is_multiple_of(stride) {
                    sample.push(Sample { key: record.key, value_hash });
                }
            }
        }
        pairs.sort_unstable();
        sample.sort_by(|one: &Sample, other| one.key.cmp(&other.key));
        let mut prefixes: Vec<(Vec<u8>, u64)> = words.into_iter().collect();
        prefixes.sort();
        Ok(Expectation { pairs, counts, key_value_bytes, sample, prefixes })
    }

    pub(crate) fn records(&self) -> u64 {
        self.counts[FILES] + self.counts[WORDS]
    }

    /// The hash of the expected value of `key`.
    pub(crate) fn value_hash(&self, keyspace: usize, key: &[u8]) -> Option<u64> {
        self.value_hash_of(key_hash(keyspace, key))
    }

    fn value_hash_of(&self, key_hash: u64) -> Option<u64> {
        let index = self.pairs.binary_search_by_key(&key_hash, |pair| pair.0).ok()?;
        Some(self.pairs[index].1)
    }

    /// The order, from the key hashes of a checked scan of `words`.
    pub(crate) fn order(&self, hashes: Vec<u64>) -> Order {
        let mut ranks: HashMap<u64, usize> =
            self.sample.iter().map(|one| (key_hash(WORDS, &one.key), 0)).collect();
        for (rank, hash) in hashes.iter().enumerate() {
            if let Some(known) = ranks.get_mut(hash) {
                *known = rank;
            }
        }
        let ranks = self.sample.iter().map(|one| ranks[&key_hash(WORDS, &one.key)]).collect();
        Order { hashes, ranks }
    }

    /// Whether the item is the one at `rank` of `words`.
    pub(crate) fn is_at(&self, order: &Order, rank: usize, key: &[u8], value: &[u8]) -> bool {
        let hash = key_hash(WORDS, key);
        order.hashes.get(rank) == Some(&hash) && self.value_hash_of(hash) == Some(xxh3_64(value))
    }

    /// The memory of the order once it is known.
    pub(crate) fn order_bytes(&self) -> u64 {
        self.counts[WORDS] * size_of::<u64>() as u64
    }

    /// The memory of this and the order, which the process uses besides the store.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let sample: usize = self.sample.iter().map(|one| one.key.capacity() + size_of::<Sample>()).sum();
        (self.pairs.capacity() * size_of::<(u64, u64)>() + sample) as u64 + self.order_bytes()
    }
}

/// Counts a word if it is watched: the first words with a suitable hash, in any order.
fn count_word(record: &Record, words: &mut HashMap<Vec<u8>, u64>) {
    let end = record.key.iter().position(|byte| *byte == SEPARATOR as u8).map_or(0, |index| index + 1);
    let word = &record.key[..end];
    if !xxh3_64(word).is_multiple_of(61) {
        return;
    }
    if let Some(count) = words.get_mut(word) {
        *count += 1;
    } else if words.len() < PREFIXES {
        words.insert(word.to_vec(), 1);
    }
}
