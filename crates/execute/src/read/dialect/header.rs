//! The header line of a CSV file.

use std::io::Cursor;

use arrow::csv::reader::Format;

use super::escapes::doubled;
use crate::read::{Dialect, Quotes};

/// The most columns of a table: the planner takes memory and time for each.
pub const MAX_COLUMNS: usize = 10_000;

/// The quotation mark that the decoder gets if a dialect has none. No text in UTF-8 has this byte.
pub(crate) const NO_QUOTE: u8 = 0xff;

/// The columns of a CSV file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The names, in order. A column without a name is `column` and its index, as in DuckDB.
    pub names: Vec<String>,
}

impl Header {
    /// Parses the record of a header. An error is the reason.
    pub fn parse(record: &[u8], dialect: &Dialect) -> Result<Self, String> {
        let named = |(index, name): (usize, String)| match name.as_str() {
            "" => unnamed(index),
            _ => name,
        };
        let values = values(record, dialect)
            .ok_or_else(|| format!("its header is not {}", dialect.encoding.name()))?;
        let names: Vec<String> = values.into_iter().enumerate().map(named).collect();
        match names.len() {
            many if many > MAX_COLUMNS => {
                Err(format!("its header has {many} columns: at most {MAX_COLUMNS} are supported"))
            }
            _ => Ok(Self { names }),
        }
    }

    /// Names a number of columns without names.
    pub fn unnamed(columns: usize) -> Self {
        Self { names: (0..columns).map(unnamed).collect() }
    }

    /// Extends the names to `columns` columns: columns without a name get one.
    pub fn padded(mut self, columns: usize) -> Self {
        self.names.extend((self.names.len()..columns).map(unnamed));
        self
    }
}

fn unnamed(index: usize) -> String {
    format!("column{index}")
}

/// Returns the values of one record. `None` if a value is not text.
pub fn values(record: &[u8], dialect: &Dialect) -> Option<Vec<String>> {
    let format = Format::default()
        .with_header(true)
        .with_delimiter(dialect.delimiter)
        .with_quote(dialect.quote.unwrap_or(NO_QUOTE));
    let record = doubled(record, dialect);
    let (schema, _) = format.infer_schema(Cursor::new(record), Some(0)).ok()?;
    Some(schema.fields().iter().map(|field| field.name().clone()).collect())
}

/// A text without the byte order mark that it may begin with.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}

/// Returns the range of the header record in some whole records: blank lines before it are skipped.
/// `None` if all lines are blank.
pub fn split_header(records: &[u8], quotes: &Quotes) -> Option<(usize, usize)> {
    let blank = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let start = records.iter().position(|byte| !blank(byte))?;
    Some((start, start + quotes.first_record(&records[start..])))
}

#[cfg(test)]
mod tests {
    use snowmelt_files::Format;

    use super::{Dialect, Header, Quotes, split_header};

    #[test]
    fn headers_are_quoted_texts() {
        let comma = Dialect::of(Format::Csv);
        let header = |text: &str| Header::parse(text.as_bytes(), &comma).unwrap().names;
        assert_eq!(header("a,\"b,\"\"c\"\n"), ["a", "b,\"c"]);
        assert_eq!(header(",b,\r\n"), ["column0", "b", "column2"]);
        let none = Dialect { quote: None, delimiter: b';', ..comma.clone() };
        assert_eq!(Header::parse(b"\"a;b,\n", &none).unwrap().names, ["\"a", "b,"]);
        assert!(Header::parse(b"a,\xff\n", &comma).unwrap_err().contains("UTF-8"));
        assert!(Header::parse(&b",".repeat(20_000), &comma).unwrap_err().contains("20001 columns"));
    }

    #[test]
    fn blank_lines_before_a_header_are_skipped() {
        let quotes = Quotes::new(&Dialect::of(Format::Csv));
        assert_eq!(split_header(b"\r\n\na,b\n1,2\n", &quotes), Some((3, 7)));
        assert_eq!(split_header(b"\n\n", &quotes), None);
    }
}
