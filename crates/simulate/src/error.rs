//! The errors of this crate, and their reports to users.

use snowmelt_types::{Code, ErrorReport, Report, SourceLocation};

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings contradict each other.
    #[error("there is nothing to simulate: {0}")]
    Setting(String),
    /// Something that must always hold did not.
    #[error("the simulation broke an invariant at {nanoseconds} ns of its time: {what}")]
    Invariant {
        /// The invariant that does not hold.
        what: String,
        /// The simulated time, in nanoseconds.
        nanoseconds: u64,
        /// The seed that replays the simulation.
        seed: u64,
    },
    /// A line of a trace is not as expected.
    #[error("line {line} of the trace {file}: {what}")]
    Trace {
        /// The name of the file.
        file: String,
        /// The number of the line, from 1.
        line: usize,
        /// The text that was found, and what was expected.
        what: String,
    },
    /// The caller has ended the simulation.
    #[error("the simulation was cancelled")]
    Cancelled,
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        match self {
            Self::Setting(_) => ErrorReport::new(Code::OPTION, self.to_string()),
            Self::Trace { file, line, what } => {
                let location =
                    SourceLocation { file: file.clone(), line: *line as u32, within: None };
                ErrorReport::new(Code::FILE_CORRUPT, format!("the trace cannot be read: {what}"))
                    .location(location)
            }
            Self::Cancelled => ErrorReport::new(Code::CANCELLED, self.to_string()),
            Self::Invariant { seed, .. } => ErrorReport::new(Code::INTERNAL, self.to_string())
                .hint(format!("the same command with --seed {seed} replays it")),
        }
    }
}
