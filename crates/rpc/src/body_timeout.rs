//! Bodies of requests that have to come in time: a client that sends a part and no more would keep
//! its connection, and everything that the handler has reserved, for ever.
//!
//! Only the time that is spent waiting for the client counts: a handler may read as slowly as it
//! wants.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// The speed at which a body has to come.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time that all waits for the client may take together, whatever it has sent.
    pub grace: Duration,
    /// The number of bytes for which the client gets one more second.
    pub bytes_per_second: u64,
}

impl Pace {
    /// The pace at an address of a network, where even a modem is faster.
    pub(crate) const OF_NETWORK: Self =
        Self { grace: Duration::from_secs(20), bytes_per_second: 4096 };

    fn allowed(self, bytes: u64) -> Duration {
        self.grace
            + Duration::from_millis(bytes.saturating_mul(1000) / self.bytes_per_second.max(1))
    }
}

/// The error of a body that comes too slowly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooSlow;

impl std::fmt::Display for TooSlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body of the request comes too slowly")
    }
}

impl std::error::Error for TooSlow {}

/// A body that fails with [`TooSlow`] once the handler has waited for its client for too long.
pub(crate) struct Paced {
    body: Incoming,
    pace: Pace,
    bytes: u64,
    waited: Duration,
    /// The time since which the handler waits, and the timer that ends the wait.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Paced {
    pub fn new(body: Incoming, pace: Pace) -> Self {
        Self { body, pace, bytes: 0, waited: Duration::ZERO, waiting: None }
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if let Some((since, _)) = this.waiting.take() {
                this.waited += since.elapsed();
            }
            if let Some(Ok(frame)) = &frame {
                this.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let pace = this.pace;
        let bytes = this.bytes;
        let waited = this.waited;
        let (_, until) = this.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            let left = pace.allowed(bytes).saturating_sub(waited);
            (now, Box::pin(sleep_until(now + left)))
        });
        ready!(until.as_mut().poll(context));
        Poll::Ready(Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
