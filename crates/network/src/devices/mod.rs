//! Devices and routes: the messages to the kernel that create, change and query them, and the
//! namespaces that they are in.
//!
//! | part | file |
//! |---|---|
//! | network devices | `link` |
//! | routes, neighbours and forwarding entries | `route` |
//! | the network namespace of a job, without a name | `namespace` |
//! | the host as the underlay of its jobs | `host` |

mod host;
pub(crate) mod link;
mod namespace;
pub(crate) mod route;

pub(crate) use host::{HostNamespace, lock};
pub(crate) use namespace::{Namespace, NamespaceFault};
