//! The commands on single items and ranges: get, put, delete, clear, scan. Also the functions by which every
//! command opens a store.

use std::io::{Read, Write};
use std::ops::Bound;
use std::path::Path;

use serde_json::{Map, json};
use trine::{Access, Create, Db, Durability, Keyspace, Ordered, Value};
use trine_workload::failure::Failure;
use trine_workload::screen::Screen;
use trine_workload::text::{Spelling, add_field, one_line, readable};

use crate::any_keyspace::AnyKeyspace;
use crate::arguments::{Clear, Delete, Get, Global, Put, Scan, Within};
use crate::named;

/// The most bytes read from standard input.
const INPUT_BYTES_MAX: u64 = 1 << 30;

/// Opens an existing store, for reading only.
pub(crate) fn open_to_read(global: &Global, store: &Path) -> Result<Db, Failure> {
    let builder = Db::builder(store).create(Create::Never).access(Access::ReadOnly);
    Ok(with_memory(builder, global).open()?)
}

/// Opens a store for writing, and creates it if it does not exist.
pub(crate) fn open_to_write(global: &Global, store: &Path) -> Result<Db, Failure> {
    if global.read_only {
        return Err(Failure::Usage("this command writes; it cannot be --read-only".to_string()));
    }
    Ok(with_memory(Db::builder(store), global).open()?)
}

/// Opens an existing store for writing.
pub(crate) fn open_to_change(global: &Global, store: &Path) -> Result<Db, Failure> {
    if global.read_only {
        return Err(Failure::Usage("this command writes; it cannot be --read-only".to_string()));
    }
    Ok(with_memory(Db::builder(store).create(Create::Never), global).open()?)
}

fn with_memory(builder: trine::Builder, global: &Global) -> trine::Builder {
    match global.memory {
        Some(memory_bytes) => builder.memory_bytes(memory_bytes),
        None => builder,
    }
}

/// Refuses names reserved for the program, before they are written to.
pub(crate) fn check_writable(keyspace: &str) -> Result<(), Failure> {
    if keyspace.starts_with('.') {
        let message = format!(
            "the keyspace {keyspace:?} is the program's own: names with a leading dot are kept for it"
        );
        return Err(Failure::Usage(message));
    }
    Ok(())
}

pub(crate) fn get(global: &Global, get: Get) -> Result<(), Failure> {
    let spelling = Spelling::of_flag(get.hex);
    let key = spelling.parse("key", &get.key)?;
    let db = open_to_read(global, &get.store)?;
    let value = named::find(&db, &get.keyspace)?.get(&key)?;
    db.close()?;
    let Some(value) = value else {
        return Err(Failure::NotFound(format!("there is no key {:?} in {:?}", get.key, get.keyspace)));
    };
    let mut screen = Screen::new();
    if global.json {
        let mut object = Map::new();
        add_field(&mut object, "key", &key, spelling);
        add_field(&mut object, "value", &value, spelling);
        screen.object(&serde_json::Value::Object(object))?;
    } else if get.raw {
        screen.bytes(&value)?;
    } else if get.hex {
        screen.line(spelling.line(&value))?;
    } else {
        screen.line(readable(&value))?;
    }
    screen.finish()
}

pub(crate) fn put(global: &Global, put: Put) -> Result<(), Failure> {
    check_writable(&put.keyspace)?;
    let spelling = Spelling::of_flag(put.hex);
    let key = spelling.parse("key", &put.key)?;
    let value = match put.value.as_str() {
        "-" => value_of_input(spelling)?,
        value => spelling.parse("value", value)?,
    };
    let db = open_to_write(global, &put.store)?;
    let keyspace = named::open(&db, &put.keyspace, put.by.make())?;
    let mut batch = db.batch();
    keyspace.put_in(&mut batch, &key, &value)?;
    batch.commit_with(durability(put.sync))?;
    db.close()?;
    done(global, json!({"put": 1}))
}

/// All bytes of standard input; digits may be surrounded by white space.
fn value_of_input(spelling: Spelling) -> Result<Vec<u8>, Failure> {
    let mut input = Vec::new();
    // More bytes exceed every limit of a value, and the store refuses them.
    std::io::stdin().take(INPUT_BYTES_MAX).read_to_end(&mut input).map_err(|source| Failure::File {
        operation: "read",
        name: "standard input".to_owned(),
        source,
    })?;
    match spelling {
        Spelling::Text => Ok(input),
        Spelling::Hex => spelling.parse("value", String::from_utf8_lossy(&input).trim()),
    }
}

pub(crate) fn delete(global: &Global, delete: Delete) -> Result<(), Failure> {
    check_writable(&delete.keyspace)?;
    let key = Spelling::of_flag(delete.hex).parse("key", &delete.key)?;
    let db = open_to_change(global, &delete.store)?;
    let keyspace = named::find(&db, &delete.keyspace)?;
    let mut batch = db.batch();
    keyspace.delete_in(&mut batch, &key)?;
    batch.commit_with(durability(delete.sync))?;
    db.close()?;
    done(global, json!({"deleted": 1}))
}

pub(crate) fn clear(global: &Global, clear: Clear) -> Result<(), Failure> {
    check_writable(&clear.keyspace)?;
    let db = open_to_change(global, &clear.store)?;
    let space = clear_keyspace(db, &clear.keyspace)?;
    let mut answer = json!({"cleared": clear.keyspace});
    if let Err(error) = space {
        let message = format!("it is cleared; its space is given back later: {error}");
        note(global, format_args!("{message}"));
        answer["note"] = json!(message);
    }
    done(global, answer)
}

/// Clears a keyspace, and frees its space. The outer error is one of the clear itself; the inner result says
/// whether the space was freed.
///
/// The clear is synced, so that later errors, of a full disk or of another keyspace's tables, do not undo it.
fn clear_keyspace(db: Db, name: &str) -> Result<trine::Result<()>, Failure> {
    let keyspace = named::find(&db, name)?;
    keyspace.clear()?;
    db.sync()?;
    // Its tables are removed once the clear is in a table.
    let space = db.flush().and_then(|()| db.settle());
    drop(keyspace);
    Ok(space.and(db.close()))
}

pub(crate) fn durability(sync: bool) -> Durability {
    if sync { Durability::Sync } else { Durability::Buffered }
}

/// Reports success: silence for people, an object with `--json`.
pub(crate) fn done(global: &Global, answer: serde_json::Value) -> Result<(), Failure> {
    let mut screen = Screen::new();
    if global.json {
        screen.object(&answer)?;
    }
    screen.finish()
}

pub(crate) fn scan(global: &Global, scan: Scan) -> Result<(), Failure> {
    let spelling = Spelling::of_flag(scan.hex);
    let bounds = Bounds::parse(&scan.within, spelling)?;
    let db = open_to_read(global, &scan.store)?;
    let keyspace = named::find(&db, &scan.keyspace)?;
    let is_whole = scan.within.is_all() && !scan.reverse;
    let items: Box<dyn Iterator<Item = trine::Result<(Value, Value)>>> = match (&keyspace, scan.reverse) {
        (AnyKeyspace::Hashed(_), _) if is_whole => {
            note(global, format_args!("{} is hashed: its items come in no order", scan.keyspace));
            Box::new(keyspace.items())
        }
        (_, false) => Box::new(bounds.range(keyspace.ordered()?)),
        (_, true) => Box::new(bounds.range(keyspace.ordered()?).rev()),
    };
    let limit = scan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut screen = Screen::new();
    for item in items.take(limit) {
        let (key, value) = item?;
        if global.json {
            let mut object = Map::new();
            add_field(&mut object, "key", &key, spelling);
            if !scan.keys_only {
                add_field(&mut object, "value", &value, spelling);
            }
            screen.object(&serde_json::Value::Object(object))?;
        } else if scan.raw {
            screen.bytes(&key)?;
            if !scan.keys_only {
                screen.bytes(b"\t")?;
                screen.bytes(&value)?;
            }
            screen.bytes(b"\n")?;
        } else if scan.keys_only {
            screen.line(spelling.line(&key))?;
        } else {
            screen.line(format_args!("{}\t{}", spelling.line(&key), spelling.line(&value)))?;
        }
    }
    screen.finish()?;
    drop(keyspace);
    Ok(db.close()?)
}

/// The keys that a scan visits.
pub(crate) struct Bounds {
    prefix: Option<Vec<u8>>,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn parse(within: &Within, spelling: Spelling) -> Result<Bounds, Failure> {
        let parse =
            |what, word: &Option<String>| word.as_ref().map(|word| spelling.parse(what, word)).transpose();
        let from = parse("bound --from", &within.from)?;
        let to = parse("bound --to", &within.to)?;
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return Err(Failure::Usage("--from is after --to; add --reverse to list backwards".to_string()));
        }
        Ok(Bounds {
            prefix: parse("prefix", &within.prefix)?,
            from: from.map_or(Bound::Unbounded, Bound::Included),
            to: to.map_or(Bound::Unbounded, Bound::Excluded),
        })
    }

    pub(crate) fn range(&self, keyspace: &Keyspace<Ordered>) -> trine::Range {
        keyspace.range(self.ends())
    }

    /// The bounds of the range: the first key, and the first key after it, if there are such.
    pub(crate) fn ends(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let Some(prefix) = &self.prefix else { return (self.from.clone(), self.to.clone()) };
        let from = if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix.clone()) };
        // The first key after all with the prefix: the prefix up to its last byte below 255, with that byte
        // incremented.
        let grown = prefix.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        });
        (from, grown.map_or(Bound::Unbounded, Bound::Excluded))
    }
}

/// Prints an informational line on standard error, for people only.
pub(crate) fn note(global: &Global, line: std::fmt::Arguments<'_>) {
    if !global.json {
        // A note that cannot be written is lost; the command continues.
        let _ = writeln!(std::io::stderr(), "{}", one_line(&line.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine::sim::World;

    /// A prefix is a range: up to the first key after all that begin with it, or to the end.
    #[test]
    fn prefixes_are_ranges() {
        let ends = |prefix: &[u8]| {
            Bounds { prefix: Some(prefix.to_vec()), from: Bound::Unbounded, to: Bound::Unbounded }.ends()
        };
        let (from, to) = (Bound::Included, Bound::Excluded);
        assert_eq!(ends(b"ab"), (from(b"ab".to_vec()), to(b"ac".to_vec())));
        assert_eq!(ends(b"a\xff\xff"), (from(b"a\xff\xff".to_vec()), to(b"b".to_vec())));
        assert_eq!(ends(b"\xff"), (from(b"\xff".to_vec()), Bound::Unbounded));
        assert_eq!(ends(b""), (Bound::Unbounded, Bound::Unbounded));
    }

    /// On a full disk a clear succeeds, and so does the flush after it, because it writes nothing. All items
    /// are gone, also after the next opening.
    #[test]
    fn a_clear_on_a_full_disk_is_done() {
        let world = World::new(7);
        let db = world.builder().open().expect("a new store");
        let keyspace = db.ordered("k").open().expect("a new keyspace");
        for number in 0..2_000_u32 {
            keyspace.put(number.to_be_bytes(), [7; 100]).expect("there is room");
        }
        drop(keyspace);
        world.set_capacity_bytes(Some(world.used_bytes() + 4096));
        let space = clear_keyspace(db, "k").expect("a clear needs room in the log alone");
        space.expect("a cleared keyspace is flushed in place");
        world.set_capacity_bytes(None);
        let db = world.builder().open().expect("it is there");
        let keyspace = db.keyspace("k").and_then(|any| any.ordered()).expect("it is there");
        assert_eq!(keyspace.iter().count(), 0);
    }
}
