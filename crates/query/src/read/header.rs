//! The header line of a CSV file.

use std::io::Cursor;

use arrow::csv::reader::Format;

use super::Quotes;

/// The most columns of a table: the planner takes memory and time for each.
pub(crate) const MAX_COLUMNS: usize = 10_000;

/// The columns of a CSV file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The names, in order. A column without a name is `column` and its index, as in DuckDB.
    pub(crate) names: Vec<String>,
}

impl Header {
    /// Parses the record of a header. An error is the reason.
    pub(crate) fn parse(record: &[u8], delimiter: u8) -> Result<Self, String> {
        let format = Format::default().with_header(true).with_delimiter(delimiter);
        let (schema, _) = format
            .infer_schema(Cursor::new(record), Some(0))
            .map_err(|_| "its header is not UTF-8".to_owned())?;
        let named = |(index, name): (usize, &String)| match name.as_str() {
            "" => format!("column{index}"),
            name => name.to_owned(),
        };
        let names = schema.fields().iter().map(|field| field.name()).enumerate();
        let names: Vec<String> = names.map(named).collect();
        match names.len() {
            many if many > MAX_COLUMNS => {
                Err(format!("its header has {many} columns: at most {MAX_COLUMNS} are supported"))
            }
            _ => Ok(Self { names }),
        }
    }
}

/// A text without the byte order mark that it may begin with.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}

/// The end of the header record of some whole records, and its beginning: blank lines before it are
/// skipped. `None` if all lines are blank.
pub(crate) fn split_header(records: &[u8], quotes: &Quotes) -> Option<(usize, usize)> {
    let blank = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let start = records.iter().position(|byte| !blank(byte))?;
    Some((start, start + quotes.first_record(&records[start..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_quoted_texts() {
        let header = |text: &str| Header::parse(text.as_bytes(), b',').unwrap().names;
        assert_eq!(header("a,\"b,\"\"c\"\n"), ["a", "b,\"c"]);
        assert_eq!(header(",b,\r\n"), ["column0", "b", "column2"]);
        assert!(Header::parse(b"a,\xff\n", b',').unwrap_err().contains("UTF-8"));
        assert!(Header::parse(&b",".repeat(20_000), b',').unwrap_err().contains("20001 columns"));
    }

    #[test]
    fn blank_lines_before_a_header_are_skipped() {
        let quotes = Quotes::new(b',');
        assert_eq!(split_header(b"\r\n\na,b\n1,2\n", &quotes), Some((3, 7)));
        assert_eq!(split_header(b"\n\n", &quotes), None);
    }
}
