//! Codes over ten families of keys: they never contradict the order of keys.

use super::*;
use crate::base::key::common_prefix;
use crate::lab::KeyFamily;
use crate::learn::alphabet::{DigitTables, POSITIONS_MAX, Symbols, TrainedAlphabets};

/// A deterministic random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % bound
    }
}

/// The key with a byte changed, cut, or extended; or random bytes.
fn mutated(key: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut key = key.to_vec();
    let at = dice.below(key.len().max(1));
    match dice.below(6) {
        0 => key.truncate(at),
        1 => key.push(dice.below(256) as u8),
        2 => key.extend_from_slice(&[0xff; 9]),
        3 => key.extend_from_slice(&[0; 3]),
        4 if !key.is_empty() => key[at] = dice.below(256) as u8,
        5 if !key.is_empty() => key[at] = key[at].wrapping_add(1),
        _ => key = (0..dice.below(20)).map(|_| dice.below(256) as u8).collect(),
    }
    key
}

/// Trained and untrained keys, ascending.
fn probes(keys: &[Vec<u8>], dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut probes = keys.to_vec();
    for key in keys {
        let once = mutated(key, dice);
        probes.push(mutated(&once, dice));
        probes.push(once);
    }
    probes.extend([vec![], vec![0], vec![0xff; 30]]);
    probes.sort_unstable();
    probes.dedup();
    probes
}

/// Trains on the keys and calls `check` with each kind of code, also with low bits dropped.
fn each_code(keys: &[Vec<u8>], mut check: impl FnMut(&KeyCode<'_>, &str)) {
    let (first, last) = (keys[0].as_slice(), keys[keys.len() - 1].as_slice());
    let prefix = &first[..common_prefix(first, last)];
    let train = |symbols, positions| {
        let rests = keys.iter().map(|key| &key[prefix.len()..]);
        TrainedAlphabets::train(rests, symbols, positions)
    };
    let (span, seen) = (train(Symbols::Span, POSITIONS_MAX), train(Symbols::Seen, POSITIONS_MAX));
    let few = train(Symbols::Seen, 2);
    for (digits, name) in [
        (CodeDigits::Head, "head"),
        (CodeDigits::Alphabets(span.view()), "SNBC"),
        (CodeDigits::Alphabets(seen.view()), "ranks"),
        (CodeDigits::Alphabets(few.view()), "two positions"),
    ] {
        let whole = KeyCode { prefix, digits, least: 0, shift: 0 };
        check(&whole, name);
        let least = whole.number(first);
        check(&KeyCode { least, shift: 13, ..whole }, name);
        check(&KeyCode { least, shift: 64, ..whole }, name);
    }
}

/// A greater key has no lesser code, for trained, mutated, cut, extended and random keys of ten families.
#[test]
fn codes_ascend_with_keys() {
    for family in KeyFamily::ALL {
        for (seed, count) in [(1, 3000), (2, 300), (3, 7)] {
            let keys = family.keys(count, seed);
            let probes = probes(&keys, &mut Dice(seed));
            each_code(&keys, |code, kind| {
                for pair in probes.windows(2) {
                    let codes = [code.of(&pair[0]), code.of(&pair[1])];
                    assert!(codes[0] <= codes[1], "{} {kind} {pair:?} {codes:?}", family.name());
                }
            });
        }
    }
}

/// Lookup tables give the same codes as their alphabets.
#[test]
fn tables_tell_the_same_codes() {
    for family in KeyFamily::ALL {
        let keys = family.keys(1000, 8);
        let trained = TrainedAlphabets::train(keys.iter().map(Vec::as_slice), Symbols::Seen, POSITIONS_MAX);
        let tables = DigitTables::of(trained.view());
        assert_eq!(tables.memory_bytes(), 296 * trained.positions());
        let with_tables = Alphabets { tables: Some(&tables), ..trained.view() };
        assert!(with_tables.is_like(&trained.view()));
        for probe in probes(&keys, &mut Dice(4)) {
            assert_eq!(with_tables.code(&probe), trained.view().code(&probe), "{} {probe:?}", family.name());
        }
    }
}

/// Trained keys that differ within the positions have different codes.
#[test]
fn trained_keys_differ() {
    for family in KeyFamily::ALL {
        let keys = family.keys(3000, 5);
        let prefix = common_prefix(&keys[0], &keys[keys.len() - 1]);
        for symbols in [Symbols::Span, Symbols::Seen] {
            let rests = keys.iter().map(|key| &key[prefix..]);
            let trained = TrainedAlphabets::train(rests, symbols, POSITIONS_MAX);
            for pair in keys.windows(2) {
                let rests = [&pair[0][prefix..], &pair[1][prefix..]];
                let codes = rests.map(|rest| trained.view().code(rest));
                let is_within = common_prefix(rests[0], rests[1]) < trained.positions();
                assert_eq!(codes[0] < codes[1], is_within, "{} {pair:?}", family.name());
            }
        }
    }
}

/// Ranks distinguish keys where the paper's spans cannot: the span from '0' to 'f' has 55 bytes.
#[test]
fn ranks_reach_further() {
    let keys = KeyFamily::Hex.keys(3000, 1);
    let positions = |symbols| {
        let rests = keys.iter().map(Vec::as_slice);
        TrainedAlphabets::train(rests, symbols, POSITIONS_MAX).positions()
    };
    assert_eq!([positions(Symbols::Span), positions(Symbols::Seen)], [10, 15]);
}

/// Prefix chains, equal bytes and empty keys.
#[test]
fn hostile_keys() {
    let chains: [Vec<Vec<u8>>; 4] = [
        (0..40).map(|length| vec![b'a'; length]).collect(),
        (0..40).map(|length| vec![0; length]).collect(),
        (0..40).map(|length| vec![0xff; length]).collect(),
        vec![vec![]],
    ];
    for keys in chains {
        let probes = probes(&keys, &mut Dice(9));
        each_code(&keys, |code, kind| {
            let codes: Vec<u64> = probes.iter().map(|key| code.of(key)).collect();
            assert!(codes.is_sorted(), "{kind} {keys:?}");
        });
    }
}
