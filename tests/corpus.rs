//! The corpus of the fuzz targets, replayed: every input of `fuzz/corpus`, and every file of the fixtures.
//! They run unchanged and with corrected checksums, through the functions and under the memory limits of the
//! fuzz targets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use trine::fuzz::{Mode, short};
use trine::inspect;
use trine_fuzz_targets::{TARGETS, Target, allocations, measured};

use crate::damage::states;
use crate::rng::Rng;
use crate::support::{Files, Scratch};

#[global_allocator]
static COUNTING: allocations::Counting = allocations::Counting;

const MODES: [Mode; 2] = [Mode::Raw, Mode::Sealed];

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn inputs(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths.map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

fn of(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap()
}

/// Every input of the corpus runs in both modes without a finding.
#[test]
fn the_corpus_has_no_findings() {
    for target in TARGETS {
        let inputs = inputs(&corpus(target.name));
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for bytes in inputs.values() {
            MODES.iter().for_each(|mode| measured(target, bytes, *mode));
        }
    }
}

/// Every file of the fixtures runs whole, through each target for files, without a finding.
#[test]
fn fixtures_have_no_findings() {
    for store in ["store-v1", "store-v2", "store-v3", "store-v4"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(store);
        for (name, bytes) in inputs(&path) {
            for target in ["log", "manifest", "store", "footer", "data"] {
                MODES.iter().for_each(|mode| measured(of(target), &bytes, *mode));
            }
            assert!(!name.is_empty());
        }
    }
}

/// Every input of the corpus runs with random bytes changed: a small round of the fuzzer's long runs.
#[test]
fn changed_inputs_have_no_findings() {
    let mut rng = Rng::new(20);
    for target in TARGETS {
        let rounds = if target.name == "directory" { 3 } else { 60 };
        for bytes in inputs(&corpus(target.name)).values() {
            for round in 0..rounds {
                let mut changed = bytes.clone();
                for _ in 0..=rng.below(4) {
                    if changed.is_empty() {
                        break;
                    }
                    let at = rng.below(changed.len());
                    match rng.below(4) {
                        0 => changed[at] ^= 1 << rng.below(8),
                        1 => changed[at] = *rng.choose(&[0, 1, 0x7f, 0x80, 0xff]),
                        2 => changed.truncate(at),
                        _ => changed[at] = rng.u64() as u8,
                    }
                }
                measured(target, &changed, MODES[round % 2]);
            }
        }
    }
}

/// The largest lengths and counts on disk take no more memory than their input allows.
#[test]
fn f20_sizes_from_disk_bound_memory() {
    for target in TARGETS {
        for bytes in inputs(&corpus(target.name)).values() {
            let places = (0..bytes.len().min(160)).step_by(if target.name == "directory" { 40 } else { 2 });
            for at in places {
                for size in [u32::MAX, 1 << 31, 1 << 20, 0x7fff_ffff] {
                    let mut changed = bytes.clone();
                    let end = changed.len().min(at + 4);
                    changed[at..end].copy_from_slice(&size.to_le_bytes()[..end - at]);
                    measured(target, &changed, Mode::Sealed);
                }
            }
        }
    }
}

/// Writes the seeds of the corpus anew; inputs found by fuzzing stay.
#[test]
#[ignore = "it writes into the tree; run by hand"]
fn write_the_corpus() {
    for (target, seeds) in seeds() {
        let path = corpus(target);
        fs::create_dir_all(&path).unwrap();
        for (name, bytes) in seeds {
            fs::write(path.join(format!("seed-{name}")), bytes).unwrap();
        }
    }
    let [manifest, log] = states::files_by_keys().map(|bytes| short(&bytes).unwrap());
    fs::write(corpus("manifest").join("partitions-by-keys"), manifest).unwrap();
    fs::write(corpus("log").join("partitions-by-keys"), log).unwrap();
    let trie = states::tries();
    fs::write(
        corpus("manifest").join("trie"),
        short(&trie.files[states::vouched_bytes(&trie.files).1]).unwrap(),
    )
    .unwrap();
    let mut by_column = Vec::new();
    for (file, bytes) in trie.files.iter().filter(|(name, _)| name.starts_with("table")) {
        let columns = |page: &[u8]| page[6] == 4;
        parts(file, bytes, |target, _, page| {
            let is_wanted = target == "filters" && columns(page);
            by_column.extend(is_wanted.then(|| page.to_vec()));
        });
    }
    fs::write(corpus("filters").join("columns"), by_column.pop().unwrap()).unwrap();
    // The file with the most slices, most of them slices of nodes.
    let footers =
        trie.files.iter().filter(|(name, _)| name.starts_with("table")).map(|(_, bytes)| footer(bytes));
    fs::write(corpus("footer").join("trie"), footers.max_by_key(|footer| footer.len()).unwrap()).unwrap();
}

type Seeds = BTreeMap<&'static str, Vec<(String, Vec<u8>)>>;

fn seeds() -> Seeds {
    let mut seeds = Seeds::new();
    let mut put = |target: &'static str, name: String, bytes: &[u8]| {
        // Logs are cut short, because the fuzzer is faster with short ones.
        let bytes = bytes[..bytes.len().min(6 << 10)].to_vec();
        let all = seeds.entry(target).or_default();
        if all.iter().filter(|(_, other)| other.len() == bytes.len()).count() < 2 && all.len() < 8 {
            all.push((name, bytes));
        }
    };
    for (number, state) in states::all().iter().enumerate() {
        for (file, bytes) in &state.files {
            let name = format!("{number}-{file}");
            match crate::damage::faults::kind(file) {
                "log" => put("log", name, &short(bytes).unwrap()),
                "manifest" => put("manifest", name, &short(bytes).unwrap()),
                "STORE" => put("store", name, &short(bytes).unwrap()),
                "table" => {
                    parts(file, bytes, |target, part, block| put(target, format!("{name}-{part}"), block))
                }
                _ => {}
            }
            put("names", format!("{number}-{file}-name"), file.as_bytes());
        }
    }
    shapes(&mut put);
    seeds
}

/// The footer of a table.
fn footer(bytes: &[u8]) -> &[u8] {
    let tail = bytes.len() - 4096;
    &bytes[u64::from_le_bytes(*bytes[tail + 8..].first_chunk().unwrap()) as usize..tail]
}

/// The parts of a table, as a dump lists them, each for its fuzz target.
fn parts(file: &str, bytes: &[u8], mut put: impl FnMut(&'static str, u64, &[u8])) {
    let scratch = Scratch::new();
    let path = scratch.root().join(file);
    fs::write(&path, bytes).unwrap();
    let told = inspect::dump(&path, |part| {
        let (offset, length) = (part.offset as usize, part.bytes as usize);
        let (target, length) = match part.name {
            "footer, slices" => ("footer", length),
            "tail" => ("footer", 24),
            "data block" => ("data", length),
            "filter page" | "filter page by column, runs" => ("filters", length),
            "fence page, blocks" | "learned page, blocks" => ("fence", length),
            "top, fence pages" => ("top", length),
            "range tombstones" => ("ranges", length),
            _ => return,
        };
        assert_eq!(part.damage, None, "{file}");
        put(target, part.offset, &bytes[offset..offset + length]);
    });
    told.unwrap();
}

/// Shapes that made other stores fail: counts and lengths beyond the available bytes, zero counts where one
/// is needed, offsets backward or in circles, compressed bytes that claim a huge size, names that are paths.
fn shapes(put: &mut impl FnMut(&'static str, String, &[u8])) {
    let block = |tag: u8, numbers: &[(usize, u32)]| {
        let mut block = vec![0; 512];
        block[4] = tag;
        for (at, number) in numbers {
            block[*at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        block
    };
    put("footer", "many-slices".into(), &block(5, &[(8, 512), (12, u32::MAX)]));
    put("footer", "no-slices".into(), &block(5, &[(8, 24), (12, 0)]));
    put("top", "many-pages".into(), &block(4, &[(8, u32::MAX), (12, 512)])[..500]);
    put("ranges", "many-ranges".into(), &block(7, &[(8, u32::MAX), (12, 512)]));
    put("ranges", "long-extent".into(), &block(7, &[(8, 1), (12, u32::MAX)])[..400]);
    put("data", "many-items".into(), &block(1, &[(5, 0x00ff_ff0b), (8, 512), (16, u32::MAX)])[..510]);
    put("data", "compressed-to-much".into(), &block(1, &[(5, 16), (8, 512), (12, 1 << 20)]));
    put("fence", "many-blocks".into(), &block(3, &[(5, 0x00ff_ff02), (24, u32::MAX)]));
    put("filters", "no-pages".into(), &block(2, &[(5, 0x0001_0106), (8, 7), (12, 7)]));
    let record = |length: u32| [&[0; 92][..], &length.to_le_bytes(), &[1, 1], &[0; 14]].concat();
    put("log", "long-record".into(), &record(u32::MAX));
    put("log", "empty-record".into(), &record(0));
    put("manifest", "long-record".into(), &record(u32::MAX - 7));
    put("names", "path".into(), b"log-../../etc/passwd");
    put("names", "nul".into(), b"log-00000000000000\0\0");
    for number in 0..2u8 {
        put("directory", format!("sound-{number}"), &[number]);
        for file in 0..7u8 {
            let change = [number, file, 20 + file, 0x30, 0, 2, 0xff, 1, file, 0, 0x10 * file, 0, 1, 7];
            put("directory", format!("changed-{number}-{file}"), &change[..10 + usize::from(file % 2) * 4]);
        }
    }
}
