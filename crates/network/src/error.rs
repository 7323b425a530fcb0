//! What can fail when a job's network is made, and how a user is told.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use snowmelt_types::{Code, ErrorReport, Report};

use crate::Range;
use crate::netlink::Failed;

/// Everything that can fail in this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One step of making or changing a network failed; all before it was undone.
    #[error("the network of job {job} could not be made: cannot {step}: {source}")]
    Step {
        /// The job.
        job: String,
        /// What was being done, as a verb phrase.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// What was asked for makes no sense; nothing was made.
    #[error("the network of job {job} was refused: {reason}")]
    Spec {
        /// The job.
        job: String,
        /// What is wrong.
        reason: String,
    },
    /// Addresses or overlay are in use, or were by a network of which something is left.
    #[error("{what} of job {job} is taken by job {holder}")]
    Taken {
        /// Who asked.
        job: String,
        /// What was asked for: a range or the number of an overlay.
        what: String,
        /// Who has it.
        holder: String,
    },
    /// The address of the host in the underlay is none of this host's.
    #[error("{address} is not an address of this host")]
    Underlay {
        /// The address.
        address: IpAddr,
    },
    /// More functions than the host's part of the range has addresses.
    #[error("job {job} has no address {slot} on this host: its part {range} is too small")]
    Slot {
        /// The job.
        job: String,
        /// The place that was asked for, from 0.
        slot: u32,
        /// The host's part.
        range: Range,
    },
    /// Some hosts of the job did not answer in time.
    #[error("job {job}: no answer over its network within {within:?} from {}", list(missing))]
    Unreachable {
        /// The job.
        job: String,
        /// How long was waited.
        within: Duration,
        /// The hosts that did not answer, by their addresses in the underlay.
        missing: Vec<IpAddr>,
    },
    /// Something that holds functions to their addresses cannot be set up.
    #[error("functions cannot be held to their addresses: cannot {step}: {source}")]
    Hold {
        /// What was being done, as a verb phrase.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The lease of a network cannot be written, read or removed.
    #[error("the lease {} cannot be used: {source}", path.display())]
    Lease {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// A step of a job's that the kernel refused.
    pub(crate) fn step(job: &str, step: impl Into<String>, source: io::Error) -> Self {
        Self::Step { job: job.to_owned(), step: step.into(), source }
    }

    /// The same, of a batch.
    pub(crate) fn failed(job: &str, failed: Failed) -> Self {
        Self::step(job, failed.step, failed.source)
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Step { .. } | Self::Underlay { .. } | Self::Hold { .. } => Code::NETWORK_MAKE,
            Self::Spec { .. } | Self::Slot { .. } => Code::NETWORK_SPEC,
            Self::Taken { .. } => Code::NETWORK_TAKEN,
            Self::Unreachable { .. } => Code::NETWORK_UNREACHABLE,
            Self::Lease { .. } => Code::STATE,
        };
        let report = ErrorReport::new(code, self.to_string());
        match self {
            Self::Step { .. } | Self::Hold { .. } => {
                report.hint("run `snowmelt doctor` to see what this machine lacks")
            }
            Self::Underlay { .. } => report.hint("set the node's address to one of this host's"),
            Self::Slot { .. } => report.hint("give the job a larger range or more hosts"),
            Self::Taken { .. } => report.hint("wait until that job has ended, or ask for others"),
            Self::Unreachable { .. } => {
                report.hint("the hosts must reach each other's UDP port of the overlay")
            }
            _ => report,
        }
    }
}
