//! The command import: rows of a file into a keyspace, in batches that carry their own position.
//!
//! 1. The position of the rows and the rows are one batch: after any end of the process, what is in the
//!    keyspace and what the keyspace `.import` says are the same prefix of the file.
//! 2. A position is only gone on from if the file's length, the bytes before the position and the way rows
//!    are read are the same as when it was written.
//! 3. The position is deleted by the batch that holds the last rows, so that the next import of the file is a
//!    new one.

mod position;

use std::path::Path;
use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::json;
use trine::{Db, Keyspace, Ordered};

use crate::arguments::{self, Format, Global};
use crate::failure::Failure;
use crate::items::{check_writable, note, open_to_write};
use crate::rows::{Item, Position, Row, Rows, Shape};
use crate::screen::Screen;
use crate::{interrupt, progress, text};
use position::Positions;

/// A batch is also committed when its items take this much.
const BATCH_BYTES: usize = 4 << 20;

/// Bad rows that are told one by one; the rest are only counted.
const TOLD_BAD_ROWS: u64 = 10;

pub(crate) fn run(global: &Global, arguments: arguments::Import) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let shape = shape_of(&arguments)?;
    let rows = Rows::open(&arguments.file, shape.clone())?;
    let db = open_to_write(global, &arguments.store)?;
    let keyspace = db.ordered(&arguments.keyspace).open()?;
    let from_file = arguments.file != Path::new("-");
    let mut import = Import {
        positions: if from_file { Some(Positions::open(&db, &arguments, shape)?) } else { None },
        db,
        keyspace,
        rows,
        pending: Vec::new(),
        pending_bytes: 0,
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

fn shape_of(arguments: &arguments::Import) -> Result<Shape, Failure> {
    let format = arguments.format.or_else(|| Format::of_path(&arguments.file)).ok_or_else(|| {
        let file = arguments.file.display();
        Failure::Usage(format!("the format of {file} cannot be guessed; say --format csv, tsv or jsonl"))
    })?;
    if format == Format::Jsonl && (arguments.header || arguments.no_header) {
        return Err(Failure::Usage("--header and --no-header are for csv and tsv".to_string()));
    }
    let header = !arguments.no_header;
    Ok(Shape { format, key: arguments.key.clone(), value: arguments.value.clone(), header })
}

/// What is in so far, earlier parts of a resumed import included.
#[derive(Clone, Copy, Default)]
struct Tally {
    items: u64,
    skipped: u64,
    /// Of this process alone, as the rate is.
    items_now: u64,
    key_value_bytes_now: u64,
}

struct Import<'a> {
    global: &'a Global,
    arguments: &'a arguments::Import,
    db: Db,
    keyspace: Keyspace<Ordered>,
    /// None for standard input, which has no position.
    positions: Option<Positions>,
    rows: Rows,
    pending: Vec<Item>,
    pending_bytes: usize,
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
    /// Goes to where an earlier import of this file was.
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
                Some(Row::Item(item)) => {
                    self.pending_bytes += item.key.len() + item.value.len();
                    self.pending.push(item);
                }
                Some(Row::Bad { line, reason }) if self.arguments.skip_bad => self.skip(line, &reason),
                Some(Row::Bad { line, reason }) => {
                    self.commit(before, Part::More)?;
                    self.db.sync()?;
                    return Err(Failure::BadRow { file: self.rows.name().to_string(), line, reason });
                }
            }
            if self.pending.len() >= self.arguments.batch as usize || self.pending_bytes >= BATCH_BYTES {
                self.commit(self.rows.position(), Part::More)?;
                self.stop_if_asked()?;
            }
        }
    }

    fn skip(&mut self, line: u64, reason: &str) {
        self.tally.skipped += 1;
        if self.tally.skipped <= TOLD_BAD_ROWS {
            let (name, bar) = (self.rows.name(), &self.bar);
            bar.suspend(|| note(self.global, format_args!("{name}, line {line}: {reason}; left out")));
        }
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

    /// Commits the pending items and the position after them. An item over a limit is a bad row.
    fn commit(&mut self, end: Position, part: Part) -> Result<(), Failure> {
        loop {
            let (what, limit) = match self.try_commit(end, part) {
                Err(Failure::Store(trine::Error::TooLarge { what, limit, .. })) => (what, limit),
                other => return other,
            };
            let too_large = |item: &Item| match what {
                "key" => item.key.len() as u64 > limit,
                "value" => item.value.len() as u64 > limit,
                _ => false,
            };
            match self.pending.iter().position(too_large) {
                None if self.pending.len() > 1 => self.commit_first_half()?,
                found => self.leave_out(found.unwrap_or(0), what, limit)?,
            }
        }
    }

    /// For a batch that is too large as a whole.
    fn commit_first_half(&mut self) -> Result<(), Failure> {
        let rest = self.pending.split_off(self.pending.len() / 2);
        let middle = rest.first().expect("half of two or more is one or more").at;
        self.commit(middle, Part::More)?;
        self.pending = rest;
        Ok(())
    }

    /// Takes an oversized item out, or stops before it.
    fn leave_out(&mut self, index: usize, what: &str, limit: u64) -> Result<(), Failure> {
        let Some(item) = self.pending.get(index) else {
            return Err(Failure::Other(format!(
                "the import's position is over the limit of {limit} bytes for a {what}"
            )));
        };
        let (at, line) = (item.at, item.at.lines + 1);
        let given = if what == "key" { item.key.len() } else { item.value.len() };
        let reason = format!("the {what} of {given} bytes is over the limit of {limit}");
        if self.arguments.skip_bad {
            self.pending.remove(index);
            self.skip(line, &reason);
            return Ok(());
        }
        self.pending.truncate(index);
        self.commit(at, Part::More)?;
        self.db.sync()?;
        Err(Failure::BadRow { file: self.rows.name().to_string(), line, reason })
    }

    fn try_commit(&mut self, end: Position, part: Part) -> Result<(), Failure> {
        let mut batch = self.db.batch();
        let mut tally = self.tally;
        for item in &self.pending {
            batch.put(&self.keyspace, &item.key, &item.value);
            tally.key_value_bytes_now += (item.key.len() + item.value.len()) as u64;
        }
        tally.items += self.pending.len() as u64;
        tally.items_now += self.pending.len() as u64;
        if let Some(positions) = &mut self.positions {
            match part {
                Part::Last => positions.delete(&mut batch),
                Part::More => positions.put(&mut batch, end, tally.items, tally.skipped)?,
            }
        }
        batch.commit()?;
        if let Some(positions) = &mut self.positions {
            positions.committed();
        }
        self.tally = tally;
        self.pending.clear();
        self.pending_bytes = 0;
        self.bar.set_position(end.offset);
        self.bar.set_message(progress::rate(tally.items_now, self.started.elapsed()));
        if self.arguments.acknowledge {
            self.screen.line(tally.items)?;
            self.screen.flush()?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        let Import { db, bar, mut screen, tally, started, .. } = self;
        db.sync()?;
        db.close()?;
        bar.finish_and_clear();
        let seconds = started.elapsed().as_secs_f64();
        let a_second = (tally.items_now as f64 / seconds.max(1e-9)) as u64;
        if self.global.json {
            screen.line(json!({
                "imported": tally.items_now,
                "imported_in_all": tally.items,
                "skipped": tally.skipped,
                "key_value_bytes": tally.key_value_bytes_now,
                "seconds": seconds,
                "items_per_second": a_second,
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
        screen.finish()
    }
}
