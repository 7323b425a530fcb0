//! Lowers the number of concurrent requests to a bucket that asks for fewer (503, 429).
//!
//! A store limits the requests to a prefix, not each request. So one answer of this kind concerns
//! all requests of the worker to the bucket: the limit of concurrent requests is halved, and grows
//! by one with each round of requests that were answered well (AIMD, as TCP does). The client
//! repeats the refused request itself.
//!
//! Invariant: at least one request may run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use tokio::sync::Notify;

/// The most concurrent requests of a worker to a bucket.
const MOST: f64 = 64.0;

/// The status codes by which a store asks for fewer requests.
const SLOW_DOWN: [u16; 2] = [429, 503];

/// Connects the requests of one bucket, and limits how many of them run.
#[derive(Debug)]
pub(super) struct LimitedConnector;

impl HttpConnector for LimitedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Limited { client, limit: Arc::default() }))
    }
}

#[derive(Debug)]
struct Limited {
    client: HttpClient,
    limit: Arc<Limit>,
}

#[async_trait]
impl HttpService for Limited {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let running = self.limit.begin().await;
        let answered = self.client.execute(request).await;
        if let Ok(response) = &answered {
            running.answered(SLOW_DOWN.contains(&response.status().as_u16()));
        }
        answered
    }
}

/// How many requests may run.
#[derive(Debug, Default)]
struct Limit {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    most: f64,
    running: usize,
    // How often the limit was lowered.
    lowered: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { most: MOST, running: 0, lowered: 0 }
    }
}

/// A request that runs until its head is answered.
struct RunningRequest {
    limit: Arc<Limit>,
    /// How often the limit had been lowered when the request began.
    lowered: u64,
}

impl Limit {
    async fn begin(self: &Arc<Self>) -> RunningRequest {
        loop {
            let changed = self.changed.notified();
            if let Some(lowered) = self.try_begin() {
                return RunningRequest { limit: Arc::clone(self), lowered };
            }
            changed.await;
        }
    }

    fn try_begin(&self) -> Option<u64> {
        let mut state = self.lock();
        if state.running as f64 + 1.0 > state.most {
            return None;
        }
        state.running += 1;
        Some(state.lowered)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningRequest {
    /// Adapts the limit to an answer.
    fn answered(&self, slow_down: bool) {
        let mut state = self.limit.lock();
        if !slow_down {
            state.most = MOST.min(state.most + 1.0 / state.most);
        } else if state.lowered == self.lowered {
            // The answers to requests that ran at the same time are one signal.
            state.most = (state.most / 2.0).max(1.0);
            state.lowered += 1;
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.limit.lock().running -= 1;
        self.limit.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Begins as many requests as may run.
    fn fill(limit: &Arc<Limit>) -> Vec<RunningRequest> {
        std::iter::from_fn(|| limit.begin().now_or_never()).collect()
    }

    #[test]
    fn one_signal_halves_the_limit_once_for_all_requests() {
        let limit = Arc::new(Limit::default());
        let running = fill(&limit);
        assert_eq!(running.len(), 64);
        running.iter().for_each(|running| running.answered(true));
        drop(running);
        assert_eq!(fill(&limit).len(), 32);
        for expected in [16, 8, 4, 2, 1, 1] {
            fill(&limit)[0].answered(true);
            assert_eq!(fill(&limit).len(), expected);
        }
    }

    #[test]
    fn a_round_of_good_answers_raises_the_limit_by_one() {
        let limit = Arc::new(Limit::default());
        limit.lock().most = 8.0;
        fill(&limit).iter().for_each(|running| running.answered(false));
        assert_eq!(fill(&limit).len(), 8);
        fill(&limit).iter().for_each(|running| running.answered(false));
        assert_eq!(fill(&limit).len(), 9);
        (0..10_000).for_each(|_| fill(&limit)[0].answered(false));
        assert_eq!(fill(&limit).len(), MOST as usize);
    }

    #[tokio::test]
    async fn a_request_waits_until_another_one_ends() {
        let limit = Arc::new(Limit::default());
        limit.lock().most = 1.0;
        let first = limit.begin().await;
        let waiting = tokio::spawn({
            let limit = Arc::clone(&limit);
            async move { drop(limit.begin().await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
    }
}
