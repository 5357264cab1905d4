//! `cargo xtask hello`: the cost of an empty store for a program. The command builds the smallest program of
//! each store (open, put, get) from scratch in release mode, and prints the table of the README.
//!
//! Each program is a new package in a temporary directory with a target directory of its own, and all of its
//! crates are downloaded before the clock starts. The command needs the registry. The machine should be idle
//! otherwise.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::scratch::Scratch;

/// A store and its smallest program.
struct Hello {
    name: &'static str,
    /// The version requirement; `None`: the library of this tree.
    version: Option<&'static str>,
    /// The body of `main`. It prints `world`, as read from the store.
    body: &'static str,
}

const HELLOS: &[Hello] = &[
    Hello {
        name: "trine",
        version: None,
        body: r#"
    let db = trine::Db::open("data")?;
    let items = db.ordered("items").open()?;
    items.put("hello", "world")?;
    println!("{}", String::from_utf8_lossy(&items.get("hello")?.ok_or("absent")?));
    db.close()?;"#,
    },
    Hello {
        name: "redb",
        version: Some("4"),
        body: r#"
    let table: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("items");
    let db = redb::Database::create("data")?;
    let write = db.begin_write()?;
    write.open_table(table)?.insert(&b"hello"[..], &b"world"[..])?;
    write.commit()?;
    use redb::ReadableDatabase;
    let value = db.begin_read()?.open_table(table)?.get(&b"hello"[..])?.ok_or("absent")?;
    println!("{}", String::from_utf8_lossy(value.value()));"#,
    },
    Hello {
        name: "fjall",
        version: Some("3"),
        body: r#"
    let db = fjall::Database::builder("data").open()?;
    let items = db.keyspace("items", fjall::KeyspaceCreateOptions::default)?;
    items.insert("hello", "world")?;
    println!("{}", String::from_utf8_lossy(&items.get("hello")?.ok_or("absent")?));
    db.persist(fjall::PersistMode::Buffer)?;"#,
    },
];

/// The cost of one program.
struct Cost {
    version: String,
    seconds: f64,
    /// Processor time, which other load on the machine affects less; `None` if the system does not report it.
    processor_seconds: Option<f64>,
    crates: usize,
    binary_bytes: u64,
}

/// Builds all programs, one after another, and prints the table.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let scratch = Scratch::new("hello")?;
    let mut rows = String::new();
    for hello in HELLOS {
        let cost = build(root, scratch.path(), hello)?;
        let Cost { version, seconds, crates, .. } = &cost;
        let busy = cost.processor_seconds.map_or("?".to_owned(), |seconds| format!("{seconds:.0}"));
        let megabytes = cost.binary_bytes as f64 / 1e6;
        let name = hello.name;
        rows += &format!("| {name} {version} | {seconds:.0} s | {busy} s | {crates} | {megabytes:.1} MB |\n");
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let compiler = output(Command::new("rustc").arg("--version"))?;
    println!("On {cores} cores, {}:\n", compiler.trim());
    print!("| program | build | processors | crates | binary |\n|---|---|---|---|---|\n{rows}");
    Ok(())
}

fn build(root: &Path, scratch: &Path, hello: &Hello) -> Result<Cost, String> {
    let Hello { name, version, body } = hello;
    let package = Package { directory: scratch.join(name) };
    let dependency = match version {
        Some(version) => format!("{name} = {version:?}"),
        None => format!("{name} = {{ path = {root:?} }}"),
    };
    let manifest = format!(
        "[package]\nname = \"hello\"\nedition = \"2024\"\n\n[dependencies]\n{dependency}\n\n\
         [profile.release]\nstrip = true\n"
    );
    let main = format!("fn main() -> Result<(), Box<dyn std::error::Error>> {{{body}\n    Ok(())\n}}\n");
    package.write("Cargo.toml", &manifest)?;
    package.write("src/main.rs", &main)?;
    package.cargo(&["fetch", "--quiet"])?;
    let tree = package.cargo(&["tree", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"])?;
    let (started, before) = (Instant::now(), processor_seconds());
    package.cargo(&["build", "--release", "--quiet", "--offline"])?;
    let seconds = started.elapsed().as_secs_f64();
    let processor_seconds = processor_seconds().zip(before).map(|(after, before)| after - before);
    let binary = package.directory.join("target/release/hello");
    let told = output(Command::new(&binary).current_dir(&package.directory))?;
    if told != "world\n" {
        return Err(format!("the program of {name} says {told:?}"));
    }
    let metadata = std::fs::metadata(&binary).map_err(|error| format!("{}: {error}", binary.display()))?;
    Ok(Cost {
        version: version_of(&tree, name).ok_or_else(|| format!("{name} is not in the tree:\n{tree}"))?,
        seconds,
        processor_seconds,
        crates: crates_in(&tree),
        binary_bytes: metadata.len(),
    })
}

/// Processor time of this process's ended children, as Linux counts it.
fn processor_seconds() -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses and may have any character; the state comes after it.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// Number of crates in the output of `cargo tree --prefix none`, without the program's own.
fn crates_in(tree: &str) -> usize {
    let mut names: Vec<_> = tree.lines().map(|line| line.trim_end_matches(" (proc-macro)")).collect();
    names.retain(|line| !line.is_empty() && !line.starts_with("hello "));
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn version_of(tree: &str, name: &str) -> Option<String> {
    let line = tree.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" v"))?;
    line.split(' ').next().map(str::to_owned)
}

/// A package in construction.
struct Package {
    directory: PathBuf,
}

impl Package {
    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.directory.join(file);
        let parent = path.parent().unwrap_or(&self.directory);
        let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, text));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    fn cargo(&self, arguments: &[&str]) -> Result<String, String> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory);
        output(command.env("CARGO_TARGET_DIR", self.directory.join("target")))
    }
}

/// The standard output of a program.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}\n{told}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate counts once, two versions of one count twice, and the program itself does not count.
    #[test]
    fn crates_are_counted_once() {
        let tree = "hello v0.1.0 (/a)\nredb v4.6.0\nsyn v2.0.1 (proc-macro)\nsyn v2.0.1\n\nsyn v1.0.0\n";
        assert_eq!(crates_in(tree), 3);
        assert_eq!(version_of(tree, "redb").as_deref(), Some("4.6.0"));
        assert_eq!(version_of(tree, "red"), None);
    }
}
