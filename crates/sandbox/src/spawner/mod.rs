//! The spawner: a single-threaded process that makes sandboxes on request.

use std::process::ExitCode;

/// Runs the spawner until its server is gone or says so. The control socket is its standard
/// input. Must be called before the process has a second thread.
pub fn spawner_main() -> ExitCode {
    ExitCode::FAILURE
}
