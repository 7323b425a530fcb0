//! The errors of making a sandbox, and their reports for users.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use snowmelt_kernel::rootless::EntryError;
use snowmelt_types::{Code, ErrorReport, Report, SandboxId};

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine or the user's rights do not allow sandboxes.
    #[error("sandboxes cannot be made here: {reason}")]
    Unsupported {
        /// The requirement that is missing.
        reason: String,
    },
    /// The kernel does not let an ordinary user make sandboxes.
    #[error("user {user} cannot make sandboxes here: {source}")]
    Rootless {
        /// The number of the user.
        user: u32,
        /// The step that the kernel refuses.
        source: EntryError,
    },
    /// The spawner's program did not start.
    #[error("the spawner `{}` did not start: {source}", command.display())]
    Launch {
        /// The program.
        command: OsString,
        /// The kernel's error.
        source: io::Error,
    },
    /// The spawner has ended, and every sandbox with it. Another one is started, unless the
    /// platform is shutting down.
    #[error("the spawner is gone, and its sandboxes with it")]
    SpawnerLost,
    /// The spawner died, and no other one could be started so far.
    #[error("the spawner died and cannot be started again: {reason}")]
    NotReplaced {
        /// The reason why the last attempt failed.
        reason: String,
    },
    /// The ranges of user ids for zygotes are all in use.
    #[error("zygote {id} was refused: all slots for zygotes are in use")]
    ZygoteSlots {
        /// The refused zygote.
        id: SandboxId,
    },
    /// A folder or file of the run directory cannot be made, locked or removed.
    #[error("the run directory {} cannot be used: {source}", path.display())]
    RunDir {
        /// The folder or file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A control group cannot be made, written or removed.
    #[error("the control group {} cannot be used: {source}", path.display())]
    Cgroup {
        /// The folder or file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A step of making a sandbox failed.
    #[error("sandbox {id} could not be started: cannot {step}: {source}")]
    Start {
        /// The sandbox.
        id: SandboxId,
        /// The failed step, as a verb phrase.
        step: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The spec is invalid; nothing was started.
    #[error("sandbox {id} was refused: {reason}")]
    Spec {
        /// The refused sandbox.
        id: SandboxId,
        /// The fault in the spec.
        reason: String,
    },
    /// The zygote ended, or broke its protocol and was killed.
    #[error("zygote {id} is gone")]
    ZygoteLost {
        /// The zygote.
        id: SandboxId,
    },
    /// A system call policy cannot be compiled.
    #[error("the system call policy `{name}` cannot be compiled: {reason}")]
    Policy {
        /// The policy.
        name: String,
        /// The compiler's error.
        reason: String,
    },
}

impl Error {
    /// Returns the error for another caller that waited for the same spawner.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::NotReplaced { reason } => Self::NotReplaced { reason: reason.clone() },
            _ => Self::SpawnerLost,
        }
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Rootless { .. } => Code::ROOTLESS,
            Self::SpawnerLost => Code::SPAWNER_LOST,
            Self::NotReplaced { .. } => Code::SPAWNER_START,
            Self::ZygoteSlots { .. } => Code::ZYGOTES_BUSY,
            Self::RunDir { .. } => Code::STATE,
            Self::Policy { .. } => Code::INTERNAL,
            _ => Code::SANDBOX_START,
        };
        let report = ErrorReport::new(code, self.to_string());
        match self {
            Self::Unsupported { .. } | Self::Launch { .. } | Self::Cgroup { .. } => {
                report.hint("run `snowmelt doctor` to see what this machine lacks")
            }
            Self::Rootless { source, .. } => report.hint(source.remedy()),
            Self::SpawnerLost => report.hint("try again: another spawner is started"),
            Self::NotReplaced { .. } => {
                report.hint("the start is retried; `snowmelt doctor` shows what is missing")
            }
            Self::ZygoteSlots { .. } => report.hint("try again when other calls have ended"),
            Self::ZygoteLost { .. } => report.hint("try again: a new zygote is started"),
            _ => report,
        }
    }
}
