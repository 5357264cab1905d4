//! The outcome of a damaged store, as a child process finds it.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Seen;
use crate::engines::{Answer, told};

/// The longest time for a child to open and read some hundred keys.
const CHECK_SECONDS_MAX: u64 = 20;

/// Ordered from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// All reads were answered, and rightly.
    Right,
    /// The opening returned an error.
    Refused,
    /// Some reads returned errors, the others were right.
    Partly,
    /// The process ended: a panic, an abort or a signal.
    Died,
    /// The process did not end.
    Hung,
    /// Some reads returned errors, and some were wrong.
    WrongBesideAnError,
    /// Wrong answers, and no error anywhere.
    Silent,
}

impl Outcome {
    pub(super) const ALL: [Outcome; 7] = [
        Outcome::Right,
        Outcome::Refused,
        Outcome::Partly,
        Outcome::Died,
        Outcome::Hung,
        Outcome::WrongBesideAnError,
        Outcome::Silent,
    ];

    fn of(seen: &Seen) -> Outcome {
        match (seen.errors > 0, seen.missing + seen.altered > 0) {
            _ if seen.refused.is_some() => Outcome::Refused,
            (false, false) => Outcome::Right,
            (true, false) => Outcome::Partly,
            (true, true) => Outcome::WrongBesideAnError,
            (false, true) => Outcome::Silent,
        }
    }
}

/// An outcome and its most telling text.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// Whether some key had another value, so that not only keys were missing.
    pub(super) is_altered: bool,
    pub(super) text: String,
}

/// Starts this program again, with these arguments and a pipe from its output.
pub(super) fn child(arguments: &[&str], directory: &Path) -> Answer<Child> {
    let program = std::env::current_exe().map_err(told)?;
    let mut command = Command::new(program);
    command.args(arguments).arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(told)
}

/// Opens and reads the store in a child process.
pub(super) fn look(store: &str, directory: &Path) -> Answer<Verdict> {
    let mut child = child(&["check", store], directory)?;
    let mut printed = child.stdout.take().ok_or("the child has no pipe")?;
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let read = printed.read_to_end(&mut text);
        // The parent may have stopped waiting.
        let _ = sender.send(());
        read.map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let ended = receiver.recv_timeout(Duration::from_secs(CHECK_SECONDS_MAX));
    if ended.is_err() {
        child.kill().map_err(told)?;
    }
    let status = child.wait().map_err(told)?;
    let text = reader.join().map_err(|_| "the reader of a pipe panicked")?.map_err(told)?;
    if ended.is_err() {
        let text = format!("not ended after {CHECK_SECONDS_MAX} s");
        return Ok(Verdict { outcome: Outcome::Hung, is_altered: false, text });
    }
    Ok(judge(status, &text))
}

fn judge(status: ExitStatus, printed: &str) -> Verdict {
    let seen = printed.lines().last().and_then(|line| serde_json::from_str::<Seen>(line).ok());
    match seen.filter(|_| status.success()) {
        Some(seen) => Verdict {
            outcome: Outcome::of(&seen),
            is_altered: seen.altered > 0,
            text: [&seen.refused, &seen.wrong, &seen.error]
                .into_iter()
                .flatten()
                .next()
                .cloned()
                .unwrap_or_default(),
        },
        None => {
            let panic = printed.lines().find(|line| line.starts_with("panic: ")).unwrap_or_default();
            Verdict { outcome: Outcome::Died, is_altered: false, text: format!("{status} {panic}") }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Errors, wrong answers, both, none, a refused opening and a signal have different outcomes.
    #[test]
    fn outcomes_are_told_apart() {
        let of = |errors, missing, altered| {
            let seen = Seen { errors, missing, altered, ..Seen::default() };
            judge(ExitStatus::from_raw(0), &serde_json::to_string(&seen).expect("it is a struct")).outcome
        };
        assert_eq!(of(0, 0, 0), Outcome::Right);
        assert_eq!(of(1, 0, 0), Outcome::Partly);
        assert_eq!(of(1, 1, 0), Outcome::WrongBesideAnError);
        assert_eq!(of(0, 1, 0), Outcome::Silent);
        assert_eq!(of(0, 0, 1), Outcome::Silent);
        let refused = Seen { refused: Some("no".to_owned()), ..Seen::default() };
        assert_eq!(Outcome::of(&refused), Outcome::Refused);
        let seen = serde_json::to_string(&Seen::default()).expect("it is a struct");
        assert_eq!(judge(ExitStatus::from_raw(11), &seen).outcome, Outcome::Died);
        assert_eq!(judge(ExitStatus::from_raw(0), "panic: a\n").outcome, Outcome::Died);
        assert!(Outcome::ALL.is_sorted());
    }
}
