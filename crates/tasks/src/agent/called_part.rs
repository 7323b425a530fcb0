//! A part of a job whose ranks are called: its ends until they are fetched, and its lease.
//!
//! Invariant: an end stays here until the part is closed, so control may ask for the end again
//! after control itself or its connection was lost. A part whose ends nobody asks for within the
//! lease is closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmelt_types::ErrorReport;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::api::{PartEnds, RankEnd};

/// The most bytes of results and logs in one answer; ends beyond that are sent in the next answer.
const MAX_PAGE: usize = 16 << 20;

/// A part whose ranks are called.
#[derive(Debug)]
pub(super) struct Called {
    state: Mutex<State>,
    // Notified after each change of the state.
    changed: Notify,
    /// Sends the error with which each call that still runs ends.
    end: watch::Sender<Option<ErrorReport>>,
    closed: CancellationToken,
    lease: Duration,
}

#[derive(Debug)]
struct State {
    ends: Vec<Arc<RankEnd>>,
    finished: bool,
    lease_until: Instant,
}

impl Called {
    pub fn new(lease: Duration) -> Self {
        let state =
            State { ends: Vec::new(), finished: false, lease_until: Instant::now() + lease };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            end: watch::channel(None).0,
            closed: CancellationToken::new(),
            lease,
        }
    }

    /// Adds the end of a rank.
    pub fn push(&self, end: RankEnd) {
        self.lock().ends.push(Arc::new(end));
        self.changed.notify_waiters();
    }

    /// Notes that nothing of the part is left but its ends.
    pub fn finish(&self) {
        self.lock().finished = true;
        self.changed.notify_waiters();
    }

    /// Waits until there is an end that the caller does not know yet, and returns the ends from the
    /// number `from` on; renews the lease.
    pub async fn ends(&self, from: usize, within: Duration) -> PartEnds {
        let deadline = Instant::now() + within;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before the look, so that no change is missed.
            changed.as_mut().enable();
            let page = self.page(from);
            if page.finished || !page.ends.is_empty() || self.closed.is_cancelled() {
                return page;
            }
            if timeout_at(deadline, changed).await.is_err() {
                return self.page(from);
            }
        }
    }

    fn page(&self, from: usize) -> PartEnds {
        let mut state = self.lock();
        state.lease_until = Instant::now() + self.lease;
        let mut bytes = 0;
        let fits = |end: &&Arc<RankEnd>| {
            let is_first = bytes == 0;
            bytes += 1 + end.log.len() + end.result.as_ref().map_or(0, |text| text.json().len());
            is_first || bytes <= MAX_PAGE
        };
        let ends: Vec<_> = state.ends.iter().skip(from).take_while(fits).cloned().collect();
        let finished = state.finished && from + ends.len() >= state.ends.len();
        PartEnds { ends, finished }
    }

    /// Ends the calls that still run, each with this error.
    pub fn end(&self, error: ErrorReport) {
        self.end.send_replace(Some(error));
    }

    /// Returns a receiver of the error with which all calls that still run are to end.
    pub fn ended(&self) -> watch::Receiver<Option<ErrorReport>> {
        self.end.subscribe()
    }

    /// Asks for the end of the part, and forgets its ends.
    pub fn close(&self) {
        self.lock().ends = Vec::new();
        self.closed.cancel();
        self.changed.notify_waiters();
    }

    /// Waits until the part is to be closed: on request, or because its lease has expired.
    pub async fn is_given_up(&self) {
        loop {
            let until = self.lock().lease_until;
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = sleep_until(until) => {}
            }
            if self.lock().lease_until <= Instant::now() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn end(rank: u32, log: usize) -> RankEnd {
        let log = "x".repeat(log);
        RankEnd { rank, result: None, error: None, log, log_dropped: 0, wall_us: 0 }
    }

    fn ranks(page: &PartEnds) -> Vec<u32> {
        page.ends.iter().map(|end| end.rank).collect()
    }

    #[tokio::test]
    async fn an_end_can_be_asked_for_again() {
        let called = Called::new(LONG);
        called.push(end(4, 0));
        called.push(end(3, 0));
        assert_eq!(ranks(&called.ends(0, LONG).await), [4, 3]);
        assert_eq!(ranks(&called.ends(0, LONG).await), [4, 3]);
        let page = called.ends(1, LONG).await;
        assert_eq!((ranks(&page), page.finished), (vec![3], false));
        called.finish();
        assert!(called.ends(2, LONG).await.finished);
    }

    #[tokio::test]
    async fn who_waits_gets_the_next_end_at_once() {
        let called = Arc::new(Called::new(LONG));
        let waiting = tokio::spawn({
            let called = Arc::clone(&called);
            async move { called.ends(0, LONG).await }
        });
        tokio::task::yield_now().await;
        called.push(end(7, 0));
        assert_eq!(ranks(&waiting.await.unwrap()), [7]);
        assert!(called.ends(1, Duration::from_millis(1)).await.ends.is_empty());
    }

    #[tokio::test]
    async fn a_page_is_bounded_and_the_rest_is_the_next_one() {
        let called = Called::new(LONG);
        (0..3).for_each(|rank| called.push(end(rank, MAX_PAGE / 2)));
        called.finish();
        let first = called.ends(0, LONG).await;
        assert_eq!((ranks(&first), first.finished), (vec![0], false));
        assert_eq!(ranks(&called.ends(1, LONG).await), [1]);
        let last = called.ends(2, LONG).await;
        assert_eq!((ranks(&last), last.finished), (vec![2], true));
    }

    #[tokio::test]
    async fn a_lease_that_is_not_renewed_expires() {
        let called = Called::new(Duration::from_millis(20));
        called.ends(0, Duration::ZERO).await;
        called.is_given_up().await;
        let closed = Called::new(LONG);
        closed.close();
        closed.is_given_up().await;
    }

    #[tokio::test]
    async fn requests_for_ends_renew_the_lease() {
        let called = Called::new(LONG);
        let before = called.lock().lease_until;
        tokio::time::sleep(Duration::from_millis(2)).await;
        called.ends(0, Duration::ZERO).await;
        assert!(called.lock().lease_until > before);
    }
}
