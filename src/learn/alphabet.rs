//! Alphabets: the bytes that occur at each position of a group of keys. SNBC computes a key's number from
//! them.
//!
//! The number's digits are the ranks of the key's bytes among the symbols of their positions, the first
//! position most significant. The paper's symbols are all bytes from the least to the greatest one seen
//! ([`Symbols::Span`]). Ranks among only the bytes seen ([`Symbols::Seen`]) need fewer numbers.
//!
//! Three completions make the code total and order-preserving:
//! 1. From the length of the shortest key on, digit 0 means that the key has ended.
//! 2. At a byte that is no symbol, the code is that of the greatest key below: the digit of the preceding
//!    symbol, then greatest digits. Without a preceding symbol, all digits from there on are least.
//! 3. The number of positions is limited so that there are at most 2^63 codes. Keys that differ only later
//!    have equal codes.
//!
//! Plain values. Any thread.

/// Maximum runs of symbols of a position. Excess runs are joined over the narrowest gaps.
pub(crate) const RUNS_MAX: usize = 8;
/// Maximum positions.
pub(crate) const POSITIONS_MAX: usize = 64;
/// Maximum codes.
const CODES_MAX: u128 = 1 << 63;

/// The choice of a position's symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Symbols {
    /// All bytes from the least to the greatest one seen.
    Span,
    /// The bytes seen, and a few between them if there would be more than [`RUNS_MAX`] runs.
    Seen,
}

/// The symbols of all positions, as runs of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alphabets<'a> {
    /// Number of runs of each position.
    pub(crate) counts: &'a [u8],
    /// First and last byte of each run, ascending within a position.
    pub(crate) runs: &'a [[u8; 2]],
    /// From this position on, keys may have ended.
    pub(crate) absent_from: usize,
    /// The same alphabets as lookup tables, if they were built.
    pub(crate) tables: Option<&'a DigitTables>,
}

/// Invalid alphabets, with the first bad position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadAlphabet {
    pub(crate) position: usize,
}

/// The value of a code's remaining digits.
#[derive(Clone, Copy)]
enum Digits {
    Least,
    Greatest,
}

impl Alphabets<'_> {
    /// The code of a key's bytes behind the common prefix. Any bytes have a code; a greater key has no lesser
    /// code.
    #[inline]
    pub(crate) fn code(&self, rest: &[u8]) -> u64 {
        if let Some(code) = self.tables.and_then(|tables| tables.code(rest, self.absent_from)) {
            return code;
        }
        let (mut code, mut runs) = (0u64, self.runs);
        for (position, count) in self.counts.iter().enumerate() {
            let (own, others) = runs.split_at(usize::from(*count).min(runs.len()));
            let absent = u64::from(position >= self.absent_from);
            let (symbols, below, is_symbol) = rank(own, rest.get(position).copied().unwrap_or(0));
            if !is_symbol || position >= rest.len() {
                let is_between = below > 0 && position < rest.len();
                let rest_of_digits = if is_between { Digits::Greatest } else { Digits::Least };
                let digit = if is_between { below - 1 + absent } else { 0 };
                code = code.wrapping_mul(symbols + absent).wrapping_add(digit);
                return self.filled((code, position + 1), others, rest_of_digits);
            }
            code = code.wrapping_mul(symbols + absent).wrapping_add(below + absent);
            runs = others;
        }
        code
    }

    /// Whether both give every key the same code.
    pub(crate) fn is_like(&self, other: &Alphabets<'_>) -> bool {
        let own = (self.counts, self.runs, self.absent_from);
        own == (other.counts, other.runs, other.absent_from)
    }

    /// Completes the code with least or greatest digits from position `from` on. `runs` begin with that
    /// position's.
    #[cold]
    fn filled(&self, (mut code, from): (u64, usize), mut runs: &[[u8; 2]], digits: Digits) -> u64 {
        for (position, count) in self.counts.iter().enumerate().skip(from) {
            let (own, others) = runs.split_at(usize::from(*count).min(runs.len()));
            runs = others;
            let base = symbol_count(own) + u64::from(position >= self.absent_from);
            let digit = match digits {
                Digits::Least => 0,
                Digits::Greatest => base.saturating_sub(1),
            };
            code = code.wrapping_mul(base).wrapping_add(digit);
        }
        code
    }

    /// Checks that runs ascend without overlap, and that codes fit [`CODES_MAX`]. Alphabets that fail do not
    /// preserve order.
    pub(crate) fn check(&self) -> Result<(), BadAlphabet> {
        let (mut codes, mut at) = (1u128, 0usize);
        for (position, count) in self.counts.iter().enumerate() {
            let end = at + usize::from(*count);
            let runs = self.runs.get(at..end).ok_or(BadAlphabet { position })?;
            let are_whole = runs.iter().all(|[first, last]| first <= last);
            let are_apart = runs.windows(2).all(|pair| pair[0][1] < pair[1][0]);
            codes *= u128::from(symbol_count(runs)) + u128::from(position >= self.absent_from);
            if runs.is_empty() || runs.len() > RUNS_MAX || !are_whole || !are_apart || codes > CODES_MAX {
                return Err(BadAlphabet { position });
            }
            at = end;
        }
        if at == self.runs.len() { Ok(()) } else { Err(BadAlphabet { position: self.counts.len() }) }
    }
}

/// Alphabets as lookup tables, for readers with memory for them: 296 bytes a position.
#[derive(Debug)]
pub(crate) struct DigitTables {
    positions: Box<[DigitTable]>,
}

#[derive(Debug)]
struct DigitTable {
    /// Rank of each symbol.
    ranks: [u8; 256],
    /// A bit for each symbol.
    symbols: [u64; 4],
    /// Number of codes of the positions behind this one.
    weight: u64,
}

impl DigitTables {
    pub(crate) fn of(alphabets: Alphabets<'_>) -> DigitTables {
        let mut runs = alphabets.runs;
        let table = |(position, count): (usize, &u8)| {
            let (own, others) = runs.split_at(usize::from(*count).min(runs.len()));
            runs = others;
            let absent = u64::from(position >= alphabets.absent_from);
            let base = symbol_count(own) + absent;
            let mut table = DigitTable { ranks: [0; 256], symbols: [0; 4], weight: base };
            for byte in 0..=u8::MAX {
                let (_, below, is_symbol) = rank(own, byte);
                table.ranks[usize::from(byte)] = below.min(255) as u8;
                table.symbols[usize::from(byte >> 6)] |= u64::from(is_symbol) << (byte & 63);
            }
            table
        };
        let mut positions: Box<[DigitTable]> = alphabets.counts.iter().enumerate().map(table).collect();
        let mut weight = 1u64;
        for table in positions.iter_mut().rev() {
            let base = std::mem::replace(&mut table.weight, weight);
            weight = weight.wrapping_mul(base);
        }
        DigitTables { positions }
    }

    /// The code of a key's bytes behind the common prefix, equal to that of the alphabets. None if the key
    /// has a byte that is no symbol: only the alphabets give such a code.
    #[inline]
    fn code(&self, rest: &[u8], absent_from: usize) -> Option<u64> {
        let (mut code, mut are_symbols) = (0u64, 1);
        // After the key's end all digits are 0.
        for (position, (table, byte)) in self.positions.iter().zip(rest).enumerate() {
            are_symbols &= table.symbols[usize::from(byte >> 6)] >> (byte & 63);
            let digit = u64::from(table.ranks[usize::from(*byte)]) + u64::from(position >= absent_from);
            code = code.wrapping_add(digit.wrapping_mul(table.weight));
        }
        (are_symbols & 1 == 1).then_some(code)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.positions)
    }
}

#[inline]
fn symbol_count(runs: &[[u8; 2]]) -> u64 {
    runs.iter().map(|[first, last]| u64::from(last.saturating_sub(*first)) + 1).sum()
}

/// The number of symbols, the number of symbols below `byte`, and whether `byte` is a symbol.
// No branch depends on the byte: such a branch is unpredictable.
#[inline]
fn rank(runs: &[[u8; 2]], byte: u8) -> (u64, u64, bool) {
    let (mut symbols, mut below, mut is_symbol) = (0, 0, false);
    for [first, last] in runs {
        let length = u64::from(last.saturating_sub(*first)) + 1;
        symbols += length;
        below += u64::from(byte.saturating_sub(*first)).min(length);
        is_symbol |= (*first <= byte) & (byte <= *last);
    }
    (symbols, below, is_symbol)
}

/// Alphabets of a group of keys.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct TrainedAlphabets {
    counts: Vec<u8>,
    runs: Vec<[u8; 2]>,
    absent_from: usize,
}

impl TrainedAlphabets {
    /// Trains on the keys' bytes behind their common prefix, for at most `positions_max` positions. There are
    /// fewer if the keys end earlier or codes would be too large.
    pub(crate) fn train<'k>(
        rests: impl Iterator<Item = &'k [u8]>,
        symbols: Symbols,
        positions_max: usize,
    ) -> TrainedAlphabets {
        let mut seen = [[0u64; 4]; POSITIONS_MAX];
        let mut shortest = usize::MAX;
        for rest in rests {
            shortest = shortest.min(rest.len());
            for (bits, byte) in seen[..positions_max.min(POSITIONS_MAX)].iter_mut().zip(rest) {
                bits[usize::from(byte >> 6)] |= 1 << (byte & 63);
            }
        }
        let mut trained = TrainedAlphabets { absent_from: shortest, ..TrainedAlphabets::default() };
        let mut codes = 1u128;
        for (position, bits) in seen[..positions_max.min(POSITIONS_MAX)].iter().enumerate() {
            let runs = runs_of(bits, symbols);
            codes *= u128::from(symbol_count(&runs)) + u128::from(position >= shortest);
            if runs.is_empty() || codes > CODES_MAX {
                break;
            }
            trained.counts.push(runs.len() as u8);
            trained.runs.extend(runs);
        }
        trained
    }

    /// Appends a position at which every byte is a symbol, if codes have room for it. Keys that continue
    /// there then have other codes than a key that ends.
    pub(crate) fn extend(&mut self) {
        let bases = (0..self.counts.len()).map(|position| u128::from(self.base(position)));
        let absent = u128::from(self.counts.len() >= self.absent_from);
        if self.counts.len() < POSITIONS_MAX && bases.product::<u128>() * (256 + absent) <= CODES_MAX {
            self.counts.push(1);
            self.runs.push([0, u8::MAX]);
        }
    }

    /// Digits of a position.
    fn base(&self, position: usize) -> u64 {
        let start: usize = self.counts[..position].iter().map(|count| usize::from(*count)).sum();
        let own = &self.runs[start..start + usize::from(self.counts[position])];
        symbol_count(own) + u64::from(position >= self.absent_from)
    }

    /// Keeps only the first `positions` positions.
    pub(crate) fn truncate(&mut self, positions: usize) {
        let runs = self.counts.iter().take(positions).map(|count| usize::from(*count)).sum();
        self.counts.truncate(positions);
        self.runs.truncate(runs);
    }

    pub(crate) fn view(&self) -> Alphabets<'_> {
        Alphabets { counts: &self.counts, runs: &self.runs, absent_from: self.absent_from, tables: None }
    }

    pub(crate) fn positions(&self) -> usize {
        self.counts.len()
    }
}

/// The runs of the bytes whose bits are set.
fn runs_of(bits: &[u64; 4], symbols: Symbols) -> Vec<[u8; 2]> {
    let mut runs: Vec<[u8; 2]> = Vec::new();
    for byte in 0..=u8::MAX {
        if bits[usize::from(byte >> 6)] >> (byte & 63) & 1 == 0 {
            continue;
        }
        match runs.last_mut() {
            Some([_, last]) if symbols == Symbols::Span || *last + 1 == byte => *last = byte,
            _ => runs.push([byte, byte]),
        }
    }
    while runs.len() > RUNS_MAX {
        let gap = |pair: &usize| runs[*pair + 1][0] - runs[*pair][1];
        let narrowest = (0..runs.len() - 1).min_by_key(gap).expect("there are several runs");
        runs[narrowest][1] = runs[narrowest + 1][1];
        runs.remove(narrowest + 1);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(keys: &[&[u8]], symbols: Symbols) -> TrainedAlphabets {
        TrainedAlphabets::train(keys.iter().copied(), symbols, POSITIONS_MAX)
    }

    /// The paper's example: "aab", "bcb" and "bdd" have bases 2, 4 and 3, and "bcb" is 1 × 12 + 2 × 3 + 0.
    #[test]
    fn the_papers_example() {
        let trained = train(&[b"aab", b"bdd", b"bcb"], Symbols::Span);
        let codes = [&b"aab"[..], b"bcb", b"bdd"].map(|key| trained.view().code(key));
        assert_eq!(codes, [0, 18, 23]);
        assert_eq!(trained.view().runs, [[b'a', b'b'], [b'a', b'd'], [b'b', b'd']]);
    }

    /// The same keys by ranks: bases 2, 3 and 2.
    #[test]
    fn ranks_among_symbols() {
        let trained = train(&[b"aab", b"bdd", b"bcb"], Symbols::Seen);
        let codes = [&b"aab"[..], b"bcb", b"bdd"].map(|key| trained.view().code(key));
        assert_eq!(codes, [0, 8, 11]);
    }

    /// Keys that end early sort before longer keys. A byte that is no symbol sorts between its neighbours.
    #[test]
    fn completions() {
        let trained = train(&[b"b", b"bd", b"bf", b"db"], Symbols::Seen);
        let code = |key: &[u8]| trained.view().code(key);
        // Bases 2 and 4, as the second position may be absent.
        assert_eq!([&b"b"[..], b"bb", b"bd", b"bf", b"d", b"db", b"df"].map(code), [0, 1, 2, 3, 4, 5, 7]);
        assert_eq!([&b""[..], b"a", b"az", b"ba", b"bc", b"be", b"bz"].map(code), [0, 0, 0, 0, 1, 2, 3]);
        assert_eq!([&b"c"[..], b"cz", b"d\0", b"dz", b"e", b"\xff"].map(code), [3, 3, 4, 7, 7, 7]);
    }

    /// More runs than a position may have are joined over the narrowest gaps, and still hold every byte seen.
    #[test]
    fn runs_are_joined() {
        let keys: Vec<Vec<u8>> = (0..20u16).map(|number| vec![(number * (number + 3) / 2) as u8]).collect();
        let trained = TrainedAlphabets::train(keys.iter().map(Vec::as_slice), Symbols::Seen, 1);
        assert_eq!(trained.view().counts, [RUNS_MAX as u8]);
        assert!(keys.iter().all(|key| rank(trained.view().runs, key[0]).2));
        assert!(trained.view().check().is_ok());
    }

    /// The number of positions is limited by the number of codes, by the longest key and by the given limit.
    #[test]
    fn positions_end() {
        let random: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte; 20]).collect();
        let rests = || random.iter().map(Vec::as_slice);
        assert_eq!(TrainedAlphabets::train(rests(), Symbols::Span, 20).positions(), 7);
        assert_eq!(TrainedAlphabets::train(rests(), Symbols::Span, 3).positions(), 3);
        assert_eq!(train(&[b"ab", b"abc"], Symbols::Seen).positions(), 3);
        assert_eq!(train(&[b""], Symbols::Seen).positions(), 0);
        assert_eq!(train(&[], Symbols::Seen).view().code(b"x"), 0);
        let long = [b'x'; 100];
        assert_eq!(train(&[&long], Symbols::Seen).positions(), POSITIONS_MAX);
    }

    /// Every check has alphabets that trip it. Computing a code with such alphabets does not panic.
    #[test]
    fn bad_alphabets_are_refused() {
        let refused = |counts: &[u8], runs: &[[u8; 2]], position| {
            let alphabets = Alphabets { counts, runs, absent_from: 0, tables: None };
            assert_eq!(alphabets.check(), Err(BadAlphabet { position }), "{runs:?}");
            for key in [&b""[..], b"a", b"abc", &[0xff; 70]] {
                alphabets.code(key);
            }
        };
        let runs = &[[1, 2], [4, 4], [0, 255]];
        let good = Alphabets { counts: &[2, 1], runs, absent_from: 1, tables: None };
        assert_eq!(good.check(), Ok(()));
        refused(&[0], &[], 0);
        refused(&[1, 1], &[[1, 2], [2, 1]], 1);
        refused(&[2], &[[1, 2], [2, 3]], 0);
        refused(&[1, 2], &[[1, 2], [2, 3]], 1);
        refused(&[1], &[[1, 2], [4, 5]], 1);
        refused(&[9], &[[1, 1], [3, 3], [5, 5], [7, 7], [9, 9], [11, 11], [13, 13], [15, 15], [17, 17]], 0);
        refused(&[1; 8], &[[0, 255]; 8], 7);
        refused(&[1; 200], &[[0, 255]; 200], 7);
    }
}
