//! The dialect of a CSV file: what separates and quotes its values, and how its text is encoded.
//!
//! Planning recognises the dialect of each file. It is sent with every part of the file, in the
//! metadata of the part's schema, which the codec of plans sends and no reader uses otherwise.

pub(super) mod day_form;
pub(super) mod escapes;
pub(super) mod header;
pub(super) mod lengths;
pub(super) mod notation;
pub(super) mod place;
pub(super) mod quotes;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::{DataFusionError, Result as DfResult};
use serde::{Deserialize, Serialize};
use snowmelt_files::Format;

use day_form::DayForm;
use notation::Notation;
pub use place::SheetPlace;

/// The key of the metadata.
const KEY: &str = "snowmelt.csv";

/// How a text file is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialect {
    /// The byte between values.
    pub delimiter: u8,
    /// The mark around values. With `None` no value is quoted.
    pub quote: Option<u8>,
    /// The byte before a mark inside a quoted value. With `None` the mark is doubled.
    pub escape: Option<u8>,
    /// The number of columns of a file without a header line.
    pub headerless: Option<usize>,
    /// The encoding of the text.
    pub encoding: Encoding,
    /// True if lines end with a carriage return alone.
    pub carriage_returns: bool,
    /// Number of lines before the header, or before the first record.
    pub skip: u64,
    /// The byte that begins a comment. `None` if there are no comments.
    pub comment: Option<u8>,
    /// The notation of numbers and dates.
    pub notation: Notation,
    /// The notations of columns that have one of their own, by their index.
    pub notations: BTreeMap<usize, Notation>,
    /// The form of dates by column index, for columns with another form than ISO 8601.
    pub day_forms: BTreeMap<usize, DayForm>,
    /// The values that are null. `None`: only the empty value is null.
    pub nulls: Option<Vec<String>>,
    /// The names of all columns, if they are not the names in the header line. Empty otherwise.
    pub names: Vec<String>,
    /// True if a record that is too short is filled up with nulls.
    pub pads: bool,
    /// True if records that do not fit are left out.
    pub ignores_errors: bool,
    /// True if a mark inside of a quoted value that does not end it is a part of the value.
    pub tolerant: bool,
    /// The arrangement of the objects in a JSON file. `None` if each is a line.
    pub frame: Option<ObjectLayout>,
    /// The place of the table in a workbook; `None` for text files.
    pub sheet: Option<SheetPlace>,
}

/// How a text is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// UTF-8, and so also ASCII.
    #[default]
    Utf8,
    /// Windows-1252, of which ISO 8859-1 is a part: one byte for each character.
    Latin1,
    /// UTF-16 with the low byte first.
    Utf16Le,
    /// UTF-16 with the high byte first.
    Utf16Be,
}

/// The arrangement of the objects in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectLayout {
    /// The objects are the items of a list.
    List,
    /// The objects stand one behind the other, each in one or several lines.
    Objects,
}

impl Encoding {
    /// Returns the encoding's name for the user.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Latin1 => "Windows-1252",
            Self::Utf16Le | Self::Utf16Be => "UTF-16",
        }
    }
}

impl Dialect {
    /// The usual dialect of a format.
    pub fn of(format: Format) -> Self {
        Self {
            delimiter: if format == Format::Tsv { b'\t' } else { b',' },
            quote: Some(b'"'),
            escape: None,
            headerless: None,
            encoding: Encoding::Utf8,
            carriage_returns: false,
            skip: 0,
            comment: None,
            notation: Notation::default(),
            notations: BTreeMap::new(),
            day_forms: BTreeMap::new(),
            nulls: None,
            names: Vec::new(),
            pads: false,
            ignores_errors: false,
            tolerant: false,
            frame: None,
            sheet: None,
        }
    }

    /// The notation of a column.
    pub fn notation_of(&self, index: usize) -> &Notation {
        self.notations.get(&index).unwrap_or(&self.notation)
    }

    /// True if the value stands for null.
    pub fn is_null(&self, value: &str) -> bool {
        match &self.nulls {
            Some(nulls) => nulls.iter().any(|null| null == value),
            None => value.is_empty(),
        }
    }

    /// True if a reader can begin at any line.
    pub fn is_divisible(&self) -> bool {
        matches!(self.encoding, Encoding::Utf8 | Encoding::Latin1) && !self.carriage_returns
    }

    /// Adds the dialect to a part of a file.
    ///
    /// # Errors
    /// The dialect cannot be serialised.
    pub fn sent_with(&self, part: PartitionedFile) -> DfResult<PartitionedFile> {
        let text = serde_json::to_string(self).map_err(external)?;
        let metadata = HashMap::from([(KEY.to_owned(), text)]);
        let schema = Schema::empty().with_metadata(metadata);
        Ok(part.with_arrow_schema(Arc::new(schema)))
    }

    /// Reads the dialect that was sent with a part; if none was, returns the usual one of the
    /// format.
    ///
    /// # Errors
    /// The metadata are not a dialect.
    pub(crate) fn received(part: &PartitionedFile, format: Format) -> DfResult<Self> {
        let schema = part.arrow_schema.as_ref();
        match schema.and_then(|schema| schema.metadata().get(KEY)) {
            Some(text) => serde_json::from_str(text).map_err(external),
            None => Ok(Self::of(format)),
        }
    }
}

fn external(error: serde_json::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_is_sent_with_a_part() {
        let plain = || PartitionedFile::new("x.csv", 7);
        let tabs = Dialect::of(Format::Tsv);
        assert_eq!(Dialect::received(&plain(), Format::Tsv).unwrap(), tabs);
        let odd = Dialect { quote: None, headerless: Some(3), skip: 2, ..tabs };
        let sent = odd.sent_with(plain()).unwrap();
        assert_eq!(Dialect::received(&sent, Format::Csv).unwrap(), odd);
    }
}
