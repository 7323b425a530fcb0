//! Short lists and single values as JSON and CSV.

use serde::Serialize;
use snowmelt_types::{Code, ErrorReport};

use super::{TableLayout, draw};
use crate::args::ListFormat;
use crate::terminal::printer;

/// Prints a list to stdout: `rows` as a table or CSV, `values` as JSON. An empty table prints
/// nothing.
///
/// # Errors
/// The errors of [`json`] and [`printer::print`].
pub fn print(
    format: ListFormat,
    headings: &[&str],
    rows: &[Vec<String>],
    values: &impl Serialize,
) -> Result<(), ErrorReport> {
    printer::print(&match format {
        ListFormat::Table if rows.is_empty() => String::new(),
        ListFormat::Table => table(headings, rows),
        ListFormat::Json => value(values)?,
        ListFormat::Csv => csv(headings, rows),
    })
}

/// Draws a table that is never cut to the terminal's width: a shortened digest or address is
/// useless.
fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| row.iter().cloned().map(Some).collect();
    draw(headings, &rows.iter().map(cells).collect::<Vec<_>>(), TableLayout::unlimited())
}

/// Indented JSON.
///
/// # Errors
/// `SM-0901` for a value that JSON cannot represent.
pub fn json(value: &impl Serialize) -> Result<String, ErrorReport> {
    json_line(serde_json::to_string_pretty(value))
}

/// JSON on one line.
///
/// # Errors
/// Fails as [`json`].
pub fn line(value: &impl Serialize) -> Result<String, ErrorReport> {
    json_line(serde_json::to_string(value))
}

/// JSON, indented on a terminal and on one line elsewhere.
///
/// # Errors
/// Fails as [`json`].
pub fn value(value: &impl Serialize) -> Result<String, ErrorReport> {
    if printer::stdout_is_terminal() { json(value) } else { line(value) }
}

/// RFC 4180 with a header.
pub fn csv(headings: &[&str], rows: &[Vec<String>]) -> String {
    let header = headings.iter().map(|heading| heading.trim_start_matches('>'));
    let mut lines = vec![header.map(field).collect::<Vec<_>>().join(",")];
    lines.extend(
        rows.iter().map(|row| row.iter().map(|cell| field(cell)).collect::<Vec<_>>().join(",")),
    );
    lines.join("\n") + "\n"
}

fn field(cell: &str) -> String {
    match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

fn json_line(text: serde_json::Result<String>) -> Result<String, ErrorReport> {
    text.map(|text| text + "\n")
        .map_err(|error| ErrorReport::new(Code::INTERNAL, format!("JSON serialisation: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_fields_are_quoted_if_necessary() {
        let rows = [vec!["a,b".to_owned(), "say \"x\"".to_owned()]];
        assert_eq!(csv(&["one", ">two"], &rows), "one,two\n\"a,b\",\"say \"\"x\"\"\"\n");
    }
}
