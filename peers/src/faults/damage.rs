//! The faults made in the files of a closed store.

use super::image::{Image, PAGE_BYTES, written_pages};
use super::items::Made;
use super::random::Random;
use crate::engines::Peer;

/// Kinds of faults, in the order of the tables.
pub(super) const KINDS: [&str; 5] = ["flipped bit", "cut short", "4 KiB zeroed", "missing", OLDER];

pub(super) const OLDER: &str = "older copy";

/// A fault of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Flip {
        offset: usize,
        bit: u8,
    },
    Cut {
        bytes: usize,
    },
    Zero {
        offset: usize,
    },
    Missing,
    /// The file's own bytes at an earlier moment, by the index of that moment.
    Older {
        moment: usize,
    },
}

/// One fault in one file.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) class: &'static str,
    pub(super) file: String,
    pub(super) fault: Fault,
}

impl Fault {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Fault::Flip { .. } => KINDS[0],
            Fault::Cut { .. } => KINDS[1],
            Fault::Zero { .. } => KINDS[2],
            Fault::Missing => KINDS[3],
            Fault::Older { .. } => OLDER,
        }
    }

    fn apply(&self, bytes: &[u8], older: impl Fn(usize) -> Vec<u8>) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        match self {
            Fault::Flip { offset, bit } => bytes[*offset] ^= 1 << bit,
            Fault::Cut { bytes: left } => bytes.truncate(*left),
            Fault::Zero { offset } => {
                let end = bytes.len().min(offset + PAGE_BYTES);
                bytes[*offset..end].fill(0);
            }
            Fault::Missing => return None,
            Fault::Older { moment } => return Some(older(*moment)),
        }
        Some(bytes)
    }
}

impl Case {
    /// The damaged file's bytes; `None` if the file is removed.
    pub(super) fn bytes(&self, made: &Made) -> Option<Vec<u8>> {
        let older = |moment: usize| made.earlier[moment].files[&self.file].clone();
        self.fault.apply(&made.image.files[&self.file], older)
    }

    pub(super) fn told(&self) -> String {
        format!("{}: {:?}", self.file, self.fault)
    }
}

/// A page of one file that was ever written: one that is not all zeros.
struct Stretch<'i> {
    file: &'i str,
    offset: usize,
    bytes: usize,
}

/// Every case of the run. Each class of files has `flips` flipped bits, a fifth as many cuts and a tenth as
/// many zeroed pages, at random offsets of pages that were ever written. Each file is also removed once, and
/// replaced by each of its older states. A class with fewer bits, bytes or pages has each of them once.
pub(super) fn cases(peer: &Peer, made: &Made, flips: usize, seed: u64) -> Vec<Case> {
    let mut all = Vec::new();
    for class in classes(peer, &made.image) {
        let names: Vec<&str> = names(peer, &made.image, class).collect();
        let stretches: Vec<Stretch<'_>> =
            names.iter().flat_map(|file| stretches(file, &made.image.files[*file])).collect();
        let mut random = Random::new(seed, &format!("{} {class}", peer.name));
        let mut push = |file: &str, fault: Fault| all.push(Case { class, file: file.to_owned(), fault });
        let total: usize = stretches.iter().map(|one| one.bytes).sum();
        for at in random.some_below(total as u64 * 8, flips) {
            let (file, offset) = place(&stretches, (at / 8) as usize);
            push(file, Fault::Flip { offset, bit: (at % 8) as u8 });
        }
        for at in random.some_below(total as u64, flips.div_ceil(5)) {
            let (file, bytes) = place(&stretches, at as usize);
            push(file, Fault::Cut { bytes });
        }
        for at in random.some_below(stretches.len() as u64, flips.div_ceil(10)) {
            let one = &stretches[at as usize];
            push(one.file, Fault::Zero { offset: one.offset });
        }
        for file in names {
            push(file, Fault::Missing);
            for moment in older_moments(made, file) {
                push(file, Fault::Older { moment });
            }
        }
    }
    all
}

fn classes(peer: &Peer, image: &Image) -> Vec<&'static str> {
    let mut classes: Vec<&'static str> = image.files.keys().filter_map(|file| (peer.class)(file)).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

fn names<'i>(peer: &Peer, image: &'i Image, class: &'static str) -> impl Iterator<Item = &'i str> {
    let of = peer.class;
    image.files.keys().map(String::as_str).filter(move |file| of(file) == Some(class))
}

fn stretches<'i>(file: &'i str, bytes: &[u8]) -> Vec<Stretch<'i>> {
    let pages = written_pages(bytes).into_iter();
    pages.map(|offset| Stretch { file, offset, bytes: PAGE_BYTES.min(bytes.len() - offset) }).collect()
}

/// File and offset of the byte with this number.
fn place<'i>(stretches: &[Stretch<'i>], mut number: usize) -> (&'i str, usize) {
    for one in stretches {
        if number < one.bytes {
            return (one.file, one.offset + number);
        }
        number -= one.bytes;
    }
    panic!("a number below the sum of all stretches lies in one")
}

/// Moments at which the file existed with other bytes than now, one for each such state.
fn older_moments(made: &Made, file: &str) -> Vec<usize> {
    let mut states: Vec<&Vec<u8>> = vec![&made.image.files[file]];
    let mut moments = Vec::new();
    for (moment, image) in made.earlier.iter().enumerate() {
        if let Some(bytes) = image.files.get(file)
            && !states.contains(&bytes)
        {
            states.push(bytes);
            moments.push(moment);
        }
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::peers;

    /// Each fault changes the file that it names, and every class has every kind of fault but older copies.
    #[test]
    fn every_case_changes_its_file() {
        for peer in peers() {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let made = super::super::items::make(&peer, directory.path()).expect(peer.name);
            let all = cases(&peer, &made, 30, 1);
            for class in classes(&peer, &made.image) {
                for kind in &KINDS[..4] {
                    let count = all.iter().filter(|case| case.class == class && case.fault.kind() == *kind);
                    assert!(count.count() > 0, "{}: {class} {kind}", peer.name);
                }
            }
            for case in all {
                let bytes = case.bytes(&made);
                assert_ne!(bytes.as_ref(), Some(&made.image.files[&case.file]), "{}", case.told());
            }
        }
    }
}
