//! The place of the table of a query in a workbook.

use serde::{Deserialize, Serialize};

/// The place of the rows of a table in a workbook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SheetPlace {
    /// The name of the sheet.
    pub sheet: String,
    /// The first row with values, from 0.
    pub first_row: u32,
    /// The last row that is read.
    pub last_row: u32,
    /// The first column of the table, from 0.
    pub first_column: u32,
    /// The names of the table's columns.
    pub names: Vec<String>,
    /// True if the table ends before the first empty row.
    pub stops_at_empty: bool,
    /// True if errors of cells are null.
    pub ignores_errors: bool,
}

impl SheetPlace {
    /// The cells of a row that are in the columns of the table.
    pub fn inside<'c, V>(&self, cells: &'c [(u32, V)]) -> &'c [(u32, V)] {
        let end = self.first_column + self.names.len() as u32;
        let from = cells.partition_point(|(column, _)| *column < self.first_column);
        let to = cells.partition_point(|(column, _)| *column < end);
        &cells[from..to]
    }
}
