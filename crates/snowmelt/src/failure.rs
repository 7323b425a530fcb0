//! What a command ends with when it does not succeed.

use snowmelt_types::ErrorReport;

/// An error with the exit code that it gives.
#[derive(Debug)]
pub struct Failure {
    /// What the user is told.
    pub report: ErrorReport,
    /// Exit code of the process.
    pub exit: u8,
}

impl From<ErrorReport> for Failure {
    fn from(report: ErrorReport) -> Self {
        let exit = report.known_code().exit as i32;
        Self { exit: u8::try_from(exit).unwrap_or(1), report }
    }
}

/// What a command gives: its exit code, or why it failed.
pub type Outcome = Result<u8, Failure>;
