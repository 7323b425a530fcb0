//! Logs of functions as they are printed: an entry for each call, query or lease.

use serde::Serialize;
use snowmelt_types::ErrorReport;

use crate::args::LogFormat;
use crate::output::list;
use crate::terminal::{printer, text};

/// Prints entries; `shown` is the text of one.
///
/// # Errors
/// Standard output cannot be written.
pub fn print<E: Serialize>(
    entries: &[E],
    format: LogFormat,
    shown: impl Fn(&E) -> String,
) -> Result<(), ErrorReport> {
    let all: Result<Vec<_>, _> = match format {
        LogFormat::Json => entries.iter().map(list::line).collect(),
        LogFormat::Text => Ok(entries.iter().map(shown).collect()),
    };
    printer::print(&all?.concat())
}

/// The heading of an entry, and what was written: whole lines, without effect on a terminal.
pub fn entry(heading: &str, written: &str) -> String {
    let mut shown = format!("==> {heading}\n");
    match printer::stdout_is_terminal() {
        true => shown.push_str(&text::visible(written)),
        false => shown.push_str(written),
    }
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown
}
