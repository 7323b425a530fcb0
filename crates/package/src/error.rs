//! What can go wrong between a list of requirements and a folder of packages.

use std::io;
use std::path::PathBuf;

use snowmelt_types::{Code, Digest, ErrorReport, Report};

/// Why there is no environment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A requirement that is not a name with versions; nothing was started.
    #[error("the requirement `{line}` is refused: {reason}")]
    Requirement {
        /// The requirement as it was given.
        line: String,
        /// What is wrong with it.
        reason: String,
        /// What to write instead.
        hint: String,
    },
    /// The content of a wheel of a user's own is not here.
    #[error("the wheel {wheel} of your own is not on this host")]
    OwnWheelMissing {
        /// Its file.
        wheel: String,
    },
    /// The resolver says that no set of versions satisfies the requirements.
    #[error("the packages cannot be resolved: {requirements}")]
    Unresolvable {
        /// The requirements, separated by commas.
        requirements: String,
        /// The resolver's own words.
        lines: Vec<String>,
    },
    /// The package index did not answer.
    #[error("the package index cannot be reached")]
    IndexUnreachable {
        /// The resolver's own words.
        lines: Vec<String>,
    },
    /// The packages were resolved but could not be fetched and unpacked.
    #[error("the packages cannot be unpacked: {requirements}")]
    Install {
        /// What was to be unpacked, separated by commas.
        requirements: String,
        /// The installer's own words.
        lines: Vec<String>,
    },
    /// A file is not what the package's own record says.
    #[error("`{file}` is not as its package says after unpacking: {reason}")]
    Corrupt {
        /// The file, relative to the environment.
        file: String,
        /// How it differs.
        reason: String,
    },
    /// A wheel of an environment is not in the store any more.
    #[error("the unpacked package {wheel} is gone or damaged")]
    WheelMissing {
        /// Name and version.
        wheel: String,
    },
    /// A subset was asked for with a wheel that the whole has not.
    #[error("the environment has no wheel {digest}")]
    NoSuchWheel {
        /// The wheel's digest.
        digest: Digest,
    },
    /// A variable has a value that cannot be.
    #[error("{name}: {reason}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// A tool did not end within its time and was killed.
    #[error("`{tool}` did not end within {seconds} s")]
    Slow {
        /// What it was doing.
        tool: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// There is no `uv`.
    #[error("the resolver `uv` was not found{}", at(.tried))]
    UvMissing {
        /// The path that `SNOWMELT_UV` names, if it names one.
        tried: Option<PathBuf>,
        /// The command that installs it.
        mend: String,
    },
    /// There is no usable Python.
    #[error("no usable Python: {reason}")]
    PythonMissing {
        /// Which one was tried and why it cannot be used.
        reason: String,
    },
    /// A tool could not be started or read.
    #[error("`{tool}` cannot be run: {source}")]
    Tool {
        /// The program.
        tool: String,
        /// What the system said.
        source: io::Error,
    },
    /// The store is one that others could write to.
    #[error("the package store {path} cannot be trusted: {reason}")]
    Store {
        /// Its folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file or folder of the store cannot be used.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// A verb phrase.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
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
    /// For `map_err`: an I/O error with what was tried, on which path.
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
            Self::Requirement { .. } | Self::Unresolvable { .. } | Self::OwnWheelMissing { .. } => {
                Code::PACKAGE_RESOLVE
            }
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
            Self::Store { .. } | Self::Io { .. } => Code::STATE,
        }
    }

    fn lines(&self) -> &[String] {
        match self {
            Self::Unresolvable { lines, .. }
            | Self::IndexUnreachable { lines }
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
            Self::OwnWheelMissing { .. } => {
                "deploy or call again from where the file is, which sends it; other hosts of a \
                 cluster have packages of the index only"
                    .to_owned()
            }
            Self::IndexUnreachable { .. } => {
                "check the network; UV_DEFAULT_INDEX names another index and HTTPS_PROXY a proxy, \
                 in the environment of the platform (of `snowmelt up` where it is running)"
                    .to_owned()
            }
            Self::Install { .. } | Self::Corrupt { .. } => {
                "try again: nothing of the failed attempt is kept".to_owned()
            }
            Self::Slow { .. } => "try again when the network or the machine is faster".to_owned(),
            Self::UvMissing { mend, .. } => mend.clone(),
            Self::PythonMissing { .. } => {
                "name one of version 3.10 or newer in SNOWMELT_PYTHON".to_owned()
            }
            Self::Tool { .. } => "run `snowmelt doctor`".to_owned(),
            Self::Store { path, .. } => format!("chmod 755 {0} && chown $USER {0}", path.display()),
            Self::WheelMissing { .. } => {
                "end what uses its environment: it is fetched again for the next".to_owned()
            }
            Self::Setting { .. } | Self::NoSuchWheel { .. } | Self::Io { .. } => return None,
        };
        Some(hint)
    }
}

/// The resolver's words are already shown; this adds only what it cannot know.
fn unresolvable_hint(lines: &[String]) -> String {
    if lines.iter().any(|line| line.contains("no usable wheels")) {
        return "only wheels are used, because building from source would run the package's own \
                code on this machine: choose a version that has a wheel for this Python and \
                platform"
            .to_owned();
    }
    "check the spelling and the versions of what you asked for; SNOWMELT_REFRESH=1 ignores earlier \
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
