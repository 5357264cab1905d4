//! The demo's records: made from source files on this machine, or from a seed, and the same each time.
//!
//! Keyspace `files`: path → size, XXH3 of the text and its first line. Keyspace `words`: word ␟ path ␟
//! line:column → the line. The loading process and the checks each make them anew, so that the checks depend
//! on no other process.
//!
//! 1. Two iterations with the same sources and seed give the same records in the same order.
//! 2. No two records of a keyspace have the same key.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use trine_workload::dice::Dice;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Separates the parts of a key; sorts before every printable character.
pub(crate) const SEPARATOR: char = '\u{1f}';

/// The keyspaces' names, in the order of [`Record::keyspace`].
pub(crate) const KEYSPACES: [&str; 2] = ["files", "words"];
pub(crate) const FILES: usize = 0;
pub(crate) const WORDS: usize = 1;

const FILES_MAX: usize = 200_000;
const FILE_BYTES_MAX: u64 = 1 << 20;
const FILE_LINES_MAX: usize = 500;
const LINE_BYTES_MAX: usize = 160;
const WORD_BYTES: std::ops::RangeInclusive<usize> = 3..=48;
const GENERATED_LINES: u64 = 200;

pub(crate) struct Record {
    /// Index into [`KEYSPACES`].
    pub(crate) keyspace: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Record {
    /// The hash that represents the key in the expectation.
    pub(crate) fn key_hash(&self) -> u64 {
        key_hash(self.keyspace, &self.key)
    }
}

pub(crate) fn key_hash(keyspace: usize, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, keyspace as u64)
}

/// The directories with sources of Rust packages here: cargo's registry, else the toolchain's own.
pub(crate) fn find_roots() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let at_home = |name: &str| home.as_ref().map(|home| home.join(name));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| at_home(".cargo"));
    let registry = cargo.map(|cargo| directories_in(&cargo.join("registry/src"))).unwrap_or_default();
    if !registry.is_empty() {
        return registry;
    }
    let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| at_home(".rustup"));
    let toolchains = rustup.map(|rustup| directories_in(&rustup.join("toolchains"))).unwrap_or_default();
    let library = toolchains.into_iter().map(|toolchain| toolchain.join("lib/rustlib/src/rust/library"));
    library.filter(|library| library.is_dir()).collect()
}

fn directories_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// The origin of texts.
#[derive(Clone)]
pub(crate) enum Sources {
    /// Files, in an order that mixes the packages: by the hash of their names.
    Files(Vec<SourceFile>),
    Generated,
}

#[derive(Clone)]
pub(crate) struct SourceFile {
    path: PathBuf,
    /// The path below the root.
    name: String,
}

impl Sources {
    pub(crate) fn find(roots: &[PathBuf], seed: u64) -> Sources {
        let mut files = Vec::new();
        for root in roots {
            collect(root, root, &mut files);
        }
        files.sort_by_cached_key(|file: &SourceFile| {
            (xxh3_64_with_seed(file.name.as_bytes(), seed), file.path.clone())
        });
        files.dedup_by(|one, other| one.name == other.name);
        if files.is_empty() { Sources::Generated } else { Sources::Files(files) }
    }

    /// The first `count` records.
    pub(crate) fn records(&self, seed: u64, count: u64) -> impl Iterator<Item = Record> + '_ {
        let records = Records { sources: self, seed, next_text: 0, ready: VecDeque::new() };
        records.take(usize::try_from(count).unwrap_or(usize::MAX))
    }
}

/// Appends the sources below `directory`; unreadable ones are skipped.
fn collect(root: &Path, directory: &Path, files: &mut Vec<SourceFile>) {
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(directory).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_dir() {
            collect(root, &path, files);
        } else if kind.is_file() && files.len() < FILES_MAX {
            let is_source = path
                .extension()
                .is_some_and(|extension| ["rs", "toml", "md"].iter().any(|one| extension == *one));
            let name = path.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_string);
            if let (true, Some(name)) = (is_source, name) {
                files.push(SourceFile { path, name });
            }
        }
    }
}

struct Records<'a> {
    sources: &'a Sources,
    seed: u64,
    next_text: usize,
    ready: VecDeque<Record>,
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.ready.is_empty() {
            let index = self.next_text;
            self.next_text += 1;
            match self.sources {
                Sources::Files(files) => {
                    let file = files.get(index)?;
                    let small =
                        fs::metadata(&file.path).is_ok_and(|metadata| metadata.len() <= FILE_BYTES_MAX);
                    if let (true, Ok(text)) = (small, fs::read_to_string(&file.path)) {
                        add_records(&file.name, &text, &mut self.ready);
                    }
                }
                Sources::Generated => {
                    let seed = self.seed.wrapping_add(index as u64);
                    add_records(&format!("generated/{index:08}.txt"), &generated_text(seed), &mut self.ready);
                }
            }
        }
        self.ready.pop_front()
    }
}

fn add_records(name: &str, text: &str, records: &mut VecDeque<Record>) {
    let first_line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let value = format!("{}\t{:016x}\t{}", text.len(), xxh3_64(text.as_bytes()), cut(first_line));
    records.push_back(Record { keyspace: FILES, key: name.as_bytes().to_vec(), value: value.into_bytes() });
    for (line_index, line) in text.lines().enumerate().take(FILE_LINES_MAX) {
        let value = cut(line.trim()).as_bytes();
        for (column, word) in words(line) {
            let key = format!("{word}{SEPARATOR}{name}{SEPARATOR}{:06}:{:05}", line_index + 1, column + 1);
            records.push_back(Record { keyspace: WORDS, key: key.into_bytes(), value: value.to_vec() });
        }
    }
}

/// The words of a line and the bytes before each.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = 0;
    std::iter::from_fn(move || {
        loop {
            let start = rest + line[rest..].find(is_part)?;
            let end = line[start..].find(|c| !is_part(c)).map_or(line.len(), |length| start + length);
            rest = end;
            if WORD_BYTES.contains(&(end - start)) {
                return Some((start, &line[start..end]));
            }
        }
    })
}

fn cut(line: &str) -> &str {
    let mut end = line.len().min(LINE_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

/// Lines of generated words, with frequent and rare words.
fn generated_text(seed: u64) -> String {
    let mut dice = Dice::new(seed);
    let mut text = String::new();
    for _ in 0..GENERATED_LINES {
        for _ in 0..3 + dice.below(9) {
            let bits = 1 + dice.below(16);
            let mut rank = 1 + dice.below(1 << bits);
            while rank > 0 {
                text.push_str(["ba", "ke", "li", "mo", "nu", "ra", "se", "ti"][(rank % 8) as usize]);
                rank /= 8;
            }
            text.push(' ');
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Records are the same each time, their keys are unique, and each record belongs to its name.
    #[test]
    fn records_are_the_same_each_time() {
        let all = |seed| {
            Sources::Generated.records(seed, 5000).map(|r| (r.keyspace, r.key, r.value)).collect::<Vec<_>>()
        };
        let first = all(7);
        assert_eq!(first.len(), 5000);
        assert_eq!(first, all(7));
        assert_ne!(first, all(8));
        assert_eq!(
            first.iter().map(|(keyspace, key, _)| (keyspace, key)).collect::<HashSet<_>>().len(),
            5000
        );
        let directory = tempfile::tempdir().expect("a temporary directory");
        let line = "fn größe() { x; größe }";
        fs::write(directory.path().join("a.rs"), format!("\n{line}\n")).expect("it takes the file");
        fs::write(directory.path().join("b.bin"), "left out").expect("it takes the file");
        let sources = Sources::find(&[directory.path().to_path_buf()], 1);
        let records: Vec<(String, String)> = sources
            .records(1, 100)
            .map(|r| (String::from_utf8(r.key).expect("text"), String::from_utf8(r.value).expect("text")))
            .collect();
        let start = format!("{}\t", line.len() + 2);
        assert!(records[0].0 == "a.rs" && records[0].1.starts_with(&start) && records[0].1.ends_with(line));
        assert_eq!(records[1], ("größe\u{1f}a.rs\u{1f}000002:00004".to_string(), line.to_string()));
        assert_eq!(records[2].0, "größe\u{1f}a.rs\u{1f}000002:00019");
        assert_eq!(records.len(), 3);
    }
}
