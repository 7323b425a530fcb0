//! The place of the table of a query in a workbook.

use serde::{Deserialize, Serialize};

/// The place of the rows of a table in a workbook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) sheet: String,
    /// The first row with values, and the last one that is read.
    pub(crate) first_row: u32,
    pub(crate) last_row: u32,
    pub(crate) first_column: u32,
    /// The names of the table's columns.
    pub(crate) names: Vec<String>,
    /// True if the table ends before the first empty row.
    pub(crate) stops_at_empty: bool,
    /// True if errors of cells are null.
    pub(crate) ignores_errors: bool,
}

impl Place {
    /// The cells of a row that are in the columns of the table.
    pub(crate) fn inside<'c, V>(&self, cells: &'c [(u32, V)]) -> &'c [(u32, V)] {
        let end = self.first_column + self.names.len() as u32;
        let from = cells.partition_point(|(column, _)| *column < self.first_column);
        let to = cells.partition_point(|(column, _)| *column < end);
        &cells[from..to]
    }
}
