//! Why an attempt of a task could not be started, and whether another may succeed.

use snowmelt_types::{Code, End, ErrorReport, Report};
use snowmelt_wire::Failed;

use crate::Error;
use crate::worker_end::worker_report;

/// The disk for outputs is full, or the folder is gone.
pub(crate) fn no_output(error: &std::io::Error) -> Failed {
    let message = format!("no file for the output of a task could be created: {error}");
    let hint = "free some space on the disk that holds the state folder";
    Failed::of(ErrorReport::new(Code::DISK_FULL, message).hint(hint))
}

/// A function that cannot be started fails the query, unless it was lost with its spawner.
pub(crate) fn not_started(error: &Error) -> Failed {
    let report = error.report();
    match report.known_code() {
        Code::SPAWNER_LOST => Failed::lost(report),
        _ => Failed::of(report),
    }
}

/// A worker that cannot be leased now.
pub(crate) fn lost(error: &Error) -> Failed {
    Failed::lost(error.report())
}

/// Why a worker has ended, and whether another one may run its task.
pub(crate) fn worker_ended(end: &End, output: &[String]) -> Failed {
    let report = worker_report(end, output);
    match end {
        End::OutOfMemory { .. } => Failed::of(report),
        _ => Failed::lost(report),
    }
}
