//! PIVOT and UNPIVOT, which the planner lacks.
//!
//! | member | owns |
//! |---|---|
//! | `forms` | the queries that they stand for |
//! | `values` | their places in a statement, and the values of a PIVOT that lists none |

mod forms;
mod values;

pub(crate) use forms::{Unpivot, all_but, template, within};
pub use values::PivotValues;
pub(crate) use values::{Unwritten, write};
