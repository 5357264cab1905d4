//! The maintenance commands: keyspaces, drop, delete-range, count, settings, compact, checkpoint; and the
//! program's own completions and manual.

use std::ops::Bound;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Command, CommandFactory};
use serde_json::{Value, json};
use trine::{Db, KeyspaceBuilder, Partitioning, SettingValue};
use trine_workload::failure::Failure;
use trine_workload::progress;
use trine_workload::screen::Screen;
use trine_workload::text::{self, Spelling, bytes, parse_bytes};

use crate::any_keyspace::AnyKeyspace;
use crate::arguments::{
    Arguments, Checkpoint, Compact, Completions, Count, DeleteRange, Drop, Global, Keyspaces, Man, Settings,
};
use crate::divided::Divided;
use crate::items::{Bounds, check_writable, done, durability, note, open_to_change, open_to_read};
use crate::listing::Listing;
use crate::named;

/// The first character of the names of the program's own keyspaces.
pub(crate) const OWN: char = '.';

/// The interval of progress updates.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn keyspaces(global: &Global, arguments: &Keyspaces) -> Result<(), Failure> {
    let db = open_to_read(global, &arguments.store)?;
    let mut listing = Listing::of_keyspaces();
    for (stats, info) in db.stats().keyspaces.into_iter().zip(db.keyspaces()) {
        if info.name.starts_with(OWN) && !arguments.all {
            continue;
        }
        let maps = named::maps_of(&db, &info.name, info.is_partitioned)?;
        let keys = maps.iter().map(|map| map.approximate_len()).sum::<trine::Result<u64>>()?;
        let divided = match &info.partitioning {
            Some(rule) => Some((rule, Divided::find(&db, &info.name)?.0.names()?.len() as u64)),
            None => None,
        };
        listing.add_keyspace(keys, &stats, divided);
    }
    listing.show(global)?;
    Ok(db.close()?)
}

pub(crate) fn drop_keyspace(global: &Global, arguments: &Drop) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let db = open_to_change(global, &arguments.store)?;
    db.drop_keyspace(&arguments.keyspace)?;
    // Its tables are removed by the next flush; if they stay for a while, the drop has still succeeded.
    let space = db.flush().and_then(|()| db.settle()).and(db.close());
    let mut answer = json!({"dropped": arguments.keyspace});
    if let Err(error) = space {
        let message = format!("it is dropped; its space is given back later: {error}");
        note(global, format_args!("{message}"));
        answer["note"] = json!(message);
    }
    done(global, answer)
}

pub(crate) fn delete_range(global: &Global, arguments: &DeleteRange) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let bounds = Bounds::parse(&arguments.within, Spelling::of_flag(arguments.hex))?;
    let (from, to) = bounds.ends();
    if (&from, &to) == (&Bound::Unbounded, &Bound::Unbounded) {
        let message = "delete-range wants --prefix, --from or --to; `trine clear` deletes everything";
        return Err(Failure::Usage(message.to_owned()));
    }
    let db = open_to_change(global, &arguments.store)?;
    let keyspace = named::find(&db, &arguments.keyspace)?;
    let mut batch = db.batch();
    batch.delete_range(keyspace.ordered()?, (from, to))?;
    batch.commit_with(durability(arguments.sync))?;
    db.close()?;
    done(global, json!({"deleted_range": arguments.keyspace}))
}

pub(crate) fn count_keys(global: &Global, arguments: &Count) -> Result<(), Failure> {
    let bounds = Bounds::parse(&arguments.within, Spelling::of_flag(arguments.hex))?;
    let db = open_to_read(global, &arguments.store)?;
    let keyspace = named::find(&db, &arguments.keyspace)?;
    let about = keyspace.approximate_len()?;
    let keys = if arguments.approximate {
        about
    } else if arguments.within.is_all() {
        let bar = progress::over_items(about, "counting");
        let keys = keyspace.exact_len(|counted| bar.set_position(counted))?;
        bar.finish_and_clear();
        keys
    } else {
        let mut keys = 0;
        for item in bounds.range(keyspace.ordered()?) {
            item?;
            keys += 1;
        }
        keys
    };
    let mut screen = Screen::new();
    if global.json {
        screen.object(&json!({"keys": keys, "exact": !arguments.approximate}))?;
    } else {
        screen.line(keys)?;
    }
    screen.finish()?;
    Ok(db.close()?)
}

pub(crate) fn settings(global: &Global, arguments: &Settings) -> Result<(), Failure> {
    let Some(name) = &arguments.keyspace else {
        let db = open_to_read(global, &arguments.store)?;
        show_settings(global, &db.settings())?;
        return Ok(db.close()?);
    };
    if arguments.changes.is_empty() {
        let db = open_to_read(global, &arguments.store)?;
        let settings = match named::is_partitioned(&db, name) {
            true => named::partitioned(&db, name, named::is_hashed(&db, name))?.settings(),
            false => db.keyspace(name)?.settings(),
        };
        show_settings(global, &settings)?;
        return Ok(db.close()?);
    }
    check_writable(name)?;
    let db = open_to_change(global, &arguments.store)?;
    let is_partitioned = named::is_partitioned(&db, name);
    if !is_partitioned {
        // The keyspace must exist, because its builder would make it.
        db.keyspace(name)?;
    }
    let changes = &arguments.changes;
    let settings = match (is_partitioned, named::is_hashed(&db, name)) {
        (true, true) => {
            changed(db.hashed(name), changes).partition_by(Partitioning::explicit()).open()?.settings()
        }
        (true, false) => {
            changed(db.ordered(name), changes).partition_by(Partitioning::explicit()).open()?.settings()
        }
        (false, true) => changed(db.hashed(name), changes).open()?.settings(),
        (false, false) => changed(db.ordered(name), changes).open()?.settings(),
    };
    db.close()?;
    show_settings(global, &settings)
}

fn changed<K>(mut builder: KeyspaceBuilder<K>, changes: &[(String, String)]) -> KeyspaceBuilder<K> {
    for (setting, value) in changes {
        builder = match parse_bytes(value) {
            Ok(number) => builder.set(setting, number),
            Err(_) => builder.set(setting, value.as_str()),
        };
    }
    builder
}

fn show_settings(global: &Global, settings: &[SettingValue]) -> Result<(), Failure> {
    let mut screen = Screen::new();
    if global.json {
        screen.json(&settings.iter().map(setting_to_json).collect())?;
        return screen.finish();
    }
    for one in settings {
        let default = match one.value == one.default {
            true => "the default".to_owned(),
            false => format!("the default is {}", value_of(one, one.default)),
        };
        let range = match one.words {
            [] => format!("{} to {}", value_of(one, one.min), value_of(one, one.max)),
            words => words.join(", "),
        };
        screen.heading(format_args!("{} = {}", one.name, value_of(one, one.value)))?;
        screen.line(format_args!("  {default}; {range}\n  {}\n", one.about))?;
    }
    screen.finish()
}

/// A value for people: a word, a size, or a number.
fn value_of(setting: &SettingValue, value: u64) -> String {
    let word = usize::try_from(value).ok().and_then(|index| setting.words.get(index));
    match word {
        Some(word) => (*word).to_owned(),
        None if setting.name.ends_with("_bytes") => bytes(value),
        None => value.to_string(),
    }
}

pub(crate) fn setting_to_json(setting: &SettingValue) -> Value {
    json!({
        "name": setting.name, "value": setting.value, "text": setting.text(), "default": setting.default,
        "min": setting.min, "max": setting.max, "about": setting.about,
    })
}

pub(crate) fn compact(global: &Global, arguments: &Compact) -> Result<(), Failure> {
    let db = open_to_change(global, &arguments.store)?;
    let maps = match &arguments.keyspace {
        Some(name) if named::is_partitioned(&db, name) => Some(named::maps_of(&db, name, true)?),
        Some(name) => Some(vec![named::find(&db, name)?]),
        None => None,
    };
    let before_bytes = db.stats().space.table_bytes;
    with_merge_progress(&db, || match &maps {
        Some(maps) => maps.iter().try_for_each(AnyKeyspace::compact),
        None => db.compact(),
    })?;
    let after_bytes = db.stats().space.table_bytes;
    drop(maps);
    db.close()?;
    if global.json {
        return done(global, json!({"table_bytes_before": before_bytes, "table_bytes": after_bytes}));
    }
    let mut screen = Screen::new();
    screen.line(format_args!("tables took {}, and take {}", bytes(before_bytes), bytes(after_bytes)))?;
    screen.finish()
}

/// Runs `work`, and meanwhile shows the bytes read by merges.
fn with_merge_progress(db: &Db, work: impl FnOnce() -> trine::Result<()> + Send) -> trine::Result<()> {
    let bar = progress::endless();
    bar.set_message("merged");
    let (ended, end) = mpsc::channel::<()>();
    let worked = std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let worked = work();
            drop(ended);
            worked
        });
        while let Err(mpsc::RecvTimeoutError::Timeout) = end.recv_timeout(LOOK) {
            bar.set_position(db.stats().write.merge_read_bytes);
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    bar.finish_and_clear();
    worked
}

pub(crate) fn checkpoint(global: &Global, arguments: &Checkpoint) -> Result<(), Failure> {
    let db = open_to_change(global, &arguments.store)?;
    db.checkpoint(&arguments.target)?;
    db.close()?;
    done(global, json!({"checkpoint": text::path(&arguments.target)}))
}

pub(crate) fn completions(arguments: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "trine", &mut script);
    let mut screen = Screen::new();
    screen.bytes(&script)?;
    screen.finish()
}

pub(crate) fn man(arguments: &Man) -> Result<(), Failure> {
    let mut program = Arguments::command();
    program.build();
    let Some(directory) = &arguments.dir else {
        let mut screen = Screen::new();
        screen.bytes(&page(program)?)?;
        return screen.finish();
    };
    std::fs::create_dir_all(directory).map_err(|error| Failure::file("make", directory, error))?;
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let pages: Vec<Command> = commands.cloned().chain([program.clone()]).collect();
    for command in pages {
        let name = command.get_display_name().unwrap_or("trine");
        let file = directory.join(format!("{name}.1"));
        std::fs::write(&file, page(command)?).map_err(|error| Failure::file("write", &file, error))?;
    }
    Ok(())
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::output)?;
    Ok(page)
}
