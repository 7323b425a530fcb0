//! The files of one table.
//!
//! | member | owns |
//! |---|---|
//! | `table_files` | schema, statistics and row groups, from footers |
//! | `footers` | footers that earlier queries have kept |
//! | `unify` | one schema for files that differ |
//! | `hive` | columns from names of folders |
//! | `file_names` | names of files as a column or table |
//! | `file_table` | a table of files of any format, as DataFusion asks for it |

pub(crate) mod file_names;
mod file_table;
pub(crate) mod footers;
mod hive;
pub(crate) mod table_files;
mod unify;

pub(crate) use file_names::columns_beside;
pub(crate) use file_table::{FileTable, FileTableProvider};
pub(crate) use hive::FolderColumns;
pub(crate) use table_files::{
    TableFile, as_read, display_name, duplicate_column, store_of, without_metadata,
};
pub(crate) use unify::{SchemaConflict, differing_in_case, unify_or};
