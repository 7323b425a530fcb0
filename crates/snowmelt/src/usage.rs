//! What was typed, parsed; what is wrong with it, in the house form.

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind;
use snowmelt_types::{Code, ErrorReport};

use crate::args::{Cli, ErrorForm};
use crate::env;

/// Why there is nothing to run.
pub enum Ended {
    /// Help or version was shown.
    Shown,
    /// The command line is wrong.
    Wrong(Box<ErrorReport>),
}

/// Parses the command line; shows help and version.
pub fn parse(typed: Vec<OsString>) -> Result<Cli, Ended> {
    Cli::try_parse_from(typed).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Ended::Shown
        }
        _ => Ended::Wrong(Box::new(report(&error))),
    })
}

/// The form of errors, as far as it can be known before the command line is parsed.
pub fn error_form(typed: &[OsString]) -> ErrorForm {
    let asked = |pair: &[OsString]| pair[0] == "--errors" && pair[1] == "json";
    let given = typed.windows(2).any(asked) || typed.iter().any(|typed| typed == "--errors=json");
    let named = env::text(env::ERRORS).is_some_and(|form| form == "json");
    if given || named { ErrorForm::Json } else { ErrorForm::Text }
}

/// The parser's paragraphs: what is wrong, tips, and how to use it.
fn report(error: &clap::Error) -> ErrorReport {
    let shown = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return ErrorReport::new(Code::OPTION, "a command is missing")
            .hint("`snowmelt --help` lists them");
    }
    let lines = |mark: &str| {
        let found = shown.lines().filter_map(|line| line.trim().strip_prefix(mark));
        found.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let message = shown.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let usage = lines("Usage:").into_iter().next();
    let hint =
        lines("tip:").into_iter().next().or_else(|| usage.map(|usage| format!("usage: {usage}")));
    let report = ErrorReport::new(Code::OPTION, message);
    match hint {
        Some(hint) => report.hint(hint),
        None => report.hint("`snowmelt --help` explains the options"),
    }
}
