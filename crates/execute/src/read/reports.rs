//! The reports of files that cannot be read, and of their lines.

use std::path::Path;

use snowmelt_files::{Compression, Format, Kind};
use snowmelt_types::{Code, ErrorReport};

use super::blocks::BlockFault;
use super::{MAX_RECORD_BYTES, QuoteFault};

/// The most characters of a value or a message of a decoder that are shown: it may be a record.
const MAX_SHOWN: usize = 200;

/// A text of limited length.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A record that does not fit. The line is counted from 1.
pub fn wrong_line(file: &str, line: Option<u64>, why: &str) -> ErrorReport {
    let json = Kind::of(Path::new(file)).is_some_and(|kind| kind.format == Format::Json);
    let hint = match json {
        true => {
            "columns and types come from the first lines of each file: correct the line, or convert the file to Parquet with the types that its values have"
        }
        false => {
            "columns and types come from the first lines of each file: correct the line, or write read_csv('…', types => {'column': 'VARCHAR'}), with ignore_errors => true to leave such lines out"
        }
    };
    ErrorReport::new(Code::FILE_LINE, format!("{}: {why}", in_line(file, line))).hint(hint)
}

/// An object that does not fit, counted from 1, in a file whose objects are not lines.
pub fn wrong_object(file: &str, object: Option<u64>, why: &str) -> ErrorReport {
    let place = match object {
        Some(object) => format!("`{file}`, object {object}"),
        None => format!("`{file}`"),
    };
    ErrorReport::new(Code::FILE_LINE, format!("{place}: {why}"))
        .hint("the file is one list of objects, or objects behind each other; columns and types come from the first of them: correct the object, or write one object in each line")
}

/// A file and the number of a line.
pub(crate) fn in_line(file: &str, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("`{file}`, line {line}"),
        None => format!("`{file}`"),
    }
}

/// A file that cannot be read at all.
pub fn corrupt(file: &str, why: &str, hint: &str) -> ErrorReport {
    ErrorReport::new(Code::FILE_CORRUPT, format!("`{file}` cannot be read: {why}")).hint(hint)
}

/// Why a compressed file cannot be read.
pub fn not_inflated(file: &str, compression: Compression, error: &std::io::Error) -> ErrorReport {
    let format = match compression {
        Compression::Zstd => "zstd",
        _ => "gzip",
    };
    let why = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => format!("its {format} data end too early"),
        _ => format!("its {format} data are damaged: {}", shortened(&error.to_string())),
    };
    corrupt(file, &why, "the file is truncated or damaged: write it again, or exclude it")
}

/// The report of a fault in a text; `None` if its store failed. `before` is the number of lines
/// before the text, and `split` whether the file continues behind it.
pub(super) fn of_fault(
    file: &str,
    compression: Compression,
    fault: &BlockFault,
    before: Option<u64>,
    split: bool,
) -> Option<ErrorReport> {
    let at = |line: &u64| before.map(|before| before + line + 1);
    Some(match fault {
        BlockFault::Read(_) => return None,
        BlockFault::Inflate(error) => not_inflated(file, compression, error),
        BlockFault::Long(line) => ErrorReport::new(
            Code::FILE_LINE,
            format!(
                "{}: the record that begins here has more than {} MiB",
                in_line(file, at(line)),
                MAX_RECORD_BYTES >> 20
            ),
        )
        .hint("look for a quotation mark without its partner, or for another kind of line ends"),
        BlockFault::Open(line) if split => ErrorReport::new(
            Code::FILE_LINE,
            format!(
                "{}: a value of the record that begins here has a line break where the file is divided between workers",
                in_line(file, at(line))
            ),
        )
        .hint("run the query with --workers 1, or compress the file: then it is not divided"),
        BlockFault::Quotes(line, fault) => unclear_value(file, at(line), *fault),
        BlockFault::Frame(objects, why) => wrong_object(file, Some(objects + 1), why),
        BlockFault::Open(line) => ErrorReport::new(
            Code::FILE_LINE,
            format!("{}: a quotation that begins in this record has no end", in_line(file, at(line))),
        )
        .hint("look for a quotation mark without its partner"),
    })
}

/// A record with a value whose end is not known. The line is the one in which the record begins.
pub fn unclear_value(file: &str, line: Option<u64>, fault: QuoteFault) -> ErrorReport {
    let (why, hint) = match fault {
        QuoteFault::Escaped => (
            "a value goes on behind a quotation mark that has a backslash before it",
            "if backslashes escape marks in this file, write read_csv('…', escape => '\\') in FROM",
        ),
        QuoteFault::InDoubt => (
            "a quoted value of the record that begins here goes on over the end of its line, and has a mark before it that may have been meant as its end",
            "write marks inside of values twice (\"27\"\"\",5), or read the file without marks, which then are parts of the values: read_csv('…', quote => '')",
        ),
    };
    ErrorReport::new(Code::FILE_LINE, format!("{}: {why}", in_line(file, line))).hint(hint)
}
