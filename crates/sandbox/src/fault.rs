//! A failed step of making a sandbox, as the spawner reports it.
//!
//! Invariant: a fault names the step and keeps the kernel's error number; the server needs no more
//! to report both.

use std::io;

use crate::Error;
use crate::message::StartFailure;

/// A failed step, as a verb phrase, and the kernel's error.
#[derive(Debug)]
pub(crate) struct StepFault {
    /// The step, as a verb phrase.
    pub step: String,
    /// The kernel's error.
    pub source: io::Error,
}

/// Adds the step to the error of a call.
pub(crate) fn doing<T>(step: impl Into<String>, result: io::Result<T>) -> Result<T, StepFault> {
    result.map_err(|source| StepFault { step: step.into(), source })
}

impl StepFault {
    /// Converts an error of the control groups into a step.
    pub fn of_group(error: Error) -> Self {
        match error {
            Error::Cgroup { path, source } => {
                Self { step: format!("set up the control group {}", path.display()), source }
            }
            other => Self {
                step: "set up the control group".to_owned(),
                source: io::Error::other(other.to_string()),
            },
        }
    }
}

impl From<StepFault> for StartFailure {
    fn from(fault: StepFault) -> Self {
        let errno = fault.source.raw_os_error().unwrap_or(0);
        Self::Step { step: fault.step, errno }
    }
}
