//! Retries requests to a busy store, for longer than the store's client does.
//!
//! The client gives up after a few attempts, because most failures are permanent. A busy store
//! (503, 429) recovers, so its requests are retried for [`RETRY_TIME`].

use std::future::Future;
use std::time::{Duration, Instant};

use object_store::Result;

use crate::error::fault::s3::throttled;

/// How long requests to a busy store are retried.
const RETRY_TIME: Duration = Duration::from_secs(45);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Sends a request, and retries it while the store is busy.
pub async fn with_retries<T, F>(request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    retry_until(Instant::now() + RETRY_TIME, request).await
}

async fn retry_until<T, F>(end: Instant, mut request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut pause = Duration::from_millis(500);
    loop {
        match request().await {
            Err(error) if throttled(&error) && Instant::now() + pause < end => (),
            result => return result,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use object_store::Error;

    use super::*;

    fn busy() -> Error {
        Error::Generic { store: "S3", source: "status code: 503 Slow Down".into() }
    }

    #[tokio::test]
    async fn requests_to_a_busy_store_are_retried() {
        let mut left = 2;
        let answer = with_retries(|| {
            left -= 1;
            let answer = if left >= 0 { Err(busy()) } else { Ok(7) };
            async { answer }
        });
        assert_eq!(answer.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn retries_end_and_other_failures_are_returned_immediately() {
        let mut requests = 0;
        let answer: Result<()> = retry_until(Instant::now(), || {
            requests += 1;
            async { Err(busy()) }
        })
        .await;
        assert!(answer.is_err() && requests == 1);
        let answer: Result<()> = with_retries(|| async {
            Err(Error::NotImplemented { operation: "x".to_owned(), implementer: "y".to_owned() })
        })
        .await;
        assert!(answer.is_err());
    }
}
