//! Errors that say why an attempt of a task could not be started, and whether another may succeed.

use snowmelt_node::Error;
use snowmelt_types::{ByteSize, Code, End, ErrorReport, Report};
use snowmelt_wire::RequestFailure;

/// Returns the error when no file for an output can be created: the disk for outputs is full, or
/// the folder is gone.
pub(crate) fn no_output(error: &std::io::Error) -> RequestFailure {
    let message = format!("no file for the output of a task could be created: {error}");
    let hint = "free some space on the disk that holds the state folder";
    RequestFailure::of(ErrorReport::new(Code::DISK_FULL, message).hint(hint))
}

/// Returns the error for a function that cannot be started: it fails the query, unless the function
/// was lost with its spawner.
pub(crate) fn not_started(error: &Error) -> RequestFailure {
    let report = error.report();
    match report.known_code() {
        Code::SPAWNER_LOST => RequestFailure::lost(report),
        _ => RequestFailure::of(report),
    }
}

/// Returns the error for a worker that cannot be leased now.
pub(crate) fn lost(error: &Error) -> RequestFailure {
    RequestFailure::lost(error.report())
}

/// The hint for a user whose query was lost with the spawner.
pub(crate) const SPAWNER_REPLACED: &str = "run the query again: another spawner is started";

/// Returns why a worker has ended, and whether another worker may run its task.
pub(crate) fn worker_ended(end: End, output: Vec<String>) -> RequestFailure {
    let report =
        |code| ErrorReport::new(code, format!("a worker {end}")).excerpt(output.iter().cloned());
    match end {
        End::OutOfMemory { limit, .. } => {
            let twice = ByteSize(limit.bytes() * 2);
            let hint = format!(
                "give each worker more (--memory {}MiB), or use more workers",
                twice.bytes() >> 20
            );
            RequestFailure::of(report(Code::WORKER_MEMORY).hint(hint))
        }
        End::SpawnerLost => RequestFailure::lost(report(Code::SPAWNER_LOST).hint(SPAWNER_REPLACED)),
        _ => RequestFailure::lost(report(Code::WORKER_LOST)),
    }
}
