//! The columns of a CSV file, from its beginning.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use object_store::ObjectMeta;
use snowmelt_execute::context::BATCH_ROWS;
use snowmelt_execute::read::{
    CsvDecoder, Decoder, Dialect, Header, MAX_COLUMNS, MAX_HEADER_BYTES, Quotes, newlines,
    split_header, unclear_value, values, wrong_line,
};
use snowmelt_files::{Compression, Kind};
use snowmelt_types::ErrorReport;

use super::csv_types::Guess;
use super::dialect::{Recognised, columns, recognise};
use super::header::{First, first_record};
use super::options::CsvOptions;
use super::sample::{Sample, Sampler};
use super::{FileColumns, FileFindings, duplicate_column, pieces};
use crate::{Error, Result};

/// The result of reading a sample of a file.
#[derive(Debug)]
enum Told {
    /// Only a longer sample can tell.
    TooShort,
    /// The file has not even a header.
    Empty,
    Table(Box<CsvTable>),
}

#[derive(Debug)]
struct CsvTable {
    schema: Schema,
    dialect: Dialect,
    first: First,
    /// A value has a line break.
    breaks: bool,
}

/// Reads the columns of a file.
pub(super) async fn of_file(
    sampler: &Sampler<'_>,
    meta: &ObjectMeta,
    kind: Kind,
    options: &CsvOptions,
    name: &str,
) -> Result<FileFindings> {
    let file = sampler.open(meta, kind.compression).await?;
    let usual = Dialect::of(kind.format);
    let mut told = Told::TooShort;
    for long in [false, true] {
        let sample = file.read(long).await?;
        told = tell(&sample, &usual, options, name)?;
        if sample.last || !matches!(told, Told::TooShort) {
            break;
        }
    }
    match told {
        Told::TooShort => {
            Err(wrong(wrong_line(name, Some(1), "the header line has more than 1 MiB")))
        }
        Told::Empty => Ok(FileFindings::new(FileColumns::None, pieces::whole(meta.size))),
        Told::Table(table) => {
            let CsvTable { schema, dialect, first, breaks } = *table;
            let plain = kind.compression == Compression::None;
            let divisible = plain && !breaks && dialect.is_divisible();
            let of_file = if divisible { pieces::of_lines } else { pieces::whole };
            let dialect = (dialect != usual).then_some(dialect);
            let found = FileFindings::new(FileColumns::Schema(schema), of_file(meta.size));
            Ok(FileFindings { dialect, first, ..found })
        }
    }
}

fn tell(sample: &Sample, usual: &Dialect, options: &CsvOptions, name: &str) -> Result<Told> {
    let Recognised { mut dialect, mut text } = recognise(sample, usual, options);
    if sample.whole && text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    let mut quotes = Quotes::new(&dialect);
    let end = quotes.scan(&text).unwrap_or(0);
    let last_line = dialect.skip + newlines(&text[..end]) + 1;
    if let Some(fault) = quotes.fault() {
        return Err(wrong(unclear_value(name, Some(last_line), fault)));
    }
    if sample.whole && end < text.len() {
        let why = "a quotation that begins in this record has no end";
        return Err(wrong(wrong_line(name, Some(last_line), why)));
    }
    let records = &text[..end];
    let Some((start, header_end)) = split_header(records, &Quotes::new(&dialect)) else {
        return Ok(if sample.whole { Told::Empty } else { Told::TooShort });
    };
    if header_end > MAX_HEADER_BYTES {
        return Ok(Told::TooShort);
    }
    let record = &records[start..header_end];
    let rows = &records[header_end..];
    if rows.is_empty() && !sample.last {
        return Ok(Told::TooShort);
    }
    let line = dialect.skip + newlines(&records[..start]);
    let mut header = Header::parse(record, &dialect)
        .map_err(|why| wrong(wrong_line(name, Some(line + 1), &why)))?;
    let mut own = header.names.clone();
    if dialect.pads {
        header = header.padded(longest(records, &dialect, name)?);
    }
    if options.header == Some(false) {
        dialect.headerless = Some(header.names.len());
    }
    dialect.notations = options.notations(&header.names);
    let before = dialect.skip + newlines(&records[..header_end]);
    let mut guesses = guesses(header.names.len(), &dialect, rows).map_err(|(line, why)| {
        Error::File(Box::new(wrong_line(name, line.map(|line| before + line + 1), &why)))
    })?;
    let mut values = values(record, &dialect).unwrap_or_default();
    values.iter_mut().filter(|value| dialect.is_null(value)).for_each(String::clear);
    let first = match options.header {
        Some(true) => First::Names,
        Some(false) => First::Values,
        None => first_record(&values, &guesses, &dialect),
    };
    if first == First::Values {
        let columns = header.names.len();
        dialect.headerless = Some(columns);
        header = Header::unnamed(columns);
        own.clone_from(&header.names);
        let given = values.iter().zip(&mut guesses).enumerate();
        for (index, (value, guess)) in given.filter(|(_, (value, _))| !value.is_empty()) {
            guess.add(value, dialect.notation_of(index));
        }
    }
    let breaks = before > line + 1 || guesses.iter().any(|guess| guess.breaks);
    let forms = guesses.iter().map(Guess::day_form).enumerate();
    dialect.day_forms = forms.filter_map(|(index, form)| Some((index, form?))).collect();
    let names = options.named(header.names, name)?;
    if names != own {
        dialect.names.clone_from(&names);
    }
    let schema = schema(names, &guesses, options, name)?;
    Ok(Told::Table(Box::new(CsvTable { schema, dialect, first, breaks })))
}

/// The number of values of the longest record.
fn longest(records: &[u8], dialect: &Dialect, file: &str) -> Result<usize> {
    match columns(records, true, dialect, false).unwrap_or(0) {
        many if many > MAX_COLUMNS => {
            let why = format!("a record has {many} values: at most {MAX_COLUMNS} are supported");
            Err(wrong(wrong_line(file, None, &why)))
        }
        columns => Ok(columns),
    }
}

fn schema(
    names: Vec<String>,
    guesses: &[Guess],
    options: &CsvOptions,
    name: &str,
) -> Result<Schema> {
    let field = |(index, (name, guess)): (usize, (String, &Guess))| {
        let data_type = match options.types.of(index, &name) {
            Some(given) => given.clone(),
            None if options.all_varchar => DataType::Utf8,
            None => guess.data_type(),
        };
        Field::new(name, data_type, true)
    };
    let fields: Vec<Field> = names.into_iter().zip(guesses).enumerate().map(field).collect();
    let schema = Schema::new(fields);
    match duplicate_column(&schema) {
        Some(column) => Err(Error::DuplicateColumn { file: name.to_owned(), column }),
        None => Ok(schema),
    }
}

/// Guesses the type of each column from its values. An error is a line and the reason.
fn guesses(
    columns: usize,
    dialect: &Dialect,
    rows: &[u8],
) -> Result<Vec<Guess>, (Option<u64>, String)> {
    let header = Header::unnamed(columns);
    let text = |name: &String| Arc::new(Field::new(name, DataType::Utf8View, true));
    let fields: Vec<FieldRef> = header.names.iter().map(text).collect();
    let texts = Arc::new(Schema::new(fields));
    let mut decoder = Decoder::from(CsvDecoder::new(&header, dialect, &texts, BATCH_ROWS));
    let decoded = decoder.decode(rows).map_err(|wrong| (wrong.line, wrong.why))?;
    let guess = |column: usize| {
        let mut guess = Guess::default();
        let values = |batch: &RecordBatch| batch.column(column).as_string_view().clone();
        for values in decoded.iter().map(values) {
            values.iter().flatten().for_each(|value| guess.add(value, dialect.notation_of(column)));
        }
        guess
    };
    Ok((0..columns).map(guess).collect())
}

fn wrong(report: ErrorReport) -> Error {
    Error::File(Box::new(report))
}

#[cfg(test)]
mod tests {
    use snowmelt_files::Format;

    use super::*;

    fn told_with(text: &str, whole: bool, last: bool, options: &CsvOptions) -> Result<Told> {
        let sample = Sample { text: text.into(), whole, last };
        tell(&sample, &Dialect::of(Format::Csv), options, "f.csv")
    }

    fn told(text: &str, whole: bool, last: bool) -> Result<Told> {
        told_with(text, whole, last, &CsvOptions::default())
    }

    fn table(told: Result<Told>) -> (Vec<String>, CsvTable) {
        let Ok(Told::Table(table)) = told else { panic!("{told:?}") };
        let column = |field: &FieldRef| format!("{} {}", field.name(), field.data_type());
        (table.schema.fields().iter().map(column).collect(), *table)
    }

    #[test]
    fn the_last_line_of_a_sample_is_not_whole() {
        let (columns, table) = table(told("a,b\n1,x\n2,\"y\n\"\n3", false, false));
        assert_eq!((columns, table.breaks), (vec!["a Int64".into(), "b Utf8".into()], true));
    }

    #[test]
    fn a_sample_without_a_row_is_too_short_unless_it_is_the_last() {
        assert!(matches!(told("a,b\n1,", false, false), Ok(Told::TooShort)));
        assert!(matches!(told("a,b\n1,", false, true), Ok(Told::Table(..))));
        assert!(matches!(told("a,b", true, true), Ok(Told::Table(..))));
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
        let skip = CsvOptions { skip: 2, ..CsvOptions::default() };
        let Err(Error::File(report)) = told_with("x\ny\na,b\n1\n", true, true, &skip) else {
            panic!()
        };
        assert!(report.to_string().contains("line 4"), "{report}");
    }

    #[test]
    fn the_first_record_of_a_file_without_a_header_is_a_row() {
        let (columns, found) = table(told("1;x\n2.5;y\n", true, true));
        assert_eq!(columns, ["column0 Float64", "column1 Utf8"]);
        assert_eq!((found.first, found.dialect.headerless), (First::Values, Some(2)));
        let options = |header| CsvOptions { header, ..CsvOptions::default() };
        let (columns, _) = table(told_with("a,a\nb,c\n", true, true, &options(Some(false))));
        assert_eq!(columns, ["column0 Utf8", "column1 Utf8"]);
        let (columns, found) = table(told_with("7,8\n1,2\n", true, true, &options(Some(true))));
        assert_eq!(columns, ["7 Int64", "8 Int64"]);
        assert_eq!(found.dialect.headerless, None);
        let texts = CsvOptions { all_varchar: true, ..CsvOptions::default() };
        let (columns, _) = table(told_with("a,b\n1,2\n", true, true, &texts));
        assert_eq!(columns, ["a Utf8", "b Utf8"]);
    }
}
