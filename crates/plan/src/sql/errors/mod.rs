//! Reports for wrong SQL, in the words of SQL.
//!
//! | member | owns |
//! |---|---|
//! | `function_names` | the names of all functions, for "did you mean" |
//! | `internals` | messages of the planner without its structures |
//! | `sql_error` | the report: line, caret, similar names |

mod function_names;
mod internals;
pub(crate) mod sql_error;
