//! Text tables: numbers are right-aligned, nulls differ from any text, and the table fits the
//! terminal.
//!
//! Invariant: at most [`SAMPLE`] rows are buffered. They determine the widths; a longer cell in a
//! later row shifts only its own line.

use std::fmt::Write as _;
use std::io::Write as _;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use unicode_width::UnicodeWidthStr;

use super::{ResultTarget, Sink};
use crate::terminal::{printer, text};

/// Number of rows that determine the widths of the columns.
const SAMPLE: usize = 10_000;
/// Width to which columns can be reduced if the table is too wide.
const NARROW: usize = 32;
/// Width up to which cells are padded: one text of a megabyte must not make every line that long.
const PADDED: usize = 120;

/// The limits of the shown part of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableLayout {
    width: Option<usize>,
    rows: Option<u64>,
    colour: bool,
}

impl TableLayout {
    /// All rows and columns.
    pub fn unlimited() -> Self {
        Self { width: None, rows: None, colour: false }
    }

    /// The layout for stdout: a terminal limits the width and the number of rows (0 means all); a
    /// pipe has no limits.
    pub fn stdout(rows: u64) -> Self {
        if !printer::stdout_is_terminal() {
            return Self::unlimited();
        }
        let width = printer::terminal_width();
        let colour = printer::stdout_has_colour();
        Self { width, rows: (rows > 0).then_some(rows), colour }
    }
}

/// A cell; `None` is null.
pub type Cell = Option<String>;

/// A column's heading, and whether its cells are right-aligned.
#[derive(Clone, Debug)]
pub struct TableColumn {
    name: String,
    right: bool,
}

/// Draws a small table. A heading that begins with `>` right-aligns its column.
pub fn draw(headings: &[&str], rows: &[Vec<Cell>], layout: TableLayout) -> String {
    let column = |heading: &&str| TableColumn {
        name: heading.trim_start_matches('>').to_owned(),
        right: heading.starts_with('>'),
    };
    let columns = headings.iter().map(column).collect();
    let frame = TableFrame::fit(columns, rows, layout);
    let mut drawn = frame.head();
    rows.iter().for_each(|row| frame.row(row, &mut drawn));
    drawn
}

struct TableSink {
    target: ResultTarget,
    columns: Vec<TableColumn>,
    layout: TableLayout,
    buffered: Vec<Vec<Cell>>,
    frame: Option<TableFrame>,
    seen: u64,
}

pub(super) fn sink(target: ResultTarget, schema: &SchemaRef, layout: TableLayout) -> Box<dyn Sink> {
    let columns = schema.fields().iter().map(|field| TableColumn {
        name: one_line(field.name()),
        right: field.data_type().is_numeric(),
    });
    let columns = columns.collect();
    Box::new(TableSink { target, columns, layout, buffered: Vec::new(), frame: None, seen: 0 })
}

impl Sink for TableSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let options = FormatOptions::new();
        let formatters = batch.columns().iter();
        let formatters: Vec<_> = formatters
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<_, _>>()?;
        let wanted = self.layout.rows.unwrap_or(u64::MAX).saturating_sub(self.seen);
        self.seen += batch.num_rows() as u64;
        let shown = usize::try_from(wanted).unwrap_or(usize::MAX).min(batch.num_rows());
        for row in 0..shown {
            self.add(cells(batch, &formatters, row)?)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(ResultTarget, Vec<String>), ArrowError> {
        self.write_buffered()?;
        let mut notes = Vec::new();
        let hidden = self.seen.saturating_sub(self.layout.rows.unwrap_or(u64::MAX));
        if hidden > 0 {
            let more = text::counted(hidden, "more row");
            notes.push(format!("… {more} (show all with --rows 0, or -o csv)"));
        }
        notes.extend(self.frame.and_then(|frame| frame.note()));
        Ok((self.target, notes))
    }
}

impl TableSink {
    fn add(&mut self, row: Vec<Cell>) -> Result<(), ArrowError> {
        if let Some(frame) = &self.frame {
            let mut line = String::new();
            frame.row(&row, &mut line);
            return Ok(self.target.write_all(line.as_bytes())?);
        }
        self.buffered.push(row);
        if self.buffered.len() == SAMPLE { self.write_buffered() } else { Ok(()) }
    }

    fn write_buffered(&mut self) -> Result<(), ArrowError> {
        if self.frame.is_some() {
            return Ok(());
        }
        let frame = TableFrame::fit(self.columns.clone(), &self.buffered, self.layout);
        let mut drawn = frame.head();
        self.buffered.drain(..).for_each(|row| frame.row(&row, &mut drawn));
        self.frame = Some(frame);
        Ok(self.target.write_all(drawn.as_bytes())?)
    }
}

fn cells(
    batch: &RecordBatch,
    formatters: &[ArrayFormatter<'_>],
    row: usize,
) -> Result<Vec<Cell>, ArrowError> {
    let cell = |(column, formatter): (&arrow::array::ArrayRef, &ArrayFormatter<'_>)| {
        if column.is_null(row) || *column.data_type() == DataType::Null {
            return Ok(None);
        }
        let shown = one_line(&formatter.value(row).try_to_string()?);
        // The text NULL must differ from a null.
        Ok(Some(if shown == "NULL" { "\"NULL\"".to_owned() } else { shown }))
    };
    batch.columns().iter().zip(formatters).map(cell).collect()
}

fn one_line(shown: &str) -> String {
    text::visible(shown).replace('\n', "\\n").replace('\t', "\\t")
}

/// Columns with their widths.
struct TableFrame {
    columns: Vec<TableColumn>,
    widths: Vec<usize>,
    // Number of leftmost columns that fit.
    shown: usize,
    cut: bool,
    colour: bool,
}

impl TableFrame {
    fn fit(columns: Vec<TableColumn>, rows: &[Vec<Cell>], layout: TableLayout) -> Self {
        let widest = |place: usize, column: &TableColumn| {
            let cells = rows.iter().map(|row| row[place].as_deref().map_or(4, width));
            cells.chain([width(&column.name)]).max().unwrap_or(0).min(PADDED)
        };
        let places = columns.iter().enumerate();
        let mut widths: Vec<_> = places.map(|(place, column)| widest(place, column)).collect();
        let room = layout.width.unwrap_or(usize::MAX);
        if total(&widths) > room {
            narrow(&mut widths, room);
        }
        let fitting = (1..=widths.len()).rev().find(|count| {
            let more = if *count < widths.len() { 4 } else { 0 };
            total(&widths[..*count]) + more <= room
        });
        let shown = fitting.unwrap_or(1).min(widths.len());
        Self { columns, widths, shown, cut: layout.width.is_some(), colour: layout.colour }
    }

    fn head(&self) -> String {
        let mut names = String::new();
        let mut rule = String::new();
        for place in 0..self.shown {
            let gap = if place > 0 { " │ " } else { "" };
            names.push_str(gap);
            names.push_str(&self.padded(place, &self.columns[place].name));
            rule.push_str(if place > 0 { "─┼─" } else { "" });
            rule.extend(std::iter::repeat_n('─', self.widths[place]));
        }
        if self.shown < self.columns.len() {
            names.push_str(" │ …");
            rule.push_str("─┼──");
        }
        format!("{}\n{rule}\n", names.trim_end())
    }

    fn row(&self, row: &[Cell], into: &mut String) {
        let begin = into.len();
        for (place, cell) in row.iter().enumerate().take(self.shown) {
            into.push_str(if place > 0 { " │ " } else { "" });
            match cell {
                Some(cell) => into.push_str(&self.padded(place, cell)),
                None if self.colour => {
                    let _ = write!(into, "\x1b[2m{}\x1b[0m", self.padded(place, "NULL"));
                }
                None => into.push_str(&self.padded(place, "NULL")),
            }
        }
        if self.shown < self.columns.len() {
            into.push_str(" │ …");
        }
        into.truncate(begin + into[begin..].trim_end().len());
        into.push('\n');
    }

    fn padded(&self, place: usize, cell: &str) -> String {
        let room = self.widths[place];
        let cell = if self.cut { shorten(cell, room) } else { cell.to_owned() };
        let padding = " ".repeat(room.saturating_sub(width(&cell)));
        if self.columns[place].right { padding + &cell } else { cell + &padding }
    }

    fn note(&self) -> Option<String> {
        let shown = self.shown;
        let all = self.columns.len();
        (shown < all)
            .then(|| format!("… {shown} of {all} columns (show all with -o csv or -o json)"))
    }
}

fn width(cell: &str) -> usize {
    UnicodeWidthStr::width(cell)
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 3 * widths.len().saturating_sub(1)
}

/// Narrows the widest columns first, down to [`NARROW`].
fn narrow(widths: &mut [usize], room: usize) {
    while total(widths) > room {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROW) else {
            return;
        };
        *widest -= 1;
    }
}

fn shorten(cell: &str, room: usize) -> String {
    if width(cell) <= room {
        return cell.to_owned();
    }
    let mut kept = String::new();
    for c in cell.chars() {
        kept.push(c);
        if width(&kept) >= room {
            kept.pop();
            break;
        }
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(cells: &[&str]) -> Vec<Cell> {
        cells.iter().map(|cell| Some((*cell).to_owned())).collect()
    }

    #[test]
    fn numbers_are_right_aligned_and_nulls_are_shown_as_null() {
        let rows = [some(&["a", "7"]), vec![None, Some("1234".into())]];
        let drawn = draw(&["name", ">n"], &rows, TableLayout::unlimited());
        assert_eq!(drawn, "name │    n\n─────┼─────\na    │    7\nNULL │ 1234\n");
    }

    #[test]
    fn a_wide_table_is_cut_to_the_terminal() {
        let rows = [some(&[&"x".repeat(100), "1", "2"])];
        let layout = TableLayout { width: Some(45), rows: None, colour: false };
        let drawn = draw(&["long", "b", "c"], &rows, layout);
        assert!(drawn.lines().all(|line| width(line) <= 45), "{drawn}");
        assert!(drawn.contains('…'), "{drawn}");
        let layout = TableLayout { width: Some(38), ..layout };
        let columns = vec![TableColumn { name: "n".repeat(30), right: false }; 3];
        let frame = TableFrame::fit(columns, &[], layout);
        assert_eq!(frame.shown, 1);
        assert!(frame.note().unwrap().contains("1 of 3"));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let drawn =
            draw(&["a", "b"], &[some(&["雪", "x"]), some(&["ab", "y"])], TableLayout::unlimited());
        assert_eq!(drawn, "a  │ b\n───┼──\n雪 │ x\nab │ y\n");
    }
}
