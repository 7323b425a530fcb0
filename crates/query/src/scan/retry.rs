//! Repeats requests to a busy store, for longer than the store's own client does.
//!
//! The client gives up after a few attempts, because most failures are permanent. A busy store
//! (503, 429) recovers, so its requests are repeated for [`RETRY_TIME`].

use std::future::Future;
use std::time::{Duration, Instant};

use object_store::Result;

use super::s3_error::throttled;

/// How long requests to a busy store are repeated.
const RETRY_TIME: Duration = Duration::from_secs(45);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The answer of a request, which is repeated while the store is busy.
pub(crate) async fn with_retries<T, F>(ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    until(Instant::now() + RETRY_TIME, ask).await
}

async fn until<T, F>(end: Instant, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut pause = Duration::from_millis(500);
    loop {
        match ask().await {
            Err(error) if throttled(&error) && Instant::now() + pause < end => (),
            answered => return answered,
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
    async fn a_busy_store_is_asked_again() {
        let mut left = 2;
        let answer = with_retries(|| {
            left -= 1;
            let answer = if left >= 0 { Err(busy()) } else { Ok(7) };
            async { answer }
        });
        assert_eq!(answer.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn patience_ends_and_other_failures_are_told_at_once() {
        let mut asked = 0;
        let answer: Result<()> = until(Instant::now(), || {
            asked += 1;
            async { Err(busy()) }
        })
        .await;
        assert!(answer.is_err() && asked == 1);
        let answer: Result<()> = with_retries(|| async {
            Err(Error::NotImplemented { operation: "x".to_owned(), implementer: "y".to_owned() })
        })
        .await;
        assert!(answer.is_err());
    }
}
