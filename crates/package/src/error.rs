//! Errors of this crate.

use std::io;
use std::path::PathBuf;

use snowmelt_types::{Code, Digest, ErrorReport, Report};

/// The reason why an environment is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The requirement is not a package name with versions. Nothing was started.
    #[error("the requirement `{line}` is refused: {reason}")]
    Requirement {
        /// The requirement as it was given.
        line: String,
        /// The fault in the requirement.
        reason: String,
        /// The requirement to write instead.
        hint: String,
    },
    /// The content of an uploaded wheel is not on this host.
    #[error("the uploaded wheel {wheel} is not on this host")]
    UploadedWheelMissing {
        /// The file name of the wheel.
        wheel: String,
    },
    /// The resolver found no versions that satisfy the requirements.
    #[error("the packages cannot be resolved: {requirements}")]
    Unresolvable {
        /// The requirements, separated by commas.
        requirements: String,
        /// The resolver's messages.
        lines: Vec<String>,
    },
    /// The package index did not answer.
    #[error("the package index cannot be reached")]
    IndexUnreachable {
        /// The resolver's messages.
        lines: Vec<String>,
    },
    /// The packages were resolved but could not be fetched or unpacked.
    #[error("the packages cannot be unpacked: {requirements}")]
    Install {
        /// The packages, separated by commas.
        requirements: String,
        /// The installer's messages.
        lines: Vec<String>,
    },
    /// A file does not match the package's RECORD.
    #[error("`{file}` does not match its package's RECORD after unpacking: {reason}")]
    Corrupt {
        /// The file, relative to the environment.
        file: String,
        /// The difference.
        reason: String,
    },
    /// A wheel of an environment was removed from the store.
    #[error("the unpacked package {wheel} is gone or damaged")]
    WheelMissing {
        /// Name and version of the wheel.
        wheel: String,
    },
    /// A requested subset contains a wheel that the environment does not have.
    #[error("the environment has no wheel {digest}")]
    NoSuchWheel {
        /// The wheel's digest.
        digest: Digest,
    },
    /// An environment variable has an invalid value.
    #[error("{name}: {reason}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// The fault in the setting's value.
        reason: String,
    },
    /// A tool exceeded its time limit and was killed.
    #[error("`{tool}` did not end within {seconds} s")]
    Slow {
        /// The operation.
        tool: &'static str,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// `uv` was not found.
    #[error("the resolver `uv` was not found{}", at(.tried))]
    UvMissing {
        /// The path in `SNOWMELT_UV`, if it is set.
        tried: Option<PathBuf>,
        /// The way to get the tool.
        hint: String,
    },
    /// No usable Python was found.
    #[error("no usable Python: {reason}")]
    PythonMissing {
        /// The tried interpreter, and why it cannot be used.
        reason: String,
    },
    /// No interpreter of the machine has a version that the code asks for, and none can be fetched.
    #[error("there is no interpreter for {wanted}: functions run on Python {running} by default")]
    PythonVersion {
        /// The requirements of Python.
        wanted: String,
        /// `major.minor` of the platform's interpreter.
        running: String,
        /// The message of uv, by lines.
        lines: Vec<String>,
    },
    /// A tool could not be started, or its output could not be read.
    #[error("`{tool}` cannot be run: {source}")]
    Tool {
        /// The program.
        tool: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The package store can be written by other users.
    #[error("the package store {path} cannot be trusted: {reason}")]
    Store {
        /// The folder of the store.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file or folder of the store cannot be used.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The failed action, as a verb phrase.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn at(tried: &Option<PathBuf>) -> String {
    tried
        .as_ref()
        .map(|path| format!(" at {}, which SNOWMELT_UV names", path.display()))
        .unwrap_or_default()
}

impl Error {
    /// Makes an I/O error with the action and the path, for use with `map_err`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } | Self::Tool { source, .. } => {
                source.kind() == io::ErrorKind::StorageFull
            }
            Self::Install { lines, .. } | Self::Unresolvable { lines, .. } => {
                lines.iter().any(|line| line.contains("No space left on device"))
            }
            _ => false,
        }
    }

    fn code(&self) -> Code {
        if self.is_disk_full() {
            return Code::DISK_FULL;
        }
        match self {
            Self::Requirement { .. }
            | Self::Unresolvable { .. }
            | Self::UploadedWheelMissing { .. } => Code::PACKAGE_RESOLVE,
            Self::IndexUnreachable { .. } => Code::PACKAGE_INDEX,
            Self::Install { .. }
            | Self::Corrupt { .. }
            | Self::WheelMissing { .. }
            | Self::Slow { .. } => Code::PACKAGE_INSTALL,
            Self::Setting { .. } => Code::OPTION,
            Self::NoSuchWheel { .. } => Code::INTERNAL,
            Self::UvMissing { .. } | Self::PythonMissing { .. } | Self::Tool { .. } => {
                Code::PACKAGE_TOOL
            }
            Self::PythonVersion { .. } => Code::PYTHON_VERSION,
            Self::Store { .. } | Self::Io { .. } => Code::STATE,
        }
    }

    fn lines(&self) -> &[String] {
        match self {
            Self::Unresolvable { lines, .. }
            | Self::IndexUnreachable { lines }
            | Self::PythonVersion { lines, .. }
            | Self::Install { lines, .. } => lines,
            _ => &[],
        }
    }

    fn hint(&self) -> Option<String> {
        if self.is_disk_full() {
            return Some("free some space on the disk that holds the state folder".to_owned());
        }
        let hint = match self {
            Self::Requirement { hint, .. } => hint.clone(),
            Self::Unresolvable { lines, .. } => unresolvable_hint(lines),
            Self::UploadedWheelMissing { .. } => {
                "deploy or call again on the machine that has the file, which uploads it; other \
                 hosts of a cluster can use packages of the index only"
                    .to_owned()
            }
            Self::IndexUnreachable { .. } => {
                "check the network; UV_DEFAULT_INDEX names another index and HTTPS_PROXY a proxy, \
                 in the environment of the platform (of `snowmelt up` where it is running)"
                    .to_owned()
            }
            Self::Install { .. } | Self::Corrupt { .. } => {
                "try again: the failed attempt left nothing behind".to_owned()
            }
            Self::Slow { .. } => "try again when the network or the machine is faster".to_owned(),
            Self::UvMissing { hint, .. } => hint.clone(),
            Self::PythonMissing { .. } => {
                "set SNOWMELT_PYTHON to a Python of version 3.10 or newer".to_owned()
            }
            Self::PythonVersion { running, .. } => format!(
                "ask for a version that the machine of the platform has (python=\"{running}\"), \
                 install the other one there (as python3.N on the PATH, by pyenv or by `uv python \
                 install`), or run the function in an image that has it"
            ),
            Self::Tool { .. } => "run `snowmelt doctor`".to_owned(),
            Self::Store { path, .. } => format!(
                "chmod 755 {0} && chown $USER {0}, or name the user in server.user (SNOWMELT_USER) if a \
                 server of root becomes that user",
                path.display()
            ),
            Self::WheelMissing { .. } => {
                "stop the processes that use its environment: the next one fetches the package again".to_owned()
            }
            Self::Setting { .. } | Self::NoSuchWheel { .. } | Self::Io { .. } => return None,
        };
        Some(hint)
    }
}

/// The hint for requirements that cannot be resolved. It adds only information that the resolver's
/// messages do not contain.
fn unresolvable_hint(lines: &[String]) -> String {
    if lines.iter().any(|line| line.contains("no usable wheels")) {
        return "only wheels are used, because building from source would run the package's own \
                code on this machine: choose a version that has a wheel for this Python and \
                platform"
            .to_owned();
    }
    "check the spelling and the versions of the requirements; SNOWMELT_REFRESH=1 ignores earlier \
     answers"
        .to_owned()
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let mut report =
            ErrorReport::new(self.code(), self.to_string()).excerpt(self.lines().iter().cloned());
        report.hint = self.hint();
        report
    }
}
