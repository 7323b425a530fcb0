//! Identifiers, resources, digests, roles, sandbox outcomes and the error report that a user sees.
//!
//! All other crates may depend on this one; it depends on none of them. It does no I/O.

mod access;
mod digest;
mod error;
mod ids;
mod outcome;
mod resources;
mod suggestion;

pub use access::{NamePattern, Right, Role};
pub use digest::Digest;
pub use error::{CODES, Code, ErrorReport, ExitClass, Report, SourceLocation};
pub use ids::{FunctionName, HostName, InvocationId, JobId, QueryId, SandboxId, Tenant};
pub use outcome::{End, Outcome};
pub use resources::{ByteSize, CpuMillis, ParseResourceError, micros, parse_duration};
pub use suggestion::nearest;
