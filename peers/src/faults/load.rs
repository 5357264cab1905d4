//! The load of a child until it is killed. Every batch is a function of its number, so the next child can
//! tell from the store alone after which batch it stands.
//!
//! 1. A batch writes its number under `POSITION`, and values with that number under four keys of a circle.
//!    Each fifth batch deletes the fourth key instead.
//! 2. The state after batch `p` is `state(p)`, however often the process was killed before.
//! 3. A batch is reported to the parent after its acknowledgement and before the next batch begins.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::engines::{self, Answer, Change, Engine, Purpose, Until, told};

const POSITION: &[u8] = b"position";
const KEYS_IN_BATCH: u64 = 4;
/// Batches until a key comes again; no multiple of 5, so that each key is written and deleted in turn.
const BATCHES_AROUND: u64 = 997;

/// Arguments of the child.
#[derive(Args, Debug)]
pub(crate) struct LoadOptions {
    /// The name of a row of the tables.
    store: String,
    /// `synced` or `buffered`.
    until: String,
    /// The store must have this batch.
    least: u64,
    /// The store may have no batch after this one.
    most: u64,
    directory: PathBuf,
}

/// The command `load`, run by the child. It prints one line per event: `open P`, `wrong TEXT`, `ack N`.
pub(crate) fn load(options: &LoadOptions) -> Answer<()> {
    let until = Until::named(&options.until)?;
    let mut engine = open(&options.store, &options.directory, until)?;
    let position = match audit(engine.as_ref(), options.least, options.most) {
        Ok(position) => position,
        Err(wrong) => return say(&format!("wrong {wrong}")),
    };
    say(&format!("open {position}"))?;
    for number in position + 1.. {
        if let Err(error) = engine.write(&batch(number), until) {
            return say(&format!("wrong a write is refused: {error}"));
        }
        say(&format!("ack {number}"))?;
    }
    Ok(())
}

fn open(store: &str, directory: &Path, until: Until) -> Answer<Box<dyn Engine>> {
    let opened = (engines::peer(store)?.open)(directory, Purpose::Load(until));
    if let Err(error) = &opened {
        say(&format!("wrong the store is refused: {error}"))?;
    }
    opened
}

/// Prints one line, in one write.
fn say(line: &str) -> Answer<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).map_err(told)
}

fn key(slot: u64) -> Vec<u8> {
    format!("slot-{:08x}", (slot as u32).wrapping_mul(0x9e37_79b1)).into_bytes()
}

fn value(slot: u64, number: u64) -> Vec<u8> {
    let length = 100 + (slot as usize * 31 + number as usize * 17) % 600;
    format!("batch {number} wrote slot {slot}; ").into_bytes().into_iter().cycle().take(length).collect()
}

fn is_deleted(slot: u64, number: u64) -> bool {
    slot % KEYS_IN_BATCH == KEYS_IN_BATCH - 1 && number.is_multiple_of(5)
}

fn batch(number: u64) -> Vec<Change> {
    let mut changes = vec![Change::Put(POSITION.to_vec(), number.to_string().into_bytes())];
    let first = number % BATCHES_AROUND * KEYS_IN_BATCH;
    changes.extend((first..first + KEYS_IN_BATCH).map(|slot| {
        if is_deleted(slot, number) {
            Change::Delete(key(slot))
        } else {
            Change::Put(key(slot), value(slot, number))
        }
    }));
    changes
}

/// The value of a slot after the first `position` batches.
fn state(slot: u64, position: u64) -> Option<Vec<u8>> {
    let turn = slot / KEYS_IN_BATCH;
    let back = (position + BATCHES_AROUND - turn) % BATCHES_AROUND;
    let number = position.checked_sub(back).filter(|number| *number > 0)?;
    (!is_deleted(slot, number)).then(|| value(slot, number))
}

/// The batch after which the store stands. Fails unless that is between the bounds, and the store's state is
/// the one after it.
fn audit(engine: &dyn Engine, least: u64, most: u64) -> Answer<u64> {
    let position = match engine.get(POSITION)? {
        Some(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            text.parse().map_err(|_| format!("the position is {text:?}"))?
        }
        None => 0,
    };
    if position < least {
        return Err(format!("stands at batch {position}, and {least} was acknowledged"));
    }
    if position > most {
        return Err(format!("stands at batch {position}, and {most} was the last one begun"));
    }
    let mut expected = std::collections::BTreeMap::new();
    if position > 0 {
        expected.insert(POSITION.to_vec(), position.to_string().into_bytes());
    }
    for slot in 0..BATCHES_AROUND * KEYS_IN_BATCH {
        let right = state(slot, position);
        if engine.get(&key(slot))? != right {
            return Err(format!("stands at batch {position}, and slot {slot} is not as it was after that"));
        }
        expected.extend(right.map(|value| (key(slot), value)));
    }
    let mut found = std::collections::BTreeMap::new();
    engine.scan(&mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
    })?;
    if found != expected {
        return Err(format!("stands at batch {position}, and a scan is not as it was after that"));
    }
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `state` equals the result of applying the batches one after the other.
    #[test]
    fn the_state_equals_the_applied_batches() {
        let mut items = std::collections::BTreeMap::new();
        for number in 1..=2500 {
            for change in batch(number) {
                match change {
                    Change::Put(key, value) => drop(items.insert(key, value)),
                    Change::Delete(key) => drop(items.remove(&key)),
                }
            }
            if number % 613 == 0 || number == 2500 {
                for slot in 0..BATCHES_AROUND * KEYS_IN_BATCH {
                    assert_eq!(items.get(&key(slot)), state(slot, number).as_ref(), "{slot} after {number}");
                }
            }
        }
        assert!((0..BATCHES_AROUND * KEYS_IN_BATCH).all(|slot| state(slot, 0).is_none()));
    }
}
