//! The command partitions: those of a keyspace listed, made and dropped.

use serde_json::json;
use trine_workload::failure::Failure;
use trine_workload::text::Spelling;

use crate::arguments::{Global, Partitions};
use crate::items::{check_writable, done, note, open_to_change, open_to_read, open_to_write};
use crate::listing::Listing;
use crate::named;

pub(crate) fn run(global: &Global, arguments: &Partitions) -> Result<(), Failure> {
    let spelling = Spelling::of_flag(arguments.hex);
    let parse = |names: &[String]| -> Result<Vec<Vec<u8>>, Failure> {
        names.iter().map(|name| spelling.parse("partition", name)).collect()
    };
    if !arguments.make.is_empty() {
        return make(global, arguments, &parse(&arguments.make)?);
    }
    if !arguments.drop.is_empty() {
        return drop_some(global, arguments, &parse(&arguments.drop)?);
    }
    list(global, arguments, spelling)
}

fn make(global: &Global, arguments: &Partitions, names: &[Vec<u8>]) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let db = open_to_write(global, &arguments.store)?;
    let divided = named::partitioned(&db, &arguments.keyspace)?;
    names.iter().try_for_each(|name| divided.partition(name).map(drop))?;
    drop(divided);
    db.close()?;
    done(global, json!({"partitions": names.len()}))
}

fn drop_some(global: &Global, arguments: &Partitions, names: &[Vec<u8>]) -> Result<(), Failure> {
    check_writable(&arguments.keyspace)?;
    let db = open_to_change(global, &arguments.store)?;
    check_there(&db, &arguments.keyspace)?;
    let divided = named::partitioned(&db, &arguments.keyspace)?;
    let dropped = divided.drop_partitions(names)?;
    drop(divided);
    db.close()?;
    let wanted = names.len() as u64;
    if dropped < wanted {
        note(global, format_args!("{} of {wanted} were not there", wanted - dropped));
    }
    done(global, json!({"dropped": dropped}))
}

fn list(global: &Global, arguments: &Partitions, spelling: Spelling) -> Result<(), Failure> {
    let db = open_to_read(global, &arguments.store)?;
    check_there(&db, &arguments.keyspace)?;
    let divided = named::partitioned(&db, &arguments.keyspace)?;
    let mut listing = Listing::of("partition");
    for name in divided.partitions()? {
        let Some(partition) = divided.find_partition(&name)? else { continue };
        listing.add((&name, spelling), partition.approximate_len()?, &partition.stats()?, &[]);
    }
    listing.show(global, "no partitions")?;
    drop(divided);
    Ok(db.close()?)
}

/// Opening would make it.
fn check_there(db: &trine::Db, keyspace: &str) -> Result<(), Failure> {
    match db.contains_keyspace(keyspace) {
        true => Ok(()),
        false => Err(trine::Error::NoKeyspace { name: keyspace.to_owned() }.into()),
    }
}
