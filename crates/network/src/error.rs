//! The errors of this crate, and their reports to users.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, ErrorReport, Report};

use crate::Range;
use crate::netlink::BatchFailure;

/// An error of this crate.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    /// A step of creating or changing a network failed; the steps before it were undone.
    #[error("the network of job {job} could not be made: cannot {step}: {source}")]
    Step {
        /// The job.
        job: String,
        /// The step, as a verb phrase.
        step: String,
        /// The kernel's error.
        #[serde(with = "kernel_error")]
        source: io::Error,
    },
    /// The specification is invalid; nothing was created.
    #[error("the network of job {job} was refused: {reason}")]
    Spec {
        /// The job.
        job: String,
        /// The reason why the specification is invalid.
        reason: String,
    },
    /// An overlay is in use, or a network that used it is not completely removed.
    #[error("{what} of job {job} is in use by job {holder}")]
    Taken {
        /// The job that requested it.
        job: String,
        /// The resource, such as `overlay 7`.
        what: String,
        /// The job that uses it.
        holder: String,
    },
    /// The given underlay address does not belong to this host.
    #[error("{address} is not an address of this host")]
    Underlay {
        /// The address.
        address: IpAddr,
    },
    /// The job has more functions on this host than the host's part of the range has addresses.
    #[error(
        "job {job} has no address for slot {slot} on this host: its range {range} is too small"
    )]
    Slot {
        /// The job.
        job: String,
        /// The slot, from 0.
        slot: u32,
        /// The host's part of the job's range.
        range: Range,
    },
    /// Some hosts of the job did not answer in time.
    #[error("job {job}: no answer over its network within {within:?} from {}", list(missing))]
    Unreachable {
        /// The job.
        job: String,
        /// The time limit.
        within: Duration,
        /// The hosts that did not answer, by their addresses in the underlay.
        missing: Vec<IpAddr>,
    },
    /// Address enforcement cannot be set up.
    #[error("the addresses of functions cannot be enforced: cannot {step}: {source}")]
    Enforcement {
        /// The step, as a verb phrase.
        step: String,
        /// The kernel's error.
        #[serde(with = "kernel_error")]
        source: io::Error,
    },
    /// The lease of a network cannot be written, read or removed.
    #[error("the lease {} cannot be used: {source}", path.display())]
    Lease {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[serde(with = "kernel_error")]
        source: io::Error,
    },
}

/// The kernel's error between two processes: its number, or its text where it has none.
mod kernel_error {
    use std::io;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(error: &io::Error, to: S) -> Result<S::Ok, S::Error> {
        (error.raw_os_error(), error.to_string()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<io::Error, D::Error> {
        let (number, text) = <(Option<i32>, String)>::deserialize(from)?;
        Ok(number.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error))
    }
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// A step of a job that the kernel refused.
    pub(crate) fn step(job: &str, step: impl Into<String>, source: io::Error) -> Self {
        Self::Step { job: job.to_owned(), step: step.into(), source }
    }

    /// Makes the error of a batch of messages that the kernel refused.
    pub(crate) fn failed(job: &str, failed: BatchFailure) -> Self {
        Self::step(job, failed.step, failed.source)
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Step { .. } | Self::Underlay { .. } | Self::Enforcement { .. } => {
                Code::NETWORK_MAKE
            }
            Self::Spec { .. } | Self::Slot { .. } => Code::NETWORK_SPEC,
            Self::Taken { .. } => Code::NETWORK_TAKEN,
            Self::Unreachable { .. } => Code::NETWORK_UNREACHABLE,
            Self::Lease { .. } => Code::STATE,
        };
        let report = ErrorReport::new(code, self.to_string());
        match self {
            Self::Step { .. } | Self::Enforcement { .. } => {
                report.hint("run `snowmelt doctor` to see what this machine lacks")
            }
            Self::Underlay { .. } => report.hint("set the node's address to one of this host's"),
            Self::Slot { .. } => report.hint("give the job a larger range or more hosts"),
            Self::Taken { .. } => {
                report.hint("wait until that job has ended, or request another overlay")
            }
            Self::Unreachable { .. } => {
                report.hint("the hosts must reach each other's UDP port of the overlay")
            }
            _ => report,
        }
    }
}
