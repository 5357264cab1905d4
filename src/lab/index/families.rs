//! Ten families of keys, for experiments and tests of learned indexes. All are synthetic. One seed gives the
//! same keys on every machine.

/// A family of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFamily {
    /// "k" and ten digits, ascending with random gaps.
    Decimal,
    /// 16 random hexadecimal digits.
    Hex,
    /// YCSB's "user" and a hash of 63 bits in decimal, of varying length.
    User,
    /// 16 random bytes.
    Binary,
    /// Addresses below three hosts, with skewed directories.
    Url,
    /// File paths, four levels deep, with skewed directories.
    Path,
    /// Two words of random syllables.
    Words,
    /// Geohashes of points in clusters, like towns: nine of 32 characters, and a number.
    Geographic,
    /// Twelve digits in dense segments: a jump every hundred keys (TridentKV's Seg-1 %).
    Segmented,
    /// 40 equal bytes, then eight random letters.
    LongPrefix,
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below `bound`, skewed to small ones.
    fn skewed(&mut self, bound: u64) -> u64 {
        let most = self.below(bound) + 1;
        self.below(most)
    }

    fn letters(&mut self, count: usize, alphabet: &[u8], out: &mut Vec<u8>) {
        out.extend((0..count).map(|_| alphabet[self.below(alphabet.len() as u64) as usize]));
    }

    fn word(&mut self, syllables: u64, out: &mut Vec<u8>) {
        for _ in 0..=self.below(syllables) {
            let start = ["b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "w"];
            let middle = ["a", "e", "i", "o", "u", "ea", "ou", "an", "er", "in", "on", "or"];
            out.extend_from_slice(start[self.skewed(start.len() as u64) as usize].as_bytes());
            out.extend_from_slice(middle[self.skewed(middle.len() as u64) as usize].as_bytes());
        }
    }
}

/// The word for a number, always the same.
fn name(number: u64, syllables: u64) -> String {
    let mut word = Vec::new();
    Dice(number).word(syllables, &mut word);
    String::from_utf8(word).expect("syllables are letters")
}

impl KeyFamily {
    /// All families.
    pub const ALL: [KeyFamily; 10] = [
        KeyFamily::Decimal,
        KeyFamily::Hex,
        KeyFamily::User,
        KeyFamily::Binary,
        KeyFamily::Url,
        KeyFamily::Path,
        KeyFamily::Words,
        KeyFamily::Geographic,
        KeyFamily::Segmented,
        KeyFamily::LongPrefix,
    ];

    /// The family's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            KeyFamily::Decimal => "decimal",
            KeyFamily::Hex => "hex",
            KeyFamily::User => "YCSB user",
            KeyFamily::Binary => "random binary",
            KeyFamily::Url => "URL-like",
            KeyFamily::Path => "file paths",
            KeyFamily::Words => "words",
            KeyFamily::Geographic => "geographic codes",
            KeyFamily::Segmented => "segmented",
            KeyFamily::LongPrefix => "long equal prefix",
        }
    }

    /// Returns `count` different keys, ascending.
    pub fn keys(self, count: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut dice = Dice(seed ^ (self as u64 + 1) << 56);
        let (mut keys, mut state) = (Vec::with_capacity(count), 0);
        while keys.len() < count {
            let lacking = count - keys.len();
            keys.extend((0..lacking).map(|_| self.key(&mut dice, &mut state)));
            keys.sort_unstable();
            keys.dedup();
        }
        keys
    }

    /// `state` is a number that ascends from key to key.
    fn key(self, dice: &mut Dice, state: &mut u64) -> Vec<u8> {
        match self {
            KeyFamily::Decimal => {
                *state += 1 + dice.below(6);
                format!("k{state:010}").into_bytes()
            }
            KeyFamily::Hex => format!("{:016x}", dice.next()).into_bytes(),
            KeyFamily::User => format!("user{}", dice.next() >> 1).into_bytes(),
            KeyFamily::Binary => [dice.next().to_le_bytes(), dice.next().to_le_bytes()].concat(),
            KeyFamily::Url => url(dice),
            KeyFamily::Path => path(dice),
            KeyFamily::Words => {
                let mut words = Vec::new();
                dice.word(3, &mut words);
                words.push(b' ');
                dice.word(4, &mut words);
                words
            }
            KeyFamily::Geographic => geohash(dice),
            KeyFamily::Segmented => {
                *state += 1;
                if dice.below(100) == 0 {
                    *state += dice.below(1_000_000);
                }
                format!("{state:012}").into_bytes()
            }
            KeyFamily::LongPrefix => {
                let mut key = vec![b'p'; 40];
                dice.letters(8, b"abcdefghijklmnopqrstuvwxyz", &mut key);
                key
            }
        }
    }
}

fn url(dice: &mut Dice) -> Vec<u8> {
    let host = ["http://example.com", "https://shop.example.org", "https://www.news.example.net"];
    let host = host[dice.skewed(3) as usize];
    let (section, page) = (name(dice.skewed(300), 3), name(1000 + dice.skewed(20_000), 4));
    format!("{host}/{section}/{page}?id={}", dice.below(1_000_000)).into_bytes()
}

fn path(dice: &mut Dice) -> Vec<u8> {
    let root = ["/usr/share", "/usr/lib", "/srv/ann", "/var/log", "/opt"][dice.skewed(5) as usize];
    let directories = [(1, 200), (2, 2000)].map(|(level, count)| name(level << 32 | dice.skewed(count), 3));
    let [outer, inner] = directories;
    let ending = ["txt", "so", "h", "json", "log.gz"][dice.below(5) as usize];
    format!("{root}/{outer}/{inner}/{}{}.{ending}", name(dice.below(4000), 3), dice.below(100)).into_bytes()
}

/// Interleaves bits of longitude and latitude, five bits a character.
fn geohash(dice: &mut Dice) -> Vec<u8> {
    const CHARACTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let town = Dice(dice.skewed(5000)).next();
    // 45 bits: 25 bits of the town, then a point near its middle.
    let near = (dice.below(1 << 20) + dice.below(1 << 20)) / 2;
    let bits = town >> 39 << 20 | near;
    let mut key: Vec<u8> = (0..9).rev().map(|at| CHARACTERS[(bits >> (5 * at) & 31) as usize]).collect();
    key.extend_from_slice(format!("-{:03}", dice.below(1000)).as_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each family returns the requested number of different keys, ascending, and the same keys each time.
    #[test]
    fn families_have_keys() {
        for family in KeyFamily::ALL {
            let keys = family.keys(5000, 7);
            assert_eq!(keys.len(), 5000, "{}", family.name());
            assert!(keys.is_sorted_by(|a, b| a < b), "{}", family.name());
            assert_eq!(keys, family.keys(5000, 7));
        }
    }
}
