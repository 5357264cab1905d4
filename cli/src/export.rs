//! The command export: a keyspace's items as rows that import reads back to the same bytes.
//!
//! 1. A file appears complete under its name or not at all: it is written beside that name, synced and
//!    renamed.
//! 2. An existing file is replaced only with `--force`. A symbolic link is never replaced: with `--force` its
//!    target is. Pipes and devices are written to.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::{Map, json};
use trine_workload::failure::Failure;
use trine_workload::rows::Format;
use trine_workload::rows::write::{Reader, write_header, write_item};
use trine_workload::screen::Screen;
use trine_workload::text::Spelling;
use trine_workload::{interrupt, progress, text};

use crate::any_keyspace::AnyKeyspace;
use crate::arguments::{self, Global};
use crate::items::open_to_read;
use crate::named;

/// The items between two updates of the bar and checks for Ctrl-C.
const STEP_ITEMS: u64 = 1024;

pub(crate) fn run(global: &Global, arguments: arguments::Export) -> Result<(), Failure> {
    let file = arguments.file.as_deref().filter(|file| *file != Path::new("-"));
    let format = match (arguments.format, file) {
        (Some(format), _) => format,
        (None, None) => Format::Jsonl,
        (None, Some(file)) => Format::of_path(file).ok_or_else(|| {
            let file = text::path(file);
            Failure::Usage(format!("the format of {file} cannot be guessed; say --format csv, tsv or jsonl"))
        })?,
    };
    if arguments.safe && format == Format::Jsonl {
        return Err(Failure::Usage("--safe is for csv and tsv".to_string()));
    }
    let target = file.map(|file| Target::of(file, arguments.force)).transpose()?;
    let db = open_to_read(global, &arguments.store)?;
    let keyspace = named::find(&db, &arguments.keyspace)?;
    match target {
        None => {
            let out = io::stdout().lock();
            let reader = match (arguments.safe, out.is_terminal()) {
                (true, _) => Reader::Spreadsheet,
                (false, true) => Reader::Terminal,
                (false, false) => Reader::Program,
            };
            let mut out = BufWriter::with_capacity(1 << 16, out);
            let failed = Failure::output;
            write_items(&keyspace, (format, reader), &mut out, &ProgressBar::hidden(), failed)?;
            out.flush().map_err(failed)?;
        }
        Some(target) => {
            let items = keyspace.stats()?.items;
            let bar = progress::over_items(items, "exporting");
            let reader = if arguments.safe { Reader::Spreadsheet } else { Reader::Program };
            let items = write_file(&keyspace, (format, reader), &target, &bar)?;
            bar.finish_and_clear();
            let mut screen = Screen::new();
            if global.json {
                let mut answer = Map::new();
                answer.insert("exported".to_string(), json!(items));
                let name = target.named.as_os_str().as_encoded_bytes();
                text::add_field(&mut answer, "file", name, Spelling::Text);
                screen.object(&answer.into())?;
            } else {
                let (items, file) = (text::count(items), text::path(target.named));
                screen.line(format_args!("exported {items} items to {file}"))?;
            }
            screen.finish()?;
        }
    }
    drop(keyspace);
    Ok(db.close()?)
}

/// The target file and the way to write it.
struct Target<'a> {
    /// The path as given by the user.
    named: &'a Path,
    /// The path with links resolved.
    path: PathBuf,
    way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The file must not exist.
    Create,
    Replace,
    /// A pipe or a device.
    Append,
}

impl Target<'_> {
    fn of(named: &Path, force: bool) -> Result<Target<'_>, Failure> {
        let failed = |source| Failure::file("write", named, source);
        let way = match (named.symlink_metadata(), named.metadata()) {
            (Err(_), _) => Way::Create,
            (Ok(_), Ok(file)) if !file.is_file() => Way::Append,
            (Ok(_), _) if force => Way::Replace,
            (Ok(link), _) if link.is_symlink() => {
                let reason = "it is a symbolic link; --force replaces the file that it names";
                return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, reason)));
            }
            (Ok(_), _) => return Err(failed(exists())),
        };
        let path =
            if way == Way::Replace { named.canonicalize().map_err(failed)? } else { named.to_path_buf() };
        Ok(Target { named, path, way })
    }
}

fn exists() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it exists; --force replaces it")
}

fn write_file(
    keyspace: &AnyKeyspace,
    format: (Format, Reader),
    target: &Target<'_>,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let failed = |source| Failure::file("write", target.named, source);
    interrupt::watch()?;
    if target.way == Way::Append {
        let out = File::options().write(true).open(&target.path).map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 18, out);
        let items = write_items(keyspace, format, &mut out, bar, failed)?;
        out.flush().map_err(failed)?;
        return Ok(items);
    }
    let directory = match target.path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".trine-export-");
    if let Some(permissions) = permissions_of_new_files() {
        builder.permissions(permissions);
    }
    let temporary = builder.tempfile_in(&directory).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 18, temporary);
    let items = write_items(keyspace, format, &mut out, bar, failed)?;
    let temporary = out.into_inner().map_err(|error| failed(error.into_error()))?;
    temporary.as_file().sync_all().map_err(failed)?;
    let kept = if target.way == Way::Replace {
        temporary.persist(&target.path)
    } else {
        temporary.persist_noclobber(&target.path)
    };
    kept.map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => failed(exists()),
        _ => failed(error.error),
    })?;
    Ok(items)
}

/// The permissions of a new file before the process's umask is applied.
fn permissions_of_new_files() -> Option<Permissions> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    #[cfg(not(unix))]
    None
}

fn write_items(
    keyspace: &AnyKeyspace,
    format: (Format, Reader),
    out: &mut impl Write,
    bar: &ProgressBar,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    write_header(format.0, out).map_err(&failed)?;
    let mut row = Vec::new();
    let mut items = 0;
    for item in keyspace.items() {
        let (key, value) = item?;
        write_item(format, (&key, &value), &mut row, out).map_err(&failed)?;
        items += 1;
        if items % STEP_ITEMS == 0 {
            bar.set_position(items);
            if interrupt::asked() {
                return Err(Failure::Interrupted("stopped; no file was written".to_string()));
            }
        }
    }
    Ok(items)
}
