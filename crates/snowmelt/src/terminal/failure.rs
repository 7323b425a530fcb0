//! The failure of a command.

use snowmelt_types::ErrorReport;

/// An error with the exit code that it gives.
#[derive(Debug)]
pub struct CommandFailure {
    /// The report that the user sees.
    pub report: ErrorReport,
    /// Exit code of the process.
    pub exit: u8,
}

impl From<ErrorReport> for CommandFailure {
    fn from(report: ErrorReport) -> Self {
        let exit = report.known_code().exit as i32;
        Self { exit: u8::try_from(exit).unwrap_or(1), report }
    }
}

/// The exit code of a command, or its failure.
pub type CommandOutcome = Result<u8, CommandFailure>;
