//! The command partitions: lists, makes and drops the partitions of a keyspace, and sets its retention bound.

use serde_json::json;
use trine_workload::failure::Failure;
use trine_workload::text::{Spelling, count};

use crate::arguments::{Global, Partitions};
use crate::divided::Divided;
use crate::items::{check_writable, done, note, open_to_change, open_to_read, open_to_write};
use crate::listing::Listing;
use crate::named::{self, Make};
use crate::rule;

pub(crate) fn run(global: &Global, arguments: &Partitions) -> Result<(), Failure> {
    let spelling = Spelling::of_flag(arguments.hex);
    let parse = |names: &[String]| -> Result<Vec<Vec<u8>>, Failure> {
        names.iter().map(|name| spelling.parse("partition", name)).collect()
    };
    if !arguments.drop.is_empty() {
        return drop_some(global, arguments, &parse(&arguments.drop)?);
    }
    if let Some(bound) = &arguments.retain {
        return retain(global, arguments, &spelling.parse("bound", bound)?);
    }
    if !arguments.make.is_empty() || arguments.by.partition_by.is_some() || arguments.hashed {
        return make(global, arguments, &parse(&arguments.make)?);
    }
    list(global, arguments, spelling)
}

fn make(global: &Global, arguments: &Partitions, names: &[Vec<u8>]) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let db = open_to_write(global, &arguments.store)?;
    let make = Make { hashed: arguments.hashed, rule: arguments.by.partition_by.as_ref() };
    named::make_divided(&db, &arguments.keyspace, make)?;
    let (divided, _) = Divided::find(&db, &arguments.keyspace)?;
    divided.make(names)?;
    drop(divided);
    db.close()?;
    done(global, json!({"partitions": names.len()}))
}

fn drop_some(global: &Global, arguments: &Partitions, names: &[Vec<u8>]) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let db = open_to_change(global, &arguments.store)?;
    let (divided, _) = Divided::find(&db, &arguments.keyspace)?;
    let dropped = divided.drop_partitions(names)?;
    drop(divided);
    db.close()?;
    let wanted = names.len() as u64;
    if dropped < wanted {
        note(global, format_args!("{} of {wanted} were not there", wanted - dropped));
    }
    done(global, json!({"dropped": dropped}))
}

fn retain(global: &Global, arguments: &Partitions, bound: &[u8]) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let db = open_to_change(global, &arguments.store)?;
    let (divided, _) = Divided::find(&db, &arguments.keyspace)?;
    let dropped = divided.retain_from(bound)?;
    drop(divided);
    db.close()?;
    note(global, format_args!("{dropped} dropped"));
    done(global, json!({"dropped": dropped}))
}

fn list(global: &Global, arguments: &Partitions, spelling: Spelling) -> Result<(), Failure> {
    let db = open_to_read(global, &arguments.store)?;
    let (divided, rule) = Divided::find(&db, &arguments.keyspace)?;
    let sizes = divided.sizes()?;
    let (number, rule) = (count(sizes.len() as u64), rule::text(&rule));
    let from = match divided.retained_from()? {
        Some(name) => format!(", from {} on", spelling.line(&name)),
        None => String::new(),
    };
    let mut listing = Listing::of_partitions(format!("partitions by {rule}{from}: {number}"));
    for one in &sizes {
        listing.add((&one.name, spelling), one.approximate_keys, &one.stats);
    }
    listing.show(global)?;
    drop(divided);
    Ok(db.close()?)
}
