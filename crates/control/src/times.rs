//! Times that were tuned, each with the reason for its value. Limits that callers rely on are
//! where they are enforced.

use std::time::Duration;

/// How often a server that is about to end checks whether calls still run. It is a lower bound for
/// the end of a server with calls; a check reads two counters.
pub(crate) const CALLS_ASKED_EVERY: Duration = Duration::from_millis(10);

/// How long to wait before an accepted call is tried again that the platform failed: at first, and,
/// doubled each time, at most. The first is a spawner's replacement; the last bounds the load of
/// many calls that wait for a machine to be repaired.
pub(crate) const AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(30)];

/// How long calls and queries of a platform may run whose client has its answer, or has ended: only
/// what they write last is of use, and the command of the user returns no earlier.
pub(crate) const PRIVATE_GRACE: Duration = Duration::from_millis(500);

/// How long the others have to end on their own: most notice a closed connection, and their own
/// error says more than that they were ended.
pub(crate) const RANKS_END_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a server that takes long is probed.
pub(crate) const PROBED_EVERY: Duration = Duration::from_secs(5);

/// How long until files of interrupted conversions are looked at again that another writer may
/// still need. A look reads one folder; the files only take room.
pub(crate) const SWEPT_AGAIN_AFTER: Duration = Duration::from_secs(1);
