//! The command dump: the parts of one file, a line each.

use serde_json::json;
use trine::inspect::{self, Part};
use trine_workload::failure::Failure;
use trine_workload::screen::Screen;

use crate::arguments::{self, Global};

pub(crate) fn run(global: &Global, arguments: arguments::Dump) -> Result<(), Failure> {
    let mut screen = Screen::new();
    let mut shown = Ok(());
    inspect::dump(&arguments.file, |part| {
        if shown.is_ok() {
            shown = if global.json { screen.object(&to_json(part)) } else { screen.line(line(part)) };
        }
    })?;
    shown?;
    screen.finish()
}

fn line(part: &Part) -> String {
    let says = match &part.damage {
        None => part.says.clone(),
        Some(at) => {
            format!("DAMAGED at {}: {}, expected {}, found {}", at.offset, at.what, at.expected, at.found)
        }
    };
    format!("{:>12} {:>9}  {:<16}  {says}", part.offset, part.bytes, part.name)
}

fn to_json(part: &Part) -> serde_json::Value {
    let damage = part
        .damage
        .as_ref()
        .map(|at| json!({"offset": at.offset, "what": at.what, "expected": at.expected, "found": at.found}));
    json!({
        "offset": part.offset, "bytes": part.bytes, "name": part.name, "says": part.says, "damage": damage,
    })
}
