//! Damage to files at rest: every kind of damage of lines F12 to F16 of the fault model.

use crate::rng::Rng;
use crate::support::Files;

use super::states::State;

pub(crate) const SECTOR_BYTES: usize = 512;
pub(crate) const PAGE_BYTES: usize = 4096;

/// One fault in the files of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Flip {
        file: String,
        bit: usize,
    },
    Truncated {
        file: String,
        length: usize,
    },
    Extended {
        file: String,
        with: Filler,
        bytes: usize,
    },
    /// A range of the file is overwritten.
    Overwritten {
        file: String,
        from: usize,
        bytes: usize,
        with: Filler,
    },
    /// Two blocks are swapped.
    Swapped {
        one: (String, usize),
        other: (String, usize),
        bytes: usize,
    },
    /// A lost write: a block has its contents of an earlier moment.
    Stale {
        file: String,
        from: usize,
        bytes: usize,
        moment: usize,
    },
    /// The whole file has its contents of an earlier moment.
    PutBack {
        file: String,
        moment: usize,
    },
    Missing {
        file: String,
    },
    /// A copy of the file exists under another number.
    Duplicated {
        file: String,
        name: String,
    },
    Renamed {
        file: String,
        name: String,
    },
    /// Two files have swapped names.
    Exchanged {
        one: String,
        other: String,
    },
}

/// The contents of damaged bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filler {
    Zeros,
    Garbage(u64),
    /// The beginning of the file itself.
    Itself,
}

impl Filler {
    fn bytes(self, count: usize, itself: &[u8]) -> Vec<u8> {
        match self {
            Filler::Zeros => vec![0; count],
            Filler::Garbage(seed) => {
                let mut rng = Rng::new(seed);
                (0..count).map(|_| rng.u64() as u8).collect()
            }
            Filler::Itself => itself.iter().copied().cycle().take(count).collect(),
        }
    }
}

/// Changed files; `None`: removed.
pub(crate) type Changes = Vec<(String, Option<Vec<u8>>)>;

impl Fault {
    /// The files that the fault changes, if any.
    pub(crate) fn changes(&self, state: &State) -> Changes {
        let mut changes = self.all_changes(state);
        changes.retain(|(name, bytes)| state.files.get(name) != bytes.as_ref());
        changes
    }

    fn all_changes(&self, state: &State) -> Changes {
        let files = &state.files;
        let changed = |file: &String, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = files[file].clone();
            change(&mut bytes);
            vec![(file.clone(), Some(bytes))]
        };
        match self {
            Fault::Flip { file, bit } => changed(file, &|bytes| bytes[bit / 8] ^= 1 << (bit % 8)),
            Fault::Truncated { file, length } => changed(file, &|bytes| bytes.truncate(*length)),
            Fault::Extended { file, with, bytes: count } => {
                changed(file, &|bytes| bytes.extend(with.bytes(*count, &files[file])))
            }
            Fault::Overwritten { file, from, bytes: count, with } => changed(file, &|bytes| {
                let end = bytes.len().min(from + count);
                bytes[*from..end].copy_from_slice(&with.bytes(end - from, &files[file]));
            }),
            Fault::Swapped { one, other, bytes } => swapped(files, one, other, *bytes),
            Fault::Stale { file, from, bytes: count, moment } => {
                let old = &state.earlier[*moment].files[file];
                changed(file, &|bytes| {
                    let end = bytes.len().min(old.len()).min(from + count);
                    bytes[*from..end].copy_from_slice(&old[*from..end]);
                })
            }
            Fault::PutBack { file, moment } => {
                vec![(file.clone(), Some(state.earlier[*moment].files[file].clone()))]
            }
            Fault::Missing { file } => vec![(file.clone(), None)],
            Fault::Duplicated { file, name } => vec![(name.clone(), Some(files[file].clone()))],
            Fault::Renamed { file, name } => {
                vec![(file.clone(), None), (name.clone(), Some(files[file].clone()))]
            }
            Fault::Exchanged { one, other } => {
                vec![(one.clone(), Some(files[other].clone())), (other.clone(), Some(files[one].clone()))]
            }
        }
    }

    /// The files that an error may name.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Fault::Flip { file, .. }
            | Fault::Truncated { file, .. }
            | Fault::Extended { file, .. }
            | Fault::Overwritten { file, .. }
            | Fault::Stale { file, .. }
            | Fault::PutBack { file, .. }
            | Fault::Missing { file } => vec![file],
            Fault::Duplicated { file, name } | Fault::Renamed { file, name } => vec![file, name],
            Fault::Swapped { one, other, .. } => vec![&one.0, &other.0],
            Fault::Exchanged { one, other } => vec![one, other],
        }
    }
}

fn swapped(files: &Files, one: &(String, usize), other: &(String, usize), count: usize) -> Changes {
    let block = |(file, from): &(String, usize)| files[file][*from..from + count].to_vec();
    let (first, second) = (block(one), block(other));
    let mut changes: Changes = Vec::new();
    for ((file, from), bytes) in [(one, second), (other, first)] {
        if !changes.iter().any(|(name, _)| name == file) {
            changes.push((file.clone(), Some(files[file].clone())));
        }
        let place = changes.iter_mut().find(|(name, _)| name == file).and_then(|(_, bytes)| bytes.as_mut());
        place.expect("it was added")[*from..from + count].copy_from_slice(&bytes);
    }
    changes
}

/// The length of the used part of a file; the zeros after it are unused space.
fn used_bytes(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1)
}

/// A random file, weighted by its used length.
fn any_file<'s>(state: &'s State, rng: &mut Rng) -> (&'s String, &'s Vec<u8>) {
    let all: usize = state.files.values().map(|bytes| used_bytes(bytes)).sum();
    let mut at = rng.below(all);
    let found = state.files.iter().find(|(_, bytes)| {
        let used = used_bytes(bytes);
        let is_in = at < used;
        at = at.wrapping_sub(used);
        is_in
    });
    found.expect("it is below the sum")
}

/// A random flipped bit: three of four in the used part, half of those in nonzero bytes.
pub(crate) fn flip(state: &State, rng: &mut Rng) -> Fault {
    let (file, bytes) = any_file(state, rng);
    let mut at = match rng.below(4) {
        0 => rng.below(bytes.len()),
        _ => rng.below(used_bytes(bytes)),
    };
    if rng.one_in(2) {
        at = (at..bytes.len()).find(|at| bytes[*at] != 0).unwrap_or(at);
    }
    Fault::Flip { file: file.clone(), bit: at * 8 + rng.below(8) }
}

pub(crate) fn truncation(state: &State, rng: &mut Rng) -> Fault {
    let (file, bytes) = any_file(state, rng);
    let length = match rng.below(3) {
        0 => rng.below(bytes.len()),
        1 => rng.below(bytes.len() / SECTOR_BYTES) * SECTOR_BYTES,
        _ => rng.below(used_bytes(bytes)),
    };
    Fault::Truncated { file: file.clone(), length }
}

/// Every sector, page and whole file, overwritten with zeros and with garbage.
pub(crate) fn overwritten(state: &State) -> Vec<Fault> {
    let mut all = Vec::new();
    for (file, bytes) in &state.files {
        for count in [SECTOR_BYTES, PAGE_BYTES, bytes.len()] {
            for (index, from) in (0..bytes.len()).step_by(count).enumerate() {
                for with in [Filler::Zeros, Filler::Garbage(index as u64)] {
                    all.push(Fault::Overwritten { file: file.clone(), from, bytes: count, with });
                }
            }
        }
    }
    all
}

pub(crate) fn extensions(state: &State) -> Vec<Fault> {
    let mut all = Vec::new();
    for (file, bytes) in &state.files {
        for count in [1, SECTOR_BYTES, PAGE_BYTES, bytes.len()] {
            for with in [Filler::Zeros, Filler::Garbage(count as u64), Filler::Itself] {
                all.push(Fault::Extended { file: file.clone(), with, bytes: count });
            }
        }
    }
    all
}

/// Faults of the first page of STORE: every bit of its header, bits and sectors of the rest, the whole page,
/// the first page of every other file in its place, and the file truncated within it.
pub(crate) fn of_store_page(state: &State) -> Vec<Fault> {
    const HEADER_BYTES: usize = 52;
    let file = || "STORE".to_owned();
    let rest = (0..128).map(|index| HEADER_BYTES * 8 + index * 251 % ((PAGE_BYTES - HEADER_BYTES) * 8));
    let mut all: Vec<Fault> =
        (0..HEADER_BYTES * 8).chain(rest).map(|bit| Fault::Flip { file: file(), bit }).collect();
    let spans = (0..PAGE_BYTES).step_by(SECTOR_BYTES).map(|from| (from, SECTOR_BYTES));
    for (from, bytes) in spans.chain([(0, PAGE_BYTES)]) {
        for with in [Filler::Zeros, Filler::Garbage(from as u64)] {
            all.push(Fault::Overwritten { file: file(), from, bytes, with });
        }
    }
    all.extend((0..=PAGE_BYTES).step_by(128).map(|length| Fault::Truncated { file: file(), length }));
    let others = state.files.keys().filter(|name| *name != "STORE").cloned();
    all.extend(others.map(|other| Fault::Swapped { one: (file(), 0), other: (other, 0), bytes: PAGE_BYTES }));
    all
}

/// Swapped blocks, within a file and between two: each with its neighbour, and `count` random pairs.
pub(crate) fn swaps(state: &State, rng: &mut Rng, count: usize) -> Vec<Fault> {
    let mut all = Vec::new();
    let names: Vec<&String> = state.files.keys().collect();
    for (file, bytes) in &state.files {
        for (from, bytes) in (0..used_bytes(bytes).saturating_sub(PAGE_BYTES))
            .step_by(PAGE_BYTES)
            .zip([bytes].into_iter().cycle())
        {
            if from + 2 * PAGE_BYTES <= bytes.len() {
                let other = (file.clone(), from + PAGE_BYTES);
                all.push(Fault::Swapped { one: (file.clone(), from), other, bytes: PAGE_BYTES });
            }
        }
    }
    // The damaged record, and the slot that covers it.
    for (file, bytes) in state.files.iter().filter(|(file, _)| matches!(kind(file), "log" | "manifest")) {
        for count in [SECTOR_BYTES, PAGE_BYTES] {
            for other in (3 * PAGE_BYTES..used_bytes(bytes)).step_by(count) {
                all.extend([PAGE_BYTES, 2 * PAGE_BYTES].map(|slot| Fault::Swapped {
                    one: (file.clone(), slot),
                    other: (file.clone(), other),
                    bytes: count,
                }));
            }
        }
    }
    for _ in 0..count {
        let bytes = *rng.choose(&[SECTOR_BYTES, PAGE_BYTES]);
        let mut place = |state: &State| {
            let file = *rng.choose(&names);
            let blocks = used_bytes(&state.files[file]).div_ceil(bytes).min(state.files[file].len() / bytes);
            (file.clone(), rng.below(blocks.max(1)) * bytes)
        };
        let (one, other) = (place(state), place(state));
        if one != other {
            all.push(Fault::Swapped { one, other, bytes });
        }
    }
    // The same offset in two files of a kind, as by a misdirected write.
    for (index, one) in names.iter().enumerate() {
        for other in names[index + 1..].iter().filter(|other| kind(other) == kind(one)) {
            let length = state.files[*one].len().min(state.files[*other].len());
            for from in (0..length / PAGE_BYTES * PAGE_BYTES).step_by(PAGE_BYTES) {
                let (one, other) = ((one.to_string(), from), (other.to_string(), from));
                all.push(Fault::Swapped { one, other, bytes: PAGE_BYTES });
            }
        }
    }
    all
}

/// Every block and every file of every earlier moment that differs from now.
pub(crate) fn stale(state: &State) -> Vec<Fault> {
    let mut all = Vec::new();
    for (moment, earlier) in state.earlier.iter().enumerate() {
        for (file, old) in &earlier.files {
            let Some(new) = state.files.get(file) else { continue };
            if old != new {
                all.push(Fault::PutBack { file: file.clone(), moment });
            }
            for count in [SECTOR_BYTES, PAGE_BYTES] {
                let places = (0..old.len().min(new.len())).step_by(count);
                let differs = |from: &usize| {
                    let end = old.len().min(new.len()).min(from + count);
                    old[*from..end] != new[*from..end]
                };
                let stale = places.filter(differs);
                all.extend(stale.map(|from| Fault::Stale { file: file.clone(), from, bytes: count, moment }));
            }
        }
    }
    all
}

/// Missing, duplicated, renamed and exchanged files.
pub(crate) fn of_names(state: &State) -> Vec<Fault> {
    let mut all = Vec::new();
    for (index, file) in state.files.keys().enumerate() {
        all.push(Fault::Missing { file: file.clone() });
        for other in state.files.keys().skip(index + 1) {
            all.push(Fault::Exchanged { one: file.clone(), other: other.clone() });
        }
        let Some((kind, number)) = file.split_once('-') else { continue };
        let number = u64::from_str_radix(number, 16).expect("it has a number");
        for (kind, number) in [
            (kind, number + 1),
            (kind, number + 0x400),
            (kind, 0xffff),
            ("history", number),
            ("table", 0xfff0),
        ] {
            let name = format!("{kind}-{number:016x}");
            if state.files.contains_key(&name) {
                continue;
            }
            all.push(Fault::Duplicated { file: file.clone(), name: name.clone() });
            all.push(Fault::Renamed { file: file.clone(), name });
        }
    }
    all
}

/// The kind of a file, by its name.
pub(crate) fn kind(file: &str) -> &str {
    file.split('-').next().expect("a name has a first part")
}
