//! The options that a query gives for the CSV files that it reads; the rest is recognised.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema};
use snowmelt_execute::read::{Encoding, Notation};
use snowmelt_types::{Code, ErrorReport};

use super::sheet_options::SheetOptions;
use crate::Error;

/// The options of `read_csv`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CsvOptions {
    pub(crate) delimiter: Option<u8>,
    pub(crate) quote: Option<Mark>,
    pub(crate) escape: Option<Mark>,
    /// Whether the first record has the names of the columns.
    pub(crate) header: Option<bool>,
    pub(crate) encoding: Option<Encoding>,
    /// Lines before the header or the first record.
    pub(crate) skip: u64,
    /// All columns are texts.
    pub(crate) all_varchar: bool,
    /// The mark that begins a comment. Without it, comments before the records are recognised.
    pub(crate) comment: Option<Mark>,
    pub(crate) notation: Notation,
    /// The formats of times that columns have of their own.
    pub(crate) formats: Vec<TimeFormat>,
    /// The values that are null, in the place of the empty one.
    pub(crate) nulls: Option<Vec<String>>,
    /// A record that is too short is filled up with nulls.
    pub(crate) null_padding: bool,
    /// Records that do not fit are left out.
    pub(crate) ignore_errors: bool,
    /// A mark inside of a quoted value may be a part of it.
    pub(crate) tolerant: bool,
    /// The names of the first columns.
    pub(crate) names: Vec<String>,
    pub(crate) types: Types,
    /// `names` and `types` have all columns.
    pub(crate) all_columns: bool,
    /// `types` are for all CSV files of the query, of which each may lack some of the columns.
    pub(crate) for_all_tables: bool,
}

/// The format of the dates of one column, or of its timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeFormat {
    pub(crate) column: String,
    /// The form of chrono.
    pub(crate) format: String,
    pub(crate) has_clock: bool,
    /// For all CSV files of the query, of which each may lack the column.
    pub(crate) for_all_tables: bool,
}

/// The options that a query gives for the files of a table, as far as they matter for the format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions<'o> {
    pub(crate) csv: &'o CsvOptions,
    pub(crate) sheet: &'o SheetOptions,
    /// The memory of a worker, which reads a workbook whole; 0 if it is not known.
    pub(crate) worker_memory: u64,
}

/// The types of columns that a query gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Types {
    #[default]
    None,
    /// Types of the first columns, in order.
    Places(Vec<DataType>),
    /// Types of columns by name.
    Names(Vec<(String, DataType)>),
}

/// A byte with a meaning in values, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) Option<u8>);

impl Types {
    /// The type of a column.
    pub(super) fn of(&self, index: usize, name: &str) -> Option<&DataType> {
        match self {
            Self::None => None,
            Self::Places(types) => types.get(index),
            Self::Names(types) => {
                types.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, it)| it)
            }
        }
    }
}

impl CsvOptions {
    /// The names of a file's columns, given those that it has itself.
    ///
    /// # Errors
    /// The query says another number of columns.
    pub(super) fn named(&self, own: Vec<String>, file: &str) -> Result<Vec<String>, Error> {
        let given = self.names.len();
        let found = own.len();
        if given > found || self.all_columns && given < found {
            let option = if self.all_columns { "columns" } else { "names" };
            let message = format!("`{option}` says {given} columns, and `{file}` has {found}");
            let hint = "name the columns in their order; `types` gives some of them a type by name";
            return Err(wrong(message, hint));
        }
        Ok(self.names.iter().cloned().chain(own.into_iter().skip(given)).collect())
    }

    /// The notations of columns that have one of their own, by the names in the first record.
    pub(super) fn notations(&self, first: &[String]) -> BTreeMap<usize, Notation> {
        let mut all: BTreeMap<usize, Notation> = BTreeMap::new();
        for (index, name) in first.iter().enumerate() {
            let unnamed = format!("column{index}");
            let names = match self.names.get(index) {
                Some(given) => [given, given],
                // Whether the first record has names is not known yet.
                None => [name, &unnamed],
            };
            let is_of = |format: &&TimeFormat| {
                names.iter().any(|name| name.eq_ignore_ascii_case(&format.column))
            };
            for format in self.formats.iter().filter(is_of) {
                let notation = all.entry(index).or_insert_with(|| self.notation.clone());
                let place = if format.has_clock { &mut notation.time } else { &mut notation.date };
                *place = Some(format.format.clone());
            }
        }
        all
    }

    /// Refuses types of columns that a table does not have.
    pub(super) fn check(&self, table: &Schema) -> Result<(), Error> {
        let formats = self.formats.iter().filter(|format| !format.for_all_tables);
        of_formats(formats, table)?;
        if self.for_all_tables { Ok(()) } else { self.of_types(table) }
    }

    /// Refuses types of columns that none of these is.
    pub(crate) fn check_columns(&self, columns: &Schema) -> Result<(), Error> {
        of_formats(self.formats.iter(), columns)?;
        self.of_types(columns)
    }

    fn of_types(&self, columns: &Schema) -> Result<(), Error> {
        let Types::Names(types) = &self.types else { return Ok(()) };
        are_known("types", types.iter().map(|(name, _)| name.as_str()), columns)
    }
}

fn of_formats<'a>(
    mut formats: impl Iterator<Item = &'a TimeFormat>,
    columns: &Schema,
) -> Result<(), Error> {
    formats.try_for_each(|format| {
        let option = if format.has_clock { "timestampformat" } else { "dateformat" };
        are_known(option, std::iter::once(format.column.as_str()), columns)
    })
}

/// Refuses names of an option that no column has.
fn are_known<'a>(
    option: &str,
    mut given: impl Iterator<Item = &'a str>,
    columns: &Schema,
) -> Result<(), Error> {
    let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    let known = |name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    match given.find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => {
            let shown: Vec<&str> = names.iter().take(20).copied().collect();
            let hint = format!("the columns are {}", shown.join(", "));
            Err(wrong(format!("`{option}` has the column `{name}`, which no file has"), &hint))
        }
    }
}

fn wrong(message: String, hint: &str) -> Error {
    Error::File(Box::new(ErrorReport::new(Code::OPTION, message).hint(hint)))
}
