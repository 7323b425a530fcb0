//! Sends a request again that takes much longer than others of its size: the first whole answer
//! counts (Lambada 5.3 measured that a few requests are many times slower than the rest).
//!
//! Invariant: at most 5 % of the requests of a store are sent again, so a store that has become slow
//! as a whole gets hardly more of them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use object_store::Result;
use tokio::time::{Instant, sleep};

/// The largest answer that is raced: it is kept in memory until it is whole.
pub(super) const MAX_BYTES: u64 = 16 << 20;

/// The least time before a request is sent again.
const PATIENCE: Duration = Duration::from_millis(50);

/// The number of recent requests from which the percentile of a class is computed.
const RECENT: usize = 128;

/// The least number of requests of a class from which a percentile is computed.
const FEWEST: usize = 20;

/// The share of requests, in percent, that take longer than the time after which a request is slow.
const SLOW_PERCENT: usize = 5;

/// The number of requests for which one can be sent again: at most 5 % of all.
const REQUESTS_PER_RACE: u32 = 20;

/// The most requests that can be sent again at once.
const MAX_AT_ONCE: u32 = 8;

/// Requests up to this size are one class; each further class is eight times as large.
const SMALLEST_CLASS: u64 = 64 << 10;

const CLASSES: usize = 4;

/// The recent times of a store's requests, and the number of requests that may be sent again.
#[derive(Debug, Default)]
pub(super) struct Races {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    // How long the last requests of each class took.
    took: [VecDeque<Duration>; CLASSES],
    // Requests since the last that could be sent again.
    earned: u32,
    // Requests that may be sent again.
    left: u32,
}

/// The result of a request that may have been sent twice.
#[derive(Debug)]
pub(super) struct Raced<T> {
    pub(super) result: Result<T>,
    /// True if the request was sent twice.
    pub(super) twice: bool,
}

impl Races {
    /// Sends a request for `bytes` bytes, and sends it again if it is slow.
    pub(super) async fn run<T, F>(&self, bytes: u64, send: impl Fn() -> F) -> Raced<T>
    where
        F: Future<Output = Result<T>>,
    {
        let class = class(bytes);
        let began = Instant::now();
        let patience = self.begin(class);
        let mut first = pin!(send());
        let Some(patience) = patience else {
            let result = first.await;
            self.end(class, began, &result);
            return Raced { result, twice: false };
        };
        // What may not be sent again now may be later, when others have been sent.
        loop {
            let too_long = pin!(sleep(patience));
            if let Either::Left((result, _)) = select(first.as_mut(), too_long).await {
                self.end(class, began, &result);
                return Raced { result, twice: false };
            }
            if self.may_race() {
                break;
            }
        }
        let second = pin!(send());
        let result = match select(first, second).await {
            Either::Left((Err(_), other)) => other.await,
            Either::Right((Err(_), other)) => other.await,
            Either::Left((result, _)) | Either::Right((result, _)) => result,
        };
        self.end(class, began, &result);
        Raced { result, twice: true }
    }

    /// Counts a request. Returns the time after which it is slow, if that is known.
    fn begin(&self, class: usize) -> Option<Duration> {
        let mut state = self.lock();
        state.earned += 1;
        if state.earned == REQUESTS_PER_RACE {
            state.earned = 0;
            state.left = MAX_AT_ONCE.min(state.left + 1);
        }
        patience(&state.took[class])
    }

    fn end<T>(&self, class: usize, began: Instant, result: &Result<T>) {
        if result.is_err() {
            return;
        }
        let mut state = self.lock();
        let took = &mut state.took[class];
        if took.len() == RECENT {
            took.pop_front();
        }
        took.push_back(began.elapsed());
    }

    fn may_race(&self) -> bool {
        let mut state = self.lock();
        let left = state.left.checked_sub(1);
        state.left = left.unwrap_or(0);
        left.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time after which a request is slow, by how long others took.
fn patience(took: &VecDeque<Duration>) -> Option<Duration> {
    let mut sorted: Vec<Duration> = took.iter().copied().collect();
    let slow = sorted.len() * SLOW_PERCENT / 100;
    let place = sorted.len().checked_sub(slow + 1).filter(|_| took.len() >= FEWEST)?;
    let (_, percentile, _) = sorted.select_nth_unstable(place);
    Some(PATIENCE.max(*percentile))
}

/// Returns the class of a request by its number of bytes.
fn class(bytes: u64) -> usize {
    let fits = |class: &usize| bytes <= SMALLEST_CLASS << (3 * class);
    (0..CLASSES).find(fits).unwrap_or(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use object_store::Error;

    use super::*;

    /// Races that know requests, all of which were fast.
    async fn warm(requests: u32) -> Races {
        let races = Races::default();
        for _ in 0..requests {
            let raced = races.run(1, || async { Ok(()) }).await;
            assert!(!raced.twice);
        }
        races
    }

    /// A request whose first sending ends as `first` does, and whose others end at once. Gives the
    /// result and how often it was sent.
    async fn request<F>(races: &Races, first: F, second: Result<u32>) -> (Raced<u32>, u32)
    where
        F: Future<Output = Result<u32>>,
    {
        let sent = AtomicU32::new(0);
        let first = Mutex::new(Some(first));
        let second = Mutex::new(Some(second));
        let send = || {
            let number = sent.fetch_add(1, Ordering::Relaxed);
            let first = first.lock().unwrap().take();
            let second = (number > 0).then(|| second.lock().unwrap().take()).flatten();
            async move {
                match (first, second) {
                    (Some(first), _) => first.await,
                    (None, second) => second.unwrap(),
                }
            }
        };
        let raced = races.run(1, send).await;
        (raced, sent.load(Ordering::Relaxed))
    }

    fn failed() -> Result<u32> {
        Err(Error::NotImplemented { operation: "x".to_owned(), implementer: "y".to_owned() })
    }

    #[tokio::test]
    async fn a_request_that_is_never_answered_is_sent_again() {
        let races = warm(REQUESTS_PER_RACE).await;
        let (raced, sent) = request(&races, std::future::pending(), Ok(2)).await;
        assert_eq!((raced.result.unwrap(), raced.twice, sent), (2, true, 2));
    }

    #[tokio::test]
    async fn a_slow_request_is_sent_again_when_there_were_enough_others() {
        let races = warm(REQUESTS_PER_RACE).await;
        assert!(races.may_race() && !races.may_race());
        let others = async {
            sleep(PATIENCE * 2).await;
            for _ in 0..REQUESTS_PER_RACE {
                request(&races, async { Ok(1) }, Ok(1)).await;
            }
        };
        let slow = request(&races, std::future::pending(), Ok(2));
        let ((raced, sent), ()) = tokio::join!(slow, others);
        assert_eq!((raced.result.unwrap(), raced.twice, sent), (2, true, 2));
    }

    #[tokio::test]
    async fn without_other_requests_none_is_slow() {
        let slow = async {
            sleep(PATIENCE * 2).await;
            Ok(1)
        };
        let (raced, sent) = request(&warm(FEWEST as u32 - 1).await, slow, Ok(2)).await;
        assert_eq!((raced.result.unwrap(), raced.twice, sent), (1, false, 1));
    }

    #[tokio::test]
    async fn a_failure_of_the_second_leaves_the_first() {
        let races = warm(REQUESTS_PER_RACE).await;
        let slow = async {
            sleep(PATIENCE * 2).await;
            Ok(1)
        };
        let (raced, sent) = request(&races, slow, failed()).await;
        assert_eq!((raced.result.unwrap(), sent), (1, 2));
    }

    #[test]
    fn one_of_twenty_requests_is_sent_again_at_most() {
        let races = Races::default();
        let mut again = 0;
        for _ in 0..230 {
            races.begin(0);
            again += u32::from(races.may_race());
        }
        assert_eq!(again, 230 / REQUESTS_PER_RACE);
        (0..1000).for_each(|_| _ = races.begin(0));
        assert_eq!((0..100).filter(|_| races.may_race()).count() as u32, MAX_AT_ONCE);
    }

    #[test]
    fn patience_is_what_95_of_100_requests_take_and_at_least_50_ms() {
        let took = |range: std::ops::Range<u64>| range.map(Duration::from_millis).collect();
        assert_eq!(patience(&took(1..101)), Some(Duration::from_millis(95)));
        assert_eq!(patience(&took(1..41)), Some(PATIENCE));
        assert_eq!(patience(&took(1..FEWEST as u64)), None);
    }

    #[test]
    fn classes_differ_by_size() {
        assert_eq!([0, 65_536, 65_537, 1 << 19, 4 << 20, 1 << 30].map(class), [0, 0, 1, 1, 2, 3]);
    }
}
