//! The command export: a keyspace's items as rows that import reads back to the same bytes.
//!
//! A file appears complete under its name or not at all: it is written beside it, synced and renamed.

use std::fs::{File, Permissions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::json;
use trine::{Keyspace, Ordered};

use crate::arguments::{self, Format, Global};
use crate::failure::Failure;
use crate::items::open_to_read;
use crate::rows::write::{write_header, write_item};
use crate::screen::Screen;
use crate::{interrupt, progress, text};

/// How often, in items, the bar moves and Ctrl-C is looked at.
const STEP_ITEMS: u64 = 1024;

pub(crate) fn run(global: &Global, arguments: arguments::Export) -> Result<(), Failure> {
    let file = arguments.file.as_deref().filter(|file| *file != Path::new("-"));
    let format = match (arguments.format, file) {
        (Some(format), _) => format,
        (None, None) => Format::Jsonl,
        (None, Some(file)) => Format::of_path(file).ok_or_else(|| {
            let file = file.display();
            Failure::Usage(format!("the format of {file} cannot be guessed; say --format csv, tsv or jsonl"))
        })?,
    };
    let db = open_to_read(global, &arguments.store)?;
    let keyspace = db.keyspace(&arguments.keyspace)?.ordered()?;
    match file {
        None => {
            let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
            let failed = Failure::output;
            write_items(&keyspace, format, &mut out, &ProgressBar::hidden(), failed)?;
            out.flush().map_err(failed)?;
        }
        Some(file) => {
            let items =
                db.stats().keyspaces.iter().find(|one| one.name == arguments.keyspace).map(|one| one.items);
            let bar = progress::over_items(items.unwrap_or(0), "exporting");
            let items = write_file(&keyspace, format, file, &bar)?;
            bar.finish_and_clear();
            let mut screen = Screen::new();
            let file = file.display().to_string();
            if global.json {
                screen.line(json!({"exported": items, "file": file}))?;
            } else {
                screen.line(format_args!("exported {} items to {file}", text::count(items)))?;
            }
            screen.finish()?;
        }
    }
    drop(keyspace);
    Ok(db.close()?)
}

fn write_file(
    keyspace: &Keyspace<Ordered>,
    format: Format,
    file: &Path,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let failed = |source| Failure::file("write", file, source);
    interrupt::watch()?;
    // A link keeps pointing where it did; a pipe or a device is written to, not replaced.
    let target = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    if target.exists() && !target.is_file() {
        let mut out =
            BufWriter::with_capacity(1 << 18, File::options().write(true).open(&target).map_err(failed)?);
        let items = write_items(keyspace, format, &mut out, bar, failed)?;
        out.flush().map_err(failed)?;
        return Ok(items);
    }
    let directory = match target.parent() {
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
    temporary.persist(&target).map_err(|error| failed(error.error))?;
    Ok(items)
}

/// What a file created the ordinary way gets, the process's mask applied.
fn permissions_of_new_files() -> Option<Permissions> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    #[cfg(not(unix))]
    None
}

fn write_items(
    keyspace: &Keyspace<Ordered>,
    format: Format,
    out: &mut impl Write,
    bar: &ProgressBar,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<u64, Failure> {
    write_header(format, out).map_err(&failed)?;
    let mut row = Vec::new();
    let mut items = 0;
    for item in keyspace.iter() {
        let (key, value) = item?;
        write_item(format, &key, &value, &mut row, out).map_err(&failed)?;
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
