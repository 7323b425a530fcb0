//! Parses the command line, and turns the parser's errors into error reports.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use snowmelt_types::{Code, ErrorReport};

use super::{Cli, ErrorForm};
use crate::env;

/// The reason why no command runs.
pub enum Stop {
    /// Help or version was shown, and this is the exit code.
    Shown(u8),
    /// The command line is wrong.
    Wrong(Box<ErrorReport>),
}

/// Parses the command line; shows help and version.
pub fn parse(typed: Vec<OsString>) -> Result<Cli, Stop> {
    Cli::try_parse_from(help_as_option(typed)).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp => {
            let _ = error.print();
            Stop::Shown(0)
        }
        // With the build, which is read from the program's file: not at every start.
        ErrorKind::DisplayVersion => {
            let _ = writeln!(io::stdout(), "snowmelt {}", snowmelt_rpc::version());
            Stop::Shown(0)
        }
        // `snowmelt` without arguments shows the help.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Stop::Shown(2)
        }
        _ => Stop::Wrong(Box::new(report(&error))),
    })
}

/// Turns `snowmelt help fn deploy` and `snowmelt fn help deploy` into `snowmelt fn deploy --help`.
fn help_as_option(mut typed: Vec<OsString>) -> Vec<OsString> {
    let mut command = Cli::command();
    for index in 1..typed.len() {
        if typed[index] == "help" && command.has_subcommands() {
            typed.remove(index);
            typed.push("--help".into());
            return typed;
        }
        let named = typed[index].to_str().and_then(|word| command.find_subcommand(word));
        match named.cloned() {
            Some(inner) => command = inner,
            None => return typed,
        }
    }
    typed
}

/// The form of errors, as far as it is known before the command line is parsed.
pub fn error_form(typed: &[OsString]) -> ErrorForm {
    let asked = |pair: &[OsString]| pair[0] == "--errors" && pair[1] == "json";
    let given = typed.windows(2).any(asked) || typed.iter().any(|typed| typed == "--errors=json");
    let named = env::text(env::ERRORS).is_some_and(|form| form == "json");
    if given || named { ErrorForm::Json } else { ErrorForm::Text }
}

/// Converts the parser's text, which has the error, a tip and the usage as paragraphs.
fn report(error: &clap::Error) -> ErrorReport {
    let shown = error.render().to_string();
    let marked = |mark: &str| {
        let found = shown.lines().find_map(|line| line.trim().strip_prefix(mark));
        found.map(|line| line.trim().to_owned())
    };
    let message = shown.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let (message, values) = match message.split_once(" [possible values: ") {
        Some((message, values)) => {
            (message.to_owned(), Some(format!("use {}", values.trim_end_matches(']'))))
        }
        None => (message, None),
    };
    let hint = marked("tip:")
        .map(|tip| suggestion(&tip))
        .or(values)
        .or_else(|| marked("Usage:").map(|usage| format!("usage: {usage}")));
    let report = ErrorReport::new(Code::OPTION, message);
    match hint {
        Some(hint) => report.hint(hint),
        None => report,
    }
}

/// Turns the tip `a similar argument exists: '--workers'` into a question.
fn suggestion(tip: &str) -> String {
    match tip.split('\'').collect::<Vec<_>>().as_slice() {
        [similar, name, ""] if similar.starts_with("a similar") => {
            format!("did you mean `{name}`?")
        }
        _ => tip.to_owned(),
    }
}
