//! The command explain: the path of one get, as a table or as JSON.

use serde_json::{Map, Value, json};
use trine::inspect::{Explanation, Step};
use trine_workload::failure::Failure;
use trine_workload::screen::{Screen, table};
use trine_workload::text::{Spelling, add_field, bytes, nanoseconds};

use crate::any_keyspace::AnyKeyspace;
use crate::arguments::{self, Global};
use crate::items::open_to_read;
use crate::listing::partition_cell;
use crate::named;

pub(crate) fn run(global: &Global, arguments: arguments::Explain) -> Result<(), Failure> {
    let spelling = Spelling::of_flag(arguments.hex);
    let key = spelling.parse("key", &arguments.key)?;
    let db = open_to_read(global, &arguments.store)?;
    let keyspace = named::find(&db, &arguments.keyspace)?;
    let explained = keyspace.explain(&key)?;
    let is_missing = match (&keyspace, &explained.partition) {
        (AnyKeyspace::Ordered(keyspace), Some(name)) if keyspace.partition_name().is_none() => {
            keyspace.partition_stats(name)?.is_none()
        }
        _ => false,
    };
    let level = if keyspace.is_hashed() { "height" } else { "level" };
    drop(keyspace);
    db.close()?;
    let mut screen = Screen::new();
    if global.json {
        screen.json(&to_json(&explained))?;
    } else {
        if let Some(name) = &explained.partition {
            let missing = if is_missing { ", which does not exist" } else { "" };
            screen.line(format_args!("partition: {}{missing}", partition_cell(name, spelling)))?;
        }
        tell(&explained, level, &mut screen)?;
    }
    screen.finish()
}

/// Prints the steps; `level` is the word for a level, `level` or `height`.
fn tell(explained: &Explanation, level: &str, screen: &mut Screen) -> Result<(), Failure> {
    let mut steps = table(["step", "place", "said", "bytes", "took"]);
    for step in &explained.steps {
        let (size, took) = (bytes(step.bytes), nanoseconds(step.ns));
        steps.add_row([step.name.to_string(), place(step, level), step.said.clone(), size, took]);
    }
    screen.line(steps)?;
    match explained.value_bytes {
        Some(length) => screen.line(format_args!("found: a value of {}", bytes(length))),
        None => screen.line("not found"),
    }
}

fn place(step: &Step, level: &str) -> String {
    let Some(number) = step.level else { return "memory".to_string() };
    let at = step.offset.map_or_else(String::new, |offset| format!(" at {offset}"));
    format!("{level} {number}, run {}: {}{at}", step.run, step.file)
}

fn to_json(explained: &Explanation) -> Value {
    let step = |step: &Step| {
        json!({
            "step": step.name, "level": step.level, "run": step.level.map(|_| step.run),
            "file": step.level.map(|_| &step.file), "offset": step.offset, "said": step.said, "ns": step.ns,
            "bytes": step.bytes,
        })
    };
    let steps: Vec<Value> = explained.steps.iter().map(step).collect();
    let (is_found, value_bytes) = (explained.value_bytes.is_some(), explained.value_bytes);
    let mut object = Map::new();
    if let Some(name) = &explained.partition {
        add_field(&mut object, "partition", name, Spelling::Text);
    }
    let rest = [("found", json!(is_found)), ("value_bytes", json!(value_bytes)), ("steps", json!(steps))];
    object.extend(rest.map(|(field, value)| (field.to_owned(), value)));
    Value::Object(object)
}
