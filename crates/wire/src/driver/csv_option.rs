//! Options for the CSV files of a query.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An option for CSV files in the form of `read_csv`: for example `decimal` with the value `,`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvOption {
    /// The name of the option.
    pub name: String,
    /// The names of the columns that the values are for, in their order. Empty for an option that
    /// is not for columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The value, or the values of a list; `true`, `false` and numbers as texts.
    pub values: Vec<String>,
}
