//! A thread of its own for what must be in time on a busy machine: that hosts say that they are
//! there, and that control hears it.

use std::thread;

use snowmelt_kernel::process::run_first;
use snowmelt_types::{Code, ErrorReport};
use tokio::sync::oneshot;

/// Runs a future by a thread that comes before all others, and gives what it gave.
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
        if let Err(error) = run_first() {
            tracing::debug!(%error, "hosts are heard like everything else");
        }
        // Nobody may wait for it any more.
        drop(done.send(runtime.block_on(work())));
    };
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(|error| failed(error.to_string()))?;
    waits.await.map_err(|error| failed(error.to_string()))
}
