//! The columns of a CSV file, from its beginning.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use object_store::ObjectMeta;
use snowmelt_files::{Compression, Kind};
use snowmelt_types::ErrorReport;

use super::super::BATCH_ROWS;
use super::sample::{Sample, Sampler};
use super::values::Guess;
use super::{Columns, Found, duplicate_column, pieces};
use crate::read::{
    CsvDecoder, Decoder, Header, MAX_HEADER_BYTES, Quotes, delimiter, newlines, split_header,
    without_mark, wrong_line,
};
use crate::{Error, Result};

/// What a sample tells.
#[derive(Debug)]
enum Told {
    /// Only a longer sample can tell.
    TooShort,
    /// There is not even a header.
    Empty,
    /// The columns, and whether a value has a line break.
    Columns(Schema, bool),
}

/// Reads the columns of a file.
pub(super) async fn of_file(
    sampler: &Sampler<'_>,
    meta: &ObjectMeta,
    kind: Kind,
    name: &str,
) -> Result<Found> {
    let file = sampler.open(meta, kind.compression).await?;
    let mut told = Told::TooShort;
    for long in [false, true] {
        let sample = file.read(long).await?;
        told = tell(&sample, delimiter(kind.format), name)?;
        if sample.last || !matches!(told, Told::TooShort) {
            break;
        }
    }
    match told {
        Told::TooShort => {
            Err(wrong(wrong_line(name, Some(1), "the header line has more than 1 MiB")))
        }
        Told::Empty => Ok(Found { columns: Columns::None, pieces: pieces::whole(meta.size) }),
        Told::Columns(schema, breaks) => {
            let divisible = kind.compression == Compression::None && !breaks;
            let of_file = if divisible { pieces::of_lines } else { pieces::whole };
            Ok(Found { columns: Columns::Schema(schema), pieces: of_file(meta.size) })
        }
    }
}

fn tell(sample: &Sample, delimiter: u8, name: &str) -> Result<Told> {
    let mut text = without_mark(&sample.text).to_vec();
    if sample.whole && text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    let mut quotes = Quotes::new(delimiter);
    let end = quotes.scan(&text).unwrap_or(0);
    if sample.whole && end < text.len() {
        let why = "a quotation that begins in this record has no end";
        return Err(wrong(wrong_line(name, Some(newlines(&text[..end]) + 1), why)));
    }
    let records = &text[..end];
    let Some((start, header_end)) = split_header(records, &quotes) else {
        return Ok(if sample.whole { Told::Empty } else { Told::TooShort });
    };
    if header_end > MAX_HEADER_BYTES {
        return Ok(Told::TooShort);
    }
    let rows = &records[header_end..];
    if rows.is_empty() && !sample.last {
        return Ok(Told::TooShort);
    }
    let line = newlines(&records[..start]);
    let header = Header::parse(&records[start..header_end], delimiter)
        .map_err(|why| wrong(wrong_line(name, Some(line + 1), &why)))?;
    let before = newlines(&records[..header_end]);
    let guesses = guesses(&header, delimiter, rows).map_err(|wrong| match wrong {
        Undecided::Duplicate(column) => Error::DuplicateColumn { file: name.to_owned(), column },
        Undecided::Line(line, why) => {
            let line = line.map(|line| before + line + 1);
            Error::File(Box::new(wrong_line(name, line, &why)))
        }
    })?;
    let breaks = before > line + 1 || guesses.iter().any(|guess| guess.breaks);
    let field = |(name, guess): (&String, &Guess)| Field::new(name, guess.data_type(), true);
    let fields: Vec<Field> = header.names.iter().zip(&guesses).map(field).collect();
    Ok(Told::Columns(Schema::new(fields), breaks))
}

enum Undecided {
    Duplicate(String),
    Line(Option<u64>, String),
}

/// Guesses the type of each column from its values.
fn guesses(header: &Header, delimiter: u8, rows: &[u8]) -> Result<Vec<Guess>, Undecided> {
    let text = |name: &String| Arc::new(Field::new(name, DataType::Utf8View, true));
    let fields: Vec<FieldRef> = header.names.iter().map(text).collect();
    let texts = Arc::new(Schema::new(fields));
    if let Some(column) = duplicate_column(&texts) {
        return Err(Undecided::Duplicate(column));
    }
    let mut decoder = Decoder::from(CsvDecoder::new(header, delimiter, &texts, BATCH_ROWS));
    let decoded = decoder.decode(rows).map_err(|wrong| Undecided::Line(wrong.line, wrong.why))?;
    let guess = |column: usize| {
        let mut guess = Guess::default();
        let values = |batch: &RecordBatch| batch.column(column).as_string_view().clone();
        for values in decoded.iter().map(values) {
            values.iter().flatten().for_each(|value| guess.add(value));
        }
        guess
    };
    Ok((0..header.names.len()).map(guess).collect())
}

fn wrong(report: ErrorReport) -> Error {
    Error::File(Box::new(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, whole: bool, last: bool) -> Result<Told> {
        tell(&Sample { text: text.into(), whole, last }, b',', "f.csv")
    }

    #[test]
    fn the_last_line_of_a_sample_is_not_whole() {
        let Told::Columns(schema, breaks) = told("a,b\n1,x\n2,\"y\n\"\n3", false, false).unwrap()
        else {
            panic!()
        };
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type()).collect();
        assert_eq!((types, breaks), (vec![&DataType::Int64, &DataType::Utf8], true));
    }

    #[test]
    fn a_sample_without_a_row_is_too_short_unless_it_is_the_last() {
        assert!(matches!(told("a,b\n1,", false, false), Ok(Told::TooShort)));
        assert!(matches!(told("a,b\n1,", false, true), Ok(Told::Columns(..))));
        assert!(matches!(told("a,b", true, true), Ok(Told::Columns(..))));
        assert!(matches!(told("a,b", false, true), Ok(Told::TooShort)));
        assert!(matches!(told("\n\n", true, true), Ok(Told::Empty)));
        assert!(matches!(told("", true, true), Ok(Told::Empty)));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, line) in
            [("\na,b\n1,2\n3\n", "line 4"), ("a\n1\n\"x\n", "line 3"), ("a,\"b\n1,2\n", "line 1")]
        {
            let Err(Error::File(report)) = told(text, true, true) else { panic!("{text:?}") };
            assert!(report.to_string().contains(line), "{report}");
        }
        let twice = told("a,a\n1,2\n", true, true);
        assert!(matches!(twice, Err(Error::DuplicateColumn { .. })), "{twice:?}");
    }
}
