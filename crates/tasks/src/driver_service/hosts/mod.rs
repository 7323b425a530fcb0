//! The hosts of a cluster as one query sees them.
//!
//! | member | job |
//! |---|---|
//! | `opening` | the session on one other host, opened in the background |
//! | `function_files` | files of the query's functions, for the other hosts |
//! | `order` | the order of the hosts on which a task may run |
//! | `cluster` | the sessions, and which hosts may run a task |

mod cluster;
mod function_files;
mod opening;
mod order;

pub(super) use cluster::{HostChoice, QueryCluster, TaskCount, refused_udf};
pub(super) use opening::SessionOpening;
