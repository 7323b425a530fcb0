//! Names of columns and of the items of a SELECT.
//!
//! | member | owns |
//! |---|---|
//! | `aliases` | names of items that the same SELECT uses again |
//! | `names` | columns of files in another case |
//! | `same_names` | expressions to which DataFusion gives one name, or a name of its own |
//! | `sort_keys` | names in ORDER BY, inside of expressions |

mod aliases;
pub(crate) mod names;
pub(crate) mod same_names;
pub(crate) mod sort_keys;

pub(crate) use aliases::Reused;
