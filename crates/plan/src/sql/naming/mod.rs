//! Names of columns and of the items of a SELECT.
//!
//! | member | owns |
//! |---|---|
//! | `aliases` | names of items that the same SELECT uses again |
//! | `names` | columns of files in another case |
//! | `same_names` | expressions to which DataFusion gives one name |

mod aliases;
pub(crate) mod names;
pub(crate) mod same_names;

pub(crate) use aliases::Reused;
