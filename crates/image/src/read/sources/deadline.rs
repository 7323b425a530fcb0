//! The time by which a read of blocks has its bytes or fails. All work for the read knows it:
//! fetching the offset table, repeated requests, requests to other hosts and their own sources.
//!
//! Invariant: work that is begun for a read ends [`LEAST`] after its deadline at the latest. Work
//! in a separate task, such as reading ahead, has no deadline.

use std::time::Duration;

use tokio::time::Instant;

/// The time that a read waits without receiving anything.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(45);

/// The least time for one attempt, even at the end of the time for the work.
pub(crate) const LEAST: Duration = Duration::from_secs(2);

tokio::task_local! {
    static UNTIL: Instant;
}

/// Does `work` with this deadline, or with an earlier one that applies already.
pub(crate) async fn until<T>(time: Instant, work: impl Future<Output = T>) -> T {
    let time = current().map_or(time, |known| known.min(time));
    UNTIL.scope(time, work).await
}

/// Returns the deadline of the read for which this task works; `None` for other work.
pub(crate) fn current() -> Option<Instant> {
    UNTIL.try_with(|time| *time).ok()
}

/// Returns the time that is left for one attempt, at least `LEAST`; `None` if the work has no
/// deadline.
pub(crate) fn left() -> Option<Duration> {
    let left = |time: Instant| time.saturating_duration_since(Instant::now());
    Some(left(current()?).max(LEAST))
}

/// Returns whether the deadline of the read is over: then there is only one attempt, and no wait
/// for other hosts.
pub(crate) fn is_over() -> bool {
    current().is_some_and(|time| Instant::now() >= time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_earlier_time_counts_and_an_attempt_always_has_some() {
        assert_eq!((current(), left(), is_over()), (None, None, false));
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        until(now, async {
            assert_eq!((left(), is_over()), (Some(LEAST), true));
            until(now + hour, async { assert_eq!(current(), Some(now)) }).await;
        })
        .await;
        until(now + hour, async {
            until(now, async { assert_eq!(current(), Some(now)) }).await;
            assert_eq!((current(), is_over()), (Some(now + hour), false));
        })
        .await;
        assert_eq!(current(), None);
    }
}
