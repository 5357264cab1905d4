//! Runs a program from its arguments to its exit code.
//!
//! An error is one line `NAME: ...` on standard error, or one JSON object with `--json`. If the reader of the
//! output closes it (`| head`), the program ends quietly. The exit codes are those of [`Failure`].

use std::borrow::Cow;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::failure::Failure;
use crate::{screen, text};

/// Parses the arguments of the program `name`, runs it and reports its error.
pub fn main<A: Parser>(
    name: &str,
    words: Vec<OsString>,
    run: impl FnOnce(A) -> Result<(), Failure>,
) -> ExitCode {
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let outcome = match A::try_parse_from(words) {
        Ok(arguments) => run(arguments),
        Err(error) if error.use_stderr() && json => Err(Failure::Usage(error.to_string())),
        Err(error) => return exit(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell(json, &screen::error_prefix(name));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints the parser's answer: help, the version, or an error that quotes the arguments.
fn exit(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    match text::shown(&text) {
        Cow::Borrowed(_) => error.exit(),
        // Colors are escapes too, so an answer that needs escaping loses them.
        Cow::Owned(plain) => eprint!("{plain}"),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
