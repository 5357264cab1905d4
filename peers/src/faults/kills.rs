//! Kills children that write, at random moments; the next child checks the store before it writes on.
//!
//! Only the process ends: the system keeps all bytes written to it. Power cuts are not tried here.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::ChildStdout;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Options;
use super::outcome;
use super::random::Random;
use super::results::Kills;
use crate::engines::{Answer, Kept, Peer, Until, told};

/// Kills of one store before a new one is begun.
const KILLS_OF_A_STORE: u64 = 10;
/// The longest time to open and read a store.
const OPEN_SECONDS_MAX: u64 = 60;
/// A child is killed at most this long after it began to write.
const LOAD_MS_MAX: u64 = 300;
/// One child in four is killed at most this long after its start, often before the store is open.
const OPENING_MS_MAX: u64 = 60;
const VIOLATIONS_TOLD_MAX: usize = 10;

/// The batches after which the store may stand.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: u64,
    /// The last acknowledged batch, whether or not the store promises to keep it.
    acknowledged: u64,
    most: u64,
}

/// Reports of a child until it was killed.
#[derive(Debug, Default)]
struct Told {
    position: Option<u64>,
    acknowledged: Option<u64>,
    wrong: Option<String>,
}

/// Kills the children of a row, with one way of acknowledging writes.
pub(super) fn run(peer: &Peer, until: Until, options: &Options, scratch: &Path) -> Answer<Kills> {
    let mut random = Random::new(options.seed, &format!("{} {} kills", peer.name, until.name()));
    let mut kills = Kills { writes: until.name().to_owned(), ..Kills::default() };
    let directory = scratch.join("killed");
    let mut bounds = None;
    for cycle in 0..options.cycles {
        if cycle % KILLS_OF_A_STORE == 0 {
            bounds = None;
            begin_anew(&directory)?;
        }
        let known: Bounds = bounds.unwrap_or_default();
        let told = kill_one(peer, until, known, &mut random, &directory)?;
        kills.cycles += 1;
        if let Some(wrong) = told.wrong {
            match bounds {
                Some(_) => kills.violations += 1,
                None => kills.unmade += 1,
            }
            kills.told.extend(Some(wrong).filter(|_| kills.told.len() < VIOLATIONS_TOLD_MAX));
            bounds = None;
            begin_anew(&directory)?;
            continue;
        }
        let Some(position) = told.position else {
            kills.while_opening += 1;
            continue;
        };
        kills.gone += u64::from(position < known.acknowledged);
        let acknowledged = told.acknowledged.unwrap_or(position);
        kills.acknowledged += acknowledged - position;
        let is_kept = until == Until::Synced || peer.promises.buffered_kept == Kept::All;
        let least = if is_kept { acknowledged } else { position };
        bounds = Some(Bounds { least, acknowledged, most: acknowledged + 1 });
    }
    Ok(kills)
}

fn begin_anew(directory: &Path) -> Answer<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(told)?;
    }
    std::fs::create_dir_all(directory).map_err(told)
}

/// Runs one child from its start to its end.
fn kill_one(
    peer: &Peer,
    until: Until,
    bounds: Bounds,
    random: &mut Random,
    directory: &Path,
) -> Answer<Told> {
    let (least, most) = (bounds.least.to_string(), bounds.most.to_string());
    let mut child = outcome::child(&["load", peer.name, until.name(), &least, &most], directory)?;
    let printed = child.stdout.take().ok_or("the child has no pipe")?;
    let (opened, reader) = listen(printed);
    let mut is_hung = false;
    if random.below(4) == 0 {
        thread::sleep(Duration::from_millis(random.below(OPENING_MS_MAX)));
    } else {
        let delay = Duration::from_millis(random.below(LOAD_MS_MAX));
        match opened.recv_timeout(Duration::from_secs(OPEN_SECONDS_MAX)) {
            Ok(()) => thread::sleep(delay),
            Err(error) => is_hung = error == mpsc::RecvTimeoutError::Timeout,
        }
    }
    let ended_before = child.try_wait().map_err(told)?;
    if ended_before.is_none() {
        child.kill().map_err(told)?;
        child.wait().map_err(told)?;
    }
    let mut told = reader.join().map_err(|_| "the reader of a pipe panicked")?;
    if told.wrong.is_none() {
        told.wrong = match ended_before {
            Some(status) => Some(format!("ended by itself: {status}")),
            None => is_hung.then(|| format!("not open after {OPEN_SECONDS_MAX} s")),
        };
    }
    Ok(told)
}

/// Collects the reports of the child, and sends a message once the child has opened the store.
fn listen(printed: ChildStdout) -> (Receiver<()>, JoinHandle<Told>) {
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut told = Told::default();
        let mut lines = BufReader::new(printed);
        let mut line = String::new();
        // A line without its end was cut short by the kill.
        while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
            match line.trim_end().split_once(' ') {
                Some(("ack", number)) => told.acknowledged = number.parse().ok(),
                Some(("open", number)) => {
                    told.position = number.parse().ok();
                    // The parent may have killed the child already.
                    let _ = sender.send(());
                }
                Some(("wrong", text)) => told.wrong = Some(text.to_owned()),
                _ => told.wrong = Some(format!("a line that no child prints: {line:?}")),
            }
            line.clear();
        }
        told
    });
    (receiver, reader)
}
