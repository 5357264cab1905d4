//! Gaps compared with a history of writes, which has the live keys at every bound.

use std::collections::BTreeMap;

use super::*;
use crate::base::id::{KeyspaceId, PartitionId};
use crate::io::sim::SimRng;

const TREE: TreeId = tree(1);

const fn tree(keyspace: u32) -> TreeId {
    TreeId { keyspace: KeyspaceId(keyspace), partition: PartitionId(1) }
}

/// Few keys, so that stretches meet; some are prefixes of others.
fn key(rng: &mut SimRng) -> Vec<u8> {
    (0..rng.below(4)).map(|_| rng.below(3) as u8).collect()
}

fn end(rng: &mut SimRng) -> GapEnd {
    if rng.one_in(6) { GapEnd::OfTree } else { GapEnd::Before(key(rng)) }
}

/// A commit under way: the keys that it puts and deletes.
struct Commit {
    items: Vec<(Vec<u8>, bool)>,
    inserted: usize,
    has_begun: bool,
    last: Sequence,
}

/// A reader; its snapshot was fixed when it began.
#[derive(Clone)]
struct Reader {
    sight: Sight,
    /// Number of ingests in its view.
    ingests: usize,
}

/// A store reduced to keys: histories, and commits and ingests under way.
struct World {
    gaps: Gaps,
    rng: SimRng,
    /// For each key, sequence numbers and whether it was put.
    history: BTreeMap<Vec<u8>, Vec<(Sequence, bool)>>,
    /// Keys of each ingest, with the last sequence number before it.
    ingests: Vec<(Vec<Vec<u8>>, Sequence)>,
    visible: Sequence,
    commit: Option<Commit>,
    readers: Vec<Reader>,
    skipped: u64,
    learned: u64,
}

impl World {
    fn lives(&self, key: &[u8], reader: &Reader) -> bool {
        let writes = self.history.get(key).into_iter().flatten();
        let last = writes.rev().find(|(sequence, _)| *sequence <= reader.sight.bound);
        let ingests = self.ingests[..reader.ingests].iter();
        let ingested = ingests.rev().find(|(keys, _)| keys.iter().any(|one| one == key));
        match (last, ingested) {
            (last, None) => last.is_some_and(|(_, is_put)| *is_put),
            (None, Some(_)) => true,
            (Some((sequence, is_put)), Some((_, before))) => sequence <= before || *is_put,
        }
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys: Vec<_> = self.history.keys().cloned().collect();
        keys.extend(self.ingests.iter().flat_map(|(keys, _)| keys.clone()));
        keys
    }

    /// Performs the next step of the commit under way, or begins a commit.
    fn write(&mut self) {
        let Some(mut commit) = self.commit.take() else {
            let deletes = self.rng.one_in(2);
            let items: Vec<_> = (0..1 + self.rng.below(4))
                .map(|_| (key(&mut self.rng), !deletes && self.rng.one_in(2)))
                .collect();
            let last = self.visible + items.len() as u64;
            self.commit = Some(Commit { items, inserted: 0, has_begun: false, last });
            return;
        };
        if !commit.has_begun {
            self.gaps.begin(commit.last);
            commit.has_begun = true;
            self.commit = Some(commit);
            return;
        }
        if let Some((key, is_put)) = commit.items.get(commit.inserted) {
            commit.inserted += 1;
            let sequence = self.visible + commit.inserted as u64;
            match is_put {
                true => self.gaps.cut(TREE, key),
                false => self.gaps.grow(TREE, key, sequence),
            }
            self.history.entry(key.clone()).or_default().push((sequence, *is_put));
            self.commit = Some(commit);
        } else {
            self.visible = commit.last;
        }
    }

    /// A whole ingest, while no commit is under way, as an ingest holds the lead; readers begin during it.
    fn ingest(&mut self) {
        while self.commit.is_some() {
            self.write();
        }
        let keys: Vec<_> = (0..1 + self.rng.below(3)).map(|_| key(&mut self.rng)).collect();
        let gaps = std::mem::replace(&mut self.gaps, Gaps::new());
        let closed = gaps.close();
        let amid = |world: &mut World| {
            let era = gaps.era();
            world.readers.push(Reader {
                sight: Sight { tree: TREE, bound: world.visible, era },
                ingests: world.ingests.len(),
            });
            for reader in world.readers.clone() {
                if let Some(span) = world.dead(&reader) {
                    gaps.learn(reader.sight, span);
                }
                assert_eq!(gaps.beyond(reader.sight, Bound::Unbounded, Direction::Forward), None);
            }
        };
        amid(self);
        self.ingests.push((keys, self.visible));
        amid(self);
        drop(closed);
        self.gaps = gaps;
    }

    fn begin(&mut self) {
        let sight = Sight { tree: TREE, bound: self.visible, era: self.gaps.era() };
        if self.readers.len() > 6 {
            let index = self.rng.index(self.readers.len());
            self.readers.swap_remove(index);
        }
        self.readers.push(Reader { sight, ingests: self.ingests.len() });
    }

    /// A span without live keys for the reader, as long as possible from a random key.
    fn dead(&mut self, reader: &Reader) -> Option<KeySpan> {
        let (from, to) = (key(&mut self.rng), end(&mut self.rng));
        let keys = self.keys();
        let live = keys.iter().filter(|key| **key >= from && self.lives(key, reader)).min();
        let to = live.map_or(to.clone(), |key| to.min(GapEnd::Before(key.clone())));
        Some(KeySpan { from, to }).filter(|span| !span.is_empty())
    }

    /// A reader asks for the next key from a random position: no key that it is told to skip lives.
    fn read(&mut self) {
        let reader = self.readers[self.rng.index(self.readers.len())].clone();
        if self.rng.one_in(2) {
            if let Some(span) = self.dead(&reader) {
                self.gaps.learn(reader.sight, span);
                self.learned += 1;
            }
            return;
        }
        let at = key(&mut self.rng);
        let from = match self.rng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(at.as_slice()),
            _ => Bound::Excluded(at.as_slice()),
        };
        let direction = if self.rng.one_in(2) { Direction::Forward } else { Direction::Backward };
        let Some(beyond) = self.gaps.beyond(reader.sight, from, direction) else { return };
        self.skipped += 1;
        let beyond = beyond.as_ref().map(|bound| bound.as_ref().map(Vec::as_slice));
        for key in self.keys() {
            let is_skipped = match direction {
                Direction::Forward => key >= first_from(from) && beyond.is_none_or(|to| key < first_from(to)),
                Direction::Backward => {
                    let key = GapEnd::Before(key.clone());
                    key < end_of(from) && beyond.is_none_or(|to| key >= end_of(to))
                }
            };
            assert!(!is_skipped || !self.lives(&key, &reader), "{key:?} from {from:?} to {beyond:?}");
        }
    }
}

/// For any interleaving of writers and readers, no gap returned to a reader has a key that lives for it; and
/// gaps are found.
#[test]
fn nothing_that_lives_is_skipped() {
    let (mut skipped, mut learned) = (0, 0);
    for seed in 0..300 {
        let mut world = World {
            gaps: Gaps::new(),
            rng: SimRng::new(seed),
            history: BTreeMap::new(),
            ingests: Vec::new(),
            visible: 0,
            commit: None,
            readers: Vec::new(),
            skipped: 0,
            learned: 0,
        };
        world.begin();
        for _ in 0..400 {
            match world.rng.below(100) {
                0 => world.ingest(),
                1 => world.gaps.age(),
                2..40 => world.write(),
                40..60 => world.begin(),
                _ => world.read(),
            }
        }
        let all = world.gaps.part(TREE).all.lock();
        let stretches = all.trees.values().flatten();
        assert_eq!(all.bytes, stretches.map(|(from, one)| super::bytes(from, &one.to)).sum::<usize>());
        skipped += world.skipped;
        learned += world.learned;
    }
    assert!(skipped > 2000 && learned > 10_000, "{skipped} skipped, {learned} learned");
}

fn sight(bound: Sequence) -> Sight {
    Sight { tree: TREE, bound, era: 0 }
}

fn span(from: &str, to: &str) -> KeySpan {
    KeySpan { from: from.into(), to: GapEnd::Before(to.into()) }
}

fn forward(gaps: &Gaps, bound: Sequence, from: &str) -> Option<Vec<u8>> {
    let beyond = gaps.beyond(sight(bound), Bound::Included(from.as_bytes()), Direction::Forward)?;
    match beyond {
        Some(Bound::Included(key)) => Some(key),
        other => panic!("{other:?}"),
    }
}

/// If nothing is written meanwhile, a scan that finds a stretch empty makes it a gap at once; beside a
/// commit, the next scan that begins after that commit does. Adjacent gaps are joined.
#[test]
fn scans_make_gaps_only_if_they_see_every_put() {
    let gaps = Gaps::new();
    assert!(!gaps.is_any(TREE));
    gaps.begin(10);
    gaps.learn(sight(10), span("b", "d"));
    assert_eq!(forward(&gaps, 10, "c"), Some(b"d".to_vec()));
    assert_eq!(forward(&gaps, 9, "c"), None, "it was not empty then, for all that is known");
    assert_eq!(forward(&gaps, 10, "d"), None);
    // A commit is under way.
    gaps.begin(12);
    gaps.learn(sight(10), span("d", "f"));
    assert_eq!(forward(&gaps, 12, "e"), None, "the commit may put what was not looked at");
    gaps.learn(sight(12), span("d", "e"));
    assert_eq!(forward(&gaps, 12, "b"), Some(b"e".to_vec()), "one gap");
    let back = gaps.beyond(sight(12), Bound::Excluded(b"e"), Direction::Backward);
    assert_eq!(back, Some(Some(Bound::Excluded(b"b".to_vec()))));
    // A put key lies between gaps, and puts in other trees cut nothing.
    gaps.cut(tree(2), b"c");
    gaps.cut(TREE, b"c");
    assert_eq!(forward(&gaps, 12, "b"), Some(b"c".to_vec()));
    assert_eq!(forward(&gaps, 12, "c"), None);
    assert_eq!(forward(&gaps, 12, "c0"), Some(b"e".to_vec()));
}

/// Stretches not used since the last call are forgotten; many stretches stay within their bytes.
#[test]
fn gaps_are_few() {
    let gaps = Gaps::new();
    gaps.learn(sight(0), span("b", "d"));
    gaps.learn(sight(0), span("f", "h"));
    gaps.age();
    assert!(forward(&gaps, 0, "b").is_some());
    gaps.age();
    assert!(forward(&gaps, 0, "g").is_none() && forward(&gaps, 0, "c").is_some());
    gaps.age();
    gaps.age();
    assert!(!gaps.is_any(TREE));
    for number in 0..10_000u32 {
        let from = number.to_be_bytes().to_vec();
        let to = GapEnd::Before([&from[..], &[1]].concat());
        gaps.learn(sight(0), KeySpan { from, to });
        assert!(gaps.part(TREE).all.lock().bytes <= BYTES_MAX);
    }
    assert!(gaps.is_any(TREE));
}

/// The pieces of a gap that many puts cut stay within the same bytes. (Each put left one more piece, without
/// an end.)
#[test]
fn gaps_that_are_cut_stay_few() {
    let gaps = Gaps::new();
    gaps.learn(sight(0), KeySpan { from: Vec::new(), to: GapEnd::OfTree });
    let mut most_bytes = 0;
    for number in 0..10_000u32 {
        gaps.cut(TREE, &number.to_be_bytes());
        most_bytes = most_bytes.max(gaps.part(TREE).all.lock().bytes);
    }
    assert!((BYTES_MAX / 2..=BYTES_MAX).contains(&most_bytes), "{most_bytes} bytes");
}
