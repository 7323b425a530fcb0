//! Sorts by several columns, and joins by sorting.
//!
//! | file | owns |
//! |---|---|
//! | `sort` | sorts by several columns |
//! | `short_keys` | short forms of their keys |
//! | `spilled_sort` | rows that do not fit into memory |
//! | `sort_merge`, `not_in` | joins by sorting, and `NOT IN` among them |

mod not_in;
mod short_keys;
pub(super) mod sort;
pub(super) mod sort_merge;
mod spilled_sort;
