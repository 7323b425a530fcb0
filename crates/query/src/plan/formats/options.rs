//! The options that a query gives for the CSV files that it reads; the rest is recognised.

use arrow::datatypes::{DataType, Schema};
use snowmelt_execute::read::{Encoding, Notation};
use snowmelt_types::{Code, ErrorReport};

use super::sheet_options::SheetOptions;
use crate::Error;

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
    /// The mark that begins a comment. Without it, comments before the records are recognised.
    pub(in super::super) comment: Option<Mark>,
    pub(in super::super) notation: Notation,
    /// The values that are null, in the place of the empty one.
    pub(in super::super) nulls: Option<Vec<String>>,
    /// A record that is too short is filled up with nulls.
    pub(in super::super) null_padding: bool,
    /// Records that do not fit are left out.
    pub(in super::super) ignore_errors: bool,
    /// The names of the first columns.
    pub(in super::super) names: Vec<String>,
    pub(in super::super) types: Types,
    /// `names` and `types` have all columns.
    pub(in super::super) all_columns: bool,
    /// `types` are for all CSV files of the query, of which each may lack some of the columns.
    pub(in super::super) for_all_tables: bool,
}

/// The options that a query gives for the files of a table, as far as they matter for the format.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ReadOptions<'o> {
    pub(in super::super) csv: &'o CsvOptions,
    pub(in super::super) sheet: &'o SheetOptions,
    /// The memory of a worker, which reads a workbook whole; 0 if it is not known.
    pub(in super::super) worker_memory: u64,
}

/// The types of columns that a query gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Types {
    #[default]
    None,
    /// Types of the first columns, in order.
    Places(Vec<DataType>),
    /// Types of columns by name.
    Names(Vec<(String, DataType)>),
}

/// A byte with a meaning in values, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Mark(pub(in super::super) Option<u8>);

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
        let (given, found) = (self.names.len(), own.len());
        if given > found || self.all_columns && given < found {
            let option = if self.all_columns { "columns" } else { "names" };
            let message = format!("`{option}` says {given} columns, and `{file}` has {found}");
            let hint = "name the columns in their order; `types` gives some of them a type by name";
            return Err(wrong(message, hint));
        }
        Ok(self.names.iter().cloned().chain(own.into_iter().skip(given)).collect())
    }

    /// Refuses types of columns that a table does not have.
    pub(super) fn check(&self, table: &Schema) -> Result<(), Error> {
        if self.for_all_tables { Ok(()) } else { self.check_columns(table) }
    }

    /// Refuses types of columns that none of these is.
    pub(in super::super) fn check_columns(&self, columns: &Schema) -> Result<(), Error> {
        let Types::Names(types) = &self.types else { return Ok(()) };
        let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
        let known = |name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        match types.iter().find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let shown: Vec<&str> = names.iter().take(20).copied().collect();
                let hint = format!("the columns are {}", shown.join(", "));
                Err(wrong(format!("`types` has the column `{name}`, which no file has"), &hint))
            }
        }
    }
}

fn wrong(message: String, hint: &str) -> Error {
    Error::File(Box::new(ErrorReport::new(Code::OPTION, message).hint(hint)))
}
