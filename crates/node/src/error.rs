//! What can go wrong on a host.

use std::path::PathBuf;

use snowmelt_types::{Code, End, ErrorReport, Outcome, Report};

/// A failure of the node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A sandbox could not be made.
    #[error(transparent)]
    Sandbox(#[from] snowmelt_sandbox::Error),
    /// Packages could not be resolved or unpacked.
    #[error(transparent)]
    Package(#[from] snowmelt_package::Error),
    /// A UDF's registration is wrong.
    #[error(transparent)]
    Udf(#[from] snowmelt_udf::Error),
    /// A sandbox broke the protocol, or its connection failed.
    #[error(transparent)]
    Wire(#[from] snowmelt_wire::Error),
    /// The user's own code failed.
    #[error(transparent)]
    Function(#[from] snowmelt_wire::FunctionFailure),
    /// A sandbox that runs user code came to its end.
    #[error("`{name}` {}", outcome.end)]
    Ended {
        /// The function or UDF.
        name: String,
        /// How.
        outcome: Outcome,
        /// The last lines that it wrote.
        output: Vec<String>,
    },
    /// A failure that is told already.
    #[error("{}", .0.message)]
    Report(Box<ErrorReport>),
    /// A file of the state folder could not be read or written.
    #[error("cannot use {path}: {source}")]
    State {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        match self {
            Self::Sandbox(error) => error.report(),
            Self::Package(error) => error.report(),
            Self::Udf(error) => error.report(),
            Self::Wire(error) => error.report(),
            Self::Report(report) => (**report).clone(),
            Self::Function(error) => error.report(),
            Self::Ended { name, outcome, output } => ended(name, outcome, output),
            Self::State { source, .. } if is_full(source) => {
                ErrorReport::new(Code::DISK_FULL, self.to_string())
                    .hint("free some space, or put the state elsewhere with SNOWMELT_STATE")
            }
            Self::State { .. } => ErrorReport::new(Code::STATE, self.to_string())
                .hint("`snowmelt doctor` says what is wrong with the state folder"),
        }
    }
}

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn ended(name: &str, outcome: &Outcome, output: &[String]) -> ErrorReport {
    let (code, hint) = match &outcome.end {
        End::Exit { .. } => (
            Code::FUNCTION_EXIT,
            "the function must return; it must not end its process".to_owned(),
        ),
        End::Signal { .. } => (
            Code::FUNCTION_SIGNAL,
            "native code in one of its packages crashed; call it locally to find out where"
                .to_owned(),
        ),
        End::OutOfMemory { peak, .. } => (
            Code::FUNCTION_MEMORY,
            format!("give it more with memory=\"{}MiB\"", (peak.bytes() >> 20).max(128) * 2),
        ),
        End::PidsLimit { .. } => {
            (Code::FUNCTION_PIDS, "start fewer processes and threads, or raise `pids`".to_owned())
        }
        End::Timeout { .. } => {
            (Code::FUNCTION_TIMEOUT, "give it more time with timeout=\"5m\"".to_owned())
        }
        End::Killed => (Code::CANCELLED, "it was stopped because its query ended".to_owned()),
    };
    ErrorReport::new(code, format!("`{name}` {}", outcome.end))
        .excerpt(output.iter().cloned())
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snowmelt_types::ByteSize;

    use super::*;

    #[test]
    fn out_of_memory_says_limit_peak_and_setting() {
        let end = End::OutOfMemory { limit: ByteSize::mib(512), peak: ByteSize::mib(512) };
        let outcome = Outcome { end, peak_memory: None, cpu: None, wall: Duration::ZERO };
        let error = Error::Ended { name: "score".into(), outcome, output: vec![] };
        let shown = error.report().to_string();
        assert!(
            shown.contains("`score` ran out of memory: limit 512 MiB, peak 512 MiB"),
            "{shown}"
        );
        assert!(shown.contains("memory=\"1024MiB\""), "{shown}");
    }
}
