//! A thread of its own for work that must be on time on a busy machine: sending and receiving the
//! heartbeats of hosts.

use std::thread;

use snowmelt_kernel::process::raise_scheduling_priority;
use snowmelt_types::{Code, ErrorReport};
use tokio::sync::oneshot;

/// Runs a future on a thread with a higher priority than all others, and returns its output.
pub(crate) async fn in_time<T: Send + 'static, F: Future<Output = T>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, ErrorReport> {
    let failed = |error: String| {
        ErrorReport::new(Code::INTERNAL, format!("cannot run the thread `{name}`: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let (done, waits) = oneshot::channel();
    let run = move || {
        if let Err(error) = raise_scheduling_priority() {
            tracing::debug!(%error, "the thread of hosts runs without priority");
        }
        // The receiver may have been dropped.
        drop(done.send(runtime.block_on(work())));
    };
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(|error| failed(error.to_string()))?;
    waits.await.map_err(|error| failed(error.to_string()))
}
