//! Times that were tuned, each with the reason for its value. Limits that callers rely on are
//! where they are enforced.

use std::time::Duration;

/// How long after a job the next network is made: the functions of the job are being ended until
/// then, and the creation would compete with that for the processor and for the kernel's lock of
/// networks.
pub(crate) const NETWORK_MADE_AFTER: Duration = Duration::from_millis(20);

/// How often the kernel is asked whether what the ranks of a job sent last has arrived. It is a lower
/// bound for the end of a job whose last rank has just sent, and each question lists its sockets.
pub(crate) const UNSENT_ASKED_EVERY: Duration = Duration::from_millis(10);

/// How long what ranks sent last may stand still on its way: the kernel retransmits a lost packet
/// several times within it, and a job whose other end is gone ends no later.
pub(crate) const UNSENT_STANDS_STILL: Duration = Duration::from_secs(5);

/// How often mounted images are looked at for files that can be written. It is background work:
/// nothing waits for it.
pub(crate) const RAW_FILES_INTERVAL: Duration = Duration::from_secs(2);

/// How long the first start in an image has been over before its files are written: a burst of
/// starts, which would compete with the writes for the disk, is over then too.
pub(crate) const RAW_FILES_AFTER: Duration = Duration::from_secs(5);

/// How long the two clocks of the machine are compared: long enough for a step of the wall clock to
/// be seen, and short enough for a command that a user waits for.
pub(crate) const CLOCK_SAMPLE: Duration = Duration::from_millis(10);

/// How long code may take to load in a fresh instance, beside the time limit of its calls.
pub const LOAD_LIMIT: Duration = Duration::from_secs(120);
