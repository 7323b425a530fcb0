//! Runs file operations outside of the async runtime's threads.

use crate::Result;

/// Runs `work` on a thread that may block. The work runs to its end even if the future is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
