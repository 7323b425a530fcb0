//! Messages on stderr: errors, notes and summaries.
//!
//! Invariant: nothing here writes to stdout, and colour appears only on a terminal without
//! `NO_COLOR`. A failed write to stderr is ignored.

use std::borrow::Cow;
use std::io::{IsTerminal, Write, stderr, stdout};

use snowmelt_types::{Code, ErrorReport};

use super::text;
use crate::args::{ErrorForm, ProgressMode};
use crate::env;

const RED: &str = "\x1b[1;31m";
const BLUE: &str = "\x1b[34m";
const CYAN: &str = "\x1b[1;36m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Writes to stderr in the form that the user chose.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    form: ErrorForm,
    colour: bool,
    quiet: bool,
    terminal: bool,
}

impl Printer {
    /// A printer for this process's stderr.
    pub fn new(form: ErrorForm, progress: ProgressMode) -> Self {
        let terminal = stderr().is_terminal();
        let colour = terminal && env::text(env::NO_COLOR).is_none();
        Self { form, colour, quiet: progress == ProgressMode::Quiet, terminal }
    }

    /// Prints an error, which is always the last message.
    pub fn error(&self, report: &ErrorReport) {
        match self.form {
            ErrorForm::Json => match serde_json::to_string(report) {
                Ok(object) => write(&object),
                Err(_) => self.line(&report.to_string()),
            },
            ErrorForm::Text => write(&self.painted(&report.to_string())),
        }
    }

    /// Prints a warning, unless progress is `quiet`.
    pub fn warning(&self, report: &ErrorReport) {
        if !self.quiet {
            let shown = report.to_string();
            self.line(&shown.replacen("error[", "warning[", 1));
        }
    }

    /// Prints one line of information, unless progress is `quiet`.
    pub fn note(&self, message: &str) {
        match self.colour {
            _ if self.quiet => {}
            true => write(&format!("{DIM}{}{RESET}", self.safe(message))),
            false => self.line(message),
        }
    }

    /// Prints text even if progress is `quiet`.
    pub fn line(&self, text: &str) {
        write(&self.safe(text));
    }

    /// True if stderr is a terminal.
    pub fn terminal(&self) -> bool {
        self.terminal
    }

    // A terminal would execute control sequences; a log keeps the text as it is.
    fn safe<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.terminal { text::visible(text) } else { Cow::Borrowed(text) }
    }

    // Colour codes are added after control sequences in the text were escaped.
    fn painted(&self, shown: &str) -> String {
        let shown = self.safe(shown);
        if !self.colour {
            return shown.into_owned();
        }
        let lines: Vec<_> = shown.split('\n').map(paint).collect();
        lines.join("\n")
    }
}

fn write(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

fn paint(line: &str) -> String {
    if line.starts_with("error[")
        && let Some((code, message)) = line.split_once(": ")
    {
        return format!("{RED}{code}{RESET}: {message}");
    }
    for (mark, colour) in [("  --> ", BLUE), ("   |  ", BLUE), ("input: ", DIM), ("hint: ", CYAN)] {
        if let Some(rest) = line.strip_prefix(mark) {
            return format!("{colour}{mark}{RESET}{rest}");
        }
    }
    line.to_owned()
}

/// True if stdout is a terminal.
pub fn stdout_is_terminal() -> bool {
    stdout().is_terminal()
}

/// True if stdout shows colours.
pub fn stdout_has_colour() -> bool {
    stdout_is_terminal() && env::text(env::NO_COLOR).is_none()
}

/// Columns of stdout's terminal.
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
}

/// Prints data to stdout. A closed pipe is not an error.
///
/// # Errors
/// `SM-0114` if stdout cannot be written to.
pub fn print(data: &str) -> Result<(), ErrorReport> {
    let mut out = stdout().lock();
    match out.write_all(data.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let message = format!("stdout cannot be written: {}", text::reason(&error));
            Err(ErrorReport::new(Code::OUTPUT, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coloured_error_has_the_same_text() {
        let printer = Printer { form: ErrorForm::Text, colour: true, quiet: false, terminal: true };
        let report = ErrorReport::new(Code::OPTION, "no: \u{1b}[2J").hint("try");
        let painted = printer.painted(&report.to_string());
        assert_eq!(
            painted,
            "\u{1b}[1;31merror[SM-0110]\u{1b}[0m: no: \\u{1b}[2J\n\u{1b}[1;36mhint: \u{1b}[0mtry"
        );
    }
}
