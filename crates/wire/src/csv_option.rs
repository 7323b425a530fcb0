//! Options for the CSV files of a query.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An option for CSV files, as `read_csv` has it: `decimal` with the value `,`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvOption {
    /// Its name.
    pub name: String,
    /// The names of the columns that the values are for, in their order, if they are for columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Its value, or those of a list; `true`, `false` and numbers as texts.
    pub values: Vec<String>,
}
