//! The reasons why a call of a function has no answer.

use std::time::Duration;

use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::FunctionFailure;

/// The reason why a call of a UDF has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The user's code failed; the instance is alive and can take the next batch.
    #[error("{0}")]
    Failed(Box<FunctionFailure>),
    /// The instance has ended; its node knows the reason (exit, signal, memory, pids).
    #[error("`{function}` ended in the middle of a batch")]
    Lost {
        /// The function.
        function: String,
    },
    /// The answer did not arrive in time. The instance may still run: its node must end it.
    #[error("`{function}` did not answer within {limit:?}")]
    Timeout {
        /// The function.
        function: String,
        /// The time limit.
        limit: Duration,
    },
    /// The answer has the wrong number of rows.
    #[error("`{function}` returned {found} values for {expected} rows")]
    Length {
        /// The function.
        function: String,
        /// The number of values.
        found: usize,
        /// The number of rows sent.
        expected: usize,
    },
    /// The answer has the wrong type.
    #[error("`{function}` returned {found} where {expected} is declared")]
    Type {
        /// The function.
        function: String,
        /// The type of the answer.
        found: String,
        /// The declared type.
        expected: String,
    },
    /// The instance violated the protocol.
    #[error("the instance of `{function}` violated the protocol: {source}")]
    Protocol {
        /// The function.
        function: String,
        /// The violation.
        source: snowmelt_wire::Error,
    },
}

impl Report for CallError {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Failed(failure) => return failure.report(),
            Self::Lost { .. } => Code::FUNCTION_EXIT,
            Self::Timeout { .. } => Code::FUNCTION_TIMEOUT,
            Self::Length { .. } => Code::FUNCTION_LENGTH,
            Self::Type { .. } => Code::FUNCTION_TYPE,
            Self::Protocol { .. } => Code::PROTOCOL,
        };
        let report = ErrorReport::new(code, self.to_string());
        match self {
            Self::Timeout { .. } => report.hint("give it more time with @sm.udf(timeout=\"5m\")"),
            _ => report,
        }
    }
}
