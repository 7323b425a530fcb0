//! The times that were tuned, each with the reason for its value. Limits that callers rely on are
//! where they are enforced.

use std::time::Duration;

/// How long after a job the next network is made: the functions of the job are being ended until
/// then, and making the network would compete with that for the processor and for the kernel's lock
/// of networks.
pub(crate) const NETWORK_MADE_AFTER: Duration = Duration::from_millis(20);

/// How long the daemon of networks may take to remove them when the node ends.
pub(crate) const NETWORKS_END_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the kernel is asked whether all that the ranks of a job sent last has arrived. The
/// time is a lower bound for the end of a job whose last rank has just sent, and each question
/// lists its sockets.
pub(crate) const UNSENT_ASKED_EVERY: Duration = Duration::from_millis(10);

/// How long the last data of ranks may stand still on its way: the kernel retransmits a lost packet
/// several times within it, and a job whose other end is gone ends no later.
pub(crate) const UNSENT_STANDS_STILL: Duration = Duration::from_secs(5);

/// How often mounted images are looked at for raw files that can be written. The work is done in
/// the background: nothing waits for it.
pub(crate) const RAW_FILES_INTERVAL: Duration = Duration::from_secs(2);

/// How long the first start in an image has to be over before the image's raw files are written: a
/// burst of starts, which would compete with the writes for the disk, is over then too.
pub(crate) const RAW_FILES_AFTER: Duration = Duration::from_secs(5);

/// How long the two clocks of the machine are compared: long enough for a step of the wall clock to
/// be seen, and short enough for a command that a user waits for.
pub(crate) const CLOCK_SAMPLE: Duration = Duration::from_millis(10);

/// How long code may take to load in a fresh instance, beside the time limit of its calls.
pub const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// How long after a prewarmed instance was taken its replacement is started: most calls have ended
/// by then, and the others have begun.
pub(crate) const REPLACED_AFTER: Duration = Duration::from_millis(20);

/// How long a runtime may take, once it has said that its function is loaded, until it waits for a
/// call. A runtime that takes longer is as ready, but slower at its first call.
pub(crate) const SETTLE_TIMEOUT: Duration = Duration::from_millis(5);

/// How long after a failure no instance of a function is prewarmed. A function that failed to start
/// once most often fails again, and costs a process each time.
pub(crate) const PREWARMED_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// How long a call runs before the thread that began it does other work for it. The instance is
/// often woken on the processor of the thread that woke it, and further work of that thread delays
/// the call.
pub(crate) const CALL_LEFT_ALONE: Duration = Duration::from_millis(2);

/// How long an idle worker is kept. Two queries of one session are rarely further apart, and an
/// idle worker has some 20 MiB.
pub(crate) const WORKER_KEPT: Duration = Duration::from_secs(60);

/// How often idle instances, workers and zygotes are maintained. Times of idleness are minutes, so
/// a second more or less does not matter.
pub(crate) const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// How often a spawner that has no free slot is asked again: it does not report when it has one.
pub(crate) const SLOT_ASKED_EVERY: Duration = Duration::from_millis(20);

/// How long a zygote is kept after its last fork. Beyond that time a zygote costs more memory than
/// its next start is worth (SOCK 4.2).
pub(crate) const ZYGOTE_KEPT: Duration = Duration::from_secs(600);

/// How long a set that could not be grown is not tried again.
pub(crate) const GROWN_AGAIN_AFTER: Duration = Duration::from_secs(120);
