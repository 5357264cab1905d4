//! The command verify-random: compares a preset with a map.

use std::collections::BTreeMap;

use serde_json::json;
use trine_workload::dice::Dice;
use trine_workload::failure::Failure;
use trine_workload::progress;
use trine_workload::screen::Screen;
use trine_workload::text::count;

use super::{Subject, Target, Workshop, stop_if_asked};
use crate::arguments::{self, Global};

type Model = BTreeMap<u32, Vec<u8>>;

/// The counts of the comparison.
#[derive(Default)]
struct Tally {
    writes: u64,
    answers: u64,
    wrong: u64,
    first_wrong: Option<String>,
}

impl Tally {
    fn check(&mut self, is_right: bool, what: impl FnOnce() -> String) {
        self.answers += 1;
        if !is_right {
            self.wrong += 1;
            self.first_wrong.get_or_insert_with(what);
        }
    }
}

pub(crate) fn run(global: &Global, arguments: arguments::VerifyRandom) -> Result<(), Failure> {
    let target = Target::parse(&arguments.preset, None, &arguments.sets)?;
    let mut workshop = Workshop::make(arguments.dir.as_deref())?;
    let place = workshop.place();
    let mut subject = target.open(&place)?;
    let mut dice = Dice::new(arguments.seed);
    let (mut model, mut tally) = (Model::new(), Tally::default());
    let bar = progress::over_items(arguments.operations, target.name());
    let a_life = arguments.operations / (arguments.reopens + 1) + 1;
    for index in 0..arguments.operations {
        if index > 0 && index % a_life == 0 {
            compare_all(&subject, &model, &mut tally)?;
            subject.close()?;
            subject = target.open(&place)?;
        }
        if index % 1024 == 0 {
            stop_if_asked()?;
            bar.set_position(index);
        }
        operate(&mut subject, &target, &mut dice, arguments.keys, &mut model, &mut tally)?;
    }
    compare_all(&subject, &model, &mut tally)?;
    subject.close()?;
    bar.finish_and_clear();
    report(global, &arguments, &target, &tally)
}

fn operate(
    subject: &mut Subject,
    target: &Target,
    dice: &mut Dice,
    keys: u64,
    model: &mut Model,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let key = dice.below(keys) as u32;
    match dice.below(10) {
        0..5 => {
            let value: Vec<u8> = (0..target.value_bytes()).map(|_| dice.next() as u8).collect();
            subject.put(key, &value)?;
            model.insert(key, value);
            tally.writes += 1;
        }
        5 => {
            subject.delete(key)?;
            model.remove(&key);
            tally.writes += 1;
        }
        6 => {
            let found = subject.contains(key)?;
            tally.check(found == model.contains_key(&key), || format!("contains({key}) is {found}"));
        }
        _ => {
            let found = subject.get(key)?;
            tally.check(found.as_ref() == model.get(&key), || format!("get({key}) is {found:?}"));
        }
    }
    Ok(())
}

fn compare_all(subject: &Subject, model: &Model, tally: &mut Tally) -> Result<(), Failure> {
    let mut expected = model.iter();
    subject.scan(|key, value| {
        let next = expected.next();
        let is_right = next.is_some_and(|(one, held)| *one == key && held == value);
        tally.check(is_right, || format!("the scan has {key} where {next:?} should be"));
    })?;
    let left = expected.count();
    tally.check(left == 0, || format!("the scan ends {left} items early"));
    Ok(())
}

fn report(
    global: &Global,
    arguments: &arguments::VerifyRandom,
    target: &Target,
    tally: &Tally,
) -> Result<(), Failure> {
    let mut screen = Screen::new();
    if global.json {
        screen.json(&json!({
            "target": target.to_json(),
            "operations": arguments.operations,
            "reopens": arguments.reopens,
            "writes": tally.writes,
            "answers": tally.answers,
            "wrong": tally.wrong,
            "first_wrong": tally.first_wrong,
        }))?;
    } else {
        screen.line(format_args!(
            "{}: {} operations, {} reopens; {} answers compared with a map, {} wrong.",
            target.name(),
            count(arguments.operations),
            arguments.reopens,
            count(tally.answers),
            count(tally.wrong)
        ))?;
        if let Some(first) = &tally.first_wrong {
            screen.line(format_args!("WRONG: {first}"))?;
        }
    }
    screen.finish()?;
    if tally.wrong > 0 { Err(Failure::Check(1)) } else { Ok(()) }
}
