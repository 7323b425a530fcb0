//! Tuned times, each with the reason for its value. Limits that callers rely on are defined where
//! they are enforced.

use std::time::Duration;

/// The time for which a zygote must be idle before it preforks: requests in a burst are better
/// served first, and a call that has just started must not share the processor with the next fork.
/// A longer time would only leave more requests without a preforked child.
pub(crate) const PREFORK_AFTER: Duration = Duration::from_millis(4);

/// The time for which a preforked child waits for a request. It holds about as much memory as an
/// idle instance, which no cache counts, so it is kept no longer than an idle instance is by
/// default.
pub(crate) const PREFORKED_KEPT: Duration = Duration::from_secs(60);

/// The pause before a control group that could not be removed is tried again; each further one is
/// twice as long. Most killed processes have left their group by then.
pub(crate) const GROUP_FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The longest pause between two attempts to remove a control group: an attempt lists and kills the
/// processes of a group in the loop of a lane, and must not take a noticeable part of its time.
pub(crate) const GROUP_LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause while a group whose processes were reaped is still busy: the kernel takes a dead
/// process out of its group a moment after it was reaped.
pub(crate) const GROUP_BUSY_PAUSE: Duration = Duration::from_millis(1);

/// The pause between two kills of all processes of a group: long enough that the killed processes
/// are gone from the list.
pub(crate) const KILL_PAUSE: Duration = Duration::from_millis(2);

/// The time that is added to the time until a deadline. Where the kernel waits in whole
/// milliseconds, the time is rounded: the loop could wake before the deadline, and would spin until
/// it.
pub(crate) const DEADLINE_SLACK: Duration = Duration::from_millis(1);

/// The first pause before a spawner is started in place of one that died soon or could not be
/// started; each further pause is twice as long. What the kernel removes of the dead spawner is
/// mostly gone by then.
pub(crate) const RESTART_FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause before a spawner is started again: how long a repaired machine waits for its
/// spawner.
pub(crate) const RESTART_LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The lifetime after which a spawner counts as stable: one that lived this long died of a cause
/// that will not end the next one immediately. It is three times the longest pause, so that a cause
/// that returns is still paused for.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(30);
