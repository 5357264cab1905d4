//! The command time: inserts and searches a second, by Lemur's protocol.

use std::time::Instant;

use serde_json::{Value, json};
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::progress;
use trine_workload::screen::{Screen, table};
use trine_workload::text::count;

use super::{Subject, Target, Workshop, mean_and_interval, stop_if_asked};
use crate::arguments::{self, Global};

/// Operations between two checks of the clock and of Ctrl-C.
const STRIDE: u64 = 1024;

/// Numbers below `count` in random order (Fisher and Yates).
pub(crate) fn shuffled(count: u64, dice: &mut Dice) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, dice.below(index as u64 + 1) as usize);
    }
    order
}

/// Fills a value from its key.
pub(crate) fn value_of(key: u32, buffer: &mut [u8]) {
    for (byte, part) in buffer.iter_mut().zip(key.to_le_bytes().into_iter().cycle()) {
        *byte = part;
    }
}

/// Inserts keys in the given order; returns the rate a second.
pub(crate) fn insert(
    subject: &mut Subject,
    keys: impl ExactSizeIterator<Item = u32>,
    value_bytes: usize,
) -> Result<f64, Failure> {
    let mut value = vec![0; value_bytes];
    let count = keys.len();
    let started = Instant::now();
    for (index, key) in keys.enumerate() {
        if (index as u64).is_multiple_of(STRIDE) {
            stop_if_asked()?;
        }
        value_of(key, &mut value);
        subject.put(key, &value)?;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Searches keys; returns the rate a second, and the number found.
pub(crate) fn search(
    subject: &Subject,
    keys: impl ExactSizeIterator<Item = u32>,
) -> Result<(f64, u64), Failure> {
    let count = keys.len();
    let mut found = 0;
    let started = Instant::now();
    for (index, key) in keys.enumerate() {
        if (index as u64).is_multiple_of(STRIDE) {
            stop_if_asked()?;
        }
        found += u64::from(subject.get(key)?.is_some());
    }
    Ok((count as f64 / started.elapsed().as_secs_f64(), found))
}

/// Rates of one run of Lemur's protocol.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) inserts_a_second: f64,
    pub(crate) searches_a_second: f64,
}

/// Inserts even keys in random order into a new store, then searches keys, half of them missing.
pub(crate) fn lemur_run(
    target: &Target,
    workshop: &mut Workshop,
    (inserts, searches): (u64, u64),
    seed: u64,
) -> Result<Run, Failure> {
    let place = workshop.place();
    let mut subject = target.open(&place)?;
    let mut dice = Dice::new(seed);
    let order = shuffled(inserts, &mut dice);
    let inserts_a_second = insert(&mut subject, order.iter().map(|key| key * 2), target.value_bytes())?;
    subject.settle()?;
    let keys: Vec<u32> =
        (0..searches).map(|index| 2 * dice.below(inserts) as u32 + u32::from(index % 2 == 1)).collect();
    let (searches_a_second, found) = search(&subject, keys.iter().copied())?;
    if found != searches.div_ceil(2) {
        let message = format!("{}: {found} keys of {} were found", target.name(), searches.div_ceil(2));
        return Err(Failure::Other(message));
    }
    subject.close()?;
    workshop.clear(&place)?;
    Ok(Run { inserts_a_second, searches_a_second })
}

pub(crate) fn run(global: &Global, arguments: arguments::Time) -> Result<(), Failure> {
    if arguments.inserts > u64::from(u32::MAX / 2) {
        return Err(Failure::Usage(
            "--inserts: keys are numbers of 32 bits, half of them missing".to_string(),
        ));
    }
    let target = Target::parse(&arguments.preset, arguments.value_bytes, &arguments.sets)?;
    let mut workshop = Workshop::make(arguments.dir.as_deref())?;
    let bar = progress::over_items(arguments.runs, "runs");
    let mut runs = Vec::new();
    for index in 0..arguments.runs {
        let counts = (arguments.inserts, arguments.searches);
        runs.push(lemur_run(&target, &mut workshop, counts, arguments.seed + index)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let rates = [
        ("inserts", runs.iter().map(|run| run.inserts_a_second).collect::<Vec<f64>>()),
        ("searches", runs.iter().map(|run| run.searches_a_second).collect()),
    ];
    let mut screen = Screen::new();
    if global.json {
        let rate = |(name, values): &(&str, Vec<f64>)| {
            let (mean, interval) = mean_and_interval(values);
            (name.to_string(), json!({"mean_a_second": mean, "interval_95": interval, "runs": values}))
        };
        screen.json(&json!({
            "target": target.to_json(),
            "inserts": arguments.inserts,
            "searches": arguments.searches,
            "rates": rates.iter().map(rate).collect::<serde_json::Map<String, Value>>(),
        }))?;
        return screen.finish();
    }
    screen.line(format_args!(
        "{}: {} inserts of even keys in random order, {} searches, half of them missing; {} runs.",
        target.name(),
        count(arguments.inserts),
        count(arguments.searches),
        arguments.runs
    ))?;
    let mut rows = table(["a second", "mean", "95 % ±", "least", "most"]);
    for (name, values) in &rates {
        let (mean, interval) = mean_and_interval(values);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let shown = |value: f64| count(value as u64);
        let interval = interval.map_or("one run".to_string(), shown);
        rows.add_row([name.to_string(), shown(mean), interval, shown(least), shown(most)]);
    }
    screen.line(rows)?;
    screen.finish()
}
