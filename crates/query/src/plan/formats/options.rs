//! What a query says of the CSV files that it reads; the rest is recognised.

use crate::read::Encoding;

/// The options of `read_csv`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct CsvOptions {
    pub(in super::super) delimiter: Option<u8>,
    pub(in super::super) quote: Option<Mark>,
    pub(in super::super) escape: Option<Mark>,
    /// Whether the first record has the names of the columns.
    pub(in super::super) header: Option<bool>,
    pub(in super::super) encoding: Option<Encoding>,
    /// Lines before the header or the first record.
    pub(in super::super) skip: u64,
    /// All columns are texts.
    pub(in super::super) all_varchar: bool,
}

/// A byte with a meaning in values, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Mark(pub(in super::super) Option<u8>);

/// The encoding of a name, as other programs write it.
pub(in super::super) fn encoding(name: &str) -> Option<Encoding> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    Some(match plain.to_ascii_lowercase().as_str() {
        "utf8" | "ascii" | "usascii" => Encoding::Utf8,
        "latin1" | "iso88591" | "windows1252" | "cp1252" => Encoding::Latin1,
        "utf16" | "utf16le" => Encoding::Utf16Le,
        "utf16be" => Encoding::Utf16Be,
        _ => return None,
    })
}
