//! One state of one scenario as a line of text, and back. A failure prints the line, and the line replays the
//! failure.
//!
//! ```text
//! leveled:seed=7:call=113:stop=amid:crash=power/any/99               a power cut amid call 113
//! leveled:seed=7:keep=0-3,9:keys=2:call=8:stop=after:crash=process/any/1:again=4/before/power/5
//! leveled:seed=7:fail=113/io/once/readable+120/full/always/readable   calls that fail
//! ```

use std::fmt;
use std::str::FromStr;

use crate::io::sim::{Crash, FailedSync, Failure, PowerCut, Stop};

use super::crash::{Again, Ends};
use super::play::Script;
use super::scenario::named;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) script: Script,
    pub(super) what: What,
}

/// The fault of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The process stops at a call.
    Stop { call: u64, stop: Stop, ends: Ends },
    /// Calls fail.
    Fail(Vec<Fails>),
}

/// A failing call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fails {
    pub(super) call: u64,
    pub(super) failure: Failure,
    pub(super) times: Times,
    pub(super) failed_sync: FailedSync,
}

/// How often the call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Times {
    Once,
    /// This call and every later one of the same operation.
    Alike,
    /// This call and every later one.
    Always,
}

const STOPS: [(&str, Stop); 3] = [("before", Stop::Before), ("amid", Stop::Amid), ("after", Stop::After)];
const CRASHES: [(&str, Crash); 2] = [("process", Crash::Process), ("power", Crash::Power)];
const CUTS: [(&str, PowerCut); 5] = [
    ("any", PowerCut::Any),
    ("torn", PowerCut::Torn),
    ("pages", PowerCut::Pages),
    ("stale", PowerCut::Stale),
    ("names", PowerCut::Names),
];
const FAILURES: [(&str, Failure); 3] =
    [("io", Failure::Io), ("full", Failure::Full), ("descriptor", Failure::NoDescriptor)];
const TIMES: [(&str, Times); 3] = [("once", Times::Once), ("alike", Times::Alike), ("always", Times::Always)];
const SYNCS: [(&str, FailedSync); 2] =
    [("readable", FailedSync::Readable), ("reverted", FailedSync::Reverted)];

fn word<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, one)| one == value).map(|(word, _)| *word).expect("every value has a word")
}

fn value<T: Copy>(table: &[(&str, T)], word: &str) -> Result<T, String> {
    let found = table.iter().find(|(one, _)| *one == word);
    found.map(|(_, value)| *value).ok_or_else(|| format!("{word:?} is none of {:?}", words(table)))
}

fn words<'w, T>(table: &[(&'w str, T)]) -> Vec<&'w str> {
    table.iter().map(|(word, _)| *word).collect()
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Script { scenario, seed, keep, keys_count, value_bytes, lost_sync } = &self.script;
        write!(f, "{}:seed={seed}", scenario.name)?;
        if let Some(keep) = keep {
            write!(f, ":keep={}", ranges(keep))?;
        }
        for (name, number) in [("keys", *keys_count), ("bytes", value_bytes.map(|bytes| bytes as u64))] {
            if let Some(number) = number {
                write!(f, ":{name}={number}")?;
            }
        }
        if let Some(number) = lost_sync {
            write!(f, ":lost_sync={number}")?;
        }
        match &self.what {
            What::Stop { call, stop, ends } => {
                let (crash, cut) = (word(&CRASHES, &ends.crash), word(&CUTS, &ends.cut));
                write!(f, ":call={call}:stop={}:crash={crash}/{cut}/{}", word(&STOPS, stop), ends.seed)?;
                for (index, again) in ends.again.iter().enumerate() {
                    let (stop, crash) = (word(&STOPS, &again.stop), word(&CRASHES, &again.crash));
                    let before = if index == 0 { ":again=" } else { "+" };
                    write!(f, "{before}{}/{stop}/{crash}/{}", again.call, again.seed)?;
                }
            }
            What::Fail(fails) => {
                for (index, one) in fails.iter().enumerate() {
                    let before = if index == 0 { ":fail=" } else { "+" };
                    let (how, times) = (word(&FAILURES, &one.failure), word(&TIMES, &one.times));
                    let sync = word(&SYNCS, &one.failed_sync);
                    write!(f, "{before}{}/{how}/{times}/{sync}", one.call)?;
                }
            }
        }
        Ok(())
    }
}

/// `[0, 1, 2, 7]` is `0-2,7`.
fn ranges(keep: &[usize]) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut rest = keep;
    while let Some(first) = rest.first() {
        let count = rest.iter().zip(*first..).take_while(|(one, wanted)| *one == wanted).count();
        let last = first + count - 1;
        texts.push(if count == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[count..];
    }
    texts.join(",")
}

fn kept(text: &str) -> Result<Vec<usize>, String> {
    let mut keep = Vec::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        keep.extend(number::<usize>(first)?..=number(last)?);
    }
    Ok(keep)
}

/// The parts of a text between slashes, exactly `N` of them.
fn parts<const N: usize>(text: &str) -> Result<[&str; N], String> {
    let parts: Vec<&str> = text.split('/').collect();
    parts.try_into().map_err(|_| format!("{text:?} has not {N} parts"))
}

fn again(text: &str) -> Result<Again, String> {
    let [call, stop, crash, seed] = parts(text)?;
    let (stop, crash) = (value(&STOPS, stop)?, value(&CRASHES, crash)?);
    Ok(Again { call: number(call)?, stop, crash, seed: number(seed)? })
}

fn fails(text: &str) -> Result<Fails, String> {
    let [call, failure, times, sync] = parts(text)?;
    let (failure, times) = (value(&FAILURES, failure)?, value(&TIMES, times)?);
    Ok(Fails { call: number(call)?, failure, times, failed_sync: value(&SYNCS, sync)? })
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let mut fields = text.trim().split(':');
        let name = fields.next().unwrap_or_default();
        let scenario = named(name).ok_or_else(|| format!("there is no scenario {name:?}"))?;
        let mut script = Script::new(scenario, 0);
        let (mut call, mut stop, mut failing) = (None, Stop::Before, None);
        let mut ends = Ends::once(Crash::Process, 0);
        for field in fields {
            let (name, text) = field.split_once('=').ok_or_else(|| format!("{field:?} has no ="))?;
            match name {
                "seed" => script.seed = number(text)?,
                "keep" => script.keep = Some(kept(text)?),
                "keys" => script.keys_count = Some(number(text)?),
                "bytes" => script.value_bytes = Some(number(text)?),
                "lost_sync" => script.lost_sync = Some(number(text)?),
                "call" => call = Some(number(text)?),
                "stop" => stop = value(&STOPS, text)?,
                "crash" => {
                    let [crash, cut, seed] = parts(text)?;
                    (ends.crash, ends.cut) = (value(&CRASHES, crash)?, value(&CUTS, cut)?);
                    ends.seed = number(seed)?;
                }
                "again" => ends.again = text.split('+').map(again).collect::<Result<_, _>>()?,
                "fail" => failing = Some(text.split('+').map(fails).collect::<Result<_, _>>()?),
                _ => return Err(format!("there is no field {name:?}")),
            }
        }
        let what = match (call, failing) {
            (Some(call), None) => What::Stop { call, stop, ends },
            (None, Some(fails)) => What::Fail(fails),
            _ => return Err(format!("{text:?} wants either call= or fail=")),
        };
        Ok(Case { script, what })
    }
}

/// A line is parsed into the case that printed it; a malformed line is refused.
#[test]
fn lines_are_read_back() {
    for text in [
        "leveled:seed=7:call=113:stop=amid:crash=power/torn/99",
        "full:seed=1:keep=0-3,9:keys=2:bytes=1:lost_sync=4:call=8:stop=after:crash=process/any/1\
         :again=4/before/power/5+6/amid/process/7",
        "reads:seed=7:fail=113/io/once/readable+120/full/alike/reverted",
    ] {
        let case: Case = text.parse().expect("it is one");
        assert_eq!(case.to_string(), text);
    }
    for text in
        ["", "none:seed=1:call=1", "full:seed=1", "full:call=x", "full:call=1:stop=never", "full:call"]
    {
        assert!(text.parse::<Case>().is_err(), "{text}");
    }
}
