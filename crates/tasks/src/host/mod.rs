//! A host of tasks, and the stores on its disk.
//!
//! | member | job |
//! |---|---|
//! | `task_host` | a node, and the stores that the tasks of all queries share there |
//! | `footers` | footers of data files, kept between queries |
//! | `read_rules` | rules of the operator about what queries may read |
//! | `unnamed_file` | files of which nothing remains after a crash |
//! | `code` | code that arrives from another host |

mod code;
mod footers;
mod read_rules;
mod task_host;
mod unnamed_file;

pub(crate) use code::stored_code;
pub(crate) use footers::FooterScope;
pub use task_host::TaskHost;
