//! Times that were tuned, each with the reason for its value.

use std::time::Duration;

/// How long a statement that defines a function may take to be parsed, once its sandbox runs: the
/// parser looks at each byte a few times.
pub(crate) const PARSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait for the report that a sandbox ended, once its connection failed. The spawner
/// reports an end within milliseconds, and its own is noticed as soon; on a busy machine both take
/// some hundred.
pub(crate) const END_REPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long to wait for the end of an instance whose code gave a reason of its own, which is
/// usually the better one.
pub(crate) const END_KNOWN_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a worker may take to remove what a query has left in object storage. Most removals are
/// a few requests; objects that take longer are left to the next query that uses the location.
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(60);
