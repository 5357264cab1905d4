//! The command import: rows of a file into a keyspace, in batches that carry their own position.
//!
//! 1. Rows and their position are in one batch: after any end of the process, the keyspace and the position
//!    in the keyspace `.import` describe the same prefix of the file.
//! 2. An import resumes at a position only if the file's length, the bytes before the position and the
//!    options for reading rows are unchanged.
//! 3. The batch with the last rows deletes the position, so that the next import of the file starts over.

mod position;

use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::json;
use trine::{Batch, Db};
use trine_workload::failure::Failure;
use trine_workload::rows::{Format, Item, Position, Row, Rows, Shape};
use trine_workload::screen::Screen;
use trine_workload::{interrupt, progress, text};

use crate::any_keyspace::AnyKeyspace;
use crate::arguments::{self, Global};
use crate::items::{check_writable, note, open_to_write};
use crate::named;
use crate::stats;
use position::Positions;

/// A batch is also committed before its items exceed this, or half of the store's limit.
const BATCH_BYTES: usize = 4 << 20;

/// A lower bound of the store's log bytes for each item besides key and value.
const ITEM_OVERHEAD_BYTES: usize = 32;

/// Bad rows that are reported one by one; the rest are only counted.
const TOLD_BAD_ROWS: u64 = 10;

pub(crate) fn run(global: &Global, arguments: arguments::Import) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let shape = shape_of(&arguments)?;
    let rows = Rows::open(&arguments.file, shape.clone())?;
    let db = open_to_write(global, &arguments.store)?;
    let keyspace = named::open(&db, &arguments.keyspace, arguments.by.make())?;
    // Pipes and devices have no positions either.
    let from_file = rows.can_seek();
    let mut import = Import {
        positions: if from_file { Some(Positions::open(&db, &arguments, shape)?) } else { None },
        batch: db.batch(),
        batch_key_value_bytes: 0,
        batch_bytes_max: batch_bytes_max(&db),
        db,
        keyspace,
        rows,
        tally: Tally::default(),
        bar: ProgressBar::hidden(),
        screen: Screen::new(),
        started: Instant::now(),
        global,
        arguments: &arguments,
    };
    if from_file {
        interrupt::watch()?;
    }
    import.find_start()?;
    import.load()?;
    import.finish()
}

fn batch_bytes_max(db: &Db) -> usize {
    let half = db.stats().batch_bytes_max / 2;
    usize::try_from(half).unwrap_or(usize::MAX).min(BATCH_BYTES)
}

fn shape_of(arguments: &arguments::Import) -> Result<Shape, Failure> {
    let format = arguments.format.or_else(|| Format::of_path(&arguments.file)).ok_or_else(|| {
        let file = text::path(&arguments.file);
        Failure::Usage(format!("the format of {file} cannot be guessed; say --format csv, tsv or jsonl"))
    })?;
    if format == Format::Jsonl && (arguments.header || arguments.no_header) {
        return Err(Failure::Usage("--header and --no-header are for csv and tsv".to_string()));
    }
    if format == Format::Jsonl && arguments.separator.is_some() {
        return Err(Failure::Usage("--separator is for csv and tsv".to_string()));
    }
    let (key, value) = (arguments.key.clone(), arguments.value.clone());
    Ok(Shape { format, key, value, header: !arguments.no_header, separator: arguments.separator })
}

/// Rows imported so far, those of a resumed import's earlier parts included.
#[derive(Clone, Copy, Default)]
struct Tally {
    items: u64,
    skipped: u64,
    /// Of this process alone, for the rate.
    items_now: u64,
    key_value_bytes_now: u64,
}

struct Import<'a> {
    global: &'a Global,
    arguments: &'a arguments::Import,
    db: Db,
    keyspace: AnyKeyspace,
    /// `None` for standard input and pipes, which have no position.
    positions: Option<Positions>,
    rows: Rows,
    batch: Batch,
    /// Bytes of keys and values in the batch.
    batch_key_value_bytes: u64,
    batch_bytes_max: usize,
    tally: Tally,
    bar: ProgressBar,
    screen: Screen,
    started: Instant,
}

/// Whether a batch is the last of its file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    More,
    Last,
}

impl Import<'_> {
    /// Seeks to the position of an earlier import of this file.
    fn find_start(&mut self) -> Result<(), Failure> {
        let Some(positions) = &mut self.positions else {
            self.bar = progress::endless();
            return Ok(());
        };
        self.bar = progress::over_bytes(positions.file_bytes());
        if self.arguments.restart {
            return positions.forget();
        }
        if let Some(mark) = positions.find()? {
            self.rows.seek(mark.position)?;
            self.tally.items = mark.items;
            self.tally.skipped = mark.skipped;
            let percent = 100.0 * text::ratio(mark.position.offset, positions.file_bytes());
            let (line, items) = (text::count(mark.position.lines + 1), text::count(mark.items));
            note(
                self.global,
                format_args!("resuming at line {line} ({percent:.0} % of the file; {items} items are in)"),
            );
        }
        Ok(())
    }

    fn load(&mut self) -> Result<(), Failure> {
        loop {
            let before = self.rows.position();
            match self.rows.next()? {
                None => return self.commit(before, Part::Last),
                Some(Row::Item(item)) => self.add(&item)?,
                Some(Row::Bad { line, reason }) => self.refuse(before, line, reason)?,
            }
            if self.batch.len() >= self.arguments.batch as usize {
                self.commit(self.rows.position(), Part::More)?;
                self.stop_if_asked()?;
            }
        }
    }

    /// Adds an item to the batch, and commits the batch first if it would grow too large. An item over a
    /// limit is a bad row.
    fn add(&mut self, item: &Item) -> Result<(), Failure> {
        let item_bytes = item.key.len() + item.value.len() + ITEM_OVERHEAD_BYTES;
        let batch_bytes = self.batch.bytes() + self.batch.len() * ITEM_OVERHEAD_BYTES;
        if !self.batch.is_empty() && batch_bytes + item_bytes > self.batch_bytes_max {
            self.commit(item.at, Part::More)?;
            self.stop_if_asked()?;
        }
        match self.keyspace.put_in(&mut self.batch, &item.key, &item.value) {
            Err(trine::Error::TooLarge { what, limit, given }) => {
                let reason = format!("the {what} of {given} bytes is over the limit of {limit}");
                self.refuse(item.at, item.at.lines + 1, reason)
            }
            other => {
                other?;
                self.batch_key_value_bytes += (item.key.len() + item.value.len()) as u64;
                Ok(())
            }
        }
    }

    /// Skips the bad row that begins at `at`, or stops before it.
    fn refuse(&mut self, at: Position, line: u64, reason: String) -> Result<(), Failure> {
        if !self.arguments.skip_bad {
            self.commit(at, Part::More)?;
            self.db.sync()?;
            return Err(Failure::BadRow { file: self.rows.name().to_string(), line, reason });
        }
        self.tally.skipped += 1;
        if self.tally.skipped <= TOLD_BAD_ROWS {
            let name = self.rows.name();
            self.bar.suspend(|| note(self.global, format_args!("{name}, line {line}: {reason}; left out")));
        }
        Ok(())
    }

    fn stop_if_asked(&self) -> Result<(), Failure> {
        if !interrupt::asked() {
            return Ok(());
        }
        self.db.sync()?;
        let (line, items) = (text::count(self.rows.position().lines + 1), text::count(self.tally.items));
        let message =
            format!("stopped at line {line}; {items} items are in. Give the same command again to go on");
        Err(Failure::Interrupted(message))
    }

    /// Commits the batch and the position after its rows.
    fn commit(&mut self, end: Position, part: Part) -> Result<(), Failure> {
        let mut batch = std::mem::replace(&mut self.batch, self.db.batch());
        let mut tally = self.tally;
        tally.items += batch.len() as u64;
        tally.items_now += batch.len() as u64;
        tally.key_value_bytes_now += std::mem::take(&mut self.batch_key_value_bytes);
        if let Some(positions) = &mut self.positions {
            match part {
                Part::Last => positions.delete(&mut batch)?,
                Part::More => positions.put(&mut batch, end, tally.items, tally.skipped)?,
            }
        }
        batch.commit()?;
        self.tally = tally;
        self.bar.set_position(end.offset);
        self.bar.set_message(progress::rate(tally.items_now, self.started.elapsed()));
        if self.arguments.acknowledge {
            self.screen.line(tally.items)?;
            self.screen.flush()?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        let Import { db, bar, mut screen, tally, started, rows, .. } = self;
        db.sync()?;
        let written = db.stats().write;
        db.close()?;
        bar.finish_and_clear();
        if tally.items + tally.skipped == 0 {
            let hint = if rows.has_header() {
                "beside its header; give --no-header if the first row is data"
            } else {
                "at all"
            };
            note(self.global, format_args!("{} has no rows {hint}", rows.name()));
        }
        let seconds = started.elapsed().as_secs_f64();
        let a_second = (tally.items_now as f64 / seconds.max(1e-9)) as u64;
        if self.global.json {
            screen.object(&json!({
                "imported": tally.items_now,
                "imported_in_all": tally.items,
                "skipped": tally.skipped,
                "key_value_bytes": tally.key_value_bytes_now,
                "seconds": seconds,
                "items_per_second": a_second,
                "write": stats::write_to_json(&written),
            }))?;
            return screen.finish();
        }
        let earlier = match tally.items - tally.items_now {
            0 => String::new(),
            items => format!(", after {} earlier", text::count(items)),
        };
        let skipped = match tally.skipped {
            0 => String::new(),
            rows => format!("; {} bad rows left out", text::count(rows)),
        };
        screen.line(format_args!(
            "imported {} items ({}) in {seconds:.1} s, {} a second{earlier}{skipped}",
            text::count(tally.items_now),
            text::bytes(tally.key_value_bytes_now),
            text::count(a_second),
        ))?;
        screen.line(format_args!(
            "written: log {}, flushes {}, merges {}; {:.2} bytes a byte imported, {:.2} without the log",
            text::bytes(written.log_bytes),
            text::bytes(written.flush_bytes),
            text::bytes(written.merge_write_bytes),
            stats::amplification(&written, stats::Log::Counted),
            stats::amplification(&written, stats::Log::Left),
        ))?;
        screen.finish()
    }
}
